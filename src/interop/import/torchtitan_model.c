/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan's named models and configurations. Sizes and settings are those of
 * torchtitan 0.3.0 (models/NAME/__init__.py and config_registry.py) and 0.2.2
 * (models/NAME/__init__.py), BSD-3-Clause, Copyright (c) Meta Platforms, Inc.
 * and affiliates. tests/peers/test_torchtitan_import.py compares parameter
 * counts and settings with it. */
#include "interop/import/torchtitan_internal.h"

#include <stdio.h>
#include <string.h>

/* --- flavors -------------------------------------------------------------- */

/* A named model in one of its sizes. */
typedef struct flavor {
    const char *model, *name;
    lhi_titan_form form;
    const char *preset; /* preset with this shape; NULL: use `shape` */
    lh_model shape;
} flavor;

#define LLAMA(width, n, n_heads, n_kv, ffn_, words, tied)                      \
    {                                                                          \
        .name = "imported", .hidden = width, .layers = n, .heads = n_heads,    \
        .kv_heads = n_kv, .head_dim = (width) / (n_heads), .ffn = ffn_,        \
        .vocab = words, .tied_embeddings = tied, .gated = true,                \
        .moe_interval = 1                                                      \
    }
#define QWEN(width, n, n_heads, ffn_, words, tied)                             \
    {                                                                          \
        .name = "imported", .hidden = width, .layers = n, .heads = n_heads,    \
        .kv_heads = 8, .head_dim = 128, .ffn = ffn_, .vocab = words,           \
        .tied_embeddings = tied, .qk_norm = true, .gated = true,               \
        .moe_interval = 1                                                      \
    }
#define DEEPSEEK(width, n, n_heads, ffn_, words, first, q_rank, n_experts, k,  \
                 each, shared)                                                 \
    {                                                                          \
        .name = "imported", .hidden = width, .layers = n, .heads = n_heads,    \
        .kv_heads = n_heads, .head_dim = 192, .ffn = ffn_, .vocab = words,     \
        .gated = true, .experts = n_experts, .experts_per_token = k,           \
        .expert_ffn = each, .shared_expert_ffn = shared,                       \
        .dense_layers = first, .moe_interval = 1, .q_lora_rank = q_rank,       \
        .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64,  \
        .v_head_dim = 128                                                      \
    }
#define GPT_OSS(width, n, words, n_experts)                                    \
    {                                                                          \
        .name = "imported", .hidden = width, .layers = n, .heads = 64,         \
        .kv_heads = 8, .head_dim = 64, .vocab = words, .gated = true,          \
        .qkv_bias = true, .output_bias = true, .mlp_bias = true,               \
        .attention_sinks = true, .sliding_window = 128, .full_interval = 2,    \
        .experts = n_experts, .experts_per_token = 4, .expert_ffn = 2880,      \
        .router_bias = true, .moe_interval = 1                                 \
    }

/* Short names for the versions in which a flavor exists. */
#define BOTH LHI_TITAN_BOTH
#define TOML LHI_TITAN_TOML

static const flavor flavors[] = {
    {"llama3", "debugmodel", BOTH, NULL,
     LLAMA(256, 6, 16, 16, 768, 2048, false)},
    {"llama3", "8B", BOTH, "llama3-8b", {0}},
    {"llama3", "8B_flex", TOML, "llama3-8b", {0}},
    {"llama3", "8B_varlen", TOML, "llama3-8b", {0}},
    {"llama3", "70B", BOTH, "llama3-70b", {0}},
    {"llama3", "405B", BOTH, "llama3-405b", {0}},
    {"deepseek_v3", "debugmodel", BOTH, NULL,
     DEEPSEEK(256, 6, 16, 1024, 2048, 1, 0, 8, 3, 256, 512)},
    {"deepseek_v3", "16B", BOTH, NULL,
     DEEPSEEK(2048, 27, 16, 10944, 102400, 1, 0, 64, 6, 1408, 2816)},
    {"deepseek_v3", "236B", BOTH, NULL,
     DEEPSEEK(5120, 60, 128, 12288, 102400, 1, 1536, 160, 6, 1536, 3072)},
    {"deepseek_v3", "671B", BOTH, NULL,
     DEEPSEEK(7168, 61, 128, 18432, 129280, 3, 1536, 256, 8, 2048, 2048)},
    {"qwen3", "debugmodel", BOTH, NULL, QWEN(256, 8, 16, 3072, 2048, true)},
    {"qwen3", "0.6B", BOTH, NULL, QWEN(1024, 28, 16, 3072, 151936, true)},
    {"qwen3", "1.7B", BOTH, NULL, QWEN(2048, 28, 16, 6144, 151936, true)},
    {"qwen3", "4B", BOTH, NULL, QWEN(2560, 36, 32, 9728, 151936, true)},
    {"qwen3", "8B", BOTH, NULL, QWEN(4096, 36, 32, 12288, 151936, false)},
    {"qwen3", "14B", BOTH, NULL, QWEN(5120, 40, 40, 17408, 151936, false)},
    {"qwen3", "32B", BOTH, NULL, QWEN(5120, 64, 64, 25600, 151936, false)},
    {"qwen3", "30B-A3B", BOTH, "qwen3-30b-a3b", {0}},
    {"qwen3", "235B-A22B", BOTH, "qwen3-235b-a22b", {0}},
    {"gpt_oss", "20b", BOTH, NULL, GPT_OSS(2880, 24, 201088, 32)},
    {"gpt_oss", "120b", BOTH, "gpt-oss-120b", {0}},
};

/* Writes to `out` the names of the known flavors (sizes) of a model, separated
 * by commas; an empty text if there are none. */
static void list_flavors(lhi_titan_form form, const char *model, char *out,
                         size_t size)
{
    size_t len = 0;
    *out = '\0';
    for (size_t i = 0; i < sizeof flavors / sizeof *flavors; i++)
        if ((flavors[i].form & form) && strcmp(flavors[i].model, model) == 0 &&
            len < size)
            len += (size_t)snprintf(out + len, size - len, "%s%s",
                                    len ? ", " : "", flavors[i].name);
}

/* Returns the known flavor (size) of a model for a form of input, or NULL. */
static const flavor *find_flavor(lhi_titan_form form, const char *model,
                                 const char *name)
{
    for (size_t i = 0; i < sizeof flavors / sizeof *flavors; i++)
        if ((flavors[i].form & form) && strcmp(flavors[i].model, model) == 0 &&
            strcmp(flavors[i].name, name) == 0)
            return &flavors[i];
    return NULL;
}

/* Sets the job's model to that of a flavor (named model size), and names it if
 * it equals a preset. */
static void use_flavor(const flavor *f, lhi_imported_job *in)
{
    in->model = f->preset ? *lh_model_preset(f->preset) : f->shape;
    lhi_import_name_model(in, NULL);
}

/* --- configurations ------------------------------------------------------- */

/* A function in a config_registry.py: its settings, as options. */
typedef struct config {
    const char *module, *name, *flavor, *options;
    bool in_8_bits; /* FP8 by the model's converters */
    bool deepep;
} config;

#define BATCH(local, sequence)                                                 \
    "--training.local-batch-size " #local " --training.seq-len " #sequence " "
/* Options that several configurations share. */
#define INTERLEAVED "--parallelism.pipeline-parallel-schedule Interleaved1F1B "
#define SELECTIVE "activation-checkpoint:selective"
#define FULL "activation-checkpoint:full"

static const config configs[] = {
    {"llama3", "llama3_debugmodel", "debugmodel",
     BATCH(8, 2048) INTERLEAVED SELECTIVE, false, false},
    {"llama3", "llama3_8b", "8B", BATCH(1, 8192) SELECTIVE, false, false},
    {"llama3", "llama3_8b_mxfp8", "8B",
     BATCH(1, 8192) "--compile.enable --compile.components model " SELECTIVE,
     true, false},
    {"llama3", "llama3_70b", "70B",
     BATCH(8, 8192) "--parallelism.tensor-parallel-degree 8 " FULL, false,
     false},
    {"llama3", "llama3_405b", "405B",
     BATCH(2, 8192) "--parallelism.tensor-parallel-degree 8 --compile.enable "
                    "--compile.enable-async-tensor-parallel " FULL,
     true, false},
    {"deepseek_v3", "deepseek_v3_debugmodel", "debugmodel",
     BATCH(8, 2048) SELECTIVE, false, false},
    {"deepseek_v3", "deepseek_v3_16b", "16B",
     BATCH(4, 4096) INTERLEAVED "--parallelism.expert-parallel-degree 8 "
                                "--compile.enable --compile.components "
                                "loss " SELECTIVE,
     false, false},
    {"deepseek_v3", "deepseek_v3_671b", "671B",
     BATCH(4, 4096) INTERLEAVED "--parallelism.expert-parallel-degree 2 "
                                "--compile.enable --compile.components "
                                "loss " SELECTIVE,
     false, false},
    {"deepseek_v3", "deepseek_v3_671b_float8", "671B",
     BATCH(4, 4096) INTERLEAVED "--parallelism.expert-parallel-degree 2 "
                                "--compile.enable --compile.components "
                                "loss " SELECTIVE,
     true, false},
    {"qwen3", "qwen3_debugmodel", "debugmodel", BATCH(8, 2048) SELECTIVE, false,
     false},
    {"qwen3", "qwen3_0_6b", "0.6B", BATCH(4, 4096) SELECTIVE, false, false},
    {"qwen3", "qwen3_1_7b", "1.7B", BATCH(4, 4096) SELECTIVE, false, false},
    {"qwen3", "qwen3_14b", "14B", BATCH(4, 4096) FULL, false, false},
    {"qwen3", "qwen3_30b_a3b", "30B-A3B", BATCH(2, 4096) FULL, false, false},
    {"qwen3", "qwen3_32b", "32B", BATCH(2, 4096) FULL, false, false},
    {"gpt_oss", "gpt_oss_20b", "20b", BATCH(1, 8192) FULL, false, false},
    {"gpt_oss", "gpt_oss_120b", "120b", BATCH(1, 8192) FULL, false, false},
};

/* Returns the known configuration of this module and name, or NULL. */
static const config *find_config(const char *module, const char *name)
{
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        if (strcmp(configs[i].module, module) == 0 &&
            strcmp(configs[i].name, name) == 0)
            return &configs[i];
    return NULL;
}

/* Fails because a configuration is unknown; the message lists its module's
 * known ones. */
static lh_status reject_config(const lhi_titan *t, const char *module,
                               const char *name, lh_error *err)
{
    char known[300] = "";
    size_t len = 0;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        if (strcmp(configs[i].module, module) == 0 && len < sizeof known)
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s",
                                    len ? ", " : "", configs[i].name);
    if (!len)
        return lhi_titan_fail(t, LHI_TITAN_MODULE, LH_EUNSUPPORTED, err,
                              "longhaul has no configurations of '%.40s'; "
                              "replace it and --config by the options that "
                              "they set, and give the model by --model",
                              module);
    return lhi_titan_fail(t, LHI_TITAN_CONFIG, LH_EUNSUPPORTED, err,
                          "unknown configuration '%.60s'; known: %s; or "
                          "replace it and --module by the options that they "
                          "set, and give the model by --model",
                          name, known);
}

bool lhi_titan_is_exported(const lhi_titan *t)
{
    const char *module = lhi_titan_get_string(t, LHI_TITAN_MODULE);
    return module && strcmp(module, "longhaul_model") == 0;
}

/* Applies the configuration that --module and --config name as defaults for
 * keys not given. *out is NULL without one.
 * LH_EINPUT: only one of the two is given. LH_EUNSUPPORTED: unknown
 * configuration. */
static lh_status read_config(lhi_titan *t, lhi_imported_job *in,
                             const config **out, lh_error *err)
{
    const char *module = lhi_titan_get_string(t, LHI_TITAN_MODULE);
    const char *name = lhi_titan_get_string(t, LHI_TITAN_CONFIG);
    *out = NULL;
    if (!module && !name)
        return LH_OK;
    if (lhi_titan_is_exported(t))
        return LH_OK;
    if (!module || !name)
        return lhi_titan_fail(t, module ? LHI_TITAN_CONFIG : LHI_TITAN_MODULE,
                              LH_EINPUT, err, "is required with --%s",
                              module ? "module" : "config");
    const config *c = find_config(module, name);
    if (!c)
        return reject_config(t, module, name, err);
    t->uses_fp8 = c->in_8_bits;
    t->deepep = c->deepep;
    *out = c;
    return lhi_titan_read_config(c->options, in, t, err);
}

/* --- selection ------------------------------------------------------------ */

/* Sets the job's model to that of model.name and model.flavor in a TOML file;
 * by default llama3's debugmodel.
 * LH_EUNSUPPORTED: it is unknown. */
static lh_status use_toml_model(const lhi_titan *t, lhi_imported_job *in,
                                lh_error *err)
{
    const char *model = lhi_titan_get_string(t, LHI_TITAN_MODEL);
    const char *name = lhi_titan_get_string(t, LHI_TITAN_FLAVOR);
    char known[200];
    model = model ? model : "llama3";
    name = name ? name : "debugmodel";
    const flavor *f = find_flavor(t->form, model, name);
    if (f) {
        use_flavor(f, in);
        return LH_OK;
    }
    list_flavors(t->form, model, known, sizeof known);
    if (!*known)
        return lhi_titan_fail(t, LHI_TITAN_MODEL, LH_EUNSUPPORTED, err,
                              "longhaul has no sizes of '%.40s'; give the "
                              "model by --model",
                              model);
    return lhi_titan_fail(t, LHI_TITAN_FLAVOR, LH_EUNSUPPORTED, err,
                          "unknown flavor '%.40s' of %s; known: %s; give "
                          "another model by --model",
                          name, model, known);
}

/* Sets the job's model to the one that --model gives, with a note if the input
 * also names one. */
static void use_given_model(const lhi_titan *t, lhi_imported_job *in,
                            const lh_model *model)
{
    const lhi_titan_key says =
        t->form == LHI_TITAN_TOML ? LHI_TITAN_FLAVOR : LHI_TITAN_CONFIG;
    in->model = *model;
    lhi_import_name_model(in, NULL);
    if (lhi_titan_is_given(t, says))
        lhi_import_note(in, "%s: is replaced by the model that --model names",
                        t->form == LHI_TITAN_TOML ? "model.flavor"
                                                  : "--config");
}

lh_status lhi_titan_build_model(lhi_titan *t, lhi_imported_job *in,
                                const lh_import_options *options, lh_error *err)
{
    const config *c;
    LHI_TRY(read_config(t, in, &c, err));
    if (options->model)
        use_given_model(t, in, options->model);
    else if (t->form == LHI_TITAN_TOML)
        return use_toml_model(t, in, err);
    else if (c)
        use_flavor(find_flavor(t->form, c->module, c->flavor), in);
    else if (lhi_titan_is_given(t, LHI_TITAN_MODULE))
        return lhi_titan_fail(t, LHI_TITAN_MODULE, LH_EINPUT, err,
                              "names a Python module, which longhaul does not "
                              "read; give the model by --model, for example "
                              "the job of the exported plan");
    else
        return lhi_fail(err, LH_EINPUT,
                        "%s: has no --module and --config, which define the "
                        "model; add them, or give the model by --model",
                        t->file);
    return LH_OK;
}
