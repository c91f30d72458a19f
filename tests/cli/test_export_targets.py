#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plan --for: searches only layouts that a program supports, and its exporter accepts
the result. Random jobs. The rules for Megatron-LM's and torchtitan's arguments are
reimplemented here from their sources (megatron/training/arguments.py and
core/parallel_state.py of core 0.16.1, torchtitan 0.3.0's parallel_dims.py).
"""
import json
import random
import re

from harness import (ANY, WORK, case, check, finish, has_few_cases,
                     json_case, run, test, write)

MODELS = ("llama3-8b", "qwen2.5-32b", "mixtral-8x7b", "qwen3-30b-a3b",
          "{name: m, layers: 12, hidden: 2048, heads: 16, vocab: 32000, "
          "ffn: 8192, kv_heads: 4, gated: true}",
          "{name: e, layers: 8, hidden: 1024, heads: 16, vocab: 32000, "
          "experts: 16, experts_per_token: 2, expert_ffn: 2048}")


def job(r):
    model = r.choice(MODELS)
    sites = r.choice((1, 2, 2, 3))
    names = "abc"[:sites]
    nodes = r.choice((1, 2, 4))
    links = "".join(f"\n    - {{between: [{a}, {b}], latency_ms: "
                    f"{r.choice((1, 10, 40))}, gbps: {r.choice((100, 400))}}}"
                    for a in names for b in names if a < b)
    uneven = r.choice((0, 0, 1))
    return f"""
longhaul: job/1
model: {model}
training: {{global_batch: {r.choice((32, 64, 96, 128))}, sequence: 4096{r.choice(
    ("", ", recompute: none", ", recompute: full", ", recompute: [layernorm]"))}}}
cluster:
  gpu: {r.choice(("h100-sxm", "h200", "b200"))}
  gpus_per_node: 8
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{", ".join(f"{{name: {n}, nodes: {nodes + (uneven if n == 'a' else 0)}}}"
                           for n in names)}]
{"  links:" + links if links else ""}
layout: {{{r.choice(("", "outermost: pipeline", "outermost: data",
                     "context: 1", "tensor: 4"))}}}
"""


def options(text):
    return {words[0].lstrip("-"): words[1:] for line in text.splitlines()
            if line and not line.startswith("#") for words in [line.split()]}


def number(given, key, absent=1):
    return int(given[key][0]) if key in given else absent


def check_megatron(given, plan):
    """Checks that the world is the plan's, divided by Megatron-LM's rules."""
    world = plan["search"]["gpus_used"]
    tp, cp, pp = (number(given, f"{n}-parallel-size") for n in (
        "tensor-model", "context", "pipeline-model"))
    ep, etp = (number(given, f"expert-{n}-parallel-size")
               for n in ("model", "tensor"))
    check(world % (tp * cp * pp) == 0, f"{world} by {tp} {cp} {pp}")
    dp = world // (tp * cp * pp)
    check(number(given, "global-batch-size") %
          (dp * number(given, "micro-batch-size")) == 0, "batch")
    n = number(given, "global-batch-size") // dp // number(
        given, "micro-batch-size")
    if "num-experts" in given:
        check(world % (ep * etp * pp) == 0, "experts")
        check(number(given, "num-experts") % ep == 0, "experts a rank")
        if "use-tp-pp-dp-mapping" in given and pp > 1:
            check(world // (ep * etp * pp) == dp, "expert data parallelism")
        if ep > 1:
            check(given.get("moe-token-dispatcher-type", ["allgather"])[0] !=
                  "allgather", "the dispatcher that was costed")
        if tp > 1:
            check("sequence-parallel" in given, "experts with tensor")
    if pp > 1:
        stages = given["pipeline-model-parallel-layout"][0].split("|")
        check(len(stages) % pp == 0, "stages")
        chunks = len(stages) // pp
        layers = sum(int(k) for k in re.findall(r"t\*(\d+)", "".join(stages)))
        check(layers == number(given, "num-layers"), "layers")
        check(stages[0][0] == "E" and stages[-1][-1] == "L", "ends")
        if chunks > 1:
            check(n >= pp, f"{n} microbatches on {pp} ranks")
        check(plan["layout"]["schedule"] ==
              ("interleaved-1f1b" if chunks > 1 else "1f1b"), "schedule")
    if "overlap-param-gather" in given:
        check("use-distributed-optimizer" in given and
              "overlap-grad-reduce" in given, "overlap")
    if "use-megatron-fsdp" in given:
        check(given.get("ckpt-format") == ["fsdp_dtensor"], "checkpoints")
    check(number(given, "seq-length") % (2 * cp) == 0 or cp == 1, "context")


def check_torchtitan(given, plan):
    world = plan["search"]["gpus_used"]

    def degree(name):
        return number(given, f"parallelism.{name}_degree")

    copies, shards = (degree(f"data_parallel_{n}")
                      for n in ("replicate", "shard"))
    cp, tp, pp, ep = (degree(f"{n}_parallel")
                      for n in ("context", "tensor", "pipeline", "expert"))
    check(copies * shards * cp * tp * pp == world, "the world")
    check(shards * cp * tp % ep == 0, "experts")
    check(("training.disable_cuda_graphs" in given) == (pp > 1 or ep > 1),
          "CUDA graphs")
    local = number(given, "training.local_batch_size")
    check(number(given, "training.global_batch_size") %
          (local * copies * shards) == 0, "batch")
    if pp > 1:
        size = number(given, "parallelism.pipeline_parallel_microbatch_size")
        check(local % size == 0 and
              local // size == plan["microbatches"], "microbatches")
        parts = given["parallelism.module_fqns_per_model_part"]
        layers = [m for p in parts for m in p.split(",")
                  if m.startswith("layers.")]
        check(len(parts) == pp * plan["layout"]["chunks_per_device"] and
              layers == [f"layers.{i}" for i in range(len(layers))], "stages")
    else:
        check(plan["layout"]["schedule"] in ("1f1b", "interleaved-1f1b"),
              "one microbatch after the other")


def check_time(seed, target, plan):
    """Checks the iteration time of the exported pass order, to the
    nanosecond."""
    run("export", f"{target}.json", "-q", "-o", "order.csv")
    done = run("simulate", f"{target}.json", "-s", "order.csv", "--json")
    took = (round(json.loads(done.stdout)["iteration_s"] * 1e9)
            if done.returncode == 0 else done.stderr)
    check(took == plan["iteration_ns"],
          f"job {seed}, {target}: {took} by order, {plan['iteration_ns']}")


CHECKS = {"megatron": check_megatron, "torchtitan": check_torchtitan}


@test
def every_plan_for_a_program_is_one_of_its_own():
    made = dict.fromkeys(CHECKS, 0)
    for seed in (2, 6) if has_few_cases() else range(10):
        text = job(random.Random(seed))
        write("job.yaml", text)
        for target, check_it in CHECKS.items():
            done = run("plan", "job.yaml", "--for", target, "--no-optimal",
                       "--effort", "1000", "-q", "-o", f"{target}.json")
            if done.returncode:
                check(re.search(r"fits in memory|no layout|no schedule|"
                                r"recomputes whole layers", done.stderr),
                      f"job {seed}, {target}: {done.stderr}\n{text}")
                continue
            plan = json.loads((WORK / f"{target}.json").read_text())
            more = ["--allow-inexact"] if target == "torchtitan" else []
            out = case(f"job {seed} for {target}",
                       ["export", f"{target}.json", "--to", target, *more],
                       out=ANY, err=r"\A(longhaul: not the model's: [^\n]*\n)*\Z"
                       ).stdout
            check("Not expressed" not in out, out)
            check(f"{plan['iteration_ns'] / 1e9:.3f} s" in out, "its time")
            check_it(options(out), plan)
            check_time(seed, target, plan)
            other = plan.get("without_framework")
            check(not other or
                  other["iteration_ns"] < plan["iteration_ns"],
                  "without the restriction it is better")
            made[target] += 1
    check(min(made.values()) >= (1 if has_few_cases() else 6),
          f"checked plans: {made}")


@test
def the_target_in_the_job_has_the_same_effect():
    text = job(random.Random(6))
    write("a.yaml", text)
    write("b.yaml", re.sub(r"layout: \{", "layout: {framework: megatron, ",
                           text))
    runs = [run("plan", *args, "--no-optimal", "--effort", "4000", "-q",
                "--json")
            for args in (["a.yaml", "--for", "megatron"], ["b.yaml"])]
    plans = [json.loads(done.stdout) for done in runs]
    for plan in plans:
        plan.pop("name")
    check(plans[0] == plans[1], "an option and a key give one plan")
    check(plans[0]["job"]["layout"]["framework"] == "megatron" and
          plans[0]["job"]["framework"] == {}, "and Megatron-LM's ways")
    case("another key goes first", ["plan", "b.yaml", "--for", "pytorch", "-q",
                                    "--no-optimal", "--effort", "4000"],
         out=r"for +PyTorch \(2\.15\)", err=ANY)


@test
def zero_3_in_a_pipeline_keeps_backward_passes_whole():
    """FSDP frees weights after a forward pass and then loses the gradients of
    separate W passes: tests/peers/test_exported_training.py."""
    text = re.sub(r"layout: \{.*\}", "layout: {pipeline: 2, data: 2, tensor: 4, "
                  "context: 1, outermost: pipeline, schedule: greedy}",
                  re.sub(r"sequence: 4096[^}]*", "sequence: 4096, zero: 3",
                         job(random.Random(1))))
    write("z.yaml", text)
    for target in "pytorch", "torchtitan", None:
        done = run("plan", "z.yaml", "--no-optimal", "--effort", "2000", "-q",
                   *(["--for", target] if target else []), "-o", "z.json")
        check(done.returncode == 0, done.stderr)
        cells = run("export", "z.json", "-q").stdout
        check(bool(re.search(r"\dW\d", cells)) == (target is None),
              f"{target}: {cells[:100]}")
    case("split passes for torchtitan",
         ["export", "z.json", "--to", "torchtitan",
          "--allow-inexact"], 1, err="loses gradients")


@test
def contradictions_are_reported_before_the_search():
    text = job(random.Random(1))
    for old, new, target, why in (
            ("layout: {", "layout: {schedule: zb-v, ", "megatron",
             "does not support schedule 'zb-v'"),
            ("layout: {", "layout: {schedule: elastic, ", "torchtitan",
             "does not support schedule 'elastic'"),
            ("sequence: 4096", "sequence: 4096, zero: 1", "torchtitan",
             "use training.zero: 0, 2 or 3"),
            ("sequence: 4096", "dropout: true, sequence: 4096", "torchtitan",
             "use training.dropout: false"),
            ("sequence: 4096", "precision: fp16, sequence: 4096", "torchtitan",
             "does not train in fp16"),
            ("cluster:", "framework: {fp8: matmul}\ncluster:", "torchtitan",
             "use framework.fp8: none"),
            ("cluster:", "framework: {attention: unfused}\ncluster:",
             "torchtitan", "use framework.attention: fused"),
            ("cluster:", "framework: {reduce: bf16}\ncluster:", "torchtitan",
             "framework.reduce: fp32")):
        write("c.yaml", re.sub(r", recompute: [^}]*\}", "}", text)
              .replace(old, new, 1))
        case(f"{new} for {target}", ["plan", "c.yaml", "--for", target], 1,
             err=why)


@test
def torchtitan_without_a_pipeline_goes_layer_by_layer():
    """torchtitan's options name no chunks here, so plans must not depend on
    them."""
    text = ("longhaul: job/1\n"
            "model: {layers: 6, hidden: 1024, ffn: 4096, heads: 8, kv_heads: "
            "8, head_dim: 128, vocab: 1000}\n"
            "training: {global_batch: 8, sequence: 2048, zero: %s}\n"
            "cluster:\n"
            "  gpu: h200\n"
            "  gpus_per_node: 2\n"
            "  node_link: {gbps: 3600, latency_us: 3}\n"
            "  fabric: {gbps: 50, latency_us: 8}\n"
            "  datacenters: [{name: west, nodes: 2}]\n"
            "layout: {pipeline: 1, tensor: 1, context: 1, data: 4, "
            "micro_batch: 1%s}\n")
    seconds = {}
    for zero, chunks in (0, 6), (2, 1), (3, 1):
        for said in "", f", chunks_per_device: {chunks}":
            write("lone.yaml", text % (zero, said))
            plan = json_case("plan", ["plan", "lone.yaml", "-q", "-o",
                                      "lone.json", "--for", "torchtitan",
                                      "--no-optimal"])
            check(plan["layout"]["chunks_per_device"] == chunks,
                  f"ZeRO {zero}: {plan['layout']}")
            check(seconds.setdefault(zero, plan["iteration_s"]) ==
                  plan["iteration_s"], f"ZeRO {zero}: {plan['iteration_s']}")
        write("lone.yaml", text % (zero, ", chunks_per_device: 2"))
        case("other chunks", ["plan", "lone.yaml", "--for", "torchtitan"], 1,
             err="gathers and reduces layer by layer, with ZeRO "
             f"{zero} costed as {chunks} chunk")
    write("lone.yaml", text % (0, ", schedule: 1f1b"))
    case("one chunk", ["plan", "lone.yaml", "--for", "torchtitan"], 1,
         err="modelled as one chunk per layer; remove layout.schedule")
    write("lone.yaml", text % (0, ", schedule: interleaved-1f1b, "
                               "chunks_per_device: 2"))
    case("of another program", ["plan", "lone.yaml", "-q", "-o", "lone.json",
                                "--no-optimal"], out=ANY)
    case("is not exported", ["export", "lone.json", "--to", "torchtitan",
          "--allow-inexact"], 1,
         err="layer by layer")


@test
def torchtitan_shards_over_contexts():
    text = (job(random.Random(1)).replace("context: 1", "context: 2")
            .replace("sequence: 4096", "zero: 0, sequence: 4096"))
    write("cp.yaml", re.sub(r", recompute: [^}]*\}", "}", text))
    case("in ZeRO 0 no context", ["plan", "cp.yaml", "--for", "torchtitan"], 1,
         err="use training.zero: 2 or 3, or layout.context: 1")
    run("plan", "cp.yaml", "-o", "cp.json", "--no-optimal")
    case("nor is it exported", ["export", "cp.json", "--to", "torchtitan",
          "--allow-inexact"], 1,
         err="shards parameters over the GPUs of layout.context")


finish()
