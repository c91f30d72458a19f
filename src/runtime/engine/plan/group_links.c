/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/plan/group_links.h"

#include "model/collective.h"
#include "model/group_layout.h"
#include "model/sharding.h"
#include "model/timing.h"
#include "planner/layout/choice.h"
#include "planner/layout/layout.h"

/* Returns the ratio of the bytes in a message as the engine sends it, with
 * 4-byte elements, to the bytes that the plan's cost model counts for it. */
static double compute_byte_ratio(const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    double values = (double)l->micro_batch * plan->job->training.sequence *
                    plan->job->model->hidden;
    return values * sizeof(float) /
           (double)lhi_cost_message_bytes(plan->job, l);
}

/* Raises the latency (ns) and the time per byte (ns) of link `to` to the given
 * values, where these are larger. */
static void raise_link(lh_train_group_link *to, double latency_ns,
                       double ns_per_byte)
{
    if (latency_ns > (double)to->latency_ns)
        to->latency_ns = (int64_t)(latency_ns + 0.5);
    if (ns_per_byte > to->ns_per_byte)
        to->ns_per_byte = ns_per_byte;
}

/* Raises link `to`'s latency and time per byte to those of a ring of `ranks`
 * ranks over `path`, in which every rank sends (n - 1) / n of the data. */
static void add_ring_path(const lh_plan *plan, uint32_t ranks,
                          const lh_cost_path *path, lh_train_group_link *to)
{
    double transfer_ns, latency_ns;
    lhi_cost_collective_ring(plan->job->training.rings, LH_ALL_GATHER, ranks, 0,
                             path, &transfer_ns, &latency_ns);
    raise_link(to, latency_ns,
               1e9 / path->bytes_per_s / compute_byte_ratio(plan));
}

/* Raises link `to`'s latency and time per byte to those of a ring over the
 * ranks of one parallel dimension (tensor, context and others), for the layers
 * `slice`. Does nothing for a group of one rank. */
static lh_status add_ring(const lh_plan *plan, const lh_cost_layer_range *slice,
                          lh_cost_dimension dimension, lh_train_group_link *to,
                          lh_error *err)
{
    lh_cost_group group;
    lh_cost_path path;
    const lh_layout layout =
        lhi_layout_in_datacenter(&plan->best.layout, slice->datacenter);
    LHI_TRY(
        lhi_cost_find_group(plan->job, &layout, dimension, slice, &group, err));
    if (group.size < 2)
        return LH_OK;
    LHI_TRY(lh_cost_group_path(plan->job, &group, NULL, &path, err));
    add_ring_path(plan, group.size, &path, to);
    return LH_OK;
}

/* Raises the emulated links of the expert and expert-tensor groups to those at
 * each datacenter of the stage. The plan's all-to-all also counts a rank's own
 * share, so its time per byte is scaled. by_nodes: leaves out the expert
 * group's link, which add_nodes() sets. */
static lh_status add_experts(const lh_plan *plan,
                             const lhi_stage_placement *spread,
                             lh_train_group_link *groups, bool by_nodes,
                             lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    lh_cost_layer_range slice = lhi_stage_range(spread);
    lhi_ecmp_cache known = {0};
    lhi_cost_context prices;
    slice.n_layers = 1;
    for (uint32_t i = 0; i < spread->n_sites; i++) {
        slice.datacenter = spread->sites[i].datacenter;
        LHI_TRY(lhi_cost_context_build(plan->job, l, &slice, NULL, false,
                                       &known, &prices, err));
        if (prices.shape.dispatches_tokens && prices.shape.expert_tensor > 1)
            add_ring_path(plan, prices.shape.expert_tensor, &prices.sharing,
                          &groups[LH_TRAIN_GROUP_EXPERT_TENSOR]);
        if (l->expert > 1 && !by_nodes)
            raise_link(&groups[LH_TRAIN_GROUP_EXPERT], prices.expert.latency_ns,
                       prices.expert.ns_per_byte * l->expert /
                           (l->expert - 1.0) / compute_byte_ratio(plan));
    }
    return LH_OK;
}

/* Raises the emulated links for node-aware dispatch of tokens at the stage,
 * between nodes and within a node, to the slowest among its groups. */
static lh_status add_nodes(const lh_plan *plan,
                           const lhi_stage_placement *spread,
                           lh_train_model *to, lh_error *err)
{
    const double bytes = compute_byte_ratio(plan);
    const lh_cost_layer_range slice = lhi_stage_range(spread);
    lh_cost_options options;
    lhi_ecmp_cache known = {0};
    lhi_exchange_paths paths;
    lhi_group_members members;
    lhi_group_layout groups;
    LHI_TRY(lhi_complete_cost_options(plan->job, NULL, &options, err));
    LHI_TRY(lhi_group_layout_build(plan->job, &plan->best.layout, &slice,
                                   &groups, err));
    for (uint32_t i = 0; i < spread->n_sites; i++)
        for (uint32_t k = 0; lhi_group_layout_find_dispatch_group(
                 &groups, spread->sites[i].datacenter, k, &members);
             k++) {
            LHI_TRY(lhi_all_to_all_compute_path_times(
                plan->job, &members, &options, &known, &paths, err));
            raise_link(&to->groups[LH_TRAIN_GROUP_EXPERT], paths.far_latency_ns,
                       paths.far_ns_per_byte / bytes);
            raise_link(&to->intra_node_experts, paths.near_latency_ns,
                       paths.near_ns_per_byte / bytes);
        }
    return LH_OK;
}

/* Raises the links in `to` to the latency and time per byte of an all-gather
 * and a reduction among the `sharers` ranks that share a layer's parameters.
 * of_expert: the parameters of experts. */
static lh_status add_sharing(const lh_job *job, const lh_layout *layout,
                             const lh_cost_layer_range *slice, bool of_expert,
                             double sharers, lh_train_collective_links *to,
                             lh_error *err)
{
    double sent = sizeof(float) * (sharers - 1) / sharers;
    lhi_data_times t;
    if (sharers < 2)
        return LH_OK;
    LHI_TRY(lhi_compute_marginal_sharding_times(job, layout, slice, of_expert,
                                                NULL, &t, err));
    raise_link(&to->gathers, t.gather.latency, t.gather.transfer / sent);
    raise_link(&to->reductions, t.reduce.latency, t.reduce.transfer / sent);
    return LH_OK;
}

/* Raises the links of the all-gathers and reductions inside passes (FSDP), for
 * experts and other parameters, to the slowest among the stage's datacenters.
 * */
static lh_status add_parts(const lh_plan *plan,
                           const lhi_stage_placement *spread, uint32_t stage,
                           lh_train_model *to, lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(&plan->best);
    const lh_job job = lhi_config_job(plan->job, &config);
    lh_cost_layer_range slice = lhi_config_slice(&job, &config, spread, stage);
    for (uint32_t i = 0; i < spread->n_sites; i++) {
        double all, experts;
        slice.datacenter = spread->sites[i].datacenter;
        const lh_layout layout =
            lhi_layout_in_datacenter(&config.layout, slice.datacenter);
        LHI_TRY(
            lhi_count_state_ranks(&job, &layout, &slice, &all, &experts, err));
        LHI_TRY(add_sharing(&job, &layout, &slice, false, all, &to->layer_links,
                            err));
        if (job.model->experts)
            LHI_TRY(add_sharing(&job, &layout, &slice, true, experts,
                                &to->expert_links, err));
    }
    return LH_OK;
}

/* Sets to->collective_wait_ns to the time that a pass waits for FSDP
 * collectives, as the planner estimates it for the plan's layout. */
static lh_status find_wait_time(const lh_plan *plan, lh_train_model *to,
                                lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(&plan->best);
    lhi_built_layout built;
    LHI_TRY(lhi_layout_build(plan->job, &config, &built, err));
    lh_pipeline_free(built.pipeline);
    to->collective_wait_ns = built.zero_wait_ns;
    return LH_OK;
}

lh_status lhi_plan_set_group_links(const lh_plan *plan, lh_train_model *model,
                                   lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    lhi_layout_placement places;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_layout_place(plan->job, l, mem, &places, err);
    for (uint32_t i = 0; status == LH_OK && i < l->pipeline; i++) {
        lh_cost_layer_range slice = lhi_stage_range(&places.stages[i]);
        slice.n_layers = 1;
        slice.datacenter = places.ranks[i].datacenter;
        status = add_ring(plan, &slice, LH_COST_TENSOR,
                          &model->groups[LH_TRAIN_GROUP_TENSOR], err);
        if (status == LH_OK && plan->job->model->experts)
            status = add_experts(plan, &places.stages[i], model->groups,
                                 model->nodes != NULL, err);
        if (status == LH_OK && model->nodes)
            status = add_nodes(plan, &places.stages[i], model, err);
        if (status == LH_OK && model->per_layer_sharding)
            status = add_parts(plan, &places.stages[i], i, model, err);
    }
    lhi_arena_free(mem);
    if (status == LH_OK && model->per_layer_sharding)
        status = find_wait_time(plan, model, err);
    return status;
}
