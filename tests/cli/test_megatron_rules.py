#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM accepts exported arguments: its rules, in an independent checker
(megatron_rules.py).
"""
import json
import os
import random

from harness import (ANY, case, check, finish, has_few_cases, read, run, test,
                     write)
from megatron_rules import complaints
from random_jobs import job

# LONGHAUL_RULES=N sets the number of jobs.
SEEDS = int(os.environ.get("LONGHAUL_RULES", 8 if has_few_cases() else 40))


def exported(text):
    """Returns arguments and world size of the job's plan; None: infeasible."""
    write("job.yaml", text)
    done = run("plan", "job.yaml", "-q", "-o", "plan.json", "--no-optimal",
               "--effort", "1000")
    if done.returncode:
        return None
    case("export", ["export", "plan.json", "--to", "megatron", "-o",
                    "a.txt", "--allow-inexact"], out=ANY, err=ANY)
    return read("a.txt"), json.loads(read("plan.json"))["search"]["gpus_used"]


@test
def megatron_accepts_the_exported_arguments():
    n = 0
    for seed in range(SEEDS):
        found = exported(job(random.Random(seed)))
        if not found:
            continue
        n += 1
        wrong = complaints(*found)
        check(not wrong, f"seed {seed}: {wrong} with\n{found[0]}")
    check(n > SEEDS / 2, f"{n} plans of {SEEDS} jobs")


@test
def the_checker_detects_invalid_arguments():
    """Changes one of the valid arguments at a time."""
    right = ("# CUDA_DEVICE_MAX_CONNECTIONS=1\n"
             "--num-layers 16 --hidden-size 1024 --num-attention-heads 16 "
             "--group-query-attention --num-query-groups 4 --seq-length 4096 "
             "--max-position-embeddings 4096 --num-experts 16 "
             "--disable-bias-linear --tensor-model-parallel-size 2 "
             "--sequence-parallel --context-parallel-size 2 "
             "--pipeline-model-parallel-size 4 --expert-model-parallel-size 4 "
             "--expert-tensor-parallel-size 1 --micro-batch-size 1 "
             "--global-batch-size 64 --bf16 --use-distributed-optimizer "
             "--overlap-grad-reduce --overlap-param-gather ")
    check(complaints(right, 64) == [], complaints(right, 64))
    for change, what in (
            ("--tensor-model-parallel-size 3", "world"),
            ("--num-layers 18", "layers are no multiple"),
            ("--num-query-groups 16 --num-attention-heads 48 "
             "--tensor-model-parallel-size 32", "world"),
            ("--context-parallel-size 4 --seq-length 4092", "2 x context"),
            ("--expert-model-parallel-size 5", "experts|world"),
            ("--use-tp-pp-dp-mapping --expert-model-parallel-size 8",
             "another data-parallel size"),
            ("--num-distributed-optimizer-instances 8", "experts' replicas"),
            ("--global-batch-size 66", "the batch"),
            ("--num-virtual-stages-per-pipeline-rank 2 --global-batch-size 8",
             "microbatches"),
            ("--pipeline-model-parallel-layout Et*16|||LL", "L once"),
            ("--pipeline-model-parallel-layout Et*15|||L", "as many t"),
            ("--pipeline-model-parallel-layout Et*16|||mL", "as many m"),
            ("--moe-router-topk 1", "softmax"),
            ("--moe-router-enable-expert-bias", "sigmoid"),
            ("--recompute-granularity full", "a method"),
            ("--recompute-granularity selective --recompute-modules moe_act",
             "grouped"),
            ("--overlap-moe-expert-parallel-comm", "all-to-alls"),
            ("--use-megatron-fsdp", "checkpoint format"),
            ("--use-megatron-fsdp", "no pipeline"),
            ("--use-megatron-fsdp --pipeline-model-parallel-size 1 "
             "--num-distributed-optimizer-instances 2", "no groups of experts"),
            ("--fp8-param-gather", "without products"),
            ("--fp16", "two precisions"),
            ("--seq-length 8192", "longer than the positions")):
        found = " ".join(complaints(right + change, 64))
        check(any(word in found for word in what.split("|")),
              f"{change}: {found!r}")
    beside = "--expert-tensor-parallel-size 2"
    for gone, what in (("--disable-bias-linear", "biases"),
                       ("--sequence-parallel", "sequence parallelism"),
                       ("--overlap-grad-reduce", "reductions do"),
                       ("--use-distributed-optimizer", "distributed"),
                       ("# CUDA_DEVICE_MAX_CONNECTIONS=1", "one connection")):
        found = " ".join(complaints(right.replace(gone, "") + beside, 64))
        check(what in found, f"no {gone}: {found!r}")


SMALL = """
    longhaul: job/1
    model: {{layers: 8, hidden: 512, heads: 8, vocab: 32000, experts: 16,
             experts_per_token: 2, expert_ffn: 512, {more}}}
    training: {{global_batch: 64, sequence: 2048, zero: 1}}
    cluster:
      gpu: h100-sxm
      gpus_per_node: 8
      node_link: {{gbps: 3600, latency_us: 3}}
      datacenters: [{{name: a, nodes: 1}}, {{name: b, nodes: 1}}]
      fabric: {{gbps: 400, latency_us: 8}}
      links: [{{between: [a, b], latency_ms: 5, gbps: 100}}]
    layout: {{framework: megatron, micro_batch: 1, {layout}}}
    """


@test
def arguments_that_megatron_rejects_are_rejected():
    biased = ("qkv_bias: true, output_bias: true, mlp_bias: true, "
              "router_bias: true")
    for more, layout, why in (
            (biased, "tensor: 2, expert: 2, expert_tensor: 2, pipeline: 1",
             "does not shard experts that have biases"),
            ("mlp_bias: true, output_bias: true", "tensor: 1",
             "has biases on all linear layers"),
            ("router_bias: true", "tensor: 1", "has biases on all linear layers"),
            ("gated: true", "tensor: 1, context: 1, pipeline: 1, data: 16, "
             "expert: 16, outermost: data, sharding: hybrid",
             r"expert replicas \(1\) over optimizer instances")):
        write("job.yaml", SMALL.format(more=more, layout=layout))
        case(why, ["plan", "job.yaml", "-q"], 1, err=why)
    sharded = SMALL.replace("zero: 1", "zero: 3")
    for layout, why in (
            ("tensor: 1, pipeline: 2", "FSDP, which does not support pipelines"),
            ("tensor: 1, context: 1, pipeline: 1, data: 16, expert: 4, "
             "outermost: data, sharding: hybrid", "reduces expert gradients")):
        write("job.yaml", sharded.format(more="gated: true", layout=layout))
        case(why, ["plan", "job.yaml", "-q"], 1, err=why)
    gathered = SMALL.replace("zero: 1", "zero: 1, dispatcher: allgather")
    overlapped = gathered.replace(
        "layout: {{", "framework: {{overlap: {{expert: 0.5}}}}\n    layout: {{")
    why = "overlaps expert communication only without training.dispatcher"
    write("job.yaml", overlapped.format(
        more="gated: true", layout="tensor: 1, context: 1, pipeline: 1, "
        "data: 16, expert: 4, outermost: data, sharding: full"))
    case(why, ["plan", "job.yaml", "-q"], 1, err=why)
    found = exported(gathered.format(more="gated: true", layout="expert: 4"))
    check(found and "--moe-token-dispatcher-type allgather" in found[0] and
          complaints(*found) == [], found)
    found = exported(sharded.format(more="gated: true", layout="expert: 4"))
    check(found and "--use-megatron-fsdp" in found[0] and
          complaints(*found) == [], found)
    found = exported(SMALL.format(more=biased, layout="tensor: 2, expert: 2"))
    check(found and complaints(*found) == [], found)


finish()
