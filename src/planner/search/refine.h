/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule optimisation after the search over layouts. */
#ifndef LHI_PLANNER_SEARCH_REFINE_H
#define LHI_PLANNER_SEARCH_REFINE_H

#include "planner/layout/evaluation_cache.h"
#include "planner/search/unexplored.h"

/* Searches for faster schedules, and higher bounds, for the plan's layout and
 * its closest alternatives within options->effort; with `heads` (NULL: none),
 * also for the best plan with each other dimension value. `tried`: as in
 * lhi_evaluation_cache_run_method(). The caller frees the plan's pipeline and
 * schedule, on failure too; lists are in `mem`. */
lh_status lhi_plan_refine(const lh_job *job, const lh_plan_options *options,
                          const lhi_best_per_value *heads, lhi_arena *mem,
                          lhi_evaluation_cache *tried, lh_plan *plan,
                          lh_error *err);

/* Simulates a schedule on a plan candidate's pipeline, with messages first in,
 * first out, and updates its times, memory, tokens/s and MFU. */
lh_status lhi_choice_measure(const lh_pipeline *p, const lh_schedule *schedule,
                             lh_choice *c, lh_error *err);

/* Repeats the solver's search for an alternative's schedule on `pipeline`, with
 * the work limit for alternatives and without progress callbacks; *out is NULL
 * if it finds none. */
lh_status lhi_plan_refine_alternative(const lh_plan_options *options,
                                      const lh_pipeline *pipeline,
                                      lh_schedule **out, lh_error *err);

#endif
