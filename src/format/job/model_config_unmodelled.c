/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a config.json that lh_model does not represent. Planning ignores
 * them, since no time depends on them, but another program that ignored them
 * would train a different model. The keys and their defaults are as in
 * model_config.c. */
#include "format/job/parse.h"

#include <stdio.h>
#include <string.h>

/* The search's state and its findings. */
typedef struct unmodelled_search {
    const lhi_doc *doc;
    const lhi_node *map;
    char keys[256]; /* comma-separated */
} unmodelled_search;

void lhi_replace_non_ascii(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
            *text = '?';
}

/* Appends a key to the list of findings, truncated to its size. */
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

/* Finds flags that differ from the values lh_model implies. */
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

/* Checks whether a name is in a NULL-terminated list. */
static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Finds activation functions other than SiLU (under all its names) and the
 * tanh-approximated GeLU. */
static lh_status find_activation(unmodelled_search *f,
                                 const lhi_config_class *class_has,
                                 lh_error *err)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    static const char *const gelu[] = {"gelu_new", "gelu_pytorch_tanh",
                                       "gelu_fast", NULL};
    const lhi_node *node = find_value(f->map, class_has->activation);
    const char *function = class_has->function ? class_has->function : "silu";
    if (node)
        LHI_TRY(lhi_node_get_string(f->doc, node, &function, err));
    if (!is_one_of(function, class_has->function ? gelu : silu))
        add_key(f, class_has->activation);
    return LH_OK;
}

/* Finds "rope_scaling", or "rope_parameters" as transformers 5 writes it, which
 * is always present and may be a map per kind of layer. */
static lh_status find_scaling(unmodelled_search *f, const char *key,
                              bool always, lh_error *err)
{
    const lhi_node *scaling = find_value(f->map, key), *type;
    const char *name = "default";
    if (!scaling)
        return LH_OK;
    LHI_TRY(lhi_node_check_map(f->doc, scaling, err));
    if (!(type = find_value(scaling, "rope_type")))
        type = find_value(scaling, "type");
    if (type)
        LHI_TRY(lhi_node_get_string(f->doc, type, &name, err));
    bool plain = type ? strcmp(name, "default") == 0 : always;
    for (const lhi_node *one = scaling->first; one; one = one->next)
        plain = plain && one->kind != LHI_MAP;
    if (!plain)
        add_key(f, key);
    return LH_OK;
}

/* Finds a partial_rotary_factor other than 1; `turned`: the family's default.
 */
static lh_status find_rotary_fraction(unmodelled_search *f, double turned,
                                      lh_error *err)
{
    static const char key[] = "partial_rotary_factor";
    const lhi_node *node = find_value(f->map, key);
    const lhi_node *more = find_value(f->map, "rope_parameters");
    if (!node && more)
        node = find_value(more, key);
    if (node)
        LHI_TRY(lhi_node_get_number(f->doc, node, 0, 1, &turned, err));
    if (turned != 1)
        add_key(f, key);
    return LH_OK;
}

/* Finds a nonzero router_jitter_noise. */
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

lh_status lhi_config_find_unmodelled(const lhi_doc *doc, const lhi_node *map,
                                     const lhi_config_class *class_has,
                                     lhi_arena *mem, const char **out,
                                     lh_error *err)
{
    unmodelled_search f = {.doc = doc, .map = map};
    *out = NULL;
    LHI_TRY(find_activation(&f, class_has, err));
    if (class_has->rotary) {
        LHI_TRY(find_scaling(&f, "rope_scaling", false, err));
        LHI_TRY(find_scaling(&f, "rope_parameters", true, err));
        LHI_TRY(find_rotary_fraction(&f, class_has->rotary_fraction, err));
    }
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
    *out = text;
    return LH_OK;
}
