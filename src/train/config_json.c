/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a checkpoint: the model as the transformers library is told
 * about it. */
#include "base/fail.h"
#include "base/text.h"
#include "train/train_own.h"

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

static double epsilon_of(const lhi_checkpoint_options *o)
{
    return o->norm_epsilon > 0 ? o->norm_epsilon : 1e-5;
}

static double theta_of(const lhi_checkpoint_options *o)
{
    return o->rope_theta > 0 ? o->rope_theta : 10000;
}

static uint32_t sequence_of(const lhi_checkpoint_options *o)
{
    return o->sequence ? o->sequence : 2048;
}

/* What Llama, Qwen2, Qwen3, DeepSeek and Mixtral call alike. */
static void add_llama(lhi_text *text, const lh_model *m,
                      const lhi_checkpoint_options *o)
{
    /* To DeepSeek's it is the part that is turned. */
    lhi_text_printf(
        text,
        "  \"head_dim\": %u,\n  \"hidden_act\": \"silu\",\n"
        "  \"hidden_size\": %u,\n  \"intermediate_size\": %u,\n"
        "  \"max_position_embeddings\": %u,\n",
        m->kv_lora_rank ? m->qk_rope_head_dim : m->head_dim, m->hidden,
        m->experts ? m->expert_ffn : m->ffn, sequence_of(o));
    if (lhi_family_known(m) == LHI_FAMILY_LLAMA)
        lhi_text_printf(text, "  \"mlp_bias\": %s,\n", truth(m->mlp_bias));
    lhi_text_printf(
        text,
        "  \"num_attention_heads\": %u,\n  \"num_hidden_layers\": %u,\n"
        "  \"num_key_value_heads\": %u,\n  \"rms_norm_eps\": %.17g,\n"
        "  \"rope_theta\": %.17g,\n",
        m->heads, m->layers, m->kv_heads, epsilon_of(o), theta_of(o));
}

/* Every layer is dense: none of them has experts. */
static void add_deepseek(lhi_text *text, const lh_model *m)
{
    lhi_text_printf(text, "  \"attention_bias\": false,\n"
                          "  \"first_k_dense_replace\": %u,\n"
                          "  \"kv_lora_rank\": %u,\n"
                          "  \"n_routed_experts\": 0,\n",
                    m->layers, m->kv_lora_rank);
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
                    o->dropout, m->ffn, o->dropout, m->hidden, epsilon_of(o),
                    sequence_of(o), m->heads, m->layers, theta_of(o));
}

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
                    o->dropout, o->dropout, epsilon_of(o), m->hidden, m->heads,
                    m->ffn, m->layers, m->positions, o->dropout);
}

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
    };
    lhi_family family = lhi_family_known(m);
    lhi_text_printf(text, "{\n%s", heads[family]);
    if (family == LHI_FAMILY_LLAMA || family == LHI_FAMILY_QWEN3)
        lhi_text_printf(text, "  \"attention_bias\": %s,\n",
                        truth(m->qkv_bias));
    if (family == LHI_FAMILY_DEEPSEEK)
        add_deepseek(text, m);
    if (family == LHI_FAMILY_MIXTRAL)
        add_mixtral(text, m, o);
    if (family == LHI_FAMILY_GPT2)
        add_gpt2(text, m, o);
    else if (family == LHI_FAMILY_FALCON)
        add_falcon(text, m, o);
    else
        add_llama(text, m, o);
    lhi_text_printf(text,
                    "  \"tie_word_embeddings\": %s,\n"
                    "  \"torch_dtype\": \"float32\",\n"
                    "  \"vocab_size\": %u\n}\n",
                    truth(m->tied_embeddings), m->vocab);
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
