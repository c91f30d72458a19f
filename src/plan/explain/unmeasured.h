/* SPDX-License-Identifier: Apache-2.0 */
/* What a job's profile says of other layouts than the plan's. */
#ifndef LHI_UNMEASURED_H
#define LHI_UNMEASURED_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* Fills plan->unmeasured where the job's profile measured passes, but none of
 * the plan's. */
lh_status lhi_plan_unmeasured(const lh_plan_options *options, lhi_arena *mem,
                              lh_plan *plan, lh_error *err);

#endif
