/* SPDX-License-Identifier: Apache-2.0 */
/* Objective of a plan: iteration time or cost, and pruning by it. */
#ifndef LHI_PLANNER_SEARCH_OBJECTIVE_H
#define LHI_PLANNER_SEARCH_OBJECTIVE_H

#include "planner/search/candidate.h"
#include "planner/search/pareto_front.h"

/* Returns a choice's value: less is better, comparable within one search.
 * INT64_MAX: unknown. */
int64_t lhi_objective_value(const lh_plan_options *options,
                            const lh_choice *choice);
/* The same with another iteration time. */
int64_t lhi_objective_value_at(const lh_plan_options *options,
                               const lh_choice *choice, int64_t iteration_ns);
/* Returns how much worse a choice is than `best`, as a share; both must work.
 */
double lhi_compute_relative_gap(const lh_plan_options *options,
                                const lh_choice *choice, const lh_choice *best);
/* The same in percent, rounded for a text with one decimal. */
double lhi_compute_percent_gap(const lh_plan_options *options,
                               const lh_choice *choice, const lh_choice *best);
/* Sorts choices: working ones first, the best of them first. */
void lhi_sort_choices(const lh_plan_options *options, lh_choice *list,
                      uint32_t n);

/* Search for the cheapest plan or a whole Pareto front. */
typedef struct lhi_cost_objective {
    const lh_job *job;
    bool cost;             /* the cheapest is best, else the fastest */
    bool even_memory;      /* equal GPU memory: memory bounds count */
    double usd_per_ns;     /* cheapest GPU; 0: no prices */
    double best_usd;       /* cheapest found */
    double unexplored_usd; /* least cost of unexplored layouts */
    atomic_bool no_memory; /* a bound failed for lack of memory: fail the
                            * search */
    const lhi_pareto_front *front; /* NULL: only the best is required */
    lhi_objective objective;
} lhi_cost_objective;

/* Initialises the objective functions for the search; pass out->objective to
 * lhi_plan_search(). With `front` (may be NULL), bounds prune only what cannot
 * be on that Pareto front. LH_EINVAL: the objective is cost, and the job has no
 * prices. */
lh_status lhi_cost_objective_init(const lh_job *job,
                                  const lh_plan_options *options,
                                  const lhi_pareto_front *front,
                                  lhi_cost_objective *out, lh_error *err);

/* Returns a lower bound on the cost of plans with the values that `config` has
 * decided. */
double lhi_cost_objective_bound(lhi_cost_objective *goal, lhi_level level,
                                const lhi_config *config,
                                const lhi_lower_bound *floor);

/* Returns the objective's bound, or the time bound. */
int64_t lhi_layout_search_bound(const lhi_layout_search *s, lhi_level level,
                                const lhi_config *config,
                                const lhi_lower_bound *floor);

/* Checks whether a bound prunes a node. */
bool lhi_layout_search_is_pruned(const lhi_layout_search *s, int64_t bound,
                                 lhi_level level, const lhi_config *config,
                                 const lhi_lower_bound *floor);

/* Returns the built pipeline's bound, valid for one partition. */
lhi_lower_bound lhi_candidate_built_bound(const lhi_candidate *c);

/* Checks whether a candidate may still win. */
bool lhi_candidate_can_win(const lhi_layout_search *s, const lhi_candidate *c);

#endif
