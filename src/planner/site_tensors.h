/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with different tensor degrees per datacenter. */
#ifndef LHI_PLANNER_SITE_TENSORS_H
#define LHI_PLANNER_SITE_TENSORS_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Searches plans with one pipeline over several datacenters that have different
 * tensor degrees. Call it only if lhi_site_tensors_are_searched() returns true.
 * A better result replaces the plan. Results are in `mem`. */
lh_status lhi_plan_search_site_tensors(const lh_plan_options *options,
                                       lhi_arena *mem, lh_plan *plan,
                                       lh_error *err);

#endif
