/* SPDX-License-Identifier: Apache-2.0 */
/* Resident memory that passes retain for later ones, and parameters per GPU.
 *
 * [Kor section 4.1] covers two-matrix MLPs in 16 bits with dropout: a layer
 * retains sbh(34 + 5as/h), divided among tensor-parallel GPUs as in its
 * equations 2 and 4. Here the sum is per tensor, so that it also covers gated
 * MLPs, grouped queries, experts and flash attention. */
#include "format/job/model_size.h"
#include "format/job/parse.h"
#include "model/eager.h"

#include <math.h>

/* Bytes per token that an MLP retains. */
typedef struct mlp_bytes {
    double into;    /* results of the first matrices */
    double clamped; /* these results after clamping, the input of the
                     * activation function; 0: not clamped, or clamped within
                     * the function's kernel */
    double product; /* result of the activation function, input of the last
                     * matrix */
} mlp_bytes;

/* Bytes per token that each part of a layer retains. */
typedef struct layer_bytes {
    double input; /* layer input, all that full recompute retains */
    double norms; /* outputs of the norms */
    double core;  /* unfused: scores; otherwise log-sum-exp */
    double heads; /* queries, keys and values */
    mlp_bytes dense, routed, shared;
    double moved; /* tokens to and from experts, and the routing */
    double rest;
    double linear_in, linear_grad; /* matrix products: inputs; output gradients
                                    * ([Qi] table 1: 32sbh) */
} layer_bytes;

/* Adds the resident activation bytes per token of a gated delta network. It
 * keeps projections, the convolution's outputs, decays and learning rates in
 * fp32, the inverses of the chunks' triangular matrices, and outputs before and
 * after their gated norm. */
static void add_linear_attention(const lhi_shape *shape, layer_bytes *p)
{
    const lh_model *m = shape->model;
    double e = shape->element, t = shape->tensor;
    double hidden = m->hidden * shape->norm_share;
    double heads = m->linear_value_heads / t;
    double keys = (double)m->linear_key_heads * m->linear_key_head_dim / t;
    double values = heads * m->linear_value_head_dim;

    p->input += e * hidden;
    p->norms += shape->product_element * hidden;
    p->heads += e * (4 * keys + 3 * values) + 2 * 4 * heads;
    p->core += e * heads * LHI_LINEAR_CHUNK;
    p->rest += e * 2 * values;
    if (shape->dropout)
        p->rest += hidden;
    p->linear_in += shape->product_element * (hidden + values);
    p->linear_grad +=
        shape->product_element * (2 * keys + 2 * values + 2 * heads + hidden);
}

/* Adds the resident activation bytes per token of a Mamba-2 layer: the input
 * projection's outputs, and the core's before and after their gated norm. The
 * fused kernel computes the convolution and states again (mamba_ssm 2.2,
 * MambaSplitConv1dScanCombinedFn). */
static void add_mamba(const lhi_shape *shape, layer_bytes *p)
{
    const lh_model *m = shape->model;
    double hidden = m->hidden * shape->norm_share;
    double values = (double)m->mamba_heads * m->mamba_head_dim / shape->tensor;
    double projected = lhi_count_mamba_inputs(shape);

    p->input += shape->element * hidden;
    p->norms += shape->product_element * hidden;
    p->heads += shape->element * projected;
    p->rest += shape->element * 2 * values;
    if (shape->dropout)
        p->rest += hidden;
    p->linear_in += shape->product_element * (hidden + values);
    p->linear_grad += shape->product_element * (projected + hidden);
}

double lhi_count_indexer_bytes(const lhi_shape *shape)
{
    const lh_model *m = shape->model;

    if (!m->index_topk)
        return 0;
    return shape->element *
               ((double)m->index_head_dim * (m->index_heads + 1.0) +
                m->index_heads) +
           4 * fmin(m->index_topk, shape->sequence);
}

/* Adds the resident activation bytes per token of one attention block to the
 * sums of its layer. */
static void add_attention(const lhi_shape *shape, uint32_t layer,
                          layer_bytes *p)
{
    const lh_model *m = shape->model;
    double e = shape->element;
    double hidden = m->hidden * shape->norm_share;
    double q = shape->heads * shape->qk_dim;
    double kv = shape->attention_kv_heads * (shape->qk_dim + shape->v_dim);
    double o = shape->heads * shape->v_dim;
    double latent = 0;

    switch (lhi_model_layer_mixer(m, layer)) {
    case LHI_MIXER_NONE: /* the MLP's input and norm */
        p->input += e * hidden;
        p->norms += shape->product_element * hidden;
        return;
    case LHI_MIXER_LINEAR:
        add_linear_attention(shape, p);
        return;
    case LHI_MIXER_MAMBA:
        add_mamba(shape, p);
        return;
    case LHI_MIXER_ATTENTION:
        break;
    }
    if (m->attention_gate)
        q *= 2;
    if (m->kv_lora_rank)
        latent = (double)m->q_lora_rank + m->kv_lora_rank + m->qk_rope_head_dim;
    p->input += e * hidden;
    p->norms += shape->product_element * hidden;
    p->heads += e * (q + kv);
    p->rest += e * (o + latent) + lhi_count_indexer_bytes(shape);
    if (m->attention_gate) /* before and after the gate */
        p->rest += e * o;
    if (shape->fp8) /* in addition to attention's own copy */
        p->rest += shape->product_element * o;
    if (shape->dropout)
        p->rest += hidden;
    if (shape->unfused) {
        double scores = shape->heads * shape->sequence;
        p->core += scores * (shape->dropout ? 2 * e + 1 : e);
    } else {
        p->core += 4 * shape->heads; /* log-sum-exp, fp32 */
    }
    p->linear_in += shape->product_element * (hidden + o + latent);
    p->linear_grad += shape->product_element * (q + kv + hidden + latent);
}

/* Adds the resident activation bytes per token of an MLP that processes `rows`
 * copies of each token; `local`: its width on one GPU. */
static void add_mlp(const lhi_shape *shape, double rows, double local,
                    mlp_bytes *mlp, layer_bytes *p)
{
    double e = shape->element;
    double inner = rows * local;
    double into = (shape->model->gated ? 2 : 1) * inner;

    mlp->into += e * into;
    if (shape->eager && shape->model->gated)
        mlp->into += e * inner; /* silu's result */
    mlp->product += shape->product_element * inner;
    p->linear_in += shape->product_element * inner;
    p->linear_grad += shape->product_element * into;
}

/* Adds the resident activation bytes of one layer, per token. */
static void add_layer(const lhi_shape *shape, uint32_t layer, layer_bytes *p)
{
    const lh_model *m = shape->model;
    double e = shape->element;
    double hidden = m->hidden * shape->norm_share;

    add_attention(shape, layer, p);
    if (shape->keeps_gathered)
        p->norms += (m->layer_pattern ? 1 : 2) * (1 - shape->norm_share) *
                    shape->product_element * m->hidden;
    const double more = lhi_model_count_norms(m) - 1; /* than the first norm */
    p->rest += more * e * hidden;                     /* their inputs */
    p->norms += more * shape->product_element * hidden;
    if (!lhi_model_layer_has_mlp(m, layer))
        return;
    if (shape->dropout)
        p->rest += hidden;
    if (!lh_model_layer_is_moe(m, layer)) {
        add_mlp(shape, 1, (double)m->ffn / shape->tensor, &p->dense, p);
        p->linear_in += shape->product_element * hidden;
        p->linear_grad += shape->product_element * hidden;
        return;
    }
    /* Dispatched tokens, including those gathered by all GPUs that share an
     * expert, and the experts' results where the router weights them. */
    double input = lhi_model_expert_input(m);
    double moved = e * input * shape->dispatched;
    double gathered =
        shape->product_element * input *
        (shape->dispatches_tokens ? shape->expert_rows : shape->received);
    double routed = 4.0 * m->experts * shape->norm_share;
    /* Before dispatch and after the sum over experts. */
    double latent = e * m->expert_latent * shape->norm_share;
    p->moved += gathered + routed + 2 * latent;
    if (shape->weights_expert_results)
        p->moved += moved;
    add_mlp(shape, shape->expert_rows,
            (double)m->expert_ffn / shape->expert_tensor, &p->routed, p);
    if (shape->clamps_activations)
        p->routed.clamped = p->routed.into;
    if (m->shared_expert_ffn)
        add_mlp(shape, 1, (double)m->shared_expert_ffn / shape->tensor,
                &p->shared, p);
    p->linear_in += gathered + e * hidden + latent;
    p->linear_grad += gathered + routed + latent;
    if (m->shared_expert_ffn)
        p->linear_grad += e * hidden;
}

/* Returns the bytes that an MLP retains per token for its backward pass: the
 * results of the first matrices, their clamped values, and the result of the
 * activation function. */
static double sum_mlp(const mlp_bytes *mlp)
{
    return mlp->into + mlp->clamped + mlp->product;
}

/* Returns the activation bytes per token that are not retained because their
 * modules are recomputed. Inputs of these modules remain resident, except
 * inputs from a norm that is recomputed itself. */
static double count_module_recompute_bytes(const lhi_shape *shape,
                                           const layer_bytes *p)
{
    double dropped = 0;

    if (lhi_is_module_recomputed(shape, LH_MODULE_CORE_ATTN))
        dropped += p->core;
    if (lhi_is_module_recomputed(shape, LH_MODULE_LAYERNORM))
        dropped += p->norms;
    if (lhi_is_module_recomputed(shape, LH_MODULE_MLA_UP_PROJ) &&
        shape->model->kv_lora_rank)
        dropped += p->heads;
    if (lhi_is_module_recomputed(shape, LH_MODULE_MLP))
        dropped += sum_mlp(&p->dense);
    if (lhi_is_module_recomputed(shape, LH_MODULE_MOE))
        return dropped + p->moved + sum_mlp(&p->routed) + sum_mlp(&p->shared);
    if (lhi_is_module_recomputed(shape, LH_MODULE_MOE_ACT))
        dropped += p->routed.clamped + p->routed.product;
    if (lhi_is_module_recomputed(shape, LH_MODULE_SHARED_EXPERTS))
        dropped += sum_mlp(&p->shared);
    return dropped;
}

/* Returns the activation bytes per token that are not retained because they are
 * recomputed; `whole`: all bytes of the layer. */
static double count_recompute_bytes(const lhi_shape *shape,
                                    const layer_bytes *p, double whole)
{
    switch (shape->recompute) {
    case LH_RECOMPUTE_NONE:
    case LH_RECOMPUTE_OPERATIONS: /* subtracted by the elastic plan itself */
        return 0;
    case LH_RECOMPUTE_FULL:
        return whole - p->input;
    case LH_RECOMPUTE_MODULES:
        return count_module_recompute_bytes(shape, p);
    case LH_RECOMPUTE_SELECTIVE:
        break;
    }
    if (shape->unfused)
        return p->core;
    return p->norms + p->dense.product + p->routed.clamped + p->routed.product +
           p->shared.product;
}

/* Returns the bytes of the gradients that exist at once where a layer's dense
 * MLP is widest: of the activation function's result and of its operands. 0 for
 * a layer with experts. */
static double count_gradient_bytes(const lhi_shape *shape, uint32_t layer)
{
    if (lh_model_layer_is_moe(shape->model, layer) ||
        !lhi_model_layer_has_mlp(shape->model, layer))
        return 0;
    return (shape->model->gated ? 3 : 2) * shape->element * shape->tokens *
           shape->model->ffn / shape->tensor;
}

/* Returns the bytes per token that context parallelism needs in the backward
 * pass for the data gradient (D). Ring: keys and values that arrive while
 * others are in use, and the gradients of both. Gathered: all keys and values,
 * with fp32 gradients that are used, arrive and leave. */
static double count_context_bytes(const lhi_shape *shape)
{
    double values = shape->attention_kv_heads * (shape->qk_dim + shape->v_dim);

    return shape->gathers_context
               ? values * (shape->context * shape->element + 3 * 4)
               : values * 4 * shape->element;
}

void lhi_resident_memory_compute_layer(const lhi_shape *shape, uint32_t layer,
                                       lhi_resident_memory *out)
{
    layer_bytes p = {0};
    double whole, dropped, e = shape->element;

    add_layer(shape, layer, &p);
    whole = p.input + p.norms + p.core + p.heads + sum_mlp(&p.dense) +
            sum_mlp(&p.routed) + sum_mlp(&p.shared) + p.moved + p.rest;
    dropped = shape->saves_products
                  ? whole - lhi_eager_count_retained_bytes(shape, layer)
                  : count_recompute_bytes(shape, &p, whole);
    out->activation = (whole - dropped) * shape->tokens;
    out->weight_input = (p.linear_in + p.linear_grad) * shape->tokens;
    out->d_workspace = dropped * shape->tokens;
    if (shape->keeps_gathered)
        out->d_workspace += count_gradient_bytes(shape, layer);
    if (shape->copies_sequence) /* a collective's result before its copy */
        out->d_workspace += shape->tokens * shape->model->hidden * e;
    if (shape->context > 1 &&
        lhi_model_layer_mixer(shape->model, layer) == LHI_MIXER_ATTENTION)
        out->d_workspace += count_context_bytes(shape) * shape->tokens;
}

double lhi_resident_memory_compute_within_layer(const lhi_shape *shape,
                                                uint32_t layer)
{
    layer_bytes p = {0};
    lhi_resident_memory held;

    add_layer(shape, layer, &p);
    lhi_resident_memory_compute_layer(shape, layer, &held);
    return fmax(held.activation - p.input * shape->tokens, 0);
}

void lhi_resident_memory_compute_embedding(const lhi_shape *shape,
                                           lhi_resident_memory *out)
{
    double values = shape->tokens * shape->norm_share * shape->model->hidden;

    *out = (lhi_resident_memory){0};
    if (shape->dropout)
        out->activation = values;
    out->weight_input = values * shape->element; /* gradient of its rows */
}

enum { LOSS_CHUNKS = 8 }; /* num_chunks of torchtitan's ChunkedLossWrapper */

/* Computes the head's resident memory [Kor section 4.3]: 4sbh/t (1 + v/h)
 * bytes, the inputs of norm and matrix, and fp32 logits. It has b sequences of
 * s tokens, hidden size h, vocabulary v and t-way tensor parallelism. A loss
 * that runs operation by operation adds its temporary values. */
static void compute_vocabulary(const lhi_shape *shape, lhi_resident_memory *out)
{
    double values = shape->tokens * shape->norm_share * shape->model->hidden *
                    shape->element;
    double logits = shape->tokens * shape->vocab;
    double weight_input = values + shape->element * logits;

    out->activation += 2 * values;
    if (shape->keeps_gathered && shape->norm_share < 1)
        /* the product's input, and its gradient */
        out->d_workspace += (shape->copies_sequence ? 3 : 2) * shape->tokens *
                            shape->model->hidden * shape->element;
    switch (shape->loss) {
    case LH_LOSS_FUSED:
        out->activation += 4 * logits;
        break;
    case LH_LOSS_EAGER:
        out->activation += 4 * logits;
        out->d_workspace += (lhi_eager_count_loss_bytes(shape) - 4) * logits;
        break;
    case LH_LOSS_CHUNKED:
        out->activation += 2 * values; /* gradients in fp32 */
        weight_input = 2 * values;
        out->d_workspace +=
            lhi_eager_count_loss_bytes(shape) * logits / LOSS_CHUNKS;
        break;
    }
    out->weight_input += weight_input;
}

void lhi_resident_memory_compute_head(const lhi_shape *shape,
                                      lhi_resident_memory *out)
{
    *out = (lhi_resident_memory){0};
    for (uint32_t i = 0; i <= shape->model->mtp_layers; i++)
        compute_vocabulary(shape, out);
}

void lhi_resident_memory_compute_mtp(const lhi_shape *shape,
                                     lhi_resident_memory *out)
{
    const lh_model *m = shape->model;
    const double n = m->mtp_layers;
    const double joined =
        2 * shape->tokens * shape->norm_share * m->hidden * shape->element;
    uint32_t first, n_layers = lhi_model_mtp_layers(m, &first);
    lhi_resident_memory layer;

    *out = (lhi_resident_memory){0};
    if (!m->mtp_layers)
        return;
    for (uint32_t i = 0; i < n_layers; i++) {
        lhi_resident_memory_compute_layer(shape, first + i, &layer);
        out->activation += n * layer.activation;
        out->weight_input += n * layer.weight_input;
        out->d_workspace = fmax(out->d_workspace, layer.d_workspace);
    }
    out->activation += n * joined;
    out->weight_input += n * joined;
}

bool lhi_slice_has_mtp(const lh_model *model, const lh_cost_layer_range *slice)
{
    return model->mtp_layers && (slice->head ? slice->mtp == LH_MTP_WITH_HEAD
                                             : slice->mtp == LH_MTP_IN_RANGE);
}

uint32_t lhi_count_moe_layers(const lh_model *m,
                              const lh_cost_layer_range *slice)
{
    uint32_t first, layers = 0;
    if (lhi_slice_has_mtp(m, slice)) {
        const uint32_t n = lhi_model_mtp_layers(m, &first);
        layers = m->mtp_layers * lhi_model_moe_layers(m, first, n);
    }
    return layers +
           lhi_model_moe_layers(m, slice->first_layer, slice->n_layers);
}

bool lhi_slice_has_end(const lh_cost_layer_range *slice)
{
    return slice->head || slice->mtp == LH_MTP_IN_RANGE;
}

void lhi_count_slice_params(const lhi_shape *shape,
                            const lh_cost_layer_range *slice, lhi_params *out)
{
    const lh_model *m = shape->model;
    double t = shape->tensor;
    lh_layer_params sum =
        lhi_model_range_params(m, slice->first_layer, slice->n_layers);
    double experts = (double)sum.experts;
    double split = (double)sum.attention + (double)sum.mlp;
    double whole = (double)sum.norms + (double)sum.router;
    double added = shape->vocab_padding * m->hidden;

    if (slice->embedding)
        split += (double)lhi_model_embedding_params(m) + added;
    if (slice->head)
        split += (double)lhi_model_head_params(m) + added;
    if (lhi_slice_has_mtp(m, slice)) {
        lh_layer_params last = lhi_model_module_params(m);

        split += (double)lhi_model_mtp_params(m) -
                 (double)m->mtp_layers * (double)last.experts;
        experts += (double)m->mtp_layers * (double)last.experts;
    }
    /* A tied matrix already counted as the embedding is not counted again. */
    if (slice->embedding && slice->head && m->tied_embeddings)
        split -= (double)m->vocab * m->hidden + added;
    out->in_8_bits = shape->scales_tensors
                         ? ceil(((double)sum.attention + (double)sum.mlp) / t)
                         : 0;
    out->experts = ceil(experts / shape->expert_divisor);
    out->total = ceil(split / t) + whole + out->experts;
}
