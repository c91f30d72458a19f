/* SPDX-License-Identifier: Apache-2.0 */
/* What links between datacenters should be set to for a plan. */
#ifndef LHI_ADVISE_H
#define LHI_ADVISE_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* As lh_advice_topic numbers them; ends with NULL. */
extern const char *const lhi_advice_topics[];

/* Fills plan->network for plan->best and its schedule; lists live in `mem`. */
lh_status lhi_plan_advise(const lh_job *job, lhi_arena *mem, lh_plan *plan,
                          lh_error *err);

#endif
