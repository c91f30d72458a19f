#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures layers of known models on this machine's GPU, into one profile.

    bench/gpu_profiles.py -o data/profiles/h200.json

Needs the packages longhaul and torch. Shapes are the product of models, tensor
degrees, sequences and microbatches. Shapes whose layer would take too long or
does not fit into memory are skipped and printed. After --seconds, the results so
far are written. Results are added to an existing file.
"""

import argparse
import gc
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import longhaul
import torch
from longhaul.torch import profile

MODELS = ("llama3-8b", "llama3-70b", "qwen2.5-72b", "llama3-405b",
          "mixtral-8x7b", "deepseek-v3")
# Approximate parameters of a layer, and of the head's matrix, to skip shapes
# that take too long.
LAYERS = {"llama3-8b": 218e6, "llama3-70b": 856e6, "qwen2.5-72b": 878e6,
          "llama3-405b": 3.19e9, "mixtral-8x7b": 0.4e9, "deepseek-v3": 1.5e9}
# Models that the package cannot make layers of run as whole transformers
# modules.
CONFIGS = {
    "mixtral-8x7b": {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
        "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_local_experts": 8,
        "num_experts_per_tok": 2, "vocab_size": 32000, "rope_theta": 1e6,
        "max_position_embeddings": 32768, "sliding_window": None},
    "deepseek-v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3", "hidden_size": 7168,
        "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "n_shared_experts": 1,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8,
        "topk_group": 4, "first_k_dense_replace": 3, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "routed_scaling_factor": 2.5,
        "norm_topk_prob": True, "vocab_size": 129280,
        "max_position_embeddings": 32768},
}
MOST = 1.6e13  # parameters times tokens
JOB = """\
longhaul: job/1
model: {model}
training: {{global_batch: 1024, sequence: {sequence}, precision: bf16}}
cluster:
  gpu: h200
  gpus_per_node: 8
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{{name: here, nodes: 128}}]
"""


def numbers(text):
    return [int(word) for word in text.split(",")]


def shapes(given):
    """Yields the shapes, the most common sequence lengths first."""
    for sequence in given.sequence:
        for micro_batch in given.micro_batch:
            for model in given.models:
                for tensor in given.tensor if model not in CONFIGS else [1]:
                    tokens = micro_batch * sequence
                    if tokens > given.tokens:
                        continue
                    if tokens * LAYERS[model] / tensor > MOST:
                        continue
                    yield model, tensor, sequence, micro_batch


def modules(model):
    """Makes a folder with the model's configuration; None: layers of its
    shape."""
    if model not in CONFIGS:
        return None
    folder = pathlib.Path(tempfile.gettempdir(), "longhaul-configs", model)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[model]))
    return str(folder)


def optimizer_ns(device, n=1 << 28):
    """Measures AdamW per parameter: fp32 weights, gradients and moments."""
    weight = torch.randn(n, device=device, requires_grad=True)
    weight.grad = torch.randn(n, device=device)
    adam = torch.optim.AdamW([weight], fused=device.type == "cuda")
    low = torch.empty(n, device=device, dtype=torch.bfloat16)
    taken = []
    for _ in range(6):
        begin = now(device)
        adam.step()
        low.copy_(weight.detach())
        taken.append(now(device) - begin)
    return min(taken) / n * 1e9


def now(device):
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def rates(device, n=8192):
    """Measures TFLOP/s of a bf16 matrix product, and TB/s of a copy."""
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16)
            for _ in range(2))
    data = torch.empty(1 << 30, device=device, dtype=torch.uint8)
    into = torch.empty_like(data)
    found = []
    for run, amount in ((lambda: a @ b, 2 * n**3),
                        (lambda: into.copy_(data), 2 * data.numel())):
        taken = []
        for _ in range(8):
            begin = now(device)
            for _ in range(4):
                run()
            taken.append((now(device) - begin) / 4)
        found.append(amount / sorted(taken)[4] / 1e12)
    return found


def driver():
    try:
        return subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            text=True, stdout=subprocess.PIPE, check=True).stdout.split()[0]
    except (OSError, IndexError, subprocess.CalledProcessError):
        return "unknown"


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("-o", "--output", required=True)
    options.add_argument("--models", type=lambda text: text.split(","),
                         default=MODELS)
    options.add_argument("--tensor", type=numbers, default=[8, 4, 2, 1])
    options.add_argument("--sequence", type=numbers,
                         default=[4096, 8192, 32768])
    options.add_argument("--micro-batch", type=numbers, default=[1, 2, 4, 8])
    options.add_argument("--tokens", type=int, default=32768,
                         help="of a microbatch, at most")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--seconds", type=float, default=600)
    given = options.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    begin = time.monotonic()
    old = {"entries": [], "source": "", "gpu": ""}
    if pathlib.Path(given.output).exists():
        old = json.loads(pathlib.Path(given.output).read_text())
    entries, source, gpu = old["entries"], old["source"], old["gpu"]
    known = {tuple(e.get(key, 1) for key in (
        "model", "tensor", "sequence", "micro_batch")) for e in entries}
    left_out = []
    for model, tensor, sequence, micro_batch in shapes(given):
        if (model, tensor, sequence, micro_batch) in known:
            continue
        what = f"{model}, tensor {tensor}, {micro_batch} x {sequence}"
        if time.monotonic() - begin > given.seconds:
            left_out.append(f"{what}: no time")
            continue
        try:
            made = profile(JOB.format(model=model, sequence=sequence),
                           modules=modules(model), tensor=[tensor],
                           micro_batch=[micro_batch], repeats=given.repeats,
                           device=device)
        except torch.cuda.OutOfMemoryError:
            left_out.append(f"{what}: too little memory")
            made = None
        except longhaul.Error as error:
            left_out.append(f"{what}: {error}")
            made = None
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if made is None:
            continue
        if model not in CONFIGS:
            source = made["source"]
        for entry in made["entries"]:
            gpu = entry.pop("gpu", gpu)
            entries.append({"model": model, **entry})
        print(f"{time.monotonic() - begin:6.1f} s  {what}  " + "  ".join(
            f"{e['kind']} {e['F_us'] / 1e3:.3f} {e['D_us'] / 1e3:.3f} "
            f"{e['W_us'] / 1e3:.3f}" for e in made["entries"]), flush=True)
    if device.type == "cuda":
        product, copy = rates(device)
        adam = optimizer_ns(device)
        source += (
            f"; CUDA {torch.version.cuda}, driver {driver()}; on the same GPU "
            f"a product of 8192 x 8192 ran at {product:.0f} TFLOP/s, a copy at "
            f"{copy:.2f} TB/s, fused AdamW of fp32 in {adam:.5f} ns a parameter")
    whole = [model for model in given.models if model in CONFIGS]
    if whole:
        import transformers

        source += (f"; {', '.join(whole)}: as transformers "
                   f"{transformers.__version__} has them")
    for line in left_out:
        print(f"left out: {line}")
    made = {"longhaul": "profile/1", "gpu": gpu, "source": source,
            "entries": entries}
    rows = ",\n".join(json.dumps(e) for e in entries)
    head = json.dumps({**made, "entries": []})[:-2]
    pathlib.Path(given.output).write_text(f"{head}\n{rows}\n]}}\n")
    print(f"{source}\n{len(entries)} entries in {given.output}")


if __name__ == "__main__":
    sys.exit(main())
