/* SPDX-License-Identifier: Apache-2.0 */
/* Families of config.json files with other keys or layers than Llama's. */
#include "format/job/model_config_internal.h"

#include <stdio.h>
#include <string.h>

/* Checks that the activation function, if given, is a GeLU. */
static lh_status require_gelu(const reader *r, const char *key, lh_error *err)
{
    const lhi_node *node = lhi_node_find(r->map, key);
    const char *function = "gelu";
    if (node)
        LHI_TRY(lhi_node_get_string(r->doc, node, &function, err));
    if (strncmp(function, "gelu", 4) != 0)
        return lhi_doc_fail(r->doc, node, err, LH_EUNSUPPORTED,
                            "unknown gelu variant '%.60s'", function);
    return LH_OK;
}

lh_status lhi_config_read_gpt2(reader *r, lh_error *err)
{
    const family *f = r->family;
    lh_model *m = &r->model;
    LHI_TRY(require_gelu(r, "activation_function", err));
    m->norm = LH_NORM_LAYER;
    m->gated = false;
    m->qkv_bias = m->output_bias = m->mlp_bias = true;
    m->tied_embeddings = true;
    LHI_TRY(lhi_config_read_size(r, "vocab_size", LHI_MAX_VOCAB, f->vocab,
                                 &m->vocab, err));
    LHI_TRY(lhi_config_read_size(r, "n_embd", LHI_MAX_WIDTH, f->hidden,
                                 &m->hidden, err));
    LHI_TRY(lhi_config_read_size(r, "n_layer", LHI_MAX_LAYERS, f->layers,
                                 &m->layers, err));
    LHI_TRY(lhi_config_read_size(r, "n_head", LHI_MAX_WIDTH, f->heads,
                                 &m->heads, err));
    LHI_TRY(lhi_config_read_size(r, "n_positions", LHI_MAX_VOCAB, 1024,
                                 &m->positions, err));
    LHI_TRY(lhi_config_read_number(r, "n_inner", LHI_MAX_VOCAB, 4 * m->hidden,
                                   &m->ffn, err));
    LHI_TRY(lhi_config_read_flag(r, r->map, "tie_word_embeddings",
                                 &m->tied_embeddings, err));
    m->kv_heads = m->heads;
    m->head_dim = m->hidden / m->heads;
    if (m->hidden % m->heads != 0)
        return lhi_doc_fail(r->doc, r->map, err, LH_EINPUT,
                            "n_embd %u is not a multiple of n_head %u",
                            m->hidden, m->heads);
    return LH_OK;
}

/* Checks that a flag equals `must`, which is also its default. LH_EUNSUPPORTED
 * with the reason `why`: it does not. */
static lh_status require_flag(const reader *r, const char *key, bool must,
                              const char *why, lh_error *err)
{
    bool value = must;
    LHI_TRY(lhi_config_read_flag(r, r->map, key, &value, err));
    if (value == must)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(r->map, key), err,
                        LH_EUNSUPPORTED, "%s", why);
}

lh_status lhi_config_read_falcon(reader *r, lh_error *err)
{
    const family *f = r->family;
    lh_model *m = &r->model;
    bool bias = false, shared = true;
    LHI_TRY(require_flag(
        r, "new_decoder_architecture", false,
        "is not supported: only layers with one norm, as in Falcon 7B", err));
    LHI_TRY(require_flag(r, "alibi", false,
                         "is not supported: only rotary positions", err));
    LHI_TRY(require_gelu(r, "activation", err));
    m->norm = LH_NORM_LAYER;
    m->gated = false;
    m->parallel_block = m->tied_embeddings = true;
    LHI_TRY(lhi_config_read_size(r, "vocab_size", LHI_MAX_VOCAB, f->vocab,
                                 &m->vocab, err));
    LHI_TRY(lhi_config_read_size(r, "hidden_size", LHI_MAX_WIDTH, f->hidden,
                                 &m->hidden, err));
    LHI_TRY(lhi_config_read_size(r, "num_hidden_layers", LHI_MAX_LAYERS,
                                 f->layers, &m->layers, err));
    LHI_TRY(lhi_config_read_size(r, "num_attention_heads", LHI_MAX_WIDTH,
                                 f->heads, &m->heads, err));
    LHI_TRY(lhi_config_read_number(r, "ffn_hidden_size", LHI_MAX_VOCAB,
                                   4 * m->hidden, &m->ffn, err));
    LHI_TRY(lhi_config_read_flag(r, r->map, "multi_query", &shared, err));
    LHI_TRY(lhi_config_read_flag(r, r->map, "parallel_attn", &m->parallel_block,
                                 err));
    LHI_TRY(lhi_config_read_flag(r, r->map, "bias", &bias, err));
    LHI_TRY(lhi_config_read_flag(r, r->map, "tie_word_embeddings",
                                 &m->tied_embeddings, err));
    LHI_TRY(lhi_config_read_rope_theta(r, err));
    m->qkv_bias = m->output_bias = m->mlp_bias = bias;
    m->kv_heads = shared ? 1 : m->heads;
    return lhi_config_read_head_dim(r, err);
}

/* Sets the features in which Command A differs from Llama: attention and MLP
 * share a norm without bias; by default every fourth layer attends to all
 * tokens, without positions. */
static lh_status read_cohere2(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    uint32_t interval;
    m->norm = LH_NORM_LAYER_UNBIASED;
    m->parallel_block = true;
    LHI_TRY(lhi_config_read_number(r, "sliding_window_pattern", LHI_MAX_LAYERS,
                                   4, &interval, err));
    LHI_TRY(lhi_config_read_number(r, "sliding_window", LHI_MAX_VOCAB, 4096,
                                   &m->sliding_window, err));
    if (!m->sliding_window)
        return LH_OK;
    LHI_TRY(lhi_config_read_layer_types(r, interval, err));
    m->no_rope_interval = m->full_interval;
    return LH_OK;
}

/* Sets the features in which Gemma 3 differs from Llama: norms before and after
 * attention and MLP, query and key norms, sliding windows. */
static lh_status read_gemma3(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    uint32_t interval;
    m->norm_placement = LH_NORM_PLACEMENT_BOTH;
    m->norm_zero_centered = m->qk_norm = true;
    LHI_TRY(lhi_config_read_number(r, "sliding_window_pattern", LHI_MAX_LAYERS,
                                   6, &interval, err));
    LHI_TRY(lhi_config_read_number(r, "sliding_window", LHI_MAX_VOCAB, 4096,
                                   &m->sliding_window, err));
    return m->sliding_window ? lhi_config_read_layer_types(r, interval, err)
                             : LH_OK;
}

/* Sets the features in which MiniMax-M2 differs from Llama: experts in all
 * layers; query and key norms over all heads together. */
static lh_status read_minimax_m2(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    m->expert_ffn = m->ffn;
    m->ffn = 0;
    m->router = LH_ROUTER_SIGMOID;
    m->qk_norm = true;
    LHI_TRY(lhi_config_read_flag(r, r->map, "use_qk_norm", &m->qk_norm, err));
    m->qk_norm_all_heads = m->qk_norm;
    LHI_TRY(lhi_config_read_size(r, "num_local_experts", LHI_MAX_WIDTH, 256,
                                 &m->experts, err));
    return lhi_config_read_size(r, "num_experts_per_tok", LHI_MAX_WIDTH, 8,
                                &m->experts_per_token, err);
}

/* Reads no_rope_layers, 0 for each layer without positions; by default, and if
 * empty, every `interval`-th layer. */
static lh_status read_no_rope_layers(reader *r, lh_error *err)
{
    const lhi_node *list = lhi_node_find(r->map, "no_rope_layers"), *node;
    lh_model *m = &r->model;
    LHI_TRY(lhi_config_read_number(r, "no_rope_layer_interval", LHI_MAX_LAYERS,
                                   4, &m->no_rope_interval, err));
    if (!list || lhi_node_is_null(list))
        return LH_OK;
    LHI_TRY(lhi_node_check_list(r->doc, list, err));
    for (node = list->first; node; node = node->next) {
        const uint32_t n = m->no_rope_interval;
        uint32_t rotary;
        LHI_TRY(lhi_node_get_u32(r->doc, node, 0, 1, &rotary, err));
        if ((rotary == 0) != (n && node->index % n == n - 1))
            return lhi_doc_fail(r->doc, node, err, LH_EUNSUPPORTED,
                                "layers without positions must be every "
                                "no_rope_layer_interval-th");
    }
    return LH_OK;
}

/* Sets the features in which Llama 4 differs from Llama: by default one expert
 * per token beside a shared one; attention within chunks of tokens, except in
 * every fourth layer. */
static lh_status read_llama4(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    m->expert_ffn = m->shared_expert_ffn = m->ffn;
    m->router = LH_ROUTER_SIGMOID;
    m->unnormalised_scores = true;
    m->qk_l2_norm = true;
    LHI_TRY(
        lhi_config_read_flag(r, r->map, "use_qk_norm", &m->qk_l2_norm, err));
    LHI_TRY(lhi_config_read_size(r, "intermediate_size_mlp", LHI_MAX_VOCAB,
                                 16384, &m->ffn, err));
    LHI_TRY(lhi_config_read_size(r, "num_local_experts", LHI_MAX_WIDTH, 16,
                                 &m->experts, err));
    LHI_TRY(lhi_config_read_size(r, "num_experts_per_tok", LHI_MAX_WIDTH, 1,
                                 &m->experts_per_token, err));
    LHI_TRY(lhi_config_read_number(r, "interleave_moe_layer_step",
                                   LHI_MAX_LAYERS, 1, &m->moe_interval, err));
    if (m->moe_interval == 0)
        return lhi_doc_fail(r->doc,
                            lhi_node_find(r->map, "interleave_moe_layer_step"),
                            err, LH_EINPUT, "must not be 0");
    m->moe_phase = m->moe_interval - 1;
    LHI_TRY(read_no_rope_layers(r, err));
    LHI_TRY(lhi_config_read_number(r, "attention_chunk_size", LHI_MAX_VOCAB,
                                   8192, &m->sliding_window, err));
    m->chunked_attention = m->sliding_window > 0;
    return m->sliding_window
               ? lhi_config_read_layer_types(r, m->no_rope_interval, err)
               : LH_OK;
}

/* Sets the features in which Grok-1 differs from Llama: experts in all layers;
 * norms before and after attention and experts. */
static lh_status read_grok(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    const bool local = !lhi_node_find(r->map, "num_experts");
    m->expert_ffn = m->ffn;
    m->ffn = 0;
    m->norm_placement = LH_NORM_PLACEMENT_BOTH;
    m->unnormalised_scores = true;
    LHI_TRY(lhi_config_read_size(r, local ? "num_local_experts" : "num_experts",
                                 LHI_MAX_WIDTH, 8, &m->experts, err));
    return lhi_config_read_size(r, "num_experts_per_tok", LHI_MAX_WIDTH, 2,
                                &m->experts_per_token, err);
}

lh_status lhi_config_read_indexer(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    LHI_TRY(lhi_config_read_number(r, "index_n_heads", LHI_MAX_WIDTH, 64,
                                   &m->index_heads, err));
    LHI_TRY(lhi_config_read_number(r, "index_head_dim", LHI_MAX_WIDTH, 128,
                                   &m->index_head_dim, err));
    return lhi_config_read_number(r, "index_topk", LHI_MAX_VOCAB, 2048,
                                  &m->index_topk, err);
}

lh_status lhi_config_read_qwen3_next(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    uint32_t interval;
    m->norm_zero_centered = m->attention_gate = true;
    LHI_TRY(lhi_config_read_number(r, "linear_num_key_heads", LHI_MAX_WIDTH, 16,
                                   &m->linear_key_heads, err));
    LHI_TRY(lhi_config_read_number(r, "linear_num_value_heads", LHI_MAX_WIDTH,
                                   32, &m->linear_value_heads, err));
    LHI_TRY(lhi_config_read_number(r, "linear_key_head_dim", LHI_MAX_WIDTH, 128,
                                   &m->linear_key_head_dim, err));
    LHI_TRY(lhi_config_read_number(r, "linear_value_head_dim", LHI_MAX_WIDTH,
                                   128, &m->linear_value_head_dim, err));
    LHI_TRY(lhi_config_read_number(r, "linear_conv_kernel_dim", LHI_MAX_WIDTH,
                                   4, &m->linear_conv_kernel, err));
    LHI_TRY(lhi_config_read_number(r, "full_attention_interval", LHI_MAX_LAYERS,
                                   4, &interval, err));
    return lhi_config_read_layer_types(r, interval, err);
}

lh_status lhi_config_read_variant(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    switch (r->family->style) {
    case OLMO2:
        m->norm_placement = LH_NORM_PLACEMENT_POST;
        m->qk_norm = m->qk_norm_all_heads = true;
        return LH_OK;
    case NEMOTRON:
        m->norm = LH_NORM_LAYER;
        m->norm_zero_centered = true;
        m->gated = false;
        return LH_OK;
    case COHERE2:
        return read_cohere2(r, err);
    case GEMMA3:
        return read_gemma3(r, err);
    case MINIMAX_M2:
        return read_minimax_m2(r, err);
    case LLAMA4:
        return read_llama4(r, err);
    case GROK:
        return read_grok(r, err);
    default:
        return LH_OK;
    }
}

/* Appends "key: value" to `text` (`size` bytes). The value is the first number
 * in the file under one of the names in `theirs`, a NULL-terminated list. */
static void add_entry(const reader *r, char *text, size_t size, const char *key,
                      const char *const *theirs)
{
    const size_t used = strlen(text);
    uint32_t value;
    lh_error unused;
    for (; *theirs; theirs++) {
        const lhi_node *node = lhi_node_find(r->map, *theirs);
        if (node && lhi_node_get_u32(r->doc, node, 1, LHI_MAX_VOCAB, &value,
                                     &unused) == LH_OK) {
            snprintf(text + used, size - used, "%s%s: %u", used ? ", " : "",
                     key, value);
            return;
        }
    }
}

lh_status lhi_config_fail_family(const reader *r, const lhi_node *node,
                                 const char *type, lh_error *err)
{
    static const char *const unsupported[][2] = {
        {"jamba", "Mamba layers"},
        {"bamba", "Mamba layers"},
        {"granitemoehybrid", "Mamba layers"},
        {"mamba2", "Mamba layers"},
        {"minimax", "linear attention"},
        {"kimi_linear", "linear attention"}};
    static const struct {
        const char *key, *theirs[4];
    } keys[] = {
        {"layers", {"num_hidden_layers", "n_layer", "num_layers"}},
        {"hidden", {"hidden_size", "n_embd", "d_model"}},
        {"ffn", {"intermediate_size", "n_inner", "ffn_dim"}},
        {"heads", {"num_attention_heads", "n_head"}},
        {"kv_heads", {"num_key_value_heads"}},
        {"head_dim", {"head_dim"}},
        {"vocab", {"vocab_size"}},
        {"experts", {"num_experts", "num_local_experts", "n_routed_experts"}},
        {"experts_per_token", {"num_experts_per_tok"}},
        {"expert_ffn", {"moe_intermediate_size"}}};
    char map[300] = "";
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (strcmp(unsupported[i][0], type) == 0)
            return lhi_doc_fail(r->doc, node, err, LH_EUNSUPPORTED,
                                "models of family '%s' have %s, whose time and "
                                "memory longhaul does not model",
                                type, unsupported[i][1]);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        add_entry(r, map, sizeof map, keys[i].key, keys[i].theirs);
    return lhi_doc_fail(r->doc, node, err, LH_EUNSUPPORTED,
                        "unknown family '%.60s' (docs/models.md lists the "
                        "known); write the model as a map in the job and add "
                        "what is missing (docs/formats/job.md): model: {%s}",
                        type, map);
}
