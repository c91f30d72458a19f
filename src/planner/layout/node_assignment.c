/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns a stage's ranks to nodes. */
#include "base/fail.h"
#include "model/group_layout.h"
#include "planner/layout/layout.h"

/* Sets the number of the node on which each rank of one stage is placed,
 * replica by replica, into nodes[]. */
static lh_status assign_stage(const lh_job *job, const lh_layout *l,
                              const lhi_layout_placement *places,
                              uint32_t stage, uint32_t *nodes, lh_error *err)
{
    const lh_cost_layer_range slice = lhi_stage_range(&places->stages[stage]);
    uint64_t n[LH_MAX_DATACENTERS] = {0};
    lhi_group_layout groups;
    LHI_TRY(lhi_group_layout_build(job, l, &slice, &groups, err));
    for (uint32_t g = 0; g < places->sites->n_groups; g++) {
        uint32_t dc = places->ranks[(size_t)g * l->pipeline + stage].datacenter;
        uint32_t before = 0;
        for (uint32_t i = 0; i < dc; i++)
            before += job->datacenters[i].nodes;
        for (uint32_t k = 0;
             k < places->sites->groups[g].replicas * lhi_group_size(l); k++)
            *nodes++ = before + (uint32_t)lhi_group_layout_find_node(
                                    &groups, dc, n[dc]++);
    }
    return LH_OK;
}

lh_status lhi_state_nodes(const lh_job *job, const lh_layout *l,
                          uint32_t *nodes, lh_error *err)
{
    const size_t n = (size_t)l->data * lhi_group_size(l);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_layout_placement places;
    lh_status status =
        mem ? lhi_layout_place(job, l, mem, &places, err) : lhi_fail_nomem(err);
    for (uint32_t stage = 0; status == LH_OK && stage < l->pipeline; stage++)
        status = assign_stage(job, l, &places, stage, nodes + stage * n, err);
    lhi_arena_free(mem);
    return status;
}

lh_status lhi_layout_check_runs(const lh_job *job, const lh_layout *l,
                                uint32_t size, bool *whole, lh_error *err)
{
    const size_t n = (size_t)l->data * lhi_group_size(l), all = n * l->pipeline;
    lhi_arena *mem = lhi_arena_make(0);
    uint32_t *nodes = mem ? LHI_NEW(mem, uint32_t, all) : NULL;
    lh_status status =
        nodes ? lhi_state_nodes(job, l, nodes, err) : lhi_fail_nomem(err);
    *whole = true;
    for (size_t i = 0; status == LH_OK && i < all; i++)
        *whole = *whole && nodes[i] == nodes[i - i % n % size];
    lhi_arena_free(mem);
    return status;
}
