/* SPDX-License-Identifier: Apache-2.0 */
/* A model that trains in milliseconds. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include <longhaul/experimental/model.h>

/* Returns a tiny Llama model. */
static inline lh_model tiny_model(uint32_t layers)
{
    return (lh_model){.name = "tiny",
                      .layers = layers,
                      .hidden = 32,
                      .ffn = 48,
                      .vocab = 256,
                      .heads = 2,
                      .kv_heads = 1,
                      .head_dim = 16,
                      .gated = true,
                      .norm = LH_NORM_RMS,
                      .moe_interval = 1};
}

/* Returns a tiny Mixtral model. */
static inline lh_model tiny_mixtral(uint32_t layers)
{
    lh_model m = tiny_model(layers);
    m.name = "tiny-mixtral";
    m.experts = 6;
    m.experts_per_token = 2;
    m.expert_ffn = 24;
    m.ffn = 0;
    return m;
}

/* Returns a tiny GPT-2 model. */
static inline lh_model tiny_gpt2(uint32_t layers)
{
    lh_model m = tiny_model(layers);
    m.name = "tiny-gpt2";
    m.norm = LH_NORM_LAYER;
    m.gated = false;
    m.qkv_bias = m.output_bias = m.mlp_bias = true;
    m.tied_embeddings = true;
    m.kv_heads = m.heads;
    m.positions = 32;
    return m;
}

/* Returns a tiny Qwen 3 model. */
static inline lh_model tiny_qwen3(uint32_t layers)
{
    lh_model m = tiny_model(layers);
    m.name = "tiny-qwen3";
    m.qk_norm = true;
    return m;
}

/* Returns a tiny Falcon model. */
static inline lh_model tiny_falcon(uint32_t layers)
{
    lh_model m = tiny_model(layers);
    m.name = "tiny-falcon";
    m.norm = LH_NORM_LAYER;
    m.gated = false;
    m.parallel_block = true;
    m.tied_embeddings = true;
    return m;
}

/* Returns a tiny DeepSeek model. */
static inline lh_model tiny_deepseek(uint32_t layers)
{
    lh_model m = tiny_model(layers);
    m.name = "tiny-deepseek";
    m.kv_heads = m.heads;
    m.q_lora_rank = 20;
    m.kv_lora_rank = 12;
    m.qk_nope_head_dim = 10;
    m.qk_rope_head_dim = 6;
    m.v_head_dim = 14;
    return m;
}

#endif
