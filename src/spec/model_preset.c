/* SPDX-License-Identifier: Apache-2.0 */
/* Models by name. docs/models.md names the source of each. */
#include "spec/spec.h"

#include <string.h>

/* The parts that all layers of a family have in common. */
#define LLAMA_STYLE                                                            \
    .head_dim = 128, .gated = true, .norm = LH_NORM_RMS, .moe_interval = 1

#define DEEPSEEK_STYLE                                                         \
    .head_dim = 192, .gated = true, .norm = LH_NORM_RMS, .expert_ffn = 2048,   \
    .shared_expert_ffn = 2048, .moe_interval = 1, .q_lora_rank = 1536,         \
    .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64,      \
    .v_head_dim = 128

static const lh_model presets[] = {
    {.name = "llama3-8b",
     .layers = 32,
     .hidden = 4096,
     .ffn = 14336,
     .heads = 32,
     .kv_heads = 8,
     .vocab = 128256,
     LLAMA_STYLE},
    {.name = "llama3-70b",
     .layers = 80,
     .hidden = 8192,
     .ffn = 28672,
     .heads = 64,
     .kv_heads = 8,
     .vocab = 128256,
     LLAMA_STYLE},
    {.name = "llama3-405b",
     .layers = 126,
     .hidden = 16384,
     .ffn = 53248,
     .heads = 128,
     .kv_heads = 8,
     .vocab = 128256,
     LLAMA_STYLE},
    {.name = "gpt3-175b",
     .layers = 96,
     .hidden = 12288,
     .ffn = 49152,
     .heads = 96,
     .kv_heads = 96,
     .head_dim = 128,
     .vocab = 50257,
     .tied_embeddings = true,
     .qkv_bias = true,
     .output_bias = true,
     .mlp_bias = true,
     .norm = LH_NORM_LAYER,
     .positions = 2048,
     .moe_interval = 1},
    {.name = "qwen2.5-32b",
     .layers = 64,
     .hidden = 5120,
     .ffn = 27648,
     .heads = 40,
     .kv_heads = 8,
     .vocab = 152064,
     .qkv_bias = true,
     LLAMA_STYLE},
    {.name = "qwen2.5-72b",
     .layers = 80,
     .hidden = 8192,
     .ffn = 29568,
     .heads = 64,
     .kv_heads = 8,
     .vocab = 152064,
     .qkv_bias = true,
     LLAMA_STYLE},
    {.name = "qwen3-30b-a3b",
     .layers = 48,
     .hidden = 2048,
     .ffn = 6144,
     .heads = 32,
     .kv_heads = 4,
     .vocab = 151936,
     .qk_norm = true,
     .experts = 128,
     .experts_per_token = 8,
     .expert_ffn = 768,
     LLAMA_STYLE},
    {.name = "qwen3-235b-a22b",
     .layers = 94,
     .hidden = 4096,
     .ffn = 12288,
     .heads = 64,
     .kv_heads = 4,
     .vocab = 151936,
     .qk_norm = true,
     .experts = 128,
     .experts_per_token = 8,
     .expert_ffn = 1536,
     LLAMA_STYLE},
    {.name = "gpt-oss-120b",
     .layers = 36,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .vocab = 201088,
     .gated = true,
     .norm = LH_NORM_RMS,
     .qkv_bias = true,
     .output_bias = true,
     .mlp_bias = true,
     .attention_sinks = true,
     .sliding_window = 128,
     .full_interval = 2,
     .experts = 128,
     .experts_per_token = 4,
     .expert_ffn = 2880,
     .router_bias = true,
     .moe_interval = 1},
    {.name = "mixtral-8x7b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .vocab = 32000,
     .experts = 8,
     .experts_per_token = 2,
     .expert_ffn = 14336,
     LLAMA_STYLE},
    {.name = "deepseek-v3",
     .layers = 61,
     .hidden = 7168,
     .ffn = 18432,
     .heads = 128,
     .kv_heads = 128,
     .vocab = 129280,
     .experts = 256,
     .experts_per_token = 8,
     .dense_layers = 3,
     .mtp_layers = 1,
     DEEPSEEK_STYLE},
    {.name = "kimi-k2",
     .layers = 61,
     .hidden = 7168,
     .ffn = 18432,
     .heads = 64,
     .kv_heads = 64,
     .vocab = 163840,
     .experts = 384,
     .experts_per_token = 8,
     .dense_layers = 1,
     DEEPSEEK_STYLE},
    {.name = "crosspipe-m8",
     .layers = 30,
     .hidden = 4096,
     .ffn = 14336,
     .heads = 32,
     .kv_heads = 8,
     .vocab = 128256,
     LLAMA_STYLE},
    {.name = "crosspipe-m70",
     .layers = 62,
     .hidden = 8192,
     .ffn = 28672,
     .heads = 64,
     .kv_heads = 8,
     .vocab = 128256,
     LLAMA_STYLE},
};

static const char *const preset_names[] = {
    "llama3-8b",     "llama3-70b",      "llama3-405b",
    "gpt3-175b",     "qwen2.5-32b",     "qwen2.5-72b",
    "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-120b",
    "mixtral-8x7b",  "deepseek-v3",     "kimi-k2",
    "crosspipe-m8",  "crosspipe-m70",   NULL,
};

/* The same shapes, trained further. */
static const lhi_alias aliases[] = {
    {"llama3.1-8b", "llama3-8b"},   {"llama3.1-70b", "llama3-70b"},
    {"llama3.3-70b", "llama3-70b"}, {"llama3.1-405b", "llama3-405b"},
    {"deepseek-r1", "deepseek-v3"}, {NULL, NULL},
};

const char *const *lh_model_presets(void)
{
    return preset_names;
}

const lh_model *lh_model_preset(const char *name)
{
    name = lhi_alias_of(aliases, name);
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}
