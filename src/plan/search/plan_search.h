/* SPDX-License-Identifier: Apache-2.0 */
/* The search behind lh_plan_make(). */
#ifndef LHI_PLAN_SEARCH_H
#define LHI_PLAN_SEARCH_H

#include "plan/search/unseen.h"

#include <longhaul/plan.h>

/* The bounds of what was not simulated go to `unseen` (NULL: nowhere), the
 * caller's to release, on failure too; where nothing is proven, none do.
 * Fills `plan` but for name, version, hash and job. What it lists lives in
 * `mem`; plan->pipeline and plan->schedule are the caller's to free, on failure
 * too. */
lh_status lhi_plan_search(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lhi_unseen *unseen, lh_plan *plan,
                          lh_error *err);

/* The same, and then the search for optimal schedules. */
lh_status lhi_plan_find(const lh_job *job, const lh_plan_options *options,
                        lhi_arena *mem, lhi_unseen *unseen, lh_plan *plan,
                        lh_error *err);

/* How far a choice that works is behind the best, and by what, in `mem`. NULL:
 * no memory. */
const char *lhi_why_behind(const lh_plan_options *options, const lh_choice *o,
                           const lh_choice *best, lhi_arena *mem);

enum { LHI_STANDING_TEXT = 240 };

/* What plan->best is among all layouts: "the fastest of 9 layouts ..." only
 * where all of them were closed and nothing faster is possible, else what may
 * be faster, and how many were not looked at. */
void lhi_plan_standing(const lh_plan *plan, const lh_plan_options *options,
                       char *text, size_t size);

enum { LHI_SCHEDULE_TEXT = 80 };

/* "no schedule of this layout is more than 2.5 % faster", where its bound is so
 * far below. */
void lhi_schedule_standing(double gap, char *text, size_t size);

/* A layout with that bound, built but not simulated when the search ended, was
 * simulated since. If it was left then, it still counts as left: so the plan
 * has said. */
void lhi_plan_count_simulated(lh_plan *plan, int64_t bound_ns);

#endif
