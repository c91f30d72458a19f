#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Experts inside the ranks of a pipeline stage, from the job to the options of
Megatron-LM and torchtitan."""
import json

from harness import ANY, WORK, case, check, finish, json_case, test, write

JOB = """
    longhaul: job/1
    model: {{name: mix, layers: 4, hidden: 1024, heads: 8, vocab: 1000,
            experts: 16, experts_per_token: 2, expert_ffn: 512}}
    training: {{global_batch: 64, sequence: 1024{training}}}
    cluster:
      gpu: h100-sxm
      gpus_per_node: 8
      node_link: {{gbps: 3600, latency_us: 3}}
      fabric: {{gbps: 400, latency_us: 8}}
      datacenters: [{{name: west, nodes: 2}}, {{name: east, nodes: 2}}]
      links: [{{between: [west, east], latency_ms: 1, gbps: 800}}]
    layout: {{context: 1, micro_batch: 1, chunks_per_device: 1,
             schedule: 1f1b, {layout}}}
"""


def job(layout, training=""):
    return write("job.yaml", JOB.format(layout=layout, training=training))


def options(text):
    """Returns the names and values of an exported list of options."""
    words = [line.split(maxsplit=1) for line in text.splitlines()
             if line.startswith("--")]
    return {word[0]: word[1] if len(word) > 1 else "" for word in words}


def exported(target, *more, err=None):
    return options(case(target, ["export", "plan.json", "--to", target, *more],
                        out=ANY, err=err).stdout)


def check_megatron(given, gpus):
    """Checks Megatron-LM's arithmetic: parallel_state.py divides the world into
    model-parallel and into expert-model-parallel groups."""
    value = {name: int(text) for name, text in given.items()
             if text.isdigit()}
    tensor = value["--tensor-model-parallel-size"]
    context = value["--context-parallel-size"]
    pipeline = value["--pipeline-model-parallel-size"]
    expert = (value["--expert-model-parallel-size"] *
              value["--expert-tensor-parallel-size"] * pipeline)
    model = tensor * context * pipeline
    check(gpus % model == 0, f"{gpus} GPUs, model-parallel groups of {model}")
    check(gpus % expert == 0, f"{gpus} GPUs, expert groups of {expert}")
    data = gpus // model
    check(value["--global-batch-size"] %
          (data * value["--micro-batch-size"]) == 0, "batch")
    return data, gpus // expert


@test
def expert_parallelism_multiplies_nothing():
    job("tensor: 2, expert: 8, pipeline: 2, data: 8, outermost: pipeline")
    plan = json_case("plan", ["plan", "job.yaml", "--for", "megatron", "-o",
                              "plan.json"])
    layout = json.loads((WORK / "plan.json").read_text())["layout"]
    check(plan["search"]["gpus_used"] == 32, "GPUs")
    check([layout[key] for key in ("expert", "expert_tensor", "micro_batch")] ==
          [8, 1, 1], layout)
    case("shown", ["simulate", "plan.json"], out=ANY)
    megatron = exported("megatron")
    check(check_megatron(megatron, 32) == (8, 2), megatron)
    check(megatron["--micro-batch-size"] == "1", megatron)
    check(megatron["--moe-token-dispatcher-type"] == "alltoall", megatron)
    job("tensor: 2, expert: 8, pipeline: 2, data: 8, outermost: pipeline",
        ", zero: 2")
    case("for torchtitan", ["plan", "job.yaml", "--for", "torchtitan", "-o",
                            "plan.json"], out=ANY)
    titan = exported("torchtitan", "--allow-inexact", err="not the model's: ")
    check(titan["--parallelism.expert_parallel_degree"] == "8" and
          titan["--parallelism.data_parallel_shard_degree"] == "8", titan)
    check(titan["--parallelism.pipeline_parallel_microbatch_size"] == "1" and
          titan["--training.local_batch_size"] == "8", titan)


@test
def the_published_layout_is_one():
    """ScaleAcross Explorer, table 2: expert 16 inside data 16."""
    job("tensor: 1, expert: 16, pipeline: 2, data: 16, outermost: pipeline")
    case("plan", ["plan", "job.yaml", "--for", "megatron", "-o", "plan.json"],
         out=r"layout +TP 1 \(tensor\), EP 16 \(experts\), PP 2x1 ")
    check(check_megatron(exported("megatron"), 32) == (16, 1), "copies")


@test
def experts_are_divided_if_the_job_requests_it():
    job("tensor: 4, expert: 4, expert_tensor: 2, pipeline: 2, data: 4, "
        "outermost: pipeline", ", dispatcher: deepep")
    case("plan", ["plan", "job.yaml", "--for", "megatron", "-o", "plan.json"],
         out=r"EP 4 \(experts\), ETP 2 \(GPUs per expert\)")
    megatron = exported("megatron")
    check(check_megatron(megatron, 32) == (4, 2), megatron)
    check(megatron["--moe-token-dispatcher-type"] == "flex" and
          megatron["--moe-flex-dispatcher-backend"] == "deepep", megatron)
    job("tensor: 4, expert: 4, expert_tensor: 2, pipeline: 2, data: 4, "
        "outermost: pipeline", ", zero: 2")
    case("torchtitan", ["plan", "job.yaml", "--for", "torchtitan"], 1,
         err="with expert 4 and tensor 4 not in 2")


@test
def replicas_outermost_have_experts_of_their_own():
    """Megatron-LM: "When not using pp-last rank ordering, the data parallel
    size of the attention and moe layers must be the same"."""
    def plan(layout):
        job(f"{layout}, pipeline: 2, outermost: data, rank_order: data")

    def plans():
        case("plan", ["plan", "job.yaml", "--for", "megatron", "-o",
                      "plan.json"], out=ANY)

    plan("tensor: 4, expert: 4, data: 4")
    plans()
    given = exported("megatron")
    check("--use-tp-pp-dp-mapping" in given, given)
    check(check_megatron(given, 32) == (4, 4), given)
    for layout, block in (("tensor: 4, expert: 8, data: 4", 8),
                          ("tensor: 4, expert: 2, data: 4", 2)):
        plan(layout)
        case("refused", ["plan", "job.yaml", "--for", "megatron"], 1,
             err=f"tensor x context 4, and not over expert x expert_tensor "
                 f"{block}; use layout.rank_order: pipeline")
    # Without a fixed order of ranks, the search finds a layout.
    job("tensor: 4, expert: 8, data: 4, pipeline: 2, outermost: data")
    plans()
    given = exported("megatron")
    check("--use-tp-pp-dp-mapping" not in given, given)


@test
def tokens_between_datacenters_are_shown():
    job("tensor: 1, expert: 8, pipeline: 1, data: 24, sites: [{replicas: 12, "
        "pipeline: [west]}, {replicas: 12, pipeline: [east]}]", ", zero: 1")
    write("job.yaml", (WORK / "job.yaml").read_text()
          .replace("global_batch: 64", "global_batch: 48"))
    json_case("plan", ["plan", "job.yaml", "-o", "plan.json"])
    plan = json.loads((WORK / "plan.json").read_text())
    # One block of three spans both sites: four GPUs send two copies of each
    # token to four of eight, in four all-to-alls of four layers, two
    # microbatches.
    want = 4 * 4 / 8 * 2 * 1024 * 1024 * 2 * 4 * 4 * 2
    check([link["expert_bytes"] for link in plan["network"]] == [want, want],
          [link.get("expert_bytes") for link in plan["network"]])


@test
def degrees_that_do_not_go_together_are_refused():
    job("tensor: 1, expert: 16, pipeline: 2, data: 8")
    case("job", ["plan", "job.yaml"], 1,
         err=r"expert x expert_tensor \(16\) does not divide the tensor x "
             r"context x data \(8\) GPUs of a pipeline stage")
    job("tensor: 2, expert: 8, pipeline: 2, data: 8, outermost: pipeline")
    json_case("plan", ["plan", "job.yaml", "-o", "plan.json"])
    plan = json.loads((WORK / "plan.json").read_text())
    plan["layout"]["expert_tensor"] = 3
    (WORK / "plan.json").write_text(json.dumps(plan))
    case("plan", ["simulate", "plan.json"], 1,
         err="expert x expert_tensor is 24, which does not divide")
    model = plan["job"]["model"]
    del plan["job"]["layout"]["expert"]
    model["experts"] = 24
    plan["layout"].update(expert=16, expert_tensor=1)
    (WORK / "plan.json").write_text(json.dumps(plan))
    case("experts", ["simulate", "plan.json"], 1,
         err="the model's 24 experts are not divisible by 16")
    plan["layout"].update(expert=1, expert_tensor=16)
    model["expert_ffn"] -= 1
    (WORK / "plan.json").write_text(json.dumps(plan))
    case("width", ["simulate", "plan.json"], 1,
         err="wide, which is not divisible by 16")
    for key in [key for key in model if "expert" in key]:
        del model[key]
    model["ffn"] = 4096
    (WORK / "plan.json").write_text(json.dumps(plan))
    case("dense", ["simulate", "plan.json"], 1,
         err="expert_tensor 16, but the model has no experts")


@test
def deepep_supports_few_group_sizes():
    text = (JOB.replace("experts: 16", "experts: 256")
            .replace("nodes: 2", "nodes: 16")
            .replace("global_batch: 64", "global_batch: 256")
            .format(training=", dispatcher: deepep",
                    layout="pipeline: 1, tensor: 1, data: 256, expert: SIZE"))
    for expert, code, out, err in (
            (256, 1, "", "does not support groups of 256 ranks; use an expert "
             "x expert_tensor of 2, 4,"),
            (32, 0, ANY, ANY)):
        write("job.yaml", text.replace("SIZE", str(expert)))
        case(f"expert {expert}", ["plan", "job.yaml", "--for", "megatron",
                                  "-q", "--no-optimal"], code, out, err)
    write("job.yaml", text.replace("SIZE", "32")
          .replace("gpus_per_node: 8", "gpus_per_node: 12")
          .replace("nodes: 16", "nodes: 11"))
    case("nodes of 12 GPUs", ["plan", "job.yaml", "--for", "megatron", "-q",
                              "--no-optimal"], 1,
         err="assumes that every eight ranks share a node")
    # Eight ranks of a group are on two nodes of 12 GPUs unless each stage
    # begins on its own node.
    small = (text.replace("gpus_per_node: 8", "gpus_per_node: 12")
             .replace("{name: west, nodes: 16}, {name: east, nodes: 16}",
                      "{name: west, nodes: 2}")
             .replace("links: [", "# links: [")
             .replace("pipeline: 1, tensor: 1, data: 256",
                      "pipeline: 2, tensor: 1, data: 8, packing: PACKING"))
    for expert, packing, code in ((8, "dense", 1), (8, "aligned", 0),
                                  (4, "dense", 0)):
        write("job.yaml", small.replace("SIZE", str(expert))
              .replace("PACKING", packing))
        case(f"groups of {expert} on nodes of 12 GPUs, {packing}",
             ["plan", "job.yaml", "--for", "megatron", "-q", "--no-optimal"],
             code, err="some of them are on two" if code else "",
             out="" if code else ANY)
    write("job.yaml", text.replace("SIZE", "256"))
    case("only Megatron-LM with it", ["plan", "job.yaml", "-q",
                                      "--no-optimal"], out=ANY, err=ANY)


finish()
