/* SPDX-License-Identifier: Apache-2.0 */
/* The model as a map in a job file. */
#include "format/job/model_size.h"
#include "format/job/parse.h"

#include <string.h>

static const char *const norm_names[] = {"rms", "layer", "layer_unbiased",
                                         NULL};
static const char *const placement_names[] = {"pre", "post", "both", NULL};

/* Keys have their members' names. */
#define INTEGER_KEY(member) #member, LHI_INTEGER(lh_model, member)
#define BOOL_KEY(member) #member, LHI_BOOL(lh_model, member)

static const char *const router_names[] = {"softmax", "sigmoid", NULL};

static const char *const activation_names[] = {
    "silu", "gelu", "gelu_tanh", "quick_gelu", "relu2", NULL};
static const char *const rope_type_names[] = {"linear", "llama3", "yarn", NULL};

/* Hugging Face's rope_scaling keys. */
static const lhi_schema_field rope_rows[] = {
    {"rope_type", LHI_ENUM(lh_rope_scaling, type), .names = rope_type_names},
    {"factor", LHI_NUMBER(lh_rope_scaling, factor), .low = 1, .high = 1e6},
    {"original_max_position_embeddings",
     LHI_INTEGER(lh_rope_scaling, original_positions), .most = LHI_MAX_VOCAB,
     .when = LHI_OPTIONAL},
    {"low_freq_factor", LHI_NUMBER(lh_rope_scaling, low_freq_factor),
     .low = 1e-6, .high = 1e6, .when = LHI_OPTIONAL},
    {"high_freq_factor", LHI_NUMBER(lh_rope_scaling, high_freq_factor),
     .low = 1e-6, .high = 1e6, .when = LHI_OPTIONAL},
    {"beta_fast", LHI_NUMBER(lh_rope_scaling, beta_fast), .low = 1e-6,
     .high = 1e6, .when = LHI_OPTIONAL},
    {"beta_slow", LHI_NUMBER(lh_rope_scaling, beta_slow), .low = 1e-6,
     .high = 1e6, .when = LHI_OPTIONAL},
    {"mscale", LHI_NUMBER(lh_rope_scaling, mscale), .low = 0, .high = 1e6,
     .when = LHI_OPTIONAL},
    {"mscale_all_dim", LHI_NUMBER(lh_rope_scaling, mscale_all_dim), .low = 0,
     .high = 1e6, .when = LHI_OPTIONAL},
    {"attention_factor", LHI_NUMBER(lh_rope_scaling, attention_factor),
     .low = 1e-6, .high = 1e6, .when = LHI_OPTIONAL},
    {"fractional_range", LHI_BOOL(lh_rope_scaling, fractional_range),
     .when = LHI_OPTIONAL},
};

/* Checks that a rotary scaling has exactly the keys that belong to its type;
 * LH_EINPUT otherwise (check function of the schema). */
static lh_status check_rope_scaling(const lhi_read_context *r,
                                    const lhi_node *map, void *it,
                                    lh_error *err)
{
    return lhi_rope_scaling_check(r->doc, map, it, err);
}

static const lhi_schema rope_schema = {
    LHI_ROWS("rope_scaling", lh_rope_scaling, rope_rows),
    .check = check_rope_scaling};

/* Reads the experts' balance loss coefficient, and records that it is given: 0
 * differs from an absent key. */
static lh_status read_aux_loss(const lhi_read_context *r, const lhi_node *node,
                               void *owner, lh_error *err)
{
    lh_model *m = owner;
    m->aux_loss_given = true;
    return lhi_node_get_rounded_number(r->doc, node, 0, 1e6, &m->aux_loss, err);
}

/* Writes the experts' balance loss coefficient; JSON null if it is unset. */
static json_t *write_aux_loss(const void *owner, const void *context)
{
    const lh_model *m = owner;
    (void)context;
    return m->aux_loss_given ? lhi_json_number(m->aux_loss) : json_null();
}

static const lhi_schema_field model_rows[] = {
    {"name", LHI_STRING(lh_model, name), .least = 1, .when = LHI_DEFAULTED},
    {INTEGER_KEY(layers), .least = 1, .most = LHI_MAX_LAYERS},
    {INTEGER_KEY(hidden), .least = 1, .most = LHI_MAX_WIDTH},
    {INTEGER_KEY(ffn), .most = LHI_MAX_VOCAB, .when = LHI_OPTIONAL},
    {INTEGER_KEY(heads), .least = 1, .most = LHI_MAX_WIDTH},
    {INTEGER_KEY(kv_heads), .least = 1, .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(head_dim), .least = 1, .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(vocab), .least = 1, .most = LHI_MAX_VOCAB},
    {BOOL_KEY(gated), .when = LHI_OPTIONAL, .absent = true},
    {BOOL_KEY(parallel_block), .when = LHI_OPTIONAL},
    {BOOL_KEY(tied_embeddings), .when = LHI_OPTIONAL},
    {BOOL_KEY(qkv_bias), .when = LHI_OPTIONAL},
    {BOOL_KEY(output_bias), .when = LHI_OPTIONAL},
    {BOOL_KEY(mlp_bias), .when = LHI_OPTIONAL},
    {BOOL_KEY(qk_norm), .when = LHI_OPTIONAL},
    {BOOL_KEY(qk_norm_all_heads), .when = LHI_OPTIONAL},
    {BOOL_KEY(qk_l2_norm), .when = LHI_OPTIONAL},
    {BOOL_KEY(attention_sinks), .when = LHI_OPTIONAL},
    {INTEGER_KEY(positions), .most = LHI_MAX_VOCAB, .when = LHI_OPTIONAL},
    {INTEGER_KEY(no_rope_interval), .most = LHI_MAX_LAYERS,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(rope_theta), .most = INT32_MAX, .when = LHI_OPTIONAL},
    {"norm_epsilon", LHI_NUMBER(lh_model, norm_epsilon), .low = LHI_MIN_EPSILON,
     .high = LHI_MAX_EPSILON, .when = LHI_OPTIONAL},
    {"activation", LHI_ENUM(lh_model, activation), .least = 1,
     .names = activation_names, .when = LHI_OPTIONAL},
    {"glu_linear_offset", LHI_NUMBER(lh_model, glu_linear_offset), .low = 0,
     .high = 1e6, .when = LHI_OPTIONAL},
    {"swiglu_limit", LHI_NUMBER(lh_model, swiglu_limit), .low = 1e-6,
     .high = 1e6, .when = LHI_OPTIONAL},
    {"partial_rotary_factor", LHI_NUMBER(lh_model, partial_rotary_factor),
     .low = 1e-6, .high = 1, .when = LHI_OPTIONAL},
    {"rope_scaling", LHI_STRUCT_POINTER(lh_model, rope_scaling),
     .table = &rope_schema, .when = LHI_OPTIONAL},
    {"initializer_range", LHI_NUMBER(lh_model, initializer_range), .low = 1e-9,
     .high = 1e3, .when = LHI_OPTIONAL},
    {"router_aux_loss_coef", LHI_CUSTOM(lh_model), .read = read_aux_loss,
     .write = write_aux_loss, .when = LHI_OPTIONAL},
    {"uncomputed", LHI_STRING(lh_model, unsupported_keys), .least = 1,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(sliding_window), .most = LHI_MAX_VOCAB, .when = LHI_OPTIONAL},
    {INTEGER_KEY(window_first_layer), .most = LHI_MAX_LAYERS,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(full_interval), .most = LHI_MAX_LAYERS, .when = LHI_OPTIONAL},
    {BOOL_KEY(chunked_attention), .when = LHI_OPTIONAL},
    {INTEGER_KEY(linear_key_heads), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(linear_value_heads), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(linear_key_head_dim), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(linear_value_head_dim), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(linear_conv_kernel), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {BOOL_KEY(attention_gate), .when = LHI_OPTIONAL},
    {"layer_pattern", LHI_STRING(lh_model, layer_pattern), .least = 1,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(mamba_heads), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(mamba_head_dim), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(mamba_groups), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(mamba_state_dim), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(mamba_conv_kernel), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(index_heads), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(index_head_dim), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(index_topk), .most = LHI_MAX_VOCAB, .when = LHI_OPTIONAL},
    {INTEGER_KEY(experts), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(experts_per_token), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(expert_ffn), .most = LHI_MAX_VOCAB, .when = LHI_OPTIONAL},
    {INTEGER_KEY(shared_expert_ffn), .most = LHI_MAX_VOCAB,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(expert_latent), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {BOOL_KEY(shared_expert_gate), .when = LHI_OPTIONAL},
    {BOOL_KEY(router_bias), .when = LHI_OPTIONAL},
    {"router", LHI_ENUM(lh_model, router), .names = router_names,
     .when = LHI_OPTIONAL, .absent = LH_ROUTER_SOFTMAX},
    {"raw_shares", LHI_BOOL(lh_model, unnormalised_scores),
     .when = LHI_OPTIONAL},
    {"routed_scale", LHI_NUMBER(lh_model, routed_scale), .low = 1e-6,
     .high = 1e6, .when = LHI_OPTIONAL},
    {INTEGER_KEY(expert_groups), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(groups_per_token), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(dense_layers), .most = LHI_MAX_LAYERS, .when = LHI_OPTIONAL},
    {INTEGER_KEY(moe_interval), .least = 1, .most = LHI_MAX_LAYERS,
     .when = LHI_OPTIONAL, .absent = 1},
    {INTEGER_KEY(moe_phase), .most = LHI_MAX_LAYERS, .when = LHI_OPTIONAL},
    {INTEGER_KEY(q_lora_rank), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(kv_lora_rank), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(qk_nope_head_dim), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(qk_rope_head_dim), .most = LHI_MAX_WIDTH,
     .when = LHI_OPTIONAL},
    {INTEGER_KEY(v_head_dim), .most = LHI_MAX_WIDTH, .when = LHI_OPTIONAL},
    {INTEGER_KEY(mtp_layers), .most = LHI_MAX_LAYERS, .when = LHI_OPTIONAL},
    {"dense_list", LHI_LIST(lh_model, dense_list, n_dense_list),
     .item_type = LHI_FIELD_INTEGER, .most = LHI_MAX_LAYERS - 1,
     .when = LHI_OPTIONAL},
    {"norm", LHI_ENUM(lh_model, norm), .names = norm_names,
     .when = LHI_OPTIONAL, .absent = LH_NORM_RMS},
    {"norm_placement", LHI_ENUM(lh_model, norm_placement),
     .names = placement_names, .when = LHI_OPTIONAL,
     .absent = LH_NORM_PLACEMENT_PRE},
    {BOOL_KEY(norm_zero_centered), .when = LHI_OPTIONAL},
};

#undef INTEGER_KEY
#undef BOOL_KEY

/* Fails with LH_EINPUT unless dense_list has existing layers in ascending
 * order. */
static lh_status check_dense_list(const lhi_doc *doc, const lhi_node *map,
                                  const lh_model *model, lh_error *err)
{
    const lhi_node *list = lhi_node_find(map, "dense_list");
    uint32_t least = 0;
    for (const lhi_node *n = list ? list->first : NULL; n; n = n->next) {
        uint32_t layer = model->dense_list[n->index];
        if (layer >= model->layers)
            return lhi_doc_fail(doc, n, err, LH_EINPUT,
                                "%u is out of range; from 0 to %u is possible",
                                layer, model->layers - 1);
        if (layer < least)
            return lhi_doc_fail(doc, n, err, LH_EINPUT,
                                "layers must be in ascending order");
        least = layer + 1;
    }
    return LH_OK;
}

/* Derives absent sizes of a model from other sizes, such as kv_heads from
 * heads. LH_EINPUT: sizes contradict each other. */
static lh_status fill_defaults(const lhi_doc *doc, const lhi_node *map,
                               lh_model *m, lh_error *err)
{
    const lhi_node *node;
    if (m->kv_heads == 0)
        m->kv_heads = m->heads;
    if (m->kv_lora_rank) {
        if (m->kv_heads != m->heads)
            return lhi_doc_fail(doc, lhi_node_find(map, "kv_heads"), err,
                                LH_EINPUT,
                                "cannot be combined with latent attention, in "
                                "which every head has its own keys; remove "
                                "kv_heads");
        if ((node = lhi_node_find(map, "head_dim")) &&
            m->head_dim != m->qk_nope_head_dim + m->qk_rope_head_dim)
            return lhi_doc_fail(doc, node, err, LH_EINPUT,
                                "is qk_nope_head_dim + qk_rope_head_dim with "
                                "latent attention; remove it");
        m->head_dim = m->qk_nope_head_dim + m->qk_rope_head_dim;
    } else if (m->head_dim == 0) {
        if (m->hidden % m->heads != 0)
            return lhi_doc_fail(doc, map, err, LH_EINPUT,
                                "hidden %u is not a multiple of %u heads; set "
                                "head_dim",
                                m->hidden, m->heads);
        m->head_dim = m->hidden / m->heads;
    }
    if (m->qk_norm_all_heads && !m->qk_norm)
        return lhi_doc_fail(doc, lhi_node_find(map, "qk_norm_all_heads"), err,
                            LH_EINPUT, "has no effect without qk_norm");
    if (m->positions && m->rope_theta)
        return lhi_doc_fail(doc, lhi_node_find(map, "rope_theta"), err,
                            LH_EINPUT,
                            "applies to rotary positions, but the model has %u "
                            "learned positions; remove one of them",
                            m->positions);
    if (m->moe_phase >= m->moe_interval)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "moe_phase %u must be below moe_interval %u",
                            m->moe_phase, m->moe_interval);
    return LH_OK;
}

/* Keys that have no meaning without experts, windows, or latents. */
static const char *const expert_keys[] = {
    "experts_per_token",  "expert_ffn",   "shared_expert_ffn",
    "shared_expert_gate", "router_bias",  "router",
    "raw_shares",         "routed_scale", "expert_groups",
    "groups_per_token",   "dense_layers", "moe_interval",
    "moe_phase",          "dense_list",   "router_aux_loss_coef",
    "expert_latent"};
static const char *const window_keys[] = {"window_first_layer",
                                          "chunked_attention"};
static const char *const interval_keys[] = {"full_interval"};
static const char *const linear_keys[] = {
    "linear_key_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel"};
static const char *const mamba_keys[] = {"mamba_heads", "mamba_head_dim",
                                         "mamba_groups", "mamba_state_dim",
                                         "mamba_conv_kernel"};
static const char *const index_keys[] = {"index_heads", "index_head_dim"};
static const char *const latent_keys[] = {"q_lora_rank", "qk_nope_head_dim",
                                          "qk_rope_head_dim", "v_head_dim"};

/* Checks that the map has none of the n keys in `keys`, which have no effect
 * without the key `needs`. LH_EINPUT otherwise. */
static lh_status reject_unused_keys(const lhi_doc *doc, const lhi_node *map,
                                    const char *const *keys, size_t n,
                                    const char *needs, lh_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const lhi_node *node = lhi_node_find(map, keys[i]);
        if (node)
            return lhi_doc_fail(doc, node, err, LH_EINPUT,
                                "has no effect without %s", needs);
    }
    return LH_OK;
}

/* Rejects keys for experts, latent attention and sliding windows in models
 * without them. */
static lh_status check_unused_keys(const lhi_doc *doc, const lhi_node *map,
                                   const lh_model *m, lh_error *err)
{
    if (!m->experts)
        LHI_TRY(reject_unused_keys(doc, map, expert_keys,
                                   sizeof expert_keys / sizeof *expert_keys,
                                   "experts", err));
    if (!m->kv_lora_rank)
        LHI_TRY(reject_unused_keys(doc, map, latent_keys,
                                   sizeof latent_keys / sizeof *latent_keys,
                                   "kv_lora_rank", err));
    if (!m->linear_value_heads)
        LHI_TRY(reject_unused_keys(doc, map, linear_keys,
                                   sizeof linear_keys / sizeof *linear_keys,
                                   "linear_value_heads", err));
    if (!m->layer_pattern || !strchr(m->layer_pattern, 'M'))
        LHI_TRY(reject_unused_keys(doc, map, mamba_keys,
                                   sizeof mamba_keys / sizeof *mamba_keys,
                                   "layers M in layer_pattern", err));
    if (!m->index_topk)
        LHI_TRY(reject_unused_keys(doc, map, index_keys,
                                   sizeof index_keys / sizeof *index_keys,
                                   "index_topk", err));
    if (!m->sliding_window && !m->linear_value_heads)
        LHI_TRY(reject_unused_keys(doc, map, interval_keys, 1,
                                   "sliding_window or linear_value_heads",
                                   err));
    return m->sliding_window
               ? LH_OK
               : reject_unused_keys(doc, map, window_keys,
                                    sizeof window_keys / sizeof *window_keys,
                                    "sliding_window", err);
}

/* Fails with LH_EINPUT if a model with experts lacks their width, their number
 * per token, or its dense layers' width. */
static lh_status check_expert_keys(const lhi_doc *doc, const lhi_node *map,
                                   const lh_model *m, lh_error *err)
{
    if (m->experts && m->expert_ffn == 0)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "%u experts require expert_ffn, the width of each",
                            m->experts);
    if (m->experts && m->experts_per_token == 0)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "%u experts require experts_per_token, the number "
                            "that processes each token",
                            m->experts);
    if (!m->layer_pattern && m->ffn == 0 &&
        lhi_model_moe_layers(m, 0, m->layers) < m->layers)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "layers without experts require ffn, their width");
    return LH_OK;
}

/* Sets a model's default name before its keys are read. */
static void start_model(const lhi_read_context *r, void *it)
{
    (void)r;
    ((lh_model *)it)->name = "custom";
}

/* Derives the absent values of a model's map and checks its consistency;
 * the model schema's check function. */
static lh_status check_model(const lhi_read_context *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    LHI_TRY(check_dense_list(r->doc, map, it, err));
    LHI_TRY(fill_defaults(r->doc, map, it, err));
    LHI_TRY(check_unused_keys(r->doc, map, it, err));
    LHI_TRY(check_expert_keys(r->doc, map, it, err));
    return lhi_model_check(r->doc, map, it, err);
}

const lhi_schema lhi_model_schema = {LHI_ROWS("model", lh_model, model_rows),
                                     .start = start_model,
                                     .check = check_model};

lh_status lhi_model_from_map(const lhi_doc *doc, const lhi_node *map,
                             lhi_arena *mem, lh_model *out, lh_error *err)
{
    const lhi_read_context r = {.doc = doc, .mem = mem};
    lh_model model = {0};
    LHI_TRY(lhi_schema_read(&r, map, &lhi_model_schema, &model, err));
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
        copy.shared_expert_gate = copy.router_bias = copy.unnormalised_scores =
            false;
        copy.router = LH_ROUTER_SOFTMAX;
        copy.routed_scale = 0;
        copy.expert_groups = copy.groups_per_token = 0;
        copy.dense_layers = 0;
        copy.aux_loss_given = false;
    }
    if (!model->sliding_window) {
        copy.window_first_layer = 0;
        if (!model->linear_value_heads)
            copy.full_interval = 0;
        copy.chunked_attention = false;
    }
    return lhi_schema_write(&lhi_model_schema, &copy, NULL);
}
