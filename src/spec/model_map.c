/* SPDX-License-Identifier: Apache-2.0 */
/* The model as a map in a job file. */
#include "spec/spec.h"

static const char *const norm_names[] = {"rms", "layer", NULL};

/* Keys have the names of their members. */
#define COUNT(member) #member, LHI_WHOLE(lh_model, member)
#define FLAG(member) #member, LHI_BOOL(lh_model, member)

static const char *const router_names[] = {"softmax", "sigmoid", NULL};

static const lhi_field model_rows[] = {
    {"name", LHI_TEXT(lh_model, name), .least = 1, .when = LHI_KEPT},
    {COUNT(layers), .least = 1, .most = LHI_MAX_LAYERS},
    {COUNT(hidden), .least = 1, .most = LHI_MAX_WIDTH},
    {COUNT(ffn), .most = LHI_MAX_VOCAB, .when = LHI_LEFT_OUT},
    {COUNT(heads), .least = 1, .most = LHI_MAX_WIDTH},
    {COUNT(kv_heads), .least = 1, .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(head_dim), .least = 1, .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(vocab), .least = 1, .most = LHI_MAX_VOCAB},
    {FLAG(gated), .when = LHI_LEFT_OUT, .absent = true},
    {FLAG(parallel_block), .when = LHI_LEFT_OUT},
    {FLAG(tied_embeddings), .when = LHI_LEFT_OUT},
    {FLAG(qkv_bias), .when = LHI_LEFT_OUT},
    {FLAG(output_bias), .when = LHI_LEFT_OUT},
    {FLAG(mlp_bias), .when = LHI_LEFT_OUT},
    {FLAG(qk_norm), .when = LHI_LEFT_OUT},
    {FLAG(attention_sinks), .when = LHI_LEFT_OUT},
    {COUNT(positions), .most = LHI_MAX_VOCAB, .when = LHI_LEFT_OUT},
    {COUNT(rope_theta), .most = INT32_MAX, .when = LHI_LEFT_OUT},
    {"norm_epsilon", LHI_NUMBER(lh_model, norm_epsilon),
     .low = LHI_LEAST_EPSILON, .high = LHI_MOST_EPSILON, .when = LHI_LEFT_OUT},
    {"uncomputed", LHI_TEXT(lh_model, uncomputed), .least = 1,
     .when = LHI_LEFT_OUT},
    {COUNT(sliding_window), .most = LHI_MAX_VOCAB, .when = LHI_LEFT_OUT},
    {COUNT(window_first_layer), .most = LHI_MAX_LAYERS, .when = LHI_LEFT_OUT},
    {COUNT(full_interval), .most = LHI_MAX_LAYERS, .when = LHI_LEFT_OUT},
    {COUNT(experts), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(experts_per_token), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(expert_ffn), .most = LHI_MAX_VOCAB, .when = LHI_LEFT_OUT},
    {COUNT(shared_expert_ffn), .most = LHI_MAX_VOCAB, .when = LHI_LEFT_OUT},
    {FLAG(shared_expert_gate), .when = LHI_LEFT_OUT},
    {FLAG(router_bias), .when = LHI_LEFT_OUT},
    {"router", LHI_NAME(lh_model, router), .names = router_names,
     .when = LHI_LEFT_OUT, .absent = LH_ROUTER_SOFTMAX},
    {FLAG(raw_shares), .when = LHI_LEFT_OUT},
    {"routed_scale", LHI_NUMBER(lh_model, routed_scale), .low = 1e-6,
     .high = 1e6, .when = LHI_LEFT_OUT},
    {COUNT(expert_groups), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(groups_per_token), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(dense_layers), .most = LHI_MAX_LAYERS, .when = LHI_LEFT_OUT},
    {COUNT(moe_interval), .least = 1, .most = LHI_MAX_LAYERS,
     .when = LHI_LEFT_OUT, .absent = 1},
    {COUNT(moe_phase), .most = LHI_MAX_LAYERS, .when = LHI_LEFT_OUT},
    {COUNT(q_lora_rank), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(kv_lora_rank), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(qk_nope_head_dim), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(qk_rope_head_dim), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(v_head_dim), .most = LHI_MAX_WIDTH, .when = LHI_LEFT_OUT},
    {COUNT(mtp_layers), .most = LHI_MAX_LAYERS, .when = LHI_LEFT_OUT},
    {"dense_list", LHI_LIST(lh_model, dense_list, n_dense_list),
     .of = LHI_F_WHOLE, .most = LHI_MAX_LAYERS - 1, .when = LHI_LEFT_OUT},
    {"norm", LHI_NAME(lh_model, norm), .names = norm_names,
     .when = LHI_LEFT_OUT, .absent = LH_NORM_RMS},
};

#undef COUNT
#undef FLAG

static lh_status check_dense_list(const lhi_doc *doc, const lhi_node *map,
                                  const lh_model *model, lh_error *err)
{
    const lhi_node *list = lhi_find(map, "dense_list");
    uint32_t least = 0;
    for (const lhi_node *n = list ? list->first : NULL; n; n = n->next) {
        uint32_t layer = model->dense_list[n->index];
        if (layer >= model->layers)
            return lhi_doc_fail(doc, n, err, LH_EINPUT,
                                "%u is out of range; from 0 to %u is possible",
                                layer, model->layers - 1);
        if (layer < least)
            return lhi_doc_fail(doc, n, err, LH_EINPUT,
                                "layers must be in rising order");
        least = layer + 1;
    }
    return LH_OK;
}

/* Fills in defaults other than 0. */
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
    if (m->positions && m->rope_theta)
        return lhi_doc_fail(doc, lhi_find(map, "rope_theta"), err, LH_EINPUT,
                            "is of rotary positions, and the model learns "
                            "%u; leave one of them out",
                            m->positions);
    if (m->moe_phase >= m->moe_interval)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "moe_phase %u is not below moe_interval %u",
                            m->moe_phase, m->moe_interval);
    return LH_OK;
}

/* Keys that have no meaning without experts, windows, or latents. */
static const char *const expert_keys[] = {
    "experts_per_token",  "expert_ffn",   "shared_expert_ffn",
    "shared_expert_gate", "router_bias",  "router",
    "raw_shares",         "routed_scale", "expert_groups",
    "groups_per_token",   "dense_layers", "moe_interval",
    "moe_phase",          "dense_list"};
static const char *const window_keys[] = {"window_first_layer",
                                          "full_interval"};
static const char *const latent_keys[] = {"q_lora_rank", "qk_nope_head_dim",
                                          "qk_rope_head_dim", "v_head_dim"};

static lh_status refuse_idle(const lhi_doc *doc, const lhi_node *map,
                             const char *const *keys, size_t n,
                             const char *needs, lh_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const lhi_node *node = lhi_find(map, keys[i]);
        if (node)
            return lhi_doc_fail(doc, node, err, LH_EINPUT,
                                "does nothing without %s", needs);
    }
    return LH_OK;
}

static lh_status check_idle(const lhi_doc *doc, const lhi_node *map,
                            const lh_model *m, lh_error *err)
{
    if (!m->experts)
        LHI_TRY(refuse_idle(doc, map, expert_keys,
                            sizeof expert_keys / sizeof *expert_keys, "experts",
                            err));
    if (!m->kv_lora_rank)
        LHI_TRY(refuse_idle(doc, map, latent_keys,
                            sizeof latent_keys / sizeof *latent_keys,
                            "kv_lora_rank", err));
    return m->sliding_window
               ? LH_OK
               : refuse_idle(doc, map, window_keys,
                             sizeof window_keys / sizeof *window_keys,
                             "sliding_window", err);
}

/* Checks the keys that experts require. */
static lh_status check_expert_keys(const lhi_doc *doc, const lhi_node *map,
                                   const lh_model *m, lh_error *err)
{
    if (m->experts && m->expert_ffn == 0)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "%u experts need expert_ffn, the width of each",
                            m->experts);
    if (m->experts && m->experts_per_token == 0)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "%u experts need experts_per_token, how many of "
                            "them a token passes",
                            m->experts);
    if (m->ffn == 0 && lh_model_moe_layers(m, 0, m->layers) < m->layers)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "layers without experts need ffn, their width");
    return LH_OK;
}

static void start_model(const lhi_reading *r, void *it)
{
    (void)r;
    ((lh_model *)it)->name = "custom";
}

static lh_status check_model(const lhi_reading *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    LHI_TRY(check_dense_list(r->doc, map, it, err));
    LHI_TRY(fill_in(r->doc, map, it, err));
    LHI_TRY(check_idle(r->doc, map, it, err));
    LHI_TRY(check_expert_keys(r->doc, map, it, err));
    return lhi_model_check(r->doc, map, it, err);
}

const lhi_table lhi_model_table = {LHI_ROWS("model", lh_model, model_rows),
                                   .start = start_model, .check = check_model};

lh_status lhi_model_from_map(const lhi_doc *doc, const lhi_node *map,
                             lhi_arena *mem, lh_model *out, lh_error *err)
{
    const lhi_reading r = {.doc = doc, .mem = mem};
    lh_model model = {0};
    LHI_TRY(lhi_fields_read(&r, map, &lhi_model_table, &model, err));
    *out = model;
    return LH_OK;
}

json_t *lhi_model_to_json(const lh_model *model)
{
    lh_model copy = *model;
    if (model->kv_lora_rank) /* derived from latent attention */
        copy.kv_heads = copy.head_dim = 0;
    /* A config.json may contain values that its model does not use. */
    if (!model->experts) {
        copy.experts_per_token = copy.expert_ffn = copy.shared_expert_ffn = 0;
        copy.shared_expert_gate = copy.router_bias = copy.raw_shares = false;
        copy.router = LH_ROUTER_SOFTMAX;
        copy.routed_scale = 0;
        copy.expert_groups = copy.groups_per_token = 0;
        copy.dense_layers = 0;
    }
    if (!model->sliding_window)
        copy.window_first_layer = copy.full_interval = 0;
    return lhi_fields_write(&lhi_model_table, &copy, NULL);
}
