/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/plan/sharding.h"

#include "base/fail.h"
#include "planner/layout/layout.h"

#include <inttypes.h>
#include <stdlib.h>

/* Lists which replicas share optimizer state: replicas of a stage with equal
 * (*out)[stage * data + replica], the datacenter under hybrid sharding. Release
 * with free(). */
static lh_status make_sites(const lh_plan *plan, uint32_t **out, lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    uint32_t *sites = calloc((size_t)l->pipeline * l->data, sizeof *sites);
    lh_status status =
        sites ? lhi_state_sites(plan->job, l, plan->best.zero, sites, err)
              : lhi_fail_nomem(err);
    if (status != LH_OK) {
        free(sites);
        return status;
    }
    *out = sites;
    return LH_OK;
}

/* Counts the ranks of stage 0 that are in the datacenter of its first rank and
 * so share optimizer state with it. Context-parallel ranks count too. */
static uint32_t count_sharers(const uint32_t *sites, uint32_t n_replicas)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_replicas; i++)
        n += !sites || sites[i] == sites[0];
    return n;
}

lh_status lhi_plan_set_sharding(const lh_plan *plan, lh_train_model *model,
                                uint32_t **sites, lh_error *err)
{
    const lh_choice *best = &plan->best;
    const lh_plan_elastic *elastic = best->elastic;
    uint32_t n = best->layout.data, context = best->layout.context;
    *sites = NULL;
    model->unsharded_optimizer = best->zero == 0;
    if (n > 1 && best->zero > 0 && best->layout.sharding > LH_SHARDING_FULL)
        LHI_TRY(make_sites(plan, sites, err));
    model->sites = *sites;
    model->reduce_by_leaders =
        *sites && best->layout.sharding == LH_SHARDING_HYBRID_LEADERS;
    model->per_layer_sharding =
        !elastic && best->zero >= 2 && context * count_sharers(*sites, n) > 1;
    model->sharded_gradients = model->per_layer_sharding ? 1
                               : elastic                 ? elastic->gradients
                                                         : 0;
    model->sharded_parameters = model->per_layer_sharding && best->zero >= 3 ? 1
                                : elastic ? elastic->parameters
                                          : 0;
    return LH_OK;
}
