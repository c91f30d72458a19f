#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unequal microbatches: groups of layout.sites with their own micro_batch; and
datacenters with their own tensor degree."""
import re

from harness import (ANY, VIRTUAL, case, check, finish, json_case, read, test,
                     write)

JOB = """\
    longhaul: job/1
    model: {{layers: 4, hidden: 32, ffn: 64, heads: 4, kv_heads: 2,
            head_dim: 8, vocab: 256{model}}}
    training: {{global_batch: 16, sequence: 16, precision: fp32,
               optimizer: adamw, recompute: none{training}}}
    cluster:
      gpus_per_node: 1
      node_link: {{gbps: 80, latency_us: 10}}
      fabric: {{gbps: 10, latency_us: 50}}
      datacenters:
        - {{name: north, nodes: 2,
           gpu: {{tflops: 0.05, memory_gib: 4, memory_gbps: 20}}}}
        - {{name: south, nodes: 2,
           gpu: {{tflops: 0.15, memory_gib: 4, memory_gbps: 60}}}}
      links:
        - {{between: [north, south], latency_ms: 1, gbps: 1}}
    layout: {{{layout}}}
    """
ONE = ("tensor: 1, context: 1, expert: 1, pipeline: 1, data: 1, "
       "micro_batch: 1")
EXPERTS = ", experts: 4, experts_per_token: 2, expert_ffn: 32"


def sites(north, south, first=1, second=3):
    """Returns `sites` with a group in each datacenter."""
    return (f"sites: [{{replicas: {north}, micro_batch: {first}, "
            f"pipeline: [north]}}, {{replicas: {south}, "
            f"micro_batch: {second}, pipeline: [south]}}]")


def losses(name, layout, model="", training=", zero: 1", options=()):
    """Plans the job and returns the losses of four steps."""
    write(f"{name}.yaml", JOB.format(layout=layout, model=model,
                                     training=training))
    case(name, ["plan", f"{name}.yaml", "-o", f"{name}.json", "--no-optimal"],
         out=ANY)
    write("text", "It was the best of times, it was the worst of times.\n" * 90)
    said = json_case(name, ["train", f"{name}.json", "--device", "cpu",
                            "--data", "text", "--steps", "4", "--rate",
                            "1e-2", "--warmup", "0", *options])
    return [one["loss"] for one in said["iterations"]]


def check_losses(want, got):
    for a, b in zip(want, got, strict=True):
        check(abs(a - b) <= 1e-4 * a, (want, got))


@test
def training_equals_one_process():
    """Unequal replicas process the batch's sequences once each, with equal
    weight."""
    want = losses("one", ONE)
    check_losses(want, losses("pipelines", "tensor: 1, context: 1, "
                              "pipeline: 2, " + sites(1, 1)))
    check_losses(want, losses("replicas", "tensor: 1, context: 1, "
                              "pipeline: 1, " + sites(2, 2)))
    check_losses(want, losses("tensor", "tensor: 2, context: 1, pipeline: 1, "
                              "chunks_per_device: 2, " + sites(1, 1),
                              training=", zero: 3"))


@test
def training_with_experts_and_dropout_equals_one_process():
    more = ", zero: 1, balance_loss: 0.01, dropout: 0.1"
    want = losses("experts-one", ONE, EXPERTS, more)
    check_losses(want, losses("experts", "tensor: 1, context: 1, expert: 2, "
                              "pipeline: 1, sharding: hybrid, " + sites(2, 2),
                              EXPERTS, more))


@test
def programs_that_cannot_run_them_refuse():
    losses("planned", "tensor: 1, context: 1, pipeline: 2, schedule: 1f1b, "
           + sites(1, 1))
    for target, why in [("megatron", "Megatron-LM has one micro_batch"),
                        ("megatron-bridge", "Megatron-LM has one micro_batch"),
                        ("torchtitan", "torchtitan has one micro_batch"),
                        ("chakra", "unequal microbatches")]:
        case(target, ["export", "planned.json", "--to", target, "-o", "out"],
             code=1, err=f".*{why}.*\n")
    case("profile", ["train", "planned.json", "--device", "cpu", "--data",
                     "text", "--steps", "1", "--profile-out", "profile.yaml"],
         code=1, err=".*a profile cannot record unequal microbatches.*\n")


@test
def contradictions_are_errors():
    for layout, why in [
            (sites(1, 1).replace("micro_batch: 1, ", ""), "micro_batch"),
            (sites(1, 1).replace("replicas: 1, ", "", 1),
             "requires 'replicas' beside it"),
            (sites(1, 1) + ", micro_batch: 2",
             "the largest of all groups is 3, but the layout's micro_batch "
             "is 2"),
            ("sites: [{replicas: 1, micro_batch: 1, "
             "pipeline: [north, south]}]",
             "requires a pipeline in one datacenter, not 2"),
            (sites(1, 1).replace("south", "north").replace(
                "[north]", "[{datacenter: north, stages: 1}]"),
             "datacenter 'north' is in an earlier group; join both groups"),
            (sites(1, 1) + ", schedule: elastic",
             "elastic plans have equal microbatches"),
            (sites(1, 2), "not divisible by data x micro_batch = 7 over all")]:
        write("bad.yaml", JOB.format(layout=layout, model="", training=""))
        case(why, ["plan", "bad.yaml"], code=1, err=f".*{why}.*\n")


def tensors(north=2, south=1, replicas="replicas: 1, ", stages=(1, 2)):
    """Returns `sites` with a pipeline over both datacenters, each with a tensor
    degree."""
    return (f"sites: [{{{replicas}pipeline: [{{datacenter: north, stages: "
            f"{stages[0]}, tensor: {north}}}, {{datacenter: south, stages: "
            f"{stages[1]}, tensor: {south}}}]}}]")


@test
def training_with_different_tensor_degrees_equals_one_process():
    want = losses("one", ONE)
    case("report", ["report", "one.json", "-o", "one.html"], out=ANY)
    page = read("one.html")
    check(re.search(r"tokens/s, \d,\d{3} days per trillion tokens", page),
          "days are a number without exponent")
    check("the only stage of 1 replica: 4 layers" in page, "one stage")
    check_losses(want, losses("wide-first", tensors()))
    check_losses(want, losses("wide-last", tensors(1, 2, stages=(2, 1))))
    check_losses(want, losses("emulated", tensors(),
                              options=["--emulate-links"]))
    # the same with an order of messages, each in two parts
    case("schedule", ["schedule", "emulated.json", "--method", "1f1b", "-o",
                      "S.csv"], out=ANY)
    first = [cell for cell in read("S.csv").split("\n")[0].split(",")
             if "F" in cell]
    write("S.links.csv", "north>south," + ",".join(
        [first[1], first[0], *first[2:]]) + "\n")
    check_losses(want, losses("ordered", tensors(), options=[
        "--emulate-links", "--schedule", "S.csv"]))
    tied = ", tied_embeddings: true"
    check_losses(losses("one-tied", ONE, tied),
                 losses("tied", tensors(1, 2, stages=(2, 1)), tied))


@test
def a_run_with_different_tensor_degrees_takes_its_planned_time():
    """On the timed device, in virtual time, which passes only while ranks
    wait."""
    write("timed.yaml", JOB.format(layout=tensors() + ", schedule: 1f1b",
                                   model="", training=""))
    plan = json_case("plan", ["plan", "timed.yaml", "-o", "timed.json"])
    run = json_case("train", ["train", "timed.json", "--device", "timed",
                              "--steps", "2"], program=VIRTUAL)
    check(run["ranks"] == 3, run)
    case("ranks", ["train", "timed.json", "--device", "timed"],
         out="schedule +1f1b on 3 ranks: one copy of 1 replicas x context 1 x "
             "tensor 2 in north, 1 in south, timed .*", program=VIRTUAL)
    check(abs(run["median_s"] / run["predicted_s"] - 1) < 0.001, run)
    check(run["predicted_s"] <= plan["iteration_s"], (run, plan))


@test
def options_that_need_equal_degrees_are_refused():
    losses("refusing", tensors())
    for options, why in [(["--receives", "late"], "late receives"),
                         (["--coupled", "2"], "blocking sends"),
                         (["--adapt"], "adaptation during the run"),
                         (["--profile-out", "p.yaml"], "a profile of the run")]:
        case(why, ["train", "refusing.json", "--device", "cpu", "--data",
                   "text", "--steps", "1", *options],
             code=1, err=f".*with different tensor degrees with {why}: .*\n")


@test
def programs_with_one_tensor_degree_refuse_different_ones():
    write("tensors.yaml", JOB.format(layout=tensors() + ", schedule: 1f1b",
                                     model="", training=""))
    write("text", "It was the best of times.\n" * 90)
    case("text", ["plan", "tensors.yaml", "-o", "tensors.json", "--html",
                  "tensors.html"],
         out=r".*GPUs +4 of 4.*TP 2 in north, 1 in south \(tensor\).*"
             r"north +2 of 2 GPUs +stage 0 of 1 replica, TP 2: \d layers?.*")
    page = read("tensors.html")
    for part in ("tensor parallelism 2 in north, 1 in south, ",
                 "stages 1-2 of 1 replica, TP 1: "):
        check(part in page, part)
    case("check", ["check", "tensors.json"], out=ANY)
    for target, why in [("megatron", "Megatron-LM has one tensor degree"),
                        ("megatron-bridge", "Megatron-LM has one tensor"),
                        ("torchtitan", "torchtitan has one tensor degree"),
                        ("chakra", "different tensor degrees")]:
        case(target, ["export", "tensors.json", "--to", target, "-o", "out"],
             code=1, err=f".*{why}.*\n")
    write("for.yaml", JOB.format(layout="tensor: per-datacenter, framework: "
                                 "megatron", model="", training=""))
    case("for", ["plan", "for.yaml"], code=1,
         err=".*has one tensor degree.*\n")
    write("uneven.yaml",
          JOB.format(layout=tensors() + ", framework: longhaul", model="",
                     training="").replace("heads: 4, kv_heads: 2",
                                           "heads: 6, kv_heads: 3"))
    case("uneven", ["plan", "uneven.yaml"], code=1,
         err=".*divides layers into equal parts of heads, kv_heads and ffn.*"
             "\n")


@test
def tensor_degrees_that_contradict_are_errors():
    for layout, why in [
            (tensors(replicas=""), "requires one group, with 'replicas'"),
            (tensors().replace(", tensor: 2", ""), "tensor"),
            (tensors(north=3), "4 heads of custom are not divisible by 3"),
            (tensors() + ", tensor: 2", "the least tensor of all datacenters "
             "is 1, but the layout's tensor is 2"),
            (tensors() + ", schedule: elastic",
             "elastic plans have one tensor degree"),
            ("tensor: per-datacenter, " + sites(1, 1), "cannot be combined "
             "with sites; give each datacenter in sites its tensor")]:
        write("bad.yaml", JOB.format(layout=layout, model="", training=""))
        case(why, ["plan", "bad.yaml"], code=1, err=f".*{why}.*\n")


finish()
