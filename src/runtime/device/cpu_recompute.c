/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputed activations. F does not keep these parts of a layer; D recomputes
 * them with the same calls on the same operands, so all bits are equal. Layers
 * share the buffers: F holds them while it runs, D until the layer's W is done.
 */
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_experts.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <string.h>

/* Checks whether the bit set `again` contains the activation part. */
static bool contains_part(uint32_t again, lh_layer_part part)
{
    return again >> part & 1;
}

/* Returns the address of the pointer to a part's buffer in the saved
 * activations. */
static float **get_part_pointer(lhi_cpu_saved_activations *kept,
                                lh_layer_part part)
{
    float **const places[LH_N_LAYER_PARTS] = {
        [LH_PART_ATTENTION_NORM] = &kept->norm1,
        [LH_PART_QKV] = &kept->qkv,
        [LH_PART_ATTENTION] = &kept->attention_output,
        [LH_PART_ATTENTION_OUTPUT] = &kept->residual,
        [LH_PART_MLP_NORM] = &kept->norm2,
        [LH_PART_GATE_UP] = &kept->gate_up,
        [LH_PART_ACTIVATION] = &kept->act,
        [LH_PART_LATENT] = &kept->q_latent,
        [LH_PART_SHARED_GATE_UP] = &kept->shared_gate_up,
        [LH_PART_SHARED_ACTIVATION] = &kept->shared_act,
    };
    return places[part];
}

/* Allocates a buffer for one part of a layer's activations, such as qkv;
 * `moe`: for a layer with experts. */
static float *alloc_buffer(const lhi_cpu *cpu, lh_layer_part part, bool moe,
                           lhi_arena *in)
{
    double n = lhi_cpu_part_floats(cpu, part, moe);
    return n < 0x1p53 ? lhi_cpu_alloc_floats(in, (size_t)n, 1) : NULL;
}

/* Takes a buffer for an activation part (`moe`: in a layer with experts) from
 * the free list `spare`, or allocates one. Each free buffer begins with the
 * address of the next. */
static float *take_buffer(lhi_cpu *cpu, float **spare, lh_layer_part part,
                          bool moe, lhi_arena *in)
{
    float *room = *spare;
    if (!room)
        return alloc_buffer(cpu, part, moe, in);
    memcpy(spare, (const void *)room, sizeof(float *));
    return room;
}

/* Sets the pointers to the secondary arrays that follow the first array in the
 * buffers of `parts` (softmax statistics, norm inputs). */
static void set_subarrays(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                          uint32_t parts)
{
    size_t t = cpu->t;
    if (contains_part(parts, LH_PART_ATTENTION)) {
        kept->max = kept->attention_output + t * cpu->o;
        kept->inv = kept->max + t * cpu->heads;
    }
    if (contains_part(parts, LH_PART_QKV) && cpu->head_norms) {
        kept->q_before_norm = kept->qkv + t * cpu->qkv;
        kept->k_before_norm = kept->q_before_norm + t * cpu->q;
        kept->inv_q = kept->k_before_norm + t * cpu->kv;
        kept->inv_k = kept->inv_q + t * cpu->heads;
    }
    if (contains_part(parts, LH_PART_LATENT) && cpu->kv_rank) {
        kept->q_normed = kept->q_latent + t * cpu->q_rank;
        kept->kv_latent = kept->q_normed + t * cpu->q_rank;
        kept->kv_normed = kept->kv_latent + t * (cpu->kv_rank + cpu->rope_dim);
        kept->inv_q = kept->kv_normed + t * cpu->kv_rank;
        kept->inv_k = kept->inv_q + t;
    }
}

/* Gives a layer's saved activations a buffer for each part in the bit set
 * `parts`. `spare` has the free lists, indexed by whether the layer has
 * experts; NULL: allocates permanent buffers. False: out of memory. */
static bool attach(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                   uint32_t parts, float *(*spare)[LH_N_LAYER_PARTS],
                   lhi_arena *in)
{
    for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
        lh_layer_part part = (lh_layer_part)i;
        if (!contains_part(parts, part) ||
            !(lhi_cpu_part_floats(cpu, part, kept->moe) > 0))
            continue;
        float *room =
            spare ? take_buffer(cpu, &spare[kept->moe][i], part, kept->moe, in)
                  : alloc_buffer(cpu, part, kept->moe, in);
        if (!room)
            return false;
        *get_part_pointer(kept, part) = room;
    }
    set_subarrays(cpu, kept, parts);
    return true;
}

/* Returns the buffers of the activation parts in the bit set `parts` to the
 * free lists `spare`. */
static void detach(lhi_cpu_saved_activations *kept, uint32_t parts,
                   float *(*spare)[LH_N_LAYER_PARTS])
{
    for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
        float **place = get_part_pointer(kept, (lh_layer_part)i);
        if (!contains_part(parts, (lh_layer_part)i) || !*place)
            continue;
        memcpy((void *)*place, &spare[kept->moe][i], sizeof(float *));
        spare[kept->moe][i] = *place;
        *place = NULL;
    }
}

bool lhi_cpu_attach_recompute_buffers(lhi_cpu *cpu,
                                      lhi_cpu_saved_activations *kept,
                                      uint32_t again)
{
    return attach(cpu, kept, again, cpu->recompute_free, cpu->mem);
}

bool lhi_cpu_attach_offload_buffers(lhi_cpu *cpu,
                                    lhi_cpu_saved_activations *kept,
                                    uint32_t away)
{
    return attach(cpu, kept, away, cpu->offload_free, cpu->activations);
}

bool lhi_cpu_attach_permanent_buffers(lhi_cpu *cpu,
                                      lhi_cpu_saved_activations *kept,
                                      uint32_t parts)
{
    return attach(cpu, kept, parts, NULL, cpu->activations);
}

void lhi_cpu_detach_recompute_buffers(lhi_cpu *cpu,
                                      lhi_cpu_saved_activations *kept,
                                      uint32_t again)
{
    detach(kept, again, cpu->recompute_free);
}

void lhi_cpu_detach_offload_buffers(lhi_cpu *cpu,
                                    lhi_cpu_saved_activations *kept,
                                    uint32_t away)
{
    detach(kept, away, cpu->offload_free);
}

float *lhi_cpu_part_buffer(lhi_cpu_saved_activations *kept, lh_layer_part part)
{
    return *get_part_pointer(kept, part);
}

/* Computes x w' + bias for a weight split by input columns: local product,
 * then a reduction over the tensor-parallel ranks. */
static void compute_row_parallel_product(lhi_cpu *cpu, const float *x,
                                         const float *w, const float *bias,
                                         uint32_t in, float *out)
{
    lhi_cpu_linear(cpu, x, w, NULL, cpu->summands, in, cpu->h, false);
    lhi_cpu_reduce_scatter_rows(cpu, cpu->summands, out);
    if (bias)
        cpu->k->add_row(out, bias, cpu->r, cpu->h);
}

void lhi_cpu_residual(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                      lhi_drop_site site, const float *residual, const float *x,
                      const float *w, const float *bias, uint32_t in,
                      float *out)
{
    size_t n = (size_t)cpu->r * cpu->h;
    bool adds = !lhi_cpu_has_dropout(cpu) && !cpu->tensor_group;
    if (adds)
        memcpy(out, residual, n * sizeof *out);
    if (cpu->tensor_group)
        compute_row_parallel_product(cpu, x, w, bias, in, out);
    else
        lhi_cpu_linear(cpu, x, w, bias, out, in, cpu->h, adds);
    if (!adds) {
        lhi_cpu_apply_dropout_rows(
            cpu, (lhi_drop){kept->sample, kept->layer, site}, out);
        cpu->k->add(out, residual, n);
    }
}

/* Computes queries, keys and values from the normed input, including rotary
 * positions. */
static void make_qkv(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                     lhi_cpu_saved_activations *kept)
{
    if (cpu->kv_rank) {
        lhi_cpu_compute_qkv_from_latents(cpu, w, kept);
        return;
    }
    lhi_cpu_linear(cpu, kept->norm1, w->qkv, w->qkv_bias, kept->qkv, cpu->h,
                   cpu->qkv, false);
    if (cpu->head_norms)
        lhi_cpu_norm_heads(cpu, w, kept);
    lhi_cpu_apply_rotary(cpu, kept);
}

/* Computes the norm of this rank's rows x into `out`, and their inverse
 * deviations into `inv`; with `gathers` all-gathers the rows of all
 * tensor-parallel ranks. */
static void norm_rows(lhi_cpu *cpu, const float *x, const float *weight,
                      float *out, float *inv, bool gathers)
{
    float *own = lhi_cpu_own_rows(cpu, out);
    lhi_cpu_norm(cpu, x, weight, own, inv);
    if (gathers)
        lhi_cpu_gather_rows(cpu, own, out);
}

void lhi_cpu_recompute_parts(lhi_cpu *cpu, const lhi_cpu_weights *w,
                             lhi_cpu_saved_activations *kept, const float *x,
                             uint32_t again)
{
    uint32_t h = cpu->h;
    if (contains_part(again, LH_PART_ATTENTION_NORM))
        norm_rows(cpu, x, w->norm1, kept->norm1, kept->inv1, true);
    if (contains_part(again, LH_PART_LATENT) && cpu->kv_rank)
        lhi_cpu_compute_latents(cpu, w, kept);
    if (contains_part(again, LH_PART_QKV))
        make_qkv(cpu, w, kept);
    if (contains_part(again, LH_PART_ATTENTION))
        lhi_cpu_attention_forward(cpu, kept);
    if (contains_part(again, LH_PART_ATTENTION_OUTPUT) &&
        !lhi_cpu_fuses_block_reduction(cpu))
        lhi_cpu_residual(cpu, kept, LHI_DROP_ATTENTION, x,
                         kept->attention_output, w->out, w->out_bias, cpu->o,
                         kept->residual);
    if (contains_part(again, LH_PART_MLP_NORM) && !cpu->parallel)
        norm_rows(cpu, kept->residual, w->norm2, kept->norm2, kept->inv2,
                  lhi_cpu_mlp_gathers_rows(cpu, kept->moe));
    if (contains_part(again, LH_PART_SHARED_GATE_UP) && kept->moe)
        lhi_cpu_shared_experts_up(cpu, w, kept);
    if (contains_part(again, LH_PART_SHARED_ACTIVATION) && kept->moe)
        lhi_cpu_shared_experts_act(cpu, w, kept);
    if (contains_part(again, LH_PART_GATE_UP) && kept->moe)
        lhi_cpu_experts_up(cpu, w, kept);
    else if (contains_part(again, LH_PART_GATE_UP))
        lhi_cpu_linear(cpu, cpu->parallel ? kept->norm1 : kept->norm2,
                       w->gate_up, w->gate_up_bias, kept->gate_up, h, cpu->up,
                       false);
    if (contains_part(again, LH_PART_ACTIVATION) && kept->moe)
        lhi_cpu_experts_act(cpu, kept);
    else if (contains_part(again, LH_PART_ACTIVATION) && cpu->gated)
        cpu->k->swiglu(kept->gate_up, kept->act, cpu->t, cpu->f, cpu->bf16);
    else if (contains_part(again, LH_PART_ACTIVATION))
        cpu->k->gelu(kept->gate_up, kept->act, (size_t)cpu->t * cpu->f);
}
