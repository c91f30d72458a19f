/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputed activations. F does not keep these parts of a layer; D recomputes
 * them with the same calls on the same operands, so all bits are equal. Layers
 * share the buffers: F holds them while it runs, D until the layer's W is done.
 */
#include "dev/cpu_experts.h"

#include <string.h>

/* Checks whether the bit set contains the part. */
static bool has(uint32_t again, lh_layer_part part)
{
    return again >> part & 1;
}

/* Returns the pointer that holds a part's buffer. */
static float **place_of(lhi_cpu_kept *kept, lh_layer_part part)
{
    float **const places[LH_N_LAYER_PARTS] = {
        [LH_PART_ATTENTION_NORM] = &kept->norm1,
        [LH_PART_QKV] = &kept->qkv,
        [LH_PART_ATTENTION] = &kept->attended,
        [LH_PART_ATTENTION_OUTPUT] = &kept->mid,
        [LH_PART_MLP_NORM] = &kept->norm2,
        [LH_PART_GATE_UP] = &kept->gate_up,
        [LH_PART_ACTIVATION] = &kept->act,
        [LH_PART_LATENT] = &kept->q_latent,
        [LH_PART_SHARED_GATE_UP] = &kept->shared_gate_up,
        [LH_PART_SHARED_ACTIVATION] = &kept->shared_act,
    };
    return places[part];
}

/* Allocates a part's buffer. */
static float *make_room(const lhi_cpu *cpu, lh_layer_part part, bool moe,
                        lhi_arena *in)
{
    double n = lhi_cpu_part_floats(cpu, part, moe);
    return n < 0x1p53 ? lhi_cpu_floats(in, (size_t)n, 1) : NULL;
}

/* Takes a buffer from a free list, or allocates one. Each free buffer begins
 * with the address of the next. */
static float *take_room(lhi_cpu *cpu, float **spare, lh_layer_part part,
                        bool moe, lhi_arena *in)
{
    float *room = *spare;
    if (!room)
        return make_room(cpu, part, moe, in);
    memcpy(spare, (const void *)room, sizeof(float *));
    return room;
}

/* Sets the pointers to the arrays that follow a part's first array in its
 * buffer. */
static void divide_rooms(const lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t parts)
{
    size_t t = cpu->t;
    if (has(parts, LH_PART_ATTENTION)) {
        kept->max = kept->attended + t * cpu->o;
        kept->inv = kept->max + t * cpu->heads;
    }
    if (has(parts, LH_PART_QKV) && cpu->head_norms) {
        kept->plain_q = kept->qkv + t * cpu->qkv;
        kept->plain_k = kept->plain_q + t * cpu->q;
        kept->inv_q = kept->plain_k + t * cpu->kv;
        kept->inv_k = kept->inv_q + t * cpu->heads;
    }
    if (has(parts, LH_PART_LATENT) && cpu->kv_rank) {
        kept->q_normed = kept->q_latent + t * cpu->q_rank;
        kept->kv_latent = kept->q_normed + t * cpu->q_rank;
        kept->kv_normed = kept->kv_latent + t * (cpu->kv_rank + cpu->rope);
        kept->inv_q = kept->kv_normed + t * cpu->kv_rank;
        kept->inv_k = kept->inv_q + t;
    }
}

/* Attaches buffers for `parts`. `spare` has the free lists, indexed by whether
 * the layer has experts; NULL: allocate permanent buffers. */
static bool attach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t parts,
                   float *(*spare)[LH_N_LAYER_PARTS], lhi_arena *in)
{
    for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
        lh_layer_part part = (lh_layer_part)i;
        if (!has(parts, part) ||
            !(lhi_cpu_part_floats(cpu, part, kept->moe) > 0))
            continue;
        float *room =
            spare ? take_room(cpu, &spare[kept->moe][i], part, kept->moe, in)
                  : make_room(cpu, part, kept->moe, in);
        if (!room)
            return false;
        *place_of(kept, part) = room;
    }
    divide_rooms(cpu, kept, parts);
    return true;
}

/* Returns the buffers of `parts` to the free lists. */
static void detach(lhi_cpu_kept *kept, uint32_t parts,
                   float *(*spare)[LH_N_LAYER_PARTS])
{
    for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
        float **place = place_of(kept, (lh_layer_part)i);
        if (!has(parts, (lh_layer_part)i) || !*place)
            continue;
        memcpy((void *)*place, &spare[kept->moe][i], sizeof(float *));
        spare[kept->moe][i] = *place;
        *place = NULL;
    }
}

bool lhi_cpu_attach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again)
{
    return attach(cpu, kept, again, cpu->spare, cpu->mem);
}

bool lhi_cpu_attach_away(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t away)
{
    return attach(cpu, kept, away, cpu->spare_away, cpu->activations);
}

bool lhi_cpu_attach_kept(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t parts)
{
    return attach(cpu, kept, parts, NULL, cpu->activations);
}

void lhi_cpu_detach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again)
{
    detach(kept, again, cpu->spare);
}

void lhi_cpu_detach_away(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t away)
{
    detach(kept, away, cpu->spare_away);
}

float *lhi_cpu_place(lhi_cpu_kept *kept, lh_layer_part part)
{
    return *place_of(kept, part);
}

/* Computes x w' + bias from partial products, with a reduction over the
 * tensor-parallel ranks. */
static void shared_product(lhi_cpu *cpu, const float *x, const float *w,
                           const float *bias, uint32_t in, float *out)
{
    lhi_cpu_linear(cpu, x, w, NULL, cpu->summands, in, cpu->h, false);
    lhi_cpu_add_rows(cpu, cpu->summands, out);
    if (bias)
        cpu->k->add_row(out, bias, cpu->r, cpu->h);
}

void lhi_cpu_residual(lhi_cpu *cpu, const lhi_cpu_kept *kept,
                      lhi_drop_site site, const float *residual, const float *x,
                      const float *w, const float *bias, uint32_t in,
                      float *out)
{
    size_t n = (size_t)cpu->r * cpu->h;
    bool adds = !lhi_cpu_drops(cpu) && !cpu->group;
    if (adds)
        memcpy(out, residual, n * sizeof *out);
    if (cpu->group)
        shared_product(cpu, x, w, bias, in, out);
    else
        lhi_cpu_linear(cpu, x, w, bias, out, in, cpu->h, adds);
    if (!adds) {
        lhi_cpu_drop_all(cpu, (lhi_drop){kept->sample, kept->layer, site}, out);
        cpu->k->add(out, residual, n);
    }
}

static void make_qkv(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                     lhi_cpu_kept *kept)
{
    if (cpu->kv_rank) {
        lhi_cpu_from_latents(cpu, w, kept);
        return;
    }
    lhi_cpu_linear(cpu, kept->norm1, w->qkv, w->qkv_bias, kept->qkv, cpu->h,
                   cpu->qkv, false);
    if (cpu->head_norms)
        lhi_cpu_norm_heads(cpu, w, kept);
    lhi_cpu_turn(cpu, kept);
}

/* Computes the norm of the local rows and, if `gathers`, all-gathers the
 * result. */
static void norm_rows(lhi_cpu *cpu, const float *x, const float *weight,
                      float *out, float *inv, bool gathers)
{
    float *own = lhi_cpu_own_rows(cpu, out);
    lhi_cpu_norm(cpu, x, weight, own, inv);
    if (gathers)
        lhi_cpu_gather_rows(cpu, own, out);
}

void lhi_cpu_make_again(lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept, const float *x, uint32_t again)
{
    uint32_t h = cpu->h;
    if (has(again, LH_PART_ATTENTION_NORM))
        norm_rows(cpu, x, w->norm1, kept->norm1, kept->inv1, true);
    if (has(again, LH_PART_LATENT) && cpu->kv_rank)
        lhi_cpu_latents(cpu, w, kept);
    if (has(again, LH_PART_QKV))
        make_qkv(cpu, w, kept);
    if (has(again, LH_PART_ATTENTION))
        lhi_cpu_attend(cpu, kept);
    if (has(again, LH_PART_ATTENTION_OUTPUT) && !lhi_cpu_adds_both(cpu))
        lhi_cpu_residual(cpu, kept, LHI_DROP_ATTENTION, x, kept->attended,
                         w->out, w->out_bias, cpu->o, kept->mid);
    if (has(again, LH_PART_MLP_NORM) && !cpu->parallel)
        norm_rows(cpu, kept->mid, w->norm2, kept->norm2, kept->inv2,
                  lhi_cpu_gathers_mlp(cpu, kept->moe));
    if (has(again, LH_PART_SHARED_GATE_UP) && kept->moe)
        lhi_cpu_shared_up(cpu, w, kept);
    if (has(again, LH_PART_SHARED_ACTIVATION) && kept->moe)
        lhi_cpu_shared_act(cpu, w, kept);
    if (has(again, LH_PART_GATE_UP) && kept->moe)
        lhi_cpu_experts_up(cpu, w, kept);
    else if (has(again, LH_PART_GATE_UP))
        lhi_cpu_linear(cpu, cpu->parallel ? kept->norm1 : kept->norm2,
                       w->gate_up, w->gate_up_bias, kept->gate_up, h, cpu->up,
                       false);
    if (has(again, LH_PART_ACTIVATION) && kept->moe)
        lhi_cpu_experts_act(cpu, kept);
    else if (has(again, LH_PART_ACTIVATION) && cpu->gated)
        cpu->k->swiglu(kept->gate_up, kept->act, cpu->t, cpu->f);
    else if (has(again, LH_PART_ACTIVATION))
        cpu->k->gelu(kept->gate_up, kept->act, (size_t)cpu->t * cpu->f);
}
