/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan that leaves more memory free. */
#ifndef LHI_PLANNER_MARGIN_H
#define LHI_PLANNER_MARGIN_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Finds the best plan that leaves the options' memory margin free, and stores
 * it in plan->margin. Does nothing if the options have no margin. Results are
 * in `mem`. */
lh_status lhi_plan_find_margin(const lh_plan_options *options, lhi_arena *mem,
                               lh_plan *plan, lh_error *err);

#endif
