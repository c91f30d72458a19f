#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Passes that longhaul derives from traces of PyTorch's own schedules.

    test_profiled_schedules.py PROGRAM [FOLDER]

Four processes over gloo run Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B,
and two replicas of Schedule1F1B with two stages each, under torch.profiler. The times
in the traces are replaced by those of a run in which one process has longer passes
(retimed.py), so that other load on the machine does not matter. The order of passes on
each rank must be that in which the schedule called the stages, the times of passes must
be the given ones, and the slow stage must be named. The recipe in docs/diagnose.md
runs in a loop without messages, and must write its three steps. FOLDER keeps the
traces. Needs torch 2.15; $LONGHAUL_TORCH names a Python that has it.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

from retimed import MARK, retime
from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
warnings.filterwarnings("ignore")
try:
    import torch
    from torch import distributed, multiprocessing, nn
    from torch.distributed.pipelining import (PipelineStage, Schedule1F1B,
                                              ScheduleGPipe,
                                              ScheduleInterleaved1F1B)
    from torch.profiler import (ProfilerActivity, profile, record_function,
                                schedule)
except ImportError as error:
    skip_without("torch", error, "LONGHAUL_TORCH",
            "the passes of PyTorch's schedules are derived from traces")

RANKS, MICROBATCHES, STEPS, SLOW_RANK = 4, 6, 2, 2
PASS_US = {"F": 10000, "B": 20000}
SLOWER = 3
MESSAGE_US = 1000
# name: (schedule, stages of a pipeline, chunks of a rank)
RUNS = {"1f1b": (Schedule1F1B, RANKS, 1),
        "gpipe": (ScheduleGPipe, RANKS, 1),
        "interleaved": (ScheduleInterleaved1F1B, RANKS, 2),
        "replicas": (Schedule1F1B, 2, 1)}


def pass_us(rank, kind):
    return PASS_US[kind] * (SLOWER if rank == SLOW_RANK else 1)


def noted(function, kind, chunk, calls):
    """Returns a stage's method that also notes its calls, in the trace too."""
    def call(microbatch, *args, **more):
        calls.append((kind, chunk, microbatch))
        with record_function(f"{MARK}{chunk}{kind}{microbatch}"):
            return function(microbatch, *args, **more)
    return call


def run_schedule(rank, name, group, folder):
    """Trains under the profiler; writes the trace and the calls of its steps."""
    kind, n_stages, n_chunks = RUNS[name]
    place = distributed.get_rank(group)
    parts = [nn.Sequential(nn.Linear(32, 32), nn.ReLU())
             for _ in range(n_chunks)]
    stages, calls = [], []
    for i, part in enumerate(parts):
        chunk = place + i * n_stages
        stage = PipelineStage(part, chunk, n_stages * n_chunks,
                              torch.device("cpu"), group=group)
        stage.forward_one_chunk = noted(stage.forward_one_chunk, "F", chunk,
                                        calls)
        stage.backward_one_chunk = noted(stage.backward_one_chunk, "B", chunk,
                                         calls)
        stages.append(stage)
    pipeline = kind(stages if n_chunks > 1 else stages[0], MICROBATCHES,
                    loss_fn=lambda out, target: ((out - target) ** 2).mean())
    optimizer = torch.optim.SGD([p for part in parts
                                 for p in part.parameters()], lr=1e-3)
    with profile(activities=[ProfilerActivity.CPU],
                 schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
                 on_trace_ready=lambda p: p.export_chrome_trace(
                     f"{folder}/{name}-rank{rank}.json.gz")) as profiler:
        for step in range(STEPS + 2):
            if step == 2:
                calls.clear()
            x = torch.randn(2 * MICROBATCHES, 32)
            pipeline.step(*([x] if place == 0 else []),
                          **({"target": x} if place == n_stages - 1 else {}))
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    (folder / f"{name}-calls{rank}.json").write_text(json.dumps(calls))


def train(rank, meeting, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting,
                                   rank=rank, world_size=RANKS)
    halves = [distributed.new_group([0, 1]), distributed.new_group([2, 3])]
    for name in RUNS:
        n_stages = RUNS[name][1]
        group = (distributed.group.WORLD if n_stages == RANKS
                 else halves[rank // n_stages])
        run_schedule(rank, name, group, folder)
    distributed.destroy_process_group()


def longhaul(*args):
    done = subprocess.run([PROGRAM, *args], text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr}")
    return done.stdout


def passes_on_page(page):
    """Returns the passes of each device on the page, in the order of replicas:
    kind, chunk, microbatch of its first step."""
    data = json.loads(re.search(
        r'<script type="application/json" id="data">(.*?)</script>',
        page, re.DOTALL).group(1))
    runs = data["diagnosis"]["steps"][0]["own"]["runs"]

    def column(name, n):
        return runs[name] if isinstance(runs[name], list) else [runs[name]] * n
    out, at = [], 0
    sizes = column("of", RANKS)
    for n in sizes:
        rows = zip(runs["kind"], column("chunk", runs["n"]),
                   column("mb", runs["n"]))
        out.append([tuple(row) for row in rows][at:at + n])
        at += n
    return out


def compare_times(name, pipeline):
    """Compares the times of chunks with the given ones. What follows a pass until
    the next operation counts as a part of it."""
    wrong = []
    for chunk, one in enumerate(pipeline["chunks"]):
        for kind, ns in (("F", one["F"]), ("B", one["D"] + one["W"])):
            want, got = pass_us(chunk % RANKS, kind) / 1e3, ns / 1e6
            print(f"{name}: {kind} of chunk {chunk}: {got:.2f} ms of {want} ms")
            if abs(got - want) > 0.05 * want:
                wrong.append(f"{name}: {kind} of chunk {chunk}: {got:.2f} ms "
                             f"in place of {want} ms")
    return wrong


def what_is_wrong(name, folder):
    traces = [str(folder / f"{name}-rank{i}.json.gz") for i in range(RANKS)]
    calls = [[tuple(call) for call in
              json.loads((folder / f"{name}-calls{i}.json").read_text())]
             for i in range(RANKS)]
    _, n_stages, n_chunks = RUNS[name]
    for i in range(0, RANKS, n_stages):
        retime(traces[i:i + n_stages], n_stages * n_chunks,
               lambda rank, kind, i=i: pass_us(i + rank, kind),
               lambda *_: MESSAGE_US)
    page, pipeline = folder / "page.html", folder / "pipeline.json"
    found = json.loads(longhaul("diagnose", *traces, "--json", "--html",
                                str(page), "--pipeline-out", str(pipeline)))
    about = {"n_steps": STEPS, "stages": n_stages,
             "replicas": RANKS // n_stages, "microbatches": MICROBATCHES}
    wrong = [f"{name}: {key}: {found[key]}, not {value}"
             for key, value in about.items() if found[key] != value]
    wrong += [f"{name}: {remark}" for remark in found["remarks"]]
    want = [own[:len(own) // STEPS] for own in calls]
    got = passes_on_page(page.read_text())[:RANKS]
    # Any of the steps may be shown: all have the same order.
    if got != want:
        sys.exit(f"{name}: order\n{got}\nin place of\n{want}")
    if n_stages == RANKS:  # else the pipeline is of the slower replica
        wrong += compare_times(name, json.loads(pipeline.read_text()))
    worst = max((s for s in found["slow"] if s["what"] in ("stage", "worker")),
                key=lambda s: s["ratio"], default={})
    if worst.get("stage") != SLOW_RANK % n_stages or \
            worst["steps"] != STEPS or \
            (n_stages < RANKS and worst.get("replica") != 1):
        wrong.append(f"{name}: the slow rank is not named: {found['slow']}")
    return wrong


def recipe_is_wrong(folder):
    """Runs the code in docs/diagnose.md in a small training loop."""
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/diagnose.md"
    code = next(block for block in re.findall(
        r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        if "export_chrome_trace" in block)
    part = nn.Linear(64, 64)
    os.chdir(folder)
    exec(code, {"rank": 0, "batches": range(7), "train_step":
                lambda _: part(torch.randn(64, 64)).sum().backward()})
    one, = json.loads(longhaul("diagnose", "rank0.json.gz", "--json"))["ranks"]
    print("recipe:", one)
    return [] if one["n_steps"] == 3 and one["compute_s"] > 0 else [
        f"the recipe's trace: {one}"]


def main(folder):
    (folder / "meeting").unlink(missing_ok=True)
    meeting = (folder / "meeting").absolute().as_uri()
    multiprocessing.start_processes(train, (meeting, folder), nprocs=RANKS,
                                    start_method="fork")
    wrong = [line for name in RUNS for line in what_is_wrong(name, folder)]
    wrong += recipe_is_wrong(folder)
    print(f"torch {torch.__version__}:", *wrong or ["equal"], sep="\n")
    return 1 if wrong else 0


if len(sys.argv) > 2:
    sys.exit(main(pathlib.Path(sys.argv[2])))
with tempfile.TemporaryDirectory(prefix="longhaul-schedules-") as temp:
    sys.exit(main(pathlib.Path(temp)))
