#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The text output of a plan agrees with its JSON."""
import json
import re

from harness import case, check, finish, read, run, test, write

JOB = """longhaul: job/1
model: llama3-8b
training: {global_batch: 16, sequence: 2048}
cluster:
  gpu: a100-80g
  gpus_per_node: 4
  node_link: {gbps: 2400, latency_us: 3}
  datacenters: [{name: a, nodes: 1}]
layout: {pipeline: 2, schedule: 1f1b}
"""


def plan(reserve):
    text = JOB.replace("  gpus_per", f"  memory_reserve: {reserve}\n  gpus_per")
    write("job.yaml", JOB if reserve is None else text)
    said = run("plan", "job.yaml", "-o", "plan.json")
    check(said.returncode == 0, f"reserve {reserve}: {said.stderr}")
    line = re.search(r"^memory +(.*)$", said.stdout, re.M).group(1)
    best = json.loads(run("plan", "job.yaml", "--json", "-o",
                          "plan.json").stdout)
    check(best["peak_memory_bytes"] <= best["memory_limit_bytes"],
          f"reserve {reserve}: {best} does not fit")
    return line, best["memory_limit_bytes"]


@test
def memory_excludes_the_reserve():
    for reserve, words, usable in (
            (None, "of 75.2 GiB (80 GiB less 6 % reserve)", 80745385164),
            ("10%", "of 72.0 GiB (80 GiB less 10 % reserve)", 72 << 30),
            ("4.5", "of 75.5 GiB (80 GiB less 4.5 GiB reserve)", 151 << 29),
            ("0", "of 80.0 GiB on the fullest device", 80 << 30)):
        line, limit = plan(reserve)
        check(words in line, f"{line!r} has no {words!r}")
        check(limit == usable, f"{limit} is not {usable}")


# Each part equals the rounded value of the plan's JSON; omitted parts are zero.
@test
def parts_of_memory_are_the_fullest_ranks():
    write("job.yaml", JOB)
    said = run("plan", "job.yaml", "-o", "plan.json")
    check(said.returncode == 0, said.stderr)
    lines = re.search(r"^memory .*\n((?: +.*\n)+)", said.stdout, re.M).group(1)
    plan = json.loads(run("plan", "job.yaml", "--json", "-o",
                          "plan.json").stdout)
    sums = [sum(v for k, v in m.items() if k != "rank")
            for m in plan["memory"]]
    check([m["rank"] for m in plan["memory"]] == [0, 1] and
          max(sums) == plan["peak_memory_bytes"], f"{plan['memory']}")
    full = plan["memory"][sums.index(max(sums))]
    words = dict(re.findall(r"([a-z]+) ([0-9.]+)", lines))
    check("GiB" in lines and len(words) >= 4, lines)
    for key, amount in full.items():
        if key != "rank":
            shown = float(words.get(key.removesuffix("_bytes"), 0))
            check(abs(shown - amount / 2**30) <= 0.051,
                  f"{key}: {shown} of {amount / 2**30}")


# The search finds another placement here than the one on which a slow method is
# fastest.
TWO_PLACEMENTS = """longhaul: job/1
model: kimi-k2
training: {global_batch: 2048, sequence: 4096, recompute: selective, zero: 1}
cluster:
  gpu: b300
  gpus_per_node: 8
  node_link: {gbps: 7200, latency_us: 3}
  fabric: {gbps: 800, latency_us: 8}
  datacenters: [{name: a, nodes: 32}, {name: b, nodes: 32}]
  links: [{between: [a, b], latency_ms: 10, gbps: 6400}]
layout: {tensor: 1, context: 1, expert: 8, pipeline: 16, chunks_per_device: 2,
         data: 32, micro_batch: 2, outermost: pipeline}
"""


@test
def no_entry_of_a_plan_is_faster_than_it():
    write("two.yaml", TWO_PLACEMENTS)
    said = run("plan", "two.yaml", "--json", "-o", "two.json")
    check(said.returncode == 0, said.stderr)
    best = json.loads(said.stdout)
    known = [(m, m["iteration_ns"]) for kind in ("methods", "alternatives")
             for m in best[kind] if m["status"] == "ok"]
    known += [(r["choice"], r["choice"]["iteration_ns"])
              for r in best["runners_up"] if r["choice"]["status"] == "ok"]
    check({m["placement"] for m, _ in known} == {"loop", "wave"},
          "only one placement was compared")
    for what, ns in known:
        check(ns >= best["iteration_ns"],
              f"{what} is faster than the plan's {best['iteration_ns']}")
        check(ns >= what["lower_bound_ns"], f"{what} is below its bound")
    seen = run("simulate", "two.json", "--json")
    check(json.loads(seen.stdout)["makespan_s"] == best["makespan_ns"] / 1e9,
          "what is simulated is not what was planned")


# Other microbatch sizes divide differently but also exceed the memory. Sizes
# that do not divide are listed first.
@test
def memory_is_named_where_it_is_the_cause():
    write("job.yaml", """longhaul: job/1
model: llama3-70b
training: {global_batch: 72, sequence: 8192, recompute: none, zero: 1}
cluster:
  gpu: {tflops: 989, memory_gib: 60, memory_gbps: 3350}
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: a, nodes: 8}]
layout: {schedule: interleaved-1f1b, tensor: 4, pipeline: 8, context: 1}
""")
    said = run("plan", "job.yaml", "--no-optimal", "--search", "even")
    check(said.returncode == 1 and
          re.search(r"micro_batch \d+\): interleaved-1f1b: device \d+ needs "
                    r"memory [\d.]+ GiB, its limit is 56\.4 GiB", said.stderr),
          said.stderr)


# Jitter does not change the order of methods for passes of a few milliseconds.
@test
def choices_under_jitter_have_the_units_of_their_times():
    write("job.yaml", """longhaul: job/1
model: {layers: 3, hidden: 256, ffn: 1024, heads: 4, vocab: 5000}
training: {global_batch: 6, sequence: 512}
cluster:
  gpu: {name: lab, tflops: 120, memory_gib: 24, memory_gbps: 864,
        efficiency: 0.5}
  gpus_per_node: 3
  node_link: {gbps: 256, latency_us: 5}
  fabric: {gbps: 50, latency_us: 5}
  datacenters: [{name: a, nodes: 1}, {name: b, nodes: 1}]
  links: [{between: [a, b], latency_ms: 0.5, gbps: 10}]
""")
    said = run("plan", "job.yaml", "--jitter", "latency=1", "-o", "plan.json")
    text = " ".join(said.stdout.split())
    check(re.search(r"why the lowest mean under jitter: the plan that is "
                    r"fastest without jitter takes [\d.]+ ms with it, "
                    r"\d+\.\d % more, and [\d.]+ ms "
                    r"without, \d+\.\d % less", text), said.stdout)


# A small effort ends the search for alternatives; none of these was infeasible.
@test
def choices_untried_under_jitter_have_a_reason():
    write("job.yaml", """longhaul: job/1
model: llama3-70b
training: {global_batch: 128, sequence: 4096}
cluster:
  gpu: a100-80g
  gpus_per_node: 4
  node_link: {gbps: 2400, latency_us: 3}
  fabric: {gbps: 200, latency_us: 5}
  datacenters: [{name: oslo, nodes: 2}, {name: turin, nodes: 2}]
  links:
    - {from: oslo, to: turin, latency_ms: 14.5, gbps: 100}
    - {from: turin, to: oslo, latency_ms: 14.5, gbps: 40}
""")
    said = run("plan", "job.yaml", "--jitter",
               "latency=0.2,degraded=0.01x3,straggler=0.01x1.5", "--samples",
               "100", "--effort", "100", "-o", "plan.json")
    check(said.returncode == 0, said.stderr)
    robust = json.loads(read("plan.json"))["robust"]
    text = " ".join(said.stdout.split())
    check(robust["untried"] == 0 and not robust["complete"], f"{robust}")
    check("; the search ended before all layouts that may be better were "
          "evaluated" in text and "too many" not in text, said.stdout)


@test
def layouts_with_other_layers_are_not_called_this_layout():
    write("job.yaml", """longhaul: job/1
model: {layers: 9, hidden: 512, ffn: 2048, heads: 8, vocab: 40000}
training: {global_batch: 12, sequence: 1024}
cluster:
  gpu: {name: lab, tflops: 120, memory_gib: 24, memory_gbps: 864,
        efficiency: 0.5}
  gpus_per_node: 2
  node_link: {gbps: 256, latency_us: 5}
  fabric: {gbps: 50, latency_us: 5}
  datacenters: [{name: a, nodes: 1}, {name: b, nodes: 1}]
  links: [{between: [a, b], latency_ms: 2, gbps: 10}]
layout: {tensor: 1, context: 1, pipeline: 4, data: 1, micro_batch: 1,
         chunks_per_device: 2}
""")
    said = run("plan", "job.yaml", "--effort", "2000", "--what-if",
               "latency=x2,x8,bandwidth=x0.1", "-o", "plan.json")
    check(said.returncode == 0, said.stderr)
    plan = json.loads(read("plan.json"))
    rows = said.stdout[said.stdout.index("What-if: other link values"):]
    differ = [a for a in plan["what_if"]
              if a["best"].get("chunk_layers") != plan.get("chunk_layers") and
              a["best"]["layout"]["sites"] == plan["layout"]["sites"]]
    check(differ and rows.count("these degrees with another layer partition") ==
          len(differ), said.stdout)


# Only the order of datacenters in the pipeline is open.
@test
def layouts_on_other_sites_are_distinguished():
    write("job.yaml", """longhaul: job/1
model: llama3-8b
training: {global_batch: 32, sequence: 4096, zero: 1, recompute: none}
cluster:
  gpu: h100-sxm
  gpus_per_node: 4
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters:
    - {name: west, nodes: 1}
    - {name: mid, nodes: 1}
    - {name: east, nodes: 2, gpu: a100-40g}
  links:
    - {between: [west, east], latency_ms: 20, gbps: 400}
    - {between: [west, mid], latency_ms: 2, gbps: 400}
    - {between: [mid, east], latency_ms: 2, gbps: 400}
layout: {tensor: 4, pipeline: 4, data: 1, micro_batch: 1, context: 1,
         chunks_per_device: 1, outermost: pipeline, schedule: 1f1b}
""")
    said = run("plan", "job.yaml", "-o", "plan.json")
    check(said.returncode == 0, said.stderr)
    rows = re.search(r"^alternatives .*\n((?: .*\n)+?) +upper limits: ",
                     said.stdout, re.M)
    lines = [line.strip() for line in rows.group(1).splitlines()]
    check(len(lines) >= 4, said.stdout)
    check(all("PP-out" in line for line in lines[0::2]), said.stdout)
    check(all(">" in line and line.startswith("pipeline ")
              for line in lines[1::2]), said.stdout)
    check(len(set(lines[1::2])) == len(lines) // 2, said.stdout)


ONE = """longhaul: job/1
model: {layers: 8, hidden: 1024, ffn: 4096, heads: 8, kv_heads: 8, head_dim:
        128, vocab: 32000, gated: true, tied_embeddings: false}
training: {global_batch: 32, sequence: 2048, precision: bf16, optimizer: adamw,
           recompute: none, zero: 1}
cluster:
  gpu: h100-sxm
  gpus_per_node: 2
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters:
    - {name: west, nodes: 2}
    - {name: east, nodes: 2}
  links:
    - {between: [west, east], latency_ms: 20, gbps: 10}
layout: {tensor: 2, context: 1, pipeline: 2, data: 2, micro_batch: 1,
         chunks_per_device: 1, outermost: data, sharding: full, schedule: %s}
"""


@test
def one_is_not_many():
    write("one.yaml", ONE % "1f1b")
    said = run("plan", "one.yaml", "--jitter", "latency=1", "--samples", "5",
               "--no-optimal", "--show", "all", "-o", "one.json")
    check(said.returncode == 0, said.stderr)
    text = " ".join(said.stdout.split())
    check("among 1 schedule of 1 layout " in text, said.stdout)
    check("all of 1 layout simulated" in text, said.stdout)
    write("groups.yaml", (ONE % "elastic").replace(" recompute: none, zero: 1",
                                                   " zero: 1"))
    said = run("plan", "groups.yaml", "--show", "all", "-o", "groups.json")
    check(said.returncode == 0, said.stderr)
    text = " ".join(said.stdout.split())
    for x, y in re.findall(r"groups? of (\d+) to (\d+) microbatches", text):
        check(int(x) < int(y), f"{x} to {y}: {said.stdout}")
    check(re.search(r"\d+ groups? of \d+", text), said.stdout)


# The time limit suffices for the plan, but not for iterations of alternatives.
@test
def others_without_iterations_are_counted():
    write("time.yaml", (ONE % "auto").replace(" recompute: none, zero: 1",
                                              " zero: 1").replace(
        ", schedule: auto", "").replace(" chunks_per_device: 1,", ""))
    said = run("plan", "time.yaml", "--jitter", "latency=1", "--samples",
               "20000", "--time", "0.05", "--show", "all", "-o", "time.json")
    check(said.returncode == 0, said.stderr)
    others = [a for a in json.loads(read("time.json"))["alternatives"]
              if a["status"] == "ok"]
    n = sum("jitter" not in a for a in others)
    # How many others there are depends on how far the search comes.
    if n and n == len(others):
        line = re.search(r"^alternatives +(.*)$", said.stdout, re.M).group(1)
        check(line == f"none sampled with jitter; {n} without: --show layouts",
              line)


PIPELINE = """longhaul: pipeline/1
time_unit: us
microbatches: 4
devices: 2
backward: split
uniform: {placement: ud, chunks_per_device: 1, F: 100000, D: %d, W: 100000}
"""


# A difference that rounds to zero has no minus sign.
@test
def zero_has_no_minus_sign():
    for name, backward in ("predicted", 200000), ("measured", 199999):
        write(f"{name}.yaml", PIPELINE % backward)
        said = run("simulate", f"{name}.yaml", "-s", "1f1b", "--trace",
                   f"{name}.json")
        check(said.returncode == 0, said.stderr)
    said = run("report", "--predicted", "predicted.json", "--measured",
               "measured.json")
    check(said.returncode == 0, said.stderr)
    check(" +0.00 %" in said.stdout and "-0.0" not in said.stdout,
          said.stdout)


TIED = """longhaul: job/1
model: qwen3-30b-a3b
training: {global_batch: 32, sequence: 8192}
framework: {preset: %s}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: a, nodes: 2}]
layout: {micro_batch: 1, expert: 8, context: 1, chunks_per_device: 1}
"""


@test
def layouts_within_the_accuracy_are_ties():
    """Closest to practice is a layout without full recomputation, then the
    smallest tensor x pipeline degree, then the fewest stages; the plan stays
    the fastest. Without accuracy there are no ties."""
    args = ("plan", "job.yaml", "--no-optimal", "--search", "even")
    write("job.yaml", TIED % "megatron")
    text = " ".join(run(*args).stdout.split())
    plan = json.loads(run(*args, "--json", "--top", "1000").stdout)
    most = plan["iteration_ns"] * (1 + plan["accuracy"]["mean_percent"] / 100)
    ties = [a for a in plan["alternatives"]
            if a["status"] == "ok" and a["iteration_ns"] <= most]
    closest = min(ties, key=lambda a: (
        a["recompute"] == "full",
        a["layout"]["tensor"] * a["layout"]["pipeline"],
        a["layout"]["pipeline"]))
    check(closest["layout"]["pipeline"] < plan["layout"]["pipeline"], ties)
    check(plan["ties"] == {"layouts": len(ties),
                           "practice": {**closest, "why": ""}}, plan["ties"])
    few = json.loads(run(*args, "--json", "--top", "1").stdout)
    check(few["ties"] == plan["ties"], few["ties"])
    check(f" practice {closest['iteration_s']:.3f} s (+" in text and
          f"within the error), the most usual of {len(ties)} tie" in text, text)
    write("job.yaml", (TIED % "megatron").replace(
        "gpu: h100-sxm", "gpu: {preset: h100-sxm, efficiency: 0.4}"))
    check("\npractice " not in run(*args).stdout, "ties without accuracy")


@test
def accuracy_names_its_runs_and_what_they_do_not_cover():
    """docs/validation.md: dense runs of DeepSpeed used A100, 2,048 tokens and
    one site; those of Megatron-LM in 16 bits A100 and H100; hybrid models ran
    in FP8 alone. An efficiency has no accuracy, nor have plans for longhaul's
    engine, which trains on processors. Two lines name the first properties that
    no run has, and the number of others."""
    job = """longhaul: job/1
model: llama3-8b
training: {global_batch: 64, sequence: %s}
framework: {preset: %s%s}
cluster:
  gpu: %s
  gpus_per_node: 8
  node_link: {gbps: 2400, latency_us: 3}
  fabric: {gbps: 200, latency_us: 8}
  datacenters: [%s]
  links: [%s]
layout: {tensor: 2, pipeline: 2, context: 1, chunks_per_device: 1}
"""
    site, link = "{name: %s, nodes: %s}", "{between: [a, b], gbps: 100, latency_ms: 5}"
    two = (site % ("a", 4) + ", " + site % ("b", 4), link)
    one = (site % ("a", 8), "")
    for values, kind, outside in (
            ((2048, "deepspeed", "", "a100-80g", *one),
             "dense models under DeepSpeed", None),
            ((8192, "deepspeed", "", "h100-sxm", *two),
             "dense models under DeepSpeed",
             "h100-sxm, 2 datacenters, 8192-token sequences"),
            ((8192, "deepspeed", ", fp8: matmul", "h100-sxm", *two),
             "dense models under DeepSpeed", "products in FP8, h100-sxm, "
             "2 datacenters, 8192-token sequences"),
            ((4096, "megatron", "", "h100-sxm", *one),
             "dense models under Megatron", None),
            ((1024, "megatron", ", fp8: matmul", "h100-sxm", *one),
             "dense models in FP8 under Megatron", "1024-token sequences"),
            ((4096, "none", "", "h100-sxm", *one),
             "dense models, predicted without framework options", None),
            ((4096, "megatron", "", "{preset: h100-sxm, efficiency: 0.5}", *one),
             None, None)):
        write("job.yaml", job % values)
        args = ("plan", "job.yaml", "--no-optimal", "--search", "even")
        plan = json.loads(run(*args, "--json").stdout)
        has = plan.get("accuracy", {"kind": None})
        check(has["kind"] == kind and has.get("outside") == outside, has)
        lines = run(*args).stdout
        text = " ".join(lines.split())
        row = lines[lines.index("\naccuracy ") + 1:].splitlines()
        check(len(row) > 2 and row[2][0] != " ", "over two lines: " + lines)
        shown = outside
        if outside and outside.startswith("products"):
            shown = "products in FP8, h100-sxm and 2 more (--json)"
        check((f"; none with {shown} " in text) == bool(outside), text)
        check((f"published runs of {kind}" in text) == bool(kind), text)
        check((" accuracy unknown: a profile or an efficiency replaces modelled "
               "times " in text) != bool(kind), text)
    write("job.yaml", job % (4096, "none", "", "h100-sxm", *one))
    case("engine", ["plan", "job.yaml", "--for", "longhaul", "--no-optimal",
                    "--search", "even"], out=r"\naccuracy +unknown: no published "
         r"run is of\s+this program ")


@test
def ties_prefer_tensor_parallelism_for_short_sequences():
    """Context parallelism is recommended from 8,192 tokens on."""
    job = """longhaul: job/1
model: llama3-8b
training: {global_batch: 64, sequence: %d, recompute: none, zero: 1}
framework: {preset: megatron}
cluster:
  gpu: {preset: h100-sxm, memory_gib: 200}
  gpus_per_node: 8
  node_link: {gbps: %d, latency_us: 1}
  datacenters: [{name: a, nodes: 1}]
layout: {micro_batch: 2, pipeline: 1, data: 4, chunks_per_device: 1}
"""
    for sequence, gbps, ties in (4096, 2400, True), (8192, 3600, False):
        write("job.yaml", job % (sequence, gbps))
        text = " ".join(run("plan", "job.yaml", "--no-optimal",
                            "--search", "even").stdout.split())
        check("TP 1 (tensor), CP 2 (context)" in text, text)
        check((" practice " in text) == ties, text)
        check(("the most usual of 1 tie: TP 2 PP" in text) == ties, text)


finish()
