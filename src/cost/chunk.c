/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the lh_cost of a layer range. */
#include "cost/data_passes.h"
#include "cost/ops.h"
#include "cost/sharding.h"

#include "base/fail.h"
#include "spec/spec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Computes the sizes of weights, gradients and optimizer state (fp32 copy and
 * two moments), in this order [Raj section 3.1, figure 1]. Each is sharded over
 * the data-parallel GPUs from its ZeRO stage on; with hybrid sharding, over
 * those in the datacenter. */
static void hold_state(const lhi_prices *p, const lhi_params *params,
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

static lh_status fill_pass(const lhi_spent *s, lh_pass_cost *out, lh_error *err)
{
    LHI_TRY(lhi_whole(s->total, "a pass", &out->total_ns, err));
    LHI_TRY(lhi_whole(s->matmul, "a pass", &out->matmul_ns, err));
    LHI_TRY(lhi_whole(s->memory, "a pass", &out->memory_ns, err));
    LHI_TRY(lhi_whole(s->kernel, "a pass", &out->kernel_ns, err));
    LHI_TRY(lhi_whole(s->communication, "a pass", &out->communication_ns, err));
    LHI_TRY(lhi_whole(s->data, "a pass", &out->data_ns, err));
    LHI_TRY(lhi_whole(s->end, "a pass", &out->end_ns, err));
    out->flops = s->flops;
    return LH_OK;
}

/* Returns the source to report for a value with measured and estimated parts.
 */
static lh_cost_source source_of(bool measured, bool estimated,
                                lh_cost_source estimate)
{
    if (measured)
        return estimated ? LH_COST_MIXED : LH_COST_PROFILE;
    return estimate;
}

/* The two largest unsharded parts that a pass uses successively. */
typedef struct two {
    double larger, smaller;
} two;

/* Updates the two largest unsharded parts with one part. */
static void add_unsharded(const lhi_prices *p, lh_cost_slice part,
                          double shared_ranks, double expert_ranks, two *most)
{
    lhi_params params;
    double whole = 0;

    lhi_params_slice(&p->shape, &part, &params);
    if (shared_ranks > 1)
        whole += params.total - params.experts;
    if (expert_ranks > 1)
        whole += params.experts;
    most->smaller = fmax(most->smaller, fmin(most->larger, whole));
    most->larger = fmax(most->larger, whole);
}

/* Computes the buffers for temporarily unsharded data: PyTorch's FSDP2 gathers
 * one layer ahead, and reduces one layer while it computes the next. */
static double hold_buffers(const lhi_prices *p, double shared_ranks,
                           double expert_ranks)
{
    const lh_cost_slice *slice = p->slice;
    uint32_t zero = p->job->training.zero;
    double bytes = p->options.gradient_bytes;
    two most = {0};

    if (zero < 2)
        return 0;
    if (zero > 2)
        bytes += p->shape.element;
    for (uint32_t i = 0; i < slice->n_layers; i++)
        add_unsharded(p,
                      (lh_cost_slice){.first_layer = slice->first_layer + i,
                                      .n_layers = 1},
                      shared_ranks, expert_ranks, &most);
    if (slice->embedding)
        add_unsharded(p, (lh_cost_slice){.embedding = true}, shared_ranks,
                      expert_ranks, &most);
    if (lhi_slice_has_end(slice))
        add_unsharded(p,
                      (lh_cost_slice){.head = slice->head, .mtp = slice->mtp},
                      shared_ranks, expert_ranks, &most);
    return bytes * (most.larger + most.smaller);
}

enum { OFFLOAD_ROOMS = 3 }; /* see pipe/offload.h */

/* Estimates the offloaded bytes among a layer range's activations. The
 * offloaded fraction comes from the model; it is applied to the measured total
 * if there is one. */
static double offload(const lhi_prices *p, const lhi_sums *s)
{
    const lh_cost_slice *slice = p->slice;
    double moved = 0, all = 0;
    uint32_t n = lhi_offload_layers(p->job, slice->n_layers);
    lhi_held one;

    if (n == 0)
        return 0;
    for (uint32_t i = 0; i < slice->n_layers; i++) {
        lhi_held_layer(&p->shape, slice->first_layer + i, &one);
        all += one.activation;
        if (i < n)
            moved += lhi_held_within(&p->shape, slice->first_layer + i);
    }
    if (slice->embedding) {
        lhi_held_embedding(&p->shape, &one);
        all += one.activation;
    }
    if (slice->head) {
        lhi_held_head(&p->shape, &one);
        all += one.activation;
    }
    return all > 0 ? floor(s->held.activation * moved / all) : 0;
}

static lh_status fill_offload(const lhi_prices *p, const lhi_sums *s,
                              lh_cost *out, lh_error *err)
{
    const lh_gpu *gpu = &p->job->datacenters[p->slice->datacenter].gpu;
    double bytes = offload(p, s), rate = p->job->training.offload_bytes_per_s;

    if (rate == 0)
        rate = lhi_gpu_host_bytes_per_s(gpu);
    LHI_TRY(lhi_whole(bytes, "activations", &out->offload_bytes, err));
    return lhi_whole(ceil(bytes / rate * 1e9), "activations' way to the host",
                     &out->offload_ns, err);
}

static lh_status fill_memory(const lhi_prices *p, const lhi_sums *s,
                             const lhi_params *params, lh_cost *out,
                             lh_error *err)
{
    double state[3], shared_ranks, expert_ranks;

    LHI_TRY(lhi_whole(params->total, "parameters", &out->params, err));
    LHI_TRY(lhi_whole(params->experts, "parameters", &out->expert_params, err));
    LHI_TRY(fill_offload(p, s, out, err));
    double stays = s->held.activation - (double)out->offload_bytes;
    LHI_TRY(lhi_whole(stays, "activations", &out->activation_bytes, err));
    double to_w = out->offload_bytes > 0 ? fmin(s->held.weight_input, stays)
                                         : s->held.weight_input;
    LHI_TRY(lhi_whole(to_w, "activations", &out->weight_input_bytes, err));
    LHI_TRY(
        lhi_whole(s->held.passing, "workspace", &out->workspace_bytes, err));
    LHI_TRY(lhi_state_ranks(p->job, p->layout, p->slice, &shared_ranks,
                            &expert_ranks, err));
    hold_state(p, params, shared_ranks, expert_ranks, state);
    LHI_TRY(lhi_whole(hold_buffers(p, shared_ranks, expert_ranks) +
                          OFFLOAD_ROOMS * (double)out->offload_bytes,
                      "buffers", &out->buffer_bytes, err));
    LHI_TRY(lhi_whole(state[0], "weights", &out->weight_bytes, err));
    LHI_TRY(lhi_whole(state[1], "gradients", &out->gradient_bytes, err));
    LHI_TRY(lhi_whole(state[2], "optimizer state", &out->optimizer_bytes, err));
    out->static_bytes = out->weight_bytes;
    if (s->static_bytes >= 0) {
        LHI_TRY(lhi_whole(s->static_bytes, "static memory", &out->static_bytes,
                          err));
        return lhi_whole((double)out->static_bytes +
                             (double)out->workspace_bytes +
                             (double)out->buffer_bytes,
                         "static memory", &out->static_bytes, err);
    }
    return lhi_whole((double)out->weight_bytes + (double)out->gradient_bytes +
                         (double)out->optimizer_bytes +
                         (double)out->workspace_bytes +
                         (double)out->buffer_bytes,
                     "static memory", &out->static_bytes, err);
}

/* Computes the time for gradient norm and Adam, which are memory-bound: they
 * read gradients twice, read and write the fp32 copy and both moments, and
 * write the weights. */
static lh_status fill_optimizer(const lhi_prices *p, lh_cost *out,
                                lh_error *err)
{
    if (lhi_end_measured(p->job) && !p->options.ignore_profile) {
        out->optimizer_ns = 0; /* included in the measured iteration time */
        return LH_OK;
    }
    double state = (double)out->optimizer_bytes;
    double states = p->shape.element < 4 ? 12 : 8;
    double stepped = state / states; /* parameters this GPU updates */
    double bytes = 2 * state + stepped * (2.0 * p->options.gradient_bytes +
                                          p->shape.element);

    return lhi_whole(bytes / p->bytes_per_ns, "the optimizer's step",
                     &out->optimizer_ns, err);
}

/* Implements the three variants of lhi_chunk_cost(). */
static lh_status cost_chunk(const lh_job *job, const lh_layout *layout,
                            const lh_cost_slice *slice,
                            const lh_cost_options *options, bool least,
                            bool among, lhi_busiest *known, lh_cost *out,
                            lh_error *err)
{
    lhi_prices p;
    lhi_sums s = {0};
    lhi_params params;
    lh_cost cost = {0};

    LHI_TRY(
        lhi_prices_make(job, layout, slice, options, least, known, &p, err));
    p.among = among;
    LHI_TRY(lhi_sums_make(&p, &s, err));
    lhi_params_slice(&p.shape, slice, &params);
    LHI_TRY(lhi_time_data_parallel(&p, &params, &s, &cost, err));
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
    return cost_chunk(job, layout, slice, options, false, false, known, out,
                      err);
}

lh_status lhi_chunk_cost_among(const lh_job *job, const lh_layout *layout,
                               const lh_cost_slice *slice,
                               const lh_cost_options *options,
                               lhi_busiest *known, lh_cost *out, lh_error *err)
{
    return cost_chunk(job, layout, slice, options, false, true, known, out,
                      err);
}

lh_status lhi_chunk_cost_least(const lh_job *job, const lh_layout *layout,
                               const lh_cost_slice *slice,
                               const lh_cost_options *options,
                               lhi_busiest *known, lh_cost *out, lh_error *err)
{
    return cost_chunk(job, layout, slice, options, true, false, known, out,
                      err);
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
    lhi_prices p;
    lhi_op list[LH_COST_MAX_OPS];
    lh_cost_op made[LH_COST_MAX_OPS];

    lhi_busiest known = {0};

    LHI_TRY(
        lhi_prices_make(job, layout, slice, options, false, &known, &p, err));
    if (layer >= job->model->layers)
        return lhi_fail(err, LH_EINVAL, "layer %" PRIu32 " of %" PRIu32, layer,
                        job->model->layers);
    uint32_t count = lhi_ops_layer(&p.shape, layer, list);
    for (uint32_t i = 0; i < count; i++) {
        lhi_spent once;

        lhi_price_work(&p, &list[i].again, &once);
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
