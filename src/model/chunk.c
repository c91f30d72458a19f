/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a layer range's lh_cost. */
#include "model/data_passes.h"
#include "model/ops.h"
#include "model/sharding.h"

#include "base/fail.h"
#include "format/job/parse.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Returns the optimizer-state bytes per parameter: fp32 copy, if it is not the
 * parameter itself, and two moments. */
static double count_optimizer_bytes(const lhi_cost_context *p)
{
    return p->job->training.precision == LH_PRECISION_FP32 ||
                   lhi_shards_fp32_parameters(p->job)
               ? 8
               : 12;
}

/* Computes the bytes of weights, gradients and optimizer state into state[0..2]
 * [Raj section 3.1, figure 1]. Each is sharded over the data-parallel GPUs from
 * its ZeRO stage on; with hybrid sharding, over those in the datacenter.
 * shared_ranks, expert_ranks: GPUs that share dense and expert parameters. */
static void compute_state_bytes(const lhi_cost_context *p,
                                const lhi_params *params, double shared_ranks,
                                double expert_ranks, double state[3])
{
    double element = lhi_shards_fp32_parameters(p->job) ? 4 : p->shape.element;
    double shared = params->total - params->experts;
    double split = shared / shared_ranks + params->experts / expert_ranks;
    uint32_t zero = lhi_find_zero(p->job, p->layout);
    bool splits_gradients =
        zero >= 2 && !lhi_accumulates_whole_gradients(p->job, p->layout);

    state[0] =
        zero >= 3 ? element * split
                  : element * params->total - params->in_8_bits * (element - 1);
    state[1] =
        p->options.gradient_bytes * (splits_gradients ? split : params->total);
    state[2] = count_optimizer_bytes(p) * (zero >= 1 ? split : params->total);
}

/* Copies a pass's time breakdown to `out`, rounded up to ns. LH_EUNSUPPORTED: a
 * time exceeds the supported range. */
static lh_status fill_pass(const lhi_time_breakdown *s, lh_pass_cost *out,
                           lh_error *err)
{
    LHI_TRY(lhi_round_up_checked(s->total, "a pass", &out->total_ns, err));
    LHI_TRY(lhi_round_up_checked(s->matmul, "a pass", &out->matmul_ns, err));
    LHI_TRY(lhi_round_up_checked(s->memory, "a pass", &out->memory_ns, err));
    LHI_TRY(lhi_round_up_checked(s->kernel, "a pass", &out->kernel_ns, err));
    LHI_TRY(lhi_round_up_checked(s->communication, "a pass",
                                 &out->communication_ns, err));
    LHI_TRY(
        lhi_round_up_checked(s->data_parallel, "a pass", &out->data_ns, err));
    LHI_TRY(
        lhi_round_up_checked(s->exposed_end, "a pass", &out->blocking_ns, err));
    out->flops = s->flops;
    return LH_OK;
}

/* Returns how a cost was obtained: from the profile, `estimate` (by model or
 * efficiency), or mixed. measured, estimated: whether it has parts from the
 * profile, and estimated parts. */
static lh_cost_source merge_sources(bool measured, bool estimated,
                                    lh_cost_source estimate)
{
    if (measured)
        return estimated ? LH_COST_MIXED : LH_COST_PROFILE;
    return estimate;
}

/* The two largest unsharded parts that a pass uses successively. */
typedef struct largest_two {
    double larger, smaller;
} largest_two;

/* Updates the two largest numbers of gathered parameters, *most, with those of
 * `part`: one layer, the embedding or the head, of which there are `n`.
 * shared_ranks, expert_ranks: GPUs that share dense and expert parameters. */
static void add_unsharded_parts(const lhi_cost_context *p, uint32_t n,
                                lh_cost_layer_range part, double shared_ranks,
                                double expert_ranks, largest_two *most)
{
    lhi_params params;
    double whole = 0;

    lhi_count_slice_params(&p->shape, &part, &params);
    if (shared_ranks > 1)
        whole += params.total - params.experts;
    if (expert_ranks > 1)
        whole += params.experts;
    for (uint32_t i = 0; i < n && i < 2; i++) {
        most->smaller = fmax(most->smaller, fmin(most->larger, whole));
        most->larger = fmax(most->larger, whole);
    }
}

/* Computes the bytes of the buffers for data that ZeRO 2 and 3 hold unsharded
 * for a time. PyTorch's FSDP2 gathers one layer ahead, and reduces one layer
 * while it computes the next, so the two largest layers count. shared_ranks,
 * expert_ranks: GPUs that share dense and expert parameters. */
static double compute_buffer_bytes(const lhi_cost_context *p,
                                   double shared_ranks, double expert_ranks)
{
    const lh_cost_layer_range *slice = p->slice;
    uint32_t zero = lhi_find_zero(p->job, p->layout);
    double bytes = p->options.gradient_bytes;
    largest_two most = {0};

    /* FSDP2 copies gradients to a reduction's input in any case. */
    if (zero < 2 && !lhi_accumulates_whole_gradients(p->job, p->layout))
        return 0;
    if (zero > 2)
        bytes += p->shape.element;
    uint32_t n;
    for (uint32_t i = 0; i < slice->n_layers; i += n) {
        const uint32_t layer = slice->first_layer + i;
        n = lhi_count_equal_layers(p->job->model, layer, slice->n_layers - i);
        add_unsharded_parts(
            p, n, (lh_cost_layer_range){.first_layer = layer, .n_layers = 1},
            shared_ranks, expert_ranks, &most);
    }
    if (slice->embedding)
        add_unsharded_parts(p, 1, (lh_cost_layer_range){.embedding = true},
                            shared_ranks, expert_ranks, &most);
    if (lhi_slice_has_end(slice))
        add_unsharded_parts(
            p, 1, (lh_cost_layer_range){.head = slice->head, .mtp = slice->mtp},
            shared_ranks, expert_ranks, &most);
    return bytes * (most.larger + most.smaller);
}

enum { OFFLOAD_BUFFERS = 3 }; /* see schedule/pipeline/offload.h */

/* Estimates the offloaded bytes among a layer range's activations. The
 * offloaded fraction comes from the model; it is applied to the measured bytes
 * if there are any. */
static double estimate_offload_bytes(const lhi_cost_context *p,
                                     const lhi_slice_sums *s)
{
    const lh_cost_layer_range *slice = p->slice;
    double moved = 0, all = 0;
    uint32_t n = lhi_count_offloaded_layers(p->job, slice->n_layers);
    lhi_resident_memory one;

    if (n == 0)
        return 0;
    for (uint32_t i = 0; i < slice->n_layers; i++) {
        lhi_resident_memory_compute_layer(&p->shape, slice->first_layer + i,
                                          &one);
        all += one.activation;
        if (i < n)
            moved += lhi_resident_memory_compute_within_layer(
                &p->shape, slice->first_layer + i);
    }
    if (slice->embedding) {
        lhi_resident_memory_compute_embedding(&p->shape, &one);
        all += one.activation;
    }
    if (slice->head) {
        lhi_resident_memory_compute_head(&p->shape, &one);
        all += one.activation;
    }
    return all > 0 ? floor(s->memory.activation * moved / all) : 0;
}

/* Sets the bytes of activations offloaded to host memory per pass, and their
 * copy time at the job's or else the GPU's host bandwidth. */
static lh_status fill_offload(const lhi_cost_context *p,
                              const lhi_slice_sums *s, lh_cost *out,
                              lh_error *err)
{
    const lh_gpu *gpu = &p->job->datacenters[p->slice->datacenter].gpu;
    double bytes = estimate_offload_bytes(p, s),
           rate = p->job->training.offload_bytes_per_s;

    if (rate == 0)
        rate = lhi_gpu_host_bytes_per_s(gpu);
    LHI_TRY(
        lhi_round_up_checked(bytes, "activations", &out->offload_bytes, err));
    return lhi_round_up_checked(ceil(bytes / rate * 1e9),
                                "the transfer of activations to the host",
                                &out->offload_ns, err);
}

/* Returns a chunk's output bytes, which PyTorch's pipeline stages keep until
 * the backward (forward_one_chunk() in torch/distributed/pipelining/ stage.py).
 * Lower bounds add single layers, which have none. */
static double count_output_bytes(const lhi_cost_context *p)
{
    const lhi_shape *s = &p->shape;

    if (p->is_lower_bound || p->layout->pipeline == 1 || p->slice->head ||
        p->job->framework.preset != LH_FRAMEWORK_TORCHTITAN)
        return 0;
    return s->tokens * s->norm_share * s->model->hidden * s->element;
}

/* Sets the parameter counts and the bytes of activations, weights, gradients,
 * optimizer state, buffers and workspace of a chunk. */
static lh_status fill_memory(const lhi_cost_context *p, const lhi_slice_sums *s,
                             const lhi_params *params, lh_cost *out,
                             lh_error *err)
{
    double state[3], shared_ranks, expert_ranks;

    LHI_TRY(
        lhi_round_up_checked(params->total, "parameters", &out->params, err));
    LHI_TRY(lhi_round_up_checked(params->experts, "parameters",
                                 &out->expert_params, err));
    LHI_TRY(fill_offload(p, s, out, err));
    double stays = s->memory.activation + count_output_bytes(p) -
                   (double)out->offload_bytes;
    LHI_TRY(lhi_round_up_checked(stays, "activations", &out->activation_bytes,
                                 err));
    double to_w = out->offload_bytes > 0 ? fmin(s->memory.weight_input, stays)
                                         : s->memory.weight_input;
    LHI_TRY(lhi_round_up_checked(to_w, "activations", &out->weight_input_bytes,
                                 err));
    LHI_TRY(lhi_round_up_checked(s->memory.d_workspace, "workspace",
                                 &out->workspace_bytes, err));
    LHI_TRY(lhi_count_state_ranks(p->job, p->layout, p->slice, &shared_ranks,
                                  &expert_ranks, err));
    compute_state_bytes(p, params, shared_ranks, expert_ranks, state);
    LHI_TRY(lhi_round_up_checked(
        compute_buffer_bytes(p, shared_ranks, expert_ranks) +
            OFFLOAD_BUFFERS * (double)out->offload_bytes,
        "buffers", &out->buffer_bytes, err));
    LHI_TRY(lhi_round_up_checked(state[0], "weights", &out->weight_bytes, err));
    LHI_TRY(
        lhi_round_up_checked(state[1], "gradients", &out->gradient_bytes, err));
    LHI_TRY(lhi_round_up_checked(state[2], "optimizer state",
                                 &out->optimizer_bytes, err));
    out->static_bytes = out->weight_bytes;
    if (s->static_bytes >= 0) {
        LHI_TRY(lhi_round_up_checked(s->static_bytes, "static memory",
                                     &out->static_bytes, err));
        return lhi_round_up_checked((double)out->static_bytes +
                                        (double)out->workspace_bytes +
                                        (double)out->buffer_bytes,
                                    "static memory", &out->static_bytes, err);
    }
    return lhi_round_up_checked(
        (double)out->weight_bytes + (double)out->gradient_bytes +
            (double)out->optimizer_bytes + (double)out->workspace_bytes +
            (double)out->buffer_bytes,
        "static memory", &out->static_bytes, err);
}

/* Sets the optimizer time: gradient norm and Adam are memory-bound. They read
 * gradients twice, read and write the fp32 copy and both moments, and write the
 * weights. */
static lh_status fill_optimizer(const lhi_cost_context *p, lh_cost *out,
                                lh_error *err)
{
    if (lhi_is_iteration_end_measured(p->job) && !p->options.ignore_profile) {
        out->optimizer_ns = 0; /* included in the measured iteration time */
        return LH_OK;
    }
    double state = (double)out->optimizer_bytes;
    /* parameters this GPU updates */
    double stepped = state / count_optimizer_bytes(p);
    double written =
        lhi_shards_fp32_parameters(p->job) ? 2 * 4 : p->shape.element;
    double bytes =
        2 * state + stepped * (2.0 * p->options.gradient_bytes + written);

    return lhi_round_up_checked(bytes / p->bytes_per_ns, "the optimizer's step",
                                &out->optimizer_ns, err);
}

/* Computes a layer range's cost (pass times and memory) into *out. `least`:
 * uses a lower bound on the communication between experts. `among`: the only
 * pipeline rank runs other layer ranges before and after this one. `known`:
 * cached ECMP (multipath hashing) results. */
static lh_status cost_chunk(const lh_job *job, const lh_layout *layout,
                            const lh_cost_layer_range *slice,
                            const lh_cost_options *options, bool least,
                            bool among, lhi_ecmp_cache *known, lh_cost *out,
                            lh_error *err)
{
    lhi_cost_context p;
    lhi_slice_sums s;
    lhi_params params;
    lh_cost cost = {0};

    LHI_TRY(lhi_cost_context_build(job, layout, slice, options, least, known,
                                   &p, err));
    p.in_sequence = among;
    LHI_TRY(lhi_slice_sums_build(&p, &s, err));
    lhi_count_slice_params(&p.shape, slice, &params);
    LHI_TRY(lhi_compute_data_parallel_time(&p, &params, &s, &cost, err));
    LHI_TRY(fill_pass(&s.time.f, &cost.f, err));
    LHI_TRY(fill_pass(&s.time.d, &cost.d, err));
    LHI_TRY(fill_pass(&s.time.w, &cost.w, err));
    LHI_TRY(fill_memory(&p, &s, &params, &cost, err));
    LHI_TRY(fill_optimizer(&p, &cost, err));
    cost.time_source =
        merge_sources(s.any_measured, s.any_estimated,
                      p.by_efficiency ? LH_COST_EFFICIENCY : LH_COST_MODEL);
    cost.memory_source = merge_sources(s.any_bytes_measured,
                                       s.any_bytes_estimated, LH_COST_MODEL);
    *out = cost;
    return LH_OK;
}

lh_status lhi_chunk_cost(const lh_job *job, const lh_layout *layout,
                         const lh_cost_layer_range *slice,
                         const lh_cost_options *options, lhi_ecmp_cache *known,
                         lh_cost *out, lh_error *err)
{
    return cost_chunk(job, layout, slice, options, false, false, known, out,
                      err);
}

lh_status lhi_chunk_cost_in_sequence(const lh_job *job, const lh_layout *layout,
                                     const lh_cost_layer_range *slice,
                                     const lh_cost_options *options,
                                     lhi_ecmp_cache *known, lh_cost *out,
                                     lh_error *err)
{
    return cost_chunk(job, layout, slice, options, false, true, known, out,
                      err);
}

lh_status lhi_chunk_cost_lower_bound(const lh_job *job, const lh_layout *layout,
                                     const lh_cost_layer_range *slice,
                                     const lh_cost_options *options,
                                     lhi_ecmp_cache *known, lh_cost *out,
                                     lh_error *err)
{
    return cost_chunk(job, layout, slice, options, true, false, known, out,
                      err);
}

lh_status lh_cost_chunk(const lh_job *job, const lh_layout *layout,
                        const lh_cost_layer_range *slice,
                        const lh_cost_options *options, lh_cost *out,
                        lh_error *err)
{
    lhi_ecmp_cache known = {0};

    return lhi_chunk_cost(job, layout, slice, options, &known, out, err);
}

lh_status lhi_cost_layer_ops(const lh_job *job, const lh_layout *layout,
                             const lh_cost_layer_range *slice, uint32_t layer,
                             const lh_cost_options *options, lh_cost_op *ops,
                             uint32_t *n_ops, lh_error *err)
{
    lhi_cost_context p;
    lhi_layer_op list[LH_COST_MAX_OPS];
    lh_cost_op made[LH_COST_MAX_OPS];

    lhi_ecmp_cache known = {0};

    LHI_TRY(lhi_cost_context_build(job, layout, slice, options, false, &known,
                                   &p, err));
    if (layer >= job->model->layers)
        return lhi_fail(err, LH_EINVAL, "layer %" PRIu32 " of %" PRIu32, layer,
                        job->model->layers);
    uint32_t count = lhi_list_layer_ops(&p.shape, layer, list);
    for (uint32_t i = 0; i < count; i++) {
        lhi_time_breakdown once;

        lhi_compute_work_time(&p, &list[i].recompute_work, &once);
        made[i] = (lh_cost_op){.name = list[i].name,
                               .flops = list[i].recompute_work.flops,
                               .recomputable = !list[i].not_recomputable &&
                                               list[i].stored > 0};
        LHI_TRY(lhi_round_up_checked(list[i].stored, "activations",
                                     &made[i].bytes, err));
        LHI_TRY(lhi_round_up_checked(once.total, "a pass", &made[i].ns, err));
    }
    memcpy(ops, made, count * sizeof *ops);
    *n_ops = count;
    return LH_OK;
}
