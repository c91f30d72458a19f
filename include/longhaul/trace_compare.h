/* SPDX-License-Identifier: Apache-2.0 */
/* A measured iteration held against its prediction, pass by pass, and the
 * iterations of a run as its log has them. */
#ifndef LONGHAUL_TRACE_COMPARE_H
#define LONGHAUL_TRACE_COMPARE_H

#include <longhaul/schedule.h>
#include <longhaul/status.h>
#include <longhaul/trace.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Passes of one kind, or messages, that both traces have. */
typedef struct lh_trace_share {
    uint64_t n;
    int64_t predicted_ns, measured_ns; /* added up */
} lh_trace_share;

typedef struct lh_trace_difference {
    int64_t predicted_ns, measured_ns; /* makespans */
    lh_trace_share kinds[LH_B + 1];    /* by lh_pass_kind */
    lh_trace_share messages;           /* from readiness to arrival */
    uint64_t n_passes; /* that both have; and those that one has alone */
    uint64_t n_only_predicted, n_only_measured;
    double mean_start_ns; /* of the absolute differences of starts */
    int64_t worst_start_ns;
    char worst[LH_PASS_TEXT]; /* the pass of that */
    /* Where the two part: the first pass by the predicted times that starts
     * off by more than a thousandth of the makespan; "": none does. */
    char parts[LH_PASS_TEXT];
    uint32_t parts_device;
    int64_t parts_at_ns, parts_by_ns; /* predicted start; later by so much */
    bool parts_waits; /* by the prediction it waits for a message */
} lh_trace_difference;

/* LH_EINPUT: the traces are of different jobs, with other numbers of devices,
 * chunks or microbatches, or have no pass in common. */
LH_API lh_status lh_trace_compare(const lh_trace *predicted,
                                  const lh_trace *measured,
                                  lh_trace_difference *out, lh_error *err);

/* An iteration of a run. */
typedef struct lh_logged_iteration {
    uint64_t step; /* from 0 */
    int64_t ns;
} lh_logged_iteration;

/* Immutable; owns what it points to. */
typedef struct lh_run_log {
    uint32_t n_iterations; /* at least 1 */
    const lh_logged_iteration *iterations;
    int64_t median_ns;
} lh_run_log;

/* The iterations of the last run in a log, an object of JSON per line with
 * "step" and "seconds", as `longhaul train --log` writes them: where steps
 * begin anew, so does a run. `name` is what messages call the text. Release
 * with lh_run_log_free().
 * LH_EINPUT: a line is no iteration, or there is none. */
LH_API lh_status lh_run_log_parse(const char *text, size_t len,
                                  const char *name, lh_run_log **out,
                                  lh_error *err);
LH_API lh_status lh_run_log_read(const char *path, lh_run_log **out,
                                 lh_error *err);
LH_API void lh_run_log_free(lh_run_log *log); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
