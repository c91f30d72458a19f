/* SPDX-License-Identifier: Apache-2.0 */
/* The search over layouts and its candidates: a layout, its bound, and its
 * results under schedules. Input: a job and an objective. Output: the best
 * layout with its schedule, the alternatives, and the proven bound.
 *     plan_search.h       complete search; plan_search.c calls the parts
 *     branch_and_bound.c  branch and bound over layouts with even chunks;
 *                         proven_bound.c: the bound that it proves
 *     parallel_for.h      parts of a search on several threads
 *     lower_bound.h       bounds before a pipeline is built: lower_bound.c;
 *                         bound_inputs.c has their inputs; candidate.c: after
 *     evaluate.c          results of methods on a layout
 *     partition_moves.c   layers moved between chunks;
 *                         exhaustive_partitions.c: every partition
 *     local_search.h      best plan per dimension value, through
 *                         neighbourhoods (neighbourhood.h)
 *     two_directions.h    layouts with two directions, after all others
 *     monte_carlo.c       random sampling, in place of all these
 *     elastic_search.h    elastic plans, by bounds of their own
 *     objective.h         time or cost (cost.h); pareto_front.h: both
 *     refine.h            optimal schedules for layouts that may win;
 *                         refine_partitions.c: and for their partitions
 *     robust.h            choice under jitter
 *     search_budget.h     work limits; stopping.c: stop conditions
 *     unexplored.h        bounds of unexplored layouts, per dimension
 *     results.c           result of the search, and why the others lost */
#ifndef LHI_PLANNER_SEARCH_CANDIDATE_H
#define LHI_PLANNER_SEARCH_CANDIDATE_H

#include "planner/elastic/choices.h"
#include "planner/layout/choice.h"
#include "planner/layout/evaluation_cache.h"
#include "planner/search/lower_bound.h"
#include "planner/search/unexplored.h"

#include <stdatomic.h>

/* On pipelines with at most this many passes no method is slow. */
enum { LHI_FEW_PASSES = 1000 };

/* A layout under evaluation. */
typedef struct lhi_candidate {
    lhi_config config;
    lhi_lower_bound lower_bound; /* over every partition of its layers */
    int64_t bound_ns; /* of this partition; INT64_MAX: does not fit */
    int64_t missing;  /* bytes, if it does not fit */
    bool simulated;
    bool fully_evaluated;   /* evaluated under every method */
    bool with_slow_methods; /* including slow ones, even without prospects */
    bool rebalanced;        /* rebalanced, or cannot be */
    bool from_local_search; /* from a local search: already counted before */
    bool open;              /* unexplored at the end, though maybe better */
    lh_choice choice;       /* best method, once simulated */
    char bound_text[160];
} lhi_candidate;

/* A search's objective, to be minimised. Numbers are only comparable within one
 * objective. */
typedef struct lhi_objective {
    void *context;
    /* Returns a lower bound for all plans with the values that `config` has
     * decided (0: open), with iterations of at least floor->ns and at least
     * floor->memory_bytes on the fullest GPU. The search explores the least
     * bound first. */
    int64_t (*bound)(void *context, lhi_level level, const lhi_config *config,
                     const lhi_lower_bound *floor);
    /* Checks whether plans with that bound are useless. */
    bool (*is_useless)(void *context, int64_t bound, lhi_level level,
                       const lhi_config *config, const lhi_lower_bound *floor);
    /* Receives each simulated candidate that works. */
    lh_status (*add_candidate)(void *context, const lhi_candidate *c,
                               lh_error *err);
    /* Returns a candidate's value. */
    int64_t (*value)(void *context, const lhi_candidate *c);
    /* Receives layouts that may be useful but were not, or not fully, explored.
     * May be NULL, as may the next one, which the elastic search uses. */
    void (*add_unexplored)(void *context, lhi_level level,
                           const lhi_config *config,
                           const lhi_lower_bound *floor);
    /* Returns the iteration time from which plans on a layout are useless; 0:
     * none. */
    int64_t (*useless_ns)(void *context, lhi_level level,
                          const lhi_config *config);
} lhi_objective;

/* Layout search state. */
typedef struct lhi_layout_search {
    const lh_job *job;
    lh_plan_options options;
    const lhi_objective *objective; /* NULL: iteration time */
    lhi_arena *mem;                 /* the plan's arena */
    lhi_candidate *candidates;
    uint32_t n, room;
    struct lhi_pareto_front *front; /* NULL: only the best is required */
    lhi_evaluation_cache *evaluation_cache; /* evaluation cache, or NULL */
    lhi_unexplored
        *unexplored; /* receives bounds of unsimulated layouts, or NULL */
    /* Only plans faster than this are required: others are known. 0: every
     * plan; without an objective. */
    int64_t cutoff_ns;
    bool best_only;       /* only the best plan is required, no alternatives */
    uint32_t sharing;     /* number of searches that share its work; 0: one */
    int64_t best_ns;      /* fastest iteration so far; INT64_MAX: none */
    int64_t best_value;   /* best by the objective: lhi_objective_value() */
    bool complete;        /* nothing useful is left */
    bool candidates_only; /* only candidates are required, not the best */
    bool exact;           /* every promising partition was tried */
    struct lhi_workers *workers; /* parallel_for.h; NULL: this thread only */
    bool cancelled;              /* the caller asked to stop */
    bool on_worker_thread;       /* runs on another thread than the caller's */
    atomic_bool *stop;           /* stops all threads; NULL: single thread */
    double until_s;     /* process time limit for the steps after the layouts;
                         * 0: none */
    int64_t dropped_ns; /* least bound pruned by the objective */
    /* Counts of layouts by outcome: do not fit, simulated, and so on. */
    uint64_t n_memory, n_simulated, n_unsupported, n_dropped;
    uint64_t n_unexplored; /* at the search's end: neither pruned nor tried */
    uint64_t pruned[LHI_N_BOUND_KINDS]; /* by a bound before they were built */
    int64_t proven_ns; /* no layout, partition or schedule is faster */
    /* or cheaper, if cost is the objective; 0: unknown */
    double proven_usd;
    lh_error first_refusal; /* why the first failing layout failed */
    bool lacks_memory;      /* a bound excluded layouts by memory */
    /* Layouts that allow elastic plans, and those not searched. */
    uint64_t n_elastic, n_elastic_left;
    lhi_elastic_choices elastic;
} lhi_layout_search;

/* Runs branch and bound over all layouts that the job leaves open. Fills
 * candidates, counts and proven_ns. */
lh_status lhi_layout_search_branch_and_bound(lhi_layout_search *s,
                                             lh_error *err);

/* Checks whether `status` only means that `n` layouts are impossible; if so,
 * counts them and stores the first reason, `why`. Returns false for other
 * failures, which must end the search. */
bool lhi_layout_search_count_refusal(lhi_layout_search *s, lh_status status,
                                     const lh_error *why, uint64_t n);

/* Checks whether the search's processor time is used up; never without a time
 * limit. */
bool lhi_layout_search_is_late(const lhi_layout_search *s);

/* Reports progress over `total` layouts, on the caller's own thread. Returns
 * true if the caller asks to stop. */
bool lhi_layout_search_is_cancelled(lhi_layout_search *s, uint32_t total);
/* Checks whether to stop the current step of a search over `total` layouts: the
 * caller asks to, or the time is over. Never before something works (a result
 * of the search, or `works`), unless the caller asks and the job requires GPUs
 * that another plan leaves idle. The remaining steps are then a quick
 * plan's. */
bool lhi_layout_search_should_stop(lhi_layout_search *s, uint32_t total,
                                   bool works);

/* Evaluates every layer partition of every candidate whose bound allows a win.
 * LH_EINVAL: one layout has too many partitions. */
lh_status lhi_layout_search_enumerate_partitions(lhi_layout_search *s,
                                                 lh_error *err);
/* Checks whether there are so few layer partitions, counted in passes to
 * schedule, that all are tried by default. */
lh_status lhi_layout_search_can_enumerate(const lhi_layout_search *s, bool *out,
                                          lh_error *err);

/* Improves the layer partitions of candidates that may beat the best, by moving
 * layers between chunks within a fixed budget. */
lh_status lhi_layout_search_move_layers(lhi_layout_search *s, lh_error *err);

/* Improves the layer partition of one candidate by moving layers. *passes:
 * budget of passes to schedule; receives the remainder. */
lh_status lhi_layout_search_move_layers_of(lhi_layout_search *s,
                                           uint32_t candidate, uint64_t *passes,
                                           lh_error *err);

/* Searches layouts by random sampling (Monte Carlo) rather than branch and
 * bound. Proves no bound. */
lh_status lhi_layout_search_run_monte_carlo(lhi_layout_search *s,
                                            lh_error *err);

/* Builds the candidate's pipeline and computes its schedules' lower bound, in
 * c->bound_ns; INT64_MAX: it does not fit or cannot be built. */
lh_status lhi_candidate_compute_bound(lhi_layout_search *s, lhi_candidate *c,
                                      lh_error *err);

/* Rebalances a candidate's layers over its devices (layer_partition.h) if that
 * lowers its bound. */
lh_status lhi_candidate_rebalance(lhi_layout_search *s, lhi_candidate *c,
                                  lh_error *err);

/* Repairs the layer partition of a candidate that does not fit in memory
 * (layer_partition.h). */
lh_status lhi_candidate_fit_memory(lhi_layout_search *s, lhi_candidate *c,
                                   lh_error *err);

/* Computes the lower bound of a candidate's schedules from its built pipeline;
 * valid for its layer partition only. */
lh_status lhi_candidate_compute_bound_built(lhi_candidate *c,
                                            const lhi_built_layout *built,
                                            lh_error *err);

/* Checks whether the candidate was simulated and at least one schedule works.
 */
bool lhi_candidate_is_feasible(const lhi_candidate *c);

/* Returns a plan candidate with the layout of search candidate `c` and schedule
 * `method`, without any results. */
lh_choice lhi_candidate_make_choice(const lhi_candidate *c, const char *method);
/* Computes tokens per second and MFU of a plan candidate from its iteration
 * time. */
lh_status lhi_choice_compute_rates(const lh_job *job, lhi_arena *mem,
                                   lh_choice *choice, lh_error *err);

/* Checks whether plans with `pipeline` stages consider a schedule method. If
 * the job requests a method, only that one; otherwise all that the target
 * framework supports, except those that select the best of others and, in a
 * quick plan, slow ones. */
bool lhi_method_is_considered(const lh_job *job, const lh_plan_options *options,
                              uint32_t pipeline, const lhi_method *method);
/* Runs the method named in choice->layout on the layout: fills status, times,
 * memory, rates, and the failure reason in `mem`. On failure *schedule is NULL;
 * `tried` and `schedule` are as in lhi_evaluation_cache_run_method(). */
lh_status lhi_method_evaluate(const lh_job *job, const lh_plan_options *options,
                              const lhi_built_layout *built,
                              lhi_evaluation_cache *tried, lhi_arena *mem,
                              lh_choice *choice, lh_schedule **schedule,
                              lh_error *err);

/* Runs every schedule method on a candidate's built pipeline. The best result
 * goes to c->choice and its schedule to *best (NULL: no method works; `best`
 * may be NULL). `all`, if not NULL, receives every method's result, *n_all
 * their number. */
lh_status lhi_candidate_run_methods(lhi_layout_search *s, lhi_candidate *c,
                                    const lhi_built_layout *built,
                                    lh_schedule **best, lh_choice *all,
                                    uint32_t *n_all, lh_error *err);
/* Builds a candidate, runs one fast schedule method on it, and counts it as
 * simulated. Runs every method if plans of the job do not consider the fast
 * one. */
lh_status lhi_candidate_evaluate_quickly(lhi_layout_search *s, lhi_candidate *c,
                                         /* quick evaluation, one method */
                                         lh_error *err);
/* Builds a candidate, runs every schedule method on it, and counts it as
 * simulated. */
lh_status lhi_candidate_evaluate(lhi_layout_search *s, lhi_candidate *c,
                                 lh_error *err);

/* Appends a copy of a candidate to the search's candidates. */
lh_status lhi_layout_search_add_candidate(lhi_layout_search *search,
                                          const lhi_candidate *candidate,
                                          lh_error *err);
/* Returns the simulated candidate with the best objective value; NULL: none
 * works. */
lhi_candidate *lhi_layout_search_find_best(const lhi_layout_search *s);

/* Fills the plan with the search's results: best layout, methods, alternatives
 * and counts. LH_EINFEASIBLE: no layout works; `err` has the reason. */
lh_status lhi_layout_search_fill_plan(lhi_layout_search *s, lh_plan *plan,
                                      lh_error *err);

#endif
