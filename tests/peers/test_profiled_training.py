#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Diagnosis of a real slow run: PyTorch over gloo under torch.profiler.

    test_profiled_training.py PROGRAM [FOLDER]

Four processes train by an exported 1F1B schedule. Messages from the first to the
second are delayed by a tenth of a second, and the passes of the third take three times
as long as those of the others. The diagnosis reads the profiler's files, one per rank,
and must name that link and that rank as the most expensive of their kind. Other load
on the machine causes slowdowns too: if these cost more, the run is repeated. FOLDER
keeps the traces. Needs torch 2.15; $LONGHAUL_TORCH names a Python that has it.
"""
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings

from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
warnings.filterwarnings("ignore")
try:
    import torch
    from torch import distributed, multiprocessing, nn
    from torch.distributed.pipelining import PipelineStage, schedules
    from torch.profiler import ProfilerActivity, profile, schedule
    if "WAIT_SEND_F" not in schedules._ComputationType.__members__:
        raise ImportError(f"torch {torch.__version__} is older than 2.15")
except ImportError as error:
    skip_without("torch", error, "LONGHAUL_TORCH",
            "traces of PyTorch's profiler are diagnosed")

STAGES, MICROBATCHES, STEPS, RUNS = 4, 8, 2, 4
PASS_S, SLOW_S, DELAY_S = 0.02, 0.06, 0.1
SLOW_RANK, SLOW_LINK = 2, (0, 1)
PIPELINE = f"""
longhaul: pipeline/1
time_unit: ms
microbatches: {MICROBATCHES}
devices: {STAGES}
backward: joint
uniform: {{placement: ud, F: 20, D: 10, W: 10}}
"""


def longhaul(*args):
    done = subprocess.run([PROGRAM, *args], text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr}")
    return done.stdout


class Wait(torch.autograd.Function):
    """Takes its time, forward and backward, like work on a GPU."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


class Part(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.layer, self.seconds = nn.Linear(16, 16), seconds

    def forward(self, x):
        return Wait.apply(self.layer(x), self.seconds)


class Held:
    """Delays sends by this much, one after the other."""

    class Work:
        def __init__(self):
            self.done, self.works = threading.Event(), []

        def wait(self):
            self.done.wait()
            for work in self.works:
                work.wait()

    def __init__(self, send, seconds):
        self.send, self.seconds, self.queue = send, seconds, queue.Queue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            due, ops, work = self.queue.get()
            time.sleep(max(0, due - time.monotonic()))
            work.works = self.send(ops)
            work.done.set()

    def __call__(self, ops, *rest, **more):
        if not ops or any(op.op is not distributed.isend for op in ops):
            return self.send(ops, *rest, **more)
        work = self.Work()
        self.queue.put((time.monotonic() + self.seconds, ops, work))
        return [work]


def train(rank, meeting, csv, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting,
                                   rank=rank, world_size=STAGES)
    torch.manual_seed(rank)
    model = Part(SLOW_S if rank == SLOW_RANK else PASS_S)
    stage = PipelineStage(model, rank, STAGES, torch.device("cpu"))
    run = schedules._PipelineScheduleRuntime(
        [stage], MICROBATCHES, scale_grads=False,
        loss_fn=lambda out, target: ((out - target) ** 2).sum())
    run._load_csv(csv, format="compute_comms")
    if rank == SLOW_LINK[0]:  # the first stage sends only to the second
        schedules._batch_p2p = Held(schedules._batch_p2p, DELAY_S)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with profile(activities=[ProfilerActivity.CPU],
                 schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
                 on_trace_ready=lambda p: p.export_chrome_trace(
                     f"{folder}/rank{rank}.json.gz")) as profiler:
        for _ in range(STEPS + 2):
            x = torch.randn(2 * MICROBATCHES, 16)
            run.step(*([x] if rank == 0 else []),
                     **({"target": x, "losses": []}
                        if rank == STAGES - 1 else {}))
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    distributed.destroy_process_group()


def what_is_wrong(found):
    wrong = []
    for what, keys, place in (("stage", ("stage",), (SLOW_RANK,)),
                              ("link", ("stage", "to"), SLOW_LINK)):
        those = [s for s in found["slow"] if s["what"] == what]
        worst = max(those, key=lambda s: s["cost_s"], default=None)
        if not worst or tuple(worst[key] for key in keys) != place:
            wrong.append(f"{what} {place} does not cost the most: {those}")
        elif worst["steps"] != STEPS:
            wrong.append(f"{what} {place}: not in every step: {worst}")
    if (found["n_steps"], found["stages"], found["replicas"]) != \
            (STEPS, STAGES, 1):
        wrong.append("not all steps and stages are there")
    if found["remarks"]:
        wrong.append(f"remarks: {found['remarks']}")
    # Sleeps are never shorter than requested.
    if not found["t_s"] >= MICROBATCHES * 2 * SLOW_S:
        wrong.append(f"a step of {found['t_s']} s")
    return wrong


def main(folder):
    pipeline, csv, plan = (folder / name for name in
                           ("p.yaml", "p.csv", "1f1b.csv"))
    pipeline.write_text(PIPELINE)
    longhaul("schedule", str(pipeline), "-m", "1f1b", "-q", "-o", str(plan))
    longhaul("export", str(pipeline), "-s", str(plan), "--to", "pytorch",
             "--form", "compute_comms", "-o", str(csv))
    for i in range(RUNS):
        meeting = (folder / f"meeting{i}").absolute().as_uri()
        multiprocessing.start_processes(
            train, (meeting, str(csv), str(folder)), nprocs=STAGES,
            start_method="fork")
        traces = sorted(str(path) for path in folder.glob("rank*.json.gz"))
        print(longhaul("diagnose", *traces))
        wrong = what_is_wrong(json.loads(
            longhaul("diagnose", *traces, "--json")))
        if not wrong:
            break
    print(f"torch {torch.__version__}:", *wrong or ["named"], sep="\n")
    return 1 if wrong else 0


if len(sys.argv) > 2:
    sys.exit(main(pathlib.Path(sys.argv[2])))
with tempfile.TemporaryDirectory(prefix="longhaul-profiled-") as temp:
    sys.exit(main(pathlib.Path(temp)))
