/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons for idle GPUs. */
#ifndef LHI_PLANNER_IDLE_H
#define LHI_PLANNER_IDLE_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Returns how many GPUs of datacenter `dc` the plan leaves unused. */
uint32_t lhi_plan_count_idle(const lh_plan *plan, uint32_t dc);

/* Finds for every datacenter with idle GPUs the best plan that uses more of
 * them, by short searches, and stores it in plan->idle with the reason why it
 * is not the plan. A better one replaces the plan. Quick plans, Monte Carlo
 * sampling and PipeMesh's planner get no reasons. Results are in `mem`. */
lh_status lhi_plan_explain_idle(const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *plan, lh_error *err);

#endif
