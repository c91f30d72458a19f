/* SPDX-License-Identifier: Apache-2.0 */
/* Builds small MoE models from dense ones. */
#ifndef MOE_MODELS_H
#define MOE_MODELS_H

#include <longhaul/experimental/model.h>

/* Makes every layer a Mixtral-like MoE layer. */
static inline lh_model mixtral_of(lh_model m)
{
    m.qkv_bias = m.output_bias = m.mlp_bias = false;
    m.experts = 5;
    m.experts_per_token = 2;
    m.expert_ffn = m.ffn;
    m.ffn = 0;
    return m;
}

/* Makes every second layer dense and adds a gated shared expert. */
static inline lh_model qwen2_moe_of(lh_model m)
{
    m = mixtral_of(m);
    m.ffn = 13;
    m.qkv_bias = m.unnormalised_scores = m.shared_expert_gate = true;
    m.shared_expert_ffn = 9;
    m.moe_interval = 2, m.moe_phase = 1;
    return m;
}

/* Uses DeepSeek-V3's routing: a dense first layer, expert groups, a bias. */
static inline lh_model glm4_moe_of(lh_model m)
{
    m = mixtral_of(m);
    m.ffn = 13;
    m.experts = 8, m.expert_groups = 4, m.groups_per_token = 2;
    m.router = LH_ROUTER_SIGMOID;
    m.routed_scale = 1.75;
    m.shared_expert_ffn = 2 * m.expert_ffn;
    m.dense_layers = 1;
    return m;
}

#endif
