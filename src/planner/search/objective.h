/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's objective: iteration time or cost, and pruning by it. */
#ifndef LHI_PLANNER_SEARCH_OBJECTIVE_H
#define LHI_PLANNER_SEARCH_OBJECTIVE_H

#include "planner/search/candidate.h"
#include "planner/search/pareto_front.h"

/* Checks whether an iteration time exceeds the limit for the cheapest plan. */
bool lhi_objective_is_late(const lh_plan_options *options,
                           int64_t iteration_ns);
/* Returns a plan candidate's objective value: its time in ns, or an integer
 * ordered like its cost. Candidates beyond the limit for the cheapest plan come
 * after all others, ordered by time. Less is better; comparable within one
 * search. INT64_MAX: unknown. */
int64_t lhi_objective_value(const lh_plan_options *options,
                            const lh_choice *choice);
/* Returns a plan candidate's objective value if its iteration took
 * iteration_ns: that time, or an integer ordered like its cost. INT64_MAX:
 * unknown. */
int64_t lhi_objective_value_at(const lh_plan_options *options,
                               const lh_choice *choice, int64_t iteration_ns);
/* Returns how much worse a plan candidate is than `best` by the objective, as a
 * fraction of `best`'s value. Both must be feasible. */
double lhi_compute_relative_gap(const lh_plan_options *options,
                                const lh_choice *choice, const lh_choice *best);
/* Returns how much worse a plan candidate is than `best` by the objective, in
 * percent, rounded to one decimal. */
double lhi_compute_percent_gap(const lh_plan_options *options,
                               const lh_choice *choice, const lh_choice *best);
/* Returns how much worse a plan is than its proven lower bound, as a fraction;
 * INFINITY: it has no bound. */
double lhi_compute_bound_gap(const lh_plan_options *options,
                             const lh_plan *plan);
/* Sorts plan candidates: feasible ones first, by objective value; then the
 * others by lower bound. */
void lhi_sort_choices(const lh_plan_options *options, lh_choice *list,
                      uint32_t n);

/* Search for the cheapest plan or a whole Pareto front. */
typedef struct lhi_cost_objective {
    const lh_job *job;
    bool cost;             /* the cheapest is best, else the fastest */
    bool even_memory;      /* equal GPU memory: memory bounds count */
    bool gathers_are_less; /* than reductions, in bytes per parameter */
    double usd_per_ns;     /* cheapest GPU; 0: no prices */
    int64_t max_ns;        /* longest iteration of the cheapest; 0: no limit */
    double best_usd;       /* cheapest found within max_ns */
    double unexplored_usd; /* least cost of unexplored layouts */
    atomic_bool no_memory; /* a bound failed for lack of memory: fail the
                            * search */
    const lhi_pareto_front *front; /* NULL: only the best is required */
    lhi_objective objective;
} lhi_cost_objective;

/* Initialises a search's objective callbacks for the cheapest plan or a Pareto
 * front; use them by s->objective = &out->objective. With `front` (may be
 * NULL), bounds prune only plans that cannot be on that front. LH_EINVAL: the
 * objective is cost, and the job has no prices. */
lh_status lhi_cost_objective_init(const lh_job *job,
                                  const lh_plan_options *options,
                                  const lhi_pareto_front *front,
                                  lhi_cost_objective *out, lh_error *err);

/* Lowers the cheapest cost found to that of a feasible plan candidate, if the
 * candidate is within the time limit and cheaper. */
void lhi_cost_objective_add(lhi_cost_objective *goal, const lh_choice *choice);

/* Returns a lower bound on an iteration's cost in USD, over all plans with the
 * values that `config` has decided on `level` (depth in the search tree).
 * `floor`: bound on the time. */
double lhi_cost_objective_bound(lhi_cost_objective *goal, lhi_level level,
                                const lhi_config *config,
                                const lhi_lower_bound *floor);

/* Returns the lower bound on all plans with the values decided on `level`
 * (depth in the search tree), in the objective's unit; without an objective,
 * the time bound `floor`. */
int64_t lhi_layout_search_bound(const lhi_layout_search *s, lhi_level level,
                                const lhi_config *config,
                                const lhi_lower_bound *floor);

/* Returns the iteration time from which a plan is of no use to a search for the
 * fastest, whose best takes `best_ns`: that, or s->cutoff_ns if it is less. */
int64_t lhi_layout_search_useless_ns(const lhi_layout_search *s,
                                     int64_t best_ns);

/* Checks whether the lower bound `bound` (in the objective's unit; `floor`: on
 * the time) shows that plans with the values decided on `level` (depth in the
 * search tree) cannot beat the best so far. */
bool lhi_layout_search_is_pruned(const lhi_layout_search *s, int64_t bound,
                                 lhi_level level, const lhi_config *config,
                                 const lhi_lower_bound *floor);

/* Returns the lower bound of the candidate's built pipeline, valid for its
 * layer partition only. */
lhi_lower_bound lhi_candidate_built_bound(const lhi_candidate *c);

/* Checks whether the candidate's bound allows it to beat the best so far. */
bool lhi_candidate_can_win(const lhi_layout_search *s, const lhi_candidate *c);

#endif
