/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan that leaves more memory free. */
#ifndef LHI_PLANNER_MARGIN_H
#define LHI_PLANNER_MARGIN_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Searches the job with the options' memory margin reserved, unless the plan
 * leaves that much free, and stores the result in plan->margin. A result that
 * is better than the plan replaces it: it is valid without the margin too. Does
 * nothing if the options have no margin. Results are in `mem`. */
lh_status lhi_plan_search_with_margin(const lh_plan_options *options,
                                      lhi_arena *mem, lh_plan *plan,
                                      lh_error *err);

/* Replaces plan->margin's choice by the plan if that leaves the margin free, or
 * by a better one of its methods and alternatives that does. */
lh_status lhi_plan_finish_margin(const lh_plan_options *options, lhi_arena *mem,
                                 lh_plan *plan, lh_error *err);

#endif
