/* SPDX-License-Identifier: Apache-2.0 */
/* The search behind lh_plan_make(). */
#ifndef LHI_PLAN_SEARCH_H
#define LHI_PLAN_SEARCH_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* Fills `plan` but for name, version, hash and job. What it lists lives in
 * `mem`; plan->pipeline and plan->schedule are the caller's to free, on failure
 * too. */
lh_status lhi_plan_search(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lh_plan *plan, lh_error *err);

/* The same, and then the search for optimal schedules. */
lh_status lhi_plan_find(const lh_job *job, const lh_plan_options *options,
                        lhi_arena *mem, lh_plan *plan, lh_error *err);

#endif
