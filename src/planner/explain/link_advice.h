/* SPDX-License-Identifier: Apache-2.0 */
/* Recommended settings for the links between datacenters under a plan. */
#ifndef LHI_PLANNER_EXPLAIN_LINK_ADVICE_H
#define LHI_PLANNER_EXPLAIN_LINK_ADVICE_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Names in the order of lh_advice_topic; ends with NULL. */
extern const char *const lhi_advice_topics[];

/* Fills plan->network, the advised link settings, for plan->best and its
 * schedule; lists are in `mem`. */
lh_status lhi_plan_advise_links(const lh_job *job, lhi_arena *mem,
                                lh_plan *plan, lh_error *err);

#endif
