/* SPDX-License-Identifier: Apache-2.0 */
/* Measured times of other layouts in the job's profile. */
#ifndef LHI_PLANNER_EXPLAIN_UNMEASURED_H
#define LHI_PLANNER_EXPLAIN_UNMEASURED_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Fills plan->unmeasured, the best plan with a measured layout, if the job's
 * profile has pass times but none for the plan's layout. */
lh_status lhi_plan_compare_measured(const lh_plan_options *options,
                                    lhi_arena *mem, lh_plan *plan,
                                    lh_error *err);

#endif
