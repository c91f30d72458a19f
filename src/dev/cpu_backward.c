/* SPDX-License-Identifier: Apache-2.0 */
/* D: computes the gradient of a chunk's input from that of its output. Leaves
 * the operands of W in place. */
#include "base/fail.h"
#include "dev/cpu_experts.h"
#include "dev/cpu_modules.h"
#include "dev/cpu_shards.h"

#include <string.h>

/* Computes the gradient of norm2, into the scratch buffer, from the MLP
 * output's gradient d. */
static void mlp_back(lhi_cpu *cpu, const lhi_cpu_weights *w, lhi_cpu_kept *a,
                     const float *d)
{
    float *wide = cpu->wide;
    if (a->moe) {
        lhi_cpu_experts_back(cpu, w, a, d);
        return;
    }
    lhi_cpu_linear_input(cpu, d, w->down, wide, cpu->f, cpu->h);
    if (cpu->gated)
        cpu->k->swiglu_back(a->gate_up, wide, cpu->t, cpu->f);
    else
        cpu->k->gelu_back(a->gate_up, wide, (size_t)cpu->t * cpu->f);
    lhi_cpu_linear_input(cpu, a->gate_up, w->gate_up, wide, cpu->h, cpu->up);
}

/* Returns the gradient before the dropout at `at`, given d, the gradient after
 * it. With tensor parallelism it gathers all rows into `all`, where W finds
 * them. */
static const float *before_drop(lhi_cpu *cpu, lhi_drop at, const float *d,
                                float *all)
{
    const float *own = lhi_cpu_drop_back(cpu, at, d);
    if (!lhi_cpu_shares_rows(cpu))
        return own;
    lhi_cpu_gather_rows(cpu, own, all);
    return all;
}

/* Computes a norm's input gradient, in the place of x, from the output gradient
 * in the scratch buffer. */
static void norm_back(lhi_cpu *cpu, const float *weight, const float *inv,
                      const float *add, float *x, float *d_weight)
{
    float *own = lhi_cpu_own_rows(cpu, cpu->wide);
    lhi_cpu_add_rows(cpu, cpu->wide, own);
    lhi_cpu_norm_back(cpu, own, weight, inv, add, x, d_weight);
}

/* Computes the gradient of norm1, into the scratch buffer, from the attention
 * output's gradient d. */
static void attention_back(lhi_cpu *cpu, const lhi_cpu_weights *w,
                           lhi_cpu_kept *a, const float *d)
{
    float *wide = cpu->wide;
    lhi_cpu_linear_input(cpu, d, w->out, wide, cpu->o, cpu->h);
    lhi_cpu_attend_back(cpu, a, wide);
    if (cpu->kv_rank) {
        lhi_cpu_latents_back(cpu, w, a);
        return;
    }
    if (cpu->head_norms)
        lhi_cpu_norm_heads_back(cpu, w, a);
    lhi_cpu_linear_input(cpu, a->qkv, w->qkv, wide, cpu->h, cpu->qkv);
}

/* Computes the gradients of a parallel block, whose attention and MLP both read
 * norm1 and add to x. */
static void parallel_back(lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_kept *a, float *d, float *x)
{
    size_t n = (size_t)cpu->t * cpu->h;
    lhi_drop at = {a->sample, a->layer, LHI_DROP_MLP};
    lhi_drop also = {a->sample, a->layer, LHI_DROP_ATTENTION};
    memcpy(a->mid, d, (size_t)cpu->r * cpu->h * sizeof *d);
    mlp_back(cpu, w, a, before_drop(cpu, at, d, a->d_down));
    lhi_cpu_keep_dropped(cpu, d);
    memcpy(cpu->beside, cpu->wide, n * sizeof *d);
    if (lhi_cpu_adds_both(cpu) && lhi_cpu_shares_rows(cpu)) {
        /* attention and MLP outputs have the same gradient */
        memcpy(a->d_out, a->d_down, n * sizeof *d);
        attention_back(cpu, w, a, a->d_out);
    } else {
        attention_back(cpu, w, a, before_drop(cpu, also, a->mid, a->d_out));
    }
    cpu->k->add(cpu->wide, cpu->beside, n);
    norm_back(cpu, w->norm1, a->inv1, a->mid, x, a->d_norm1);
    lhi_cpu_keep_dropped(cpu, a->mid);
}

/* Computes a layer's input gradient in the place of x. `d` has the layer's
 * output gradient and afterwards the gradient of the last summand. */
static void layer_back(lhi_cpu *cpu, const lhi_cpu_weights *w, lhi_cpu_kept *a,
                       float *d, float *x)
{
    lhi_drop at = {a->sample, a->layer, LHI_DROP_MLP};
    lhi_drop also = {a->sample, a->layer, LHI_DROP_ATTENTION};
    if (cpu->parallel) {
        parallel_back(cpu, w, a, d, x);
        return;
    }
    if (a->moe) { /* input and output: local rows only */
        mlp_back(cpu, w, a, lhi_cpu_drop_back(cpu, at, d));
        lhi_cpu_norm_back(cpu, cpu->wide, w->norm2, a->inv2, d, a->mid,
                          a->d_norm2);
    } else {
        mlp_back(cpu, w, a, before_drop(cpu, at, d, a->d_down));
        norm_back(cpu, w->norm2, a->inv2, d, a->mid, a->d_norm2);
    }
    lhi_cpu_keep_dropped(cpu, d);
    attention_back(cpu, w, a, before_drop(cpu, also, a->mid, a->d_out));
    norm_back(cpu, w->norm1, a->inv1, a->mid, x, a->d_norm1);
    lhi_cpu_keep_dropped(cpu, a->mid);
}

/* Runs D for the chunk's layer `layer`, or a module's layer. */
static lh_status run_layer_back(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                                const lhi_cpu_slot *slot, uint32_t layer,
                                lh_error *err)
{
    lhi_cpu_kept *kept = &slot->layers[layer];
    const lhi_cpu_weights *w = &chunk->weights[layer];
    uint32_t at = lhi_cpu_input(chunk, layer);
    if (!lhi_cpu_attach(cpu, kept, chunk->again[layer]))
        return lhi_fail_nomem(err);
    lhi_cpu_make_again(cpu, w, kept, slot->x[at], chunk->again[layer]);
    layer_back(cpu, w, kept, slot->x[at + 1], slot->x[at]);
    return LH_OK;
}

/* Runs D for the modules, last one first, before the model's own head.
 * cpu->carried then has the gradient of the state that the first module read.
 */
static lh_status modules_back(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                              uint32_t microbatch, bool joint, lh_error *err)
{
    const lhi_cpu_slot *slot = chunk->slots[microbatch];
    for (uint32_t k = chunk->n_modules; k-- > 0;) {
        uint32_t layer = chunk->n_layers + k;
        lhi_cpu_module_loss_back(cpu, chunk, slot, k);
        LHI_TRY(run_layer_back(cpu, chunk, slot, layer, err));
        lhi_cpu_join_back(cpu, chunk, slot, microbatch, k);
        if (joint)
            LHI_TRY(lhi_cpu_ask_layer(cpu, chunk, layer, microbatch, err));
    }
    return LH_OK;
}

lh_status lhi_cpu_d(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t microbatch,
                    bool joint, const float *in, float *out, lh_error *err)
{
    lhi_cpu_slot *slot = chunk->slots[microbatch];
    uint32_t n = chunk->n_layers;
    if (!slot || slot->is_back)
        return lhi_fail(err, LH_EINVAL,
                        "D of chunk %u, microbatch %u, comes %s", chunk->chunk,
                        microbatch, slot ? "twice" : "before its F");
    if (slot->stored)
        return lhi_fail(err, LH_EINVAL,
                        "D of chunk %u, microbatch %u, comes before what it "
                        "needs is back from storage",
                        chunk->chunk, microbatch);
    if (chunk->is_last) {
        LHI_TRY(lhi_cpu_take_values(cpu, chunk, chunk->n_parts - 1, true, err));
        LHI_TRY(modules_back(cpu, chunk, microbatch, joint, err));
        lhi_cpu_judge_back(cpu, chunk->norm, chunk->head, slot->logits,
                           slot->inv, chunk->n_modules ? cpu->carried : NULL,
                           slot->x[n], slot->d_norm);
    } else {
        lhi_cpu_take_message(cpu, in, slot->x[n]);
    }
    for (uint32_t i = n; i-- > 0;) {
        LHI_TRY(
            lhi_cpu_take_values(cpu, chunk, chunk->is_first + i, true, err));
        LHI_TRY(run_layer_back(cpu, chunk, slot, i, err));
        if (joint && i > 0)
            LHI_TRY(lhi_cpu_ask_layer(cpu, chunk, i, microbatch, err));
    }
    if (chunk->is_first) {
        /* D does not read the embedding, but FSDP2 gathers it anyway and plans
         * model that transfer. */
        LHI_TRY(lhi_cpu_take_values(cpu, chunk, 0, true, err));
        lhi_cpu_drop_all(cpu, lhi_cpu_embedding_drop(cpu, microbatch),
                         slot->x[0]);
        if (lhi_cpu_shares_rows(cpu))
            lhi_cpu_gather_rows(cpu, slot->x[0], slot->d_embedded);
    } else {
        lhi_cpu_put_message(cpu, slot->x[0], out);
    }
    slot->is_back = true;
    return LH_OK;
}
