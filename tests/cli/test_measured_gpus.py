#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans by what GPUs were measured to take: data/profiles."""
import json

from harness import ROOT, case, check, finish, json_case, test, write

H200 = ROOT / "data/profiles/h200.json"


def job(model, tensor, sequence=4096, micro_batch=1, pipeline=4):
    return write(f"{model}.yaml", f"""\
        longhaul: job/1
        model: {model}
        profile: {H200}
        training: {{global_batch: 64, sequence: {sequence}}}
        cluster:
          gpu: h200
          gpus_per_node: 8
          node_link: {{gbps: 3600, latency_us: 3}}
          fabric: {{gbps: 400, latency_us: 8}}
          datacenters: [{{name: west, nodes: 4}}, {{name: east, nodes: 4}}]
          links: [{{between: [west, east], latency_ms: 20, gbps: 400}}]
        layout: {{tensor: {tensor}, context: 1, micro_batch: {micro_batch},
          pipeline: {pipeline}, chunks_per_device: 1}}
        """)


def entry(kind, model, **conditions):
    found = [e for e in json.loads(H200.read_text())["entries"]
             if e["kind"] == kind and e["model"] == model and
             all(e.get(key, 1) == value for key, value in conditions.items())]
    check(len(found) == 1, f"{kind} of {model}, {conditions}: {len(found)}")
    return found[0]


@test
def plans_take_what_was_measured():
    for model, tensor, layers in (("llama3-8b", 1, 32), ("llama3-70b", 4, 80),
                                  ("qwen2.5-72b", 8, 80)):
        plan = json_case(model, ["plan", job(model, tensor), "--effort", "100",
                                 "-o", "plan.json"])
        check(plan["cost_source"] == "profile", f"{model}: {plan['cost_source']}")
        layer = entry("layer", model, tensor=tensor, sequence=4096,
                      micro_batch=1)
        took = sum(layer[key] for key in ("F_us", "D_us", "W_us")) * 1e-6
        # All layers of all microbatches, on four ranks, without a bubble.
        check(plan["iteration_s"] > took * layers / 4 * plan["microbatches"],
              f"{model}: {plan['iteration_s']} s, a layer {took} s")


@test
def other_models_are_refused():
    case("mine", ["plan", job("qwen2.5-32b", 4)], code=1,
         err=r"profile: has entries of llama3-8b, llama3-70b, qwen2\.5-72b, "
             r"llama3-405b, mixtral-8x7b, deepseek-v3, and the job's model is "
             r"qwen2\.5-32b")


@test
def what_was_measured_can_be():
    entries = json.loads(H200.read_text())["entries"]
    for e in entries:
        check(e["F_us"] > 0 and e["W_us"] > 0 and
              (e["D_us"] > 0) == (e["kind"] != "embedding") and
              (e["activation_bytes"] > 0) == (e["kind"] != "embedding"),
              f"{e}")
    for e in entries:  # twice the microbatch keeps twice the bytes
        for other in entries if e["kind"] == "layer" else ():
            if all(e.get(key, 1) * times == other.get(key, 1)
                   for key, times in (("kind", 1), ("model", 1), ("tensor", 1),
                                      ("sequence", 1), ("micro_batch", 2))):
                ratio = other["activation_bytes"] / e["activation_bytes"]
                check(abs(ratio - 2) < 0.01, f"{ratio}: {e}")


finish()
