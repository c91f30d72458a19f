/* SPDX-License-Identifier: Apache-2.0 */
/* Internal state of the schedule optimisation, shared by refine.c and
 * refine_partitions.c. */
#ifndef LHI_PLANNER_SEARCH_REFINE_INTERNAL_H
#define LHI_PLANNER_SEARCH_REFINE_INTERNAL_H

#include "planner/layout/layout.h"
#include "planner/search/refine.h"

/* Maximum number of pipelines searched for optimal schedules. */
enum { LHI_MAX_SEARCHED_PIPELINES = 1024 };

/* A searched pipeline; equal ones, such as the same stages with other replicas,
 * are not searched again in vain. */
typedef struct lhi_searched_pipeline {
    int64_t iteration_ns, lower_bound_ns;
    uint64_t effort;
    bool gained; /* improved, so equal ones may be searched too */
} lhi_searched_pipeline;

/* Optimisation state. */
typedef struct lhi_refinement {
    const lh_job *job;
    const lh_plan_options *options;
    lhi_arena *mem;
    lh_plan *plan;
    bool stopped; /* by the caller */
    bool changed; /* another schedule or bound */
    lhi_searched_pipeline at[LHI_MAX_SEARCHED_PIPELINES];
    uint32_t n_looked;
    uint64_t spent; /* solver effort */
} lhi_refinement;

/* Returns the solver's work limit for the plan's own schedule. */
uint64_t lhi_refinement_effort(const lhi_refinement *r);

/* Searches a faster schedule of pipeline `p` by the solver with work limit
 * `effort`. *schedule: a faster one, owned by the caller; unchanged if there is
 * none. `c` receives its result and the lower bound, and why[0..room-1] a text
 * on the bound. */
lh_status lhi_refinement_improve(lhi_refinement *r, const lh_pipeline *p,
                                 uint64_t effort, lh_choice *c,
                                 lh_schedule **schedule, char *why, size_t room,
                                 lh_error *err);

/* Checks whether the solver already ran, without gain, on a pipeline with the
 * same time and bound as `c`, with at least this effort. */
bool lhi_refinement_was_solved(const lhi_refinement *r, const lh_choice *c,
                               uint64_t effort);

/* Records that the solver ran with `effort` on the pipeline of plan candidate
 * `before`, with result `c`, for lhi_refinement_was_solved(). */
void lhi_refinement_record_solve(lhi_refinement *r, const lh_choice *before,
                                 const lh_choice *c, uint64_t effort);

/* Makes plan candidate `won` the plan's best, takes ownership of its pipeline
 * and schedule, and lists every method's result on it. */
lh_status lhi_refinement_replace_best(lhi_refinement *r, const lh_choice *won,
                                      lhi_built_layout *built,
                                      lh_schedule *schedule, lh_error *err);

/* Optimises the schedules of the layouts that the search found: the plan, then
 * the alternatives that may beat it. The text of the plan's bound goes to
 * why[0..room-1]. */
lh_status lhi_refinement_improve_known(lhi_refinement *r,
                                       const lhi_best_per_value *heads,
                                       char *why, size_t room, lh_error *err);

/* Updates the plan's text on its optimality (`why`: text of the schedule's
 * bound, or "") and those of its alternatives on their difference from the
 * plan, if the refinement changed the plan. */
lh_status lhi_refinement_finish(lhi_refinement *r, const char *why,
                                lh_error *err);

#endif
