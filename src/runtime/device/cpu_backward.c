/* SPDX-License-Identifier: Apache-2.0 */
/* D: computes the gradient of a chunk's input from that of its output. Leaves
 * W's operands in place. */
#include "base/fail.h"
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_experts.h"
#include "runtime/device/cpu_mtp.h"
#include "runtime/device/cpu_sharding.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <string.h>

/* Computes the gradient of the MLP's normed input from `d`, the gradient of the
 * MLP's output, into the scratch buffer. */
static void mlp_backward(lhi_cpu *cpu, const lhi_cpu_weights *w,
                         lhi_cpu_saved_activations *a, const float *d)
{
    float *wide = cpu->scratch;
    if (a->moe) {
        lhi_cpu_experts_backward(cpu, w, a, d);
        return;
    }
    lhi_cpu_linear_dgrad(cpu, d, w->down, wide, cpu->f, cpu->h);
    if (cpu->gated)
        cpu->k->swiglu_backward(a->gate_up, wide, cpu->t, cpu->f, cpu->bf16);
    else
        cpu->k->gelu_backward(a->gate_up, wide, (size_t)cpu->t * cpu->f);
    lhi_cpu_linear_dgrad(cpu, a->gate_up, w->gate_up, wide, cpu->h, cpu->up);
}

/* Returns the gradient before the dropout `at` (identified by sample, layer and
 * site), given the gradient d after it. With sequence parallelism gathers all
 * tensor-parallel ranks' rows into `all`, from which W reads them. */
static const float *gradient_before_dropout(lhi_cpu *cpu, lhi_drop at,
                                            const float *d, float *all)
{
    const float *own = lhi_cpu_dropout_backward(cpu, at, d);
    if (!lhi_cpu_has_sequence_parallel(cpu))
        return own;
    lhi_cpu_gather_rows(cpu, own, all);
    return all;
}

/* Sums the gradient of the norm's output, in the scratch buffer, over the
 * tensor-parallel ranks, and replaces x by the gradient of the norm's input.
 * `add`: a gradient to add to it; `inv`: saved inverse deviations; d_weight:
 * the weight's gradient. */
static void norm_backward(lhi_cpu *cpu, const float *weight, const float *inv,
                          const float *add, float *x, float *d_weight)
{
    float *own = lhi_cpu_own_rows(cpu, cpu->scratch);
    lhi_cpu_reduce_scatter_rows(cpu, cpu->scratch, own);
    lhi_cpu_norm_backward(cpu, own, weight, inv, add, x, d_weight);
}

/* Computes the gradient of the attention's normed input into the scratch
 * buffer, from the attention output's gradient d. */
static void attention_backward(lhi_cpu *cpu, const lhi_cpu_weights *w,
                               lhi_cpu_saved_activations *a, const float *d)
{
    float *wide = cpu->scratch;
    lhi_cpu_linear_dgrad(cpu, d, w->out, wide, cpu->o, cpu->h);
    lhi_cpu_attention_backward(cpu, a, wide);
    if (cpu->kv_rank) {
        lhi_cpu_latents_backward(cpu, w, a);
        return;
    }
    if (cpu->head_norms)
        lhi_cpu_norm_heads_backward(cpu, w, a);
    lhi_cpu_linear_dgrad(cpu, a->qkv, w->qkv, wide, cpu->h, cpu->qkv);
}

/* Computes the gradients of a block whose attention and MLP both read norm1's
 * output and add to x. `d`: gradient of the block's output; x: replaced by its
 * gradient. */
static void parallel_block_backward(lhi_cpu *cpu, const lhi_cpu_weights *w,
                                    lhi_cpu_saved_activations *a, float *d,
                                    float *x)
{
    size_t n = (size_t)cpu->t * cpu->h;
    lhi_drop at = {a->sample, a->layer, LHI_DROP_MLP};
    lhi_drop also = {a->sample, a->layer, LHI_DROP_ATTENTION};
    memcpy(a->residual, d, (size_t)cpu->r * cpu->h * sizeof *d);
    mlp_backward(cpu, w, a, gradient_before_dropout(cpu, at, d, a->d_down));
    lhi_cpu_copy_dropout_gradient(cpu, d);
    memcpy(cpu->second_scratch, cpu->scratch, n * sizeof *d);
    if (lhi_cpu_fuses_block_reduction(cpu) &&
        lhi_cpu_has_sequence_parallel(cpu)) {
        /* attention and MLP outputs have the same gradient */
        memcpy(a->d_out, a->d_down, n * sizeof *d);
        attention_backward(cpu, w, a, a->d_out);
    } else {
        attention_backward(
            cpu, w, a,
            gradient_before_dropout(cpu, also, a->residual, a->d_out));
    }
    cpu->k->add(cpu->scratch, cpu->second_scratch, n);
    norm_backward(cpu, w->norm1, a->inv1, a->residual, x, a->d_norm1);
    lhi_cpu_copy_dropout_gradient(cpu, a->residual);
}

/* Replaces the layer's input x by its gradient. `d`: the gradient of the
 * layer's output, replaced by that before the MLP's dropout; `a`: saved
 * activations. */
static void layer_backward(lhi_cpu *cpu, const lhi_cpu_weights *w,
                           lhi_cpu_saved_activations *a, float *d, float *x)
{
    lhi_drop at = {a->sample, a->layer, LHI_DROP_MLP};
    lhi_drop also = {a->sample, a->layer, LHI_DROP_ATTENTION};
    if (cpu->parallel) {
        parallel_block_backward(cpu, w, a, d, x);
        return;
    }
    if (a->moe) { /* input and output: local rows only */
        mlp_backward(cpu, w, a, lhi_cpu_dropout_backward(cpu, at, d));
        lhi_cpu_norm_backward(cpu, cpu->scratch, w->norm2, a->inv2, d,
                              a->residual, a->d_norm2);
    } else {
        mlp_backward(cpu, w, a, gradient_before_dropout(cpu, at, d, a->d_down));
        norm_backward(cpu, w->norm2, a->inv2, d, a->residual, a->d_norm2);
    }
    lhi_cpu_copy_dropout_gradient(cpu, d);
    attention_backward(
        cpu, w, a, gradient_before_dropout(cpu, also, a->residual, a->d_out));
    norm_backward(cpu, w->norm1, a->inv1, a->residual, x, a->d_norm1);
    lhi_cpu_copy_dropout_gradient(cpu, a->residual);
}

/* Runs D for layer `layer` of the chunk; indices after its last layer are the
 * multi-token prediction modules. */
static lh_status run_layer_backward(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                                    uint32_t microbatch, uint32_t layer,
                                    lh_error *err)
{
    const lhi_cpu_microbatch_state *slot = chunk->slots[microbatch];
    lhi_cpu_saved_activations *kept = &slot->layers[layer];
    const lhi_cpu_weights *w = &chunk->weights[layer];
    uint32_t at = lhi_cpu_input_index(chunk, layer);
    if (!lhi_cpu_attach_recompute_buffers(cpu, kept, chunk->recompute[layer]))
        return lhi_fail_nomem(err);
    lhi_cpu_set_layer_keys(cpu, chunk, microbatch, layer, kept);
    lhi_cpu_recompute_parts(cpu, w, kept, slot->x[at], chunk->recompute[layer]);
    layer_backward(cpu, w, kept, slot->x[at + 1], slot->x[at]);
    return LH_OK;
}

/* Runs D for the multi-token prediction modules, last one first, before the
 * model's own head; `joint`: W follows each D. cpu->carried then has the
 * gradient of the state that the first module read. */
static lh_status modules_backward(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                  uint32_t microbatch, bool joint,
                                  lh_error *err)
{
    const lhi_cpu_microbatch_state *slot = chunk->slots[microbatch];
    for (uint32_t k = chunk->n_modules; k-- > 0;) {
        uint32_t layer = chunk->n_layers + k;
        lhi_cpu_mtp_loss_backward(cpu, chunk, slot, k);
        LHI_TRY(run_layer_backward(cpu, chunk, microbatch, layer, err));
        lhi_cpu_mtp_join_backward(cpu, chunk, slot, microbatch, k);
        if (joint)
            LHI_TRY(lhi_cpu_request_layer_gradients(cpu, chunk, layer,
                                                    microbatch, err));
    }
    return LH_OK;
}

lh_status lhi_cpu_run_dgrad(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                            uint32_t microbatch, bool joint, const float *in,
                            float *out, lh_error *err)
{
    lhi_cpu_microbatch_state *slot = chunk->slots[microbatch];
    uint32_t n = chunk->n_layers;
    if (!slot || slot->d_done)
        return lhi_fail(err, LH_EINVAL, "D of chunk %u, microbatch %u, runs %s",
                        chunk->chunk, microbatch,
                        slot ? "twice" : "before its F");
    if (slot->storage_block)
        return lhi_fail(err, LH_EINVAL,
                        "D of chunk %u, microbatch %u, runs before its "
                        "activations are reloaded from storage",
                        chunk->chunk, microbatch);
    LHI_TRY(lhi_cpu_begin_slice(cpu, chunk, microbatch, false, err));
    if (chunk->is_last) {
        LHI_TRY(lhi_cpu_request_part_values(cpu, chunk, chunk->n_parts - 1,
                                            true, err));
        LHI_TRY(modules_backward(cpu, chunk, microbatch, joint, err));
        lhi_cpu_head_loss_backward(
            cpu, chunk->norm, chunk->head, slot->logits, slot->inv,
            chunk->n_modules ? cpu->carried : NULL, slot->x[n], slot->d_norm);
    } else {
        lhi_cpu_read_message(cpu, in, slot->x[n]);
    }
    for (uint32_t i = n; i-- > 0;) {
        LHI_TRY(lhi_cpu_request_part_values(cpu, chunk, chunk->is_first + i,
                                            true, err));
        LHI_TRY(run_layer_backward(cpu, chunk, microbatch, i, err));
        if (joint && i > 0)
            LHI_TRY(lhi_cpu_request_layer_gradients(cpu, chunk, i, microbatch,
                                                    err));
    }
    if (chunk->is_first) {
        /* D does not read the embedding, but FSDP2 gathers it anyway and plans
         * model that transfer. */
        LHI_TRY(lhi_cpu_request_part_values(cpu, chunk, 0, true, err));
        lhi_cpu_apply_dropout_rows(
            cpu, lhi_cpu_embedding_dropout(cpu, microbatch), slot->x[0]);
        if (lhi_cpu_has_sequence_parallel(cpu))
            lhi_cpu_gather_rows(cpu, slot->x[0], slot->d_embedded);
    } else {
        lhi_cpu_write_message(cpu, slot->x[0], out);
    }
    slot->d_done = true;
    lhi_cpu_end_slice(cpu, chunk, microbatch, false);
    return LH_OK;
}
