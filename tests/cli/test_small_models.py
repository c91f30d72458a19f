#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples that one machine can train: each plan agrees with its comment for any
planner result. Training reduces the loss; the output compares prediction and
measurement.
"""
import json
import re
import shlex

from harness import ROOT, WORK, check, finish, has_few_cases, run, test

EXAMPLES = sorted((ROOT / "examples").glob("tiny-*-cpu.yaml"))
FEW = 7  # steps; the comments use more


def commands(text):
    """Returns the commands of an example's comment, by name."""
    lines = re.findall(r"^#   longhaul (\w+ .*)$", text, re.M)
    return {line.split()[0]: shlex.split(line) for line in lines}


def trained(example):
    """Runs both commands; returns the output of the second."""
    said = commands(example.read_text())
    check(set(said) == {"plan", "train"}, f"{example.name}: {said}")
    said["plan"][1] = str(ROOT / said["plan"][1])
    check(said["plan"][1] == str(example), f"{said['plan']} is this example")
    run(*said["plan"])
    words = said["train"]
    words[words.index("--data") + 1] = str(ROOT / "README.md")
    words[words.index("--steps") + 1] = str(FEW)
    return run(*words, "--memory", "report", "--json")


def is_lacking(done):
    return "OpenBLAS" in done.stderr


@test
def every_small_example_is_planned_and_trained():
    check(len(EXAMPLES) >= 4, f"{len(EXAMPLES)} examples")
    for example in EXAMPLES[::2] if has_few_cases() else EXAMPLES:
        done = trained(example)
        if is_lacking(done):
            return
        check(done.returncode == 0, f"{example.name}: {done.stderr}")
        result = json.loads(done.stdout)
        losses = [step["loss"] for step in result["iterations"]]
        check(len(losses) == FEW and losses[-1] < losses[0] - 0.3,
              f"{example.name}: losses {losses}")
        check(result["predicted_s"] > 0 and result["median_s"] > 0,
              f"{example.name}: {result.keys()}")
        for rank in result["memory"]:
            share = rank["measured_bytes"] / rank["predicted_bytes"]
            check(abs(share - 1) < 0.1 and rank["planned_bytes"] > 0,
                  f"{example.name}: {rank}")


@test
def experts_are_placed_as_the_job_requests():
    done = trained(ROOT / "examples/tiny-mixtral-cpu.yaml")
    if is_lacking(done):
        return
    result = json.loads(done.stdout)
    check(result["expert"] == 2 and result["replicas"] == 2,
          f"degrees: {result['expert']}, {result['replicas']}")
    took = result["exchanges_s"]
    check(took["expert"] > 0 and took["planned"] > 0 and took["tensor"] == 0,
          f"exchanges: {took}")
    text = run("train", "plan.json", "--device", "cpu", "--data",
               str(ROOT / "README.md"), "--steps", "2").stdout
    check(re.search(r"exchanges +per rank .*: expert\s+\S+ \S+; planned",
                    text, re.S), text)


@test
def plans_with_many_experts_are_trained():
    """The experts exceed the memory of two nodes, so they are on several ranks,
    of both sites' replicas."""
    job = (ROOT / "examples/tiny-moe-two-sites-cpu.yaml").read_text()
    for old, new in (("zero: 1, recompute: none, ", ""),
                     ("  experts: 8", "  experts: 32"),
                     ("  expert_ffn: 96", "  expert_ffn: 384"),
                     ("memory_gib: 4", "memory_gib: 0.05")):
        check(old in job, f"{old} is in the example")
        job = job.replace(old, new)
    job = job.replace("shared_expert_ffn: 96", "shared_expert_ffn: 384")
    (WORK / "many.yaml").write_text(job + "layout: {pipeline: 2}\n")
    run("plan", "many.yaml", "-o", "many.json")
    layout = json.loads((WORK / "many.json").read_text())["layout"]
    check(layout["expert"] > 1 and layout["pipeline"] == 2, str(layout))
    done = run("train", "many.json", "--device", "cpu", "--data",
               str(ROOT / "README.md"), "--steps", "3", "--rate", "3e-3",
               "--json")
    if is_lacking(done):
        return
    check(done.returncode == 0, done.stderr)
    result = json.loads(done.stdout)
    check(result["expert"] == layout["expert"] and len(result["memory"]) == 4 and
          result["iterations"][-1]["loss"] < result["iterations"][0]["loss"],
          f"{result['expert']}: {result['iterations']}")


@test
def experts_on_several_ranks_go_with_other_plans_too():
    """Tests full sharding, and node-aware dispatch with two ranks of a
    stage."""
    job = (ROOT / "examples/tiny-mixtral-cpu.yaml").read_text()
    losses = []
    for changes in ((), (("zero: 1", "zero: 3"),),
                    (("training: {", "training: {dispatcher: deepep, "),
                     ("gpus_per_node: 4", "gpus_per_node: 1"),
                     ("nodes: 1", "nodes: 4"))):
        for old, new in changes:
            check(old in job, f"{old} is in the example")
            job = job.replace(old, new)
        (WORK / "job.yaml").write_text(job)
        run("plan", "job.yaml", "-o", "plan.json", "--no-optimal")
        done = run("train", "plan.json", "--device", "cpu", "--steps", "2",
                   "--json", "--data", str(ROOT / "README.md"))
        if is_lacking(done):
            return
        check(done.returncode == 0, f"{changes}: {done.stderr}")
        losses.append([i["loss"]
                       for i in json.loads(done.stdout)["iterations"]])
    check(all(abs(a - b) < 1e-6 for one in losses
              for a, b in zip(one, losses[0])), f"{losses}")


@test
def other_schedules_train_the_same():
    """Tests two directions and slices of sequences."""
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    sliced = job.replace("chunks_per_device: 1", "chunks_per_device: 1, slices: 4")
    check(sliced != job, "the example has one chunk per device")
    losses = []
    for name, text in (("whole", job), ("sliced", sliced)):
        (WORK / f"{name}.yaml").write_text(text)
        run("plan", f"{name}.yaml", "-o", f"{name}.json", "--no-optimal")
    for name, method in (("whole", "1f1b"), ("whole", "chimera"),
                         ("sliced", "seq1f1b")):
        done = run("train", f"{name}.json", "-s", method, "--steps", "2",
                   "--device", "cpu", "--data", str(ROOT / "README.md"),
                   "--json")
        if is_lacking(done):
            return
        check(done.returncode == 0, f"{method}: {done.stderr}")
        result = json.loads(done.stdout)
        losses.append([i["loss"] for i in result["iterations"]])
        planned = result["memory"][0]["planned_bytes"]
        check((planned is None) == (method == "chimera"), f"{method}: {planned}")
    check(all(abs(a / b - 1) < 1e-6 for one in losses
              for a, b in zip(one, losses[0])), f"{losses}")
    done = run("train", "sliced.json", "-s", "chimera")
    check(done.returncode != 0 and "it needs no slices" in done.stderr,
          done.stderr)
    done = run("train", "whole.json", "-s", "chimera", "--steps", "2",
               "--layers-at", "1=1,1,1,1,1,1,1,1")
    check(done.returncode != 0 and "two directions" in done.stderr, done.stderr)


finish()
