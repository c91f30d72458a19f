/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline's chunks: their slices of the model, with times and memory by the
 * cost model, all datacenters' worst with replicas. */
#include "planner/layout/build_internal.h"

#include "planner/layout/equivalence.h"

#include "base/integer_math.h"
#include "format/job/job_values.h"
#include "model/paths.h"
#include "model/shape.h"
#include "model/sharding.h"

#include <math.h>
#include <string.h>

/* Replaces the pass times *pass by `other` if F, D and W of `other` take longer
 * in total. */
static void take_slower(lh_pass_cost *pass, const lh_pass_cost *other)
{
    if (other->total_ns > pass->total_ns)
        *pass = *other;
}

int64_t lhi_cost_state_bytes(const lh_cost *cost)
{
    return cost->static_bytes - cost->workspace_bytes - cost->buffer_bytes;
}

/* Checks whether a cost comes from a profile, at least in part. */
static bool has_measured(lh_cost_source source)
{
    return source == LH_COST_PROFILE || source == LH_COST_MIXED;
}

/* Returns the cost source of a sum of two costs: the common source or, if they
 * differ, "mixed" if one was measured, else the estimate by efficiencies of
 * parts. */
static lh_cost_source join_sources(lh_cost_source x, lh_cost_source y)
{
    if (x == y)
        return x;
    return has_measured(x) || has_measured(y) ? LH_COST_MIXED
                                              : LH_COST_PART_EFFICIENCY;
}

/* Merges the chunk cost in another datacenter, `here`, into *cost. Replicas in
 * different datacenters wait for each other: each pass takes the slowest
 * replica's time, and memory is that of the fullest. */
static void merge_worst(lh_cost *cost, const lh_cost *here)
{
    int64_t state =
        lhi_max_int64(lhi_cost_state_bytes(cost), lhi_cost_state_bytes(here));
    if (state > lhi_cost_state_bytes(cost)) {
        cost->weight_bytes = here->weight_bytes;
        cost->gradient_bytes = here->gradient_bytes;
        cost->optimizer_bytes = here->optimizer_bytes;
    }
    take_slower(&cost->f, &here->f);
    take_slower(&cost->d, &here->d);
    take_slower(&cost->w, &here->w);
    cost->optimizer_ns = lhi_max_int64(cost->optimizer_ns, here->optimizer_ns);
    cost->activation_bytes =
        lhi_max_int64(cost->activation_bytes, here->activation_bytes);
    cost->weight_input_bytes =
        lhi_max_int64(cost->weight_input_bytes, here->weight_input_bytes);
    cost->workspace_bytes =
        lhi_max_int64(cost->workspace_bytes, here->workspace_bytes);
    cost->buffer_bytes = lhi_max_int64(cost->buffer_bytes, here->buffer_bytes);
    cost->static_bytes = state + cost->workspace_bytes + cost->buffer_bytes;
    cost->offload_bytes =
        lhi_max_int64(cost->offload_bytes, here->offload_bytes);
    cost->offload_ns = lhi_max_int64(cost->offload_ns, here->offload_ns);
    cost->all_gather_ns =
        lhi_max_int64(cost->all_gather_ns, here->all_gather_ns);
    cost->reduce_scatter_ns =
        lhi_max_int64(cost->reduce_scatter_ns, here->reduce_scatter_ns);
    cost->data_latency_ns =
        lhi_max_int64(cost->data_latency_ns, here->data_latency_ns);
    cost->reduce_extra_latency_ns = lhi_max_int64(
        cost->reduce_extra_latency_ns, here->reduce_extra_latency_ns);
    cost->time_source = join_sources(cost->time_source, here->time_source);
}

/* Computes the cost of a layer range (`slice`) in every datacenter with
 * replicas of its stage, and merges the worst. Skips datacenters equivalent to
 * an earlier one. */
static lh_status cost_slice(lhi_layout_builder *b,
                            const lhi_stage_placement *spread,
                            lh_cost_layer_range slice, lh_cost *cost,
                            lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    for (uint32_t i = 0; i < spread->n_sites; i++) {
        lh_cost here;
        if (!b->site_costs &&
            lhi_stage_placement_repeats(b->job, &b->layout, spread, i))
            continue;
        slice.datacenter = spread->sites[i].datacenter;
        const lh_layout own =
            lhi_layout_in_datacenter(&b->layout, slice.datacenter);
        LHI_TRY(lhi_chunk_cost_in_sequence(b->job, &own, &slice, &options,
                                           &b->busiest, &here, err));
        if (b->site_costs)
            b->site_costs[(size_t)slice.chunk * b->job->n_datacenters + i] =
                here;
        if (i == 0)
            *cost = here;
        else
            merge_worst(cost, &here);
    }
    return LH_OK;
}

lh_cost_layer_range lhi_config_slice(const lh_job *job,
                                     const lhi_config *config,
                                     const lhi_stage_placement *spread,
                                     uint32_t chunk)
{
    const lh_layout *l = &config->layout;
    uint32_t n_chunks = l->pipeline * l->chunks_per_device;
    lh_cost_layer_range slice = lhi_stage_range(spread);
    slice.embedding = chunk == 0;
    slice.head = chunk + 1 == n_chunks;
    slice.chunk = chunk;
    slice.n_chunks = n_chunks;
    if (slice.head)
        slice.mtp = lhi_mtp_is_with_head(job);
    else if (chunk && chunk == job->layout.mtp_chunk)
        slice.mtp = LH_MTP_IN_RANGE;
    lhi_config_layers(job->model->layers, config, chunk, &slice.first_layer,
                      &slice.n_layers);
    return slice;
}

/* Checks whether the profile has measured times of whole chunks, not only of
 * layers. */
static bool has_chunk_times(const lh_profile *profile)
{
    for (uint32_t i = 0; profile && i < profile->n_entries; i++)
        if (profile->entries[i].kind == LH_PROFILE_CHUNK)
            return true;
    return false;
}

/* Checks whether the layers before and after two layer ranges are equivalent.
 * With one pipeline rank, the cost of ZeRO 2 and 3 depends on them
 * (model/data_passes.c). */
static bool have_equivalent_neighbours(const lhi_layout_builder *b,
                                       const lh_cost_layer_range *x,
                                       const lh_cost_layer_range *y)
{
    const lh_model *m = b->job->model;
    const uint32_t end_x = x->first_layer + x->n_layers;
    const uint32_t end_y = y->first_layer + y->n_layers;
    return lhi_find_zero(b->job, &b->layout) < 2 ||
           (x->first_layer > 0 && y->first_layer > 0 && end_x < m->layers &&
            end_y < m->layers &&
            lhi_layers_are_equivalent(m, x->first_layer - 1,
                                      y->first_layer - 1) &&
            lhi_layers_are_equivalent(m, end_x, end_y));
}

/* Checks whether the layer range `slice` costs as much as `other`: neither
 * includes an end of the model, and layers and datacenters are pairwise
 * equivalent. Never if the profile measured whole chunks. */
static bool costs_as_much(const lhi_layout_builder *b,
                          const lh_cost_layer_range *slice,
                          const lh_cost_layer_range *other)
{
    if (slice->embedding || other->embedding || slice->head || other->head ||
        other->n_layers != slice->n_layers || other->mtp != slice->mtp ||
        has_chunk_times(b->job->profile) ||
        !lhi_stage_placements_are_alike(
            b->job, &b->layout,
            &b->places.stages[lhi_config_device(b->config, other->chunk)],
            &b->places.stages[lhi_config_device(b->config, slice->chunk)]))
        return false;
    if (b->config->layout.pipeline == 1 &&
        !have_equivalent_neighbours(b, other, slice))
        return false;
    for (uint32_t i = 0; i < other->n_layers; i++)
        if (!lhi_layers_are_equivalent(b->job->model, other->first_layer + i,
                                       slice->first_layer + i))
            return false;
    return true;
}

/* Checks whether the layer range `slice` costs as much as b->last_chunk. */
static bool has_last_cost(const lhi_layout_builder *b,
                          const lh_cost_layer_range *slice)
{
    if (b->last_chunk == 0)
        return false;
    const lhi_stage_placement *spread =
        &b->places.stages[lhi_config_device(b->config, b->last_chunk)];
    const lh_cost_layer_range last =
        lhi_config_slice(b->job, b->config, spread, b->last_chunk);
    return costs_as_much(b, slice, &last);
}

/* Finds the cost of an equivalent layer range in the cache of chunk costs,
 * which has them from earlier partitions of the layout. */
static bool find_equivalent_cost(const lhi_layout_builder *b,
                                 const lh_cost_layer_range *slice,
                                 lh_cost *cost)
{
    uint32_t n;
    const lhi_known_cost *all = lhi_build_cache_get_costs(b->known, &n);
    for (uint32_t i = 0; i < n; i++)
        if (costs_as_much(b, slice, &all[i].slice)) {
            *cost = all[i].cost;
            return true;
        }
    return false;
}

/* Copies chunk `from`'s costs in every datacenter to the equivalent chunk `to`;
 * does nothing if no costs per datacenter are kept (equal microbatches). */
static void copy_site_costs(lhi_layout_builder *b, uint32_t from, uint32_t to)
{
    const size_t n = b->job->n_datacenters;
    if (b->site_costs)
        memcpy(&b->site_costs[to * n], &b->site_costs[from * n],
               n * sizeof *b->site_costs);
}

/* Computes chunk `c`'s cost; reuses the cached cost or an equivalent
 * chunk's. */
static lh_status compute_chunk_cost(lhi_layout_builder *b, uint32_t c,
                                    lh_cost *cost, lh_error *err)
{
    const lhi_stage_placement *spread =
        &b->places.stages[lhi_config_device(b->config, c)];
    lh_cost_layer_range slice = lhi_config_slice(b->job, b->config, spread, c);
    if (b->known && lhi_build_cache_find_cost(b->known, c, slice.first_layer,
                                              slice.n_layers, cost))
        return LH_OK;
    const bool keep = b->known && !b->site_costs;
    if (has_last_cost(b, &slice)) {
        *cost = b->last;
        copy_site_costs(b, b->last_chunk, c);
    } else if (!keep || !find_equivalent_cost(b, &slice, cost)) {
        LHI_TRY(cost_slice(b, spread, slice, cost, err));
        if (keep)
            lhi_build_cache_keep_cost(b->known, &slice, cost);
    }
    b->last = *cost;
    b->last_chunk = c;
    if (b->known)
        lhi_build_cache_add_cost(b->known, c, slice.first_layer, slice.n_layers,
                                 cost);
    return LH_OK;
}

lhi_state_parts lhi_state_parts_of(const lh_cost *cost)
{
    int64_t state = lhi_cost_state_bytes(cost);
    lhi_state_parts out = {cost->weight_bytes, cost->gradient_bytes,
                           cost->optimizer_bytes};
    double counted =
        (double)out.weights + (double)out.gradients + (double)out.optimizer;
    if (state != out.weights + out.gradients + out.optimizer) {
        double scale = counted > 0 ? (double)state / counted : 0;
        out.weights = (int64_t)((double)out.weights * scale);
        out.gradients = (int64_t)((double)out.gradients * scale);
        out.weights = lhi_min_int64(out.weights, state);
        out.gradients = lhi_min_int64(out.gradients, state - out.weights);
    }
    out.optimizer = state - out.weights - out.gradients;
    return out;
}

void lhi_memory_add_state(const lh_cost *cost, lh_plan_memory *to)
{
    lhi_state_parts state = lhi_state_parts_of(cost);
    to->parameters_bytes += state.weights;
    to->gradients_bytes += state.gradients;
    to->optimizer_bytes += state.optimizer;
}

/* Raises *most to `value` if that is larger; returns the increase. */
static int64_t raise_maximum(int64_t *most, int64_t value)
{
    int64_t more = lhi_max_int64(value - *most, 0);
    *most += more;
    return more;
}

/* Moves the first gather and last reduction of ZeRO 2 and 3 out of chunk `c`'s
 * passes: on the device's first chunk they are separate operations before its
 * first F and after its last W. All passes of a chunk have one duration, so
 * each microbatch's passes become shorter by its share. Returns that share in
 * ns. */
static int64_t separate_end_communication(const lhi_layout_builder *b,
                                          const lh_cost *cost, uint32_t c,
                                          lh_chunk *chunk)
{
    if (c >= b->config->layout.pipeline)
        return 0;
    int64_t n = lhi_max_int64(b->config->microbatches, 1);
    int64_t gather = cost->f.blocking_ns / n, reduce = cost->w.blocking_ns / n;
    if (cost->f.blocking_ns > 0)
        chunk->all_gather_ns =
            lhi_max_int64(cost->f.blocking_ns - chunk->dp_latency_ns, 1);
    if (cost->w.blocking_ns > 0)
        chunk->reduce_scatter_ns =
            lhi_max_int64(cost->w.blocking_ns - chunk->dp_latency_ns, 1);
    chunk->f_ns -= gather;
    chunk->w_ns -= reduce;
    return gather + reduce;
}

/* Adds the memory that slices of sequences need beyond whole sequences: the
 * gradients of all keys and values of one microbatch, and with full
 * recomputation the keys and values themselves, which later slices read. */
static void add_slice_memory(const lhi_layout_builder *b, uint32_t c,
                             lh_cost *cost)
{
    const lh_job *job = b->job;
    const lh_model *m = job->model;
    const lh_layout *l = &b->config->layout;
    uint32_t first, layers;
    if (!job->layout.slices)
        return;
    lhi_config_layers(m->layers, b->config, c, &first, &layers);
    double heads = ceil((double)m->kv_heads / l->tensor);
    double slice = 2.0 * layers * heads * m->head_dim * l->micro_batch *
                   job->training.sequence / job->layout.slices *
                   lhi_precision_bytes(job->training.precision);
    int64_t gradients = (int64_t)ceil(slice * job->layout.slices);
    cost->buffer_bytes += gradients;
    cost->static_bytes += gradients;
    if (job->training.recompute == LH_RECOMPUTE_FULL)
        cost->activation_bytes += (int64_t)ceil(slice);
}

/* Sets chunk number `c` of the pipeline, on device `d`, to a cost of the
 * model's chunk, and adds its state and optimizer time to the device. */
static void set_chunk(lhi_layout_builder *b, uint32_t c, uint32_t d,
                      const lh_cost *cost)
{
    lh_chunk *chunk = &b->chunks[c];
    chunk->device = d;
    chunk->f_ns = cost->f.total_ns;
    chunk->d_ns = cost->d.total_ns;
    chunk->w_ns = cost->w.total_ns;
    chunk->mem_f = cost->activation_bytes;
    chunk->mem_d = cost->weight_input_bytes - cost->activation_bytes;
    chunk->mem_w = -cost->weight_input_bytes;
    chunk->offload_ns = cost->offload_ns;
    /* Weights, gradients, optimizer; measured if the profile has them. */
    chunk->mem_static = lhi_cost_state_bytes(cost);
    if (b->parts && !b->site_costs)
        lhi_memory_add_state(cost, &b->parts[d]);
    /* Counted once, for any chunk count on the device. */
    chunk->mem_static += raise_maximum(&b->buffers[d], cost->buffer_bytes) +
                         raise_maximum(&b->workspace[d], cost->workspace_bytes);
    if (b->parts) {
        b->parts[d].buffers_bytes = b->buffers[d];
        b->parts[d].temporary_bytes = b->workspace[d];
    }
    chunk->all_gather_ns = cost->all_gather_ns;
    chunk->reduce_scatter_ns = cost->reduce_scatter_ns;
    chunk->dp_latency_ns = cost->all_gather_ns || cost->reduce_scatter_ns
                               ? cost->data_latency_ns
                               : 0;
    b->optimizer_ns[d] += cost->optimizer_ns;
}

lh_status lhi_layout_builder_add_chunk(lhi_layout_builder *b, uint32_t c,
                                       lh_error *err)
{
    lh_cost cost;
    LHI_TRY(compute_chunk_cost(b, c, &cost, err));
    add_slice_memory(b, c, &cost);
    set_chunk(b, c, lhi_config_device(b->config, c), &cost);
    if (b->config->placement == LH_PLACEMENT_BD) {
        const uint32_t copy = b->n_chunks + c;
        set_chunk(b, copy, lhi_config_device(b->config, copy), &cost);
    }
    int64_t data_ns = cost.f.data_ns + cost.d.data_ns + cost.w.data_ns;
    b->built->communication_ns += cost.f.communication_ns +
                                  cost.d.communication_ns +
                                  cost.w.communication_ns - data_ns;
    b->built->zero_wait_ns +=
        data_ns - separate_end_communication(b, &cost, c, &b->chunks[c]);
    b->late_ns = lhi_max_int64(b->late_ns, cost.reduce_extra_latency_ns);
    b->built->source =
        c ? join_sources(b->built->source, cost.time_source) : cost.time_source;
    return LH_OK;
}
