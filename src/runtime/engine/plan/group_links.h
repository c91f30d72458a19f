/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's estimate for communication within process groups and for
 * layer-by-layer sharding. */
#ifndef LHI_RUNTIME_ENGINE_PLAN_GROUP_LINKS_H
#define LHI_RUNTIME_ENGINE_PLAN_GROUP_LINKS_H

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/plan.h>

/* Sets model->groups to the links of the groups in the plan's layout. With
 * by_layer also layer_links, expert_links and the wait times inside passes,
 * for 4-byte elements where the plan counts its own element size. If devices
 * have different networks, the slowest counts. */
lh_status lhi_plan_set_group_links(const lh_plan *plan, lh_train_model *model,
                                   lh_error *err);

#endif
