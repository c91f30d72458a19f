#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What other programs are told of plans and schedules."""
import json
import re

from harness import (ANY, ROOT, WORK, case, check, finish, makes, read, run,
                     test, write)
from made import SITES, loaded, pipeline, plan

ELASTIC = str(ROOT / "examples/llama3-70b-elastic.yaml")


@makes("elastic.json")
def elastic():
    case("an elastic plan", ["plan", ELASTIC, "-o", "elastic.json",
                             "--show", "schedules"],
         out=r"schedule +elastic, .*zero-bubble", err=ANY)


# --- export ----------------------------------------------------------------------
@test
def pytorch_gets_whole_passes():
    plan()
    case("PyTorch", ["export", "plan.json", "--to", "pytorch", "-o", "x.csv"],
         out=r"written +x\.csv", err=ANY)
    check(":" not in read("x.csv"), "no parts for PyTorch")


@test
def pytorch_gets_sends():
    pipeline()
    case("with sends", ["export", "p.yaml", "-s", "1f1b", "--form",
                        "compute_comms"],
         out=r"\A0UNSHARD,0F0,.*0SEND_F0,.*0WAIT_REDUCE_GRAD\n")


@test
def megatron_has_no_waves():
    plan()
    case("a wave", ["export", "plan.json", "--to", "megatron"], 1,
         err=r"Megatron-LM puts stage k on rank k mod pipeline.* as a wave; "
             r"plan with")


@test
def torchtitan_gets_stages():
    plan()
    case("torchtitan", ["export", "plan.json", "--to", "torchtitan",
                        "--stages", "stages.json"],
         out=r"--parallelism.tensor_parallel_degree \d+\n.*"
             r"--parallelism.pipeline_parallel_schedule ZBVZeroBubble\n.*"
             r"--training.num_tokens_per_train_step 4194304\n")
    stages = loaded("stages.json")
    check(sum(stages["module_fqns_per_model_part"], []) ==
          ["tok_embeddings", *(f"layers.{i}" for i in range(80)), "norm",
           "lm_head"], "stages hold the model in order")
    there = list(range(loaded("plan.json")["layout"]["pipeline"]))
    check(stages["stage_ranks"] == there + there[::-1],
          f"stages lie on a V: {stages['stage_ranks']}")


@test
def a_pipeline_has_no_stages():
    pipeline()
    case("stages", ["export", "p.yaml", "--stages", "x.json"], 1,
         err=r"p\.yaml: which layers a stage has.*give a plan")


@test
def megatron_gets_its_arguments():
    write("mega.yaml", SITES + "\nlayout: {schedule: interleaved-1f1b, "
                               "pipeline: 4, tensor: 8}\n")
    case("a plan", ["plan", "mega.yaml", "-o", "mega.json"], out=ANY, err=ANY)
    case("Megatron-LM", ["export", "mega.json", "--to", "megatron"],
         out=r"--tensor-model-parallel-size \d+\n.*"
             r"--pipeline-model-parallel-layout Et\*\d+[^\n]*L\n.*"
             r"--num-layers 80\n")


@test
def a_plan_with_sites_says_where_ranks_are():
    """Where the job fixes which datacenter has what."""
    (WORK / "sited.yaml").write_text(SITES + """
layout:
  schedule: interleaved-1f1b
  tensor: 8
  sites:
    - replicas: 8
      pipeline: [{datacenter: east, stages: 2}, {datacenter: west, stages: 2}]
""")
    case("a plan with sites", ["plan", "sited.yaml", "-o", "sited.json",
                               "--html", "sited.html"],
         out=r"datacenters +pipeline east>west \(2, 2 stages\)\n", err=ANY)
    check("pipeline east>west (2, 2 stages)" in
          read("sited.html").replace("&gt;", ">").replace("\\u003e", ">"),
          "the report says where stages are")
    case("where ranks are", ["export", "sited.json", "--to", "megatron"],
         out=r"# Ranks 0 to 127: east\n# Ranks 128 to 255: west\n")


# --- PipeMesh's plans: what Megatron-LM has arguments for becomes these ----------
@test
def elastic_groups_become_megatrons():
    elastic()
    text = run("export", "elastic.json", "--to", "megatron").stdout
    groups = loaded("elastic.json")["elastic"]
    size = int(re.search(
        r"--microbatch-group-size-per-virtual-pipeline-stage (\d+)", text)[1])
    check(4 <= size <= groups["enqueue"][0] and
          (64 % size == 0 or 64 % size >= 4),
          f"a group that Megatron-LM takes: {size}")
    said = "of which the plan has no prediction" if groups["recomputed"] \
        else r": \d+\.\d+ s"
    check(re.search(rf"takes {size} microbatches together.*{said}", text),
          f"what these groups take: {text}")
    check((groups["gradients"] > 0) ==
          ("sharded beyond ZeRO-1" in text),
          f"sharding that is not expressed: {text}")


@test
def recomputed_operations_become_megatrons():
    elastic()
    changed = loaded("elastic.json")
    changed["elastic"]["recomputed"] = [
        {"operation": name, "first": 1, "last": last}
        for name, last in (("attention norm", 1), ("mlp norm", 1),
                           ("value", 0.5))]
    write("again.json", json.dumps(changed))
    text = run("export", "again.json", "--to", "megatron").stdout
    check("--recompute-granularity selective\n"
          "--recompute-modules layernorm\n" in text,
          f"recomputed modules: {text}")
    check("recomputed value 100 to 50 % of the layers" in text and
          "recomputed attention norm" not in text, f"and what is none: {text}")


@test
def elastic_plans_that_contradict_themselves_are_refused():
    elastic()
    for key, value, why in (
            ("enqueue", [60, 5], r"elastic\.enqueue: the groups have 65 micro"
                                 r"batches, the plan 64"),
            ("dequeue", [], r"elastic\.dequeue: has 0 entries; at least 1"),
            ("parameters", 1.5, r"1\.5 is out of range"),
            ("parameters", 1, r"a share of 1 is .* more than 'gradients'")):
        broken = loaded("elastic.json")
        broken["elastic"][key] = value
        write("broken.json", json.dumps(broken))
        case(f"{key} {value}", ["simulate", "broken.json"], 1, err=why)


@test
def torchtitan_numbers_ranks_another_way():
    elastic()
    case("torchtitan cannot", ["export", "elastic.json", "--to",
                               "torchtitan"], 1,
         err=r"layout\.outermost: pipeline")


@test
def hybrid_sharding_is_expressed_where_it_can_be():
    """State that each datacenter has all of."""
    for kind in ("hybrid", "hybrid-leaders"):
        write("hybrid.yaml", f"""
            longhaul: job/1
            model: llama3-8b
            training: {{global_batch: 64, sequence: 4096, zero: 1}}
            cluster:
              gpu: h100-sxm
              gpus_per_node: 8
              node_link: {{gbps: 3600, latency_us: 3}}
              fabric: {{gbps: 400, latency_us: 8}}
              datacenters: [{{name: a, nodes: 2}}, {{name: b, nodes: 2}}]
              links: [{{between: [a, b], latency_ms: 1, gbps: 800}}]
            layout: {{tensor: 4, pipeline: 1, data: 8, micro_batch: 1,
                     outermost: data, sharding: {kind}}}
            """)
        case(kind, ["plan", "hybrid.yaml", "-o", f"{kind}.json"],
             out=rf"DP-out sharding {kind}", err=ANY)
    case("instances of the optimizer", ["export", "hybrid.json", "--to",
                                        "megatron"],
         out=r"--num-distributed-optimizer-instances 2\n")
    case("groups of replicas", ["export", "hybrid.json", "--to",
                                "torchtitan"],
         out=r"data_parallel_replicate_degree 2\n.*"
             r"data_parallel_shard_degree 4\n")
    for target in ("megatron", "torchtitan"):
        case(f"leaders in {target}", ["export", "hybrid-leaders.json", "--to",
                                      target], 1,
             err=r"this plan those of one in each datacenter; plan with "
                 r"layout\.sharding: hybrid")


finish()
