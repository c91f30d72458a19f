/* SPDX-License-Identifier: Apache-2.0 */
/* Counting a model's parameters. Every term is a weight matrix or vector of the
 * model's published reference code; tests/unit/test_job_model.c compares the
 * sums with the published totals. */
#include "format/job/model_size.h"
#include "format/job/parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double lh_model_rope_theta(const lh_model *model)
{
    return model->rope_theta ? model->rope_theta : 10000;
}

double lh_model_norm_epsilon(const lh_model *model)
{
    return model->norm_epsilon > 0 ? model->norm_epsilon : 1e-5;
}

bool lhi_model_uses_dropout(const lh_model *model)
{
    return model->norm == LH_NORM_LAYER && !model->parallel_block &&
           !model->norm_zero_centered;
}

/* Returns attention's parameters (Vaswani et al., arXiv:1706.03762) with
 * grouped queries (Ainslie et al., arXiv:2305.13245): queries and output for
 * `heads`, keys and values for `kv_heads`. */
static uint64_t count_attention_params(const lh_model *m)
{
    uint64_t h = m->hidden;
    uint64_t q = (uint64_t)m->heads * m->head_dim;
    uint64_t kv = 2 * (uint64_t)m->kv_heads * m->head_dim;
    uint64_t n = h * (q + kv) + q * h;
    if (m->attention_gate)
        n += h * q;
    if (m->qkv_bias)
        n += q + kv;
    if (m->output_bias)
        n += h;
    if (m->qk_norm_all_heads)
        n += q + kv / 2;
    else if (m->qk_norm)
        n += 2 * (uint64_t)m->head_dim;
    if (m->attention_sinks)
        n += m->heads;
    return n;
}

/* Returns a gated delta network's parameters (Qwen3-Next's reference code):
 * projections to queries, keys, values, output gates, and to a decay and a
 * learning rate per value head; a convolution per channel; two constants per
 * value head; a norm; output. */
static uint64_t count_linear_attention_params(const lh_model *m)
{
    uint64_t h = m->hidden, heads = m->linear_value_heads;
    uint64_t keys = (uint64_t)m->linear_key_heads * m->linear_key_head_dim;
    uint64_t values = heads * m->linear_value_head_dim;
    return h * (2 * keys + 2 * values + 2 * heads) +
           (2 * keys + values) * m->linear_conv_kernel + 2 * heads +
           m->linear_value_head_dim + values * h;
}

/* Returns a Mamba-2 layer's parameters (transformers, NemotronHMamba2Mixer):
 * projection to gates, values, B and C of each group, and a time step per head;
 * a convolution with bias over values, B and C; three constants per head; a
 * norm; output. */
static uint64_t count_mamba_params(const lh_model *m)
{
    uint64_t h = m->hidden, heads = m->mamba_heads;
    uint64_t values = heads * m->mamba_head_dim;
    uint64_t states = 2 * (uint64_t)m->mamba_groups * m->mamba_state_dim;
    return h * (2 * values + states + heads) +
           (values + states) * (m->mamba_conv_kernel + (uint64_t)1) +
           3 * heads + values + values * h;
}

/* Returns an indexer's parameters (DeepSeek-V3.2's reference code):
 * queries from the latent, one key with a layer norm, a weight per head. */
static uint64_t count_indexer_params(const lh_model *m)
{
    uint64_t h = m->hidden, size = m->index_head_dim;
    uint64_t from = m->q_lora_rank ? m->q_lora_rank : h;
    return from * m->index_heads * size + h * size + 2 * size +
           h * m->index_heads;
}

/* Returns the parameters of multi-head latent attention, DeepSeek-V2
 * (arXiv:2405.04434) equations 9-19: down-projections to the latents (with the
 * shared rotary key beside the latent of keys and values), a norm on each
 * latent, up-projections, output. */
static uint64_t count_latent_attention_params(const lh_model *m)
{
    uint64_t h = m->hidden, heads = m->heads;
    uint64_t qk = (uint64_t)m->qk_nope_head_dim + m->qk_rope_head_dim;
    uint64_t ql = m->q_lora_rank, kvl = m->kv_lora_rank;
    uint64_t n = ql ? h * ql + ql + ql * heads * qk : h * heads * qk;
    n += h * (kvl + m->qk_rope_head_dim) + kvl;
    n += kvl * heads * ((uint64_t)m->qk_nope_head_dim + m->v_head_dim);
    n += heads * m->v_head_dim * h;
    if (m->index_topk)
        n += count_indexer_params(m);
    if (m->qkv_bias)
        n += ql + kvl + m->qk_rope_head_dim;
    if (m->output_bias)
        n += h;
    return n;
}

/* Returns the parameters of a layer's mixer: attention, gated delta network or
 * Mamba-2. */
static uint64_t count_mixer_params(const lh_model *m, uint32_t layer)
{
    switch (lhi_model_layer_mixer(m, layer)) {
    case LHI_MIXER_NONE:
        return 0;
    case LHI_MIXER_MAMBA:
        return count_mamba_params(m);
    case LHI_MIXER_LINEAR:
        return count_linear_attention_params(m);
    case LHI_MIXER_ATTENTION:
        break;
    }
    return m->kv_lora_rank ? count_latent_attention_params(m)
                           : count_attention_params(m);
}

uint32_t lhi_model_count_norms(const lh_model *m)
{
    return (m->norm_placement == LH_NORM_PLACEMENT_BOTH ? 2u : 1u) *
           (m->parallel_block || m->layer_pattern ? 1u : 2u);
}

/* Returns the parameter count of one norm: weights, and biases for layer
 * norm. */
static uint64_t count_norm_params(const lh_model *m)
{
    return (uint64_t)m->hidden * (m->norm == LH_NORM_LAYER ? 2 : 1);
}

/* Returns the weights of an MLP of that width for inputs of `input` values: two
 * matrices, or three if it is gated (SwiGLU: Shazeer, arXiv:2002.05202). */
static uint64_t count_mlp_params(const lh_model *m, uint64_t input,
                                 uint64_t width)
{
    uint64_t in = m->gated ? 2 : 1;
    uint64_t n = (in + 1) * input * width;
    if (m->mlp_bias)
        n += in * width + input;
    return n;
}

lh_layer_params lhi_model_layer_params(const lh_model *m, uint32_t layer)
{
    lh_layer_params p = {0};
    uint64_t idle = 0; /* parameters of experts that one token does not use */
    p.attention = count_mixer_params(m, layer);
    p.norms = lhi_model_count_norms(m) * count_norm_params(m);
    if (lh_model_layer_is_moe(m, layer)) {
        uint64_t one =
            count_mlp_params(m, lhi_model_expert_input(m), m->expert_ffn);
        if (m->shared_expert_ffn)
            p.mlp = count_mlp_params(m, m->hidden, m->shared_expert_ffn) +
                    (m->shared_expert_gate ? m->hidden : 0);
        p.router =
            ((uint64_t)m->hidden + (m->router_bias ? 1 : 0)) * m->experts +
            2 * (uint64_t)m->hidden * m->expert_latent;
        p.experts = one * m->experts;
        idle = one * (m->experts - m->experts_per_token);
    } else if (lhi_model_layer_has_mlp(m, layer)) {
        p.mlp = count_mlp_params(m, m->hidden, m->ffn);
    }
    p.total = p.attention + p.norms + p.mlp + p.router + p.experts;
    p.active = p.total - idle;
    return p;
}

lh_layer_params lhi_model_range_params(const lh_model *model, uint32_t first,
                                       uint32_t n_layers)
{
    lh_layer_params sum = {0};
    uint32_t n;
    for (uint32_t i = 0; i < n_layers; i += n) {
        const lh_layer_params p = lhi_model_layer_params(model, first + i);
        n = lhi_count_equal_layers(model, first + i, n_layers - i);
        sum.attention += n * p.attention;
        sum.norms += n * p.norms;
        sum.mlp += n * p.mlp;
        sum.router += n * p.router;
        sum.experts += n * p.experts;
        sum.total += n * p.total;
        sum.active += n * p.active;
    }
    return sum;
}

uint64_t lhi_model_embedding_params(const lh_model *model)
{
    return (uint64_t)model->hidden * model->vocab +
           (uint64_t)model->hidden * model->positions;
}

uint64_t lhi_model_head_params(const lh_model *model)
{
    return count_norm_params(model) + (uint64_t)model->hidden * model->vocab;
}

lh_layer_params lhi_model_module_params(const lh_model *m)
{
    uint32_t first, n = lhi_model_mtp_layers(m, &first);
    return lhi_model_range_params(m, first, n);
}

uint64_t lhi_model_mtp_params(const lh_model *m)
{
    uint64_t h = m->hidden;
    if (m->mtp_layers == 0)
        return 0;
    uint64_t one =
        3 * count_norm_params(m) + 2 * h * h + lhi_model_module_params(m).total;
    return one * m->mtp_layers;
}

/* Returns embedding and head parameters; tied ones count once. */
static uint64_t count_params_outside_layers(const lh_model *m)
{
    uint64_t n = lhi_model_embedding_params(m) + lhi_model_head_params(m);
    return m->tied_embeddings ? n - (uint64_t)m->hidden * m->vocab : n;
}

uint64_t lh_model_params(const lh_model *model)
{
    return count_params_outside_layers(model) +
           lhi_model_range_params(model, 0, model->layers).total;
}

uint64_t lh_model_active_params(const lh_model *model)
{
    return count_params_outside_layers(model) +
           lhi_model_range_params(model, 0, model->layers).active;
}

/* Returns an upper bound on the parameter count, to check that no parameter
 * count overflows in bytes. */
static double bound_params(const lh_model *m)
{
    double h = m->hidden, heads = m->heads;
    double qk = (double)m->qk_nope_head_dim + m->qk_rope_head_dim;
    double attention = h * m->head_dim * (2 * heads + 2 * (double)m->kv_heads);
    if (m->kv_lora_rank)
        attention = (m->q_lora_rank ? m->q_lora_rank * (h + heads * qk)
                                    : h * heads * qk) +
                    m->kv_lora_rank * (h + heads * (qk + m->v_head_dim)) +
                    h * m->qk_rope_head_dim + heads * m->v_head_dim * h;
    attention += (h + m->q_lora_rank) * m->index_head_dim *
                     ((double)m->index_heads + 1) +
                 h * m->index_heads;
    if (m->attention_gate)
        attention += h * m->heads * m->head_dim;
    attention += (h + m->linear_conv_kernel) *
                 (3 * (double)m->linear_value_heads *
                      ((double)m->linear_value_head_dim + 1) +
                  2 * (double)m->linear_key_heads * m->linear_key_head_dim);
    attention += (h + m->mamba_conv_kernel + 1) *
                 (3 * (double)m->mamba_heads * ((double)m->mamba_head_dim + 4) +
                  2 * (double)m->mamba_groups * m->mamba_state_dim);
    double widths = (double)m->ffn + m->shared_expert_ffn +
                    (double)m->experts * ((double)m->expert_ffn + 1) +
                    m->expert_latent;
    /* Vectors: biases and norms, each no longer than a matrix's width. */
    double wide = fmax(h, m->expert_latent);
    double layer = 2 * (attention + 3 * wide * widths) + 16 * h + 2 * h * h;
    return layer * ((double)m->layers + m->mtp_layers) +
           h * (2 * (double)m->vocab + m->positions);
}

/* Fails with LH_EINPUT and the message `text` at the position of the model's
 * map. */
static lh_status fail_model(const lhi_doc *doc, const lhi_node *map,
                            const char *text, lh_error *err)
{
    return lhi_doc_fail(doc, map, err, LH_EINPUT, "%s", text);
}

/* Checks the model's expert groups. LH_EINPUT: they have different sizes, or
 * the groups that a token may use have fewer experts than it uses. */
static lh_status check_groups(const lhi_doc *doc, const lhi_node *at,
                              const lh_model *m, lh_error *err)
{
    if (!m->experts || (!m->expert_groups && !m->groups_per_token))
        return LH_OK;
    if (!m->expert_groups || m->experts % m->expert_groups != 0)
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "%u experts are not divisible into %u equal groups",
                            m->experts, m->expert_groups);
    uint64_t reach =
        (uint64_t)m->groups_per_token * (m->experts / m->expert_groups);
    if (m->groups_per_token > m->expert_groups || reach < m->experts_per_token)
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "%u of %u expert groups per token have fewer than "
                            "%u experts per token",
                            m->groups_per_token, m->expert_groups,
                            m->experts_per_token);
    return LH_OK;
}

/* Fails with LH_EINPUT if the model's experts, their width or their number per
 * token are inconsistent. */
static lh_status check_experts(const lhi_doc *doc, const lhi_node *at,
                               const lh_model *m, lh_error *err)
{
    uint32_t n_moe = lhi_model_moe_layers(m, 0, m->layers);
    if (m->expert_latent && !m->experts)
        return fail_model(doc, at, "expert_latent requires experts", err);
    if (m->experts && n_moe == 0)
        return fail_model(doc, at,
                          "the model has experts, but no layer uses "
                          "them",
                          err);
    if (m->experts && m->expert_ffn == 0)
        return fail_model(doc, at, "experts require a width, expert_ffn", err);
    if (m->experts &&
        (m->experts_per_token == 0 || m->experts_per_token > m->experts))
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "%u experts per token are out of range for %u "
                            "experts",
                            m->experts_per_token, m->experts);
    LHI_TRY(check_groups(doc, at, m, err));
    if (!m->layer_pattern && n_moe < m->layers && m->ffn == 0)
        return fail_model(doc, at, "dense layers require an MLP width, ffn",
                          err);
    return LH_OK;
}

/* Fails with LH_EINPUT if the sizes of an indexer or of a gated delta network
 * are incomplete, or contradict the model's other attention. */
static lh_status check_attention_kinds(const lhi_doc *doc, const lhi_node *at,
                                       const lh_model *m, lh_error *err)
{
    if (m->index_topk &&
        (!m->kv_lora_rank || !m->index_heads || !m->index_head_dim))
        return fail_model(doc, at,
                          "sparse attention (index_topk) requires latent "
                          "attention, index_heads and index_head_dim",
                          err);
    if (!m->linear_value_heads)
        return LH_OK;
    if (!m->linear_key_heads || !m->linear_key_head_dim ||
        !m->linear_value_head_dim ||
        m->linear_value_heads % m->linear_key_heads != 0)
        return fail_model(doc, at,
                          "linear_value_heads require linear_key_heads, of "
                          "which they are a multiple, linear_key_head_dim and "
                          "linear_value_head_dim",
                          err);
    if (m->kv_lora_rank || m->sliding_window || m->parallel_block)
        return fail_model(doc, at,
                          "linear_value_heads cannot be combined with latent "
                          "attention, sliding windows or a parallel_block",
                          err);
    return LH_OK;
}

lh_status lhi_model_check(const lhi_doc *doc, const lhi_node *at,
                          const lh_model *m, lh_error *err)
{
    if (m->kv_heads == 0 || m->heads % m->kv_heads != 0)
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "%u heads are not divisible by %u key-value heads",
                            m->heads, m->kv_heads);
    if (m->kv_lora_rank && (m->qk_nope_head_dim == 0 ||
                            m->qk_rope_head_dim == 0 || m->v_head_dim == 0))
        return fail_model(doc, at,
                          "latent attention (kv_lora_rank) requires "
                          "qk_nope_head_dim, qk_rope_head_dim and v_head_dim",
                          err);
    LHI_TRY(check_attention_kinds(doc, at, m, err));
    const char *why = m->layer_pattern ? lhi_layer_pattern_check(m) : NULL;
    if (why)
        return fail_model(doc, at, why, err);
    if (m->parallel_block && (m->experts || m->mtp_layers))
        return fail_model(doc, at,
                          "layers with a parallel_block have one dense MLP; "
                          "remove experts and mtp_layers",
                          err);
    LHI_TRY(check_experts(doc, at, m, err));
    if (bound_params(m) > 0x1p50)
        return fail_model(
            doc, at, "the number of parameters exceeds the limit of 2^50", err);
    return LH_OK;
}
