/* SPDX-License-Identifier: Apache-2.0 */
/* How traces are put together inside the library.
 *
 * In: a simulated timeline, what a caller measured, or a file
 * (docs/formats/trace.md). Out: an lh_trace, checked and in order, or its
 * file.
 * trace.c: checks, order, copies. trace_make.c: from a timeline. trace_keys.c:
 * the keys of the file, by tables (doc/fields.h); trace_read.c and
 * trace_write.c: the events around them. jsontext.c: JSON as compact text that
 * is safe in HTML. */
#ifndef LHI_TRACE_OWN_H
#define LHI_TRACE_OWN_H

#include "base/fail.h"

#include <longhaul/trace.h>

/* Where the parts of a trace stood in a file, in the order in which they are
 * given: for messages. */
typedef struct lhi_trace_origin {
    const char *file;
    const uint32_t *run_lines, *message_lines, *collective_lines, *copy_lines;
} lhi_trace_origin;

/* lh_trace_copy() with errors that name the file and the line; `origin` may
 * be NULL. */
lh_status lhi_trace_build(const lh_trace *from, const lhi_trace_origin *origin,
                          lh_trace **out, lh_error *err);

/* Finds runs by their pass. */
typedef struct lhi_run_key {
    uint64_t key;
    uint32_t run;
} lhi_run_key;

/* An index of `n` runs, to be released with free(); NULL: no memory. Runs of
 * one pass stand side by side in it. */
lhi_run_key *lhi_run_index(const lh_trace_run *runs, uint32_t n);
/* The run of a pass, LH_NONE: there is none. */
uint32_t lhi_run_find(const lhi_run_key *index, uint32_t n,
                      const lh_pass *pass);

#endif
