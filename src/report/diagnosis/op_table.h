/* SPDX-License-Identifier: Apache-2.0 */
/* Reader for recordings as tables: docs/formats/recording.md. */
#ifndef LHI_REPORT_DIAGNOSIS_OP_TABLE_H
#define LHI_REPORT_DIAGNOSIS_OP_TABLE_H

#include "report/diagnosis/gzip_stream.h"
#include "report/diagnosis/op_rows.h"

/* Reads a recording table and adds its operations to `rows`. */
lh_status lhi_op_table_read(lhi_gzip_stream *zip, const char *name,
                            lhi_rows *rows, lh_error *err);

#endif
