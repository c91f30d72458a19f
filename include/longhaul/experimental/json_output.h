/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output: the results that the program prints with --json, for library
 * users. A failed call produces no partial text. Release texts with
 * lh_text_free(); `len` receives the size in bytes and may be NULL. Times are
 * seconds; memory has the pipeline's unit.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_JSON_OUTPUT_H
#define LONGHAUL_EXPERIMENTAL_JSON_OUTPUT_H

#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/check.h>
#include <longhaul/experimental/compare.h>
#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/optical.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/size.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/experimental/tradeoff.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Input for `longhaul simulate`: a simulated iteration with its analysis. */
typedef struct lh_simulated {
    size_t size;      /* sizeof(lh_simulated) */
    const char *name; /* schedule name: method or file */
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const lh_timeline *timeline; /* result for the two above */
    const lh_analysis *analysis; /* result for the three above */
    const lh_plan *plan;         /* pipeline's owner; NULL: none. Adds the time
                                  * after the pipeline */
    /* statistics for the pipeline; NULL: not sampled. With a plan, includes the
     * time after the pipeline */
    const lh_jitter_result *jitter;
    lh_solve_objective objective;
} lh_simulated;

/* Computes the lower bound on a simulated schedule's makespan, with its
 * explanation: the closed form or, for the plan's own schedule, the bound
 * proven by the plan's search. */
LH_API lh_status lh_simulated_bound(const lh_simulated *simulated,
                                    lh_bound *out, lh_error *err);
/* Formats the simulation result as JSON: `longhaul simulate`. LH_EINVAL: a
 * required pointer is NULL. */
LH_API lh_status lh_simulated_format(const lh_simulated *simulated, char **text,
                                     size_t *len, lh_error *err);

/* Input for `longhaul schedule`: a schedule and its origin. */
typedef struct lh_scheduled {
    size_t size;           /* sizeof(lh_scheduled) */
    const char *requested; /* scheduler name, <longhaul/scheduler.h> */
    const char *method;    /* method that made it */
    const lh_pipeline *pipeline;
    const lh_timeline *timeline; /* NULL: proven infeasible */
    lh_solve_objective objective;
    int64_t bound_ns;       /* lower bound on the objective */
    const char *limited_by; /* bottleneck in words */
    double seconds;         /* computation time */
    int64_t fifo_ns;  /* objective with first in, first out; 0: not relevant */
    int64_t split_ns; /* objective with split W passes; 0: not merged */
    const char *certificate, *proof; /* file and kind; NULL: none */
    uint32_t n_engines;
    const lh_solve_engine *engines;
    const lh_memory_point *memory; /* minimum-memory result, if requested */
} lh_scheduled;

/* Formats a schedule with bound and statistics as JSON: `longhaul schedule`.
 * LH_EINVAL: a required pointer is NULL. */
LH_API lh_status lh_scheduled_format(const lh_scheduled *scheduled, char **text,
                                     size_t *len, lh_error *err);

/* Removes a schedule's link orders (explicit message orders on links) if first
 * in, first out is as fast under `options` (may be NULL). *plain: the schedule
 * without them, NULL if they are kept. *fifo_ns: the makespan without them if
 * it is longer, else 0. Release *plain with lh_schedule_free(). Errors as in
 * lh_simulate(). */
LH_API lh_status lh_schedule_drop_useless_link_orders(
    const lh_pipeline *pipeline, const lh_schedule *schedule,
    const lh_sim_options *options, lh_schedule **plain, int64_t *fifo_ns,
    lh_error *err);

/* Formats the verdict on a schedule as JSON: `longhaul check`. `certificate`
 * and `claims`: NULL if no proof was checked. */
LH_API lh_status lh_verdict_format(const lh_verdict *verdict,
                                   const lh_pipeline *pipeline,
                                   const lh_certificate *certificate,
                                   const lh_claims *claims, char **text,
                                   size_t *len, lh_error *err);

/* Formats all contenders' outcomes at every point of the sweep, with
 * ranks, as JSON: `longhaul compare`. */
LH_API lh_status lh_comparison_format(const lh_comparison *comparison,
                                      char **text, size_t *len, lh_error *err);

/* Formats every policy with its seeds as JSON: `longhaul optical`. */
LH_API lh_status lh_optical_format(const lh_scenario *scenario,
                                   const lh_optical *optical, char **text,
                                   size_t *len, lh_error *err);

/* Formats all combinations' and policies' means as JSON: `longhaul optical
 * --sweep`. */
LH_API lh_status lh_optical_sweep_format(const lh_optical_sweep *sweep,
                                         char **text, size_t *len,
                                         lh_error *err);
/* Formats the best sizes (numbers of nodes per datacenter) that a search found,
 * with the lower bounds over all sizes, as JSON: `longhaul size`. `options`:
 * those of the search. */
LH_API lh_status lh_size_result_format(const lh_job *job,
                                       const lh_size_options *options,
                                       const lh_size_result *result,
                                       char **text, size_t *len, lh_error *err);

/* Formats the diagnosis with its remedies as JSON: `longhaul diagnose`. */
LH_API lh_status lh_diagnosis_format(const lh_diagnosis *diagnosis, char **text,
                                     size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
