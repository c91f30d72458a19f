/* SPDX-License-Identifier: Apache-2.0 */
/* Hybrid models, linear and sparse attention in Megatron-LM's arguments (core
 * 0.20): arguments.py, hybrid_layer_allocation.py,
 * experimental_attention_variant_module_specs.py and transformer_config.py. */
#include "format/job/parse.h"
#include "interop/import/layer_pattern.h"
#include "interop/import/megatron_internal.h"

#include <stdio.h>
#include <string.h>

/* --- patterns ------------------------------------------------------------- */

lhi_megatron_key lhi_megatron_pattern_key(const lhi_megatron *m)
{
    return lhi_arg_is_given(m, LHI_ARG_HYBRID_OVERRIDE_PATTERN)
               ? LHI_ARG_HYBRID_OVERRIDE_PATTERN
               : LHI_ARG_HYBRID_LAYER_PATTERN;
}

/* Fails because `letter`, in the layer pattern of argument `key`, stands for a
 * kind of layer that longhaul does not model. */
static lh_status fail_letter(const lhi_megatron *m, lhi_megatron_key key,
                             char letter, lh_error *err)
{
    return lhi_arg_fail(
        m, key, letter == 'D' || letter == '+' ? LH_EUNSUPPORTED : LH_EINPUT,
        err,
        letter == 'D' || letter == '+'
            ? "longhaul supports latent and sparse attention "
              "('%c') only in models without a layer pattern"
            : "'%c' is no layer: they are M (Mamba-2), G "
              "(gated delta network), * (attention), - (MLP) "
              "and E (experts)",
        letter);
}

/* Checks that the first `n` letters at `at`, in the layer pattern of argument
 * `key`, stand for kinds of layers that longhaul models. */
static lh_status check_letters(const lhi_megatron *m, lhi_megatron_key key,
                               const char *at, size_t n, lh_error *err)
{
    const size_t good = strspn(at, "MG*-E");
    return good < n ? fail_letter(m, key, at[good], err) : LH_OK;
}

/* Reads the prediction modules (for multi-token prediction) after the pattern's
 * first slash. Sets their number in `model` and their layer letters, equal in
 * all modules, in *module. */
static lh_status read_modules(const lhi_megatron *m, const char *text,
                              lh_model *model, lhi_arena *mem, char **module,
                              lh_error *err)
{
    const lhi_megatron_key key = lhi_megatron_pattern_key(m);
    const size_t n = strcspn(text + 1, "/");
    uint32_t modules = 0;
    LHI_TRY(check_letters(m, key, text + 1, n, err));
    for (const char *at = text; *at; at += n + 1, modules++)
        if (strncmp(at, text, n + 1) != 0 || (at[n + 1] && at[n + 1] != '/'))
            return lhi_arg_fail(m, key, LH_EINPUT, err,
                                "the prediction modules after / must have the "
                                "same layers");
    model->mtp_layers = modules;
    *module = lhi_arena_strndup(mem, text + 1, n);
    return *module ? LH_OK : lhi_fail_nomem(err);
}

/* Copies the layers of a pattern without the '|' between stages to `out`.
 * Returns their number. */
static uint32_t copy_layers(const char *pattern, char *out)
{
    uint32_t n = 0;
    for (; *pattern && *pattern != '/'; pattern++)
        if (*pattern != '|')
            out[n++] = *pattern;
    out[n] = 0;
    return n;
}

lh_status lhi_megatron_read_pattern(const lhi_megatron *m, lhi_imported_job *in,
                                    bool *given, lh_error *err)
{
    const lhi_megatron_key key = lhi_megatron_pattern_key(m);
    const lhi_megatron_key older = LHI_ARG_MTP_HYBRID_OVERRIDE_PATTERN;
    lh_model *model = &in->model;
    *given = lhi_arg_is_given(m, key);
    if (!*given)
        return LH_OK;
    const char *text = m->args[key].values[0].text;
    const char *slash = strchr(text, '/');
    char *module = NULL;
    if (strlen(text) > 2 * LHI_MAX_LAYERS)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "has more layers than longhaul supports");
    char *layers = LHI_NEW(in->mem, char, strlen(text) + 1);
    if (!layers)
        return lhi_fail_nomem(err);
    model->layers = copy_layers(text, layers);
    LHI_TRY(check_letters(m, key, layers, model->layers, err));
    if (model->layers == 0 || model->layers > LHI_MAX_LAYERS)
        return lhi_arg_fail(m, key, LH_EINPUT, err, "has %u layers",
                            model->layers);
    if (slash) {
        LHI_TRY(read_modules(m, slash, model, in->mem, &module, err));
    } else if (model->mtp_layers) {
        if (!lhi_arg_is_given(m, older))
            return lhi_arg_fail(m, LHI_ARG_MTP_NUM_LAYERS, LH_EINPUT, err,
                                "requires the layers of each module after / in "
                                "--hybrid-layer-pattern");
        module = lhi_arena_strdup(in->mem, m->args[older].values[0].text);
        if (!module)
            return lhi_fail_nomem(err);
        LHI_TRY(check_letters(m, older, module, strlen(module), err));
    }
    const size_t size = strlen(layers) + (module ? strlen(module) + 1 : 0) + 1;
    char *pattern = LHI_NEW(in->mem, char, size);
    if (!pattern)
        return lhi_fail_nomem(err);
    snprintf(pattern, size, "%s%s%s", layers, module ? "/" : "",
             module ? module : "");
    model->layer_pattern = pattern;
    return LH_OK;
}

/* --- sizes ---------------------------------------------------------------- */

/* An integer argument with its least value and the member that it sets. */
typedef struct size_argument {
    lhi_megatron_key key;
    uint32_t least, *to;
} size_argument;

/* Reads the `n` integer arguments in `rows` into the members to which they
 * point; an argument that is not given leaves its member unchanged. */
static lh_status read_sizes(const lhi_megatron *m, const size_argument *rows,
                            size_t n, lh_error *err)
{
    for (size_t i = 0; i < n; i++)
        LHI_TRY(lhi_arg_get_integer(m, rows[i].key, rows[i].least,
                                    LHI_MAX_WIDTH, rows[i].to, err));
    return LH_OK;
}

/* Reads the sizes of Mamba-2 layers, with Megatron-LM's defaults. */
static lh_status read_mamba(const lhi_megatron *m, lh_model *model,
                            lh_error *err)
{
    model->mamba_head_dim = 64;
    model->mamba_groups = 8;
    model->mamba_state_dim = 128;
    model->mamba_conv_kernel = 4;
    const size_argument rows[] = {
        {LHI_ARG_MAMBA_HEAD_DIM, 1, &model->mamba_head_dim},
        {LHI_ARG_MAMBA_NUM_GROUPS, 1, &model->mamba_groups},
        {LHI_ARG_MAMBA_STATE_DIM, 1, &model->mamba_state_dim},
        {LHI_ARG_MAMBA_NUM_HEADS, 1, &model->mamba_heads},
    };
    LHI_TRY(read_sizes(m, rows, sizeof rows / sizeof *rows, err));
    if (!model->mamba_heads)
        model->mamba_heads = 2 * model->hidden / model->mamba_head_dim;
    if (model->mamba_heads == 0 ||
        model->mamba_heads % model->mamba_groups != 0)
        return lhi_arg_fail(m, lhi_megatron_pattern_key(m), LH_EINPUT, err,
                            "the %u heads of Mamba layers are not divisible "
                            "by the %u of --mamba-num-groups",
                            model->mamba_heads, model->mamba_groups);
    return LH_OK;
}

/* Reads the sizes of gated delta networks, with Megatron-LM's defaults. */
static lh_status read_linear(const lhi_megatron *m, lh_model *model,
                             lh_error *err)
{
    model->linear_key_heads = 16;
    model->linear_value_heads = 32;
    model->linear_key_head_dim = model->linear_value_head_dim = 128;
    model->linear_conv_kernel = 4;
    const size_argument rows[] = {
        {LHI_ARG_LINEAR_NUM_KEY_HEADS, 1, &model->linear_key_heads},
        {LHI_ARG_LINEAR_NUM_VALUE_HEADS, 1, &model->linear_value_heads},
        {LHI_ARG_LINEAR_KEY_HEAD_DIM, 1, &model->linear_key_head_dim},
        {LHI_ARG_LINEAR_VALUE_HEAD_DIM, 1, &model->linear_value_head_dim},
        {LHI_ARG_LINEAR_CONV_KERNEL_DIM, 1, &model->linear_conv_kernel},
    };
    LHI_TRY(read_sizes(m, rows, sizeof rows / sizeof *rows, err));
    if (model->linear_value_heads % model->linear_key_heads != 0)
        return lhi_arg_fail(m, LHI_ARG_EXPERIMENTAL_ATTENTION_VARIANT,
                            LH_EINPUT, err,
                            "the %u value heads are not divisible by the %u "
                            "key heads",
                            model->linear_value_heads, model->linear_key_heads);
    return LH_OK;
}

/* Reads which layers are gated delta networks (linear attention): "3" (all but
 * every third layer) or a list. LH_EUNSUPPORTED: a job cannot express them. */
static lh_status read_linear_layers(const lhi_megatron *m, lhi_imported_job *in,
                                    lh_error *err)
{
    const lhi_megatron_key key = LHI_ARG_LINEAR_ATTENTION_FREQ;
    lh_model *model = &in->model;
    bool *is = LHI_NEW(in->mem, bool, model->layers);
    if (!is)
        return lhi_fail_nomem(err);
    if (!lhi_arg_is_given(m, key))
        return lhi_arg_fail(m, LHI_ARG_EXPERIMENTAL_ATTENTION_VARIANT,
                            LH_EINPUT, err, "requires --linear-attention-freq");
    const char *text = m->args[key].values[0].text;
    if (!lhi_layer_pattern_read(text, LHI_PATTERN_EXCEPT_MULTIPLES, is,
                                model->layers))
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "'%.60s' is neither a layer interval nor a list of "
                            "0 or 1 for each of %u layers, such as "
                            "([1]*3+[0])*8",
                            text, model->layers);
    if (!lhi_layer_pattern_set_linear(is, model))
        return lhi_arg_fail(m, key, LH_EUNSUPPORTED, err,
                            "longhaul supports layers with attention beside "
                            "gated delta networks only at equal intervals");
    return read_linear(m, model, err);
}

/* Reads the sizes of sparse attention's indexer (which selects the keys for
 * each query); all are required. LH_EINPUT: without latent attention. */
static lh_status read_indexer(const lhi_megatron *m, lh_model *model,
                              lh_error *err)
{
    if (!model->kv_lora_rank)
        return lhi_arg_fail(m, LHI_ARG_EXPERIMENTAL_ATTENTION_VARIANT,
                            LH_EINPUT, err,
                            "dsa requires --multi-latent-attention");
    const size_argument rows[] = {
        {LHI_ARG_DSA_INDEXER_N_HEADS, 1, &model->index_heads},
        {LHI_ARG_DSA_INDEXER_HEAD_DIM, 1, &model->index_head_dim},
        {LHI_ARG_DSA_INDEXER_TOPK, 1, &model->index_topk},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        LHI_TRY(lhi_arg_require_integer(m, rows[i].key, 1, LHI_MAX_WIDTH,
                                        rows[i].to, err));
    return LH_OK;
}

/* Reads --experimental-attention-variant: gated delta networks, with their
 * layers, or sparse attention ("dsa"), with its indexer. LH_EUNSUPPORTED: gdn2.
 * */
static lh_status read_variant(const lhi_megatron *m, lhi_imported_job *in,
                              lh_error *err)
{
    static const char *const variants[] = {"gdn", "gated_delta_net", "dsa",
                                           "gdn2", NULL};
    const lhi_megatron_key key = LHI_ARG_EXPERIMENTAL_ATTENTION_VARIANT;
    uint32_t variant = 0;
    LHI_TRY(lhi_arg_get_choice(m, key, variants, &variant, err));
    if (!lhi_arg_is_given(m, key))
        return LH_OK;
    if (variant == 3)
        return lhi_arg_fail(m, key, LH_EUNSUPPORTED, err,
                            "longhaul does not support gdn2");
    if (variant == 2)
        return read_indexer(m, &in->model, err);
    return in->model.layer_pattern ? LH_OK : read_linear_layers(m, in, err);
}

lh_status lhi_megatron_read_mixers(const lhi_megatron *m, lhi_imported_job *in,
                                   lh_error *err)
{
    lh_model *model = &in->model;
    model->attention_gate = lhi_arg_is_given(m, LHI_ARG_ATTENTION_OUTPUT_GATE);
    LHI_TRY(read_variant(m, in, err));
    if (!model->layer_pattern)
        return LH_OK;
    if (strchr(model->layer_pattern, 'G'))
        LHI_TRY(read_linear(m, model, err));
    return strchr(model->layer_pattern, 'M') ? read_mamba(m, model, err)
                                             : LH_OK;
}
