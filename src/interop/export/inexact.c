/* SPDX-License-Identifier: Apache-2.0 */
/* Model settings that a target program cannot be given. Sources: Megatron-LM
 * core 0.16.1, gpt_builders.py (which passes on neither --rope-scaling-factor
 * nor YaRN outside latent attention), transformer_config.py, moe_utils.py,
 * rotary_pos_embedding.py and yarn_rotary_pos_embedding.py; Megatron-Bridge
 * 0.3.1, models/gpt_provider.py; torchtitan 0.3.0, models/common/ and the four
 * classes of torchtitan_model.c. */
#include "format/job/parse.h"
#include "interop/export/export_internal.h"

#include <longhaul/experimental/export.h>

#include <stdio.h>
#include <string.h>

/* The settings found so far. */
typedef struct search {
    const lh_model *m;
    bool bridge; /* Megatron-Bridge, else Megatron-LM */
    lh_inexact_setting *out;
    uint32_t n, room;
} search;

/* Adds the model setting `key`, with the reason, to the list of settings that
 * the export target cannot express. Counts it also if the list is full. */
static void add_setting(search *s, const char *key, const char *reason)
{
    if (s->n < s->room)
        s->out[s->n] = (lh_inexact_setting){key, reason};
    s->n++;
}

/* If `differs`, adds the model setting `key` with its reason to the list of
 * settings that the export target cannot express. */
static void add_setting_if(search *s, bool differs, const char *key,
                           const char *reason)
{
    if (differs)
        add_setting(s, key, reason);
}

/* Adds the model's rotary position settings that Megatron cannot express, such
 * as its scaling, to the inexpressible settings. */
static void find_rotary(search *s)
{
    const lh_model *m = s->m;
    const lh_rope_scaling *scaling = m->rope_scaling;
    add_setting_if(s, m->kv_lora_rank && m->partial_rotary_factor > 0,
                   "partial_rotary_factor",
                   "latent attention rotates all of qk_rope_head_dim");
    /* Megatron-Bridge's seq_len_interpolation_factor; Megatron-LM builds the
     * model without its argument of that name. */
    if (!scaling ||
        (scaling->type == LH_ROPE_LINEAR && s->bridge && !m->kv_lora_rank))
        return;
    if (scaling->type == LH_ROPE_LINEAR ||
        (scaling->type == LH_ROPE_LLAMA3) == (m->kv_lora_rank > 0)) {
        add_setting(
            s, "rope_scaling",
            m->kv_lora_rank
                ? "latent attention has only YaRN"
                : "attention other than latent has only Llama 3.1's scaling");
        return;
    }
    if (scaling->type == LH_ROPE_LLAMA3) {
        add_setting_if(
            s, scaling->factor != lhi_megatron_llama3.factor && !s->bridge,
            "rope_scaling.factor",
            "the model is built with 8, whatever --rope-scaling-factor is");
        add_setting_if(
            s,
            scaling->original_positions !=
                    lhi_megatron_llama3.original_positions ||
                scaling->low_freq_factor !=
                    lhi_megatron_llama3.low_freq_factor ||
                scaling->high_freq_factor !=
                    lhi_megatron_llama3.high_freq_factor,
            "rope_scaling",
            "its Llama 3.1 scaling is fixed at "
            "original_max_position_embeddings 8192, low_freq_factor 1 and "
            "high_freq_factor 4");
        return;
    }
    add_setting_if(
        s,
        !s->bridge && (scaling->original_positions !=
                           lhi_megatron_yarn.original_positions ||
                       scaling->beta_fast != lhi_megatron_yarn.beta_fast ||
                       scaling->beta_slow != lhi_megatron_yarn.beta_slow),
        "rope_scaling",
        "its YaRN is fixed at original_max_position_embeddings 4096, "
        "beta_fast 32 and beta_slow 1");
    add_setting_if(
        s, scaling->fractional_range || scaling->attention_factor > 0,
        "rope_scaling",
        "its YaRN has neither fractional_range nor attention_factor");
    add_setting_if(s, scaling->mscale <= 0 && scaling->mscale_all_dim > 0,
                   "rope_scaling.mscale_all_dim",
                   "its YaRN requires mscale with it");
}

/* Adds the model's attention settings that Megatron cannot express (biases,
 * norms and chunks) to the inexpressible settings. */
static void find_attention(search *s)
{
    const lh_model *m = s->m;
    add_setting_if(
        s, m->kv_lora_rank && m->qkv_bias, "qkv_bias",
        "latent attention has no biases of queries, keys and values");
    add_setting_if(s, m->qk_norm_all_heads, "qk_norm_all_heads",
                   "queries and keys are normalised head by head");
    add_setting_if(s, m->qk_l2_norm && m->no_rope_interval, "qk_l2_norm",
                   "layers without positions are normalised, too");
    add_setting_if(s, m->chunked_attention, "chunked_attention",
                   "a window ends at each token, not at the end of a chunk");
}

/* Adds the model's kinds of attention that no export target can express, such
 * as linear attention, to the inexpressible settings. */
static void find_attention_kinds(search *s)
{
    const char *reason = "the export has only attention to all tokens, windows "
                         "and latent attention";
    add_setting_if(s, s->m->linear_value_heads, "linear_value_heads", reason);
    add_setting_if(s, s->m->attention_gate, "attention_gate", reason);
    add_setting_if(s, s->m->index_topk, "index_topk", reason);
    add_setting_if(s, s->m->layer_pattern != NULL, "layer_pattern",
                   "the export has only layers of attention and an MLP");
    add_setting_if(s, s->m->expert_latent, "expert_latent",
                   "the export's experts have inputs of the hidden size");
}

/* Adds the model's norm settings that Megatron cannot express (kind, placement,
 * epsilon) to the inexpressible settings. */
static void find_norms(search *s)
{
    const lh_model *m = s->m;
    add_setting_if(s, m->norm == LH_NORM_LAYER_UNBIASED, "norm",
                   "layer norms have biases");
    add_setting_if(s, m->norm_placement != LH_NORM_PLACEMENT_PRE,
                   "norm_placement",
                   "norms come before attention and MLP only");
    /* transformers, DeepseekV3Attention: the class's default. */
    add_setting_if(
        s, m->kv_lora_rank && m->norm_epsilon > 0 && m->norm_epsilon != 1e-6,
        "norm_epsilon",
        "norms of latents have it, too, and the model's have 1e-6");
}

/* Adds the model's activation function, its offset and its limit, as far as
 * Megatron cannot express them, to the inexpressible settings. */
static void find_activation(search *s)
{
    const lh_model *m = s->m;
    const lh_activation function = m->activation;
    const bool expressible =
        function == LH_ACTIVATION_UNSET ||
        (m->gated ? function == LH_ACTIVATION_SILU ||
                        function == LH_ACTIVATION_QUICK_GELU
                  : function == LH_ACTIVATION_RELU2 ||
                        function == LH_ACTIVATION_GELU ||
                        (function == LH_ACTIVATION_GELU_TANH && m->mlp_bias));
    add_setting_if(
        s, !expressible, "activation",
        m->gated ? "gated MLPs have SiLU or quick_gelu"
                 : "other MLPs have GeLU with the error function, with tanh "
                   "and mlp_bias, or relu2");
    add_setting_if(s,
                   (m->glu_linear_offset > 0 || m->swiglu_limit > 0) &&
                       function != LH_ACTIVATION_QUICK_GELU,
                   m->glu_linear_offset > 0 ? "glu_linear_offset"
                                            : "swiglu_limit",
                   "only quick_gelu has an offset and a limit");
}

/* Adds the model's expert selection settings that Megatron cannot express
 * (score normalisation, groups) to the inexpressible settings. */
static void find_router(search *s)
{
    const lh_model *m = s->m;
    const bool sigmoid = m->router == LH_ROUTER_SIGMOID;
    if (!m->experts)
        return;
    add_setting_if(
        s, sigmoid && m->unnormalised_scores && m->experts_per_token > 1,
        "raw_shares", "sigmoid scores are always normalised");
    add_setting_if(s, m->experts_per_token == 1 && !m->unnormalised_scores,
                   "raw_shares",
                   "the score of a single expert is never normalised");
    add_setting_if(s,
                   m->expert_groups > 1 &&
                       m->experts_per_token / m->groups_per_token !=
                           (sigmoid ? 2u : 1u),
                   "groups_per_token",
                   sigmoid ? "groups are ranked by the sum of their best "
                             "experts_per_token / groups_per_token scores, the "
                             "model's by their best 2"
                           : "groups are ranked by the sum of their best "
                             "experts_per_token / groups_per_token scores, the "
                             "model's by their best");
}

/* Adds all model settings that Megatron-LM or Megatron-Bridge, the export
 * target, cannot express to the inexpressible settings. */
static void find_megatron(search *s)
{
    const lh_model *m = s->m;
    if (m->unsupported_keys)
        add_setting(s, m->unsupported_keys, "the job has no key for it");
    if (!m->positions)
        find_rotary(s);
    find_activation(s);
    find_router(s);
    find_attention(s);
    find_attention_kinds(s);
    find_norms(s);
}

/* --- torchtitan --- */

lhi_torchtitan_class lhi_export_torchtitan_class(const lh_model *m)
{
    if (m->kv_lora_rank)
        return LHI_TORCHTITAN_DEEPSEEK_V3;
    if (m->attention_sinks && m->experts)
        return LHI_TORCHTITAN_GPT_OSS;
    return m->qk_norm || m->experts ? LHI_TORCHTITAN_QWEN3
                                    : LHI_TORCHTITAN_LLAMA3;
}

/* Adds the model's biases that torchtitan's model class `class` cannot express
 * to the inexpressible settings: gpt-oss has all biases, other classes none. */
static void find_torchtitan_biases(search *s, lhi_torchtitan_class class)
{
    const lh_model *m = s->m;
    const bool all = class == LHI_TORCHTITAN_GPT_OSS;
    const char *reason =
        all ? "its gpt-oss has biases in attention, router and experts"
            : "only its gpt-oss has biases";
    add_setting_if(s, m->qkv_bias != all, "qkv_bias", reason);
    add_setting_if(s, m->output_bias != all, "output_bias", reason);
    add_setting_if(s, m->mlp_bias != all, "mlp_bias", reason);
    add_setting_if(s, m->experts && m->router_bias != all, "router_bias",
                   reason);
}

/* Adds the model's attention and position settings that torchtitan's model
 * class `class` cannot express to the inexpressible settings. */
static void find_torchtitan_attention(search *s, lhi_torchtitan_class class)
{
    const lh_model *m = s->m;
    const lh_rope_scaling *scaling = m->rope_scaling;
    add_setting_if(s, m->positions, "positions", "positions are rotary");
    add_setting_if(s, m->qk_norm && class != LHI_TORCHTITAN_QWEN3, "qk_norm",
                   "only its Qwen3 normalises queries and keys");
    add_setting_if(s, m->qk_norm_all_heads, "qk_norm_all_heads",
                   "queries and keys are normalised head by head");
    add_setting_if(s, m->qk_l2_norm, "qk_l2_norm", "such norms have weights");
    add_setting_if(s, m->attention_sinks && class != LHI_TORCHTITAN_GPT_OSS,
                   "attention_sinks",
                   "only its gpt-oss has them, with experts");
    add_setting_if(s, m->sliding_window && class != LHI_TORCHTITAN_GPT_OSS,
                   "sliding_window", "only its gpt-oss has windows");
    add_setting_if(s, m->chunked_attention, "chunked_attention",
                   "a window ends at each token, not at the end of a chunk");
    add_setting_if(s, m->no_rope_interval, "no_rope_interval",
                   "all layers have positions");
    add_setting_if(s,
                   m->partial_rotary_factor > 0 && m->partial_rotary_factor < 1,
                   "partial_rotary_factor", "whole heads are rotated");
    if (!scaling)
        return;
    if (class == LHI_TORCHTITAN_LLAMA3 || class == LHI_TORCHTITAN_QWEN3) {
        add_setting_if(
            s, class == LHI_TORCHTITAN_QWEN3 || scaling->type != LH_ROPE_LLAMA3,
            "rope_scaling",
            class == LHI_TORCHTITAN_QWEN3
                ? "its Qwen3 has no scaling with the attention's temperature"
                : "its Llama 3 has only Llama 3.1's scaling");
        return;
    }
    add_setting_if(s, scaling->type != LH_ROPE_YARN, "rope_scaling",
                   "its DeepSeek-V3 and gpt-oss have only YaRN");
    if (scaling->type != LH_ROPE_YARN)
        return;
    add_setting_if(s, scaling->attention_factor > 0,
                   "rope_scaling.attention_factor",
                   "the attention's temperature follows from factor");
    if (class == LHI_TORCHTITAN_DEEPSEEK_V3)
        add_setting_if(
            s,
            scaling->mscale_all_dim <= 0 ||
                scaling->mscale != scaling->mscale_all_dim,
            "rope_scaling.mscale",
            "its DeepSeek-V3 requires mscale equal to mscale_all_dim");
    else
        add_setting_if(s, scaling->mscale > 0 || scaling->mscale_all_dim > 0,
                       "rope_scaling.mscale",
                       "its gpt-oss has the temperature of factor alone");
}

/* Adds the model's norm and MLP settings that torchtitan's model class `class`
 * cannot express to the inexpressible settings. */
static void find_torchtitan_mlps(search *s, lhi_torchtitan_class class)
{
    const lh_model *m = s->m;
    const bool gpt_oss = class == LHI_TORCHTITAN_GPT_OSS;
    add_setting_if(s, m->norm != LH_NORM_RMS, "norm", "norms are RMS norms");
    add_setting_if(s, m->norm_placement != LH_NORM_PLACEMENT_PRE,
                   "norm_placement",
                   "norms come before attention and MLP only");
    add_setting_if(s, m->norm_zero_centered, "norm_zero_centered",
                   "the norms' factor is their weight");
    add_setting_if(s, m->parallel_block, "parallel_block",
                   "attention and MLP run one after the other");
    add_setting_if(s, !m->gated, "gated", "MLPs are gated");
    add_setting_if(
        s,
        m->gated && (gpt_oss ? m->activation != LH_ACTIVATION_QUICK_GELU
                             : m->activation != LH_ACTIVATION_UNSET &&
                                   m->activation != LH_ACTIVATION_SILU),
        "activation",
        gpt_oss ? "its gpt-oss has quick_gelu" : "gated MLPs have SiLU");
    add_setting_if(
        s, gpt_oss ? m->glu_linear_offset != 1 : m->glu_linear_offset > 0,
        "glu_linear_offset",
        gpt_oss ? "its gpt-oss adds 1" : "only its gpt-oss adds 1");
    add_setting_if(s, m->swiglu_limit > 0 && !gpt_oss, "swiglu_limit",
                   "only its gpt-oss has a limit");
}

/* Adds the model's expert settings that torchtitan's model class `class` cannot
 * express to the inexpressible settings. */
static void find_torchtitan_experts(search *s, lhi_torchtitan_class class,
                                    const lh_job *job)
{
    const lh_model *m = s->m;
    const bool deepseek = class == LHI_TORCHTITAN_DEEPSEEK_V3;
    const bool sigmoid = m->router == LH_ROUTER_SIGMOID;
    if (!m->experts)
        return;
    add_setting_if(
        s, class == LHI_TORCHTITAN_QWEN3 && !m->qk_norm, "qk_norm",
        "experts without norms of queries and keys have latent attention "
        "or attention sinks");
    add_setting_if(s, sigmoid && !deepseek, "router",
                   "only its DeepSeek-V3 has sigmoid scores");
    add_setting_if(s, m->shared_expert_ffn && !deepseek, "shared_expert_ffn",
                   "only its DeepSeek-V3 has shared experts");
    add_setting_if(s, m->shared_expert_gate, "shared_expert_gate",
                   "shared experts have no gate");
    add_setting_if(s, m->expert_groups && !(deepseek && sigmoid),
                   "expert_groups",
                   "groups are ranked by the sum of their best 2 scores");
    add_setting_if(
        s,
        class == LHI_TORCHTITAN_GPT_OSS &&
            (m->dense_layers || m->n_dense_list || m->moe_interval > 1),
        "dense_layers", "all layers of its gpt-oss have experts");
    const char *loss = job->training.balance_loss_given ? "balance_loss"
                       : m->aux_loss_given              ? "router_aux_loss_coef"
                                                        : NULL;
    add_setting_if(s, loss && lhi_job_balance_loss(job) > 0, loss,
                   "experts are balanced by biases, without a loss");
}

/* Adds all model settings that torchtitan's most similar model class cannot
 * express to the inexpressible settings. */
static void find_torchtitan(search *s, const lh_job *job)
{
    const lhi_torchtitan_class class = lhi_export_torchtitan_class(s->m);
    if (s->m->unsupported_keys)
        add_setting(s, s->m->unsupported_keys, "the job has no key for it");
    find_torchtitan_biases(s, class);
    find_torchtitan_attention(s, class);
    find_attention_kinds(s);
    find_torchtitan_mlps(s, class);
    find_torchtitan_experts(s, class, job);
}

uint32_t lh_export_list_inexact(const lh_plan *plan, lh_export_target target,
                                lh_inexact_setting *out, uint32_t room)
{
    search s = {.m = plan->job->model,
                .bridge = target == LH_EXPORT_MEGATRON_BRIDGE,
                .out = out,
                .room = room};
    if (target == LH_EXPORT_MEGATRON || target == LH_EXPORT_MEGATRON_BRIDGE)
        find_megatron(&s);
    if (target == LH_EXPORT_TORCHTITAN || target == LH_EXPORT_TORCHTITAN_MODEL)
        find_torchtitan(&s, plan->job);
    return s.n;
}

lh_status lhi_export_check_inexact(const lh_plan *plan, lh_export_target target,
                                   const char *name, bool allowed,
                                   lh_error *err)
{
    lh_inexact_setting found[LH_MAX_INEXACT];
    const uint32_t n =
        lh_export_list_inexact(plan, target, found, LH_MAX_INEXACT);
    char more[128] = "";
    if (n == 0 || allowed)
        return LH_OK;
    for (uint32_t i = 1; i < n; i++) {
        const size_t used = strlen(more);
        snprintf(more + used, sizeof more - used, "%s%s",
                 i == 1 ? "; also " : ", ", found[i].key);
    }
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "%s cannot be given the model's %s: %s%s; --allow-inexact "
                    "exports another model and lists the differences",
                    name, found[0].key, found[0].reason, more);
}

void lhi_export_put_inexact(lhi_text *out, const lh_plan *plan,
                            lh_export_target target)
{
    lh_inexact_setting found[LH_MAX_INEXACT];
    const uint32_t n =
        lh_export_list_inexact(plan, target, found, LH_MAX_INEXACT);
    for (uint32_t i = 0; i < n; i++) {
        lhi_text_puts(out, "# Not the model's: ");
        lhi_text_add_escaped(out, found[i].key, SIZE_MAX);
        lhi_text_printf(out, " (%s)\n", found[i].reason);
    }
}
