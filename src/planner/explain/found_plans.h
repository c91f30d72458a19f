/* SPDX-License-Identifier: Apache-2.0 */
/* Plan pool found for some link values, which may be good for others: each
 * search is short, and one may find a plan that another missed. */
#ifndef LHI_PLANNER_EXPLAIN_FOUND_PLANS_H
#define LHI_PLANNER_EXPLAIN_FOUND_PLANS_H

#include "base/arena.h"
#include "planner/layout/evaluation_cache.h"

#include <longhaul/experimental/plan.h>

/* Plan pool. */
typedef struct lhi_found_plans {
    uint32_t n, room;
    lh_plan *all; /* job, best, pipeline, schedule each; no duplicates */
    /* Shared by the searches for these plans; not owned. NULL: each has its
     * own. */
    lhi_evaluation_cache *evaluations;
} lhi_found_plans;

/* Frees the pool's plans; valid on a zeroed pool. */
void lhi_found_plans_fini(lhi_found_plans *known);

/* Adds a plan to the pool (plans found so far, which compete for other links).
 * Takes ownership of its pipeline and schedule, on failure too; the job and the
 * data of plan->best must outlive the pool. */
lh_status lhi_found_plans_add(lhi_found_plans *known, const lh_plan *plan,
                              lh_error *err);

/* Copies plan candidate `choice` with all that it refers to into `mem`, except
 * an elastic plan's details; *out: the copy. */
lh_status lhi_found_plans_copy_choice(const lh_choice *choice, lhi_arena *mem,
                                      lh_choice *out, lh_error *err);

/* Adds plan *found of a search to a pool (plans found so far, which compete for
 * other links), with its data copied to `mem`. Frees plans without a schedule
 * and elastic plans instead. */
lh_status lhi_found_plans_keep(lhi_found_plans *known, lhi_arena *mem,
                               const lh_plan *found, lh_error *err);

/* Removes and frees the last plans so that the first `n` are left. */
void lhi_found_plans_truncate(lhi_found_plans *known, uint32_t n);

/* Evaluates the plan's layout and pass order, both unchanged, for `job`, whose
 * links differ from the plan's job. *kept: the plan's layout with the new
 * times. */
lh_status lhi_plan_evaluate_on_job(const lh_plan *plan, const lh_job *job,
                                   lhi_arena *mem, lh_choice *kept,
                                   lh_error *err);

/* Replaces *best by a plan of the pool that is faster (or cheaper) on `job`.
 * Evaluates all plans of the pool with their own pass orders, until
 * options->progress() stops it. */
lh_status lhi_found_plans_improve(const lhi_found_plans *known,
                                  const lh_plan_options *options,
                                  const lh_job *job, lhi_arena *mem,
                                  lh_choice *best, lh_error *err);

#endif
