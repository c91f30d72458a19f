/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan that leaves more memory free. */
#ifndef LHI_PLANNER_MARGIN_H
#define LHI_PLANNER_MARGIN_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Searches the best plan that leaves the options' memory margin free on every
 * GPU, unless the plan does so already, and stores it in plan->margin. If it is
 * better than the plan, it replaces the plan. Does nothing if the options have
 * no margin. Results are in `mem`. */
lh_status lhi_plan_search_with_margin(const lh_plan_options *options,
                                      lhi_arena *mem, lh_plan *plan,
                                      lh_error *err);

/* Completes plan->margin, the best plan that leaves the margin free, after the
 * search: takes the plan itself if it does, else the best of the margin's own
 * search, the plan's methods and its alternatives. */
lh_status lhi_plan_finish_margin(const lh_plan_options *options, lhi_arena *mem,
                                 lh_plan *plan, lh_error *err);

#endif
