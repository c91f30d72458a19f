/* SPDX-License-Identifier: Apache-2.0 */
/* Reader for a longhaul trace as one step in a recording. */
#ifndef LHI_REPORT_DIAGNOSIS_OP_TRACE_H
#define LHI_REPORT_DIAGNOSIS_OP_TRACE_H

#include "report/diagnosis/gzip_stream.h"
#include "report/diagnosis/op_rows.h"

/* Adds a trace's operations to `rows` as those of step `step`. Its
 * receives count as pre-posted. */
lh_status lhi_op_trace_read(lhi_gzip_stream *zip, const char *name,
                            uint64_t step, lhi_rows *rows, lh_error *err);

#endif
