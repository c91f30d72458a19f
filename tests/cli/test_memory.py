#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs with little memory, and inputs that need much."""
import json
import re
import resource
import shutil
import subprocess

from harness import (ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, check, finish,
                     has_few_cases, is_sanitized, makes, run, test, write)
from input_files import TRAINED

# Processor seconds; a run takes one. Without a limit, a livelock would not end.
LIVELOCKS = 60
MIB = 1 << 20


SANITIZED = is_sanitized()


# --- a training run with little memory ----------------------------------------
@makes("plan.json", "text", "whole")
def make_plan():
    write("text", "the quick brown fox jumps over the lazy dog. " * 80)
    done = run("plan", ROOT / "examples/tiny-llama-cpu.yaml", "-o", "plan.json")
    check(done.returncode == 0, f"plan: {done.stderr}")
    done = train()
    check(done.returncode == 0, f"train: {done.stderr}")
    shutil.copy(last_weights(), WORK / "whole")


def last_weights():
    return WORK / "c/step-00000002/model.safetensors"


def train(transport="inproc", kind=None, limit=None, more=()):
    """Runs two steps with a checkpoint; returns None if the run hangs."""
    shutil.rmtree(WORK / "c", ignore_errors=True)

    def limited():
        resource.setrlimit(resource.RLIMIT_CPU, (LIVELOCKS, LIVELOCKS))
        if kind:
            resource.setrlimit(kind, (limit, limit))
    try:
        return subprocess.run(
            [PROGRAM, "train", "plan.json", "--device", "cpu", "--transport",
             transport, "--data", "text", "--steps", "2", "--checkpoint", "c",
             *more],
            cwd=WORK, env=ENVIRONMENT, text=True, capture_output=True,
            check=False, timeout=HANGS, preexec_fn=limited)
    except subprocess.TimeoutExpired:
        return None


def ends_well(what, transport, kind, limit):
    """Checks the result: the reference's bytes, or one error. Returns which of
    both."""
    done = train(transport, kind, limit)
    what = f"{what} of {limit // MIB} MiB over {transport}"
    if not check(done is not None, f"{what}: hangs"):
        return None
    if done.returncode == 0:
        same = last_weights().read_bytes() == (WORK / "whole").read_bytes()
        check(same, f"{what}: other weights")
        return True
    lines = done.stderr.splitlines()
    # Before main() the dynamic loader itself may run out of memory.
    reason = (done.returncode == 1 and len(lines) == 1 and
              lines[0].startswith("longhaul: ")) or (
                  done.returncode == 127 and
                  "error while loading shared libraries" in done.stderr)
    check(reason, f"{what}: status {done.returncode}, {done.stderr!r}")
    return False


def has_openblas():
    done = train()
    if done.returncode and "OpenBLAS" in done.stderr:
        print(f"SKIPPED: {done.stderr.strip()}")
        return False
    return True


def sweep(kind, what, transport, limits):
    if SANITIZED:
        print("SKIPPED: sanitizers need more address space than the limits")
        return
    write("text", "the quick brown fox jumps over the lazy dog. " * 80)
    run("plan", ROOT / "examples/tiny-llama-cpu.yaml", "-o", "plan.json")
    if not has_openblas():
        return
    make_plan()
    ends = [ends_well(what, transport, kind, limit * MIB) for limit in limits]
    check(ends[0] is False and ends[-1] is True,
          f"{what}: the least limit is too little, the largest enough: {ends}")


@test
def a_limit_on_address_space_ends_ranks_that_are_threads_with_a_reason():
    sweep(resource.RLIMIT_AS, "address space", "inproc",
          [20, 40, 60, 100, 200, 300, 400, 500, 570,
           *range(590, 740, 16 if has_few_cases() else 8), 1000, 2000])


@test
def a_limit_on_address_space_ends_ranks_that_are_processes_with_a_reason():
    sweep(resource.RLIMIT_AS, "address space", "local",
          [20, 40, 60, 100, 140, *range(148, 226, 6), 300, 1000])


@test
def a_limit_on_data_ends_a_run_with_a_reason():
    sweep(resource.RLIMIT_DATA, "data", "inproc",
          [2, 20, 100, 300, 500, 560, 580, 600, 650, 700, 1000])


@test
def excessive_memory_is_rejected_before_the_start_with_the_amount():
    if SANITIZED:
        return
    write("text", "the quick brown fox jumps over the lazy dog. " * 80)
    run("plan", ROOT / "examples/tiny-llama-cpu.yaml", "-o", "plan.json")
    done = train("inproc", resource.RLIMIT_AS, 300 * MIB)
    for part in ("training needs ", " MiB of memory in a process",
                 "optimizer ", "activations ", "OpenBLAS and stacks ",
                 "ulimit -v", "smaller microbatches"):
        check(part in done.stderr, f"without '{part}': {done.stderr}")
    check(not (WORK / "c").exists(), "the run had begun")
    # Two checkpoints in memory of 12 bytes for a parameter that takes 16.
    plain, restarts = (
        float(re.search(r"optimizer ([\d.]+) MiB", done.stderr)[1]) for done in (
            train("inproc", resource.RLIMIT_AS, 300 * MIB, more)
            for more in ([], ["--max-restarts", "1"])))
    check(2.3 < restarts / plain < 2.6, f"{plain} and {restarts} MiB")


@test
def ranks_use_the_predicted_memory_within_their_limit():
    write("text", "the quick brown fox jumps over the lazy dog. " * 80)
    run("plan", ROOT / "examples/tiny-llama-cpu.yaml", "-o", "plan.json")
    if not has_openblas():
        return
    how = ("--device", "cpu", "--data", "text", "--steps", "2")
    done = run("train", "plan.json", *how, "--memory", "report")
    for part in ("memory ", "predicted ", "activations", "GPU"):
        check(part in done.stdout, f"without '{part}': {done.stdout}")
    printed = [line.split()[3] for line in done.stdout.splitlines()
               if re.fullmatch(r" +[0-3]( +[0-9.]+){4}", line)]
    done = run("train", "plan.json", *how, "--json")
    rows = json.loads(done.stdout)["memory"]
    check([row["rank"] for row in rows] == [0, 1, 2, 3], f"ranks of {rows}")
    for row in rows:
        kinds = row["by_kind"], row["predicted_by_kind"]
        check(sum(kinds[0].values()) == row["measured_bytes"] and
              sum(kinds[1].values()) == row["predicted_bytes"] and
              row["limit_bytes"] > row["measured_bytes"], f"memory: {row}")
        off = [sum(bytes for kind, bytes in one.items() if kind != "buffers")
               for one in kinds]
        check(abs(off[0] / off[1] - 1) < .03, f"held, predicted: {off}")
        check(abs(row["planned_bytes"] / row["predicted_bytes"] - 1) < .2,
              f"the plan's: {row}")
    planned = [f"{row['planned_bytes'] / MIB:.2f}" for row in rows]
    check(printed == planned, f"planned: {printed}, not {planned}")
    plan = json.loads((WORK / "plan.json").read_text())
    plan["pipeline"]["memory_limit"] = [rows[1]["predicted_bytes"]] * 4
    write("low.json", json.dumps(plan))
    done = run("train", "low.json", *how, "--memory", "report")
    check(done.returncode == 0, f"report: {done.stderr}")
    done = run("train", "low.json", *how, "--memory", "enforce")
    check(done.returncode == 1 and "would use" in done.stderr and
          len(done.stderr.splitlines()) == 1, f"enforce: {done.stderr}")


@test
def memory_beyond_the_plan_is_reported():
    write("text", "the quick brown fox jumps over the lazy dog. " * 80)
    if not has_openblas():
        return
    alone = TRAINED % 2
    kept, come = "gather and keep for W", "all rows that a rank's experts"
    for name, text, says in [
            ("alone", alone, (False, False)),
            ("tensor", alone.replace("tensor: 1", "tensor: 2"), (True, False)),
            ("expert", alone.replace("expert: 1", "expert: 2").replace(
                "ffn: 48", "experts: 4, experts_per_token: 2, expert_ffn: 16"),
             (False, True))]:
        write("job.yaml", text)
        run("plan", "job.yaml", "-o", "held.json", "--no-optimal")
        done = run("train", "held.json", "--device", "cpu", "--data", "text",
                   "--steps", "1", "--memory", "report")
        note = " ".join(done.stdout.split())
        check((kept in note, come in note) == says,
              f"{name}: {done.stdout} {done.stderr}")


@test
def an_openblas_load_error_is_not_reported_as_absence():
    """A profile runs in one process, without a prior estimate of its memory."""
    if SANITIZED:
        return
    done = subprocess.run(
        [PROGRAM, "profile", ROOT / "examples/tiny-llama-cpu.yaml"], cwd=WORK,
        env=ENVIRONMENT, text=True, capture_output=True, check=False,
        timeout=HANGS, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_AS, (40 * MIB, 40 * MIB)))
    if "not installed" in done.stderr and run(
            "profile", ROOT / "examples/tiny-llama-cpu.yaml", "-o",
            "p.yaml").returncode:
        print("SKIPPED: OpenBLAS is not installed")
        return
    check(done.returncode == 1 and "cannot be loaded: " in done.stderr and
          "ulimit -v" in done.stderr, f"profile: {done.stderr}")


finish()
