#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Output of train on groups of ranks that compute together."""
from harness import check, finish, run, test, write
from input_files import TRAINED

EXPERTS = {"ffn: 48": "experts: 4, experts_per_token: 2, expert_ffn: 16"}


def plan(changes):
    """Plans two stages and two replicas, with these changes."""
    text = TRAINED % 2
    for old, new in changes.items():
        check(old in text, old)
        text = text.replace(old, new)
    write("job.yaml", text)
    done = run("plan", "job.yaml", "-o", "plan.json", "--no-optimal")
    check(done.returncode == 0, done.stderr)


def schedule_line(*more):
    done = run("train", "plan.json", "--steps", "1", *more)
    if "OpenBLAS" in done.stderr:
        return None
    check(done.returncode == 0, done.stderr)
    return next((" ".join(line.split()) for line in done.stdout.splitlines()
                 if line.startswith("schedule ")), done.stdout)


@test
def ranks_are_printed_by_shared_work():
    write("text", "It was the best of times, it was the worst of times.\n" * 99)
    cpu = ("--device", "cpu", "--data", "text")
    for changes, timed, trained in [
            ({}, "2 ranks: one of 2 replicas", "4 ranks: 2 stages x 2 replicas"),
            ({"tensor: 1": "tensor: 2"},
             "2 ranks: one copy of 2 replicas x context 1 x tensor 2",
             "8 ranks: 2 stages x 2 replicas x context 1 x tensor 2"),
            ({"context: 1": "context: 2"},
             "2 ranks: one copy of 2 replicas x context 2 x tensor 1",
             "8 ranks: 2 stages x 2 replicas x context 2 x tensor 1"),
            ({**EXPERTS, "expert: 1": "expert: 2"},
             "2 ranks: one of 2 replicas, expert 2",
             "4 ranks: 2 stages x 2 replicas, expert 2"),
            ({**EXPERTS, "tensor: 1": "tensor: 2", "expert: 1": "expert: 4"},
             "2 ranks: one copy of 2 replicas x context 1 x tensor 2, expert 4",
             "8 ranks: 2 stages x 2 replicas x context 1 x tensor 2, "
             "expert 4")]:
        plan(changes)
        said = schedule_line("--speed", "100")
        check(f" on {timed}, timed " in said, f"{changes}: {said}")
        said = schedule_line(*cpu)
        check(said is None or f" on {trained}, cpu " in said,
              f"{changes}: {said}")


@test
def experts_are_divided_as_planned():
    write("text", "It was the best of times, it was the worst of times.\n" * 99)
    shared = {**EXPERTS, "tensor: 1": "tensor: 2"}
    for then in ("expert: 2, expert_tensor: 2", "expert: 1, expert_tensor: 4",
                 "expert: 2, expert_tensor: 1", "expert: 1, expert_tensor: 1",
                 "expert: 1"):
        plan({**shared, "expert: 1": then})
        said = schedule_line("--device", "cpu", "--data", "text")
        check(said is None or "tensor 2" in said, said)


finish()
