/* SPDX-License-Identifier: Apache-2.0 */
/* When data parallelism communicates, and what waits for it. */
#include "cost/data_passes.h"
#include "cost/sharding.h"

#include "base/fail.h"
#include "spec/spec.h"

#include <math.h>

/* The embedding, the layers and the head are 0 to n_layers + 1. */
static const lhi_slice_part *find_part(const lhi_prices *p, const lhi_sums *s,
                                       uint32_t i, const lhi_part_times *times,
                                       double *gather, double *reduce)
{
    uint32_t layer = p->slice->first_layer + i - 1;
    const lh_model *model = p->job->model;

    lhi_part_sent(p->job, p->slice, times, i, gather, reduce);
    if (i == 0)
        return &s->embedding;
    if (i > p->slice->n_layers)
        return &s->head;
    return &s->layers[lh_model_layer_is_moe(model, layer)]
                     [lh_model_layer_window(model, layer) != 0];
}

/* What a pass waits for counts as communication, and as data parallelism's. */
static void wait_for(lhi_spent *pass, const lhi_relay *relay)
{
    double waits = fmax(0, lhi_relay_ns(relay) - pass->total);

    pass->communication += waits;
    pass->data += waits;
    pass->total += waits;
}

/* Whether gathers use the network between nodes, and only that: links between
 * datacenters are slower and leave room on interfaces. Bounds count nothing. */
static lh_status meet_in_fabric(const lhi_prices *p, bool *out, lh_error *err)
{
    lh_cost_group group;

    LHI_TRY(lh_cost_group_of(p->job, p->layout, LH_COST_DATA_SHARED, p->slice,
                             &group, err));
    *out = !p->least && group.n_sites < 2 &&
           group.size <= group.per_datacenter && group.size > group.per_node;
    return LH_OK;
}

/* A gather, and what the layer before it sends between nodes meanwhile, share
 * an interface: together they take as long as one after the other. */
static double meets(double gather, double used, bool shared)
{
    return gather > 0 && shared ? gather + used : gather;
}

/* Layer by layer, as FSDP does by default: a layer's parameters are gathered
 * while the one before it computes, and its gradients reduced while the one
 * after it does. The backward begins with the head. */
static lh_status share_by_layer(const lhi_prices *p, bool gathers, lhi_sums *s,
                                lh_error *err)
{
    uint32_t n = p->slice->n_layers + 2;
    double used_f = 0, used_d = 0; /* the network, by the layer before */
    const lhi_spent *whole[] = {&s->time.f, &s->time.d, &s->time.w};
    double scale[3];
    bool shared;
    lhi_part_times times;
    lhi_relay f = {0}, d = {0}, w = {0};

    LHI_TRY(meet_in_fabric(p, &shared, err));
    LHI_TRY(lhi_data_time_parts(p->job, p->layout, p->slice, &p->options,
                                &p->shape, p->known, &times, err));
    for (int i = 0; i < 3; i++) /* 1, but where it was measured in one piece */
        scale[i] = s->part_ns[i] > 0 ? whole[i]->total / s->part_ns[i] : 1;
    for (uint32_t i = 0; i < n; i++) {
        double gather, reduce;
        const lhi_slice_part *one =
            find_part(p, s, i, &times, &gather, &reduce);

        if (gathers && s->time.f.end <= 0)
            s->time.f.end = gather;
        if (s->time.w.end <= 0)
            s->time.w.end = reduce; /* the backward ends with it */
        lhi_relay_add(&f, meets(gather, used_f, shared),
                      scale[0] * one->used.f.total);
        used_f = scale[0] * one->used.f.wire;
        one = find_part(p, s, n - 1 - i, &times, &gather, &reduce);
        lhi_relay_add(&d, meets(gather, used_d, shared),
                      scale[1] * one->used.d.total);
        used_d = scale[1] * one->used.d.wire;
        lhi_relay_add(&w, scale[2] * one->used.w.total, reduce);
    }
    if (gathers) {
        wait_for(&s->time.f, &f);
        wait_for(&s->time.d, &d);
    }
    wait_for(&s->time.w, &w);
    return LH_OK;
}

/* Data parallelism's communication, in passes where ZeRO 2 and 3 have it there,
 * else before and after them. What hybrid sharding sums between datacenters
 * always comes after. */
lh_status lhi_time_data_parallel(const lhi_prices *p, const lhi_params *params,
                                 lhi_sums *s, lh_cost *out, lh_error *err)
{
    uint32_t zero = p->job->training.zero;
    double element = p->shape.element;
    double wire = p->options.gradient_wire_bytes;
    double gathers = p->options.gather_again && zero && zero < 3 ? 2 : 1;
    uint64_t ranks = (uint64_t)p->layout->data * p->layout->context;
    uint64_t copies =
        ranks * p->layout->tensor / lh_layout_expert_block(p->layout);
    double sent = (ranks > 1 ? params->total - params->experts : 0) +
                  (copies > 1 ? params->experts : 0);
    lhi_data_times t;

    if (ranks == 1 && copies == 1)
        return LH_OK;
    LHI_TRY(lhi_data_time(p->job, p->layout, p->slice, &p->options, params,
                          p->known, &t, err));
    LHI_TRY(lhi_whole(sent * wire, "gradient bytes", &out->reduce_bytes, err));
    if (zero)
        LHI_TRY(lhi_whole(gathers * sent * element, "parameter bytes",
                          &out->gather_bytes, err));
    t.gather.transfer *= gathers;
    if (zero >= 2) {
        LHI_TRY(share_by_layer(p, zero >= 3, s, err));
        t.reduce = (lhi_collective){0};
        if (t.between.transfer > 0)
            s->time.f.end = s->time.w.end = 0;
    }
    if (zero >= 3)
        t.gather = (lhi_collective){0};
    t.reduce.transfer += t.between.transfer;
    t.reduce.latency += t.between.latency;
    LHI_TRY(lhi_whole(t.gather.transfer, "an all-gather", &out->all_gather_ns,
                      err));
    LHI_TRY(lhi_whole(t.reduce.transfer, "a reduce-scatter",
                      &out->reduce_scatter_ns, err));
    if (t.between.transfer > 0 && t.gather.transfer > 0) {
        /* Gather and reduction may be slowest in different datacenters. */
        LHI_TRY(lhi_whole(fmax(0, t.reduce.latency - t.gather.latency),
                          "a latency", &out->data_late_ns, err));
        t.reduce.latency = t.gather.latency;
    }
    return lhi_whole(fmax(t.gather.latency, t.reduce.latency), "a latency",
                     &out->data_latency_ns, err);
}
