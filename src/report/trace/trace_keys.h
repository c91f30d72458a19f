/* SPDX-License-Identifier: Apache-2.0 */
/* Trace file format keys: docs/formats/trace.md. */
#ifndef LHI_REPORT_TRACE_TRACE_KEYS_H
#define LHI_REPORT_TRACE_TRACE_KEYS_H

#include "format/document/schema.h"

#include <longhaul/experimental/trace.h>

/* Maximum time in a trace: larger integers are inexact in JSON. */
#define LHI_TRACE_MOST_NS (INT64_C(1) << 53)

/* Fields "ts" and "dur" in slices, for viewers. */
typedef struct lhi_trace_slice {
    double start_us, length_us;
} lhi_trace_slice;

/* Keys before the events, in order. The last key is "traceEvents". */
extern const lhi_schema lhi_trace_table; /* lh_trace */
extern const lhi_schema lhi_trace_slice_table;
/* Slice args. */
extern const lhi_schema lhi_trace_run_table;        /* lh_trace_run */
extern const lhi_schema lhi_trace_message_table;    /* lh_trace_message */
extern const lhi_schema lhi_trace_collective_table; /* lh_trace_collective */
extern const lhi_schema lhi_trace_copy_table;       /* lh_trace_offload */

#endif
