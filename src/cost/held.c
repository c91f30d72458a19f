/* SPDX-License-Identifier: Apache-2.0 */
/* Resident memory that passes retain for later ones, and parameters per GPU.
 *
 * [Kor section 4.1] covers two-matrix MLPs in 16 bits with dropout: a layer
 * retains sbh(34 + 5as/h), divided among tensor-parallel GPUs as in its
 * equations 2 and 4. Here the sum is per tensor, so that it also covers gated
 * MLPs, grouped queries, experts and flash attention. */
#include "cost/work.h"

#include <math.h>

/* Bytes per token that an MLP retains. */
typedef struct mlp_parts {
    double into;    /* results of the first matrices */
    double product; /* result of the activation function, input of the last
                     * matrix */
} mlp_parts;

/* Bytes per token that each part of a layer retains. */
typedef struct parts {
    double input; /* layer input, all that full recompute retains */
    double norms; /* outputs of the norms */
    double core;  /* unfused: scores; otherwise log-sum-exp */
    double heads; /* queries, keys and values */
    mlp_parts dense, routed, shared;
    double moved; /* tokens to and from experts, and the routing */
    double rest;
    double linear_in, linear_grad; /* matrix products: inputs; output gradients
                                    * ([Qi] table 1: 32sbh) */
} parts;

static void keep_attention(const lhi_shape *shape, parts *p)
{
    const lh_model *m = shape->model;
    double e = shape->element;
    double hidden = m->hidden * shape->norm_share;
    double q = shape->heads * shape->qk_dim;
    double kv = shape->kv_heads * (shape->qk_dim + shape->v_dim);
    double o = shape->heads * shape->v_dim;
    double latent = 0;

    if (m->kv_lora_rank)
        latent = (double)m->q_lora_rank + m->kv_lora_rank + m->qk_rope_head_dim;
    p->input += e * hidden;
    p->norms += shape->factor * hidden;
    p->heads += e * (q + kv);
    p->rest += e * (o + latent);
    if (shape->fp8) /* in addition to attention's own copy */
        p->rest += shape->factor * o;
    if (shape->dropout)
        p->rest += hidden;
    if (shape->unfused) {
        double scores = shape->heads * shape->sequence;
        p->core += scores * (shape->dropout ? 2 * e + 1 : e);
    } else {
        p->core += 4 * shape->heads; /* log-sum-exp, fp32 */
    }
    p->linear_in += shape->factor * (hidden + o + latent);
    p->linear_grad += shape->factor * (q + kv + hidden + latent);
}

/* Adds an MLP that processes `rows` copies of each token. */
static void keep_mlp(const lhi_shape *shape, double rows, double local,
                     mlp_parts *mlp, parts *p)
{
    double e = shape->element;
    double inner = rows * local;
    double into = (shape->model->gated ? 2 : 1) * inner;

    mlp->into += e * into;
    mlp->product += shape->factor * inner;
    p->linear_in += shape->factor * inner;
    p->linear_grad += shape->factor * into;
}

static void keep_layer(const lhi_shape *shape, uint32_t layer, parts *p)
{
    const lh_model *m = shape->model;
    double e = shape->element;
    double hidden = m->hidden * shape->norm_share;

    keep_attention(shape, p);
    if (!m->parallel_block) {
        p->rest += e * hidden; /* the second norm's input */
        p->norms += shape->factor * hidden;
    }
    if (shape->dropout)
        p->rest += hidden;
    if (!lh_model_layer_is_moe(m, layer)) {
        keep_mlp(shape, 1, (double)m->ffn / shape->tensor, &p->dense, p);
        p->linear_in += shape->factor * hidden;
        p->linear_grad += shape->factor * hidden;
        return;
    }
    /* Dispatched tokens, including those gathered by all GPUs that share an
     * expert, and the experts' results where the router weights them. */
    double moved = e * m->hidden * shape->dispatched;
    double gathered = shape->factor * m->hidden * shape->dispatched *
                      (shape->folded ? shape->expert_tensor : 1);
    double routed = 4.0 * m->experts * shape->norm_share;
    p->moved += gathered + routed;
    if (shape->weighs_results)
        p->moved += moved;
    keep_mlp(shape, shape->expert_rows,
             (double)m->expert_ffn / shape->expert_tensor, &p->routed, p);
    if (m->shared_expert_ffn)
        keep_mlp(shape, 1, (double)m->shared_expert_ffn / shape->tensor,
                 &p->shared, p);
    p->linear_in += gathered + e * hidden;
    p->linear_grad += gathered + routed;
    if (m->shared_expert_ffn)
        p->linear_grad += e * hidden;
}

static double of_mlp(const mlp_parts *mlp)
{
    return mlp->into + mlp->product;
}

/* Returns the bytes that the recomputed modules do not retain. Their inputs
 * remain resident, except inputs from a norm that is recomputed itself. */
static double dropped_by_modules(const lhi_shape *shape, const parts *p)
{
    double dropped = 0;

    if (lhi_recomputes(shape, LH_MODULE_CORE_ATTN))
        dropped += p->core;
    if (lhi_recomputes(shape, LH_MODULE_LAYERNORM))
        dropped += p->norms;
    if (lhi_recomputes(shape, LH_MODULE_MLA_UP_PROJ) &&
        shape->model->kv_lora_rank)
        dropped += p->heads;
    if (lhi_recomputes(shape, LH_MODULE_MLP))
        dropped += of_mlp(&p->dense);
    if (lhi_recomputes(shape, LH_MODULE_MOE))
        return dropped + p->moved + of_mlp(&p->routed) + of_mlp(&p->shared);
    if (lhi_recomputes(shape, LH_MODULE_MOE_ACT))
        dropped += p->routed.product;
    if (lhi_recomputes(shape, LH_MODULE_SHARED_EXPERTS))
        dropped += of_mlp(&p->shared);
    return dropped;
}

/* Returns the bytes per token that recomputation does not retain. */
static double dropped_by(const lhi_shape *shape, const parts *p, double whole)
{
    switch (shape->recompute) {
    case LH_RECOMPUTE_NONE:
    case LH_RECOMPUTE_OPERATIONS: /* subtracted by the elastic plan itself */
        return 0;
    case LH_RECOMPUTE_FULL:
        return whole - p->input;
    case LH_RECOMPUTE_MODULES:
        return dropped_by_modules(shape, p);
    case LH_RECOMPUTE_SELECTIVE:
        break;
    }
    if (shape->unfused)
        return p->core;
    return p->norms + p->dense.product + p->routed.product + p->shared.product;
}

void lhi_held_layer(const lhi_shape *shape, uint32_t layer, lhi_held *out)
{
    parts p = {0};
    double whole, dropped, e = shape->element;

    keep_layer(shape, layer, &p);
    whole = p.input + p.norms + p.core + p.heads + of_mlp(&p.dense) +
            of_mlp(&p.routed) + of_mlp(&p.shared) + p.moved + p.rest;
    dropped = dropped_by(shape, &p, whole);
    out->activation = (whole - dropped) * shape->tokens;
    out->weight_input = (p.linear_in + p.linear_grad) * shape->tokens;
    out->passing = dropped * shape->tokens;
    /* Keys and values that arrive while others are in use, and in D the
     * gradients of both. */
    if (shape->context > 1)
        out->passing += 4 * shape->kv_heads * (shape->qk_dim + shape->v_dim) *
                        shape->tokens * e;
}

double lhi_held_within(const lhi_shape *shape, uint32_t layer)
{
    parts p = {0};
    lhi_held held;

    keep_layer(shape, layer, &p);
    lhi_held_layer(shape, layer, &held);
    return fmax(held.activation - p.input * shape->tokens, 0);
}

void lhi_held_embedding(const lhi_shape *shape, lhi_held *out)
{
    double values = shape->tokens * shape->norm_share * shape->model->hidden;

    *out = (lhi_held){0};
    if (shape->dropout)
        out->activation = values;
    out->weight_input = values * shape->element; /* gradient of its rows */
}

/* Computes the head's resident memory [Kor section 4.3]: 4sbh/t (1 + v/h), the
 * inputs of norm and matrix, and logits in fp32. */
static void hold_vocabulary(const lhi_shape *shape, lhi_held *out)
{
    double values = shape->tokens * shape->norm_share * shape->model->hidden *
                    shape->element;
    double logits = shape->tokens * shape->vocab;

    out->activation += 2 * values + 4 * logits;
    out->weight_input += values + shape->element * logits;
}

void lhi_held_head(const lhi_shape *shape, lhi_held *out)
{
    *out = (lhi_held){0};
    for (uint32_t i = 0; i <= shape->model->mtp_layers; i++)
        hold_vocabulary(shape, out);
}

void lhi_held_mtp(const lhi_shape *shape, lhi_held *out)
{
    const lh_model *m = shape->model;
    const double n = m->mtp_layers;
    const double joined =
        2 * shape->tokens * shape->norm_share * m->hidden * shape->element;
    lhi_held layer;

    *out = (lhi_held){0};
    if (!m->mtp_layers)
        return;
    lhi_held_layer(shape, m->layers - 1, &layer);
    out->activation = n * (layer.activation + joined);
    out->weight_input = n * (layer.weight_input + joined);
    out->passing = layer.passing;
}

bool lhi_slice_has_mtp(const lh_model *model, const lh_cost_slice *slice)
{
    return model->mtp_layers && (slice->head ? slice->mtp == LH_MTP_WITH_HEAD
                                             : slice->mtp == LH_MTP_HERE);
}

bool lhi_slice_has_end(const lh_cost_slice *slice)
{
    return slice->head || slice->mtp == LH_MTP_HERE;
}

void lhi_params_slice(const lhi_shape *shape, const lh_cost_slice *slice,
                      lhi_params *out)
{
    const lh_model *m = shape->model;
    double t = shape->tensor;
    lh_layer_params sum =
        lh_model_range_params(m, slice->first_layer, slice->n_layers);
    double experts = (double)sum.experts;
    double split = (double)sum.attention + (double)sum.mlp;
    double whole = (double)sum.norms + (double)sum.router;
    double added = shape->added_words * m->hidden;

    if (slice->embedding)
        split += (double)lh_model_embedding_params(m) + added;
    if (slice->head)
        split += (double)lh_model_head_params(m) + added;
    if (lhi_slice_has_mtp(m, slice)) {
        /* The modules' layers are like the model's last one. */
        lh_layer_params last = lh_model_layer_params(m, m->layers - 1);

        split += (double)lh_model_mtp_params(m) -
                 (double)m->mtp_layers * (double)last.experts;
        experts += (double)m->mtp_layers * (double)last.experts;
    }
    /* A tied matrix already counted as the embedding is not counted again. */
    if (slice->embedding && slice->head && m->tied_embeddings)
        split -= (double)m->vocab * m->hidden + added;
    out->experts = ceil(experts / shape->expert_divisor);
    out->total = ceil(split / t) + whole + out->experts;
}
