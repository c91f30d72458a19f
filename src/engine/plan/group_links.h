/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan takes exchanges of ranks that compute together, or share what is
 * sharded layer by layer, to last. */
#ifndef LHI_GROUP_LINKS_H
#define LHI_GROUP_LINKS_H

#include <longhaul/engine.h>
#include <longhaul/plan.h>

/* Fills in model->groups of those groups that the plan's layout has, and
 * parts, expert_parts and part_waits_ns where the model is sharded by_layer, for
 * exchanges of 4 bytes where the plan counts an element's. Where devices of the
 * pipeline have different networks, the slowest. */
lh_status lhi_group_links(const lh_plan *plan, lh_train_model *model,
                          lh_error *err);

#endif
