/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the training program that would change a plan's iteration time. */
#ifndef LHI_PLANNER_EXPLAIN_FLAG_ADVICE_H
#define LHI_PLANNER_EXPLAIN_FLAG_ADVICE_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Fills plan->flags, the options of the training program that would change the
 * iteration time of plan->best and its schedule, and plan->flag_plan, a layout
 * that is fastest with changed options, if the job is for such a program. Only
 * options that the plan's job leaves open are advised. Results are in `mem`. */
lh_status lhi_plan_advise_flags(const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *plan, lh_error *err);

#endif
