/* SPDX-License-Identifier: Apache-2.0 */
/* What links between datacenters should be set to for a plan. */
#ifndef LHI_ADVICE_H
#define LHI_ADVICE_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* Fills plan->network for plan->best and its schedule; lists live in `mem`. */
lh_status lhi_plan_advise(const lh_job *job, lhi_arena *mem, lh_plan *plan,
                          lh_error *err);

/* An option in words, for its topic: "spray", "4 queue pairs". */
void lhi_advice_option_name(lh_advice_topic topic, const lh_link_setting *s,
                            char *text, size_t room);

#endif
