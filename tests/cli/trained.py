# SPDX-License-Identifier: Apache-2.0
"""A small plan for training on the cpu device, over one transport after the other.
Switches, migrations and events must not change its result.
"""
import json
import shutil
import subprocess

from harness import HANGS, PROGRAM, UNDER_MPI, WORK, check, run, write

TEXT = "It was the best of times, it was the worst of times.\n"
TRAIN = ["train", "plan.json", "--device", "cpu", "--data", "text"]


def make_plan(job):
    """Writes plan.json for a job's text, and a training text."""
    write("job.yaml", job)
    done = run("plan", "job.yaml", "-o", "plan.json")
    check(done.returncode == 0, done.stderr)
    write("text", TEXT * 99)


def can_train(done):
    """Tests whether the device was available; if so, the run must succeed."""
    if "OpenBLAS" in done.stderr:
        print("SKIPPED training: OpenBLAS is not installed")
        return False
    return check(done.returncode == 0, done.stderr)


def over_transports(train, more, names=("inproc", "local", "tcp", "ucx")):
    """Yields the output of a run of four ranks for each transport; checkpoints
    are in a folder of that name."""
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4"]
    if not shutil.which("mpirun"):
        print("SKIPPED mpirun: it is not installed")
        names = [name for name in names if name in ("inproc", "local")]
    for name in names:
        way = launch if name in ("tcp", "ucx") else []
        done = subprocess.run(
            [*way, PROGRAM, *train, "--transport", name, "--checkpoint", name,
             *more, "--json"], cwd=WORK, env=UNDER_MPI, capture_output=True,
            text=True, timeout=HANGS, check=False)
        if name == "ucx" and "not built in" in done.stderr + done.stdout:
            print("SKIPPED ucx: it is not built in")
        elif check(done.returncode == 0, f"{name}: {done.stderr}"):
            yield name, json.loads(done.stdout)


def saved(name, steps, file="model.safetensors"):
    """Reads a file of a run's checkpoint."""
    return (WORK / name / f"step-{steps:08}" / file).read_bytes()
