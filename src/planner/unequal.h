/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with unequal microbatches. */
#ifndef LHI_PLANNER_UNEQUAL_H
#define LHI_PLANNER_UNEQUAL_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Searches plans with unequal microbatches: replicas in different datacenters
 * process different numbers of sequences per microbatch, as suits their GPUs.
 * Only where lhi_unequal_is_searched() allows it. A better result replaces the
 * plan. Results are in `mem`. */
lh_status lhi_plan_search_unequal(const lh_plan_options *options,
                                  lhi_arena *mem, lh_plan *plan, lh_error *err);

#endif
