/* SPDX-License-Identifier: Apache-2.0 */
/* What of a plan says which replicas share what. */
#ifndef LHI_PLAN_SHARDING_H
#define LHI_PLAN_SHARDING_H

#include <longhaul/engine.h>
#include <longhaul/plan.h>

/* Fills in what a model has of it. *sites, which `model` then points to, is to
 * be released with free(). LH_EUNSUPPORTED: the cpu device does not do that. */
lh_status lhi_plan_sharding(const lh_plan *plan, lh_train_model *model,
                            uint32_t **sites, lh_error *err);

#endif
