/* SPDX-License-Identifier: Apache-2.0 */
/* Trade-off between time and memory: the minimum memory limit for a given
 * makespan, and the curve of minimum makespan over the limit. A limit is one
 * number for all devices, like `memory_limit` in a pipeline file; lower limits
 * in the pipeline take precedence. docs/theory/optimal.md, "Memory".
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_TRADEOFF_H
#define LONGHAUL_EXPERIMENTAL_TRADEOFF_H

#include <longhaul/experimental/solve.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options for lh_minimise_memory() and lh_memory_curve_make(). */
typedef struct lh_tradeoff_options {
    size_t size; /* sizeof(lh_tradeoff_options) */
    /* Solver options per step, with the makespan as objective. The effort
     * applies to one step (0: 2 million), the time limit to all steps together;
     * target_ns is ignored. NULL: defaults. */
    const lh_solve_options *solve_options;
    int64_t makespan_ns; /* target makespan; 0: minimum within the pipeline's
                          * limits */
    uint32_t points;     /* a curve's maximum points; 0: 64 */
} lh_tradeoff_options;

/* A schedule with proven bounds on memory and time. */
typedef struct lh_memory_point {
    int64_t limit;       /* maximum memory on any device */
    int64_t limit_bound; /* proven: below this limit no schedule ends within
                          * `target_ns` */
    int64_t target_ns;   /* requested makespan */
    int64_t makespan_ns; /* schedule's makespan, <= target_ns */
    int64_t bound_ns;    /* lower bound on the makespan within `limit` */
    /* OPTIMAL if makespan_ns is proven minimal within `limit`, else FEASIBLE.
     */
    lh_solve_status status;
    lh_schedule *schedule;
} lh_memory_point;

/* Minimises the memory limit for a makespan of at most options->makespan_ns.
 * limit == limit_bound: proven minimal. `options` may be NULL. Release with
 * lh_memory_point_fini(). LH_EINFEASIBLE: no such schedule exists, or none was
 * found; `err` names it. */
LH_API lh_status lh_minimise_memory(const lh_pipeline *pipeline,
                                    const lh_tradeoff_options *options,
                                    lh_memory_point *out, lh_error *err);
/* Frees a memory-time curve point's schedule; ignores NULL. */
LH_API void lh_memory_point_fini(lh_memory_point *point);

/* Pareto curve of makespan over memory limit. Release with
 * lh_memory_curve_fini(). */
typedef struct lh_memory_curve {
    uint32_t n_points;
    /* Points by decreasing limit and increasing makespan. Between two limits,
     * the makespan of the point with the higher limit is the best known. */
    lh_memory_point *points;
    /* Proven: no schedule exists below this limit; -1: unknown. */
    int64_t infeasible_below;
    bool complete; /* false: stopped early, or too many points */
} lh_memory_curve;

/* Computes the curve of minimal makespan against memory limit. `options` may
 * be NULL. Release with lh_memory_curve_fini(). */
LH_API lh_status lh_memory_curve_make(const lh_pipeline *pipeline,
                                      const lh_tradeoff_options *options,
                                      lh_memory_curve *out, lh_error *err);
/* Frees a memory-time curve's points; ignores NULL. */
LH_API void lh_memory_curve_fini(lh_memory_curve *curve);

#ifdef __cplusplus
}
#endif
#endif
