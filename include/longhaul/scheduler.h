/* SPDX-License-Identifier: Apache-2.0 */
/* Creates schedules by name: every method in <longhaul/experimental/methods.h>,
 * "optimal" (search), and "auto", which picks the best result. */
#ifndef LONGHAUL_SCHEDULER_H
#define LONGHAUL_SCHEDULER_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Experimental options. */
struct lh_method_options;
struct lh_solve_progress;

/* Returns how many scheduler names exist, including "optimal" and "auto". Names
 * are ordered as in help texts and tables. */
LH_API uint32_t lh_n_schedulers(void);
/* Returns the i-th scheduler name: the methods, then "optimal", then "auto";
 * static storage. */
LH_API const char *lh_scheduler_name(uint32_t i);
/* Returns scheduler number `i`'s one-line description; static storage. */
LH_API const char *lh_scheduler_about(uint32_t i);
/* Name of the search for an optimal schedule (LH_OPTIMAL), which is not a
 * method. lh_scheduler_is_search() checks for it. */
#define LH_OPTIMAL "optimal"
/* Returns true if `name` is "optimal", the exact search. */
LH_API bool lh_scheduler_is_search(const char *name);
/* Checks that a scheduler with that name exists. LH_EINVAL: unknown name; `err`
 * lists the known ones. */
LH_API lh_status lh_scheduler_check_name(const char *name, lh_error *err);

/* Options for lh_scheduler_run(). */
typedef struct lh_scheduler_options {
    size_t size; /* sizeof(lh_scheduler_options) */
    const struct lh_method_options
        *method; /* `sim` evaluates candidates; `bound_ns`
                  * is computed. NULL: defaults */
    /* Search effort in lh_solve_options units; results are deterministic. 0:
     * 1000000 for "optimal" and for "auto" with memory limits, 200000 for
     * "auto" without. */
    uint64_t effort;
    /* Progress callback; may stop a search, see lh_solve_options. May be NULL.
     */
    bool (*progress)(void *context, const struct lh_solve_progress *now);
    void *context;
    /* Solver engines to disable, see lh_solve_options. */
    const char *disabled_engines;
} lh_scheduler_options;

/* A schedule with its method and lower bound. */
typedef struct lh_scheduler_result {
    lh_schedule *schedule;
    /* name of the method that made the schedule. "optimal" if the search
     * improved on all methods, or proved their best result optimal and
     * "optimal" was requested. Static storage */
    const char *method;
    int64_t bound_ns; /* lower bound for schedules with whole W passes, or W
                       * in the requested parts, under any `sim` */
    char why[160];    /* the bottleneck's description */
} lh_scheduler_result;

/* Builds a schedule with the named scheduler. `options` may be NULL. The search
 * assumes early receives and no coupled queues; if `sim` differs and a method
 * is faster under it, "optimal" returns that method's schedule. "auto"
 * runs every applicable method and then a search; it skips the search for
 * pipelines with more than 200000 passes. Release with
 * lh_scheduler_result_fini(). Errors as in lh_method_run(). */
LH_API lh_status lh_scheduler_run(const char *name, const lh_pipeline *pipeline,
                                  const lh_scheduler_options *options,
                                  lh_scheduler_result *out, lh_error *err);
LH_API void lh_scheduler_result_fini(
    lh_scheduler_result *best); /* frees; NULL is a no-op */

#ifdef __cplusplus
}
#endif
#endif
