/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of a config.json that no time depends on, and the keys that
 * lh_model does not represent. Planning ignores both, but another program that
 * ignored them would train a different model. The keys and their defaults are
 * as in model_config.c. */
#include "format/job/parse.h"

#include <stdio.h>
#include <string.h>

/* The search's state and its findings. */
typedef struct unmodelled_search {
    const lhi_doc *doc;
    const lhi_node *map;
    char keys[400]; /* comma-separated */
} unmodelled_search;

void lhi_replace_non_ascii(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
            *text = '?';
}

/* Appends a key to the list of keys that lh_model does not represent, truncated
 * to its size. */
static void add_key(unmodelled_search *f, const char *key)
{
    size_t used = strlen(f->keys);
    snprintf(f->keys + used, sizeof f->keys - used, "%s%s", used ? ", " : "",
             key);
}

/* Returns a key's value, or NULL if it is missing or null. */
static const lhi_node *find_value(const lhi_node *map, const char *key)
{
    const lhi_node *node = lhi_node_find(map, key);
    return node && !lhi_node_is_null(node) ? node : NULL;
}

/* Lists as unsupported the boolean keys of the config whose values differ from
 * the ones that lh_model implies, the only ones it can represent. */
static lh_status find_flags(unmodelled_search *f, lh_error *err)
{
    static const struct {
        const char *key;
        bool usual;
    } flags[] = {
        {"scale_attn_weights", true}, /* GPT-2 */
        {"scale_attn_by_inverse_layer_idx", false},
        {"add_cross_attention", false},
        {"apply_residual_connection_post_layernorm", false}, /* Falcon */
        {"rope_interleave", true},                           /* DeepSeek-V3 */
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const lhi_node *node = find_value(f->map, flags[i].key);
        bool value = flags[i].usual;
        if (node)
            LHI_TRY(lhi_node_get_bool(f->doc, node, &value, err));
        if (value != flags[i].usual)
            add_key(f, flags[i].key);
    }
    return LH_OK;
}

/* Returns the activation function with this name in transformers;
 * LH_ACTIVATION_UNSET: lh_model does not represent it. */
static lh_activation find_activation(const char *name)
{
    static const struct {
        const char *name;
        lh_activation function;
    } known[] = {
        {"silu", LH_ACTIVATION_SILU},
        {"swish", LH_ACTIVATION_SILU},
        {"gelu", LH_ACTIVATION_GELU},
        {"gelu_new", LH_ACTIVATION_GELU_TANH},
        {"gelu_pytorch_tanh", LH_ACTIVATION_GELU_TANH},
        {"gelu_fast", LH_ACTIVATION_GELU_TANH},
        {"quick_gelu", LH_ACTIVATION_QUICK_GELU},
        {"relu2", LH_ACTIVATION_RELU2},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].function;
    return LH_ACTIVATION_UNSET;
}

/* Reads the activation function into the model; unset if gating implies it.
 * `class_has`: defaults of the model's class in transformers. */
static lh_status read_activation(unmodelled_search *f,
                                 const lhi_config_class *class_has, lh_model *m,
                                 lh_error *err)
{
    const lhi_node *node = find_value(f->map, class_has->activation);
    const char *name = class_has->function ? class_has->function : "silu";
    if (node)
        LHI_TRY(lhi_node_get_string(f->doc, node, &name, err));
    if (class_has->clamped_swiglu) { /* in the code, independent of the file */
        m->activation = LH_ACTIVATION_QUICK_GELU;
        m->glu_linear_offset = 1;
        m->swiglu_limit = 7;
        node = find_value(f->map, "swiglu_alpha");
        double alpha = 1.702;
        if (node)
            LHI_TRY(lhi_node_get_number(f->doc, node, 0, 1e6, &alpha, err));
        if (alpha != 1.702)
            add_key(f, "swiglu_alpha");
        node = find_value(f->map, "swiglu_limit");
        return node ? lhi_node_get_rounded_number(f->doc, node, 1e-6, 1e6,
                                                  &m->swiglu_limit, err)
                    : LH_OK;
    }
    m->activation = find_activation(name);
    if (m->activation == LH_ACTIVATION_UNSET)
        add_key(f, class_has->activation);
    if (m->activation == LH_ACTIVATION_SILU && m->gated)
        m->activation = LH_ACTIVATION_UNSET; /* implied */
    return LH_OK;
}

/* Reads the number `key`, at least `low`, of a rope_scaling map into *out;
 * `absent` if it is missing or null. */
static lh_status read_scaling_number(const unmodelled_search *f,
                                     const lhi_node *map, const char *key,
                                     double low, double absent, double *out,
                                     lh_error *err)
{
    const lhi_node *node = find_value(map, key);
    *out = absent;
    return node ? lhi_node_get_rounded_number(f->doc, node, low, 1e6, out, err)
                : LH_OK;
}

lh_status lhi_rope_scaling_check(const lhi_doc *doc, const lhi_node *at,
                                 const lh_rope_scaling *s, lh_error *err)
{
    const bool llama3 = s->type == LH_ROPE_LLAMA3,
               yarn = s->type == LH_ROPE_YARN;
    if ((s->original_positions != 0) == (s->type == LH_ROPE_LINEAR))
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            s->original_positions
                                ? "linear scaling has no "
                                  "original_max_position_embeddings; remove it"
                                : "llama3 and yarn require "
                                  "original_max_position_embeddings");
    if ((s->low_freq_factor > 0) != llama3 ||
        (s->high_freq_factor > 0) != llama3)
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "low_freq_factor and high_freq_factor belong to "
                            "rope_type llama3, which requires both");
    if (llama3 && s->low_freq_factor >= s->high_freq_factor)
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "low_freq_factor must be below high_freq_factor");
    if (!yarn && (s->beta_fast > 0 || s->beta_slow > 0 || s->mscale > 0 ||
                  s->mscale_all_dim > 0 || s->attention_factor > 0 ||
                  s->fractional_range))
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "beta_fast, beta_slow, mscale, mscale_all_dim, "
                            "attention_factor and fractional_range belong to "
                            "rope_type yarn");
    if ((s->beta_fast > 0) != yarn || (s->beta_slow > 0) != yarn)
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "yarn requires beta_fast and beta_slow");
    return LH_OK;
}

/* Reads the number of positions before rotary scaling; without the key, the
 * model's maximum number of positions. */
static lh_status read_original_positions(const unmodelled_search *f,
                                         const lhi_node *map,
                                         lh_rope_scaling *s, lh_error *err)
{
    const lhi_node *node = find_value(map, "original_max_position_embeddings");
    if (!node)
        node = find_value(f->map, "max_position_embeddings");
    return node ? lhi_node_get_u32(f->doc, node, 1, LHI_MAX_VOCAB,
                                   &s->original_positions, err)
                : LH_OK;
}

/* Reads a rotary scaling's factors by its type (linear, Llama 3 or YaRN), with
 * transformers' defaults. */
static lh_status read_scaling_numbers(const unmodelled_search *f,
                                      const lhi_node *map, lh_rope_scaling *s,
                                      lh_error *err)
{
    const bool yarn = s->type == LH_ROPE_YARN;
    const lhi_node *node;
    bool whole = true;
    LHI_TRY(read_scaling_number(f, map, "factor", 1, 1, &s->factor, err));
    if (s->type == LH_ROPE_LINEAR)
        return LH_OK;
    LHI_TRY(read_original_positions(f, map, s, err));
    if (!yarn) {
        LHI_TRY(read_scaling_number(f, map, "low_freq_factor", 1e-6, 0,
                                    &s->low_freq_factor, err));
        return read_scaling_number(f, map, "high_freq_factor", 1e-6, 0,
                                   &s->high_freq_factor, err);
    }
    LHI_TRY(
        read_scaling_number(f, map, "beta_fast", 1e-6, 32, &s->beta_fast, err));
    LHI_TRY(
        read_scaling_number(f, map, "beta_slow", 1e-6, 1, &s->beta_slow, err));
    LHI_TRY(read_scaling_number(f, map, "mscale", 0, 0, &s->mscale, err));
    LHI_TRY(read_scaling_number(f, map, "mscale_all_dim", 0, 0,
                                &s->mscale_all_dim, err));
    LHI_TRY(read_scaling_number(f, map, "attention_factor", 1e-6, 0,
                                &s->attention_factor, err));
    if ((node = find_value(map, "truncate")))
        LHI_TRY(lhi_node_get_bool(f->doc, node, &whole, err));
    s->fractional_range = !whole;
    return LH_OK;
}

/* Reads the rotary scaling under `key`: "rope_scaling" or, as transformers 5
 * writes it, "rope_parameters", which is always present (`always`) and may be a
 * map per kind of layer. */
static lh_status read_scaling(unmodelled_search *f, const char *key,
                              bool always, lhi_arena *mem, lh_model *m,
                              lh_error *err)
{
    static const char *const types[] = {"linear", "llama3", "yarn"};
    const lhi_node *map = find_value(f->map, key), *type;
    const char *name = "default";
    if (!map)
        return LH_OK;
    LHI_TRY(lhi_node_check_map(f->doc, map, err));
    if (!(type = find_value(map, "rope_type")))
        type = find_value(map, "type");
    if (type)
        LHI_TRY(lhi_node_get_string(f->doc, type, &name, err));
    bool plain = type ? strcmp(name, "default") == 0 : always;
    for (const lhi_node *one = map->first; one; one = one->next)
        plain = plain && one->kind != LHI_MAP;
    if (plain || m->rope_scaling)
        return LH_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i], name) == 0) {
            lh_rope_scaling *s = LHI_NEW(mem, lh_rope_scaling, 1);
            if (!s)
                return lhi_fail_nomem(err);
            s->type = (lh_rope_type)i;
            LHI_TRY(read_scaling_numbers(f, map, s, err));
            LHI_TRY(lhi_rope_scaling_check(f->doc, map, s, err));
            m->rope_scaling = s;
            return LH_OK;
        }
    add_key(f, key);
    return LH_OK;
}

/* Reads a head's rotated fraction. `absent`: the class's default; 0: the class
 * does not rotate partly, and the key is listed as not represented. */
static lh_status read_rotary_fraction(unmodelled_search *f, double absent,
                                      lh_model *m, lh_error *err)
{
    static const char key[] = "partial_rotary_factor";
    const lhi_node *node = find_value(f->map, key);
    const lhi_node *more = find_value(f->map, "rope_parameters");
    const lhi_node *dim = find_value(f->map, "rotary_dim"); /* MiniMax-M2 */
    double fraction = absent > 0 ? absent : 1, turned;
    if (!node && more)
        node = find_value(more, key);
    if (node)
        LHI_TRY(
            lhi_node_get_rounded_number(f->doc, node, 1e-6, 1, &fraction, err));
    else if (dim && absent > 0) {
        LHI_TRY(lhi_node_get_number(f->doc, dim, 1, m->head_dim, &turned, err));
        fraction = turned / m->head_dim;
    }
    if (fraction == 1)
        return LH_OK;
    if (absent > 0)
        m->partial_rotary_factor = fraction;
    else
        add_key(f, key);
    return LH_OK;
}

/* Reads the initial weights' standard deviation; transformers' default is not
 * stored. */
static lh_status read_initializer_range(const unmodelled_search *f, lh_model *m,
                                        lh_error *err)
{
    const lhi_node *node = find_value(f->map, "initializer_range");
    if (node)
        LHI_TRY(lhi_node_get_rounded_number(f->doc, node, 1e-9, 1e3,
                                            &m->initializer_range, err));
    if (m->initializer_range == 0.02)
        m->initializer_range = 0;
    return LH_OK;
}

/* Reads the experts' balance loss coefficient, which DeepSeek calls an alpha.
 */
static lh_status read_aux_loss(const unmodelled_search *f, lh_model *m,
                               lh_error *err)
{
    const lhi_node *node = find_value(f->map, "router_aux_loss_coef");
    if (!node)
        node = find_value(f->map, "aux_loss_alpha");
    m->aux_loss_given = node && m->experts;
    return m->aux_loss_given ? lhi_node_get_rounded_number(f->doc, node, 0, 1e6,
                                                           &m->aux_loss, err)
                             : LH_OK;
}

/* Lists as unmodelled the dropout rates that differ from `usual`, the default
 * of training.dropout. */
static lh_status find_dropout(unmodelled_search *f, double usual, lh_error *err)
{
    static const char *const keys[] = {"attention_dropout", "hidden_dropout",
                                       "attn_pdrop", "resid_pdrop",
                                       "embd_pdrop"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const lhi_node *node = find_value(f->map, keys[i]);
        double rate = usual;
        if (node)
            LHI_TRY(lhi_node_get_number(f->doc, node, 0, 1, &rate, err));
        if (rate != usual)
            add_key(f, keys[i]);
    }
    return LH_OK;
}

/* Lists as unmodelled the factors and limits of some model families that
 * lh_model does not represent. */
static lh_status find_factors(unmodelled_search *f, const lh_model *m,
                              lh_error *err)
{
    static const char *const keys[] = {
        "final_logit_softcapping",    "attn_logit_softcapping",
        "embedding_multiplier_scale", "output_multiplier_scale",
        "attn_output_multiplier",     "max_attn_value",
        "rope_local_base_freq",       "attn_temperature_tuning",
        "embedding_multiplier",       "residual_multiplier",
        "attention_multiplier",       "logits_scaling"};
    const lhi_node *scalar = find_value(f->map, "query_pre_attn_scalar");
    double size = m->head_dim;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (find_value(f->map, keys[i]))
            add_key(f, keys[i]);
    if (scalar)
        LHI_TRY(lhi_node_get_number(f->doc, scalar, 0, 1e9, &size, err));
    if (size != m->head_dim)
        add_key(f, "query_pre_attn_scalar");
    return LH_OK;
}

/* Lists router_jitter_noise as unmodelled if it is not 0. */
static lh_status find_jitter(unmodelled_search *f, lh_error *err)
{
    static const char key[] = "router_jitter_noise"; /* Mixtral */
    const lhi_node *node = find_value(f->map, key);
    double noise = 0;
    if (node)
        LHI_TRY(lhi_node_get_number(f->doc, node, 0, 1, &noise, err));
    if (noise != 0)
        add_key(f, key);
    return LH_OK;
}

lh_status lhi_config_read_constants(const lhi_doc *doc, const lhi_node *map,
                                    const lhi_config_class *class_has,
                                    lhi_arena *mem, lh_model *m, lh_error *err)
{
    unmodelled_search f = {.doc = doc, .map = map};
    LHI_TRY(read_activation(&f, class_has, m, err));
    if (class_has->rotary) {
        LHI_TRY(read_scaling(&f, "rope_scaling", false, mem, m, err));
        LHI_TRY(read_scaling(&f, "rope_parameters", true, mem, m, err));
        LHI_TRY(read_rotary_fraction(&f, class_has->rotary_fraction, m, err));
    }
    LHI_TRY(read_initializer_range(&f, m, err));
    LHI_TRY(read_aux_loss(&f, m, err));
    LHI_TRY(find_dropout(&f, lhi_model_uses_dropout(m) ? 0.1 : 0, err));
    if (class_has->differs)
        add_key(&f, class_has->differs);
    LHI_TRY(find_factors(&f, m, err));
    LHI_TRY(find_jitter(&f, err));
    LHI_TRY(find_flags(&f, err));
    if (!f.keys[0])
        return LH_OK;
    size_t size = strlen(doc->file) + strlen(f.keys) + 3;
    char *text = lhi_arena_alloc(mem, size, 1);
    if (!text)
        return lhi_fail_nomem(err);
    snprintf(text, size, "%s: %s", doc->file, f.keys);
    lhi_replace_non_ascii(text);
    m->unsupported_keys = text;
    return LH_OK;
}
