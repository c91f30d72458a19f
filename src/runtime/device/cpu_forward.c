/* SPDX-License-Identifier: Apache-2.0 */
/* F: embedding, layers, head and loss. */
#include "base/fail.h"
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_experts.h"
#include "runtime/device/cpu_mtp.h"
#include "runtime/device/cpu_sharding.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <string.h>

/* Allocates one microbatch's saved activations.
 * lhi_cpu_microbatch_bytes() must count the same buffers. */
static lhi_cpu_microbatch_state *make_slot(lhi_cpu *cpu,
                                           const lhi_cpu_chunk *chunk)
{
    lhi_arena *mem = cpu->activations;
    size_t t = cpu->t, r = cpu->r, h = cpu->h, vectors = cpu->norm_vectors;
    uint32_t n = lhi_cpu_count_layers(chunk),
             n_inputs = lhi_cpu_count_inputs(chunk);
    bool shares = lhi_cpu_has_sequence_parallel(cpu);
    lhi_cpu_microbatch_state *slot = LHI_NEW(mem, lhi_cpu_microbatch_state, 1);
    bool ok = slot && (slot->x = LHI_NEW(mem, float *, n_inputs)) &&
              (slot->layers = LHI_NEW(mem, lhi_cpu_saved_activations, n));
    for (uint32_t i = 0; ok && i < n_inputs; i++)
        ok = (slot->x[i] = lhi_cpu_alloc_floats(mem, r, h)) != NULL;
    for (uint32_t i = 0; ok && i < n; i++) {
        lhi_cpu_saved_activations *a = &slot->layers[i];
        a->moe = chunk->moe[i];
        ok = lhi_cpu_attach_permanent_buffers(
                 cpu, a,
                 LH_PART_ALL & ~chunk->recompute[i] & ~chunk->offload[i]) &&
             (a->inv1 = lhi_cpu_alloc_floats(mem, vectors, r)) &&
             (a->inv2 = lhi_cpu_alloc_floats(mem, vectors, r)) &&
             (!shares || (a->d_out = lhi_cpu_alloc_floats(mem, t, h))) &&
             (!shares || !lhi_cpu_mlp_gathers_rows(cpu, a->moe) ||
              (a->d_down = lhi_cpu_alloc_floats(mem, t, h))) &&
             (a->d_norm1 = lhi_cpu_alloc_floats(mem, vectors, h)) &&
             (a->d_norm2 = lhi_cpu_alloc_floats(mem, vectors, h)) &&
             (!cpu->inner ||
              (a->d_inner = lhi_cpu_alloc_floats(mem, cpu->inner, 1))) &&
             (!a->moe || lhi_cpu_make_routes(cpu, mem, a));
    }
    if (ok && chunk->is_first)
        ok = (slot->tokens = LHI_NEW(mem, int32_t, t)) &&
             (!shares || (slot->d_embedded = lhi_cpu_alloc_floats(mem, t, h)));
    if (ok && chunk->is_last)
        ok = (slot->targets =
                  LHI_NEW(mem, int32_t, (1 + chunk->n_modules) * t)) &&
             (slot->normed = lhi_cpu_alloc_floats(mem, t, h)) &&
             (slot->inv = lhi_cpu_alloc_floats(mem, vectors, r)) &&
             (slot->logits = lhi_cpu_alloc_floats(mem, t, cpu->v)) &&
             (slot->d_norm = lhi_cpu_alloc_floats(mem, vectors, h)) &&
             lhi_cpu_make_modules(cpu, chunk, slot);
    return ok ? slot : NULL;
}

/* Takes a microbatch's buffers for saved activations (*out) from the chunk's
 * free list, or allocates them. */
static lh_status take_slot(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                           uint32_t microbatch, lhi_cpu_microbatch_state **out,
                           lh_error *err)
{
    lhi_cpu_microbatch_state *slot = chunk->free;
    if (slot)
        chunk->free = slot->next;
    else if (!(slot = make_slot(cpu, chunk)))
        return lhi_fail_nomem(err);
    slot->items_left = chunk->n_items;
    slot->first_position = cpu->first_position;
    slot->d_done = false;
    chunk->slots[microbatch] = slot;
    chunk->forward_done[microbatch] = true;
    *out = slot;
    return LH_OK;
}

/* Reads a microbatch's tokens, shifted by `from` to from + n - 1 positions:
 * out[i] has, for each position, the token `from` + i positions after it. */
static lh_status read_tokens(lhi_cpu *cpu, uint32_t microbatch, int32_t *out,
                             uint32_t from, uint32_t n, lh_error *err)
{
    uint64_t sample = lhi_cpu_first_sample(cpu, microbatch);
    uint32_t pieces = lhi_cpu_count_pieces(cpu);
    for (uint32_t i = 0; i < cpu->microbatch; i++) {
        LHI_TRY(lhi_data_read_window(cpu->data, cpu->kind == LHI_STEP_VALIDATE,
                                     sample + i, cpu->token_window, err));
        for (uint32_t k = 0; k < n * pieces; k++)
            memcpy(out + (size_t)(k / pieces) * cpu->t +
                       ((size_t)i * pieces + k % pieces) * cpu->piece,
                   cpu->token_window +
                       lhi_cpu_piece_position(cpu, cpu->first_position,
                                              k % pieces) +
                       from + k / pieces,
                   cpu->piece * sizeof *out);
    }
    return LH_OK;
}

/* Embeds the microbatch's tokens into the input of the chunk's first layer, and
 * applies dropout. */
static lh_status embed(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                       lhi_cpu_microbatch_state *slot, uint32_t microbatch,
                       lh_error *err)
{
    size_t h = cpu->h;
    uint32_t n = lhi_cpu_count_pieces(cpu);
    LHI_TRY(read_tokens(cpu, microbatch, slot->tokens, 0, 1, err));
    lhi_cpu_embed(cpu, slot->tokens, chunk->embedding, slot->x[0]);
    for (uint32_t i = 0; chunk->positions && i < cpu->r; i++) {
        uint32_t row = cpu->first_row + i;
        size_t at = lhi_cpu_piece_position(cpu, cpu->first_position,
                                           row / cpu->piece % n) +
                    row % cpu->piece;
        cpu->k->add(slot->x[0] + i * h, chunk->positions + at * h, h);
    }
    lhi_cpu_apply_dropout_rows(cpu, lhi_cpu_embedding_dropout(cpu, microbatch),
                               slot->x[0]);
    return LH_OK;
}

/* Computes the output of a block whose attention and MLP run in parallel. One
 * reduction over the tensor-parallel ranks covers both. */
static void add_parallel_block(lhi_cpu *cpu, const lhi_cpu_weights *w,
                               lhi_cpu_saved_activations *a, const float *x,
                               float *out)
{
    float *sum = cpu->summands;
    lhi_cpu_linear(cpu, a->attention_output, w->out, NULL, sum, cpu->o, cpu->h,
                   false);
    lhi_cpu_linear(cpu, a->act, w->down, NULL, sum, cpu->f, cpu->h, true);
    lhi_cpu_reduce_scatter_rows(cpu, sum, out);
    cpu->k->add(out, x, (size_t)cpu->r * cpu->h);
}

/* Runs F of one transformer layer from input x to `out`; saves activations in
 * `a`. */
static void layer_forward(lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_saved_activations *a, const float *x,
                          float *out)
{
    lhi_cpu_recompute_parts(cpu, w, a, x, LH_PART_ALL);
    if (lhi_cpu_fuses_block_reduction(cpu))
        add_parallel_block(cpu, w, a, x, out);
    else if (a->moe)
        lhi_cpu_experts_down(cpu, w, a, out);
    else
        lhi_cpu_residual(cpu, a, LHI_DROP_MLP, a->residual, a->act, w->down,
                         w->down_bias, cpu->f, out);
}

/* Runs F for layer `layer` of the chunk; indices after its last layer are the
 * multi-token prediction modules. */
static lh_status run_layer(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                           const lhi_cpu_microbatch_state *slot,
                           uint32_t microbatch, uint32_t layer, lh_error *err)
{
    lhi_cpu_saved_activations *kept = &slot->layers[layer];
    uint32_t at = lhi_cpu_input_index(chunk, layer);
    bool is_module = layer >= chunk->n_layers;
    kept->items_left = LHI_LAYER_ITEMS;
    kept->sample = lhi_cpu_first_sample(cpu, microbatch);
    kept->layer = is_module ? cpu->layers + layer - chunk->n_layers
                            : chunk->first_layer + layer;
    if (!lhi_cpu_attach_recompute_buffers(cpu, kept, chunk->recompute[layer]) ||
        !lhi_cpu_attach_offload_buffers(cpu, kept, chunk->offload[layer]))
        return lhi_fail_nomem(err);
    lhi_cpu_set_layer_keys(cpu, chunk, microbatch, layer, kept);
    layer_forward(cpu, &chunk->weights[layer], kept, slot->x[at],
                  slot->x[at + 1]);
    lhi_cpu_detach_recompute_buffers(cpu, kept, chunk->recompute[layer]);
    return LH_OK;
}

/* Computes the head's loss and, except in validation steps, the losses of the
 * multi-token prediction modules, for one microbatch. */
static lh_status head_forward(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                              const lhi_cpu_microbatch_state *slot,
                              uint32_t microbatch, lh_error *err)
{
    bool trains = cpu->kind == LHI_STEP_TRAIN;
    uint32_t modules = trains ? chunk->n_modules : 0;
    LHI_TRY(read_tokens(cpu, microbatch, slot->targets, 1, 1 + modules, err));
    uint32_t at = cpu->first_microbatch + microbatch;
    cpu->losses[at] = lhi_cpu_head_loss(
        cpu, chunk->norm, chunk->head, slot->x[chunk->n_layers], slot->normed,
        slot->inv, slot->logits, slot->targets, trains ? cpu->loss_scale : 0);
    cpu->has_loss[at] = true;
    double loss = 0;
    for (uint32_t k = 0; k < modules; k++) {
        lhi_cpu_mtp_join(cpu, chunk, slot, microbatch, k);
        LHI_TRY(
            run_layer(cpu, chunk, slot, microbatch, chunk->n_layers + k, err));
        loss += lhi_cpu_mtp_loss(cpu, chunk, slot, k);
    }
    if (modules)
        cpu->module_losses[at] = loss / modules;
    return LH_OK;
}

lh_status lhi_cpu_run_forward(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                              uint32_t microbatch, const float *in, float *out,
                              lh_error *err)
{
    lhi_cpu_microbatch_state *slot = NULL;
    if (chunk->forward_done[microbatch])
        return lhi_fail(err, LH_EINVAL,
                        "F of chunk %u, microbatch %u, runs twice in a step",
                        chunk->chunk, microbatch);
    LHI_TRY(lhi_cpu_begin_slice(cpu, chunk, microbatch, true, err));
    LHI_TRY(take_slot(cpu, chunk, microbatch, &slot, err));
    if (chunk->is_first) {
        LHI_TRY(lhi_cpu_request_part_values(cpu, chunk, 0, false, err));
        LHI_TRY(embed(cpu, chunk, slot, microbatch, err));
    } else {
        lhi_cpu_read_message(cpu, in, slot->x[0]);
    }
    for (uint32_t i = 0; i < chunk->n_layers; i++) {
        LHI_TRY(lhi_cpu_request_part_values(cpu, chunk, chunk->is_first + i,
                                            false, err));
        LHI_TRY(run_layer(cpu, chunk, slot, microbatch, i, err));
    }
    if (chunk->is_last) {
        LHI_TRY(lhi_cpu_request_part_values(cpu, chunk, chunk->n_parts - 1,
                                            false, err));
        LHI_TRY(head_forward(cpu, chunk, slot, microbatch, err));
    } else {
        lhi_cpu_write_message(cpu, slot->x[chunk->n_layers], out);
    }
    lhi_cpu_end_slice(cpu, chunk, microbatch, true);
    if (cpu->kind == LHI_STEP_VALIDATE) {
        lhi_cpu_release_offload(cpu, chunk, slot);
        chunk->slots[microbatch] = NULL;
        slot->next = chunk->free;
        chunk->free = slot;
    }
    return LH_OK;
}
