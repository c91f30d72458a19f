/* SPDX-License-Identifier: Apache-2.0 */
/* The accuracy of a plan's times: errors in published runs of its kind. */
#ifndef LHI_PLANNER_VALIDATED_RUNS_H
#define LHI_PLANNER_VALIDATED_RUNS_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Sets p->accuracy, in `mem`: the published runs of the plan's kind, with the
 * properties of the plan, which uses `gpus` GPUs, outside the range of these
 * runs. Leaves it NULL if there are no such runs. */
lh_status lhi_plan_state_accuracy(lhi_arena *mem, uint32_t gpus, lh_plan *p,
                                  lh_error *err);

#endif
