#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training on the CPU with its matrix products alone and with PyTorch.

    bench/train.py SPEED_TRAIN [--rounds N] [--data FILE] >train.json

SPEED_TRAIN is build/tests/speed/speed-train. Alternates one step of longhaul, the
same step's matrix products alone in OpenBLAS, and one step of PyTorch (the model
of peer_torch_train.py: its own attention, fused AdamW), with one thread each, so
that other load affects all equally. Prints medians of processor time and real
time. PyTorch runs the same microbatches and, separately, the whole batch at once;
the faster one counts. Needs torch and numpy ($LONGHAUL_TORCH names a Python that
has them); without them only the share of the products is measured.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
try:
    import numpy
    import torch
    import peer_torch_train as peer
except ImportError:
    other = os.environ.get("LONGHAUL_TORCH")
    if other:  # once only
        environment = {k: v for k, v in os.environ.items()
                       if k != "LONGHAUL_TORCH"}
        os.execve(other, [other, *sys.argv], environment)
    torch = None

# layers, hidden, ffn, vocab, heads, kv_heads, head_dim, then sequence,
# sequences per microbatch, microbatches per step
MODELS = {
    "14M, 256 tokens": (8, 384, 1024, 256, 6, 6, 64, 256, 4, 4),
    "14M, grouped heads, 512 tokens": (8, 384, 1024, 256, 6, 2, 64, 512, 2, 4),
    "18M, 8192 tokens in the vocabulary": (6, 384, 1024, 8192, 6, 6, 64, 256, 4,
                                           4),
}


class Ours:
    def __init__(self, program, data, sizes):
        self.process = subprocess.Popen(
            [program, data, *map(str, sizes), "0"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{' '.join(self.process.args)} failed")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def weights_of(sizes):
    layers, h, f, v, heads, kv, d = sizes[:7]
    shapes = {"model.embed_tokens": (v, h)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes.update({
            at + "input_layernorm": (h,),
            at + "self_attn.q_proj": (heads * d, h),
            at + "self_attn.k_proj": (kv * d, h),
            at + "self_attn.v_proj": (kv * d, h),
            at + "self_attn.o_proj": (h, heads * d),
            at + "post_attention_layernorm": (h,),
            at + "mlp.gate_proj": (f, h), at + "mlp.up_proj": (f, h),
            at + "mlp.down_proj": (h, f)})
    shapes.update({"model.norm": (h,), "lm_head": (v, h)})
    return {n + ".weight": torch.randn(s) * 0.02 if len(s) == 2
            else torch.ones(s) for n, s in shapes.items()}


def theirs(data, sizes, whole):
    sequence, microbatch, microbatches = sizes[7:]
    if whole:
        microbatch, microbatches = microbatch * microbatches, 1
    model = peer.Llama(weights_of(sizes), *sizes[4:7], sequence)
    train = peer.Training(model, numpy.fromfile(data, "uint8"), sequence,
                          microbatch, microbatches, 1, 1000, 1e-3, 1e-4, 10,
                          fused=True)

    def step():
        wall, cpu = time.monotonic(), time.process_time()
        train.step()
        return {"wall_s": time.monotonic() - wall,
                "cpu_s": time.process_time() - cpu}
    return step


def measure(name, program, data, sizes, rounds):
    ours = Ours(program, data, sizes)
    turns = {"step": lambda: ours.ask("step"),
             "products": lambda: ours.ask("products")}
    if torch:
        turns["pytorch"] = theirs(data, sizes, False)
        turns["pytorch_whole_batch"] = theirs(data, sizes, True)
    for turn in turns.values():  # first access to memory, kernel caches
        turn()
    seen = {key: [] for key in turns}
    for _ in range(rounds):
        for key, turn in turns.items():
            seen[key].append(turn())
    ours.close()
    row = {"model": name, "tokens": sizes[7] * sizes[8] * sizes[9],
           "gflop_of_products": seen["products"][0]["gflop"]}
    for key, all_ in seen.items():
        for unit in ("cpu_s", "wall_s"):
            row[f"{key}_{unit}"] = round(
                statistics.median(x[unit] for x in all_), 4)
    for unit in ("cpu_s", "wall_s"):
        row[f"share_of_products_{unit[:-2]}"] = round(
            row[f"products_{unit}"] / row[f"step_{unit}"], 4)
        if torch:
            best = min(row[f"pytorch_{unit}"],
                       row[f"pytorch_whole_batch_{unit}"])
            row[f"pytorch_over_ours_{unit[:-2]}"] = round(
                best / row[f"step_{unit}"], 4)
    return row


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("program")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--data", default=str(HERE.parent / "LICENSE"))
    o = arguments.parse_args()
    if torch:
        torch.set_num_threads(1)
    rows = []
    for name, sizes in MODELS.items():
        rows.append(measure(name, o.program, o.data, sizes, o.rounds))
        print(json.dumps(rows[-1]), file=sys.stderr)
    print(json.dumps({"benchmark": "train", "rounds": o.rounds,
                      "pytorch": torch.__version__ if torch else None,
                      "rows": rows}, indent=1))


main()
