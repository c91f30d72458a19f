# SPDX-License-Identifier: Apache-2.0
"""Weights of transformers' models, by the names of megatron-core's local layers."""
import torch


def interleaved(q, k, v, groups):
    """Orders query heads, keys and values by group of heads."""
    parts = [t.reshape(groups, -1, *t.shape[1:]) for t in (q, k, v)]
    return torch.cat(parts, 1).flatten(0, 1)


def attention(own, config):
    """Converts attention; it is latent if keys and values are compressed."""
    out = {"linear_proj.weight": own["o_proj.weight"]}
    if "kv_b_proj.weight" in own:
        names = {"q_proj": "linear_q_proj", "q_a_proj": "linear_q_down_proj",
                 "q_b_proj": "linear_q_up_proj", "kv_b_proj": "linear_kv_up_proj",
                 "kv_a_proj_with_mqa": "linear_kv_down_proj",
                 "q_a_layernorm": "q_layernorm",
                 "kv_a_layernorm": "kv_layernorm"}
        return out | {f"{theirs}.weight": own[f"{ours}.weight"]
                      for ours, theirs in names.items()
                      if f"{ours}.weight" in own}
    if "qkv_proj.weight" in own:  # Phi-3
        size = config.hidden_size // config.num_attention_heads
        kv = config.num_key_value_heads * size
        q, k, v = own["qkv_proj.weight"].split([config.hidden_size, kv, kv])
        own = {**own, "q_proj.weight": q, "k_proj.weight": k,
               "v_proj.weight": v}
    for kind in "weight", "bias":
        if f"q_proj.{kind}" in own:
            out[f"linear_qkv.{kind}"] = interleaved(
                *(own[f"{one}_proj.{kind}"] for one in "qkv"),
                config.num_key_value_heads)
    for ours, theirs in (("o_proj.bias", "linear_proj.bias"),
                         ("q_norm.weight", "q_layernorm.weight"),
                         ("k_norm.weight", "k_layernorm.weight"),
                         ("sinks", "core_attention.softmax_offset")):
        if ours in own:
            out[theirs] = own[ours]
    return out


def dense(own):
    gated = "gate_proj.weight" in own
    if "gate_up_proj.weight" in own:  # Phi-3
        return {"linear_fc1.weight": own["gate_up_proj.weight"],
                "linear_fc2.weight": own["down_proj.weight"]}
    return {"linear_fc1.weight": torch.cat(
        [own["gate_proj.weight"], own["up_proj.weight"]]) if gated
        else own["up_proj.weight"], "linear_fc2.weight": own["down_proj.weight"]}


def gpt_oss_experts(own):
    """Gate and linear rows alternate; matrices are stored transposed."""
    up = own["experts.gate_up_proj"].mT
    bias = own["experts.gate_up_proj_bias"]
    return {"linear_fc1.weight": torch.cat([up[:, ::2], up[:, 1::2]], 1),
            "linear_fc1.bias": torch.cat([bias[:, ::2], bias[:, 1::2]], 1),
            "linear_fc2.weight": own["experts.down_proj"].mT,
            "linear_fc2.bias": own["experts.down_proj_bias"]}


def part(own, prefix):
    return {name.removeprefix(prefix): value for name, value in own.items()
            if name.startswith(prefix)}


def experts(own):
    """Converts a router and its experts, and shared experts."""
    router = "router." if "router.weight" in own else "gate."
    of_each = (gpt_oss_experts(own) if "experts.gate_up_proj_bias" in own else
               {"linear_fc1.weight": own["experts.gate_up_proj"],
                "linear_fc2.weight": own["experts.down_proj"]})
    out = {f"experts.local_experts.{i}.{name}": value[i]
           for name, value in of_each.items() for i in range(len(value))}
    for ours, theirs in (("weight", "weight"), ("bias", "bias"),
                         ("e_score_correction_bias", "expert_bias")):
        if router + ours in own:
            out[f"router.{theirs}"] = own[router + ours]
    for name in "shared_experts.", "shared_expert.":
        shared = part(own, name)
        if shared:
            out |= {f"shared_experts.{key}": value
                    for key, value in dense(shared).items()}
    if "shared_expert_gate.weight" in own:
        out["shared_experts.gate_weight"] = own["shared_expert_gate.weight"]
    return out


def for_megatron(model):
    """Returns the weights of a transformers model, in a new dictionary."""
    config, every = model.config, model.state_dict()
    out = {"embedding.word_embeddings.weight": every["model.embed_tokens.weight"],
           "output_layer.weight": every["lm_head.weight"]}
    for kind in "weight", "bias":
        if f"model.norm.{kind}" in every:
            out[f"decoder.final_layernorm.{kind}"] = every[f"model.norm.{kind}"]
    for i in range(config.num_hidden_layers):
        own = part(every, f"model.layers.{i}.")
        mlp = part(own, "mlp.")
        sparse = any(name.startswith("experts.") for name in mlp)
        layer = {f"self_attention.{k}": v for k, v in
                 attention(part(own, "self_attn."), config).items()}
        layer |= {f"mlp.{k}": v
                  for k, v in (experts(mlp) if sparse else dense(mlp)).items()}
        for ours, theirs in (("input_layernorm", "input_layernorm"),
                             ("post_attention_layernorm", "pre_mlp_layernorm")):
            layer |= {f"{theirs}.{kind}": own[f"{ours}.{kind}"]
                      for kind in ("weight", "bias") if f"{ours}.{kind}" in own}
        out |= {f"decoder.layers.{i}.{k}": v for k, v in layer.items()}
    return out
