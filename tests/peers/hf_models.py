# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers, their configurations, and plans for them."""
import json
import subprocess

import torch
import transformers

SEQUENCE = 384
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128,
         "intermediate_size": 96, "max_position_embeddings": 131072,
         "initializer_range": 0.15, "rms_norm_eps": 0.003,
         "tie_word_embeddings": False, "rope_theta": 10000.0}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
          "rope_theta": 500000.0}
YARN = {"rope_type": "yarn", "factor": 40.0, "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": 4096, "rope_theta": 10000.0}
NO_HEAD_DIM = {k: v for k, v in SIZES.items() if k != "head_dim"}
DEEPSEEK = NO_HEAD_DIM | EXPERTS | {
    "num_key_value_heads": 4, "n_routed_experts": 8, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "rms_norm_eps": 1e-6, "q_lora_rank": 24, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12}
GROUPS = {"num_experts_per_tok": 4, "n_group": 4, "topk_group": 2,
          "routed_scaling_factor": 2.5, "norm_topk_prob": True}
SPLIT = {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}


def reference(kind, config):
    """Returns the whole configuration, a model of it in which no weight is
    neutral, and tokens."""
    torch.manual_seed(1)
    config = {"model_type": kind, **config}
    if "rope_parameters" in config:  # these have all keys
        config.pop("rope_theta", None)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config),
        attn_implementation="eager").eval()
    for key, value in model.state_dict().items():
        if key.endswith(("bias", "sinks")):
            value.normal_(std=0.3)
        elif "norm" in key:
            value.uniform_(0.5, 1.5)
    return config, model, torch.randint(config["vocab_size"], (1, SEQUENCE))


def longhaul(program, folder, *args):
    done = subprocess.run([program, *args], cwd=folder, text=True,
                          capture_output=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def plan(program, folder, config, target):
    """Writes plan.json for a target program."""
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "job.yaml").write_text(f"""
longhaul: job/1
model: ./config.json
training: {{global_batch: 1, sequence: {SEQUENCE}, precision: fp32, zero: 0,
  recompute: none}}
cluster: {{gpu: {{tflops: 100, memory_gib: 80, memory_gbps: 2000,
  efficiency: 0.5}}, gpus_per_node: 1, datacenters: [{{name: a, nodes: 1}}],
  node_link: {{gbps: 400, latency_us: 3}}, fabric: {{gbps: 400, latency_us: 8}}}}
""")
    longhaul(program, folder, "plan", "job.yaml", "--for", target,
             "--no-optimal", "--effort", "10", "-q", "-o", "plan.json")
