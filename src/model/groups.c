/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that take part in a collective: their numbering determines their
 * placement. */
#include "model/groups.h"

#include "base/fail.h"

/* Returns the GPU count of one replica of a stage: tensor x context. */
static uint64_t count_stage_gpus(const lh_layout *layout)
{
    return (uint64_t)layout->tensor * layout->context;
}

/* Sets a group's node count, and its members on the node with the fewest
 * members. */
static void set_nodes(lh_cost_group *group, lhi_node_count count)
{
    group->per_node = (uint32_t)count.fewest;
    group->nodes = (uint32_t)count.nodes;
}

void lhi_compute_site_group(const lh_job *job, const lh_layout *layout,
                            const lh_cost_layer_range *slice,
                            const lh_cost_site *site, lh_cost_group *out)
{
    lhi_stage_nodes nodes;

    lhi_stage_nodes_find(job, layout, slice, site->datacenter, site->replicas,
                         &nodes);
    *out = (lh_cost_group){.datacenter = site->datacenter, .concurrent = 1};
    out->size = out->per_datacenter = site->replicas * layout->context;
    set_nodes(out, lhi_stage_nodes_count_data(&nodes, layout->tensor));
}

/* Computes the data-parallel rings between datacenters: as many concurrent
 * rings as the smallest datacenter has GPUs, so that each ring has its own
 * share. */
static lh_status find_site_rings(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 lh_cost_group *out, lh_error *err)
{
    uint32_t sharing =
        slice->n_sharing_ranks ? slice->n_sharing_ranks : layout->pipeline;
    uint32_t replicas = UINT32_MAX;

    LHI_TRY(lhi_check_replica_sites(job, layout, slice, err));
    out->per_datacenter = out->per_node = UINT32_MAX;
    for (uint32_t i = 0; i < slice->n_sites; i++) {
        lh_cost_group at;

        lhi_compute_site_group(job, layout, slice, &slice->sites[i], &at);
        if (at.size < out->per_datacenter)
            out->per_datacenter = at.size;
        if (at.per_node < out->per_node)
            out->per_node = at.per_node;
        if (at.nodes > out->nodes)
            out->nodes = at.nodes;
        if (slice->sites[i].replicas < replicas)
            replicas = slice->sites[i].replicas;
    }
    if (slice->n_sites > 1) {
        out->n_sites = slice->n_sites;
        out->sites = slice->sites;
        out->concurrent =
            (uint32_t)(count_stage_gpus(layout) * sharing * replicas);
    }
    return LH_OK;
}

/* Finds the data-parallel group of a stage: all its replicas including the
 * context-parallel ranks. */
static lh_status find_replicas(const lh_job *job, const lh_layout *layout,
                               const lh_cost_layer_range *slice,
                               lh_cost_group *out, lh_error *err)
{
    uint32_t spread = slice->data_datacenters ? slice->data_datacenters : 1;
    lh_cost_group here;

    out->size = layout->data * layout->context;
    if (slice->n_sites)
        return find_site_rings(job, layout, slice, out, err);
    LHI_TRY(lhi_check_even_spread(job, layout, slice, spread, err));
    lhi_compute_site_group(
        job, layout, slice,
        &(lh_cost_site){slice->datacenter, layout->data / spread}, &here);
    out->per_datacenter = here.size;
    out->per_node = here.per_node;
    out->nodes = here.nodes;
    /* Every GPU in a datacenter has its own ring across datacenters. */
    if (spread > 1)
        out->concurrent = (uint32_t)(count_stage_gpus(layout) *
                                     layout->pipeline * layout->data / spread);
    return LH_OK;
}

/* Returns the replica count in the layer range's datacenter. */
static uint32_t find_replicas_here(const lh_layout *layout,
                                   const lh_cost_layer_range *slice)
{
    for (uint32_t i = 0; i < slice->n_sites; i++)
        if (slice->sites[i].datacenter == slice->datacenter)
            return slice->sites[i].replicas;
    return slice->data_datacenters > 1 ? layout->data / slice->data_datacenters
                                       : layout->data;
}

/* Finds a process group of MoE layers, which share GPUs differently from the
 * dense layers. The replica group is that of dense layers if both have the same
 * layout. */
static lh_status find_experts(const lh_job *job, const lh_layout *layout,
                              lh_cost_dimension dimension,
                              const lh_cost_layer_range *slice,
                              lh_cost_group *out, lh_error *err)
{
    lhi_group_layout groups;

    LHI_TRY(lhi_group_layout_build(job, layout, slice, &groups, err));
    if (dimension == LH_COST_DATA && groups.matches_dense_layers)
        return find_replicas(job, layout, slice, out, err);
    return lhi_group_layout_compute_group(&groups, dimension, slice, out, err);
}

/* Finds the process group of a layer range along a dimension of parallelism:
 * its size and its ranks per node and datacenter. LH_EINVAL: the range, the
 * layout or the dimension is invalid. */
static lh_status find_group(const lh_job *job, const lh_layout *layout,
                            lh_cost_dimension dimension,
                            const lh_cost_layer_range *slice,
                            lh_cost_group *out, lh_error *err)
{
    uint32_t dcs = slice->data_datacenters ? slice->data_datacenters : 1;
    lhi_stage_nodes nodes;

    if (slice->datacenter >= job->n_datacenters ||
        dcs > job->n_datacenters - slice->datacenter)
        return lhi_fail(err, LH_EINVAL,
                        "a layer range is in a datacenter that the job does "
                        "not have");
    if (!layout->tensor || !layout->context)
        return lhi_fail(err, LH_EINVAL, "the layout is incomplete");
    *out = (lh_cost_group){.datacenter = slice->datacenter, .concurrent = 1};
    lhi_stage_nodes_find(job, layout, slice, slice->datacenter,
                         find_replicas_here(layout, slice), &nodes);
    switch (dimension) {
    case LH_COST_TENSOR:
        out->size = layout->tensor;
        set_nodes(out, lhi_stage_nodes_count_tensor(&nodes, layout->tensor));
        break;
    case LH_COST_CONTEXT:
        out->size = layout->context;
        set_nodes(out, lhi_stage_nodes_count_context(&nodes, layout->tensor));
        break;
    case LH_COST_DATA_SHARED:
        return find_replicas(job, layout, slice, out, err);
    case LH_COST_EXPERT:
    case LH_COST_EXPERT_TENSOR:
    case LH_COST_DATA:
        return find_experts(job, layout, dimension, slice, out, err);
    default:
        return lhi_fail(err, LH_EINVAL, "no such dimension");
    }
    out->per_datacenter = out->size;
    return LH_OK;
}

lh_status lhi_cost_find_group(const lh_job *job, const lh_layout *layout,
                              lh_cost_dimension dimension,
                              const lh_cost_layer_range *slice,
                              lh_cost_group *out, lh_error *err)
{
    lh_cost_group group;

    LHI_TRY(find_group(job, layout, dimension, slice, &group, err));
    *out = group;
    return LH_OK;
}
