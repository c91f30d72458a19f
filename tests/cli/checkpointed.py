# SPDX-License-Identifier: Apache-2.0
"""A tiny job whose runs write checkpoints, and what tests do to them."""
import json
import os
import re
import subprocess

from harness import (ANY, ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, case, check,
                     finish, json_case, makes, run, until, write)

LOCK = ".longhaul-lock"


@makes("job.yaml", "plan.json", "text")
def prepare():
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    for old, new in [("hidden: 128, ffn: 384", "hidden: 16, ffn: 24"),
                     ("head_dim: 32", "head_dim: 4"),
                     ("sequence: 128", "sequence: 8")]:
        job = job.replace(old, new)
    write("job.yaml", job)
    case("plan", ["plan", "job.yaml", "-o", "plan.json"], out=ANY)
    write("text", "It was the best of times, it was the worst of times.\n" * 90)


def arguments(steps, *more):
    return ["train", "plan.json", "--device", "cpu", "--data", "text",
            "--rate", "1e-2", "--steps", str(steps), *more]


def train(name, steps, *more, code=0, err=None):
    """Runs training with checkpoints in `run`; returns its iterations."""
    found = json_case(name, arguments(steps, "--checkpoint", "run", *more),
                      code, err)
    return [one["loss"] for one in found.get("iterations", [])]


def checksum(data):
    """The checksum of docs/formats/checkpoint.md."""
    mask = 2**64 - 1
    h = 0x9e3779b97f4a7c15 ^ len(data)
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at:at + 8], "little")
        h = (h ^ word) * 0xff51afd7ed558ccd & mask
        h ^= h >> 32
    return (h * 0xc4ceb9fe1a85ec53 & mask) >> 12


def sealed(state):
    """Returns the text of a changed state.json with its checksum."""
    def text(value):
        if isinstance(value, dict):
            return "{" + ",".join(f'"{key}":{text(value[key])}'
                                  for key in sorted(value)) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(text, value)) + "]"
        if isinstance(value, float):  # as jansson prints it
            digits = re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.17g}")
            return digits if set(digits) & set(".e") else digits + ".0"
        return json.dumps(value)
    state.pop("check")
    state["check"] = checksum(text(state).encode())
    return json.dumps(state)


def checkpoints():
    return sorted(os.listdir(WORK / "run"))


def begin(*more, steps=10000000):
    """Starts a run of unlimited length; returns after its first checkpoint."""
    log = WORK / "begun.jsonl"
    log.unlink(missing_ok=True)
    process = subprocess.Popen(
        [PROGRAM, *arguments(steps, "--checkpoint", "run", "--log",
                             "begun.jsonl", *more)], cwd=WORK,
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True)
    check(until(lambda: log.exists() and log.read_text().count("\n") > 2,
                process), "it has begun")
    return process


def end(process, number):
    os.killpg(process.pid, number)
    return process.communicate(timeout=HANGS)


def damage(path, at=-20):
    text = bytearray((WORK / path).read_bytes())
    text[at] ^= 16
    (WORK / path).write_bytes(text)


def finish_if_trained():
    """Runs the tests unless OpenBLAS is missing."""
    prepare()
    probe = run(*arguments(1))
    if "OpenBLAS" in probe.stderr:
        print("SKIPPED: OpenBLAS is not installed; checkpoints are not tested")
    else:
        finish()
