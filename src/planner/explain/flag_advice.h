/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the training program that would change a plan's iteration time. */
#ifndef LHI_PLANNER_EXPLAIN_FLAG_ADVICE_H
#define LHI_PLANNER_EXPLAIN_FLAG_ADVICE_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Fills plan->flags for plan->best and its schedule, if the job is for a
 * training program; the list is in `mem`. */
lh_status lhi_plan_advise_flags(lhi_arena *mem, lh_plan *plan, lh_error *err);

#endif
