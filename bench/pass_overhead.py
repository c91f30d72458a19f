#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time per pass that longhaul.torch adds to PyTorch's own pipelining runtime.

    bench/pass_overhead.py [--ranks 1] [--chunks 2] [--microbatches 64] [--steps 40]

Chunks multiply by one number. Steps alternate between PyTorch's
_PipelineScheduleRuntime and longhaul.torch.PipelineRuntime with the same actions.
Prints JSON: microseconds of a pass in both, and the difference, in processor time of
all threads of the rank with the largest difference (median and smallest over the
steps), and the context switches of all threads for a pass. One rank
sends no messages; with --ranks 2 --chunks 1 each pass sends or receives one. Needs
torch and longhaul for the same Python.
"""

import argparse
import json
import os
import resource
import socket
import statistics
import time

import torch
from longhaul.torch import PipelineRuntime, places
from torch import distributed, multiprocessing, nn
from torch.distributed.pipelining import PipelineStage, schedules


class Chunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.weight


def pipeline(given):
    chunks = given.chunks * given.ranks
    rows = "".join(f"  - {{device: {k % given.ranks}, F: 1, D: 1, W: 1}}\n"
                   for k in range(chunks))
    links = "".join(f"  - {{from: {a}, to: {b}, latency: 0, transfer: 0}}\n"
                    for a in range(given.ranks) for b in range(given.ranks)
                    if a != b)
    return ("longhaul: pipeline/1\ntime_unit: ms\n"
            f"microbatches: {given.microbatches}\ndevices: {given.ranks}\n"
            f"backward: joint\nchunks:\n{rows}"
            + (f"links:\n{links}" if links else ""))


def loss_of(output, target):
    return (output - target).sum()


def measure(rank, given, port, results):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=given.ranks)
    text = pipeline(given)
    where = places(text)

    def stages():
        return [PipelineStage(Chunk(), k, len(where), torch.device("cpu"))
                for k, at in enumerate(where) if at == rank]

    ours = PipelineRuntime(
        text, stages(), loss_fn=loss_of, scale_grads=False,
        schedule="1f1b" if given.chunks == 1 else "interleaved-1f1b")
    peer = schedules._PipelineScheduleRuntime(
        stages(), given.microbatches, loss_fn=loss_of, scale_grads=False)
    peer._prepare_schedule_with_comms(ours._actions(ours._order),
                                      format="compute_comms")
    x = torch.ones(given.microbatches, 1)
    times = {"pytorch": [], "longhaul": []}
    waits = {"pytorch": [], "longhaul": []}
    passes = 2 * given.chunks * given.microbatches
    for step in range(given.steps):
        for name, runtime in (("pytorch", peer), ("longhaul", ours)):
            distributed.barrier()
            begin = time.process_time()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            runtime.step(
                *([x] if where[0] == rank else []),
                **({"target": x, "losses": []} if where[-1] == rank else {}))
            took = time.process_time() - begin
            after = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            if step >= given.steps // 4:  # after the first shapes
                times[name].append(took / passes * 1e6)
                waits[name].append((after - before) / passes)
    ours.close()
    distributed.destroy_process_group()
    results.put({name: (statistics.median(t), min(t),
                        statistics.median(waits[name]))
                 for name, t in times.items()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--chunks", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = multiprocessing.get_context("fork").SimpleQueue()
    multiprocessing.start_processes(measure, (given, port, results),
                                    nprocs=given.ranks, start_method="fork")
    ranks = [results.get() for _ in range(given.ranks)]
    worst = max(ranks, key=lambda one: one["longhaul"][0] - one["pytorch"][0])

    def column(i):
        return {name: round(of[i], 1) for name, of in worst.items()}

    print(json.dumps({
        "torch": torch.__version__, **vars(given), "us_per_pass": column(0),
        "least_us_per_pass": column(1), "switches_per_pass": column(2),
        "added_us": round(worst["longhaul"][0] - worst["pytorch"][0], 1)}))


if __name__ == "__main__":
    main()
