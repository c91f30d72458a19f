/* SPDX-License-Identifier: Apache-2.0 */
/* The model as a map in a job file, both ways, from one table of its keys. */
#include "spec/spec.h"

#include <stddef.h>
#include <string.h>

typedef enum field_kind {
    COUNT,
    FLAG,
} field_kind;

typedef enum field_need {
    NEEDED,
    OPTIONAL, /* absent: what the model is filled with beforehand */
} field_need;

typedef struct field {
    const char *key;
    field_kind kind;
    field_need need;
    size_t offset;
    uint32_t min, max;
} field;

#define N(name, need, min, max)                                                \
    {                                                                          \
#name, COUNT, need, offsetof(lh_model, name), min, max                 \
    }
#define B(name)                                                                \
    {                                                                          \
#name, FLAG, OPTIONAL, offsetof(lh_model, name), 0, 1                  \
    }

/* In the order in which they are written. */
static const field fields[] = {
    N(layers, NEEDED, 1, LHI_MAX_LAYERS),
    N(hidden, NEEDED, 1, LHI_MAX_WIDTH),
    N(ffn, OPTIONAL, 0, LHI_MAX_VOCAB),
    N(heads, NEEDED, 1, LHI_MAX_WIDTH),
    N(kv_heads, OPTIONAL, 1, LHI_MAX_WIDTH),
    N(head_dim, OPTIONAL, 1, LHI_MAX_WIDTH),
    N(vocab, NEEDED, 1, LHI_MAX_VOCAB),
    B(gated),
    B(tied_embeddings),
    B(qkv_bias),
    B(output_bias),
    B(mlp_bias),
    B(qk_norm),
    N(positions, OPTIONAL, 0, LHI_MAX_VOCAB),
    N(sliding_window, OPTIONAL, 0, LHI_MAX_VOCAB),
    N(window_first_layer, OPTIONAL, 0, LHI_MAX_LAYERS),
    N(experts, OPTIONAL, 0, LHI_MAX_WIDTH),
    N(experts_per_token, OPTIONAL, 0, LHI_MAX_WIDTH),
    N(expert_ffn, OPTIONAL, 0, LHI_MAX_VOCAB),
    N(shared_expert_ffn, OPTIONAL, 0, LHI_MAX_VOCAB),
    B(shared_expert_gate),
    N(dense_layers, OPTIONAL, 0, LHI_MAX_LAYERS),
    N(moe_interval, OPTIONAL, 1, LHI_MAX_LAYERS),
    N(moe_phase, OPTIONAL, 0, LHI_MAX_LAYERS),
    N(q_lora_rank, OPTIONAL, 0, LHI_MAX_WIDTH),
    N(kv_lora_rank, OPTIONAL, 0, LHI_MAX_WIDTH),
    N(qk_nope_head_dim, OPTIONAL, 0, LHI_MAX_WIDTH),
    N(qk_rope_head_dim, OPTIONAL, 0, LHI_MAX_WIDTH),
    N(v_head_dim, OPTIONAL, 0, LHI_MAX_WIDTH),
    N(mtp_layers, OPTIONAL, 0, LHI_MAX_LAYERS),
};

#undef N
#undef B

enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static const char *const norm_names[] = {"rms", "layer", NULL};

static uint32_t *count_at(lh_model *model, const field *f)
{
    return (uint32_t *)(void *)((char *)model + f->offset);
}

static bool *flag_at(lh_model *model, const field *f)
{
    return (bool *)(void *)((char *)model + f->offset);
}

static lh_status known_keys(const lhi_doc *doc, const lhi_node *map,
                            lh_error *err)
{
    const char *keys[N_FIELDS + 4];
    size_t n = 0;
    for (size_t i = 0; i < N_FIELDS; i++)
        keys[n++] = fields[i].key;
    keys[n++] = "name";
    keys[n++] = "norm";
    keys[n++] = "dense_list";
    keys[n] = NULL;
    return lhi_known_keys(doc, map, keys, err);
}

static lh_status read_field(const lhi_doc *doc, const lhi_node *map,
                            const field *f, lh_model *model, lh_error *err)
{
    const lhi_node *node = lhi_find(map, f->key);
    if (!node && f->need == OPTIONAL)
        return LH_OK;
    LHI_TRY(lhi_need(doc, map, f->key, &node, err));
    if (f->kind == FLAG)
        return lhi_get_bool(doc, node, flag_at(model, f), err);
    return lhi_get_u32(doc, node, f->min, f->max, count_at(model, f), err);
}

static lh_status read_dense_list(const lhi_doc *doc, const lhi_node *list,
                                 lhi_arena *mem, lh_model *model, lh_error *err)
{
    LHI_TRY(lhi_want_list(doc, list, err));
    uint32_t *layers = LHI_NEW(mem, uint32_t, list->n_items);
    if (!layers)
        return lhi_fail_nomem(err);
    uint32_t least = 0;
    for (const lhi_node *n = list->first; n; n = n->next) {
        LHI_TRY(
            lhi_get_u32(doc, n, 0, model->layers - 1, &layers[n->index], err));
        if (layers[n->index] < least)
            return lhi_doc_fail(doc, n, err, LH_EINPUT,
                                "layers must be in rising order");
        least = layers[n->index] + 1;
    }
    model->dense_list = layers;
    model->n_dense_list = list->n_items;
    return LH_OK;
}

/* What is absent and not simply 0. */
static lh_status fill_in(const lhi_doc *doc, const lhi_node *map, lh_model *m,
                         lh_error *err)
{
    const lhi_node *node;
    if (m->kv_heads == 0)
        m->kv_heads = m->heads;
    if (m->kv_lora_rank) {
        if (m->kv_heads != m->heads)
            return lhi_doc_fail(doc, lhi_find(map, "kv_heads"), err, LH_EINPUT,
                                "with latent attention every head has its own "
                                "keys: leave kv_heads out");
        if ((node = lhi_find(map, "head_dim")) &&
            m->head_dim != m->qk_nope_head_dim + m->qk_rope_head_dim)
            return lhi_doc_fail(doc, node, err, LH_EINPUT,
                                "with latent attention it is qk_nope_head_dim "
                                "+ qk_rope_head_dim: leave it out");
        m->head_dim = m->qk_nope_head_dim + m->qk_rope_head_dim;
    } else if (m->head_dim == 0) {
        if (m->hidden % m->heads != 0)
            return lhi_doc_fail(doc, map, err, LH_EINPUT,
                                "hidden %u is no multiple of %u heads; give "
                                "head_dim",
                                m->hidden, m->heads);
        m->head_dim = m->hidden / m->heads;
    }
    if (m->moe_phase >= m->moe_interval)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "moe_phase %u is not below moe_interval %u",
                            m->moe_phase, m->moe_interval);
    return LH_OK;
}

lh_status lhi_model_from_map(const lhi_doc *doc, const lhi_node *map,
                             lhi_arena *mem, lh_model *out, lh_error *err)
{
    const lhi_node *node;
    const char *name = "custom";
    lh_model model = {.gated = true, .moe_interval = 1};
    LHI_TRY(known_keys(doc, map, err));
    for (size_t i = 0; i < N_FIELDS; i++)
        LHI_TRY(read_field(doc, map, &fields[i], &model, err));
    if ((node = lhi_find(map, "norm"))) {
        uint32_t norm;
        LHI_TRY(lhi_get_choice(doc, node, norm_names, &norm, err));
        model.norm = (lh_norm)norm;
    }
    if ((node = lhi_find(map, "dense_list")))
        LHI_TRY(read_dense_list(doc, node, mem, &model, err));
    if ((node = lhi_find(map, "name")))
        LHI_TRY(lhi_get_string(doc, node, &name, err));
    LHI_TRY(fill_in(doc, map, &model, err));
    LHI_TRY(lhi_model_check(doc, map, &model, err));
    if (!(model.name = lhi_arena_strdup(mem, name)))
        return lhi_fail_nomem(err);
    *out = model;
    return LH_OK;
}

static bool write_field(json_t *map, const field *f, const lh_model *model)
{
    lh_model copy = *model;
    if (f->kind == FLAG) {
        bool flag = *flag_at(&copy, f);
        bool normal = strcmp(f->key, "gated") == 0;
        return flag == normal || lhi_json_set(map, f->key, json_boolean(flag));
    }
    uint32_t count = *count_at(&copy, f);
    bool left_out =
        count == 0 || (count == 1 && strcmp(f->key, "moe_interval") == 0) ||
        (model->kv_lora_rank &&
         (strcmp(f->key, "kv_heads") == 0 || strcmp(f->key, "head_dim") == 0));
    return left_out || lhi_json_set(map, f->key, json_integer(count));
}

static bool write_dense_list(json_t *map, const lh_model *model)
{
    if (model->n_dense_list == 0)
        return true;
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < model->n_dense_list; i++)
        if (json_array_append_new(list, json_integer(model->dense_list[i]))) {
            json_decref(list);
            return false;
        }
    return lhi_json_set(map, "dense_list", list);
}

json_t *lhi_model_to_json(const lh_model *model)
{
    json_t *map = json_object();
    bool ok = map && lhi_json_set(map, "name", json_string(model->name));
    for (size_t i = 0; ok && i < N_FIELDS; i++)
        ok = write_field(map, &fields[i], model);
    ok = ok && write_dense_list(map, model) &&
         (model->norm == LH_NORM_RMS ||
          lhi_json_set(map, "norm", json_string(norm_names[model->norm])));
    return lhi_json_done(map, ok);
}
