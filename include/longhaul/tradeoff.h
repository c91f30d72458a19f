/* SPDX-License-Identifier: Apache-2.0 */
/* Time against memory: the least memory limit that keeps a makespan, and the
 * curve of the least makespan over the limit. A limit is one number for every
 * device, as `memory_limit` in a pipeline file; where the pipeline has lower
 * ones of its own, these hold. docs/theory/optimal.md, "Memory". */
#ifndef LONGHAUL_TRADEOFF_H
#define LONGHAUL_TRADEOFF_H

#include <longhaul/solve.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lh_tradeoff_options {
    size_t size; /* sizeof(lh_tradeoff_options) */
    /* How each step is solved, the objective being the makespan. Its effort is
     * that of one step (0: 2 million), its time limit that of all steps
     * together; its target is not looked at. NULL: the defaults. */
    const lh_solve_options *each;
    int64_t makespan_ns; /* to keep; 0: the least within the own limits */
    uint32_t points;     /* of a curve, at most; 0: 64 */
} lh_tradeoff_options;

/* A schedule, and what is proven about its neighbours. */
typedef struct lh_memory_point {
    int64_t limit;       /* no device holds more */
    int64_t limit_bound; /* with less than this no schedule takes at most
                            `kept_ns` */
    int64_t kept_ns;     /* the makespan that was asked for */
    int64_t makespan_ns; /* of the schedule, at most kept_ns */
    int64_t bound_ns;    /* within `limit` no schedule is faster */
    /* Whether makespan_ns is the least within `limit`: OPTIMAL or FEASIBLE. */
    lh_solve_status status;
    lh_schedule *schedule;
} lh_memory_point;

/* The least limit within which a schedule takes at most options->makespan_ns.
 * limit == limit_bound: proven. `options` may be NULL. LH_EINFEASIBLE: there is
 * no such schedule, or none was found; `err` says which. Release with
 * lh_memory_point_fini(). */
LH_API lh_status lh_least_memory(const lh_pipeline *pipeline,
                                 const lh_tradeoff_options *options,
                                 lh_memory_point *out, lh_error *err);
LH_API void lh_memory_point_fini(lh_memory_point *point); /* NULL is fine */

typedef struct lh_memory_curve {
    uint32_t n_points;
    /* Falling limits, rising makespans. Between the limits of one point and the
     * next, the former's makespan is the best known. */
    lh_memory_point *points;
    /* Below this limit there is no schedule at all (proven); -1: not known. */
    int64_t infeasible_below;
    bool complete; /* false: stopped, or more points than were asked for */
} lh_memory_curve;

LH_API lh_status lh_memory_curve_make(const lh_pipeline *pipeline,
                                      const lh_tradeoff_options *options,
                                      lh_memory_curve *out, lh_error *err);
LH_API void lh_memory_curve_fini(lh_memory_curve *curve); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
