/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of a plan that its accuracy cannot distinguish. */
#ifndef LHI_PLANNER_TIES_H
#define LHI_PLANNER_TIES_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Sets p->ties, in `mem`, from p->accuracy and p->alternatives: the layouts
 * whose times exceed the plan's by at most the mean error, if one of them is
 * closer to published practice than the plan's layout. */
lh_status lhi_plan_find_ties(lhi_arena *mem, lh_plan *p, lh_error *err);

#endif
