/* SPDX-License-Identifier: Apache-2.0 */
/* Methods side by side: on one pipeline or several, as they are or under other
 * delays of the links between their sites. */
#ifndef LONGHAUL_COMPARE_H
#define LONGHAUL_COMPARE_H

#include <longhaul/jitter.h>
#include <longhaul/pipeline.h>
#include <longhaul/plan.h>
#include <longhaul/simulate.h>
#include <longhaul/solve.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What methods are compared by. */
typedef enum lh_compare_by {
    LH_COMPARE_BY_PREDICTED, /* the prediction for the pipeline's delays */
    LH_COMPARE_BY_MEAN,      /* of iterations under delays that vary */
    LH_COMPARE_BY_P95,       /* what 95 % of these keep */
} lh_compare_by;

LH_API uint32_t lh_n_compare_bys(void);
/* "predicted"; NULL: there is no such number. */
LH_API const char *lh_compare_by_name(lh_compare_by by);

/* A pipeline to schedule in several ways. */
typedef struct lh_compare_base {
    const char *name;
    const lh_pipeline *pipeline;
    int64_t after_ns; /* follows the pipeline in every iteration */
} lh_compare_base;

/* Values of one delay, on the links between a pipeline's sites, or on all links
 * where it has no sites. */
typedef struct lh_compare_delays {
    uint32_t n_values;    /* 0: the delay stays as the pipeline has it */
    const double *values; /* ns, or multiples of the forward work of one
                             microbatch on a device, the mean of all devices */
    bool relative;        /* multiples */
} lh_compare_delays;

typedef struct lh_compare_options {
    size_t size; /* sizeof(lh_compare_options) */
    /* Names as lh_best_name() has them. 0: all but "auto", which would only
     * repeat one, and where delays vary but "optimal", which takes its time. */
    uint32_t n_methods;
    const char *const *methods;
    const lh_compare_delays *latency, *transfer; /* NULL: as they are */
    bool replay; /* schedules are made for the pipeline as it is, whatever the
                    delays that they then meet */
    uint32_t sub_blocks;       /* greedy: parts that a W is cut into; 0: 1 */
    uint64_t effort;           /* of searches, as lh_best_options; 0: 200000 */
    const lh_sim_options *sim; /* NULL: the defaults */
    lh_solve_objective objective;
    const lh_jitter *jitter; /* NULL: no delay varies; then `by` is PREDICTED */
    lh_compare_by by;
    /* Called before each point; true stops with LH_ECANCELED. May be NULL. */
    bool (*progress)(void *context, uint32_t point, uint32_t n_points);
    void *context;
} lh_compare_options;

/* A method on a base. */
typedef struct lh_contender {
    const char *method;
    uint32_t base;
    const char *label; /* the method, with the base's name if there are more */
} lh_contender;

/* What a contender comes to at one point. */
typedef struct lh_outcome {
    lh_status status; /* else LH_EINFEASIBLE, LH_EUNSUPPORTED, LH_EDEADLOCK */
    const char *why;  /* it failed; "" */
    int64_t ns;       /* what is compared, with what follows; -1: it failed */
    int64_t makespan_ns;
    int64_t bound_ns; /* no makespan of this pipeline is shorter, with what
                         follows */
    double bubble_ratio;
    int64_t peak_memory;  /* highest of all devices */
    const int64_t *peaks; /* of each of the base's devices; NULL: it failed */
    bool fits;
    lh_jitter_result jitter;         /* samples 0: not asked for */
    int64_t latency_ns, transfer_ns; /* of this point; -1: as they are */
} lh_outcome;

/* A placement that a plan's layout cannot take. */
typedef struct lh_compare_left_out {
    lh_placement placement;
    const char *why;
} lh_compare_left_out;

/* Immutable; owns what it points to but the pipelines of lh_compare() and the
 * plan's own, which it borrows: they have to outlive it. */
typedef struct lh_comparison {
    bool iterations; /* times are of a plan's whole iterations */
    uint32_t n_bases, n_contenders;
    const lh_compare_base *bases;
    const lh_contender *contenders;
    uint32_t n_latencies, n_transfers; /* at least 1 each */
    const lh_outcome *outcomes;        /* see lh_comparison_at() */
    uint32_t n_left_out;
    const lh_compare_left_out *left_out;
} lh_comparison;

/* All methods of all bases at every point, i.e. with every latency and every
 * transfer. A method that suits no point of one base but another base is not a
 * contender there. `options` may be NULL. The bases' pipelines have to live as
 * long as the result; release that with lh_comparison_free().
 * LH_EINVAL: there is no base, or no method of a name. */
LH_API lh_status lh_compare(uint32_t n_bases, const lh_compare_base *bases,
                            const lh_compare_options *options,
                            lh_comparison **out, lh_error *err);

/* The same on the placements that the plan's layout can take, each with the
 * chunks per device that it needs unless the job fixes these, and all else as
 * the plan has it; jitter as lh_plan_jitter() says. Where the placement is the
 * plan's, its own pipeline and for its method its own schedule, so that the
 * plan is there with its own time; an elastic plan is a base by itself, "plan".
 * The plan has to live as long as the result. */
LH_API lh_status lh_compare_plan(const lh_plan *plan,
                                 const lh_compare_options *options,
                                 lh_comparison **out, lh_error *err);
LH_API void lh_comparison_free(lh_comparison *comparison); /* NULL is fine */

/* Indices have to be in range. */
LH_API const lh_outcome *lh_comparison_at(const lh_comparison *comparison,
                                          uint32_t latency, uint32_t transfer,
                                          uint32_t contender);
/* The plan's own schedule, where that is what a contender has while delays stay
 * as they are; NULL: it has the one that its method makes. */
LH_API const lh_schedule *
lh_comparison_schedule(const lh_comparison *comparison, uint32_t contender);
/* "ok", "over memory", or the status with which it failed. */
LH_API const char *lh_outcome_word(const lh_outcome *outcome);
/* Contenders at one point, the fastest first, then those over a memory limit,
 * then those that failed; equals as in the list. `ranking` has room for all. */
LH_API void lh_comparison_rank(const lh_comparison *comparison,
                               uint32_t latency, uint32_t transfer,
                               uint32_t *ranking);

#ifdef __cplusplus
}
#endif
#endif
