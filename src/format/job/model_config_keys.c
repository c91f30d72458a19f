/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json files that several families share. */
#include "format/job/model_config_internal.h"

#include <math.h>
#include <string.h>

lh_status lhi_config_read_number(const reader *r, const char *key,
                                 uint32_t most, uint32_t absent, uint32_t *out,
                                 lh_error *err)
{
    const lhi_node *node = lhi_node_find(r->map, key);
    if (node && !lhi_node_is_null(node))
        return lhi_node_get_u32(r->doc, node, 0, most, out, err);
    if (absent == REQUIRED)
        return node ? lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                   "must be a whole number, not null")
                    : lhi_node_require(r->doc, r->map, key, &node, err);
    *out = absent;
    return LH_OK;
}

lh_status lhi_config_read_size(const reader *r, const char *key, uint32_t most,
                               uint32_t class_has, uint32_t *out, lh_error *err)
{
    bool nested = r->map != r->outer;
    LHI_TRY(lhi_config_read_number(
        r, key, most, nested && class_has ? class_has : REQUIRED, out, err));
    if (*out == 0)
        return lhi_doc_fail(r->doc, lhi_node_find(r->map, key), err, LH_EINPUT,
                            "must not be 0");
    return LH_OK;
}

lh_status lhi_config_read_flag(const reader *r, const lhi_node *map,
                               const char *key, bool *out, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, key);
    if (!node || lhi_node_is_null(node))
        return LH_OK;
    return lhi_node_get_bool(r->doc, node, out, err);
}

lh_status lhi_config_read_rope_theta(reader *r, lh_error *err)
{
    const lhi_node *node = lhi_node_find(r->map, "rope_theta");
    const lhi_node *more = lhi_node_find(r->map, "rope_parameters");
    double theta;
    if (r->family->style == MIXTRAL)
        r->model.rope_theta = 1000000;
    else if (r->family->style == GPT_OSS)
        r->model.rope_theta = 150000;
    else if (r->family->style == GEMMA3)
        r->model.rope_theta = 1000000;
    else if (r->family->style == LLAMA4)
        r->model.rope_theta = 500000;
    if (!node && more && more->kind == LHI_MAP)
        node = lhi_node_find(more, "rope_theta");
    if (!node || lhi_node_is_null(node))
        return LH_OK;
    LHI_TRY(lhi_node_get_number(r->doc, node, 1, INT32_MAX, &theta, err));
    if (theta != floor(theta))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "must be a whole number");
    r->model.rope_theta = (uint32_t)theta;
    return LH_OK;
}

lh_status lhi_config_read_head_dim(reader *r, lh_error *err)
{
    lh_model *m = &r->model;
    const style s = r->family->style;
    uint32_t class_has = s == QWEN3                       ? 128
                         : s == GPT_OSS                   ? 64
                         : s == GEMMA3 || s == QWEN3_NEXT ? 256
                                                          : 0;
    LHI_TRY(lhi_config_read_number(r, "head_dim", LHI_MAX_WIDTH, class_has,
                                   &m->head_dim, err));
    if (m->head_dim)
        return LH_OK;
    if (m->hidden % m->heads != 0)
        return lhi_doc_fail(r->doc, r->map, err, LH_EINPUT,
                            "hidden_size %u is not a multiple of "
                            "num_attention_heads %u, and head_dim is not set",
                            m->hidden, m->heads);
    m->head_dim = m->hidden / m->heads;
    return LH_OK;
}

lh_status lhi_config_read_layer_types(reader *r, uint32_t absent, lh_error *err)
{
    const lhi_node *list = lhi_node_find(r->map, "layer_types"), *node;
    lh_model *m = &r->model;
    m->full_interval = absent;
    if (!list || lhi_node_is_null(list))
        return LH_OK;
    LHI_TRY(lhi_node_check_list(r->doc, list, err));
    if (list->n_items != m->layers)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "has %zu entries for %u layers",
                            (size_t)list->n_items, m->layers);
    m->full_interval = 0;
    for (node = list->first; node; node = node->next) {
        const char *type;
        LHI_TRY(lhi_node_get_string(r->doc, node, &type, err));
        const bool full = strcmp(type, "full_attention") == 0;
        const char *other = m->linear_value_heads  ? "linear_attention"
                            : m->chunked_attention ? "chunked_attention"
                                                   : "sliding_attention";
        if (!full && strcmp(type, other) != 0)
            return lhi_doc_fail(r->doc, node, err, LH_EUNSUPPORTED,
                                "'%.60s' is neither %s nor full_attention",
                                type, other);
        if (full && m->full_interval == 0)
            m->full_interval = (uint32_t)node->index + 1;
        const uint32_t i = (uint32_t)node->index;
        if (full != (lh_model_layer_window(m, i) == 0 &&
                     !lh_model_layer_is_linear(m, i)))
            return lhi_doc_fail(r->doc, node, err, LH_EUNSUPPORTED,
                                "full-attention layers must be at equal "
                                "intervals");
    }
    return LH_OK;
}
