/* SPDX-License-Identifier: Apache-2.0 */
/* config.json files of hybrid models with Mamba-2 layers: Nemotron-H, Nemotron
 * Nano 2 and Nemotron 3. */
#include "format/job/model_config_internal.h"

#include <stdio.h>
#include <string.h>

/* Returns the letter by which lh_model's layer_pattern denotes the layer kind
 * called `name` in transformers 4 or 5, such as M for "mamba"; 0: unknown. */
static char find_letter(const char *name)
{
    static const char *const names[][2] = {
        {"M", "mamba"},     {"M", "linear_attention"},
        {"*", "attention"}, {"*", "full_attention"},
        {"-", "mlp"},       {"E", "moe"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][1], name) == 0)
            return names[i][0][0];
    return 0;
}

/* Reads the kinds of all layers, one letter each, into *out: from the string
 * under `key`, or from the list of names under `list`. *out is NULL if neither
 * key is there. */
static lh_status read_letters(const reader *r, const char *key,
                              const char *list, const char **out, lh_error *err)
{
    const lhi_node *text = lhi_node_find(r->map, key), *node;
    const lhi_node *names = lhi_node_find(r->map, list);
    *out = NULL;
    if (!names || lhi_node_is_null(names)) {
        if (!text || lhi_node_is_null(text))
            return LH_OK;
        LHI_TRY(lhi_node_get_string(r->doc, text, out, err));
        return (*out)[strspn(*out, "M*-E")] == 0
                   ? LH_OK
                   : lhi_doc_fail(r->doc, text, err, LH_EUNSUPPORTED,
                                  "has a letter other than M (Mamba-2), * "
                                  "(attention), - (MLP) and E (experts)");
    }
    LHI_TRY(lhi_node_check_list(r->doc, names, err));
    char *letters = LHI_NEW(r->mem, char, (size_t)names->n_items + 1);
    if (!letters)
        return lhi_fail_nomem(err);
    for (node = names->first; node; node = node->next) {
        const char *name;
        LHI_TRY(lhi_node_get_string(r->doc, node, &name, err));
        if (!(letters[node->index] = find_letter(name)))
            return lhi_doc_fail(r->doc, node, err, LH_EUNSUPPORTED,
                                "'%.60s' is not a known kind of layer", name);
    }
    *out = letters;
    return LH_OK;
}

/* Reads the kinds of the model's layers and, if there are any, of its
 * multi-token prediction modules. LH_EINPUT: they are missing, or their number
 * differs from num_hidden_layers. */
static lh_status read_pattern(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    const char *layers, *module = NULL;
    LHI_TRY(read_letters(r, "hybrid_override_pattern", "layers_block_type",
                         &layers, err));
    if (!layers)
        return lhi_doc_fail(r->doc, r->map, err, LH_EINPUT,
                            "hybrid_override_pattern or layers_block_type, the "
                            "kinds of the layers, is missing");
    const size_t n = strlen(layers);
    uint32_t given;
    if (n == 0 || n > LHI_MAX_LAYERS)
        return lhi_doc_fail(r->doc, r->map, err, LH_EINPUT,
                            "hybrid_override_pattern or layers_block_type has "
                            "%zu layers, not 1 to %d",
                            n, (int)LHI_MAX_LAYERS);
    LHI_TRY(lhi_config_read_number(r, "num_hidden_layers", LHI_MAX_LAYERS,
                                   (uint32_t)n, &given, err));
    if (n != given)
        return lhi_doc_fail(r->doc, lhi_node_find(r->map, "num_hidden_layers"),
                            err, LH_EINPUT,
                            "is not the number of layers, %zu, whose kinds are "
                            "given",
                            n);
    m->layers = given;
    LHI_TRY(lhi_config_read_number(r, "num_nextn_predict_layers",
                                   LHI_MAX_LAYERS, 0, &m->mtp_layers, err));
    if (m->mtp_layers)
        LHI_TRY(read_letters(r, "mtp_hybrid_override_pattern",
                             "mtp_layers_block_type", &module, err));
    if (m->mtp_layers && !module)
        module = "*E";
    const size_t size = n + (module ? strlen(module) + 1 : 0) + 1;
    char *pattern = LHI_NEW(r->mem, char, size);
    if (!pattern)
        return lhi_fail_nomem(err);
    snprintf(pattern, size, "%s%s%s", layers, module ? "/" : "",
             module ? module : "");
    m->layer_pattern = pattern;
    return LH_OK;
}

/* Reads the sizes of Mamba-2 layers; their projections have no biases, their
 * convolution has one. */
static lh_status read_mamba(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    static const char *const biases[] = {"use_bias", "mamba_proj_bias"};
    bool conv = true;
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
        bool bias = false;
        LHI_TRY(lhi_config_read_flag(r, r->map, biases[i], &bias, err));
        if (bias)
            return lhi_doc_fail(r->doc, lhi_node_find(r->map, biases[i]), err,
                                LH_EUNSUPPORTED,
                                "projections of Mamba layers with biases are "
                                "not supported");
    }
    LHI_TRY(lhi_config_read_flag(r, r->map, "use_conv_bias", &conv, err));
    if (!conv)
        return lhi_doc_fail(r->doc, lhi_node_find(r->map, "use_conv_bias"), err,
                            LH_EUNSUPPORTED,
                            "convolutions without biases are not supported");
    LHI_TRY(lhi_config_read_size(r, "mamba_num_heads", LHI_MAX_WIDTH, 128,
                                 &m->mamba_heads, err));
    LHI_TRY(lhi_config_read_size(r, "mamba_head_dim", LHI_MAX_WIDTH, 64,
                                 &m->mamba_head_dim, err));
    LHI_TRY(lhi_config_read_size(r, "n_groups", LHI_MAX_WIDTH, 8,
                                 &m->mamba_groups, err));
    LHI_TRY(lhi_config_read_size(r, "ssm_state_size", LHI_MAX_WIDTH, 128,
                                 &m->mamba_state_dim, err));
    return lhi_config_read_number(r, "conv_kernel", LHI_MAX_WIDTH, 4,
                                  &m->mamba_conv_kernel, err);
}

lh_status lhi_config_read_nemotron_h(reader *r, lh_error *err)
{
    const family *f = r->family;
    const bool old = lhi_node_find(r->map, "attention_head_dim") != NULL;
    lh_model *m = &r->model;
    bool bias = false;
    m->gated = false;
    m->no_rope_interval = 1;
    LHI_TRY(read_pattern(r, err));
    LHI_TRY(lhi_config_read_size(r, "vocab_size", LHI_MAX_VOCAB, f->vocab,
                                 &m->vocab, err));
    LHI_TRY(lhi_config_read_size(r, "hidden_size", LHI_MAX_WIDTH, f->hidden,
                                 &m->hidden, err));
    LHI_TRY(lhi_config_read_size(r, "num_attention_heads", LHI_MAX_WIDTH,
                                 f->heads, &m->heads, err));
    LHI_TRY(lhi_config_read_number(r, "num_key_value_heads", LHI_MAX_WIDTH,
                                   f->kv_heads, &m->kv_heads, err));
    LHI_TRY(lhi_config_read_number(r, old ? "attention_head_dim" : "head_dim",
                                   LHI_MAX_WIDTH, 128, &m->head_dim, err));
    LHI_TRY(lhi_config_read_flag(r, r->map, "tie_word_embeddings",
                                 &m->tied_embeddings, err));
    LHI_TRY(lhi_config_read_flag(r, r->map, "attention_bias", &bias, err));
    LHI_TRY(lhi_config_read_flag(r, r->map, "mlp_bias", &m->mlp_bias, err));
    m->qkv_bias = m->output_bias = bias;
    if (strchr(m->layer_pattern, '-'))
        LHI_TRY(lhi_config_read_size(r, "intermediate_size", LHI_MAX_VOCAB,
                                     f->ffn, &m->ffn, err));
    return strchr(m->layer_pattern, 'M') ? read_mamba(r, err) : LH_OK;
}

lh_status lhi_config_read_nemotron_experts(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    LHI_TRY(lhi_config_read_number(r, "moe_latent_size", LHI_MAX_WIDTH, 0,
                                   &m->expert_latent, err));
    return lhi_config_read_number(r, "moe_shared_expert_intermediate_size",
                                  LHI_MAX_VOCAB, 7688, &m->shared_expert_ffn,
                                  err);
}
