#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Diagnosis of a real slow run: PyTorch over gloo under torch.profiler.

    test_profiled_training.py PROGRAM [FOLDER]

Four processes train by an exported 1F1B schedule. The times in the profiler's files,
one per rank, are replaced by those of a run whose messages from the first to the
second process take a tenth of a second, and in which the third one's passes take
three times as long as those of the others (retimed.py): other load on the machine
does not matter. The diagnosis must name that link and that rank, in every step.
FOLDER keeps the traces. Needs torch 2.15; $LONGHAUL_TORCH names a Python that has it.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from retimed import retime
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

STAGES, MICROBATCHES, STEPS = 4, 8, 2
PASS_US, SLOW_US, MESSAGE_US, DELAY_US = 20000, 60000, 1000, 100000
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


def train(rank, meeting, csv, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting,
                                   rank=rank, world_size=STAGES)
    torch.manual_seed(rank)
    model = nn.Linear(16, 16)
    stage = PipelineStage(model, rank, STAGES, torch.device("cpu"))
    run = schedules._PipelineScheduleRuntime(
        [stage], MICROBATCHES, scale_grads=False,
        loss_fn=lambda out, target: ((out - target) ** 2).sum())
    run._load_csv(csv, format="compute_comms")
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
    for what, keys, place, least, most in (
            ("stage", ("stage",), (SLOW_RANK,), 2.95, 3.05),
            ("link", ("stage", "to"), SLOW_LINK, 10, DELAY_US / MESSAGE_US)):
        those = [s for s in found["slow"] if s["what"] == what]
        if [tuple(s[key] for key in keys) for s in those] != [place]:
            wrong.append(f"{what} {place} is not named alone: {those}")
        elif those[0]["steps"] != STEPS:
            wrong.append(f"{what} {place}: not in every step: {those}")
        elif not least <= those[0]["ratio"] <= most:
            wrong.append(f"{what} {place}: the ratio is wrong: {those}")
    if (found["n_steps"], found["stages"], found["replicas"]) != \
            (STEPS, STAGES, 1):
        wrong.append("not all steps and stages are there")
    if found["remarks"]:
        wrong.append(f"remarks: {found['remarks']}")
    if not found["t_s"] >= MICROBATCHES * 2 * SLOW_US * 1e-6:
        wrong.append(f"a step of {found['t_s']} s")
    return wrong


def main(folder):
    pipeline, csv, plan = (folder / name for name in
                           ("p.yaml", "p.csv", "1f1b.csv"))
    pipeline.write_text(PIPELINE)
    longhaul("schedule", str(pipeline), "-m", "1f1b", "-q", "-o", str(plan))
    longhaul("export", str(pipeline), "-s", str(plan), "--to", "pytorch",
             "--form", "compute_comms", "-o", str(csv))
    (folder / "meeting").unlink(missing_ok=True)
    meeting = (folder / "meeting").absolute().as_uri()
    multiprocessing.start_processes(
        train, (meeting, str(csv), str(folder)), nprocs=STAGES,
        start_method="fork")
    traces = sorted(str(path) for path in folder.glob("rank*.json.gz"))
    retime(traces, STAGES,
           lambda rank, _: SLOW_US if rank == SLOW_RANK else PASS_US,
           lambda *link: DELAY_US if link == SLOW_LINK else MESSAGE_US)
    print(longhaul("diagnose", *traces))
    wrong = what_is_wrong(json.loads(longhaul("diagnose", *traces, "--json")))
    print(f"torch {torch.__version__}:", *wrong or ["named"], sep="\n")
    return 1 if wrong else 0


if len(sys.argv) > 2:
    sys.exit(main(pathlib.Path(sys.argv[2])))
with tempfile.TemporaryDirectory(prefix="longhaul-profiled-") as temp:
    sys.exit(main(pathlib.Path(temp)))
