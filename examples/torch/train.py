#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama-like model of 20 M parameters, trained over a slow link in three ways.

    torchrun --nproc-per-node 4 examples/torch/train.py

Each process is a device of a pipeline; half of them are at another site, 40 ms
away, which is emulated, and from step 10 on 120 ms. PyTorch's 1F1B, longhaul's
schedule for the link as it is at first, and longhaul's adapting to the link
train the same model on the same data. Printed are the medians of the steps
before and after the change, as the first process sees them.
"""

import argparse
import os
import statistics
import time

import longhaul
import torch
from longhaul.torch import Adapt, PipelineRuntime
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage
from torch.nn import functional

WIDTH, HEADS, FFN, LAYERS, VOCABULARY = 384, 6, 1024, 10, 4096
SEQUENCE, MICROBATCHES = 8, 6
SETTLED = 5  # steps that a median leaves out, from each beginning


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, FFN, bias=False)
        self.up = nn.Linear(WIDTH, FFN, bias=False)
        self.down = nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x):
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1))
        q, k, v = heads.transpose(1, 3).unbind(2)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def part(rank, ranks):
    """The layers of a device; the first has the embedding, the last the head."""
    torch.manual_seed(rank)
    first, end = LAYERS * rank // ranks, LAYERS * (rank + 1) // ranks
    layers = [Layer() for _ in range(first, end)]
    if rank == 0:
        layers.insert(0, nn.Embedding(VOCABULARY, WIDTH))
    if rank == ranks - 1:
        layers.append(nn.RMSNorm(WIDTH))
        layers.append(nn.Linear(WIDTH, VOCABULARY, bias=False))
    return nn.Sequential(*layers)


def loss_of(output, target):
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def pipeline(ranks, times, backward):
    """What longhaul is told: passes in ms, two sites 40 ms from each other."""
    f, d, w = times
    site = [2 * rank // ranks for rank in range(ranks)]
    chunks = "".join(f"  - {{device: {i}, F: {f}, D: {d}, W: {w}}}\n"
                     for i in range(ranks))
    a, b = site.index(1) - 1, site.index(1)
    return (f"longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: {MICROBATCHES}\n"
            f"devices: {ranks}\nbackward: {backward}\nchunks:\n{chunks}links:\n"
            f"  - {{from: {a}, to: {b}, name: here>there, latency: 40, "
            "transfer: 0}\n"
            f"  - {{from: {b}, to: {a}, name: there>here, latency: 40, "
            "transfer: 0}\n")


def measured(rank, ranks):
    """Milliseconds of a chunk's F, D and W on the slowest device, while all
    are busy: the two halves of the backward take about the same."""
    model, times = part(rank, ranks), []
    x = (torch.randint(VOCABULARY, (1, SEQUENCE)) if rank == 0
         else torch.randn(1, SEQUENCE, WIDTH, requires_grad=True))
    for _ in range(10):
        begin = time.monotonic()
        y = model(x)
        middle = time.monotonic()
        y.sum().backward()
        times.append((middle - begin, time.monotonic() - middle))
    median = torch.tensor([statistics.median(t) * 1e3 for t in zip(*times)])
    distributed.all_reduce(median, op=distributed.ReduceOp.MAX)
    f, b = (round(t, 2) for t in median.tolist())
    return f, round(b / 2, 2), round(b / 2, 2)


def train(way, rank, ranks, times, steps, change):
    """Seconds of each step, the last losses, and the switches."""
    joint = way == "1f1b"
    what = pipeline(ranks, times, "joint" if joint else "split")
    schedule = "1f1b" if joint else longhaul.schedule(what, "auto",
                                                      progress=False)
    model = part(rank, ranks)
    runtime = PipelineRuntime(
        what, [PipelineStage(model, rank, ranks, torch.device("cpu"))],
        schedule=schedule, loss_fn=loss_of, inject="",
        scale_grads=False,
        adapt=Adapt(steps=steps) if way == "adapt" else False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4 / MICROBATCHES)
    seconds, losses = [], []
    for step in range(steps):
        if step == change:
            runtime.inject("here-there=latency:120ms")
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(VOCABULARY, (MICROBATCHES, SEQUENCE + 1),
                               generator=generator)
        losses.clear()
        distributed.barrier()
        begin = time.monotonic()
        runtime.step(*([tokens[:, :-1]] if rank == 0 else []),
                     **({"target": tokens[:, 1:], "losses": losses}
                        if rank == ranks - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.monotonic() - begin)
    name = getattr(schedule, "method", schedule)
    runtime.close()
    return name, seconds, runtime.switches


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--steps", type=int, default=24)
    options.add_argument("--change", type=int, default=10,
                         help="the step from which the link is slower")
    given = options.parse_args()
    if not SETTLED < given.change < given.steps - 2 * SETTLED:
        options.error(f"--change has to be between {SETTLED + 1} and "
                      f"{2 * SETTLED} steps before the end")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    if rank == 0 and (ranks < 2 or ranks > LAYERS):
        options.error(f"2 to {LAYERS} processes: torchrun --nproc-per-node 4")
    times = measured(rank, ranks)
    if rank == 0:
        print(f"{ranks} processes on {os.cpu_count()} processors; F {times[0]} "
              f"ms, D {times[1]} ms, W {times[2]} ms", flush=True)
    for way in ("1f1b", "plan", "adapt"):
        name, seconds, switches = train(way, rank, ranks, times, given.steps,
                                        given.change)
        if rank:
            continue
        before = statistics.median(seconds[SETTLED:given.change])
        after = statistics.median(seconds[given.change + 2 * SETTLED:])
        print(f"{way:6} begins with {name:16} 40 ms: {before:.3f} s   "
              f"120 ms: {after:.3f} s   all: {sum(seconds):.1f} s", flush=True)
        for switch in switches:
            print(f"       step {switch.step}: {switch.to}, "
                  f"{switch.refused or switch.why}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
