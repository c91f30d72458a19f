/* SPDX-License-Identifier: Apache-2.0 */
/* Trace construction inside the library.
 *
 * Input: a simulated timeline, a caller's measurements, or a file
 * (docs/formats/trace.md). Output: a valid sorted lh_trace, or its file.
 *
 * - trace.c: validation, order, copies
 * - trace_make.c: from a timeline
 * - trace_keys.c: tables with the file's keys (format/document/schema.h)
 * - trace_read.c, trace_write.c: the events around them
 * - json_text.c: compact JSON that is safe in HTML */
#ifndef LHI_REPORT_TRACE_TRACE_INTERNAL_H
#define LHI_REPORT_TRACE_TRACE_INTERNAL_H

#include "base/fail.h"

#include <longhaul/experimental/trace.h>

/* A trace's source lines in their input order, for error messages. */
typedef struct lhi_trace_source_lines {
    const char *file;
    const uint32_t *run_lines, *message_lines, *collective_lines, *copy_lines;
} lhi_trace_source_lines;

/* Checks and copies a trace as lh_trace_copy() does, but errors name the file
 * and line; `origin` may be NULL. */
lh_status lhi_trace_build(const lh_trace *from,
                          const lhi_trace_source_lines *origin, lh_trace **out,
                          lh_error *err);

/* Index entry that maps a pass to its run. */
typedef struct lhi_run_index_entry {
    uint64_t key;
    uint32_t run;
} lhi_run_index_entry;

/* Builds an index of `n` runs (passes with times) for lhi_run_index_find();
 * release with free(). NULL on allocation failure. Runs with the same pass are
 * adjacent. */
lhi_run_index_entry *lhi_run_index_build(const lh_trace_run *runs, uint32_t n);
/* Returns the number of the run (pass with times) of `pass`, by binary search
 * in the index of n runs; LH_NONE: not in the trace. */
uint32_t lhi_run_index_find(const lhi_run_index_entry *index, uint32_t n,
                            const lh_pass *pass);

#endif
