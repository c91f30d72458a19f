/* SPDX-License-Identifier: Apache-2.0 */
/* W: adds a microbatch's contribution to the weight gradients.
 *
 * Floating-point sums depend on their order, so each gradient accumulates
 * microbatches in the order of lhi_cpu_nth_summed(), independent of the W pass
 * order. A W pass that arrives early keeps its operands and runs in the pass
 * that fills the gap. */
#include "base/fail.h"
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_experts.h"
#include "runtime/device/cpu_mtp.h"
#include "runtime/device/cpu_sharding.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <string.h>

/* Adds a microbatch's gradient of a vector to its sum; `adds` false:
 * overwrites. */
static void add_vector(const lhi_cpu *cpu, float *to, const float *x, size_t n,
                       bool adds)
{
    if (adds)
        cpu->k->add(to, x, n);
    else
        memcpy(to, x, n * sizeof *to);
}

/* Adds a norm's gradient x, of weight and any bias, to its sum `to`; `adds`
 * false: overwrites it. */
static void add_norm(const lhi_cpu *cpu, float *to, const float *x, bool adds)
{
    add_vector(cpu, to, x, (size_t)cpu->norm_vectors * cpu->h, adds);
}

/* Computes the weight gradients between norm1 and queries, keys and values for
 * a microbatch; `adds`: adds to the sums in `d`. */
static void add_qkv(const lhi_cpu *cpu, const lhi_cpu_saved_activations *a,
                    const lhi_cpu_weights *d, bool adds)
{
    size_t k_norm = cpu->kv_rank ? cpu->q_rank : cpu->head_dim;
    if (d->q_norm)
        add_vector(cpu, d->q_norm, a->d_inner, k_norm, adds);
    if (d->k_norm)
        add_vector(cpu, d->k_norm, a->d_inner + k_norm, cpu->inner - k_norm,
                   adds);
    if (cpu->kv_rank)
        lhi_cpu_latents_wgrad(cpu, a, d, adds);
    else
        lhi_cpu_linear_wgrad(cpu, a->qkv, a->norm1, d->qkv, d->qkv_bias, cpu->h,
                             cpu->qkv, adds);
}

/* Adds the gradients of the embedding and of learned positions to their sums;
 * `adds` false: overwrites these. */
static void add_embedding(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                          const lhi_cpu_microbatch_state *slot, bool adds)
{
    size_t h = cpu->h;
    const float *d =
        lhi_cpu_has_sequence_parallel(cpu) ? slot->d_embedded : slot->x[0];
    if (!adds)
        memset(chunk->d_embedding, 0, cpu->v * h * sizeof(float));
    lhi_cpu_embed_wgrad(cpu, slot->tokens, d, chunk->d_embedding);
    if (!chunk->positions)
        return;
    /* Positions beyond the sequence length have zero gradients. */
    if (!adds)
        memset(chunk->d_positions, 0, cpu->positions * h * sizeof(float));
    uint32_t n = lhi_cpu_count_pieces(cpu);
    for (uint32_t i = 0; i < cpu->microbatch * n; i++) {
        size_t at = lhi_cpu_piece_position(cpu, slot->first_position, i % n);
        cpu->k->add(chunk->d_positions + at * h, d + i * cpu->piece * h,
                    cpu->piece * h);
    }
}

/* Computes the gradient of one weight-gradient item (a group of weights) for a
 * microbatch. */
static void run_item(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                     const lhi_cpu_item *item,
                     const lhi_cpu_microbatch_state *slot)
{
    uint32_t t = cpu->t, h = cpu->h, f = cpu->f;
    bool adds = item->done > item->first && !chunk->shards_by_layer;
    bool in_layer = lhi_cpu_is_layer_item(item);
    const float *d_out =
        in_layer ? slot->x[lhi_cpu_input_index(chunk, item->layer) + 1] : NULL;
    const lhi_cpu_saved_activations *a =
        in_layer ? &slot->layers[item->layer] : NULL;
    const lhi_cpu_weights *d = in_layer ? &chunk->d_weights[item->layer] : NULL;
    switch (item->kind) {
    case LHI_ITEM_EMBEDDING:
        add_embedding(cpu, chunk, slot, adds);
        break;
    case LHI_ITEM_QKV:
        add_norm(cpu, d->norm1, a->d_norm1, adds);
        add_qkv(cpu, a, d, adds);
        break;
    case LHI_ITEM_OUT:
        lhi_cpu_linear_wgrad(
            cpu, lhi_cpu_has_sequence_parallel(cpu) ? a->d_out : a->residual,
            a->attention_output, d->out, d->out_bias, cpu->o, h, adds);
        break;
    case LHI_ITEM_GATE_UP:
        if (!cpu->parallel)
            add_norm(cpu, d->norm2, a->d_norm2, adds);
        if (a->moe)
            lhi_cpu_experts_up_wgrad(cpu, a, d, adds);
        else
            lhi_cpu_linear_wgrad(cpu, a->gate_up,
                                 cpu->parallel ? a->norm1 : a->norm2,
                                 d->gate_up, d->gate_up_bias, h, cpu->up, adds);
        break;
    case LHI_ITEM_DOWN:
        if (a->moe)
            lhi_cpu_experts_down_wgrad(cpu, a, d_out, d, adds);
        else
            lhi_cpu_linear_wgrad(
                cpu, lhi_cpu_has_sequence_parallel(cpu) ? a->d_down : d_out,
                a->act, d->down, d->down_bias, f, h, adds);
        break;
    case LHI_ITEM_HEAD:
        add_norm(cpu, chunk->d_norm, slot->d_norm, adds);
        lhi_cpu_weight_product(cpu, slot->logits, slot->normed, chunk->d_head,
                               t, h, cpu->v, adds);
        lhi_cpu_mtp_shared_wgrad(cpu, chunk, slot, adds);
        break;
    case LHI_ITEM_MTP_JOIN:
        lhi_cpu_mtp_join_wgrad(cpu, chunk, slot, item->layer, adds);
        break;
    }
}

/* Checks whether a W pass computes the item's gradient. Each item (a group of
 * weights) belongs to the one of n parts that contains its midpoint in cost. */
bool lhi_cpu_is_item_in_pass(const lhi_cpu_chunk *chunk,
                             const lhi_cpu_item *item, const lh_pass *pass)
{
    uint32_t n = pass->n_parts ? pass->n_parts : 1;
    return (2 * item->cost_before + item->cost) * n / (2 * chunk->cost) ==
           pass->part;
}

/* Reduces the partial-sum gradients over the tensor-parallel ranks once a
 * weight-gradient item (group of weights) and all items reduced together with
 * it have all microbatches. */
static void finish_item(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                        const lhi_cpu_item *item)
{
    uint32_t n = chunk->n_sharded_items, end = cpu->n_microbatches;
    bool sharded = (uint32_t)(item - chunk->items) < n;
    uint32_t first = sharded ? 0 : n, last = sharded ? n : chunk->n_items;
    if (sharded)
        end = chunk->end_microbatch;
    for (uint32_t i = first; i < last; i++)
        if (chunk->items[i].done < end)
            return;
    lhi_cpu_reduce_partial_gradients(cpu, chunk, first, last - first);
}

/* Returns the microbatch whose gradient is the chunk's next one to be added to
 * `item`; LH_NONE: none is left. */
static uint32_t find_next_microbatch(const lhi_cpu *cpu,
                                     const lhi_cpu_chunk *chunk,
                                     const lhi_cpu_item *item)
{
    if (chunk->own)
        return item->done < chunk->n_own ? chunk->own[item->done] : LH_NONE;
    return item->done < cpu->n_microbatches
               ? lhi_cpu_nth_summed(cpu, item->done)
               : LH_NONE;
}

/* Adds the next microbatch's gradient to the item (a group of weights), and
 * frees activation buffers that no other item needs. */
static void add_next_microbatch(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                lhi_cpu_item *item)
{
    uint32_t m = find_next_microbatch(cpu, chunk, item);
    lhi_cpu_microbatch_state *slot = chunk->slots[m];
    run_item(cpu, chunk, item, slot);
    lhi_cpu_saved_activations *kept =
        lhi_cpu_is_layer_item(item) ? &slot->layers[item->layer] : NULL;
    if (kept && --kept->items_left == 0) {
        lhi_cpu_detach_recompute_buffers(cpu, kept,
                                         chunk->recompute[item->layer]);
        lhi_cpu_detach_offload_buffers(cpu, kept, chunk->offload[item->layer]);
    }
    if (--slot->items_left == 0) {
        chunk->slots[m] = NULL;
        slot->next = chunk->free;
        chunk->free = slot;
    }
    item->done++;
    if (!chunk->shards_by_layer)
        finish_item(cpu, chunk, item);
}

uint32_t lhi_cpu_part_items(const lhi_cpu_chunk *chunk, uint32_t part,
                            uint32_t *first)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < chunk->n_items; i++)
        if (lhi_cpu_item_part(chunk, &chunk->items[i]) == part && n++ == 0)
            *first = i;
    return n;
}

/* Runs all weight-gradient items of a part (unit of per-layer sharding) for
 * each microbatch whose gradient is due, and reduce-scatters each microbatch's
 * gradients. */
static lh_status request_part(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t part,
                              lh_error *err)
{
    uint32_t first = 0, n = lhi_cpu_part_items(chunk, part, &first), nth;
    while (lhi_cpu_part_is_due(cpu, chunk, first, n, &nth)) {
        LHI_TRY(lhi_cpu_request_part_gradients(cpu, chunk, part, err));
        for (uint32_t i = 0; i < n; i++)
            add_next_microbatch(cpu, chunk, &chunk->items[first + i]);
        lhi_cpu_reduce_partial_gradients(cpu, chunk, first, n);
        cpu->hooks->scatter(cpu->hooks->context, chunk->chunk, part, nth);
    }
    return LH_OK;
}

/* Marks a weight-gradient item (group of weights) as due for a microbatch, and
 * computes it for all microbatches that can be added in order. */
static lh_status request_item(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                              lhi_cpu_item *item, uint32_t microbatch,
                              lh_error *err)
{
    item->requested[microbatch] = true;
    if (chunk->shards_by_layer && cpu->hooks)
        return request_part(cpu, chunk, lhi_cpu_item_part(chunk, item), err);
    uint32_t next = find_next_microbatch(cpu, chunk, item);
    while (next != LH_NONE && item->requested[next]) {
        add_next_microbatch(cpu, chunk, item);
        next = find_next_microbatch(cpu, chunk, item);
    }
    return LH_OK;
}

lh_status lhi_cpu_request_layer_gradients(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                          uint32_t layer, uint32_t microbatch,
                                          lh_error *err)
{
    for (uint32_t i = 0; i < chunk->n_items; i++)
        if (lhi_cpu_is_layer_item(&chunk->items[i]) &&
            chunk->items[i].layer == layer)
            LHI_TRY(
                request_item(cpu, chunk, &chunk->items[i], microbatch, err));
    return LH_OK;
}

lh_status lhi_cpu_run_wgrad(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                            const lh_pass *pass, lh_error *err)
{
    uint32_t m = pass->microbatch, n = pass->n_parts ? pass->n_parts : 1;
    const lhi_cpu_microbatch_state *slot = chunk->slots[m];
    bool early = !chunk->forward_done[m] || (slot && !slot->d_done);
    bool again = false, joint = pass->kind == LH_B;
    for (uint32_t i = 0; !joint && i < chunk->n_items; i++)
        again =
            again || (lhi_cpu_is_item_in_pass(chunk, &chunk->items[i], pass) &&
                      chunk->items[i].requested[m]);
    if (early || again)
        return lhi_fail(err, LH_EINVAL,
                        "W of chunk %u, microbatch %u, part %u of %u, runs %s",
                        chunk->chunk, m, pass->part, n,
                        early ? "before its D" : "twice");
    for (uint32_t i = 0; i < chunk->n_items; i++)
        if (lhi_cpu_is_item_in_pass(chunk, &chunk->items[i], pass) &&
            !(joint &&
              chunk->items[i].requested[m])) /* already run with its D */
            LHI_TRY(request_item(cpu, chunk, &chunk->items[i], m, err));
    return LH_OK;
}
