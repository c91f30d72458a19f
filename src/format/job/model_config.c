/* SPDX-License-Identifier: Apache-2.0 */
/* Models from Hugging Face config.json files.
 *
 * The meaning of a key, and of its absence, follows the family's configuration
 * class in transformers (configuration_*.py, version 4.57). A multimodal file
 * nests the language model under text_config, written as a difference from the
 * class: there, absent sizes default to the class's. A file for a single model
 * must specify its sizes. */
#include "format/job/model_config_internal.h"
#include "format/job/model_size.h"

#include <math.h>
#include <string.h>

static const family families[] = {
    {"llama", LLAMA, 32000, 4096, 11008, 32, 32, 32},
    {"mistral", MISTRAL, 32000, 4096, 14336, 32, 32, 8},
    {"mixtral", MIXTRAL, 32000, 4096, 14336, 32, 32, 8},
    {"qwen2", QWEN2, 151936, 4096, 22016, 32, 32, 32},
    {"qwen2_vl", QWEN2, 152064, 8192, 29568, 80, 64, 8},
    {"qwen2_vl_text", QWEN2, 152064, 8192, 29568, 80, 64, 8},
    {"qwen2_5_vl", QWEN2, 152064, 8192, 29568, 80, 64, 8},
    {"qwen2_5_vl_text", QWEN2, 152064, 8192, 29568, 80, 64, 8},
    {"qwen3", QWEN3, 151936, 4096, 22016, 32, 32, 32},
    {"qwen3_vl_text", QWEN3, 151936, 4096, 22016, 32, 32, 32},
    {"qwen2_moe", QWEN2_MOE, 151936, 2048, 5632, 24, 16, 16},
    {"qwen3_moe", QWEN3_MOE, 151936, 2048, 6144, 24, 32, 4},
    {"qwen3_vl_moe_text", QWEN3_MOE, 151936, 2048, 5632, 24, 16, 16},
    {"deepseek_v2", DEEPSEEK, 32000, 4096, 11008, 32, 32, 32},
    {"deepseek_v3", DEEPSEEK, 129280, 7168, 18432, 61, 128, 128},
    {"deepseek_v32", DEEPSEEK, 129280, 7168, 18432, 61, 128, 128},
    {"kimi_k2", DEEPSEEK, 129280, 7168, 18432, 61, 128, 128},
    {"glm4_moe", GLM4_MOE, 151552, 4096, 10944, 46, 96, 8},
    {"gpt_oss", GPT_OSS, 201088, 2880, 2880, 36, 64, 8},
    {"gpt2", GPT2, 50257, 768, 3072, 12, 12, 12},
    {"falcon", FALCON, 65024, 4544, 18176, 32, 71, 1},
    {"phi3", PHI3, 32064, 3072, 8192, 32, 32, 32},
    {"olmo2", OLMO2, 50304, 4096, 11008, 32, 32, 32},
    {"nemotron", NEMOTRON, 256000, 6144, 24576, 32, 48, 48},
    {"cohere2", COHERE2, 256000, 8192, 22528, 40, 64, 64},
    {"gemma3_text", GEMMA3, 262208, 2304, 9216, 26, 8, 4},
    {"minimax_m2", MINIMAX_M2, 200064, 3072, 1536, 62, 48, 8},
    {"llama4_text", LLAMA4, 202048, 5120, 8192, 48, 40, 8},
    {"qwen3_next", QWEN3_NEXT, 151936, 2048, 5632, 48, 16, 2},
    {"nemotron_h", NEMOTRON_H, 131072, 4096, 21504, 52, 32, 8},
    {"grok-1", GROK, 131072, 6144, 32768, 64, 48, 8},
};

/* Finds the language model's map in a config.json, and its family by
 * model_type. LH_EUNSUPPORTED: the family is unknown. */
static lh_status find_family(reader *r, lh_error *err)
{
    const lhi_node *text = lhi_node_find(r->outer, "text_config"), *node;
    const char *type;
    r->map = r->outer;
    if (text && !lhi_node_is_null(text)) {
        LHI_TRY(lhi_node_check_map(r->doc, text, err));
        r->map = text;
    }
    if (!(node = lhi_node_find(r->map, "model_type")))
        LHI_TRY(lhi_node_require(r->doc, r->outer, "model_type", &node, err));
    LHI_TRY(lhi_node_get_string(r->doc, node, &type, err));
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].type, type) == 0) {
            r->family = &families[i];
            return LH_OK;
        }
    return lhi_config_fail_family(r, node, type, err);
}

/* Reads the norms' epsilon. 1e-5 is the default of lh_model and is not stored,
 * except beside latent attention, whose own norms have 1e-6. */
static lh_status read_epsilon(reader *r, lh_error *err)
{
    const style s = r->family->style;
    static const char *const keys[NEMOTRON_H + 1] = {
        [GPT2] = "layer_norm_epsilon",
        [FALCON] = "layer_norm_epsilon",
        [NEMOTRON] = "norm_eps",
        [COHERE2] = "layer_norm_eps",
        [NEMOTRON_H] = "layer_norm_epsilon",
        [GROK] = "rms_norm_eps"};
    const lhi_node *node =
        lhi_node_find(r->map, keys[s] ? keys[s] : "rms_norm_eps");
    double epsilon = keys[s] || s == MIXTRAL || s == GLM4_MOE || s == GPT_OSS ||
                             s == PHI3 || s == OLMO2 || s == LLAMA4
                         ? 1e-5
                         : 1e-6;
    if (node && !lhi_node_is_null(node))
        LHI_TRY(lhi_node_get_number(r->doc, node, LHI_MIN_EPSILON,
                                    LHI_MAX_EPSILON, &epsilon, err));
    r->model.norm_epsilon = epsilon == 1e-5 && s != DEEPSEEK ? 0 : epsilon;
    return LH_OK;
}

/* Reads the constants that do not affect time, such as the activation function
 * and rotary fraction, with the family's defaults. */
static lh_status read_constants(reader *r, lh_error *err)
{
    const style s = r->family->style;
    const lhi_config_class class_has = {
        .activation = s == GPT2         ? "activation_function"
                      : s == FALCON     ? "activation"
                      : s == GEMMA3     ? "hidden_activation"
                      : s == NEMOTRON_H ? "mlp_hidden_act"
                                        : "hidden_act",
        .function = s == GPT2                          ? "gelu_new"
                    : s == FALCON || s == GROK         ? "gelu"
                    : s == GEMMA3                      ? "gelu_pytorch_tanh"
                    : s == NEMOTRON || s == NEMOTRON_H ? "relu2"
                                                       : NULL,
        .clamped_swiglu = s == GPT_OSS,
        .rotary = s != GPT2 && s != NEMOTRON_H,
        .rotary_fraction = s == QWEN3_NEXT                  ? 0.25
                           : s == GLM4_MOE || s == NEMOTRON ? 0.5
                           : s == PHI3 || s == MINIMAX_M2   ? 1
                                                            : 0,
        .differs = s == GEMMA3    ? "model_type (scaled embeddings)"
                   : s == COHERE2 ? "logit_scale"
                   : s == LLAMA4  ? "model_type (scaled inputs of experts)"
                                  : NULL};
    return lhi_config_read_constants(r->doc, r->map, &class_has, r->mem,
                                     &r->model, err);
}

/* Reads the sizes that all model families share, and whether embeddings are
 * tied. */
static lh_status read_sizes(reader *r, lh_error *err)
{
    const family *f = r->family;
    lh_model *m = &r->model;
    bool nested = r->map != r->outer;
    LHI_TRY(lhi_config_read_size(r, "vocab_size", LHI_MAX_VOCAB, f->vocab,
                                 &m->vocab, err));
    LHI_TRY(lhi_config_read_size(r, "hidden_size", LHI_MAX_WIDTH, f->hidden,
                                 &m->hidden, err));
    LHI_TRY(lhi_config_read_size(r, "num_hidden_layers", LHI_MAX_LAYERS,
                                 f->layers, &m->layers, err));
    LHI_TRY(lhi_config_read_size(r, "num_attention_heads", LHI_MAX_WIDTH,
                                 f->heads, &m->heads, err));
    LHI_TRY(lhi_config_read_size(r, "intermediate_size", LHI_MAX_VOCAB, f->ffn,
                                 &m->ffn, err));
    LHI_TRY(lhi_config_read_number(r, "num_key_value_heads", LHI_MAX_WIDTH,
                                   nested ? f->kv_heads : m->heads,
                                   &m->kv_heads, err));
    LHI_TRY(lhi_config_read_rope_theta(r, err));
    LHI_TRY(lhi_config_read_flag(r, r->outer, "tie_word_embeddings",
                                 &m->tied_embeddings, err));
    return lhi_config_read_flag(r, r->map, "tie_word_embeddings",
                                &m->tied_embeddings, err);
}

/* Sets the biases and the query-key norms by the model's family, from the
 * family's keys or its reference code. */
static lh_status read_biases(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    bool bias = false;
    switch (r->family->style) {
    case QWEN2: /* in the code, not in the file */
        m->qkv_bias = true;
        return LH_OK;
    case QWEN2_MOE:
        m->qkv_bias = true;
        return lhi_config_read_flag(r, r->map, "qkv_bias", &m->qkv_bias, err);
    case MISTRAL:
    case MIXTRAL:
        return LH_OK;
    case LLAMA:
        LHI_TRY(lhi_config_read_flag(r, r->map, "mlp_bias", &m->mlp_bias, err));
        break;
    case QWEN3:
    case QWEN3_MOE:
    case QWEN3_NEXT:
        m->qk_norm = true;
        break;
    case GLM4_MOE: /* queries, keys and values only */
        LHI_TRY(
            lhi_config_read_flag(r, r->map, "use_qk_norm", &m->qk_norm, err));
        return lhi_config_read_flag(r, r->map, "attention_bias", &m->qkv_bias,
                                    err);
    case GPT_OSS: /* its experts and router always have biases */
        m->mlp_bias = m->router_bias = m->attention_sinks = true;
        bias = true;
        break;
    case PHI3:
    case GROK:
    case MINIMAX_M2:
        return LH_OK;
    case NEMOTRON:
        LHI_TRY(lhi_config_read_flag(r, r->map, "mlp_bias", &m->mlp_bias, err));
        break;
    case DEEPSEEK:
    case OLMO2:
    case COHERE2:
    case GEMMA3:
    case LLAMA4:
    case GPT2:
    case FALCON:
    case NEMOTRON_H:
        break;
    }
    LHI_TRY(lhi_config_read_flag(r, r->map, "attention_bias", &bias, err));
    m->qkv_bias = m->output_bias = bias;
    return LH_OK;
}

/* Token routing, by the keys of classes with a choice, or their defaults if
 * absent. One group means no grouping. */
typedef struct routing {
    bool normalized;
    double scale;
    uint32_t groups, chosen;
} routing;

/* Checks for greedy token routing: DeepSeek-V2-Lite defines expert groups, but
 * disables them. */
static bool is_greedy(const reader *r)
{
    const lhi_node *node = lhi_node_find(r->map, "topk_method");
    const char *method = "";
    lh_error err;
    return node && !lhi_node_is_null(node) &&
           lhi_node_get_string(r->doc, node, &method, &err) == LH_OK &&
           strcmp(method, "greedy") == 0;
}

/* Reads a DeepSeek-style model's token routing; `absent`:
 * its class's defaults in transformers for missing keys. */
static lh_status read_routing(reader *r, const routing *absent, lh_error *err)
{
    lh_model *m = &r->model;
    const lhi_node *node = lhi_node_find(r->map, "routed_scaling_factor");
    bool normalized = absent->normalized;
    LHI_TRY(
        lhi_config_read_flag(r, r->map, "norm_topk_prob", &normalized, err));
    m->unnormalised_scores = !normalized;
    m->routed_scale = absent->scale;
    if (node && !lhi_node_is_null(node))
        LHI_TRY(lhi_node_get_number(r->doc, node, 1e-6, 1e6, &m->routed_scale,
                                    err));
    if (m->routed_scale == 1)
        m->routed_scale = 0;
    LHI_TRY(lhi_config_read_number(r, "n_group", LHI_MAX_WIDTH, absent->groups,
                                   &m->expert_groups, err));
    LHI_TRY(lhi_config_read_number(r, "topk_group", LHI_MAX_WIDTH,
                                   absent->chosen, &m->groups_per_token, err));
    if (m->expert_groups <= 1 || is_greedy(r))
        m->expert_groups = m->groups_per_token = 0;
    return LH_OK;
}

/* Reads the sliding attention window and the layers that use it, from the keys
 * of the model's family. */
static lh_status read_window(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    bool used = false;
    switch (r->family->style) {
    case MISTRAL: {
        /* Here null differs from absent: it disables the window. */
        const lhi_node *node = lhi_node_find(r->map, "sliding_window");
        if (node && lhi_node_is_null(node))
            return LH_OK;
        return lhi_config_read_number(r, "sliding_window", LHI_MAX_VOCAB, 4096,
                                      &m->sliding_window, err);
    }
    case MIXTRAL:
    case PHI3:
        return lhi_config_read_number(r, "sliding_window", LHI_MAX_VOCAB, 0,
                                      &m->sliding_window, err);
    case QWEN2:
    case QWEN3:
    case QWEN2_MOE:
        LHI_TRY(
            lhi_config_read_flag(r, r->map, "use_sliding_window", &used, err));
        if (!used)
            return LH_OK;
        LHI_TRY(lhi_config_read_number(r, "sliding_window", LHI_MAX_VOCAB, 4096,
                                       &m->sliding_window, err));
        return lhi_config_read_number(r, "max_window_layers", LHI_MAX_LAYERS,
                                      28, &m->window_first_layer, err);
    case QWEN3_MOE: /* from the first layer, ignoring max_window_layers */
        LHI_TRY(
            lhi_config_read_flag(r, r->map, "use_sliding_window", &used, err));
        return used ? lhi_config_read_number(r, "sliding_window", LHI_MAX_VOCAB,
                                             4096, &m->sliding_window, err)
                    : LH_OK;
    case GPT_OSS:
        LHI_TRY(lhi_config_read_number(r, "sliding_window", LHI_MAX_VOCAB, 128,
                                       &m->sliding_window, err));
        return m->sliding_window ? lhi_config_read_layer_types(r, 2, err)
                                 : LH_OK;
    default:
        return LH_OK;
    }
}

/* Reads the expert count, of experts per token, and their width from a
 * Mixtral or gpt-oss config. */
static lh_status read_mixtral(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    const bool nested = r->map != r->outer;
    const bool gpt_oss = r->family->style == GPT_OSS;
    m->expert_ffn = m->ffn;
    m->ffn = 0;
    LHI_TRY(lhi_config_read_size(r, "num_local_experts", LHI_MAX_WIDTH,
                                 !nested   ? 0
                                 : gpt_oss ? 128
                                           : 8,
                                 &m->experts, err));
    return lhi_config_read_size(r, "num_experts_per_tok", LHI_MAX_WIDTH,
                                !nested   ? 0
                                : gpt_oss ? 4
                                          : 2,
                                &m->experts_per_token, err);
}

/* Reads mlp_only_layers into the model's sorted dense_list: layers that are
 * dense although decoder_sparse_step would give them experts. */
static lh_status read_dense_list(reader *r, lh_error *err)
{
    const lhi_node *list = lhi_node_find(r->map, "mlp_only_layers");
    if (!list || lhi_node_is_null(list))
        return LH_OK;
    LHI_TRY(lhi_node_check_list(r->doc, list, err));
    uint32_t *layers = LHI_NEW(r->mem, uint32_t, list->n_items), n = 0;
    if (!layers)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        uint32_t layer, i = n;
        LHI_TRY(lhi_node_get_u32(r->doc, node, 0, r->model.layers - 1, &layer,
                                 err));
        while (i > 0 && layers[i - 1] > layer)
            i--;
        if (i > 0 && layers[i - 1] == layer)
            continue;
        memmove(&layers[i + 1], &layers[i], (n - i) * sizeof *layers);
        layers[i] = layer;
        n++;
    }
    r->model.dense_list = layers;
    r->model.n_dense_list = n;
    return LH_OK;
}

/* Reads the experts' keys of a Qwen2-MoE or Qwen3-MoE config. */
static lh_status read_qwen_moe(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    const bool two = r->family->style == QWEN2_MOE;
    const bool next = r->family->style == QWEN3_NEXT;
    bool local = !lhi_node_find(r->map, "num_experts") &&
                 lhi_node_find(r->map, "num_local_experts");
    uint32_t step;
    LHI_TRY(lhi_config_read_size(r, local ? "num_local_experts" : "num_experts",
                                 LHI_MAX_WIDTH,
                                 two    ? 60
                                 : next ? 512
                                        : 128,
                                 &m->experts, err));
    LHI_TRY(lhi_config_read_size(r, "num_experts_per_tok", LHI_MAX_WIDTH,
                                 two    ? 4
                                 : next ? 10
                                        : 8,
                                 &m->experts_per_token, err));
    LHI_TRY(lhi_config_read_size(r, "moe_intermediate_size", LHI_MAX_VOCAB,
                                 two    ? 1408
                                 : next ? 512
                                        : 768,
                                 &m->expert_ffn, err));
    if (two || next)
        LHI_TRY(lhi_config_read_size(r, "shared_expert_intermediate_size",
                                     LHI_MAX_VOCAB, two ? 5632 : 512,
                                     &m->shared_expert_ffn, err));
    m->shared_expert_gate = two || next;
    bool normalized = next;
    LHI_TRY(
        lhi_config_read_flag(r, r->map, "norm_topk_prob", &normalized, err));
    m->unnormalised_scores = !normalized;
    LHI_TRY(lhi_config_read_number(r, "decoder_sparse_step", LHI_MAX_LAYERS, 1,
                                   &step, err));
    if (step == 0)
        return lhi_doc_fail(r->doc,
                            lhi_node_find(r->map, "decoder_sparse_step"), err,
                            LH_EINPUT, "must not be 0");
    m->moe_interval = step;
    m->moe_phase = step - 1;
    return read_dense_list(r, err);
}

/* A class's defaults for experts; a file for a single model must specify its
 * sizes. */
typedef struct expert_class {
    lh_router router;
    uint32_t experts, chosen, width, shared, dense;
    routing routing;
} expert_class;

static const expert_class deepseek_v2 = {LH_ROUTER_SOFTMAX, 64, 0, 1407, 2, 0,
                                         {false, 1, 1, 1}};
static const expert_class deepseek_v3 = {LH_ROUTER_SIGMOID, 256, 8, 2048, 1, 3,
                                         {true, 2.5, 8, 4}};
static const expert_class glm4_moe = {LH_ROUTER_SIGMOID, 128, 8, 1408, 1, 1,
                                      {true, 1, 1, 1}};

static const expert_class nemotron_h = {LH_ROUTER_SIGMOID, 8, 2, 7688, 1, 0,
                                        {true, 1, 1, 1}};

/* Reads a DeepSeek-style model's experts; `class_has`:
 * its class's defaults in transformers for missing keys. */
static lh_status read_experts(reader *r, const expert_class *class_has,
                              lh_error *err)
{
    lh_model *m = &r->model;
    bool nested = r->map != r->outer;
    uint32_t shared;
    uint64_t width;
    LHI_TRY(lhi_config_read_number(r, "n_routed_experts", LHI_MAX_WIDTH,
                                   nested ? class_has->experts : 0, &m->experts,
                                   err));
    if (m->experts == 0)
        return LH_OK;
    LHI_TRY(lhi_config_read_size(r, "num_experts_per_tok", LHI_MAX_WIDTH,
                                 class_has->chosen, &m->experts_per_token,
                                 err));
    LHI_TRY(lhi_config_read_size(r, "moe_intermediate_size", LHI_MAX_VOCAB,
                                 class_has->width, &m->expert_ffn, err));
    LHI_TRY(lhi_config_read_number(r, "n_shared_experts", LHI_MAX_WIDTH,
                                   nested ? class_has->shared : 0, &shared,
                                   err));
    width = (uint64_t)shared * m->expert_ffn;
    if (width > LHI_MAX_VOCAB)
        return lhi_doc_fail(r->doc, lhi_node_find(r->map, "n_shared_experts"),
                            err, LH_EINPUT, "are too many for their width");
    m->shared_expert_ffn = (uint32_t)width;
    LHI_TRY(lhi_config_read_number(r, "first_k_dense_replace", LHI_MAX_LAYERS,
                                   class_has->dense, &m->dense_layers, err));
    m->router = class_has->router;
    LHI_TRY(read_routing(r, &class_has->routing, err));
    LHI_TRY(lhi_config_read_number(r, "moe_layer_freq", LHI_MAX_LAYERS, 1,
                                   &m->moe_interval, err));
    if (m->moe_interval == 0)
        return lhi_doc_fail(r->doc, lhi_node_find(r->map, "moe_layer_freq"),
                            err, LH_EINPUT, "must not be 0");
    return LH_OK;
}

/* Reads latent attention, multi-token prediction and experts of a DeepSeek
 * model. */
static lh_status read_deepseek(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    const lhi_node *q = lhi_node_find(r->map, "q_lora_rank");
    m->kv_heads = m->heads;
    /* null means uncompressed queries; absent means the class's default. */
    if (!q || !lhi_node_is_null(q))
        LHI_TRY(lhi_config_read_size(r, "q_lora_rank", LHI_MAX_WIDTH, 1536,
                                     &m->q_lora_rank, err));
    LHI_TRY(lhi_config_read_size(r, "kv_lora_rank", LHI_MAX_WIDTH, 512,
                                 &m->kv_lora_rank, err));
    LHI_TRY(lhi_config_read_size(r, "qk_nope_head_dim", LHI_MAX_WIDTH, 128,
                                 &m->qk_nope_head_dim, err));
    LHI_TRY(lhi_config_read_size(r, "qk_rope_head_dim", LHI_MAX_WIDTH, 64,
                                 &m->qk_rope_head_dim, err));
    LHI_TRY(lhi_config_read_size(r, "v_head_dim", LHI_MAX_WIDTH, 128,
                                 &m->v_head_dim, err));
    m->head_dim = m->qk_nope_head_dim + m->qk_rope_head_dim;
    if (strcmp(r->family->type, "deepseek_v32") == 0)
        LHI_TRY(lhi_config_read_indexer(r, err));
    LHI_TRY(lhi_config_read_number(r, "num_nextn_predict_layers",
                                   LHI_MAX_LAYERS, 0, &m->mtp_layers, err));
    return read_experts(
        r, r->family->heads == 128 ? &deepseek_v3 : &deepseek_v2, err);
}

/* Reads a Nemotron-H config, which lists the kind of every layer: sizes, layer
 * kinds and, if a layer has experts, the experts. */
static lh_status read_hybrid(reader *r, lh_error *err)
{
    LHI_TRY(lhi_config_read_nemotron_h(r, err));
    if (!strchr(r->model.layer_pattern, 'E'))
        return LH_OK;
    LHI_TRY(read_experts(r, &nemotron_h, err));
    return lhi_config_read_nemotron_experts(r, err);
}

/* Reads a whole config.json: family, sizes, biases, attention window, experts
 * and head size. */
static lh_status read_all(reader *r, lh_error *err)
{
    LHI_TRY(find_family(r, err));
    if (r->family->style == FALCON)
        return lhi_config_read_falcon(r, err);
    if (r->family->style == GPT2)
        return lhi_config_read_gpt2(r, err);
    if (r->family->style == NEMOTRON_H)
        return read_hybrid(r, err);
    r->model.tied_embeddings = r->family->style == COHERE2 ||
                               r->family->style == GEMMA3 ||
                               r->family->style == GROK;
    LHI_TRY(read_sizes(r, err));
    LHI_TRY(read_biases(r, err));
    LHI_TRY(read_window(r, err));
    switch (r->family->style) {
    case DEEPSEEK:
        return read_deepseek(r, err);
    case MIXTRAL:
    case GPT_OSS:
        LHI_TRY(read_mixtral(r, err));
        break;
    case QWEN3_NEXT:
        LHI_TRY(lhi_config_read_qwen3_next(r, err));
        LHI_TRY(read_qwen_moe(r, err));
        break;
    case QWEN2_MOE:
    case QWEN3_MOE:
        LHI_TRY(read_qwen_moe(r, err));
        break;
    case GLM4_MOE:
        LHI_TRY(lhi_config_read_number(r, "num_nextn_predict_layers",
                                       LHI_MAX_LAYERS, 0, &r->model.mtp_layers,
                                       err));
        LHI_TRY(read_experts(r, &glm4_moe, err));
        break;
    default:
        LHI_TRY(lhi_config_read_variant(r, err));
        break;
    }
    return lhi_config_read_head_dim(r, err);
}

/* Derives the model's name from the path: "models/Qwen2.5-32B/config.json"
 * yields Qwen2.5-32B, and "mine.json" yields mine. */
static char *derive_name(lhi_arena *mem, const char *file)
{
    size_t end = strlen(file), start;
    const char *slash = strrchr(file, '/');
    const char *last = slash ? slash + 1 : file;
    if (slash && slash > file && strcmp(last, "config.json") == 0)
        end = (size_t)(slash - file);
    else if (end > 5 && strcmp(file + end - 5, ".json") == 0)
        end -= 5;
    for (start = end; start > 0 && file[start - 1] != '/'; start--)
        ;
    char *name = end > start ? lhi_arena_strndup(mem, file + start, end - start)
                             : lhi_arena_strdup(mem, "custom");
    if (name)
        lhi_replace_non_ascii(name);
    return name;
}

/* Reads a parsed config.json into a checked model; the model's name is derived
 * from the file's name. */
static lh_status read_config(const lhi_doc *doc, lhi_arena *mem, lh_model *out,
                             lh_error *err)
{
    reader r = {.doc = doc, .outer = doc->root, .mem = mem};
    r.model = (lh_model){.gated = true, .moe_interval = 1};
    LHI_TRY(read_all(&r, err));
    LHI_TRY(read_epsilon(&r, err));
    LHI_TRY(read_constants(&r, err));
    LHI_TRY(lhi_model_check(doc, r.map, &r.model, err));
    if (!(r.model.name = derive_name(mem, doc->file)))
        return lhi_fail_nomem(err);
    *out = r.model;
    return LH_OK;
}

/* --- files --- */

/* Reads a parsed config.json into *value, a model; callback for
 * lhi_value_parse(). */
static lh_status fill_model(const lhi_doc *doc, lhi_arena *mem, void *value,
                            lh_error *err)
{
    return read_config(doc, mem, value, err);
}

lh_status lhi_model_parse(const char *text, size_t len, const char *name,
                          lh_model **out, lh_error *err)
{
    void *model;
    LHI_TRY(lhi_value_parse(text, len, name, LHI_INPUT_MODEL, sizeof(lh_model),
                            fill_model, &model, err));
    *out = model;
    return LH_OK;
}

lh_status lh_model_read(const char *path, lh_model **out, lh_error *err)
{
    void *model;
    LHI_TRY(lhi_value_read(path, LHI_INPUT_MODEL, sizeof(lh_model), fill_model,
                           &model, err));
    *out = model;
    return LH_OK;
}

void lh_model_free(lh_model *model)
{
    lhi_value_free(model);
}

lh_status lhi_model_load(const char *path, lhi_arena *mem, lh_model *out,
                         lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_MODEL, &doc, err));
    lh_status status = read_config(doc, mem, out, err);
    lhi_doc_free(doc);
    return status;
}
