# SPDX-License-Identifier: Apache-2.0
"""Runs of eight ranks that lose some and restart, beside an undisturbed run."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess

from harness import (
    ANY,
    ENVIRONMENT,
    HANGS,
    PROGRAM,
    ROOT,
    WORK,
    case,
    check,
    children,
    json_case,
    makes,
    read,
    until,
    write,
)

STEPS = 90
RANKS = 8
TRAIN = ["train", "plan.json", "--device", "cpu", "--data", "text", "--rate",
         "1e-2", "--steps", str(STEPS), "--checkpoint-every", "5"]


@makes("job.yaml", "plan.json", "text")
def make_plan():
    """A plan for two replicas of four stages."""
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    for old, new in [("hidden: 128, ffn: 384", "hidden: 16, ffn: 24"),
                     ("head_dim: 32", "head_dim: 4"),
                     ("sequence: 128", "sequence: 8"),
                     ("gpus_per_node: 4", "gpus_per_node: 8"),
                     ("data: 1", "data: 2")]:
        check(old in job, old)
        job = job.replace(old, new)
    write("job.yaml", job)
    case("plan", ["plan", "job.yaml", "-o", "plan.json"], out=ANY)
    write("text", "It was the best of times, it was the worst of times.\n" * 90)


@makes("job.yaml", "plan.json", "text", "two.yaml", "two.json")
def make_four_replicas():
    """A plan for four replicas of two stages."""
    make_plan()
    write("two.yaml", read("job.yaml").replace("pipeline: 4, data: 2",
                                               "pipeline: 2, data: 4"))
    case("plan", ["plan", "two.yaml", "-o", "two.json"], out=ANY)


@makes("job.yaml", "plan.json", "text", "calm.json", "weights")
def prepare():
    """The plan and its undisturbed run."""
    make_plan()
    calm = json_case("undisturbed", [*TRAIN, "--checkpoint", "calm"])
    write("calm.json", json.dumps(losses(calm)))
    shutil.copy(weights("calm"), WORK / "weights")


def losses(result):
    return [one["loss"] for one in result.get("iterations", [])]


def weights(folder):
    return WORK / folder / f"step-{STEPS:08}" / "model.safetensors"


def is_stopped(pid):
    with contextlib.suppress(OSError):
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"
    return False


def begin(*more, env=None, under=(), form=("--json",), plan="plan.json"):
    return subprocess.Popen(
        [*under, PROGRAM, TRAIN[0], plan, *TRAIN[2:], "--checkpoint", "run",
         *form, *more],
        cwd=WORK, env={**ENVIRONMENT, **(env or {})}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)


def has_saved():
    return any((WORK / "run").glob("step-*"))


def ranks_after_checkpoint(process):
    """Processes of all ranks after the first checkpoint; empty if one has
    ended."""
    pids = children(process.pid) if until(has_saved, process) else []
    return pids if len(pids) >= RANKS else []


def send(number, pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def check_same(found, name, repeats=0):
    """Checks a disturbed run's results, and that it repeated at most `repeats`
    iterations at each restart."""
    check(losses(found) == json.loads(read("calm.json")), f"{name}: losses")
    check(all(one["repeated"] <= repeats for one in found["restarts"]),
          f"{name}: {found['restarts']}")
    check(weights("run").read_bytes() == (WORK / "weights").read_bytes(),
          f"{name}: weights")


def disturbed(number, victim, *more):
    """Signals a rank of a local run after its first checkpoint; again if the run
    has ended before. Returns its result and standard error."""
    for _ in range(5):
        shutil.rmtree(WORK / "run", ignore_errors=True)
        process = begin("--ranks", "local", "--max-restarts", "3", *more)
        ranks = ranks_after_checkpoint(process)
        send(number, ranks[victim:victim + 1])
        out, err = process.communicate(timeout=HANGS)
        found = json.loads(out) if process.returncode == 0 else {}
        if not check(process.returncode == 0, f"{victim}: {err}"):
            break
        if found["restarts"]:
            return found, err
    return {"restarts": []}, ""


def write_kills(steps, more=""):
    """Writes events that kill each rank in its step."""
    write("events.yaml", "longhaul: events/1\nevents:\n" + "".join(
        f"  - {{at: {step}, rank: {rank}, process: killed}}\n"
        for rank, step in steps.items()) + more)
