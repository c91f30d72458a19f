#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tensor-parallel training on two ranks with PyTorch's.

    bench/tensor.py LONGHAUL [--ranks N] [--steps N] [--rounds N] [--data FILE] \\
        >tensor.json

N processes each, alternating: longhaul with `tensor: N` (--transport local), and
DTensor over gloo (parallelize_module: columns and rows, sequence parallelism,
vocabulary-parallel loss, like torchtitan) on the model of peer_torch_train.py.
Both use the same initial weights, windows, optimizer and rates, with one thread
per process; one process of each runs for comparison. Prints the difference of the
losses and the duration of a step: minimum and median over all rounds, in real
time and in processor time of all processes, without the first step of a run.
Needs torch and numpy ($LONGHAUL_TORCH names a Python that has them).
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from running import run
from sharded import theirs  # and a Python with torch
import numpy
import peer_torch_train as peer
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, HIDDEN, FFN, VOCAB, HEADS, HEAD_DIM = 4, 256, 688, 256, 4, 64
SEQUENCE, MICROBATCH, MICROBATCHES, SEED = 256, 2, 2, 1
RATE, MIN_RATE, WARMUP = 1e-3, 1e-4, 2

JOB = f"""longhaul: job/1
model: {{{{layers: {LAYERS}, hidden: {HIDDEN}, ffn: {FFN}, heads: {HEADS},
        kv_heads: {HEADS}, head_dim: {HEAD_DIM}, vocab: {VOCAB}, gated: true,
        tied_embeddings: false}}}}
training: {{{{global_batch: {MICROBATCH * MICROBATCHES}, sequence: {SEQUENCE},
           precision: fp32, optimizer: adamw, zero: 1, recompute: none}}}}
cluster:
  gpu: {{{{tflops: 0.1, memory_gib: 4, memory_gbps: 20}}}}
  gpus_per_node: {{ranks}}
  node_link: {{{{gbps: 80, latency_us: 10}}}}
  fabric: {{{{gbps: 10, latency_us: 50}}}}
  datacenters: [{{{{name: here, nodes: 1}}}}]
layout: {{{{tensor: {{ranks}}, context: 1, expert: 1, pipeline: 1, data: 1,
         micro_batch: {MICROBATCH}, chunks_per_device: 1, schedule: 1f1b}}}}
"""


def planned(program, ranks, folder):
    job, plan = folder / f"job-{ranks}.yaml", folder / f"plan-{ranks}.json"
    job.write_text(JOB.format(ranks=ranks))
    run(program, "plan", job, "-q", "--no-optimal", "-o", plan)
    return plan


def ours(program, plan, steps, data, folder):
    """Returns losses and step times."""
    train = [program, "train", plan, "--device", "cpu", "--transport", "local",
             "--data", data, "--seed", SEED]
    weights = folder / "step-00000001/model.safetensors"
    if not weights.exists():
        run(*train, "--steps", 1, "--checkpoint", folder)
    said = json.loads(run(
        *train, "--steps", steps, "--rate", RATE, "--min-rate", MIN_RATE,
        "--warmup", WARMUP, "--weights", weights, "--json"))
    return ([one["loss"] for one in said["iterations"]],
            [one["seconds"] for one in said["iterations"]])


class Attention(torch.nn.Module):
    def __init__(self, llama):
        super().__init__()
        for part in "qkvo":
            setattr(self, f"{part}_proj",
                    torch.nn.Linear(HIDDEN, HIDDEN, bias=False))
        self.rotate = llama.rotate

    def forward(self, x):
        b, s, _ = x.shape

        def split(y):
            return y.view(b, s, -1, HEAD_DIM).transpose(1, 2)
        y = F.scaled_dot_product_attention(
            self.rotate(split(self.q_proj(x))),
            self.rotate(split(self.k_proj(x))), split(self.v_proj(x)),
            is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, s, -1))


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = torch.nn.Linear(HIDDEN, FFN, bias=False)
        self.up_proj = torch.nn.Linear(HIDDEN, FFN, bias=False)
        self.down_proj = torch.nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(torch.nn.Module):
    def __init__(self, llama):
        super().__init__()
        self.input_layernorm = torch.nn.RMSNorm(HIDDEN, llama.epsilon)
        self.self_attn = Attention(llama)
        self.post_attention_layernorm = torch.nn.RMSNorm(HIDDEN, llama.epsilon)
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(torch.nn.Module):
    """The model of peer_torch_train.py, from modules that parallelize_module
    splits."""

    def __init__(self, weights):
        super().__init__()
        llama = peer.Llama(weights, HEADS, HEADS, HEAD_DIM, SEQUENCE)
        self.embed_tokens = torch.nn.Embedding(VOCAB, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer(llama) for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(HIDDEN, llama.epsilon)
        self.lm_head = torch.nn.Linear(HIDDEN, VOCAB, bias=False)
        self.load_state_dict({name.removeprefix("model."): weight
                              for name, weight in weights.items()})

    def forward(self, tokens, targets):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                               reduction="sum")


def cut(model, mesh):
    """Splits it as torchtitan splits Llama 3."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
        parallelize_module)
    parallelize_module(model, mesh, {
        "embed_tokens": RowwiseParallel(input_layouts=Replicate(),
                                        output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1),
                                   output_layouts=Shard(-1),
                                   use_local_output=False)})
    whole = PrepareModuleInput(input_layouts=(Shard(1),),
                               desired_input_layouts=(Replicate(),))
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "input_layernorm": SequenceParallel(),
            "self_attn": whole,
            **{f"self_attn.{part}_proj": ColwiseParallel() for part in "qkv"},
            "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
            "post_attention_layernorm": SequenceParallel(),
            "mlp": whole,
            "mlp.gate_proj": ColwiseParallel(),
            "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1))})


def worker(ranks, rank, meeting, steps, data, weights):
    """Trains in one PyTorch process; returns [loss, seconds] of each step."""
    import torch.distributed as dist
    from torch.distributed.tensor.parallel import loss_parallel
    torch.set_num_threads(1)
    model = Llama(peer.read_safetensors(weights))
    within = contextlib.nullcontext
    if ranks > 1:
        dist.init_process_group("gloo", init_method=meeting, rank=rank,
                                world_size=ranks)
        cut(model, dist.device_mesh.init_device_mesh("cpu", (ranks,)))
        within = loss_parallel
    train = peer.Training(model, numpy.fromfile(data, "uint8"), SEQUENCE,
                          MICROBATCH, MICROBATCHES, SEED, steps, RATE,
                          MIN_RATE, WARMUP)
    rows = []
    with within():
        for _ in range(steps):
            if ranks > 1:
                dist.barrier()
            begin = time.monotonic()
            loss = train.step()[0]
            rows.append([loss, time.monotonic() - begin])
    if ranks > 1:
        dist.destroy_process_group()
    return rows


def compare(program, ranks, steps, data, rounds=1, alone=True):
    data = os.path.abspath(data)
    row = {"ranks": ranks, "steps": steps, "rounds": rounds,
           "tokens_per_step": MICROBATCH * MICROBATCHES * SEQUENCE,
           "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        weights = folder / "step-00000001/model.safetensors"
        turns = {}
        for n in {1: 0, ranks: 0} if alone else [ranks]:
            plan = planned(program, n, folder)
            turns[f"ours_{n}"] = lambda plan=plan: ours(
                program, plan, steps, data, folder)
            turns[f"torch_{n}"] = lambda n=n: theirs(
                n, steps, data, weights, worker)
        losses, seconds = {}, {key: [] for key in turns}
        for _ in range(rounds):
            for key, turn in turns.items():
                losses[key], took = turn()
                seconds[key] += took[1:]
    for key, took in seconds.items():
        row[f"{key}_least_s"] = min(took)
        row[f"{key}_median_s"] = statistics.median(took)
    for kind in ("least", "median"):
        row[f"torch_over_ours_{kind}"] = (row[f"torch_{ranks}_{kind}_s"] /
                                          row[f"ours_{ranks}_{kind}_s"])
    row["load_after"] = os.getloadavg()[0]
    row["losses"] = losses[f"ours_{ranks}"]
    row["torch_losses"] = losses[f"torch_{ranks}"]
    row["worst_loss"] = max(abs(a / b - 1) for a, b in
                            zip(row["losses"], row["torch_losses"]))
    return row


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("program")
    arguments.add_argument("--ranks", type=int, default=2)
    arguments.add_argument("--steps", type=int, default=6)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--data", default=str(HERE.parent / "LICENSE"))
    o = arguments.parse_args()
    json.dump(compare(o.program, o.ranks, o.steps, o.data, o.rounds),
              sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
