#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama-like model of 20 M parameters, trained over a slow link in three ways.

    torchrun --nproc-per-node 4 examples/torch/train.py

Each process is a device of a pipeline. Half of them are at another site, behind an
emulated latency of 40 ms, and of 120 ms from step 20 on. Three runs train the same
model on the same data: PyTorch's 1F1B, longhaul's schedule for the initial link,
and longhaul's adaptive schedules. The program prints the median step times before
and after the change, as measured by the first process, and whether all losses are
bitwise equal. With --device cuda all processes share the first GPU.
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
# steps excluded from each median, at the beginning and after the change
SETTLED = 5


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
    """Returns the layers of a device; the first has the embedding, the last the
    head."""
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
    """Returns longhaul's pipeline: passes in ms, two sites 40 ms apart."""
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


def now(device):
    """Returns seconds, after the device has completed its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def measured(rank, ranks, device):
    """Returns milliseconds of a chunk's F, D and W on the slowest device while
    all devices compute. D and W each count as half of the backward pass."""
    model, times = part(rank, ranks).to(device), []
    x = (torch.randint(VOCABULARY, (1, SEQUENCE), device=device) if rank == 0
         else torch.randn(1, SEQUENCE, WIDTH, device=device,
                          requires_grad=True))
    for _ in range(10):
        begin = now(device)
        y = model(x)
        middle = now(device)
        y.sum().backward()
        times.append((middle - begin, now(device) - middle))
    median = torch.tensor([statistics.median(t) * 1e3 for t in zip(*times)])
    distributed.all_reduce(median, op=distributed.ReduceOp.MAX)
    f, b = (round(t, 2) for t in median.tolist())
    return f, round(b / 2, 2), round(b / 2, 2)


def train(way, rank, ranks, times, steps, change, device):
    """Returns seconds of each step, losses of all, and the switches."""
    joint = way == "1f1b"
    what = pipeline(ranks, times, "joint" if joint else "split")
    schedule = "1f1b" if joint else longhaul.schedule(what, "auto",
                                                      progress=False)
    model = part(rank, ranks).to(device)
    runtime = PipelineRuntime(
        what, [PipelineStage(model, rank, ranks, device)],
        schedule=schedule, loss_fn=loss_of, inject="",
        scale_grads=False,
        adapt=Adapt(steps=steps) if way == "adapt" else False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4 / MICROBATCHES)
    seconds, all_losses = [], []
    for step in range(steps):
        if step == change:
            runtime.inject("here-there=latency:120ms")
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(VOCABULARY, (MICROBATCHES, SEQUENCE + 1),
                               generator=generator).to(device)
        losses = []
        distributed.barrier()
        begin = time.monotonic()
        runtime.step(*([tokens[:, :-1]] if rank == 0 else []),
                     **({"target": tokens[:, 1:], "losses": losses}
                        if rank == ranks - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(now(device) - begin)
        all_losses.append([loss.item() for loss in losses])
    name = getattr(schedule, "method", schedule)
    runtime.close()
    return name, seconds, all_losses, runtime.switches


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--change", type=int, default=20,
                         help="the step from which the link is slower")
    options.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    given = options.parse_args()
    if not SETTLED < given.change < given.steps - 2 * SETTLED:
        options.error(f"--change has to be between {SETTLED + 1} and "
                      f"{2 * SETTLED} steps before the end")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    if rank == 0 and (ranks < 2 or ranks > LAYERS):
        options.error(f"2 to {LAYERS} processes: torchrun --nproc-per-node 4")
    device = torch.device(given.device)
    times = measured(rank, ranks, device)
    if rank == 0:
        where = (torch.cuda.get_device_name() if device.type == "cuda"
                 else f"{os.cpu_count()} processors")
        print(f"{ranks} processes on {where}; F {times[0]} "
              f"ms, D {times[1]} ms, W {times[2]} ms", flush=True)
    trained = []
    for way in ("1f1b", "plan", "adapt"):
        name, seconds, losses, switches = train(
            way, rank, ranks, times, given.steps, given.change, device)
        trained.append(losses)
        if rank:
            continue
        before = statistics.median(seconds[SETTLED:given.change])
        after = statistics.median(seconds[given.change + 2 * SETTLED:])
        print(f"{way:6} begins with {name:16} 40 ms: {before:.3f} s   "
              f"120 ms: {after:.3f} s   all: {sum(seconds):.1f} s", flush=True)
        for switch in switches:
            print(f"       step {switch.step}: {switch.to}, "
                  f"{switch.refused or switch.why}", flush=True)
    if rank == ranks - 1:
        print("same losses, each bit" if trained[0] == trained[1] == trained[2]
              else "other losses, by the order in which gradients are added",
              flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
