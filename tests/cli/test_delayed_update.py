#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--delayed-update: steps that use the gradients of the step before."""
from harness import (ANY, ROOT, WORK, case, check, finish, json_case, makes,
                     test, write)

RATE = ("--rate", "1e-2", "--min-rate", "1e-2", "--warmup", "0")


@makes("plan.json", "text")
def prepare():
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    for old, new in [("hidden: 128, ffn: 384", "hidden: 16, ffn: 24"),
                     ("head_dim: 32", "head_dim: 4"),
                     ("sequence: 128", "sequence: 8"),
                     ("pipeline: 4, data: 1", "pipeline: 2, data: 2")]:
        job = job.replace(old, new)
    write("job.yaml", job)
    case("plan", ["plan", "job.yaml", "-o", "plan.json", "--no-optimal"],
         out=ANY)
    write("text", "It was the best of times, it was the worst of times.\n" * 90)


def losses(folder, steps, *more):
    """Returns the losses of a run with checkpoints in `folder`."""
    said = json_case(folder, [
        "train", "plan.json", "--device", "cpu", "--data", "text", "--steps",
        str(steps), *RATE, "--checkpoint", folder, *more])
    return [one["loss"] for one in said["iterations"]]


def files(folder, step, *names):
    return [(WORK / folder / f"step-{step:08}" / name).read_bytes()
            for name in names or ("model.safetensors", "optimizer.safetensors")]


@test
def a_step_uses_the_gradients_of_the_step_before():
    """The first step updates nothing. With a constant rate the second step
    equals the first step of a run without delay."""
    prepare()
    plain = losses("plain", 1, "--checkpoint-every", "1")
    late = losses("late", 3, "--delayed-update", "--checkpoint-every", "1",
                  "--keep", "3")
    check(late[0] == plain[0], (late, plain))
    check(files("late", 2, "model.safetensors") ==
          files("plain", 1, "model.safetensors"), "g of step 0, at step 1")
    check(files("late", 1, "model.safetensors") !=
          files("late", 2, "model.safetensors"), "the first updates nothing")
    still = losses("still", 1, "--rate", "0", "--min-rate", "0",
                   "--weight-decay", "0")
    check(still == plain and files("still", 1, "model.safetensors") ==
          files("late", 1, "model.safetensors"), "nor does a weight decay")


@test
def the_same_bytes_come_out_however_it_is_run():
    prepare()
    losses("one", 6, "--delayed-update")
    want = files("one", 6)
    for name, more in (("gpipe", ("--schedule", "gpipe")),
                       ("local", ("--transport", "local")),
                       ("moved", ("--layers-at", "3=1,3"))):
        losses(name, 6, "--delayed-update", *more)
        check(files(name, 6) == want, name)


@test
def a_resumed_run_equals_an_uninterrupted_run():
    prepare()
    all_of_it = losses("all", 6, "--delayed-update", "--checkpoint-every", "3")
    rest = losses("rest", 6, "--delayed-update", "--resume",
                  "all/step-00000003")
    check(rest == all_of_it[3:], (rest, all_of_it))
    check(files("rest", 6) == files("all", 6), "weights, moments, gradients")


@test
def a_checkpoint_of_the_other_kind_is_refused():
    prepare()
    train = ["train", "plan.json", "--device", "cpu", "--data", "text",
             *RATE, "--steps", "4", "--resume"]
    losses("late", 2, "--delayed-update")
    losses("plain", 2)
    case("late ones", [*train, "late"], 1,
         err=r"late/step-00000002/state.json: data.delayed_update: [^\n]* has "
             r"true, this run false: give --delayed-update\n")
    case("others", [*train, "plain", "--delayed-update"], 1,
         err=r"plain/step-00000002/state.json: data.delayed_update: [^\n]* has "
             r"false, this run true: omit --delayed-update\n")
    case("no device that trains", ["train", "plan.json", "--delayed-update"], 2,
         err="--delayed-update requires --device cpu")


finish()
