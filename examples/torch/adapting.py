#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A link becomes slow and recovers: a PyTorch run compared with its prediction.

    torchrun --nproc-per-node 4 examples/torch/adapting.py

Four processes train over gloo. Two of them are at another site, behind an emulated
link that is slow for a part of the steps. They run PyTorch's 1F1B and ZB-V, then
longhaul's adaptive schedules on the same stages. `longhaul simulate --events` (and
`--adapt`) predicts all steps from a few measured ones; the program prints both
totals. Passes mostly sleep, so that processes do not compete for processors: the
example tests pass order, messages and switches. The losses of all runs must be
bitwise equal to those of a single process.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import longhaul
import torch
from longhaul.torch import Adapt, PipelineRuntime, places
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, schedules

WIDTH, ROWS, MICROBATCHES, RATE = 16, 2, 8, 0.01
WARM_UP = 3  # unmeasured first steps
PLACE = torch.device("cpu")


class Sleep(torch.autograd.Function):
    """Takes this many seconds forward, and this many backward."""

    @staticmethod
    def forward(ctx, x, forward_s, backward_s):
        ctx.seconds = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None, None


class Part(nn.Module):
    """A chunk: F sleeps, D during the input gradient, W during the weight
    gradient."""

    def __init__(self, chunk, seconds):
        super().__init__()
        torch.manual_seed(chunk)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH)
        self.seconds = seconds

    def forward(self, x):
        weight = Sleep.apply(self.weight, 0, self.seconds)
        return torch.tanh(Sleep.apply(x, self.seconds, self.seconds) @ weight)


def loss_of(output, target):
    return ((output - target) ** 2).sum()


def pipeline(wave, backward, times, links):
    """Returns the pipeline: chunks with times, links with latencies, in ms."""
    order = (0, 1, 2, 3, 3, 2, 1, 0) if wave else (0, 1, 2, 3)
    chunks = "".join(
        f"  - {{device: {device}, F: {f}, D: {d}, W: {w}, "
        "memory: {F: 1, D: 0, W: -1}}\n"
        for device, (f, d, w) in zip(order, times, strict=True))
    ways = "".join(f"  - {{from: {a}, to: {b}, name: {a}>{b}, latency: {ms}, "
                   "transfer: 0}\n" for (a, b), ms in sorted(links.items()))
    return (f"longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: {MICROBATCHES}"
            f"\ndevices: 4\nbackward: {backward}\nmemory_limit: "
            f"{16 if wave else 8}\nchunks:\n{chunks}links:\n{ways}")


def first_guess(given, wave):
    ms = given.pass_ms / (2 if wave else 1)
    links = {(a, b): given.latency if {a, b} == {1, 2} else 0
             for a in range(4) for b in range(4) if abs(a - b) == 1}
    return [(ms, ms, ms)] * (8 if wave else 4), links


def stages_of(text, rank, seconds):
    where = places(text)
    return [PipelineStage(Part(chunk, seconds).to(PLACE), chunk, len(where),
                          PLACE)
            for chunk, place in enumerate(where) if place == rank]


def zb_v(text, rank):
    """Returns PyTorch's own pass order as CSV."""
    made = schedules.ScheduleZBVZeroBubble(
        stages_of(text, rank, 0), MICROBATCHES, loss_fn=loss_of,
        scale_grads=False).pipeline_order
    return "".join(",".join(str(one) for one in made[device] if one) + "\n"
                   for device in range(4))


def measured(path):
    """Returns medians of a trace's passes and messages, in ms. A pass lasts
    from the time when its device is free and its input available, as in the
    monitor, so the runtime's own work between passes is included."""
    told = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    events = [(e["cat"], e["name"], (e["pid"], e["tid"]), e["args"])
              for e in told if e.get("cat") in ("pass", "message")]
    arrived, links, free, passes = {}, {}, {}, {}
    for cat, _, _, told in events:
        if cat == "message":
            arrived[told["consumer"]] = told["arrive_ns"]
            links.setdefault((told["from"], told["to"]), []).append(
                (told["arrive_ns"] - told["ready_ns"]) * 1e-6)
    for _, name, device, told in sorted(
            (e for e in events if e[0] == "pass"),
            key=lambda e: e[3]["start_ns"]):
        kind = next(letter for letter in name if letter in "FDIWB")
        key = int(name.partition(kind)[0]), "D" if kind == "I" else kind
        could = min(max(free.get(device, told["start_ns"]),
                        arrived.get(name, 0)), told["end_ns"])
        free[device] = told["end_ns"]
        passes.setdefault(key, []).append((told["end_ns"] - could) * 1e-6)
    times = []
    for chunk in range(1 + max(key[0] for key in passes)):
        times.append(tuple(round(statistics.median(passes[chunk, kind]), 3)
                           for kind in "FDW"))
    return times, {ends: round(statistics.median(taken), 3)
                   for ends, taken in links.items()}


def data(step):
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(MICROBATCHES * ROWS, WIDTH,
                        generator=generator).to(PLACE) for _ in range(2))


def one_process(chunks, steps):
    """Returns the losses of all microbatches of each step, computed without a
    pipeline."""
    model = nn.Sequential(*(Part(chunk, 0) for chunk in range(chunks))).to(PLACE)
    losses = []
    for step in range(steps):
        x, y = data(step)
        parts = [loss_of(model(a), b)
                 for a, b in zip(x.split(ROWS), y.split(ROWS))]
        for part in parts:
            part.backward()
        descend(model)
        losses.append([part.item() for part in parts])
    return losses


def descend(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight -= RATE * weight.grad
            weight.grad = None


def run(text, schedule, rank, given, steps, adapt=False, trace=None):
    """Returns seconds of each step, losses of the last chunk, and the
    switches."""
    wave = len(places(text)) > 4
    stages = stages_of(text, rank, given.pass_ms * 1e-3 / (2 if wave else 1))
    # The emulated link already includes the real transfer time.
    slow = f"1-2=latency:{given.latency + given.slower}ms"
    well = f"1-2=latency:{given.latency}ms"
    near = "0-1=latency:0ms;2-3=latency:0ms"
    runtime = PipelineRuntime(
        text, stages, schedule=schedule, loss_fn=loss_of, scale_grads=False,
        inject=f"{near};{well}",
        adapt=Adapt(steps=steps, effort=given.effort,
                    same_sums=not given.any_sums) if adapt else False)
    last = any(stage.is_last for stage in stages)
    first = any(stage.is_first for stage in stages)
    seconds, losses = [], []
    for step in range(steps):
        if step in (given.begin, given.end):
            runtime.inject(slow if step == given.begin else well)
        x, y = data(step)
        made = []
        begin = time.monotonic()
        runtime.step(*([x] if first else []),
                     **({"target": y, "losses": made} if last else {}))
        for stage in stages:
            descend(stage.submod)
        seconds.append(time.monotonic() - begin)
        losses.append([loss.item() for loss in made])
    if trace:
        runtime.write_trace(trace)
    runtime.close()
    return seconds, losses, runtime.switches


def predicted(folder, text, schedule, given, adapt):
    """Returns the predicted seconds of each step, and the steps of the
    switches."""
    (folder / "p.yaml").write_text(text)
    csv = longhaul.schedule(text, schedule).csv() if "\n" not in schedule else (
        schedule)
    (folder / "s.csv").write_text(csv)
    (folder / "e.yaml").write_text(
        "longhaul: events/1\ntime_unit: ms\nevents:\n"
        f"  - {{from: {given.begin}, to: {given.end}, links: [1-2], "
        f"latency: {given.slower}}}\n")
    told = longhaul.run(
        "simulate", folder / "p.yaml", "-s", folder / "s.csv", "--events",
        folder / "e.yaml", "--steps", given.steps,
        *(["--adapt"] if adapt else []),
        *(["--same-sums"] if adapt and not given.any_sums else []))
    return [one["seconds"] for one in told["iterations"]], told["switches"]


def shared(value):
    """Broadcasts the first rank's data."""
    told = [value]
    distributed.broadcast_object_list(told)
    return told[0]


def compare(name, wave, backward, schedule, rank, given, folder):
    """Runs a fixed schedule, then an adaptive run; prints both with
    predictions."""
    times, links = first_guess(given, wave)
    text = pipeline(wave, "split", times, links)
    trace = folder / "t.json"
    order = schedule or zb_v(text, rank)
    split = schedule and "zb-h1"  # 1F1B has no passes D and W
    run(text, split or order, rank, argparse.Namespace(
        **{**vars(given), "begin": -1, "end": -1}), WARM_UP, trace=trace)
    times, links = shared(measured(trace) if rank == 0 else None)
    rows = {}
    for adapt in (False, True):
        kind = "split" if adapt else backward
        text = pipeline(wave, kind, times, links)
        foretold = shared(predicted(folder, text, order, given, adapt)
                          if rank == 0 else None)
        took, losses, switches = run(text, order, rank, given, given.steps,
                                     adapt)
        rows[adapt] = sum(took), sum(foretold[0]), losses, switches
        if rank:
            continue
        print(f"{name:6} {'adapting' if adapt else 'fixed':8} "
              f"{sum(took):8.2f} s, predicted {sum(foretold[0]):8.2f} s: "
              f"{sum(took) / sum(foretold[0]) - 1:+.1%}; {len(switches)} "
              f"switches, predicted {len(foretold[1])}", flush=True)
        for one in switches:
            print(f"       step {one.step}: {one.to}: "
                  f"{one.refused or one.why}", flush=True)
        for one in foretold[1]:
            print(f"       predicted: step {one['step']}: {one['to']}: "
                  f"{one['why']}", flush=True)
        if given.each:
            for words, each in (("measured", took), ("predicted", foretold[0])):
                print(f"       {words:9} " +
                      " ".join(f"{one:.2f}" for one in each), flush=True)
    alone = one_process(len(times), given.steps)
    same = [None] * 4
    distributed.all_gather_object(same, all(
        rows[i][2] == alone or not rows[i][2][0] for i in (False, True)))
    if rank == 0:
        shares = [rows[False][i] / rows[True][i] - 1 for i in (0, 1)]
        print(f"{name:6} adapting is faster by {shares[0]:.1%}, predicted "
              f"{shares[1]:.1%}; losses of both "
              f"are {'the bits' if all(same) else 'NOT THOSE'} of one process",
              flush=True)
    return all(same)


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default, what in (
            ("pass-ms", 20.0, "what F, D and W of a device take"),
            ("latency", 20.0, "of the link between the sites, in ms"),
            ("slower", 100.0, "ms more while it is slow")):
        options.add_argument(f"--{name}", type=float, default=default,
                             help=what)
    for name, default, what in (
            ("steps", 60, "of each run"), ("begin", 15, "the first slow step"),
            ("end", 45, "the first that is not slow again")):
        options.add_argument(f"--{name}", type=int, default=default, help=what)
    options.add_argument("--effort", type=int,
                         help="of a decision; without it the usual one")
    options.add_argument("--any-sums", action="store_true",
                         help="take schedules that add gradients in another\n"
                              "order, too; losses may then differ in their\n"
                              "last bits")
    options.add_argument("--each", action="store_true",
                         help="print what each step took, and was predicted\n"
                              "to take")
    options.add_argument("--device", default="cpu", choices=("cpu", "cuda"),
                         help="cuda: all processes share the first GPU")
    given = options.parse_args()
    global PLACE
    PLACE = torch.device(given.device)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    if distributed.get_world_size() != 4:
        options.error("4 processes: torchrun --nproc-per-node 4")
    if rank == 0:
        print(f"passes of {given.pass_ms} ms, {given.latency} ms between the "
              f"sites, {given.slower} ms more in steps {given.begin} to "
              f"{given.end - 1} of {given.steps}; load of the machine "
              f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors",
              flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(shared(made))
        same = [compare("1F1B", False, "joint", "1f1b", rank, given, folder),
                compare("ZB-V", True, "split", None, rank, given, folder)]
        distributed.barrier()
    distributed.destroy_process_group()
    if not all(same) and not given.any_sums:
        raise SystemExit("losses differ")


if __name__ == "__main__":
    main()
