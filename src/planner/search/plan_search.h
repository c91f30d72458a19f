/* SPDX-License-Identifier: Apache-2.0 */
/* The search behind lh_plan_make(). */
#ifndef LHI_PLANNER_SEARCH_PLAN_SEARCH_H
#define LHI_PLANNER_SEARCH_PLAN_SEARCH_H

#include "planner/layout/evaluation_cache.h"
#include "planner/search/unexplored.h"

#include <longhaul/experimental/plan.h>

/* Searches the best plan of the job and fills `plan` except for name, version,
 * hash and job. Bounds on layouts that were not simulated go to `unexplored`,
 * which the caller releases, on failure too. If it is NULL, only the best plan
 * is required, and plans of cutoff_ns or longer (0: none) may be missed.
 * `shared`: cache of schedule results for the same sub-blocks, or NULL; does
 * not affect the result. Lists are in `mem`; the caller frees plan->pipeline
 * and plan->schedule, on failure too. */
lh_status lhi_plan_search(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lhi_unexplored *unexplored,
                          int64_t cutoff_ns, lhi_evaluation_cache *shared,
                          lh_plan *plan, lh_error *err);

/* Searches the best plan as lhi_plan_search() does, then optimises the
 * schedules of the plan and its alternatives with the solver. */
lh_status lhi_plan_search_and_refine(const lh_job *job,
                                     const lh_plan_options *options,
                                     lhi_arena *mem, lhi_unexplored *unexplored,
                                     int64_t cutoff_ns,
                                     lhi_evaluation_cache *shared,
                                     lh_plan *plan, lh_error *err);

/* Searches the best plan as lhi_plan_search_and_refine() does. With a limit in
 * seconds, repeats the search with more effort until the limit, as long as the
 * gap to the lower bound is above 0.5 %, and keeps the best plan with the
 * greatest of the lower bounds. */
lh_status lhi_plan_search_within_limits(const lh_job *job,
                                        const lh_plan_options *options,
                                        lhi_arena *mem,
                                        lhi_unexplored *unexplored,
                                        lhi_evaluation_cache *shared,
                                        lh_plan *plan, lh_error *err);

/* Merges `other`, a plan of the same job and options from a search with more
 * effort, and its bounds on unexplored layouts into `plan` and `unexplored`:
 * the better plan stays in `plan`, with the greater of the two proven bounds.
 * `other` and `left` receive the worse one; the caller frees both. The text is
 * in `mem`. */
lh_status lhi_plan_merge_repeat(const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *other, lhi_unexplored *left,
                                lh_plan *plan, lhi_unexplored *unexplored,
                                lh_error *err);

/* Replaces the plan by `other`, a plan of the same job with less usable memory,
 * if that is better with the job's memory: any layout that fits less memory
 * fits the job too. Evaluates every method and other's own schedule. The
 * previous plan becomes an alternative. Lists are in `mem`; the caller frees
 * the pipelines and schedules of both plans, on failure too. */
lh_status lhi_plan_adopt_if_better(const lh_job *job,
                                   const lh_plan_options *options,
                                   lhi_arena *mem, lh_plan *other,
                                   lh_plan *plan, lh_error *err);

/* Formats how much worse a feasible plan candidate `o` is than the best, and
 * why, in `mem`. NULL: no memory. */
const char *lhi_format_gap(const lh_plan_options *options, const lh_choice *o,
                           const lh_choice *best, lhi_arena *mem);
/* Formats the reasons for a plan's alternatives anew, after another plan
 * candidate has become the best. LH_ENOMEM: out of memory. */
lh_status lhi_plan_renew_reasons(const lh_plan_options *options, lhi_arena *mem,
                                 lh_plan *plan, lh_choice *alternatives,
                                 uint32_t n, lh_error *err);

/* Capacity for the text on optimality, in bytes. */
enum { LHI_OPTIMALITY_TEXT = 240 };

/* Formats how good plan->best is among all layouts: "the fastest of 9 layouts
 * ..." if no layout is unexplored and no bound allows a faster plan; else the
 * gap to the lower bound and the unexplored layout count. */
void lhi_format_plan_optimality(const lh_plan *plan,
                                const lh_plan_options *options, char *text,
                                size_t size);

/* Capacity for the text on the schedule's bound, in bytes. */
enum { LHI_SCHEDULE_TEXT = 100 };

/* Formats "no schedule of this layout and layer partition is more than 2.5 %
 * faster" from `gap`, the gap to this partition's bound. */
void lhi_format_schedule_optimality(double gap, char *text, size_t size);

/* Counts a layout as simulated that was built but not simulated when the search
 * ended; `bound_ns`: its bound. A layout reported as unexplored stays so. */
void lhi_plan_count_simulated(lh_plan *plan, int64_t bound_ns);

#endif
