/* SPDX-License-Identifier: Apache-2.0 */
/* Prices: work becomes time, a slice of the model becomes lh_cost. */
#include "cost/measured.h"
#include "cost/ops.h"
#include "cost/sharding.h"

#include "base/fail.h"
#include "spec/spec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* All that prices depend on. */
typedef struct prices {
    const lh_job *job;
    const lh_layout *layout;
    const lh_cost_slice *slice;
    lhi_busiest *known;
    lh_cost_options options;
    lhi_shape shape;
    double flops_per_ns, bytes_per_ns; /* as reached */
    bool by_efficiency;
    bool least; /* what experts send takes no longer than anywhere */
    lh_cost_group tensor_group, context_group;
    lh_cost_path tensor, context;
    lhi_exchange_time expert; /* of all-to-alls */
    lh_cost_path sharing;     /* of GPUs that share experts */
} prices;

/* Nanoseconds, in parts. */
typedef struct spent {
    double total, matmul, memory, kernel, communication, flops;
} spent;

typedef struct spent_passes {
    spent f, d, w;
} spent_passes;

/* The slowest of all groups whose tokens go from one to the other. */
static lh_status price_senders(prices *p, const lhi_fold *fold, lh_error *err)
{
    lhi_exchange exchange = {p->job->training.dispatcher,
                             p->job->model->experts_per_token};
    uint32_t dc = p->slice->datacenter;
    lhi_members members;

    if (p->least)
        return lhi_all_to_all_least(p->job, dc, fold->expert, fold->tensor,
                                    &exchange, &p->options, &p->expert, err);
    for (uint32_t i = 0; lhi_fold_senders(fold, dc, i, &members); i++) {
        lhi_exchange_time here;

        LHI_TRY(lhi_all_to_all(p->job, &members, &exchange, &p->options,
                               p->known, &here, err));
        p->expert.ns_per_byte = fmax(p->expert.ns_per_byte, here.ns_per_byte);
        p->expert.latency_ns = fmax(p->expert.latency_ns, here.latency_ns);
    }
    return LH_OK;
}

static void slow_down(lh_cost_path *to, const lh_cost_path *what)
{
    to->bytes_per_s = fmin(to->bytes_per_s, what->bytes_per_s);
    to->latency_ns = fmax(to->latency_ns, what->latency_ns);
    to->around_ns = fmax(to->around_ns, what->around_ns);
}

/* The same of those that share experts, which are next to each other. */
static lh_status price_sharers(prices *p, const lhi_fold *fold, lh_error *err)
{
    uint32_t dc = p->slice->datacenter;
    lhi_members m;

    p->sharing = (lh_cost_path){.bytes_per_s = INFINITY};
    if (p->least && !lhi_fold_sharers_near(fold, dc))
        return LH_OK;
    for (uint32_t i = 0; lhi_fold_sharers(fold, dc, i, &m); i++) {
        lh_cost_site sites[LH_MAX_DATACENTERS];
        lh_cost_group group = {.size = fold->tensor,
                               .per_node = UINT32_MAX,
                               .per_datacenter = UINT32_MAX,
                               .datacenter = m.at[0].datacenter,
                               .n_sites = m.n,
                               .sites = sites};
        lh_cost_path path;

        for (uint32_t k = 0; k < m.n; k++) {
            uint32_t here = (uint32_t)m.at[k].members;
            uint32_t near = (uint32_t)m.at[k].near;

            sites[k] = (lh_cost_site){m.at[k].datacenter, here};
            group.per_datacenter =
                here < group.per_datacenter ? here : group.per_datacenter;
            group.per_node = near < group.per_node ? near : group.per_node;
            group.concurrent =
                (uint32_t)fmax(group.concurrent, m.at[k].senders);
        }
        LHI_TRY(
            lhi_group_path(p->job, &group, &p->options, p->known, &path, err));
        slow_down(&p->sharing, &path);
    }
    return LH_OK;
}

static lh_status price_experts(prices *p, lh_error *err)
{
    lhi_fold fold;

    if (!p->shape.folded)
        return LH_OK;
    LHI_TRY(lhi_fold_of(p->job, p->layout, p->slice, &fold, err));
    if (fold.expert > 1)
        LHI_TRY(price_senders(p, &fold, err));
    return fold.tensor > 1 ? price_sharers(p, &fold, err) : LH_OK;
}

static lh_status price_paths(prices *p, lh_error *err)
{
    lh_cost_group context;

    LHI_TRY(lh_cost_group_of(p->job, p->layout, LH_COST_TENSOR, p->slice,
                             &p->tensor_group, err));
    LHI_TRY(lh_cost_group_of(p->job, p->layout, LH_COST_CONTEXT, p->slice,
                             &p->context_group, err));
    if (p->tensor_group.size > 1)
        LHI_TRY(lh_cost_group_path(p->job, &p->tensor_group, &p->options,
                                   &p->tensor, err));
    LHI_TRY(price_experts(p, err));
    if (p->context_group.size < 2)
        return LH_OK;
    /* Keys and values go from one GPU to the next, between nodes over the
     * interface of that one. */
    context = p->context_group;
    if (context.size > context.per_node)
        context.per_node = 1;
    return lh_cost_group_path(p->job, &context, &p->options, &p->context, err);
}

static lh_status check_slice(const lh_job *job, const lh_cost_slice *slice,
                             lh_error *err)
{
    uint32_t layers = job->model->layers;

    if (slice->first_layer > layers ||
        slice->n_layers > layers - slice->first_layer)
        return lhi_fail(err, LH_EINVAL,
                        "layers %" PRIu32 "+%" PRIu32
                        " are not all among the model's %" PRIu32,
                        slice->first_layer, slice->n_layers, layers);
    if (slice->datacenter >= job->n_datacenters)
        return lhi_fail(err, LH_EINVAL, "datacenter %" PRIu32 " of %" PRIu32,
                        slice->datacenter, job->n_datacenters);
    return LH_OK;
}

static lh_status make_prices(const lh_job *job, const lh_layout *layout,
                             const lh_cost_slice *slice,
                             const lh_cost_options *options, bool least,
                             lhi_busiest *known, prices *p, lh_error *err)
{
    const lh_gpu *gpu;
    const lh_cost_constants *c;

    *p = (prices){.job = job,
                  .layout = layout,
                  .slice = slice,
                  .least = least,
                  .known = known};
    LHI_TRY(lhi_cost_options(options, &p->options, err));
    if (job->training.rings != LH_RING_LOCKSTEP)
        p->options.rings = job->training.rings;
    LHI_TRY(check_slice(job, slice, err));
    LHI_TRY(lhi_shape_make(job, layout, &p->options, &p->shape, err));
    LHI_TRY(price_paths(p, err));
    gpu = &job->datacenters[slice->datacenter].gpu;
    c = p->options.constants;
    p->by_efficiency = gpu->efficiency > 0;
    p->flops_per_ns =
        gpu->flops_per_s / 1e9 *
        (p->by_efficiency ? gpu->efficiency
                          : c->matmul_efficiency * lhi_gpu_sustained(gpu));
    p->bytes_per_ns = gpu->memory_bytes_per_s / 1e9 * c->memory_efficiency;
    return LH_OK;
}

/* `calls` equal collectives of `bytes` together, of so many GPUs. */
static double price_rings(const prices *p, uint32_t gpus,
                          const lh_cost_path *path, double bytes, double calls)
{
    double transfer, latency;

    if (calls <= 0 || gpus < 2)
        return 0;
    lh_cost_collective_ring(p->options.rings, LH_ALL_GATHER, gpus,
                            bytes / calls, path, &transfer, &latency);
    return calls * (transfer + latency);
}

static double price_communication(const prices *p, const lhi_work *work)
{
    double ns = price_rings(p, p->tensor_group.size, &p->tensor,
                            work->tensor_bytes, work->tensor_calls);

    ns += price_rings(p, p->shape.expert_tensor, &p->sharing,
                      work->sharing_bytes, work->sharing_calls);
    ns += work->expert_bytes * p->expert.ns_per_byte +
          work->expert_calls * p->expert.latency_ns;
    if (work->context_calls > 0) {
        double ring = work->context_bytes * 1e9 / p->context.bytes_per_s +
                      work->context_calls * p->context.latency_ns;
        double hidden = work->core_flops / p->flops_per_ns;

        ns += fmax(0, ring - hidden);
    }
    return ns;
}

static void price_work(const prices *p, const lhi_work *work, spent *out)
{
    const lh_cost_constants *c = p->options.constants;

    *out = (spent){.flops = work->flops};
    out->matmul = work->flops / p->flops_per_ns;
    if (!p->by_efficiency) {
        out->memory = work->bytes / p->bytes_per_ns;
        out->kernel = work->kernels * c->kernel_ns;
    }
    out->communication = price_communication(p, work);
    out->total = out->matmul + out->memory + out->kernel + out->communication;
}

/* The host issues kernels ahead of the GPU, but not faster than it can. */
static void bound_by_host(const prices *p, spent_passes *s)
{
    double host = p->options.constants->layer_host_ns;
    double again = p->shape.recompute == LH_RECOMPUTE_FULL ? host : 0;

    if (p->by_efficiency)
        return;
    s->f.total = fmax(s->f.total, host);
    s->d.total = fmax(s->d.total, host + again);
    s->w.total = fmax(s->w.total, host);
}

static void price_passes(const prices *p, const lhi_passes *work, bool is_layer,
                         spent_passes *out)
{
    price_work(p, &work->f, &out->f);
    price_work(p, &work->d, &out->d);
    price_work(p, &work->w, &out->w);
    if (is_layer)
        bound_by_host(p, out);
}

static void add_spent(spent *to, const spent *what, double times)
{
    to->total += times * what->total;
    to->matmul += times * what->matmul;
    to->memory += times * what->memory;
    to->kernel += times * what->kernel;
    to->communication += times * what->communication;
    to->flops += times * what->flops;
}

/* One part of a slice: a layer, or what lies at an end. */
typedef struct part {
    spent_passes used;
    lhi_held kept;
    double static_bytes; /* measured; < 0: not */
    bool measured, bytes_measured;
} part;

/* Sums over the parts of a slice, and the parts: layers by whether they have
 * experts and a window. What the slice does not have is 0. */
typedef struct sums {
    spent_passes time;
    part layers[2][2], embedding, head;
    double part_ns[3]; /* sums of F, D, W of the parts */
    lhi_held held;
    bool any_measured, any_estimated; /* times */
    bool any_bytes_measured, any_bytes_estimated;
    double static_bytes; /* measured; -1: not all of it */
} sums;

static void use_measured_time(const prices *p, const lhi_measured *m,
                              const lhi_passes *work, const spent_passes *est,
                              bool is_layer, spent_passes *out)
{
    *out = (spent_passes){0};
    out->f.flops = est->f.flops;
    out->d.flops = est->d.flops;
    out->w.flops = est->w.flops;
    out->f.total = m->f_ns;
    out->d.total = m->d_ns;
    out->w.total = m->w_ns;
    if (!m->communication) {
        out->f.communication = price_communication(p, &work->f);
        out->d.communication = price_communication(p, &work->d);
        out->f.total += out->f.communication;
        out->d.total += out->d.communication;
    }
    if (!m->recompute_done && is_layer) {
        /* Full: all of F again. Selective: what the estimate adds. */
        if (p->shape.recompute == LH_RECOMPUTE_FULL)
            out->d.total += m->f_ns;
    }
}

static double selective_extra(const prices *p, uint32_t layer)
{
    lhi_shape plain = p->shape;
    lhi_passes with, without;
    spent a, b;

    if (p->shape.recompute != LH_RECOMPUTE_SELECTIVE)
        return 0;
    plain.recompute = LH_RECOMPUTE_NONE;
    lhi_work_layer(&p->shape, layer, &with);
    lhi_work_layer(&plain, layer, &without);
    price_work(p, &with.d, &a);
    price_work(p, &without.d, &b);
    return a.total - b.total;
}

static part make_part(const prices *p, const lhi_measured *m,
                      const lhi_passes *work, const lhi_held *held,
                      bool is_layer, uint32_t layer)
{
    spent_passes estimate;
    part out = {.kept = *held, .static_bytes = -1, .measured = m->found};

    price_passes(p, work, is_layer, &estimate);
    out.used = estimate;
    if (m->found) {
        use_measured_time(p, m, work, &estimate, is_layer, &out.used);
        if (!m->recompute_done && is_layer)
            out.used.d.total += selective_extra(p, layer);
        out.static_bytes = m->static_bytes;
    }
    /* A measurement without recomputation says nothing of what is kept with
     * it. */
    if (m->found && m->activation_bytes >= 0 && m->recompute_done) {
        out.kept.weight_input = fmin(held->weight_input, m->activation_bytes);
        out.kept.activation = m->activation_bytes;
        out.bytes_measured = true;
    }
    return out;
}

static void add_part(const part *one, sums *s)
{
    if (one->measured)
        s->any_measured = true;
    else
        s->any_estimated = true;
    if (one->bytes_measured)
        s->any_bytes_measured = true;
    else
        s->any_bytes_estimated = true;
    add_spent(&s->time.f, &one->used.f, 1);
    add_spent(&s->time.d, &one->used.d, 1);
    add_spent(&s->time.w, &one->used.w, 1);
    s->part_ns[0] += one->used.f.total;
    s->part_ns[1] += one->used.d.total;
    s->part_ns[2] += one->used.w.total;
    s->held.activation += one->kept.activation;
    s->held.weight_input += one->kept.weight_input;
    s->held.passing = fmax(s->held.passing, one->kept.passing);
    if (one->static_bytes < 0)
        s->static_bytes = -1;
    else if (s->static_bytes >= 0)
        s->static_bytes += one->static_bytes;
}

/* Layers differ in whether they have experts and in what they see. */
static lh_status sum_layers(const prices *p, sums *s, lh_error *err)
{
    const lh_model *model = p->job->model;
    bool made[2][2] = {{false}};

    for (uint32_t i = 0; i < p->slice->n_layers; i++) {
        uint32_t layer = p->slice->first_layer + i;
        bool moe = lh_model_layer_is_moe(model, layer);
        bool windowed = lh_model_layer_window(model, layer) != 0;
        part *one = &s->layers[moe][windowed];
        lhi_measured m;
        lhi_passes work;
        lhi_held held;

        if (!made[moe][windowed]) {
            LHI_TRY(lhi_measured_find(
                p->job, p->layout, p->slice, &p->options,
                moe ? LH_PROFILE_MOE_LAYER : LH_PROFILE_LAYER, &m, err));
            lhi_work_layer(&p->shape, layer, &work);
            lhi_held_layer(&p->shape, layer, &held);
            *one = make_part(p, &m, &work, &held, true, layer);
            made[moe][windowed] = true;
        }
        add_part(one, s);
    }
    return LH_OK;
}

static lh_status sum_ends(const prices *p, sums *s, lh_error *err)
{
    lhi_measured m;
    lhi_passes work;
    lhi_held held;

    if (p->slice->embedding) {
        LHI_TRY(lhi_measured_find(p->job, p->layout, p->slice, &p->options,
                                  LH_PROFILE_EMBEDDING, &m, err));
        lhi_work_embedding(&p->shape, &work);
        lhi_held_embedding(&p->shape, &held);
        s->embedding = make_part(p, &m, &work, &held, false, 0);
        add_part(&s->embedding, s);
    }
    if (p->slice->head) {
        LHI_TRY(lhi_measured_find(p->job, p->layout, p->slice, &p->options,
                                  LH_PROFILE_HEAD, &m, err));
        lhi_work_head(&p->shape, &work);
        lhi_held_head(&p->shape, &held);
        s->head = make_part(p, &m, &work, &held, false, 0);
        add_part(&s->head, s);
    }
    return LH_OK;
}

/* All of a chunk as measured in one piece. */
static lh_status sum_chunk(const prices *p, sums *s, bool *found, lh_error *err)
{
    lhi_measured m = {0};
    prices bare = *p;
    sums estimate = {0};

    *found = false;
    if (!p->slice->of)
        return LH_OK;
    LHI_TRY(lhi_measured_find(p->job, p->layout, p->slice, &p->options,
                              LH_PROFILE_CHUNK, &m, err));
    if (!m.found)
        return LH_OK;
    *found = true;
    bare.options.ignore_profile = true;
    LHI_TRY(sum_layers(&bare, &estimate, err));
    LHI_TRY(sum_ends(&bare, &estimate, err));
    *s = estimate;
    s->any_measured = true;
    s->any_estimated = false;
    s->static_bytes = m.static_bytes;
    s->time.f = (spent){.flops = estimate.time.f.flops, .total = m.f_ns};
    s->time.d = (spent){.flops = estimate.time.d.flops, .total = m.d_ns};
    s->time.w = (spent){.flops = estimate.time.w.flops, .total = m.w_ns};
    if (!m.communication) {
        s->time.f.communication = estimate.time.f.communication;
        s->time.d.communication = estimate.time.d.communication;
        s->time.f.total += s->time.f.communication;
        s->time.d.total += s->time.d.communication;
    }
    if (!m.recompute_done) {
        if (p->shape.recompute == LH_RECOMPUTE_FULL)
            s->time.d.total += m.f_ns;
        for (uint32_t i = 0; i < p->slice->n_layers; i++)
            s->time.d.total += selective_extra(p, p->slice->first_layer + i);
    }
    if (m.activation_bytes >= 0 && m.recompute_done) {
        s->held.activation = m.activation_bytes;
        s->held.weight_input = fmin(s->held.weight_input, m.activation_bytes);
        s->any_bytes_measured = true;
        s->any_bytes_estimated = false;
    }
    return LH_OK;
}

/* [Raj section 3.1, figure 1]: weights, gradients and the optimizer's fp32
 * copy and two moments, each divided among the data-parallel GPUs from its
 * ZeRO stage on; with hybrid sharding, among those of the datacenter. */
static void hold_state(const prices *p, const lhi_params *params,
                       double shared_ranks, double expert_ranks,
                       double state[3])
{
    double element = p->shape.element;
    double optimizer = p->job->training.precision == LH_PRECISION_FP32 ? 8 : 12;
    double shared = params->total - params->experts;
    double split = shared / shared_ranks + params->experts / expert_ranks;
    uint32_t zero = p->job->training.zero;

    state[0] = element * (zero >= 3 ? split : params->total);
    state[1] = p->options.gradient_bytes * (zero >= 2 ? split : params->total);
    state[2] = optimizer * (zero >= 1 ? split : params->total);
}

/* The embedding, the layers and the head are 0 to n_layers + 1. */
static const part *find_part(const prices *p, const sums *s, uint32_t i,
                             const lhi_part_times *times, double *gather,
                             double *reduce)
{
    const lhi_data_times *sent = &times->embedding;
    const part *found = &s->embedding;

    if (i > p->slice->n_layers) {
        sent = &times->head;
        found = &s->head;
    } else if (i > 0) {
        uint32_t layer = p->slice->first_layer + i - 1;
        bool moe = lh_model_layer_is_moe(p->job->model, layer);

        sent = &times->layers[moe];
        found =
            &s->layers[moe][lh_model_layer_window(p->job->model, layer) != 0];
    }
    *gather = sent->gather.transfer + sent->gather.latency;
    *reduce = sent->reduce.transfer + sent->reduce.latency;
    return found;
}

/* What a pass waits for counts as communication. */
static void wait_for(spent *pass, const lhi_relay *relay)
{
    double waits = fmax(0, lhi_relay_ns(relay) - pass->total);

    pass->communication += waits;
    pass->total += waits;
}

/* Layer by layer, as FSDP does by default: a layer's parameters are gathered
 * while the one before it computes, and its gradients reduced while the one
 * after it does. The backward begins with the head. */
static lh_status share_by_layer(const prices *p, bool gathers, sums *s,
                                lh_error *err)
{
    uint32_t n = p->slice->n_layers + 2;
    const spent *whole[] = {&s->time.f, &s->time.d, &s->time.w};
    double scale[3];
    lhi_part_times times;
    lhi_relay f = {0}, d = {0}, w = {0};

    LHI_TRY(lhi_data_time_parts(p->job, p->layout, p->slice, &p->options,
                                &p->shape, p->known, &times, err));
    for (int i = 0; i < 3; i++) /* 1, but where it was measured in one piece */
        scale[i] = s->part_ns[i] > 0 ? whole[i]->total / s->part_ns[i] : 1;
    for (uint32_t i = 0; i < n; i++) {
        double gather, reduce;
        const part *one = find_part(p, s, i, &times, &gather, &reduce);

        lhi_relay_add(&f, gather, scale[0] * one->used.f.total);
        one = find_part(p, s, n - 1 - i, &times, &gather, &reduce);
        lhi_relay_add(&d, gather, scale[1] * one->used.d.total);
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
static lh_status time_data_parallel(const prices *p, const lhi_params *params,
                                    sums *s, lh_cost *out, lh_error *err)
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

static lh_status fill_pass(const spent *s, lh_pass_cost *out, lh_error *err)
{
    LHI_TRY(lhi_whole(s->total, "a pass", &out->total_ns, err));
    LHI_TRY(lhi_whole(s->matmul, "a pass", &out->matmul_ns, err));
    LHI_TRY(lhi_whole(s->memory, "a pass", &out->memory_ns, err));
    LHI_TRY(lhi_whole(s->kernel, "a pass", &out->kernel_ns, err));
    LHI_TRY(lhi_whole(s->communication, "a pass", &out->communication_ns, err));
    out->flops = s->flops;
    return LH_OK;
}

static lh_cost_source source_of(bool measured, bool estimated,
                                lh_cost_source estimate)
{
    if (measured)
        return estimated ? LH_COST_MIXED : LH_COST_PROFILE;
    return estimate;
}

static lh_status fill_memory(const prices *p, const sums *s,
                             const lhi_params *params, lh_cost *out,
                             lh_error *err)
{
    double state[3], shared_ranks, expert_ranks;
    double reserved = p->options.constants->reserved_bytes;

    LHI_TRY(lhi_whole(params->total, "parameters", &out->params, err));
    LHI_TRY(lhi_whole(params->experts, "parameters", &out->expert_params, err));
    LHI_TRY(lhi_whole(s->held.activation, "activations", &out->activation_bytes,
                      err));
    LHI_TRY(lhi_whole(s->held.weight_input, "activations",
                      &out->weight_input_bytes, err));
    LHI_TRY(
        lhi_whole(s->held.passing, "workspace", &out->workspace_bytes, err));
    LHI_TRY(lhi_whole(reserved, "reserved memory", &out->reserved_bytes, err));
    LHI_TRY(lhi_state_ranks(p->job, p->layout, p->slice, &shared_ranks,
                            &expert_ranks, err));
    hold_state(p, params, shared_ranks, expert_ranks, state);
    LHI_TRY(lhi_whole(state[0], "weights", &out->weight_bytes, err));
    LHI_TRY(lhi_whole(state[1], "gradients", &out->gradient_bytes, err));
    LHI_TRY(lhi_whole(state[2], "optimizer state", &out->optimizer_bytes, err));
    out->static_bytes = out->weight_bytes;
    if (s->static_bytes >= 0) {
        LHI_TRY(lhi_whole(s->static_bytes, "static memory", &out->static_bytes,
                          err));
        return lhi_whole((double)out->static_bytes +
                             (double)out->workspace_bytes +
                             (double)out->reserved_bytes,
                         "static memory", &out->static_bytes, err);
    }
    return lhi_whole((double)out->weight_bytes + (double)out->gradient_bytes +
                         (double)out->optimizer_bytes +
                         (double)out->workspace_bytes +
                         (double)out->reserved_bytes,
                     "static memory", &out->static_bytes, err);
}

/* Gradient norm and Adam, bound by memory: reads gradients twice, reads and
 * writes the fp32 copy and both moments, writes the weights. */
static lh_status fill_optimizer(const prices *p, lh_cost *out, lh_error *err)
{
    double state = (double)out->optimizer_bytes;
    double states = p->shape.element < 4 ? 12 : 8;
    double stepped = state / states; /* parameters this GPU steps */
    double bytes = 2 * state + stepped * (2.0 * p->options.gradient_bytes +
                                          p->shape.element);

    return lhi_whole(bytes / p->bytes_per_ns, "the optimizer's step",
                     &out->optimizer_ns, err);
}

static lh_status cost_chunk(const lh_job *job, const lh_layout *layout,
                            const lh_cost_slice *slice,
                            const lh_cost_options *options, bool least,
                            lhi_busiest *known, lh_cost *out, lh_error *err)
{
    prices p;
    sums s = {0};
    lhi_params params;
    lh_cost cost = {0};
    bool whole;

    LHI_TRY(make_prices(job, layout, slice, options, least, known, &p, err));
    LHI_TRY(sum_chunk(&p, &s, &whole, err));
    if (!whole) {
        LHI_TRY(sum_layers(&p, &s, err));
        LHI_TRY(sum_ends(&p, &s, err));
    }
    lhi_params_slice(&p.shape, slice, &params);
    LHI_TRY(time_data_parallel(&p, &params, &s, &cost, err));
    LHI_TRY(fill_pass(&s.time.f, &cost.f, err));
    LHI_TRY(fill_pass(&s.time.d, &cost.d, err));
    LHI_TRY(fill_pass(&s.time.w, &cost.w, err));
    LHI_TRY(fill_memory(&p, &s, &params, &cost, err));
    LHI_TRY(fill_optimizer(&p, &cost, err));
    cost.time_source =
        source_of(s.any_measured, s.any_estimated,
                  p.by_efficiency ? LH_COST_EFFICIENCY : LH_COST_MODEL);
    cost.memory_source =
        source_of(s.any_bytes_measured, s.any_bytes_estimated, LH_COST_MODEL);
    *out = cost;
    return LH_OK;
}

lh_status lhi_chunk_cost(const lh_job *job, const lh_layout *layout,
                         const lh_cost_slice *slice,
                         const lh_cost_options *options, lhi_busiest *known,
                         lh_cost *out, lh_error *err)
{
    return cost_chunk(job, layout, slice, options, false, known, out, err);
}

lh_status lhi_chunk_cost_least(const lh_job *job, const lh_layout *layout,
                               const lh_cost_slice *slice,
                               const lh_cost_options *options,
                               lhi_busiest *known, lh_cost *out, lh_error *err)
{
    return cost_chunk(job, layout, slice, options, true, known, out, err);
}

lh_status lh_cost_chunk(const lh_job *job, const lh_layout *layout,
                        const lh_cost_slice *slice,
                        const lh_cost_options *options, lh_cost *out,
                        lh_error *err)
{
    lhi_busiest known = {0};

    return lhi_chunk_cost(job, layout, slice, options, &known, out, err);
}

lh_status lh_cost_layer_ops(const lh_job *job, const lh_layout *layout,
                            const lh_cost_slice *slice, uint32_t layer,
                            const lh_cost_options *options, lh_cost_op *ops,
                            uint32_t *n_ops, lh_error *err)
{
    prices p;
    lhi_op list[LH_COST_MAX_OPS];
    lh_cost_op made[LH_COST_MAX_OPS];

    lhi_busiest known = {0};

    LHI_TRY(make_prices(job, layout, slice, options, false, &known, &p, err));
    if (layer >= job->model->layers)
        return lhi_fail(err, LH_EINVAL, "layer %" PRIu32 " of %" PRIu32, layer,
                        job->model->layers);
    uint32_t count = lhi_ops_layer(&p.shape, layer, list);
    for (uint32_t i = 0; i < count; i++) {
        spent once;

        price_work(&p, &list[i].again, &once);
        made[i] =
            (lh_cost_op){.name = list[i].name,
                         .flops = list[i].again.flops,
                         .recomputable = !list[i].fixed && list[i].stored > 0};
        LHI_TRY(lhi_whole(list[i].stored, "activations", &made[i].bytes, err));
        LHI_TRY(lhi_whole(once.total, "a pass", &made[i].ns, err));
    }
    memcpy(ops, made, count * sizeof *ops);
    *n_ops = count;
    return LH_OK;
}
