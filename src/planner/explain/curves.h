/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines or replicas across datacenters, as curves over a parameter. */
#ifndef LHI_PLANNER_EXPLAIN_CURVES_H
#define LHI_PLANNER_EXPLAIN_CURVES_H

#include "base/arena.h"
#include "planner/layout/evaluation_cache.h"

#include <longhaul/experimental/plan.h>

/* Fills plan->curves: over a parameter (number of experts, or
 * oversubscription), the iteration times of one pipeline through all
 * datacenters and of whole replicas in each datacenter. Empty with one
 * datacenter. `tried`: the plan's evaluation cache. */
lh_status lhi_plan_curves(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lhi_evaluation_cache *tried,
                          lh_plan *plan, lh_error *err);

#endif
