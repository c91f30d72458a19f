/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ops.h"

#include "base/fail.h"

#include <string.h>

/* The list under construction and the current shape. */
typedef struct op_list {
    const lhi_shape *shape;
    lhi_layer_op *ops;
    uint32_t n;
} op_list;

/* Appends an operation called `name` to the list, which stores `stored` bytes
 * of activations for the backward pass. Returns it; its recomputation work is
 * zero. */
static lhi_layer_op *add_op(op_list *l, const char *name, double stored)
{
    lhi_layer_op *op = &l->ops[l->n++];
    *op = (lhi_layer_op){.name = name, .stored = stored};
    return op;
}

/* Appends an operation called `name` to the list, whose result of `stored`
 * bytes is kept for the backward pass but cannot be recomputed. Appends nothing
 * if `stored` is 0. */
static void add_fixed(op_list *l, const char *name, double stored)
{
    if (stored > 0)
        add_op(l, name, stored)->not_recomputable = true;
}

/* Appends a linear layer to the operation list: `matrices` k x n weights for m
 * rows. With `keep`, its output is stored for the backward pass and can be
 * recomputed. Otherwise the next operation consumes it, and it cannot. */
static lhi_layer_op *add_linear(op_list *l, const char *name, double m,
                                double k, double n, double matrices, bool keep)
{
    double e = l->shape->element;
    lhi_layer_op *op = add_op(l, name, keep ? m * n * e : 0);
    lhi_work_linear(l->shape, m, k, n, matrices, &op->recompute_work);
    op->not_recomputable = !keep;
    return op;
}

/* Appends an element-wise operation that stores `stored` bytes for the backward
 * pass to the operation list. Its recomputation is one kernel that moves
 * `moved` bytes. */
static void add_pointwise(op_list *l, const char *name, double stored,
                          double moved)
{
    lhi_layer_op *op = add_op(l, name, stored);
    op->recompute_work.bytes = moved;
    op->recompute_work.kernels = 1;
}

/* Appends a normalisation of this GPU's share of the hidden states, called
 * `name`, to the operation list. */
static void add_norm(op_list *l, const char *name)
{
    const lhi_shape *s = l->shape;
    double values = s->tokens * s->norm_share * s->model->hidden;
    add_pointwise(l, name, values * s->product_element,
                  2 * values * s->element);
}

/* Appends the query, key and value projections to the operation list; with
 * multi-head latent attention, also those to the latent vectors. */
static void add_projections(op_list *l)
{
    const lhi_shape *s = l->shape;
    const lh_model *m = s->model;
    double t = s->tokens, h = m->hidden, e = s->element;
    if (!m->kv_lora_rank) {
        add_linear(l, "query", t, h,
                   (m->attention_gate ? 2 : 1) * s->heads * s->qk_dim, 1, true);
        add_linear(l, "key", t, h, s->kv_heads * s->qk_dim, 1, true);
        add_linear(l, "value", t, h, s->kv_heads * s->v_dim, 1, true);
        return;
    }
    /* Multi-head latent attention: the compressed forms first, then all heads
     * from them. */
    double latent = (double)m->kv_lora_rank + m->qk_rope_head_dim;
    lhi_layer_op *down = add_op(l, "latent", t * e * (latent + m->q_lora_rank));
    lhi_work_linear(s, t, h, latent, 1, &down->recompute_work);
    if (m->q_lora_rank)
        lhi_work_linear(s, t, h, m->q_lora_rank, 1, &down->recompute_work);
    add_linear(l, "query", t, m->q_lora_rank ? m->q_lora_rank : h,
               s->heads * s->qk_dim, 1, true);
    lhi_layer_op *kv = add_op(l, "key and value",
                              t * e * s->kv_heads * (s->qk_dim + s->v_dim));
    double out = s->heads * (m->qk_nope_head_dim + s->v_dim);
    lhi_work_linear(s, t, m->kv_lora_rank, out, 1, &kv->recompute_work);
}

/* Appends core attention of `layer` to the operation list. It stores its output
 * and the scores or, if fused, each row's log-sum-exp. */
static void add_core(op_list *l, uint32_t layer)
{
    const lhi_shape *s = l->shape;
    double t = s->tokens, e = s->element;
    double scores = t * s->heads * s->sequence;
    double kept = s->unfused ? scores * (s->dropout ? 2 * e + 1 : e)
                             : 4 * s->heads * t; /* log-sum-exp, fp32 */
    if (s->model->attention_gate)                /* also the gate's result */
        kept += e * s->heads * s->v_dim * t;
    kept += t * lhi_count_indexer_bytes(s);
    if (s->fp8) /* FP8 copy for the next product */
        kept += s->product_element * s->heads * s->v_dim * t;
    lhi_layer_op *op =
        add_op(l, "attention", e * s->heads * s->v_dim * t + kept);
    lhi_work_attention(s, layer, &op->recompute_work);
}

/* Appends the gated delta network (linear attention) of `layer`, up to its
 * output projection, to the operation list. */
static void add_linear_core(op_list *l, uint32_t layer)
{
    const lhi_shape *s = l->shape;
    const lh_model *m = s->model;
    double t = s->tokens, h = m->hidden, e = s->element;
    double heads = (double)m->linear_value_heads / s->tensor;
    double keys =
        (double)m->linear_key_heads * m->linear_key_head_dim / s->tensor;
    double values = heads * m->linear_value_head_dim;
    add_linear(l, "query", t, h, keys, 1, true);
    add_linear(l, "key", t, h, keys, 1, true);
    add_linear(l, "value", t, h, 2 * values, 1, true);
    lhi_layer_op *op = add_op(l, "attention",
                              e * t * (2 * keys + 3 * values) +
                                  t * heads * (2 * 4 + e * LHI_LINEAR_CHUNK));
    lhi_work_linear(s, t, h, 2 * heads, 1, &op->recompute_work);
    lhi_work_attention(s, layer, &op->recompute_work);
}

/* Appends a Mamba-2 layer's input projection and core to the operation list. */
static void add_mamba_core(op_list *l, uint32_t layer)
{
    const lhi_shape *s = l->shape;
    const lh_model *m = s->model;
    add_linear(l, "mamba projection", s->tokens, m->hidden,
               lhi_count_mamba_inputs(s), 1, true);
    lhi_layer_op *op =
        add_op(l, "mamba",
               2 * s->element * s->tokens * (double)m->mamba_heads *
                   m->mamba_head_dim / s->tensor);
    lhi_work_attention(s, layer, &op->recompute_work);
}

/* Returns the values per token, on one GPU, that a layer's mixer (attention or
 * its substitute) passes to its output projection. */
static double count_mixer_outputs(const lhi_shape *s, lhi_mixer mixer)
{
    const lh_model *m = s->model;
    if (mixer == LHI_MIXER_MAMBA)
        return (double)m->mamba_heads * m->mamba_head_dim / s->tensor;
    return mixer == LHI_MIXER_LINEAR ? (double)m->linear_value_heads *
                                           m->linear_value_head_dim / s->tensor
                                     : s->heads * s->v_dim;
}

/* Appends the operations of `layer`'s attention block or its substitute to the
 * list: projections, core, output projection and dropout. */
static void add_attention(op_list *l, uint32_t layer)
{
    const lhi_shape *s = l->shape;
    double hidden = s->tokens * s->norm_share * s->model->hidden;
    const lh_model *m = s->model;
    const lhi_mixer mixer = lhi_model_layer_mixer(m, layer);
    if (mixer == LHI_MIXER_MAMBA) {
        add_mamba_core(l, layer);
    } else if (mixer == LHI_MIXER_LINEAR) {
        add_linear_core(l, layer);
    } else {
        add_projections(l);
        add_core(l, layer);
    }
    /* Each GPU's partial sum covers all tokens; only its share of the tokens,
     * with the residual added, is stored. */
    lhi_layer_op *op =
        add_linear(l, "attention output", s->tokens,
                   count_mixer_outputs(s, mixer), m->hidden, 1, true);
    /* In a parallel block it is only one term in the layer's sum; in a hybrid
     * model it is the next layer's input. */
    const bool is_last = m->parallel_block || m->layer_pattern;
    op->stored = is_last ? 0 : hidden * s->element;
    op->not_recomputable = is_last;
    if (s->tensor > 1) {
        op->recompute_work.tensor_bytes =
            s->tokens * s->model->hidden * s->element;
        op->recompute_work.tensor_calls = 1;
    }
    if (s->dropout)
        add_fixed(l, "attention dropout", hidden);
}

/* Appends an MLP's operations to the list: `matrices` weights of inner width
 * `inner` per product, which share `rows` tokens of `h` values. `shared`: uses
 * the names of the shared expert's operations. Returns the last operation. */
static lhi_layer_op *add_mlp(op_list *l, double rows, double h, double inner,
                             double matrices, bool shared)
{
    const lhi_shape *s = l->shape;
    double values = rows * inner;
    add_linear(l, shared ? "shared up" : "up", rows, h, inner, matrices, true);
    if (s->model->gated)
        add_linear(l, shared ? "shared gate" : "gate", rows, h, inner, matrices,
                   true);
    add_pointwise(l, shared ? "shared activation" : "activation",
                  values * s->product_element,
                  (s->model->gated ? 3 : 2) * values * s->element);
    return add_linear(l, shared ? "shared down" : "down", rows, inner, h,
                      matrices, false);
}

/* Marks the matrix products among the routed experts' `n` operations as grouped
 * GEMMs. Unless kernels are fused, also sets the number of experts whose fixed
 * time each product takes; a forward pass has two products per expert, the
 * first for `up` and `gate` together. */
static void mark_grouped(const lhi_shape *s, lhi_layer_op *ops, uint32_t n)
{
    const double experts = (double)s->model->experts / s->expert;

    for (uint32_t i = 0; i < n; i++) {
        lhi_work *work = &ops[i].recompute_work;

        if (!(work->flops > 0))
            continue;
        work->grouped_flops = work->flops;
        if (!s->fused_experts)
            work->experts =
                s->model->gated && i < 2 ? experts / 4 : experts / 2;
    }
}

/* Appends the routed experts' operations to the list. Dispatched tokens are
 * always stored. So are retained results of the experts, since recomputing them
 * would need communication. */
static void add_experts(op_list *l)
{
    const lhi_shape *s = l->shape;
    const lh_model *m = s->model;
    double e = s->element, t = s->tokens;
    double input = lhi_model_expert_input(m);
    double moved = t * s->dispatched * input * e;
    double gathered = t * input * s->product_element *
                      (s->dispatches_tokens ? s->expert_rows : s->received);
    double latent = t * s->norm_share * m->expert_latent * e;
    double routed = 4.0 * t * s->norm_share * m->experts;
    lhi_layer_op *router = add_linear(l, "router", t * s->norm_share, m->hidden,
                                      m->experts, 1, false);
    if (m->expert_latent) {
        lhi_work_linear(s, t * s->norm_share, m->hidden, m->expert_latent, 1,
                        &router->recompute_work);
        lhi_work_linear(s, t * s->norm_share, m->expert_latent, m->hidden, 1,
                        &router->recompute_work);
    }
    router->stored = gathered + routed + 2 * latent +
                     (s->weights_expert_results ? moved : 0);
    const uint32_t first = l->n;
    lhi_layer_op *down = add_mlp(l, t * s->expert_rows, input,
                                 (double)m->expert_ffn / s->expert_tensor,
                                 (double)m->experts / s->expert, false);
    mark_grouped(s, &l->ops[first], l->n - first);
    lhi_work ignored = {0};
    lhi_work_biases(s, &down->recompute_work, &ignored);
    lhi_work_clamps(s, &down[-1].recompute_work, NULL);
    if (s->clamps_activations) /* both halves, for the activation's D */
        down[-1].stored += 2 * t * s->expert_rows * (double)m->expert_ffn /
                           s->expert_tensor * e;
    if (m->shared_expert_ffn)
        add_mlp(l, t, m->hidden, (double)m->shared_expert_ffn / s->tensor, 1,
                true);
}

uint32_t lhi_list_layer_ops(const lhi_shape *shape, uint32_t layer,
                            lhi_layer_op *ops)
{
    op_list l = {.shape = shape, .ops = ops};
    double hidden = shape->tokens * shape->norm_share * shape->model->hidden;
    add_fixed(&l, "input", hidden * shape->element);
    const lh_model *m = shape->model;
    const bool both = m->norm_placement == LH_NORM_PLACEMENT_BOTH;
    if (lhi_model_layer_mixer(m, layer) != LHI_MIXER_NONE) {
        add_norm(&l, "attention norm");
        add_attention(&l, layer);
        if (!lhi_model_layer_has_mlp(m, layer))
            return l.n;
    }
    if (both)
        add_norm(&l, "attention output norm");
    if (!m->parallel_block)
        add_norm(&l, "mlp norm");
    if (lh_model_layer_is_moe(m, layer))
        add_experts(&l);
    else
        add_mlp(&l, shape->tokens, m->hidden, (double)m->ffn / shape->tensor, 1,
                false);
    if (both && !m->parallel_block)
        add_norm(&l, "mlp output norm");
    if (shape->dropout)
        add_fixed(&l, "mlp dropout", hidden);
    return l.n;
}

/* --- published tables ----------------------------------------------------- */

/* Coefficients of sbh^2, s^2bh and sbh in FLOPs, and of sbh in bytes, in
 * twelfths. Source: PipeMesh, tables I and II. The down projections store 2sbh,
 * since only then do the totals equal 34, 203/6 and 53/2 sbh. */
typedef struct published_op {
    const char *name;
    int square, core, flops, bytes;
    bool models[LH_N_FAMILIES];
} published_op;

/* Table columns: whether GPT, Llama and Falcon have the operation; o: they do
 * not. */
enum { G = true, L = true, F = true, o = false };

static const published_op rows[] = {
    {"attention norm", 0, 0, 0, 24, {G, L, F}},
    {"query", 24, 0, 0, 24, {G, L, F}},
    {"key", 24, 0, 0, 24, {G, o, o}},
    {"value", 24, 0, 0, 24, {G, o, o}},
    {"key", 3, 0, 0, 3, {o, L, F}},
    {"value", 3, 0, 0, 3, {o, L, F}},
    {"attention", 0, 48, 0, 24, {G, L, F}},
    {"attention output", 24, 0, 0, 24, {G, L, o}},
    {"attention output", 24, 0, 0, 0, {o, o, F}},
    {"attention dropout", 0, 0, 0, 12, {G, o, o}},
    {"mlp norm", 0, 0, 0, 24, {G, L, F}},
    {"up", 96, 0, 0, 96, {G, o, F}},
    {"up", 64, 0, 0, 64, {o, L, o}},
    {"gate", 64, 0, 0, 64, {o, L, o}},
    {"silu", 0, 0, 160, 64, {o, L, o}},
    {"product", 0, 0, 32, 64, {o, L, o}},
    {"gelu", 0, 0, 672, 96, {G, o, F}},
    {"down", 96, 0, 0, 24, {G, o, F}},
    {"down", 64, 0, 0, 24, {o, L, o}},
    {"mlp dropout", 0, 0, 0, 12, {G, o, o}},
};

uint32_t lh_cost_published_ops(lh_family family, double s, double b, double h,
                               double tensor, lh_published_op *ops)
{
    uint32_t n = 0;
    if ((unsigned)family >= LH_N_FAMILIES)
        return 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const published_op *r = &rows[i];
        if (!r->models[family])
            continue;
        double sbh = s * b * h;
        ops[n++] = (lh_published_op){
            r->name, sbh * (r->square * h + r->core * s + r->flops) / 12,
            sbh * r->bytes / 12 / tensor};
    }
    return n;
}

double lh_cost_published_params(lh_family family, double h)
{
    return family == LH_FAMILY_GPT3 ? 12 * h * h : 41 * h * h / 4;
}
