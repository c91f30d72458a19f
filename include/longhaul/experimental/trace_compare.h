/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a measured iteration with its prediction pass by pass, and reads
 * iteration times from a run's log.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_TRACE_COMPARE_H
#define LONGHAUL_EXPERIMENTAL_TRACE_COMPARE_H

#include <longhaul/experimental/trace.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Totals over passes of one kind, or messages, that occur in both traces. */
typedef struct lh_trace_share {
    uint64_t n;
    int64_t predicted_ns, measured_ns; /* sums */
} lh_trace_share;

/* Differences between a measured and a predicted iteration. Nanoseconds. */
typedef struct lh_trace_difference {
    int64_t predicted_ns, measured_ns; /* makespans */
    lh_trace_share kinds[LH_B + 1];    /* indexed by lh_pass_kind */
    lh_trace_share messages;           /* from readiness to arrival */
    uint64_t n_passes;                 /* in both traces; in only one of them */
    uint64_t n_only_predicted, n_only_measured;
    double mean_start_ns; /* mean absolute start time difference */
    int64_t worst_start_ns;
    char worst[LH_PASS_TEXT_SIZE]; /* pass with the largest difference */
    /* Divergence: the first pass, by predicted time, whose start differs by
     * more than 0.1 % of the makespan; "": none. */
    char divergence[LH_PASS_TEXT_SIZE];
    uint32_t divergence_device;
    int64_t divergence_ns, divergence_delay_ns; /* predicted start; delay in the
                                                 * measurement */
    bool divergence_waits; /* the prediction has it wait for a message */
} lh_trace_difference;

/* Compares a predicted and a measured trace pass by pass. LH_EINPUT: the
 * traces belong to different jobs (numbers of devices, chunks or microbatches
 * differ), or no pass is in both. */
LH_API lh_status lh_trace_compare(const lh_trace *predicted,
                                  const lh_trace *measured,
                                  lh_trace_difference *out, lh_error *err);

/* One iteration of a run. */
typedef struct lh_logged_iteration {
    uint64_t step; /* from 0 */
    int64_t ns;
} lh_logged_iteration;

/* A run's iterations. Immutable; owns its contents. Release with
 * lh_run_log_free(). */
typedef struct lh_run_log {
    uint32_t n_iterations; /* at least 1 */
    const lh_logged_iteration *iterations;
    int64_t median_ns;
} lh_run_log;

/* Reads and parses a log file. LH_EIO: it cannot be read. */
LH_API lh_status lh_run_log_read(const char *path, lh_run_log **out,
                                 lh_error *err);
LH_API void lh_run_log_free(lh_run_log *log); /* frees; NULL is a no-op */

#ifdef __cplusplus
}
#endif
#endif
