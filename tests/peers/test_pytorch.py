#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our schedules load in torch.distributed.pipelining and pass its validation.

    test_pytorch.py PROGRAM

Needs torch; $LONGHAUL_TORCH names a Python that has it, if this one has not.
Without it the test is skipped with a message.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import warnings

from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
try:
    warnings.filterwarnings("ignore")
    import torch
    from torch.distributed.pipelining import schedules
except ImportError as error:
    skip_without("torch", error, "LONGHAUL_TORCH", "our schedules load in PyTorch")

count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def runtime(devices, stages, microbatches):
    """Creates the runtime of rank 0, without other processes."""
    stage = types.SimpleNamespace(
        num_stages=stages, group_size=devices, group_rank=0, stage_index=0,
        is_first=True, is_last=stages == 1, has_backward=True,
        stage_index_to_group_rank=None)
    return schedules._PipelineScheduleRuntime(
        [stage], microbatches, loss_fn=lambda out, target: out)


def interleaved(devices, n, rank):
    """Returns the passes of PyTorch's own Interleaved1F1B with two stages per
    rank; None: it rejects the number of microbatches."""
    stages = [types.SimpleNamespace(
        num_stages=2 * devices, group_size=devices, group_rank=rank,
        stage_index=index, is_first=index == 0,
        is_last=index + 1 == 2 * devices, has_backward=True,
        stage_index_to_group_rank=None) for index in (rank, rank + devices)]
    try:
        made = schedules.ScheduleInterleaved1F1B(
            stages, n, loss_fn=lambda out, target: out)
    except ValueError:
        return None
    return [found.groups() for action in made.pipeline_order[rank] if action
            for found in [re.fullmatch(r"(\d+)([FB])(\d+)", str(action))]
            if found]


def dualpipev(devices, n, rank):
    """Returns the row of a schedule file with PyTorch's own DualPipeV."""
    stages = [types.SimpleNamespace(
        num_stages=2 * devices, group_size=devices, group_rank=rank,
        stage_index=index, is_first=index == 0,
        is_last=index + 1 == 2 * devices, has_backward=True,
        stage_index_to_group_rank=None, submod=torch.nn.Module())
        for index in (rank, 2 * devices - 1 - rank)]
    made = schedules.ScheduleDualPipeV(
        stages, n, loss_fn=lambda out, target: out)
    return ",".join(str(a) for a in made.pipeline_order[rank] if a)


def load(name, path, devices, stages, microbatches, place):
    """Loads, lowers and validates; then simulates the lowered schedule to
    detect deadlocks."""
    run = runtime(devices, stages, microbatches)
    try:
        run._load_csv(str(path), format="compute_only")
    except Exception as error:  # any exception of PyTorch
        check(False, f"{name}: {type(error).__name__}: {error}"[:600])
        return
    mapping = run.stage_index_to_group_rank
    check([mapping[s] for s in range(stages)] ==
          [place(s) for s in range(stages)], f"{name}: stages to ranks")
    simulate = getattr(schedules, "_simulate_comms_compute", None)
    if simulate:
        # Of the lowered actions the simulation supports only sends and
        # receives, and the passes of pairs instead of the pairs.
        known = re.compile(r"\d+(F|I|W|B|(SEND|RECV)_[FB])\d+")
        orders = {rank: [a for action in actions
                         for a in getattr(action, "sub_actions", None)
                         or [action] if known.fullmatch(str(a))]
                  for rank, actions in run.pipeline_order_with_comms.items()}
        try:
            simulate(orders, lambda s: mapping[s], stages)
            check(True, name)
        except Exception as error:
            check(False, f"{name}: dry run: {error}"[:600])


def make(temp, name, devices, n, placement, chunks, method, more=()):
    pipeline, path = temp / "p.yaml", temp / f"{name}.csv"
    pipeline.write_text(
        "longhaul: pipeline/1\ntime_unit: ms\n"
        f"microbatches: {n}\ndevices: {devices}\nbackward: split\n"
        f"uniform: {{placement: {placement}, chunks_per_device: {chunks}, "
        "F: 38, D: 48, W: 20, memory: {F: 1, D: 0, W: -1}}\n"
        f"datacenters: {{count: {2 - devices % 2}, latency: 20, "
        "transfer: 3}\n")
    done = subprocess.run([PROGRAM, "schedule", pipeline, "-m", method, "-o",
                           path, *more], capture_output=True, text=True)
    check(done.returncode == 0, f"{name}: {done.stderr}")
    return path


PLACES = {"ud": lambda devices: lambda s: s,
          "loop": lambda devices: lambda s: s % devices,
          "wave": lambda devices: lambda s: min(s, 2 * devices - 1 - s)}
with tempfile.TemporaryDirectory(prefix="longhaul-torch-") as folder:
    temp = pathlib.Path(folder)
    for method, placement, chunks, more in (
            ("gpipe", "ud", 1, ()), ("1f1b", "ud", 1, ()),
            ("interleaved-1f1b", "loop", 2, ()),
            ("interleaved-1f1b", "loop", 3, ()), ("zb-h1", "ud", 1, ()),
            ("zb-h2", "ud", 1, ()), ("zb-v", "wave", 2, ()),
            ("slack", "ud", 1, ()), ("steady-slack", "ud", 1, ()),
            ("greedy", "ud", 1, ()), ("greedy", "loop", 2, ()),
            ("greedy", "wave", 2, ()), ("dualpipev", "wave", 2, ()),
            ("greedy", "ud", 1, ("--sub-blocks", "4", "--whole"))):
        for devices, n in ((2, 4), (4, 8), (8, 32)):
            name = f"{method}-{placement}{chunks}-{devices}x{n}"
            path = make(temp, name, devices, n, placement, chunks, method,
                        more)
            load(name, path, devices, devices * chunks, n,
                 PLACES[placement](devices))
    # The number of microbatches is not a multiple of the devices: groups are
    # PyTorch's own if it accepts the number.
    for devices, n in ((4, 10), (4, 6), (4, 3), (2, 7), (4, 8), (4, 11)):
        path = make(temp, "groups", devices, n, "loop", 2, "interleaved-1f1b",
                    ("--whole",))
        rows = path.read_text().splitlines()
        taken = n % max(1, n // devices) == 0
        for rank in range(devices):
            own = interleaved(devices, n, rank)
            check((own is not None) == taken, f"{n} on {devices} are taken")
            mine = re.findall(r"(\d+)([FB])(\d+)", rows[rank])
            check(own is None or own == mine,
                  f"{n} microbatches on {devices}, rank {rank}: {mine}, "
                  f"PyTorch has {own}")
    if hasattr(schedules, "ScheduleDualPipeV"):
        for devices, n in ((1, 2), (2, 5), (4, 10), (5, 12)):
            rows = make(temp, "dualpipev", devices, n, "wave", 2, "dualpipev"
                        ).read_text().splitlines()
            for rank in range(devices):
                check(rows[rank] == dualpipev(devices, n, rank),
                      f"dualpipev {devices}x{n}, rank {rank}")
    # PyTorch's validation rejects an invalid schedule, so it is effective.
    path = make(temp, "wrong", 4, 8, "ud", 1, "1f1b")
    path.write_text(path.read_text().replace("2F3,", "", 1))
    try:
        runtime(4, 4, 8)._load_csv(str(path), format="compute_only")
        check(False, "PyTorch took a schedule without 2F3")
    except Exception:
        check(True, "refused")

print(f"torch {torch.__version__}: {count[True]} passed, "
      f"{count[False]} failed")
sys.exit(1 if count[False] else 0)
