/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers a plan's sharding to the training model. */
#ifndef LHI_RUNTIME_ENGINE_PLAN_SHARDING_H
#define LHI_RUNTIME_ENGINE_PLAN_SHARDING_H

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/plan.h>

/* Sets the model's sharding fields (ZeRO, hybrid sharding) from the plan.
 * *sites: group of replicas that share state, per stage and replica, which
 * `model` borrows; NULL: all do. Release with free(). LH_EUNSUPPORTED: the
 * layout cannot be placed. */
lh_status lhi_plan_set_sharding(const lh_plan *plan, lh_train_model *model,
                                uint32_t **sites, lh_error *err);

#endif
