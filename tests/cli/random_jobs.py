# SPDX-License-Identifier: Apache-2.0
"""Seeded jobs for Megatron-LM and torchtitan: many kinds of models, machines and
layouts. Most of the layout is fixed, so that planning is fast.
"""

PRESETS = ("llama3-8b", "qwen2.5-32b", "qwen3-30b-a3b", "mixtral-8x7b",
           "gpt-oss-120b", "deepseek-v3", "gpt3-175b")


def dense(r):
    heads = r.choice((8, 16, 32))
    keys = {"name": "d", "layers": r.choice((8, 12, 16, 24)),
            "hidden": 64 * heads, "heads": heads, "vocab": r.choice(
                (32000, 50257, 128256)), "ffn": 256 * heads}
    if r.random() < 0.5:
        keys["kv_heads"] = heads // r.choice((2, 4, 8))
    if r.random() < 0.3:
        keys["head_dim"] = 128
    keys["gated"] = r.choice(("true", "false"))
    keys["tied_embeddings"] = r.choice(("true", "false"))
    if r.random() < 0.3:
        keys.update(qkv_bias="true", output_bias="true", mlp_bias="true")
    elif r.random() < 0.3:
        keys["qkv_bias"] = "true"
    if r.random() < 0.3:
        keys["qk_norm"] = "true"
    if r.random() < 0.3:
        keys["norm"] = "layer"
    if r.random() < 0.2:
        keys["positions"] = 8192
    if r.random() < 0.2:
        keys["sliding_window"] = r.choice((128, 1024))
        if r.random() < 0.7:
            keys["full_interval"] = r.choice((2, 4))
        if r.random() < 0.3:
            keys["window_first_layer"] = r.choice((1, 3))
    return keys


def sparse(r):
    keys = dense(r)
    keys.pop("positions", None)
    if "mlp_bias" in keys:
        keys["router_bias"] = "true"
    keys.update(name="e", experts=r.choice((8, 16, 64)), experts_per_token=2,
                expert_ffn=r.choice((512, 1024)))
    keys["experts_per_token"] = r.choice((1, 2, 4))
    if r.random() < 0.4:
        keys["shared_expert_ffn"] = 1024
        if r.random() < 0.3:
            keys["shared_expert_gate"] = "true"
    if r.random() < 0.3:
        keys.update(router="sigmoid", routed_scale="2.5", expert_groups=4,
                    groups_per_token=2)
    elif keys["experts_per_token"] > 1 and r.random() < 0.2:
        keys["raw_shares"] = "true"
    if r.random() < 0.4:
        keys["dense_layers"] = r.choice((1, 3))
    if r.random() < 0.2:
        keys.update(moe_interval=2, moe_phase=r.choice((0, 1)))
    elif r.random() < 0.2:
        keys["dense_list"] = "[4, 6]"
    return keys


def latent(r):
    keys = sparse(r)
    for key in ("kv_heads", "head_dim", "qk_norm", "qkv_bias",
                "sliding_window", "full_interval", "window_first_layer"):
        keys.pop(key, None)
    keys.update(kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32,
                v_head_dim=64)
    if r.random() < 0.7:
        keys["q_lora_rank"] = 512
    if r.random() < 0.5:
        keys["mtp_layers"] = 1
    return keys


def model(r):
    if r.random() < 0.25:
        return r.choice(PRESETS)
    keys = r.choice((dense, dense, sparse, latent))(r)
    return "{" + ", ".join(f"{k}: {v}" for k, v in keys.items()) + "}"


def training(r, large, experts, latent_attention):
    keys = {"global_batch": r.choice((64, 128, 256)),
            "sequence": r.choice((2048, 4096))}
    if large:
        keys["global_batch"] = 256
    if r.random() < 0.2:
        keys["precision"] = r.choice(("fp16", "bf16"))
    if r.random() < 0.7:
        keys["zero"] = r.choice((0, 1, 1, 2, 3))
    if r.random() < 0.6:
        modules = ["core_attn", "layernorm"]
        if experts:
            modules += ["moe_act", "moe"]
        if latent_attention:
            modules += ["mla_up_proj"]
        names = r.sample(modules, r.randint(1, len(modules)))
        keys["recompute"] = r.choice(("none", "full", "full",
                                      "[" + ", ".join(names) + "]"))
    if experts and r.random() < 0.3:
        keys["dispatcher"] = "deepep"
    if r.random() < 0.2:
        keys["dropout"] = r.choice(("true", "false"))
    return "{" + ", ".join(f"{k}: {v}" for k, v in keys.items()) + "}"


def layout(r, experts):
    keys = {"framework": "megatron",
            "pipeline": r.choice((1, 2, 4, 4)),
            "tensor": r.choice((1, 2, 4))}
    if r.random() < 0.6:
        keys["chunks_per_device"] = r.choice((1, 2, 2, 4))
    if r.random() < 0.3:
        keys["context"] = 2
    if r.random() < 0.6:
        keys["micro_batch"] = r.choice((1, 2))
    if r.random() < 0.5:
        keys["outermost"] = r.choice(("pipeline", "data"))
    if experts and r.random() < 0.6:
        keys["expert"] = r.choice((2, 4, 8))
        if r.random() < 0.4:
            keys["expert_tensor"] = r.choice((1, 2))
    if r.random() < 0.2:
        keys["sharding"] = r.choice(("full", "hybrid"))
    return "{" + ", ".join(f"{k}: {v}" for k, v in keys.items()) + "}"


def job(r):
    """Returns a job's text; the job may be infeasible."""
    m = model(r)
    experts = "experts" in m or m in PRESETS[2:6]
    large = m in PRESETS
    nodes = r.choice(((4,), (2, 2), (1, 3), (1, 1, 2)))
    if large:
        nodes = tuple(8 * n for n in nodes)
    sites = list(zip("abc", nodes))
    links = ", ".join(f"{{between: [{x}, {y}], latency_ms: 5, gbps: 100}}"
                      for x, _ in sites for y, _ in sites if x < y)
    framework = ""
    if r.random() < 0.3:
        framework = "framework: {preset: megatron, " + r.choice((
            "attention: unfused", "gradients: bf16, reduce: bf16",
            "sequence_parallel: false", "fp8: matmul", "receives: late",
            "overlap: {tensor: 1}", "overlap: {expert: 1}")) + "}"
    return f"""longhaul: job/1
model: {m}
training: {training(r, large, experts, "kv_lora" in m or m == "deepseek-v3")}
{framework}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{", ".join(f"{{name: {x}, nodes: {n}}}" for x, n in sites)}]
{f"  links: [{links}]" if links else ""}
layout: {layout(r, experts)}
"""


def torchtitan_job(r):
    """Returns a job's text for torchtitan; the job may be infeasible. With one
    stage every layer is a bucket, in ZeRO 0 every chunk."""
    m = r.choice((dense, dense, sparse, latent))(r)
    m.pop("mtp_layers", None)
    nodes = r.choice(((4,), (2, 2), (1, 3), (1, 1, 2)))
    keys = {"framework": "torchtitan", "pipeline": r.choice((1, 2, 4, 4)),
            "tensor": r.choice((1, 2, 4)), "context": r.choice((1, 1, 2)),
            "micro_batch": r.choice((1, 2)),
            "outermost": "pipeline"}
    keys["chunks_per_device"] = r.choice((1, 2, 3))
    if keys["pipeline"] == 1:
        keys.update(chunks_per_device=m["layers"], outermost="data")
    else:
        m["tied_embeddings"] = "false"
    if "experts" in m and r.random() < 0.6:
        keys["expert"] = r.choice((2, 4, 8))
    if r.random() < 0.3:
        keys["sharding"] = r.choice(("full", "hybrid"))
    zeros = (2, 3) if keys["context"] > 1 else (0, 2, 3)
    training = {"global_batch": r.choice((64, 128, 256)),
                "sequence": r.choice((2048, 4096)),
                "zero": r.choice(zeros), "dropout": "false",
                "precision": r.choice(("bf16", "bf16", "fp32")),
                "recompute": r.choice(("none", "full"))}
    if keys["pipeline"] == 1 and training["zero"] >= 2:
        keys["chunks_per_device"] = 1
    framework = r.choice(("", "", "", "sequence_parallel: false",
                          "overlap: {tensor: 0.1}"))
    sites = list(zip("abc", nodes))
    links = ", ".join(f"{{between: [{x}, {y}], latency_ms: 5, gbps: 100}}"
                      for x, _ in sites for y, _ in sites if x < y)

    def flow(keys):
        return "{" + ", ".join(f"{k}: {v}" for k, v in keys.items()) + "}"
    return f"""longhaul: job/1
model: {flow(m)}
training: {flow(training)}
framework: {{preset: torchtitan{", " * bool(framework)}{framework}}}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{", ".join(f"{{name: {x}, nodes: {n}}}" for x, n in sites)}]
{f"  links: [{links}]" if links else ""}
layout: {flow(keys)}
"""
