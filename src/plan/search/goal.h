/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan is to be best in: the time of an iteration, or its cost. */
#ifndef LHI_GOAL_H
#define LHI_GOAL_H

#include "plan/search/candidate.h"
#include "plan/search/front.h"

/* Less is better; comparable between choices of one search. INT64_MAX: not
 * known. */
int64_t lhi_value_of(const lh_plan_options *options, const lh_choice *choice);
/* The same if its iterations took so long. */
int64_t lhi_value_at(const lh_plan_options *options, const lh_choice *choice,
                     int64_t iteration_ns);
/* How much worse than `best`, as a share of it; both work. */
double lhi_behind(const lh_plan_options *options, const lh_choice *choice,
                  const lh_choice *best);
/* The same in percent, for a text that has a tenth of one. */
double lhi_percent_behind(const lh_plan_options *options,
                          const lh_choice *choice, const lh_choice *best);
/* What works first, and of it the best first. */
void lhi_sort_choices(const lh_plan_options *options, lh_choice *list,
                      uint32_t n);

/* A search for the cheapest, or for a whole front. */
typedef struct lhi_goal {
    const lh_job *job;
    bool cost;              /* the cheapest comes first, else the fastest */
    bool even_memory;       /* GPUs have equally much: their bounds count */
    double usd_per_ns;      /* of the cheapest GPU; 0: there are no prices */
    double best_usd;        /* of what has been found */
    double left_usd;        /* of what was left nothing costs less */
    atomic_bool no_memory;  /* for a bound: the search is to fail */
    const lhi_front *front; /* NULL: the best is wanted alone */
    lhi_objective objective;
} lhi_goal;

/* goal->objective is for lhi_plan_search. LH_EINVAL: options->goal is cost
 * and the job has no prices. */
lh_status lhi_goal_init(const lh_job *job, const lh_plan_options *options,
                        const lhi_front *front, lhi_goal *out, lh_error *err);

/* No plan that keeps to what `config` has decided costs less. */
double lhi_goal_floor(lhi_goal *goal, lhi_level level, const lhi_config *config,
                      const lhi_floor *floor);

#endif
