#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plan search respects the constraints of a job."""
import functools
import json
import re

from harness import (ROOT, check, finish, has_few_cases, long_test, run, test,
                     write)

JOB = """longhaul: job/1
model: llama3-70b
training: {{global_batch: 512, sequence: 8192}}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{{name: west, nodes: 16}}, {{name: east, nodes: 16}}]
  links: [{{between: [west, east], latency_ms: 20, gbps: 800}}]
layout:
  {}
"""
LINE = JOB.count("\n")  # keys of the layout


# All other keys are open: hundreds of thousands of layouts, all infeasible.
@test
def schedules_that_chunks_do_not_suit_are_refused():
    for schedule, chunks, needs in (
            ("1f1b", 2, "one chunk"),
            ("slack", 8, "one chunk"),
            ("interleaved-1f1b", 1, "two or more chunks"),
            ("zb-v", 1, "two chunks"),
            ("zb-v", 4, "two chunks"),
            ("interleaved-zbv", 3, "one or two chunks")):
        write("job.yaml", JOB.format(f"{{schedule: {schedule}, "
                                     f"chunks_per_device: {chunks}}}"))
        said = run("plan", "job.yaml", "-o", "plan.json")
        check(said.returncode == 1 and said.stdout == "",
              f"{schedule}, {chunks}: {said}")
        check(said.stderr == f"longhaul: job.yaml:{LINE}: layout.schedule: "
              f"'{schedule}' requires {needs} per device, but "
              f"chunks_per_device is {chunks}; remove one of them\n",
              f"{schedule}, {chunks}: {said.stderr}")


# With offloading B is one pass, for any placement.
@test
def schedules_that_split_offloaded_backwards_are_rejected():
    for schedule in "zb-h1", "zb-v", "dorapp", "slack":
        write("job.yaml", JOB.format(f"{{schedule: {schedule}, pipeline: 1}}")
              .replace("training: {", "training: {offload: 0.5, "))
        said = run("plan", "job.yaml", "-o", "plan.json")
        check(said.returncode == 1 and said.stdout == "", f"{schedule}: {said}")
        check(said.stderr == f"longhaul: job.yaml:{LINE}: layout.schedule: "
              f"'{schedule}' requires separate D and W passes, but offloading "
              "joins them into B; remove training.offload, or use another "
              "schedule\n", f"{schedule}: {said.stderr}")


# The error has the line of the file, not of the derived pipeline.
@test
def unknown_schedules_are_refused_where_they_stand():
    write("job.yaml", JOB.format("{tensor: 8,\n   schedule: zb-x}"))
    said = run("plan", "job.yaml", "-o", "plan.json")
    check(said.stderr.startswith(f"longhaul: job.yaml:{LINE + 1}: "
                                 "layout.schedule: unknown method 'zb-x'"),
          said.stderr)


# There are millions of layouts.
LARGE = """longhaul: job/1
model: deepseek-v3
training: {global_batch: 4096, sequence: 4096}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: west, nodes: 64}, {name: east, nodes: 64}]
  links: [{between: [west, east], latency_ms: 35, gbps: 800}]
"""
PLAN = ["plan", "job.yaml", "--no-optimal", "--search", "even"]


def plan_large(*options):
    write("job.yaml", LARGE)
    said = run(*PLAN, *options, "--json")
    check(said.returncode == 0, said.stderr)
    return said.stdout


# Bounds prune little here, so the search is not exhaustive: fused experts have
# no fixed times, which every bound contains.
OPEN = """longhaul: job/1
model: {layers: 34, hidden: 1024, ffn: 2816, heads: 8, kv_heads: 8,
        vocab: 128256, gated: true, experts: 64, experts_per_token: 1,
        expert_ffn: 512, shared_expert_ffn: 512}
training: {global_batch: 8, sequence: 4096}
framework: {experts: fused}
cluster:
  gpus_per_node: 4
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 367.5, latency_us: 8}
  gpu: {tflops: 989.5, memory_gib: 13.4, memory_gbps: 3350}
  datacenters: [{name: a, nodes: 2}, {name: b, nodes: 2}, {name: c, nodes: 3}]
  links: [{between: [a, b], latency_ms: 0.8, gbps: 291.8},
          {between: [a, c], latency_ms: 1.6, gbps: 145.9},
          {between: [b, c], latency_ms: 3.2, gbps: 291.8}]
"""


@functools.cache
def plan_open(effort):
    write("job.yaml", OPEN)
    said = run(*PLAN, "--effort", effort, "--json")
    check(said.returncode == 0, said.stderr)
    return said.stdout


UNEQUAL = """longhaul: job/1
model: qwen2.5-72b
training: {global_batch: 128, sequence: 4096}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: a, nodes: 4}, {name: b, nodes: 3}, {name: c, nodes: 1}]
  links: [{between: [a, b], latency_ms: 10, gbps: 200},
          {between: [a, c], latency_ms: 25, gbps: 100},
          {between: [b, c], latency_ms: 30, gbps: 100}]
layout: {schedule: 1f1b, outermost: pipeline%s}
"""


# With schedule and outermost dimension given, the search once returned a plan
# six times as slow as with two degrees given as well.
@test
def degrees_that_are_given_beside_a_schedule_gain_nothing():
    times = []
    for more in "", ", tensor: 2, pipeline: 16":
        write("job.yaml", UNEQUAL % more)
        said = run(*PLAN, "--effort", "400", "--json")
        check(said.returncode == 0, said.stderr)
        times.append(json.loads(said.stdout)["iteration_s"])
    check(times[0] <= 1.005 * times[1], f"open and given: {times}")


THREE_KINDS = """longhaul: job/1
model: deepseek-v3
training: {global_batch: 1536, sequence: 4096, dispatcher: deepep}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: a, nodes: 48}, {name: b, nodes: 24, gpu: h200},
                {name: c, nodes: 16, gpu: b200}]
  links: [{between: [a, b], latency_ms: 8, gbps: 1600},
          {between: [a, c], latency_ms: 14, gbps: 800},
          {between: [b, c], latency_ms: 21, gbps: 400}]
layout: {%s}
"""


# The first plan needed seventeen times the available memory, and bounds pruned
# nothing: a small effort returned a plan a third slower than with the pipeline
# given.
@long_test
def a_bad_beginning_is_left_with_little_work():
    times = []
    for given in "", "pipeline: 11":
        write("job.yaml", THREE_KINDS % given)
        said = run(*PLAN[:3], "--effort", "400", "--json")
        check(said.returncode == 0, said.stderr)
        times.append(json.loads(said.stdout)["iteration_s"])
    check(times[0] <= 1.005 * times[1], f"open and given: {times}")


# Equal effort gives equal plans; less effort evaluates fewer layouts. Parts
# that are independent of the effort are always present.
@test
def effort_limits_the_search_over_layouts():
    first = plan_open("400")
    if not has_few_cases():
        check(first == plan_open("13333"), "less than the least work is less")
    less, more = json.loads(first), json.loads(plan_open("40000"))
    left = less["search"]["left"]
    check(left > more["search"]["left"] > 10000, f"{left} were left")
    between = more if has_few_cases() else json.loads(plan_open("20000"))
    times = [plan["iteration_ns"] for plan in (less, between, more)]
    check(times == sorted(times, reverse=True), f"a worse plan: {times}")
    page = (ROOT / "docs/theory/plan-search.md").read_text()
    known = set(re.findall(r"^\| `([a-z-]+)`", page, re.M)) | {"pipeline"}
    for plan in less, more:
        check(plan["search"]["pruned"].keys() <= known,
              f"{plan['search']['pruned']}: the page has {known}")
    check(re.match(rf"best found; {left} layouts( and elastic plans on \d+)? "
                   r"not explored; at most \d+\.\d % faster is possible; ",
                   less["why"]),
          less["why"])


# Built pipelines are in a queue for simulation. A lower bound below the
# incumbent does not prove that a layout is dearer.
@test
def unsimulated_layouts_are_not_called_dearer():
    write("job.yaml", OPEN)
    plan = json.loads(run(*PLAN[:3], "--effort", "20000", "--top", "9999",
                          "--objective", "cost", "--gpu-hour", "2",
                          "--json").stdout)
    waited = [a for a in plan["alternatives"] if a["status"] == "bounded" and
              a["lower_bound_ns"] < plan["iteration_ns"]]
    check(waited, "nothing was left that may win")
    for other in waited:
        check(re.match(r"not simulated when the search ended; its lower bound "
                       r"does not rule it out: |more "
                       r"expensive even by the lower bound of",
                       other["why"]), other["why"])
    check(any("does not rule it out" in a["why"] for a in waited), waited[0])


# A row is proven, or states that it is not: a plan with the value fixed may
# then be better.
@test
def unproven_alternatives_are_marked():
    plan = json.loads(plan_open("400"))
    rows = [r for r in plan["runners_up"] if "least_s" in r]
    open_ = [r for r in rows if r["least_s"] < r["choice"]["iteration_s"]]
    check(open_, "all of them are proven")
    for row in rows:
        marked = re.search(r"best found|by quick evaluation|or more",
                           row["choice"]["why"])
        check(bool(marked) == (row in open_), row)
    write("job.yaml", OPEN)
    said = run(*PLAN, "--effort", "400", "--show", "dimensions").stdout
    check(" best found " in said and "'Best found': a search with this value" in said,
          said)


# With two datacenters layouts that fit have no such placement. The reason must
# not be the memory of other layouts.
@test
def a_mixed_layout_without_places_is_not_refused_for_memory():
    write("job.yaml", (ROOT / "examples/llama3-8b-gcp-regions.yaml").read_text()
          + "layout: {outermost: mixed}\n")
    said = run(*PLAN, "--effort", "2000")
    check(said.returncode != 0 and
          "layout.outermost: mixed requires" in said.stderr and
          "more memory" not in said.stderr, said.stderr)


# Prints the possible speed-up of any plan, and the slowdown of alternatives.
@test
def an_elastic_plan_names_the_compared_plan():
    job = str(ROOT / "examples/llama3-70b-elastic.yaml")
    plan = json.loads(run("plan", job, "--no-optimal", "--effort", "400000",
                          "--json").stdout)
    check(plan["layout"]["schedule"] == "elastic", plan["layout"])
    gap = 100 * plan["search"]["gap"]
    said = re.match(r"best found, all of \d+ layouts? simulated or pruned with "
                    r"even chunks; at most "
                    r"(\d+\.\d) % faster is possible .*; \d+\.\d % faster "
                    "than the best non-elastic plan: ", plan["why"])
    check(said and abs(float(said[1]) - gap) < 0.06, plan["why"])
    check(plan["search"]["elastic"] == 1, plan["search"])
    # Elastic plans with other values are not searched.
    others = [r for r in plan["runners_up"] if "elastic" not in r["choice"] and
              r["dimension"] != "schedule"]
    check(others, "nothing stands beside it")
    for runner in others:
        check(runner.get("first_sight") and
              "by quick evaluation" in runner["choice"]["why"] or
              "or more" in runner["choice"]["why"], runner)


@test
def a_plan_reports_the_time_limit_of_its_search():
    plan = json.loads(plan_large("--time", "0.1"))
    left = plan["search"]["left"]
    check(left > 100000, f"{left} were left")
    check(f"best found within the time limit; {left} layouts" in plan["why"],
          plan["why"])


SMALL = """longhaul: job/1
model: {layers: 16, hidden: 2048, ffn: 8192, heads: 16, vocab: 32000}
training: {global_batch: 64, sequence: 4096}
cluster:
  gpu: a100-80g
  gpus_per_node: 4
  node_link: {gbps: 2400, latency_us: 3}
  fabric: {gbps: 200, latency_us: 8}
  datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2}]
  links: [{between: [west, east], latency_ms: 10, gbps: 100}]
"""


# No plan costs less than the proven bound, for any objective.
@test
def the_cheapest_plan_has_a_cost_gap():
    prices = ["--gpu-hour", "2", "--per-gb", "0.02", "--search", "even"]
    paid = []
    layouts = ("", "layout: {pipeline: 2}\n", "layout: {tensor: 4}\n")
    for layout in layouts[:2] if has_few_cases() else layouts:
        write("job.yaml", SMALL + layout)
        for objective in ("time", "cost"):
            said = run("plan", "job.yaml", "--no-optimal", *prices, "--json",
                       "--objective", objective, "--effort", "4000")
            plan = json.loads(said.stdout)
            paid.append(plan["cost"]["usd"])
            bound = plan["search"].get("lower_bound_usd")
            check((bound is None) == (objective == "time"), plan["search"])
            if bound is None or layout:
                continue
            part = re.search(r"at most (\d+\.\d) % cheaper is possible",
                             plan["why"])
            left = 100 * (1 - bound / paid[-1])
            # This is the cheapest plan, up to the rounding to 0.1 %.
            check(abs(float(part[1]) - left) < 0.06 if part else
                  left < 0.05 and plan["why"].startswith("the cheapest of "),
                  plan["why"])
            least = bound
    check(0 < least <= min(paid), f"{least} is not below {paid}")


# Plans that take many times as long are omitted, and the output states this.
@long_test
def a_front_omits_slow_plans():
    write("job.yaml", SMALL + "layout: {context: 1, micro_batch: 1}\n")
    front = ["plan", "job.yaml", "--no-optimal", "--search", "even", "--json",
             "--effort", "1000", "--gpu-hour", "2", "--pareto"]
    some, more = (json.loads(run(*front, *limit).stdout)
                  for limit in (("--pareto-times", "1.2"),
                                ("--pareto-times", "1000")))
    times = [x["iteration_ns"] for x in some["front"]]
    check(max(times) <= 1.2 * min(times), times)
    check(some["front_slow"] > 0 and "front_slow" not in more, "none is slow")
    check(len(more["front"]) == len(times) + some["front_slow"],
          f"{len(more['front'])} in all")


# A fast GPU takes 22 of 24 layers: with at most three times the layers of a
# slow one it is faster alone.
@test
def slow_gpus_take_few_layers():
    write("mixed.yaml", """longhaul: job/1
model: {layers: 24, hidden: 512, ffn: 2048, heads: 8, vocab: 512}
training: {global_batch: 32, sequence: 1024}
cluster:
  gpus_per_node: 1
  fabric: {gbps: 100, latency_us: 5}
  datacenters:
    - {name: fast, nodes: 1, gpu: {tflops: 100, memory_gib: 40, memory_gbps: 2000}}
    - {name: slow, nodes: 1, gpu: {tflops: 10, memory_gib: 40, memory_gbps: 200}}
  links: [{between: [fast, slow], latency_ms: 0.01, gbps: 100}]
layout: {tensor: 1, context: 1}
""")
    free, third = (json.loads(run("plan", "mixed.yaml", "--json", *more).stdout)
                   for more in ((), ("--max-chunk-ratio", "3")))
    check(free["chunk_layers"] == [22, 2], free["chunk_layers"])
    check(third["layout"]["pipeline"] == 1, third["layout"])
    check(free["iteration_s"] < 0.95 * third["iteration_s"],
          f"{free['iteration_s']} s, {third['iteration_s']} s")


# Every additional output of the plan respects the limit, too.
@test
def a_clock_ends_every_part_of_a_plan():
    write("job.yaml", LARGE)
    args = ("plan", "job.yaml", "--time", "1", "--pareto", "--what-if",
            "latency=x2", "--sensitivity", "--gpu-hour", "2", "--json")
    # Under --jitter the reason may be that of another plan than the fastest.
    jitter = ("--jitter", "latency=0.5")
    for more in (jitter,) if has_few_cases() else ((), jitter):
        said = run(*args, *more)
        check(said.returncode == 0, said.stderr)
        plan = json.loads(said.stdout)
        left = plan["search"]["left"]
        check(left > 100000, f"{left} were left")
        check(more or f"best found within the time limit; {left} layouts" in
              plan["why"], plan["why"])
        check(plan["what_if"] and plan["front"] and plan["sensitivity"] and
              bool(more) == ("robust" in plan), plan.keys())


finish()
