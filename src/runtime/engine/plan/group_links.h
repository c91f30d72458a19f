/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's estimate for communication within process groups and for
 * layer-by-layer sharding. */
#ifndef LHI_RUNTIME_ENGINE_PLAN_GROUP_LINKS_H
#define LHI_RUNTIME_ENGINE_PLAN_GROUP_LINKS_H

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/plan.h>

/* Sets model->groups, the emulated links of the plan's process groups (tensor,
 * context, expert). With by_layer also layer_links, expert_links and the wait
 * time inside passes, which FSDP needs. Times are for 4-byte elements; if
 * devices have different networks, the slowest. */
lh_status lhi_plan_set_group_links(const lh_plan *plan, lh_train_model *model,
                                   lh_error *err);

#endif
