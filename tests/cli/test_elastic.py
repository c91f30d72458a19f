#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elastic plans of jobs: experts on several ranks, many chunks and microbatches,
the published planner."""
import json

from harness import ANY, ROOT, case, check, finish, json_case, read, test, write

JOB = """longhaul: job/1
model: {layers: %d, hidden: 1024, heads: 16, kv_heads: 16, vocab: 32000%s}
training: {global_batch: %d, sequence: 2048%s}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: %g, latency_us: 10}
  datacenters: [{name: a, nodes: 2}]
layout: {tensor: 1, context: 1, expert: %d, pipeline: 2, data: 8, micro_batch: 1%s}
"""
EXPERTS = ", experts: 8, experts_per_token: 2, expert_ffn: 2048"


def plan(name, *more, model=", ffn: 4096", batch=128, training="", gbps=400,
         expert=1, layout=", schedule: elastic", layers=24):
    write(f"{name}.yaml", JOB % (layers, model, batch, training, gbps, expert, layout))
    case(name, ["plan", f"{name}.yaml", "--no-optimal", "-o", f"{name}.json",
                *more], out=ANY)
    return json.loads(read(f"{name}.json"))


@test
def expert_shards_are_divided_among_their_ranks():
    """With ZeRO 3 for all chunks a device keeps an eighth of everything, for
    any distribution of experts over ranks. With one expert in eight it keeps
    all of the expert."""
    states = {}
    for expert in (1, 2, 4, 8):
        made = plan(f"ep{expert}", model=EXPERTS, training=", zero: 3",
                    expert=expert,
                    layout=", chunks_per_device: 3, schedule: elastic")
        check(made["elastic"]["parameters"] == 1, made["elastic"])
        states[expert] = [
            [row[key] for row in made["memory"]]
            for key in ("parameters_bytes", "gradients_bytes", "optimizer_bytes")]
        simulated = json_case(f"ep{expert} again", [
            "simulate", f"ep{expert}.json"])
        check(abs(simulated["iteration_s"] - made["iteration_s"]) < 1e-9,
              "the plan reads back")
    for expert, state in states.items():
        worst = max(abs(a / b - 1) for got, want in zip(state, states[1])
                    for a, b in zip(got, want))
        check(worst < 1e-3, f"expert {expert}: {state} beside {states[1]}")


@test
def devices_may_have_more_than_sixteen_chunks():
    case("many", ["plan", str(ROOT / "examples/llama3-70b-elastic.yaml"),
                  "--no-optimal", "-o", "many.json"], out=ANY)
    made = json.loads(read("many.json"))
    check(made["layout"]["chunks_per_device"] == 20, made["layout"])


@test
def many_microbatches_do_not_exclude_elastic_plans():
    made = plan("batch", batch=8 * 520, gbps=20, layout="", layers=4)
    check(any("elastic" in row for row in made["methods"]), made["layout"])


@test
def the_published_planner_makes_the_plan_and_ours_stands_beside_it():
    made = plan("published", "--elastic", "published", gbps=20)
    check(made["why"].startswith("plan of PipeMesh's planner: "), made["why"])
    rows = [row for row in made["methods"] if row["status"] == "ok"]
    ours = [row for row in rows if "against that planner's" in row["why"]]
    check(ours and rows[0]["iteration_s"] <= made["iteration_s"], rows[0])
    # The planner's rule: chunk sizes divide the layers of a stage, and a
    # forward pass hides a receive.
    chunks = made["layout"]["chunks_per_device"]
    check(12 % chunks == 0, chunks)
    links = made["pipeline"]["links"]
    hop = max(one["latency"] + one["transfer"] for one in links)
    check(all(hop <= chunk["F"] for chunk in made["pipeline"]["chunks"][1:-1]),
          hop)
    simulated = json_case("it is a plan", ["simulate", "published.json"])
    check(abs(simulated["iteration_s"] - made["iteration_s"]) < 1e-9, simulated)


@test
def features_that_the_published_planner_lacks_are_rejected():
    write("job.yaml", JOB % (24, ", ffn: 4096", 128, "", 400, 1, ""))
    for more in (["--jitter", "x.yaml"], ["--pareto"], ["--curves"],
                 ["--what-if", "latency=1"], ["--sensitivity"],
                 ["--search", "monte-carlo"]):
        case(more[0], ["plan", "job.yaml", "--elastic", "published", *more], 2,
             err=rf"{more[0]}[^\n]* cannot be combined with --elastic "
                 "published")
    write("alone.yaml", JOB.replace("data: 8", "data: 1") % (
        24, ", ffn: 4096", 128, "", 400, 1, ""))
    case("no replicas", ["plan", "alone.yaml", "--elastic", "published"], 1,
         err="the job has no feasible layout for PipeMesh's planner")


finish()
