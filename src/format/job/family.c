/* SPDX-License-Identifier: Apache-2.0 */
#include "format/job/family.h"

#include "base/fail.h"
#include "format/job/model_size.h"

/* Returns a model component's name, such as attention sinks, that training on
 * the processor (the cpu device) supports for no model family. NULL: the model
 * has none. `sequence`: tokens per attention sequence. */
static const char *find_unsupported_part(const lh_model *m, uint32_t sequence)
{
    if (m->attention_sinks)
        return "attention sinks";
    if (m->linear_value_heads || m->attention_gate)
        return "gated delta networks or gated attention";
    if (m->layer_pattern)
        return "layers of one kind each (layer_pattern)";
    if (m->index_topk)
        return "sparse attention with an indexer";
    if (m->mtp_layers && m->norm != LH_NORM_RMS)
        return "multi-token prediction (mtp_layers) with layer norms";
    if (m->sliding_window && m->sliding_window < sequence)
        return "a sliding window";
    if (m->norm_placement != LH_NORM_PLACEMENT_PRE || m->norm_zero_centered ||
        m->norm == LH_NORM_LAYER_UNBIASED)
        return "norms after attention and MLPs, zero-centered or without "
               "biases";
    if (m->qk_norm_all_heads || m->qk_l2_norm)
        return "norms of queries and keys over all heads, or without weights";
    if (m->no_rope_interval)
        return "layers without positions";
    if (m->rope_scaling)
        return "scaled rotary positions (rope_scaling)";
    if (m->partial_rotary_factor > 0 && m->partial_rotary_factor < 1)
        return "partly rotated heads (partial_rotary_factor)";
    if (m->activation != LH_ACTIVATION_UNSET &&
        m->activation !=
            (m->gated ? LH_ACTIVATION_SILU : LH_ACTIVATION_GELU_TANH))
        return "an activation function other than SiLU in gated MLPs and GeLU "
               "with tanh in others";
    if (m->glu_linear_offset > 0 || m->swiglu_limit > 0)
        return "an offset or a limit in gated MLPs";
    return NULL;
}

/* --- experts, independent of the attention --- */

uint32_t lhi_first_moe_layer(const lh_model *m)
{
    uint32_t layer = 0;
    while (layer < m->layers && !lh_model_layer_is_moe(m, layer))
        layer++;
    return layer;
}

/* Checks whether some layers of a model with experts are dense. */
static bool has_dense_layers(const lh_model *m)
{
    return lhi_model_moe_layers(m, 0, m->layers) < m->layers;
}

/* Returns why a model's experts match no supported family (norms, biases,
 * sizes), or NULL. */
static const char *check_expert_basics(const lh_model *m)
{
    if (m->norm != LH_NORM_RMS || m->positions || !m->gated)
        return "experts with layer norm, learned positions or ungated MLPs";
    if (m->mlp_bias || m->router_bias)
        return "experts with biases";
    if (m->experts_per_token == 0 || m->experts_per_token > m->experts ||
        m->expert_ffn == 0)
        return "experts without a valid expert_ffn or experts_per_token";
    return NULL;
}

/* Returns why softmax-routed experts differ from the supported families'
 * (groups, scale), or NULL. */
static const char *check_softmax_experts(const lh_model *m)
{
    if (m->expert_groups)
        return "expert groups without a sigmoid router";
    if (m->routed_scale != 0 && m->routed_scale != 1)
        return "a routed_scale without a sigmoid router";
    return NULL;
}

/* Returns why experts differ from DeepSeek-V3's, or NULL. */
static const char *check_sigmoid_experts(const lh_model *m)
{
    if (m->router != LH_ROUTER_SIGMOID)
        return "latent attention without a sigmoid router";
    if (!m->shared_expert_ffn || m->shared_expert_gate ||
        m->shared_expert_ffn % m->expert_ffn != 0)
        return "a sigmoid router without ungated shared experts that are a "
               "multiple of expert_ffn wide";
    uint32_t first = lhi_first_moe_layer(m), n = m->layers - first;
    return lhi_model_moe_layers(m, first, n) == n
               ? NULL
               : "a sigmoid router with dense layers after expert layers";
}

/* Checks whether a model with softmax-routed experts has features of Qwen2-MoE:
 * biases, shared experts, raw scores or dense layers. */
static bool is_qwen2_moe(const lh_model *m)
{
    return m->qkv_bias || m->shared_expert_ffn || m->unnormalised_scores ||
           has_dense_layers(m);
}

/* --- attention --- */

/* Returns why a model with parallel attention and MLP differs from Falcon, or
 * NULL. */
static const char *check_falcon(const lh_model *m)
{
    if (m->norm != LH_NORM_LAYER || m->gated || m->positions)
        return "a parallel block with RMS norm, gated MLPs or learned "
               "positions";
    if (m->qkv_bias || m->output_bias || m->mlp_bias)
        return "a parallel block with biases";
    if (m->kv_heads != 1)
        return "a parallel block with more than one key-value head";
    if ((uint64_t)m->heads * m->head_dim != m->hidden)
        return "a parallel block whose heads do not add up to hidden";
    if (m->experts || m->qk_norm || m->kv_lora_rank)
        return "a parallel block with experts, norms of queries and keys, or "
               "latent attention";
    return NULL;
}

/* Returns why a model with latent attention differs from DeepSeek, or NULL. */
static const char *check_deepseek(const lh_model *m)
{
    if (m->norm != LH_NORM_RMS || m->positions || !m->gated)
        return "latent attention with layer norm, learned positions or ungated "
               "MLPs";
    if (m->qkv_bias || m->output_bias || m->mlp_bias)
        return "latent attention with biases";
    if (m->qk_norm)
        return "latent attention with norms of queries and keys";
    if (!m->experts)
        return NULL;
    const char *what = check_expert_basics(m);
    return what ? what : check_sigmoid_experts(m);
}

/* Returns why a model with query and key norms differs from Qwen3, or NULL. */
static const char *check_qwen3(const lh_model *m)
{
    if (m->norm != LH_NORM_RMS || m->positions || !m->gated)
        return "norms of queries and keys with layer norm, learned positions "
               "or ungated MLPs";
    if (m->qkv_bias != m->output_bias || m->mlp_bias)
        return "norms of queries and keys with biases on only some attention "
               "projections, or on MLPs";
    return NULL;
}

/* Returns why a model with layer norms differs from GPT-2, or NULL. */
static const char *check_gpt2(const lh_model *m)
{
    if (m->gated)
        return "layer norm with gated MLPs";
    if (!m->positions)
        return "layer norm with rotary positions";
    if (!m->qkv_bias || !m->output_bias || !m->mlp_bias)
        return "layer norm with linear layers that lack biases";
    if (m->kv_heads != m->heads)
        return "learned positions with shared key-value heads";
    if ((uint64_t)m->heads * m->head_dim != m->hidden)
        return "learned positions with heads that do not add up to hidden";
    return NULL;
}

/* Returns why a model with RMS norms differs from both Llama and Qwen2, or
 * NULL. */
static const char *check_llama(const lh_model *m)
{
    if (!m->gated)
        return "RMS norm with ungated MLPs";
    if (m->positions)
        return "RMS norm with learned positions";
    if (m->output_bias && !m->qkv_bias)
        return "a bias only on the attention output";
    if (m->qkv_bias && !m->output_bias && m->mlp_bias)
        return "biases on MLPs and only on queries, keys and values";
    return NULL;
}

/* Returns why a model with experts, but without latent attention, matches no
 * supported family, or NULL. */
static const char *check_experts(const lh_model *m)
{
    const char *what = check_expert_basics(m);
    if (what)
        return what;
    if (m->router == LH_ROUTER_SIGMOID)
        return m->output_bias ? "experts with biases"
                              : check_sigmoid_experts(m);
    if (m->qk_norm && m->shared_expert_ffn)
        return "norms of queries and keys with a softmax router and shared "
               "experts";
    if (m->qk_norm)
        what = check_qwen3(m);
    else if (m->output_bias)
        what = "experts with biases";
    else if (is_qwen2_moe(m) &&
             (!m->shared_expert_ffn || !m->shared_expert_gate))
        what = "experts with query biases, dense layers or unnormalised "
               "scores, but without a gated shared expert";
    return what ? what : check_softmax_experts(m);
}

lhi_family lhi_family_get(const lh_model *m)
{
    if (m->parallel_block)
        return LHI_FAMILY_FALCON;
    if (m->kv_lora_rank)
        return LHI_FAMILY_DEEPSEEK;
    if (m->experts && m->router == LH_ROUTER_SIGMOID)
        return LHI_FAMILY_GLM4_MOE;
    if (m->experts && m->qk_norm)
        return LHI_FAMILY_QWEN3_MOE;
    if (m->qk_norm && !m->experts)
        return LHI_FAMILY_QWEN3;
    if (m->experts)
        return is_qwen2_moe(m) ? LHI_FAMILY_QWEN2_MOE : LHI_FAMILY_MIXTRAL;
    if (m->norm == LH_NORM_LAYER)
        return LHI_FAMILY_GPT2;
    return m->qkv_bias && !m->output_bias ? LHI_FAMILY_QWEN2 : LHI_FAMILY_LLAMA;
}

lh_status lhi_family_find(const lh_model *m, uint32_t sequence, lhi_family *out,
                          lh_error *err)
{
    const char *what = find_unsupported_part(m, sequence);
    if (!what)
        what = m->parallel_block          ? check_falcon(m)
               : m->kv_lora_rank          ? check_deepseek(m)
               : m->experts               ? check_experts(m)
               : m->qk_norm               ? check_qwen3(m)
               : m->norm == LH_NORM_LAYER ? check_gpt2(m)
                                          : check_llama(m);
    if (what)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device supports the model families Llama, "
                        "Qwen2, Qwen3, GPT-2, Falcon, Mixtral, Qwen2-MoE, "
                        "Qwen3-MoE, GLM-4.5 and DeepSeek-V3; %s has %s, which "
                        "is not supported",
                        m->name ? m->name : "this model", what);
    if (m->positions && m->positions < sequence)
        return lhi_fail(err, LH_EINVAL,
                        "%s has %u learned positions; a sequence has %u "
                        "tokens",
                        m->name ? m->name : "the model", m->positions,
                        sequence);
    *out = lhi_family_get(m);
    return LH_OK;
}

lh_status lhi_family_check(const lh_model *m, uint32_t sequence, lh_error *err)
{
    lhi_family family;
    if (m->unsupported_keys)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%s: the cpu device does not support this setting; the "
                        "model can be planned but not trained",
                        m->unsupported_keys);
    LHI_TRY(lhi_family_find(m, sequence, &family, err));
    uint32_t turned = m->kv_lora_rank ? m->qk_rope_head_dim : m->head_dim;
    if (turned % 2 || m->heads % m->kv_heads)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device requires an even %s (found %u), and "
                        "heads (%u) divisible by kv_heads (%u)",
                        m->kv_lora_rank ? "qk_rope_head_dim" : "head_dim",
                        turned, m->heads, m->kv_heads);
    return LH_OK;
}
