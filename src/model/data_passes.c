/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel communication: when it runs, and the passes that wait for it.
 */
#include "model/data_passes.h"
#include "model/sharding.h"

#include "base/fail.h"
#include "format/job/parse.h"

#include <math.h>

/* Part of the time of data-parallel communication by which computation on the
 * same GPU takes longer: the middle of the 2.4 to 3.1 % that PipeMesh measured
 * (Li et al., section VI-A). */
static const double COMPUTE_CONTENTION = 0.0275;

/* Returns the times and memory of part i of a layer range, and in *gather and
 * *reduce its data-parallel times in ns, from `times`. Parts are the embedding
 * (0), the layers (1 to n_layers) and the head. */
static const lhi_slice_part *find_part(const lhi_cost_context *p,
                                       const lhi_slice_sums *s, uint32_t i,
                                       const lhi_part_times *times,
                                       double *gather, double *reduce)
{
    uint32_t layer = p->slice->first_layer + i - 1;
    const lh_model *model = p->job->model;

    lhi_find_part_times(p->job, p->slice, times, i, gather, reduce);
    if (i == 0)
        return &s->embedding;
    if (i > p->slice->n_layers)
        return &s->head;
    return &s->layers[lhi_find_layer_kind(model, layer)];
}

/* Checks whether the layer range includes part i: embedding (0), a layer, or
 * head. */
static bool has_part(const lh_cost_layer_range *slice, uint32_t i)
{
    return i == 0                ? slice->embedding
           : i > slice->n_layers ? lhi_slice_has_end(slice)
                                 : true;
}

/* Extends a pass to a duration of `ns` if it is shorter, and counts the waiting
 * time as data-parallel communication. */
static void extend_pass(lhi_time_breakdown *pass, double ns)
{
    double waits = fmax(0, ns - pass->total);

    pass->communication += waits;
    pass->data_parallel += waits;
    pass->total += waits;
}

/* Checks whether data-parallel gathers and the layers' own traffic share the
 * network between nodes, in *out. Links between datacenters are slower and
 * leave interface bandwidth free. Lower bounds ignore the contention. */
static lh_status check_fabric_contention(const lhi_cost_context *p, bool *out,
                                         lh_error *err)
{
    lh_cost_group group;

    LHI_TRY(lhi_cost_find_group(p->job, p->layout, LH_COST_DATA_SHARED,
                                p->slice, &group, err));
    *out = !p->is_lower_bound && group.n_sites < 2 &&
           group.size <= group.per_datacenter && group.size > group.per_node;
    return LH_OK;
}

/* Returns the duration of a gather of `gather` ns including contention. If
 * `shared`, the preceding layer uses the interface for `used` ns at the same
 * time, and both take the sum of their times. */
static double add_contention(double gather, double used, bool shared)
{
    return gather > 0 && shared ? gather + used : gather;
}

/* Returns the duration of `compute` ns of computation concurrent with `sent`
 * ns of data-parallel communication. Their kernels share the GPU while both
 * run. Callers take the maximum of the result and `sent`, so the communication
 * may be the longer one. A given efficiency of passes includes this contention.
 */
static double slow_computation(const lhi_cost_context *p, double compute,
                               double sent)
{
    return compute + (p->by_efficiency ? 0 : COMPUTE_CONTENTION * sent);
}

/* --- neighbours of a layer range ------------------------------------------ */

/* A model part adjacent to the layer range, on the same GPU: its computation,
 * its use of the network between nodes, and its reduction, in ns. */
typedef struct adjacent_part {
    double f, f_wire, d, d_wire, reduce;
    bool is; /* exists */
} adjacent_part;

/* Computes the pass and reduction times of the layer or embedding `one`, which
 * is next to the layer range. */
static lh_status compute_adjacent_part(const lhi_cost_context *p,
                                       lh_cost_layer_range one,
                                       adjacent_part *out, lh_error *err)
{
    lhi_cost_context there = *p;
    lhi_slice_sums sums;
    const lhi_slice_part *part;
    lhi_part_times times;
    double gather, reduce;

    one.datacenter = p->slice->datacenter;
    one.data_datacenters = p->slice->data_datacenters;
    one.n_sites = p->slice->n_sites;
    one.sites = p->slice->sites;
    one.n_sharing_ranks = p->slice->n_sharing_ranks;
    there.slice = &one;
    LHI_TRY(lhi_slice_sums_build(&there, &sums, err));
    LHI_TRY(lhi_compute_part_times(p->job, p->layout, &one, &p->options,
                                   &p->shape, p->ecmp_cache, &times, err));
    part = find_part(&there, &sums, one.embedding ? 0 : 1, &times, &gather,
                     &reduce);
    *out = (adjacent_part){part->times.f.total,
                           part->times.f.inter_node,
                           part->times.d.total,
                           part->times.d.inter_node,
                           reduce,
                           true};
    return LH_OK;
}

/* Finds the layers before and after the layer range, across whose boundaries
 * FSDP prefetches one layer ahead. With one pipeline rank, a pass proceeds from
 * each range to the next. In a pipeline, passes of other microbatches run in
 * between, and there are none. */
static lh_status find_adjacent_parts(const lhi_cost_context *p,
                                     adjacent_part *before,
                                     adjacent_part *behind, lh_error *err)
{
    const lh_cost_layer_range *s = p->slice;
    const uint32_t end = s->first_layer + s->n_layers;

    *before = *behind = (adjacent_part){0};
    if (!p->in_sequence || p->layout->pipeline != 1)
        return LH_OK;
    if (!s->embedding)
        LHI_TRY(compute_adjacent_part(
            p,
            s->first_layer == 0
                ? (lh_cost_layer_range){.embedding = true}
                : (lh_cost_layer_range){.first_layer = s->first_layer - 1,
                                        .n_layers = 1},
            before, err));
    if (s->head)
        return LH_OK;
    return compute_adjacent_part(
        p,
        end == p->job->model->layers
            ? (lh_cost_layer_range){.first_layer = end, .head = true}
            : (lh_cost_layer_range){.first_layer = end, .n_layers = 1},
        behind, err);
}

/* Extends the pass times in `s` by the communication that FSDP (per-layer
 * sharding) cannot overlap. A layer's parameters are gathered while the
 * preceding layer computes, and its gradients are reduced while the following
 * one computes. `gathers`: every F and D gathers. *on_the_way: the time in ns
 * by which gathers would extend an F, also without `gathers`. */
static lh_status overlap_by_layer(const lhi_cost_context *p, bool gathers,
                                  lhi_slice_sums *s, double *on_the_way,
                                  lh_error *err)
{
    uint32_t n = p->slice->n_layers + 2;
    double used_f = 0, used_d = 0; /* network use by the preceding layer */
    const lhi_time_breakdown *whole[] = {&s->time.f, &s->time.d, &s->time.w};
    double scale[3];
    bool shared;
    lhi_part_times times;
    lhi_stage_overlap f = {0}, d = {0}, w = {0};
    adjacent_part before, behind;

    LHI_TRY(check_fabric_contention(p, &shared, err));
    LHI_TRY(lhi_compute_part_times(p->job, p->layout, p->slice, &p->options,
                                   &p->shape, p->ecmp_cache, &times, err));
    LHI_TRY(find_adjacent_parts(p, &before, &behind, err));
    f.last_second_duration = before.f;
    used_f = before.f_wire;
    d.last_second_duration = behind.d;
    used_d = behind.d_wire;
    w.last_second_duration = behind.reduce;
    for (int i = 0; i < 3; i++) /* 1, except if measured as one piece */
        scale[i] = s->part_ns[i] > 0 ? whole[i]->total / s->part_ns[i] : 1;
    for (uint32_t i = 0; i < n; i++) {
        double gather, reduce;
        const lhi_slice_part *one;

        if (has_part(p->slice, i)) {
            one = find_part(p, s, i, &times, &gather, &reduce);
            if (gathers && s->time.f.exposed_end <= 0)
                s->time.f.exposed_end = gather;
            if (s->time.w.exposed_end <= 0)
                s->time.w.exposed_end = reduce; /* the backward ends with it */
            lhi_stage_overlap_add(
                &f,
                fmax(add_contention(gather, used_f, shared),
                     slow_computation(p, f.last_second_duration, gather)),
                scale[0] * one->times.f.total);
            used_f = scale[0] * one->times.f.inter_node;
        }
        if (!has_part(p->slice, n - 1 - i))
            continue;
        one = find_part(p, s, n - 1 - i, &times, &gather, &reduce);
        lhi_stage_overlap_add(
            &d,
            fmax(add_contention(gather, used_d, shared),
                 slow_computation(p, d.last_second_duration, gather)),
            scale[1] * one->times.d.total);
        used_d = scale[1] * one->times.d.inter_node;
        lhi_stage_overlap_add(&w,
                              slow_computation(p, scale[2] * one->times.w.total,
                                               w.last_second_duration),
                              reduce);
    }
    *on_the_way =
        fmax(0, lhi_stage_overlap_compute_ns(&f) - before.f - s->time.f.total);
    if (gathers) {
        extend_pass(&s->time.f, lhi_stage_overlap_compute_ns(&f) - before.f);
        extend_pass(&s->time.d, lhi_stage_overlap_compute_ns(&d) - behind.d);
    }
    /* The next layer of the backward waits for a reduction. */
    extend_pass(&s->time.w, before.is ? w.last_second_start
                                      : lhi_stage_overlap_compute_ns(&w));
    return LH_OK;
}

/* Computes a layer range's data-parallel communication: within passes for ZeRO
 * 2 and 3, otherwise before and after them. With hybrid sharding, the sum
 * between datacenters always follows the passes. */
lh_status lhi_compute_data_parallel_time(const lhi_cost_context *p,
                                         const lhi_params *params,
                                         lhi_slice_sums *s, lh_cost *out,
                                         lh_error *err)
{
    uint32_t zero = lhi_find_zero(p->job, p->layout);
    double element = p->shape.element;
    double wire = p->options.gradient_wire_bytes;
    double gathers = p->options.regather_parameters && zero && zero < 3 ? 2 : 1;
    uint64_t ranks = (uint64_t)p->layout->data * p->layout->context;
    uint64_t copies =
        ranks * p->layout->tensor / lh_layout_expert_block(p->layout);
    double sent = (ranks > 1 ? params->total - params->experts : 0) +
                  (copies > 1 ? params->experts : 0);
    lhi_data_times t;

    if (ranks == 1 && copies == 1)
        return LH_OK;
    LHI_TRY(lhi_compute_data_times(p->job, p->layout, p->slice, &p->options,
                                   params, p->ecmp_cache, &t, err));
    LHI_TRY(lhi_round_up_checked(sent * wire, "gradient bytes",
                                 &out->reduce_bytes, err));
    if (zero)
        LHI_TRY(lhi_round_up_checked(gathers * sent * element,
                                     "parameter bytes", &out->gather_bytes,
                                     err));
    t.gather.transfer *= gathers;
    if (zero >= 2) {
        double on_the_way;
        LHI_TRY(overlap_by_layer(p, zero >= 3, s, &on_the_way, err));
        if (lhi_gathers_in_first_microbatch(p->job, p->layout))
            t.gather = (lhi_collective){.transfer = gathers * on_the_way};
        t.reduce = (lhi_collective){0};
        if (t.between.transfer > 0)
            s->time.f.exposed_end = s->time.w.exposed_end = 0;
    }
    if (zero >= 3)
        t.gather = (lhi_collective){0};
    t.reduce.transfer += t.between.transfer;
    t.reduce.latency += t.between.latency;
    LHI_TRY(lhi_round_up_checked(t.gather.transfer, "an all-gather",
                                 &out->all_gather_ns, err));
    LHI_TRY(lhi_round_up_checked(t.reduce.transfer, "a reduce-scatter",
                                 &out->reduce_scatter_ns, err));
    if (t.between.transfer > 0 && t.gather.transfer > 0) {
        /* Gather and reduction may be slowest in different datacenters. */
        LHI_TRY(lhi_round_up_checked(
            fmax(0, t.reduce.latency - t.gather.latency), "a latency",
            &out->reduce_extra_latency_ns, err));
        t.reduce.latency = t.gather.latency;
    }
    return lhi_round_up_checked(fmax(t.gather.latency, t.reduce.latency),
                                "a latency", &out->data_latency_ns, err);
}
