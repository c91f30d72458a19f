/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons for idle GPUs. */
#ifndef LHI_PLANNER_IDLE_H
#define LHI_PLANNER_IDLE_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Returns the number of a datacenter's GPUs that the plan does not use. */
uint32_t lhi_plan_count_idle(const lh_plan *plan, uint32_t dc);

/* Finds for every datacenter with idle GPUs the best plan that uses more of
 * them, by short searches, and stores it with the reason in plan->idle. A
 * result that is better than the plan replaces it. Quick plans, Monte Carlo
 * sampling and PipeMesh's own planner get no reasons. Results are in `mem`. */
lh_status lhi_plan_explain_idle(const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *plan, lh_error *err);

#endif
