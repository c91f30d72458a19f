/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a checkpoint's config.json: the model for the transformers library. */
#include "base/fail.h"
#include "base/text.h"
#include "runtime/training/train_internal.h"

#include <longhaul/experimental/status.h>

#include <math.h>

/* Returns "true" or "false", as in JSON. */
static const char *get_json_bool(bool value)
{
    return value ? "true" : "false";
}

/* Returns the norm's epsilon from the checkpoint options; 1e-5 if unset. */
static double get_epsilon(const lhi_checkpoint_options *o)
{
    return o->norm_epsilon > 0 ? o->norm_epsilon : 1e-5;
}

/* Returns the rotary frequencies' base from the checkpoint options; 10000 if
 * unset. */
static double get_theta(const lhi_checkpoint_options *o)
{
    return o->rope_theta > 0 ? o->rope_theta : 10000;
}

/* Returns the sequence length, in tokens, from the checkpoint options; 2048 if
 * unset. */
static uint32_t get_sequence(const lhi_checkpoint_options *o)
{
    return o->sequence ? o->sequence : 2048;
}

/* Appends the config.json keys of Llama's architecture, which Qwen2, Qwen3,
 * DeepSeek, Mixtral and GLM-4 share, to `text`. */
static void add_llama(lhi_text *text, const lh_model *m,
                      const lhi_checkpoint_options *o)
{
    /* DeepSeek's is the rotary part. */
    lhi_text_printf(
        text,
        "  \"head_dim\": %u,\n  \"hidden_act\": \"silu\",\n"
        "  \"hidden_size\": %u,\n  \"intermediate_size\": %u,\n"
        "  \"max_position_embeddings\": %u,\n",
        m->kv_lora_rank ? m->qk_rope_head_dim : m->head_dim, m->hidden,
        lhi_family_get(m) == LHI_FAMILY_MIXTRAL ? m->expert_ffn : m->ffn,
        get_sequence(o));
    if (lhi_family_get(m) == LHI_FAMILY_LLAMA)
        lhi_text_printf(text, "  \"mlp_bias\": %s,\n",
                        get_json_bool(m->mlp_bias));
    lhi_text_printf(
        text,
        "  \"num_attention_heads\": %u,\n  \"num_hidden_layers\": %u,\n"
        "  \"num_key_value_heads\": %u,\n  \"rms_norm_eps\": %.17g,\n"
        "  \"rope_theta\": %.17g,\n",
        m->heads, m->layers, m->kv_heads, get_epsilon(o), get_theta(o));
}

/* Appends the config.json keys of experts with a sigmoid router to `text`.
 * Writes an integral scale with a decimal point, because Hugging Face
 * transformers rejects an integer. */
static void add_sigmoid_experts(lhi_text *text, const lh_model *m)
{
    double scale = m->routed_scale > 0 ? m->routed_scale : 1;
    bool whole = scale < 1e15 && floor(scale) == scale;
    lhi_text_printf(text,
                    "  \"first_k_dense_replace\": %u,\n"
                    "  \"moe_intermediate_size\": %u,\n"
                    "  \"n_group\": %u,\n"
                    "  \"n_routed_experts\": %u,\n"
                    "  \"n_shared_experts\": %u,\n"
                    "  \"norm_topk_prob\": %s,\n"
                    "  \"num_experts_per_tok\": %u,\n"
                    "  \"num_nextn_predict_layers\": %u,\n"
                    "  \"routed_scaling_factor\": %.17g%s,\n"
                    "  \"topk_group\": %u,\n",
                    lhi_first_moe_layer(m), m->expert_ffn,
                    m->expert_groups ? m->expert_groups : 1, m->experts,
                    m->shared_expert_ffn / m->expert_ffn,
                    get_json_bool(!m->unnormalised_scores),
                    m->experts_per_token, m->mtp_layers, scale,
                    whole ? ".0" : "",
                    m->groups_per_token ? m->groups_per_token : 1);
}

/* Appends the config.json keys of DeepSeek-V3 for latent attention and experts
 * to `text`. */
static void add_deepseek(lhi_text *text, const lh_model *m)
{
    lhi_text_printf(text,
                    "  \"attention_bias\": false,\n"
                    "  \"kv_lora_rank\": %u,\n",
                    m->kv_lora_rank);
    if (m->experts)
        add_sigmoid_experts(text, m);
    else
        lhi_text_printf(text,
                        "  \"first_k_dense_replace\": %u,\n"
                        "  \"n_routed_experts\": 0,\n",
                        m->layers);
    if (m->q_lora_rank)
        lhi_text_printf(text, "  \"q_lora_rank\": %u,\n", m->q_lora_rank);
    else
        lhi_text_printf(text, "  \"q_lora_rank\": null,\n");
    lhi_text_printf(text,
                    "  \"qk_nope_head_dim\": %u,\n"
                    "  \"qk_rope_head_dim\": %u,\n"
                    "  \"rope_interleave\": true,\n"
                    "  \"v_head_dim\": %u,\n",
                    m->qk_nope_head_dim, m->qk_rope_head_dim, m->v_head_dim);
}

/* Appends all config.json keys of a Falcon model to `text`. */
static void add_falcon(lhi_text *text, const lh_model *m,
                       const lhi_checkpoint_options *o)
{
    lhi_text_printf(text,
                    "  \"activation\": \"gelu_pytorch_tanh\",\n"
                    "  \"alibi\": false,\n  \"attention_dropout\": %.17g,\n"
                    "  \"bias\": false,\n  \"ffn_hidden_size\": %u,\n"
                    "  \"hidden_dropout\": %.17g,\n  \"hidden_size\": %u,\n"
                    "  \"layer_norm_epsilon\": %.17g,\n"
                    "  \"max_position_embeddings\": %u,\n"
                    "  \"multi_query\": true,\n"
                    "  \"new_decoder_architecture\": false,\n"
                    "  \"num_attention_heads\": %u,\n"
                    "  \"num_hidden_layers\": %u,\n"
                    "  \"parallel_attn\": true,\n  \"rope_theta\": %.17g,\n",
                    o->dropout, m->ffn, o->dropout, m->hidden, get_epsilon(o),
                    get_sequence(o), m->heads, m->layers, get_theta(o));
}

/* Appends the config.json keys of a Mixtral model's experts to `text`. */
static void add_mixtral(lhi_text *text, const lh_model *m,
                        const lhi_checkpoint_options *o)
{
    lhi_text_printf(text,
                    "  \"num_experts_per_tok\": %u,\n"
                    "  \"num_local_experts\": %u,\n"
                    "  \"router_aux_loss_coef\": %.17g,\n"
                    "  \"sliding_window\": null,\n",
                    m->experts_per_token, m->experts, o->balance);
}

/* Appends the config.json keys that list the layers without experts, as
 * Qwen2-MoE names them, to `text`. */
static void add_dense_layers(lhi_text *text, const lh_model *m)
{
    uint32_t step = m->moe_interval, n = 0;
    if (m->moe_phase + 1 != step)
        step = 1;
    lhi_text_printf(text,
                    "  \"decoder_sparse_step\": %u,\n"
                    "  \"mlp_only_layers\": [",
                    step);
    for (uint32_t i = 0; i < m->layers; i++)
        if (!lh_model_layer_is_moe(m, i) && (i + 1) % step == 0)
            lhi_text_printf(text, "%s%u", n++ ? ", " : "", i);
    lhi_text_printf(text, "],\n");
}

/* Appends the config.json keys of the experts of a Qwen2-MoE or Qwen3-MoE model
 * to `text`. */
static void add_qwen_moe(lhi_text *text, const lh_model *m,
                         const lhi_checkpoint_options *o)
{
    add_dense_layers(text, m);
    lhi_text_printf(text,
                    "  \"moe_intermediate_size\": %u,\n"
                    "  \"norm_topk_prob\": %s,\n"
                    "  \"num_experts\": %u,\n"
                    "  \"num_experts_per_tok\": %u,\n"
                    "  \"router_aux_loss_coef\": %.17g,\n",
                    m->expert_ffn, get_json_bool(!m->unnormalised_scores),
                    m->experts, m->experts_per_token, o->balance);
    if (m->shared_expert_ffn)
        lhi_text_printf(text,
                        "  \"qkv_bias\": %s,\n"
                        "  \"shared_expert_intermediate_size\": %u,\n",
                        get_json_bool(m->qkv_bias), m->shared_expert_ffn);
}

/* Appends the config.json keys of a GLM-4-MoE model's attention and experts to
 * `text`. */
static void add_glm4_moe(lhi_text *text, const lh_model *m)
{
    lhi_text_printf(text,
                    "  \"attention_bias\": %s,\n"
                    "  \"partial_rotary_factor\": 1.0,\n"
                    "  \"use_qk_norm\": %s,\n",
                    get_json_bool(m->qkv_bias), get_json_bool(m->qk_norm));
    add_sigmoid_experts(text, m);
}

/* Appends all config.json keys of a GPT-2 model to `text`. */
static void add_gpt2(lhi_text *text, const lh_model *m,
                     const lhi_checkpoint_options *o)
{
    lhi_text_printf(text,
                    "  \"activation_function\": \"gelu_new\",\n"
                    "  \"attn_pdrop\": %.17g,\n  \"embd_pdrop\": %.17g,\n"
                    "  \"layer_norm_epsilon\": %.17g,\n  \"n_embd\": %u,\n"
                    "  \"n_head\": %u,\n  \"n_inner\": %u,\n"
                    "  \"n_layer\": %u,\n  \"n_positions\": %u,\n"
                    "  \"resid_pdrop\": %.17g,\n",
                    o->dropout, o->dropout, get_epsilon(o), m->hidden, m->heads,
                    m->ffn, m->layers, m->positions, o->dropout);
}

/* Writes the model as config.json into `text`, with its family's keys in
 * Hugging Face transformers. */
static void add_all(lhi_text *text, const lh_model *m,
                    const lhi_checkpoint_options *o)
{
    static const char *const heads[] = {
        [LHI_FAMILY_LLAMA] = "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                             "  \"model_type\": \"llama\",\n",
        [LHI_FAMILY_QWEN2] = "  \"architectures\": [\"Qwen2ForCausalLM\"],\n"
                             "  \"model_type\": \"qwen2\",\n",
        [LHI_FAMILY_QWEN3] = "  \"architectures\": [\"Qwen3ForCausalLM\"],\n"
                             "  \"model_type\": \"qwen3\",\n",
        [LHI_FAMILY_FALCON] = "  \"architectures\": [\"FalconForCausalLM\"],\n"
                              "  \"model_type\": \"falcon\",\n",
        [LHI_FAMILY_DEEPSEEK] =
            "  \"architectures\": [\"DeepseekV3ForCausalLM\"],\n"
            "  \"model_type\": \"deepseek_v3\",\n",
        [LHI_FAMILY_GPT2] = "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                            "  \"model_type\": \"gpt2\",\n",
        [LHI_FAMILY_MIXTRAL] =
            "  \"architectures\": [\"MixtralForCausalLM\"],\n"
            "  \"model_type\": \"mixtral\",\n",
        [LHI_FAMILY_QWEN2_MOE] =
            "  \"architectures\": [\"Qwen2MoeForCausalLM\"],\n"
            "  \"model_type\": \"qwen2_moe\",\n",
        [LHI_FAMILY_QWEN3_MOE] =
            "  \"architectures\": [\"Qwen3MoeForCausalLM\"],\n"
            "  \"model_type\": \"qwen3_moe\",\n",
        [LHI_FAMILY_GLM4_MOE] =
            "  \"architectures\": [\"Glm4MoeForCausalLM\"],\n"
            "  \"model_type\": \"glm4_moe\",\n",
    };
    lhi_family family = lhi_family_get(m);
    lhi_text_printf(text, "{\n%s", heads[family]);
    if (family == LHI_FAMILY_LLAMA || family == LHI_FAMILY_QWEN3 ||
        family == LHI_FAMILY_QWEN3_MOE)
        lhi_text_printf(text, "  \"attention_bias\": %s,\n",
                        get_json_bool(m->qkv_bias));
    if (family == LHI_FAMILY_DEEPSEEK)
        add_deepseek(text, m);
    if (family == LHI_FAMILY_MIXTRAL)
        add_mixtral(text, m, o);
    if (family == LHI_FAMILY_QWEN2_MOE || family == LHI_FAMILY_QWEN3_MOE)
        add_qwen_moe(text, m, o);
    if (family == LHI_FAMILY_GLM4_MOE)
        add_glm4_moe(text, m);
    if (family == LHI_FAMILY_GPT2)
        add_gpt2(text, m, o);
    else if (family == LHI_FAMILY_FALCON)
        add_falcon(text, m, o);
    else
        add_llama(text, m, o);
    /* Most families ignore it. */
    if (m->mtp_layers && !(m->experts && m->router == LH_ROUTER_SIGMOID))
        lhi_text_printf(text, "  \"num_nextn_predict_layers\": %u,\n",
                        m->mtp_layers);
    lhi_text_printf(text,
                    "  \"tie_word_embeddings\": %s,\n"
                    "  \"torch_dtype\": \"float32\",\n"
                    "  \"vocab_size\": %u\n}\n",
                    get_json_bool(m->tied_embeddings), m->vocab);
}

lh_status lhi_write_config(const lh_model *model,
                           const lhi_checkpoint_options *options,
                           const char *folder, lh_error *err)
{
    char path[LHI_PATH], *made;
    size_t len;
    lhi_text text = {0};
    LHI_TRY(lhi_folder_path(path, err, "%s/" LHI_CONFIG_FILE, folder));
    add_all(&text, model, options);
    LHI_TRY(lhi_text_take(&text, &made, &len, err));
    lh_status status = lh_file_write(path, made, len, err);
    lh_text_free(made);
    return status;
}
