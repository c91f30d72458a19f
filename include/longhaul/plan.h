/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a job: searches layouts and schedules, and reads and writes plan files.
 * Text form, with every value of a plan: docs/formats/plan.md. */
#ifndef LONGHAUL_PLAN_H
#define LONGHAUL_PLAN_H

#include <longhaul/job.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A plan. Immutable; owns its contents. Release with lh_plan_free(). */
typedef struct lh_plan lh_plan;
typedef struct lh_memory_needs lh_memory_needs;

/* Experimental options. */
struct lh_jitter;
struct lh_plan_progress;
struct lh_plan_whatif_question;

/* Statistic that a plan minimises under jitter. */
typedef enum lh_plan_statistic {
    LH_PLAN_BY_MEAN, /* mean over the samples */
    LH_PLAN_BY_P95,  /* 95th percentile */
} lh_plan_statistic;

/* A plan's objective. */
typedef enum lh_plan_objective {
    LH_PLAN_FASTEST,  /* iteration time */
    LH_PLAN_CHEAPEST, /* cost per iteration, hence per token */
} lh_plan_objective;

/* Search methods for the layer partition. */
typedef enum lh_partition_search {
    LH_PARTITION_HILL_CLIMBING, /* hill climbing from several starts by moving
                                 * one or two layers; exhaustive if there are
                                 * few partitions */
    LH_PARTITION_EXACT, /* every partition of every layout that could win, up to
                         * 200000 per layout */
    /* Monte Carlo sampling of whole configurations, as in ScaleAcross Explorer
     * (2026). Proves nothing. Requires LH_PLAN_FASTEST without jitter or Pareto
     * front, else LH_EINVAL */
    LH_PARTITION_MONTE_CARLO,
    LH_PARTITION_EVEN, /* even partition, no search */
} lh_partition_search;

/* LH_PARTITION_MONTE_CARLO's parameters; 0: the paper's value, or 3000
 * layouts. */
typedef struct lh_plan_sampling {
    uint32_t layouts;    /* whose even partition fits the memory */
    uint32_t partitions; /* per layout of the fastest tenth; 100 */
    uint32_t keep;       /* fastest ones kept; 1000 */
    uint32_t changes;    /* one-layer changes per kept partition; 100 */
    uint64_t seed;       /* 1 */
} lh_plan_sampling;

/* Options for lh_plan_make(). 0 or NULL: the default. */
typedef struct lh_plan_options {
    size_t size;         /* sizeof(lh_plan_options) */
    uint32_t top;        /* alternatives to keep; 0: 10 */
    uint32_t sub_blocks; /* `greedy`: parts per W; 0: 1, supported by other
                          * programs */
    /* Called periodically during the search; returning true stops it, and the
     * best plan so far is returned. May be NULL. */
    bool (*progress)(void *context, uint32_t done, uint32_t total,
                     int64_t best_ns);
    void *context;
    /* Effort for the best layouts' optimal schedules, in lh_solve_options
     * units; 0: 400000, about half a second. The layout search gets 75 times as
     * much, at least 1,000,000, unless layout_effort is set. Effort above the
     * default is used even if it improves nothing. */
    uint64_t effort;
    bool no_optimal; /* skip that search: methods only */
    /* fast mode for many plans of similar jobs: even chunks, neither look-ahead
     * nor optimal schedules, elastic plans only if nothing else fits */
    bool quick;
    lh_partition_search partition;
    lh_plan_sampling sampling;
    double max_chunk_ratio; /* of layers; 0: 3 x fastest / slowest GPU type */
    const struct lh_jitter *jitter; /* optimise under jitter; NULL: none */
    lh_plan_statistic statistic;    /* statistic, with jitter */
    lh_plan_objective
        objective;     /* cost requires prices in the job or options */
    bool pareto_front; /* also compute the Pareto front */
    /* Override the job's prices; 0: the job's. */
    double usd_per_gpu_hour, usd_per_gb;
    uint32_t n_questions;
    const struct lh_plan_whatif_question *questions;
    bool sensitivity; /* find link values at which the layout changes */
    double range;     /* examine factors from 1 / range to range; 0: 16 */
    double tolerance; /* the factors' relative precision; 0: 0.01 */
    bool curves;      /* also compute plan->curves */
    /* Effort for the layout search, in units of about one microsecond. The
     * search ends earlier once nothing can be more than 0.5 % faster. 0: 75 *
     * effort, at least 1,000,000. */
    uint64_t layout_effort;
    /* Limit in processor seconds (process total over threads), which
     * replaces the effort limits: three fifths for layouts, a fifth for layer
     * partitions, the rest for elastic plans and optimal schedules. A search
     * that ends earlier is repeated with four times the effort, as long as the
     * gap is above 0.5 % and the remaining time is at least half of the last
     * search's.
     *
     * Jitter uses the same amount again, sensitivity twice that; each question
     * a tenth, plus a tenth to examine choices found by others; each point of a
     * curve a twelfth; a Pareto front four thirds. With layout.slices: auto
     * each number of slices has this limit. The plan then depends on the
     * machine and records this. 0: no limit. */
    double seconds;
    /* As `progress`, for the layout search; may be NULL. */
    bool (*layout_progress)(void *context, const struct lh_plan_progress *now);
    /* Maximum number of threads; 0: the number of processors available to the
     * process. Without `seconds` the plan does not depend on it. `progress` and
     * `layout_progress` are called only from the thread that called
     * lh_plan_make(). */
    uint32_t threads;
    /* The Pareto front contains choices up to this many times slower than its
     * fastest one, or than the plan; 0: 4. */
    double pareto_max_slowdown;
    lh_target target; /* overrides the job's; LH_TARGET_ANY: the job's */
    /* Returns the plan from PipeMesh's own planner (its rule for chunks) on the
     * degrees with the fastest elastic plans; the fastest plan is added for
     * comparison. LH_EINFEASIBLE: none exists. Cannot be combined with jitter,
     * Pareto front, questions, sensitivity, curves, another objective, quick or
     * LH_PARTITION_MONTE_CARLO. */
    bool elastic_as_published;
    /* Filled if no layout fits in memory (LH_EINFEASIBLE), else with zeros; may
     * be NULL. `err` has the same content as text. */
    lh_memory_needs *memory_needs;
    /* Also find the best plan that leaves this much memory of every GPU free,
     * beyond its reserve: percent of its memory, or GiB. 0: none. */
    double margin_percent, margin_gib;
    /* Longest iteration of a plan with LH_PLAN_CHEAPEST. If no plan is found
     * within it, the plan is slower. 0: no limit. */
    int64_t max_iteration_ns;
} lh_plan_options;

/* Searches the best plan over everything that the job leaves open. `options`
 * may be NULL. Deterministic, unless `seconds` is set. Release with
 * lh_plan_free(). LH_EINFEASIBLE: no layout works; `err` names the violated
 * constraint and the amount. */
LH_API lh_status lh_plan_make(const lh_job *job, const lh_plan_options *options,
                              lh_plan **out, lh_error *err);

/* Frees a plan and its contents; NULL is a no-op. */
LH_API void lh_plan_free(lh_plan *plan);

/* Parses a plan file's text; `name` appears in error messages. LH_EINPUT:
 * invalid text. Release with lh_plan_free(). */
LH_API lh_status lh_plan_parse(const char *text, size_t len, const char *name,
                               lh_plan **out, lh_error *err);

/* Reads and parses a plan file. LH_EIO: it cannot be read. */
LH_API lh_status lh_plan_read(const char *path, lh_plan **out, lh_error *err);

/* Formats the plan as JSON. Parsing it gives the same plan, which formats to
 * the same text. Release *text with lh_text_free(). */
LH_API lh_status lh_plan_format(const lh_plan *plan, char **text, size_t *len,
                                lh_error *err);

/* Returns the predicted iteration time in ns, optimizer included. */
LH_API int64_t lh_plan_iteration_ns(const lh_plan *plan);
/* Returns the relative gap between the plan's iteration time and
 * the proven lower bound, as a fraction of the bound: 0.05 if nothing is more
 * than 5 % faster. -1: unknown. */
LH_API double lh_plan_gap(const lh_plan *plan);

/* Returns the number of GPUs that the plan uses; all other GPUs of the job are
 * idle. */
LH_API uint32_t lh_plan_gpus(const lh_plan *plan);

/* Returns the best layout's pipeline, with memory in bytes; borrowed. */
LH_API const lh_pipeline *lh_plan_best_pipeline(const lh_plan *plan);
/* Returns the best layout's schedule; borrowed. */
LH_API const lh_schedule *lh_plan_best_schedule(const lh_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
