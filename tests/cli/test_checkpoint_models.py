#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Values of a model that its checkpoints keep."""
import json
import shutil

from checkpointed import (LOCK, arguments, checkpoints, finish_if_trained,
                          prepare, train)
from harness import ANY, WORK, case, check, read, test, write


@test
def the_models_base_of_rotary_positions_is_trained_with_and_written():
    prepare()
    losses = set()
    job = json.loads(read("plan.json"))["job"]
    for base in 10000, 7:
        job["model"]["rope_theta"] = base
        write("job.yaml", json.dumps(job))
        case("plan", ["plan", "job.yaml", "-o", "plan.json"], out=ANY)
        shutil.rmtree(WORK / "run", ignore_errors=True)
        losses.add(train("train", 2, "--checkpoint-every", "2")[-1])
        step = [name for name in checkpoints() if name != LOCK][-1]
        config = json.loads(read(f"run/{step}/config.json"))
        check(config["rope_theta"] == base, str(config))
    check(len(losses) == 2, str(losses))


CONFIG = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
          "intermediate_size": 24, "rms_norm_eps": 1e-5}


def planned_with(**more):
    """Plans the job with the model in tiny/config.json."""
    job = json.loads(read("plan.json"))["job"]
    (WORK / "tiny").mkdir(exist_ok=True)
    write("tiny/config.json", json.dumps(CONFIG | more))
    job["model"] = "tiny/config.json"
    write("job.yaml", json.dumps(job))
    case("plan", ["plan", "job.yaml", "-o", "plan.json"], out=ANY)
    return json.loads(read("plan.json"))["job"]["model"]


@test
def the_models_epsilon_is_trained_with_written_and_resumed_with():
    prepare()
    losses = {}
    for epsilon in (1e-5, 1e-2):
        model = planned_with(rms_norm_eps=epsilon)
        check(model.get("norm_epsilon", 1e-5) == epsilon, str(model))
        check("uncomputed" not in model, str(model))
        shutil.rmtree(WORK / "run", ignore_errors=True)
        losses[epsilon] = train("train", 2, "--checkpoint-every", "2")
        step = [name for name in checkpoints() if name != LOCK][-1]
        config = json.loads(read(f"run/{step}/config.json"))
        check(config["rms_norm_eps"] == epsilon, str(config))
        whole = train("resumed", 3, "--resume", "run", "--override", "steps")
        check(len(whole) == 1, str(whole))
    check(losses[1e-5] != losses[1e-2], str(losses))
    planned_with()
    case("another epsilon", arguments(3, "--resume", "run"), 1,
         err=r"belongs to another model than this run's\n\Z")


@test
def models_that_the_device_lacks_are_planned_and_not_trained():
    prepare()
    scaling = {"rope_type": "linear", "factor": 4.0}
    model = planned_with(rope_scaling={"type": "dynamic"}, hidden_act="relu")
    check(model["uncomputed"] == "tiny/config.json: hidden_act, rope_scaling",
          str(model))
    case("refused", arguments(1), 1,
         err=r"\Alonghaul: tiny/config\.json: hidden_act, rope_scaling: the "
             r"cpu device does not support [^\n]*\n\Z")
    for more, what in (({"hidden_act": "gelu"}, "an activation function other"),
                       ({"rope_scaling": scaling}, "scaled rotary positions")):
        model = planned_with(**more)
        check("uncomputed" not in model, str(model))
        case(what, arguments(1), 1, err=rf"tiny has {what}[^\n]*, which is not "
                                        r"supported\n\Z")
    again = json.loads(read("plan.json"))["job"]
    write("job.yaml", json.dumps(again))
    case("again", ["plan", "job.yaml", "-o", "plan.json"], out=ANY)
    check(json.loads(read("plan.json"))["job"] == again, "as it was")
    check("uncomputed" not in planned_with(rope_scaling=None), "null")
    case("trained", arguments(1), out=ANY)


finish_if_trained()
