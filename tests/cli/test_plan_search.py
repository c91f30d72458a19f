#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the search of a plan does with what a job asks for."""
import json
import re

from harness import ROOT, check, finish, run, test, write

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
LINE = JOB.count("\n")  # of the layout's keys


# All else is open: hundreds of thousands of layouts, none of which works.
@test
def schedules_that_chunks_do_not_suit_are_refused():
    for schedule, chunks, needs in (
            ("1f1b", 2, "one chunk"),
            ("slack", 8, "one chunk"),
            ("interleaved-1f1b", 1, "two chunks or more"),
            ("zb-v", 1, "two chunks"),
            ("zb-v", 4, "two chunks"),
            ("interleaved-zbv", 3, "one chunk or two")):
        write("job.yaml", JOB.format(f"{{schedule: {schedule}, "
                                     f"chunks_per_device: {chunks}}}"))
        said = run("plan", "job.yaml", "-o", "plan.json")
        check(said.returncode == 1 and said.stdout == "",
              f"{schedule}, {chunks}: {said}")
        check(said.stderr == f"longhaul: job.yaml:{LINE}: layout.schedule: "
              f"'{schedule}' needs {needs} on each device, and "
              f"chunks_per_device is {chunks}; leave one of them out\n",
              f"{schedule}, {chunks}: {said.stderr}")


# The line is that of the file, not of what is made of it.
@test
def unknown_schedules_are_refused_where_they_stand():
    write("job.yaml", JOB.format("{tensor: 8,\n   schedule: zb-x}"))
    said = run("plan", "job.yaml", "-o", "plan.json")
    check(said.stderr.startswith(f"longhaul: job.yaml:{LINE + 1}: "
                                 "layout.schedule: there is no method 'zb-x'"),
          said.stderr)


# Millions of layouts.
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


# The same work, the same plan; less of it, and less is looked at.
@test
def effort_limits_the_search_over_layouts():
    first, again = (plan_large("--effort", "400") for _ in range(2))
    check(first == again, "the same effort made two plans")
    less, more = json.loads(first), json.loads(plan_large("--effort", "4000"))
    left = less["search"]["left"]
    check(left > more["search"]["left"] > 100000, f"{left} were left")
    check(less["iteration_ns"] >= more["iteration_ns"], "more work, worse plan")
    check(re.match(rf"best found; {left} layouts( and elastic plans on \d+)? "
                   r"not looked at; at most \d+\.\d % faster is possible; ",
                   less["why"]),
          less["why"])


# What is built waits for its simulation; a bound below the best does not say
# that it is slower.
@test
def what_was_not_simulated_is_not_called_slower():
    job = str(ROOT / "examples/llama3-70b-two-sites.yaml")
    plan = json.loads(run("plan", job, *PLAN[2:], "--effort", "5000", "--top",
                          "9999", "--json").stdout)
    waited = [a for a in plan["alternatives"] if a["status"] == "bounded" and
              a["lower_bound_ns"] < plan["iteration_ns"]]
    check(waited, "nothing was left that may win")
    for other in waited:
        check(re.match(r"not simulated when the search ended; at most \d+\.\d "
                       "% faster by its lower bound: ", other["why"]),
              other["why"])


# How much faster any plan could be, and how much slower others are.
@test
def an_elastic_plan_says_what_it_was_compared_with():
    job = str(ROOT / "examples/llama3-70b-elastic.yaml")
    plan = json.loads(run("plan", job, "--no-optimal", "--json").stdout)
    check(plan["layout"]["schedule"] == "elastic", plan["layout"])
    gap = 100 * plan["search"]["gap"]
    said = re.match(r"the fastest of \d+ layouts under every schedule; at most "
                    r"(\d+\.\d) % faster is possible .*; \d+\.\d % faster "
                    "than the best of other schedules: ", plan["why"])
    check(said and abs(float(said[1]) - gap) < 0.06, plan["why"])
    check(plan["search"]["elastic"] == 1, plan["search"])


@test
def a_plan_says_that_a_clock_ended_its_search():
    plan = json.loads(plan_large("--time", "0.1"))
    left = plan["search"]["left"]
    check(left > 100000, f"{left} were left")
    check("best found in 0.1 s of processor time; "
          f"{left} layouts" in plan["why"], plan["why"])


finish()
