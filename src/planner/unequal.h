/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with unequal microbatches. */
#ifndef LHI_PLANNER_UNEQUAL_H
#define LHI_PLANNER_UNEQUAL_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Searches plans whose replicas in different datacenters process different
 * numbers of sequences per microbatch, where lhi_unequal_is_searched() allows
 * them. A result that is better than the plan replaces it. Results are in
 * `mem`. */
lh_status lhi_plan_search_unequal(const lh_plan_options *options,
                                  lhi_arena *mem, lh_plan *plan, lh_error *err);

#endif
