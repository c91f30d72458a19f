/* SPDX-License-Identifier: Apache-2.0 */
/* Compares scheduling methods on one or several pipelines, with the given link
 * delays or a sweep of them.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_COMPARE_H
#define LONGHAUL_EXPERIMENTAL_COMPARE_H

#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Comparison criterion. */
typedef enum lh_compare_criterion {
    LH_COMPARE_BY_PREDICTED, /* prediction with the pipeline's own delays */
    LH_COMPARE_BY_MEAN,      /* mean iteration under jitter */
    LH_COMPARE_BY_P95,       /* 95th percentile under jitter */
} lh_compare_criterion;

/* Returns the number of ranking criteria, such as "predicted". */
LH_API uint32_t lh_n_compare_criteria(void);
/* Returns ranking criterion `by`'s name, such as "predicted"; NULL: out
 * of range. */
LH_API const char *lh_compare_criterion_name(lh_compare_criterion by);

/* A pipeline that every method schedules. */
typedef struct lh_compare_base {
    const char *name;
    const lh_pipeline *pipeline;
    int64_t after_ns; /* added to every iteration */
} lh_compare_base;

/* Sweep over one delay on the links between a pipeline's sites, or on all links
 * of a pipeline without sites. */
typedef struct lh_compare_delays {
    uint32_t n_values;    /* 0: the pipeline's own delay */
    const double *values; /* ns, or multiples of one microbatch's forward time
                           * on a device, averaged over devices */
    bool relative;        /* values are multiples */
} lh_compare_delays;

/* Options for lh_compare() and lh_compare_plan(). */
typedef struct lh_compare_options {
    size_t size; /* sizeof(lh_compare_options) */
    /* Scheduler names as in lh_scheduler_name(). 0: all except "auto", which
     * would repeat another entry, and, in sweeps, except "optimal", which is
     * slow. */
    uint32_t n_methods;
    const char *const *methods;
    const lh_compare_delays *latency, *transfer; /* NULL: unchanged */
    bool fixed_schedules; /* schedules are built once for the original delays,
                           * then evaluated under each delay */
    uint32_t sub_blocks;  /* greedy: parts per W; 0: 1 */
    uint64_t effort;      /* search effort, see lh_scheduler_options; 0:
                           * 200000 */
    const lh_sim_options *sim; /* NULL: defaults */
    lh_solve_objective objective;
    const lh_jitter *jitter; /* NULL: no jitter; `by` must be PREDICTED */
    lh_compare_criterion by;
    /* Called before each point; returning true cancels with LH_ECANCELED. May
     * be NULL. */
    bool (*progress)(void *context, uint32_t point, uint32_t n_points);
    void *context;
} lh_compare_options;

/* A method applied to one base. */
typedef struct lh_contender {
    const char *method;
    uint32_t base;
    const char *label; /* method name, plus the base's name if several */
} lh_contender;

/* One contender's result at one point. */
typedef struct lh_outcome {
    lh_status status; /* or LH_EINFEASIBLE, LH_EUNSUPPORTED, LH_EDEADLOCK */
    const char *why;  /* failure reason, or "" */
    int64_t ns;       /* compared value, after_ns included; -1: failed */
    int64_t makespan_ns;
    int64_t bound_ns; /* lower bound on the makespan, after_ns included */
    double bubble_ratio;
    int64_t peak_memory;  /* maximum over devices */
    const int64_t *peaks; /* per device of the base; NULL: failed */
    bool fits;
    lh_jitter_result jitter;         /* samples 0: not requested */
    int64_t latency_ns, transfer_ns; /* delays at this point; -1: unchanged */
} lh_outcome;

/* A placement that the plan's layout cannot use, with the reason. */
typedef struct lh_compare_rejected_placement {
    lh_placement placement;
    const char *why;
} lh_compare_rejected_placement;

/* Result from lh_compare() or lh_compare_plan(). Immutable. Owns its contents
 * except the pipelines of lh_compare() and the plan's own pipeline, which must
 * outlive it. */
typedef struct lh_comparison {
    bool iterations; /* times cover the plan's whole iterations */
    uint32_t n_bases, n_contenders;
    const lh_compare_base *bases;
    const lh_contender *contenders;
    uint32_t n_latencies, n_transfers; /* at least 1 each */
    const lh_outcome *outcomes;        /* see lh_comparison_at() */
    uint32_t n_left_out;
    const lh_compare_rejected_placement *left_out;
} lh_comparison;

/* Evaluates all methods on all bases (pipelines) at every point of the sweep,
 * that is, every combination of latency and transfer time. A method that
 * applies to no point of a base is not a contender there. `options` may be
 * NULL. The bases' pipelines must outlive the result; release it with
 * lh_comparison_free().
 *
 * LH_EINVAL: no base, or an unknown method name. */
LH_API lh_status lh_compare(uint32_t n_bases, const lh_compare_base *bases,
                            const lh_compare_options *options,
                            lh_comparison **out, lh_error *err);

/* Compares methods on all placements that the plan's layout permits. Each
 * placement has the chunks per device that it needs, unless the job fixes
 * them; everything else is as in the plan. Jitter: see lh_plan_jitter().
 *
 * The plan's own placement uses its own pipeline and, for its method, its own
 * schedule, so that the plan appears with its own time. An elastic plan is a
 * base by itself, "plan". The plan must outlive the result. */
LH_API lh_status lh_compare_plan(const lh_plan *plan,
                                 const lh_compare_options *options,
                                 lh_comparison **out, lh_error *err);
/* Frees a comparison; ignores NULL. */
LH_API void lh_comparison_free(lh_comparison *comparison);

/* Returns the outcome of contender `contender` (a pipeline with a method) for
 * the latency and transfer time with these sweep indices; borrowed. Indices
 * must be in range. */
LH_API const lh_outcome *lh_comparison_at(const lh_comparison *comparison,
                                          uint32_t latency, uint32_t transfer,
                                          uint32_t contender);
/* Returns the plan's own schedule if the contender (a pipeline with a method)
 * uses it while delays are unchanged; borrowed. NULL: the contender uses its
 * method's schedule. */
LH_API const lh_schedule *
lh_comparison_schedule(const lh_comparison *comparison, uint32_t contender);
/* Returns "ok", "over memory", or the failure status name; static storage. */
LH_API const char *lh_outcome_status_name(const lh_outcome *outcome);
/* Ranks the contenders for one combination of latency and transfer time:
 * fastest first, then those above a memory limit, then failures; ties in list
 * order. `ranking` needs n_contenders entries. */
LH_API void lh_comparison_rank(const lh_comparison *comparison,
                               uint32_t latency, uint32_t transfer,
                               uint32_t *ranking);

#ifdef __cplusplus
}
#endif
#endif
