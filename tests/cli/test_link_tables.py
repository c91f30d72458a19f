#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What-if and alternatives in plans: the rows of all tables are complete and
consistent with each other.
"""
import json
import os
import re

from harness import (case, check, finish, has_few_cases, long_test, read, run,
                     test, write)

JOB = """longhaul: job/1
model: {layers: 12, hidden: 1024, ffn: 4096, heads: 8, kv_heads: 8,
        head_dim: 128, vocab: 32000, gated: true, tied_embeddings: false,
        experts: 8, experts_per_token: 2, expert_ffn: 1024}
training: {global_batch: 32, sequence: 2048}
cluster:
  gpu: h100-sxm
  gpus_per_node: 2
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters:
   - {name: a, nodes: 2}
   - {name: b, nodes: 2}
   - {name: c, nodes: 1}
  links:
   - {between: [a, b], latency_ms: 5, gbps: 200}
   - {between: [a, c], latency_ms: 5, gbps: 200}
   - {between: [b, c], latency_ms: 5, gbps: 200}
"""
SHORT = ["--no-optimal", "--search", "even", "-q"]
LATENCIES = ([0.5, 8, 64] if has_few_cases() else
             [0.5, 1, 2, 4, 8, 16, 24, 32, 48, 64])
WHAT_IF = ["--what-if", "latency=" + ",".join(map(str, LATENCIES))]


@test
def less_latency_is_never_slower_in_a_table():
    """The tolerance is for short searches, each of which misses some plans."""
    write("job.yaml", JOB)
    done = run("plan", "job.yaml", *SHORT, *WHAT_IF, "--json", "--effort", 200)
    check(done.returncode == 0, done.stderr)
    times = [row["best"]["iteration_s"]
             for row in json.loads(done.stdout)["what_if"]]
    check(len(times) == len(LATENCIES) and times == sorted(times), times)


@test
def lists_of_their_own_have_cases_of_their_own():
    write("job.yaml", JOB + "layout: {tensor: 1, context: 1, pipeline: 5}\n")
    for given in (["latency=20,40;a-b.bandwidth=x2,bandwidth=/2"],
                  ["latency=20,40", "a-b.bandwidth=x2,bandwidth=/2"]):
        asked = [word for text in given for word in ("--what-if", text)]
        done = run("plan", "job.yaml", *SHORT, *asked, "--json", "--effort",
                   200)
        check([row["links"] for row in json.loads(done.stdout)["what_if"]] ==
              ["latency=20", "latency=40", "a-b.bandwidth=x2,bandwidth=x0.5"],
              done.stdout[:300])


@test
def others_are_behind_the_plan_that_there_is():
    """Optimal schedules make the plan faster, and thus the relative slowdown of
    the alternatives larger."""
    write("job.yaml", """
        longhaul: job/1
        model: llama3-8b
        training: {global_batch: 32, sequence: 4096}
        cluster:
          gpu: h200
          gpus_per_node: 8
          node_link: {gbps: 3600, latency_us: 3}
          fabric: {gbps: 400, latency_us: 8}
          datacenters: [{name: a, nodes: 1}, {name: b, nodes: 1}]
          links: [{between: [a, b], latency_ms: 30, gbps: 400}]
        """)
    done = run("plan", "job.yaml", "-q", "--json", "--effort", 20000)
    plan = json.loads(done.stdout)
    told = 0
    for row in plan["alternatives"]:
        said = re.match(r"([-+]\d+\.\d) %[:,]", row["why"])
        if said and row.get("iteration_s"):
            told += 1
            behind = 100 * (row["iteration_s"] / plan["iteration_s"] - 1)
            check(abs(float(said[1]) - behind) < 0.051,
                  f"{row['why']}: {behind:.2f} %")
    check(told > 3, plan["alternatives"])


def rows_of(said, first, last):
    table = said[said.index(first):]
    end = re.search(last, table)
    return table[:end.start()] if end else table


@test
def requested_sections_are_complete():
    """Without --show the requested parts are printed below the screen."""
    write("job.yaml", JOB)
    args = ["plan", "job.yaml", *SHORT, "--effort", "20"]
    front = ["--pareto", "--gpu-hour", "2", "--per-gb", "0.05"]
    for columns in ("80", "100")[has_few_cases():]:
        env = {"COLUMNS": columns}
        said = run(*args, *WHAT_IF, env=env).stdout
        links = rows_of(said, "What-if: other link", r"\n\n|\nplan ")
        check(links.count("\n  latency=") == len(LATENCIES), links)
        said = run(*args, *front, env=env).stdout
        plan = json.loads(read("plan.json"))
        rows = rows_of(said, "Pareto front", r"\n\n|\nplan ")
        for row in [*plan["front"], plan]:
            check(f" {1e3 * row['iteration_s']:.3f} ms " in rows, rows)


@long_test
def requested_sections_do_not_shorten_the_screen():
    write("job.yaml", JOB)
    args = ["plan", "job.yaml", *SHORT, "--effort", "20"]
    plain = run(*args).stdout
    asked = run(*args, *WHAT_IF, "--sensitivity").stdout
    screen = plain[:plain.index("\nplan ")]
    check(asked.startswith(screen), f"{plain}\n{asked}")
    check("\nWhat-if: other link" in asked and
          "\nSensitivity: link values" in asked, asked)


DIMENSIONS = ("tensor", "context", "expert", "pipeline", "data", "sites",
              "zero", "micro_batch", "chunks_per_device", "placement",
              "recompute", "schedule")


@test
def every_dimension_is_there_once_and_every_plan():
    """Rows contain the best value, its proof status and the extent of its
    search."""
    for more in "", "layout: {tensor: 2, context: 1}\n":
        write("job.yaml", JOB + more)
        said = run("plan", "job.yaml", *SHORT, "--effort", "2000", "--show",
                   "dimensions", env={"COLUMNS": "200"}).stdout
        table = rows_of(said, "Best alternative per dimension", r"\nplan ")
        rows = re.findall(r"^  (\S.*?)  +([-+][\d.]* ?%?) +([-+][\d.]+ %|the "
                          r"same) +(quick evaluation|best found|proven|bound "
                          r"only) +(.*)$", table, re.M)
        named = [name.split()[0] for row in rows for name in row[0].split(", ")]
        for label in "given", "no other":
            found = re.search(rf"^  {label} +(.*):", table, re.M)
            named += found[1].split(", ") if found else []
        plan = json.loads(read("plan.json"))
        layout = plan["layout"]
        # The replicas of the plan in several datacenters share their state.
        shards = (plan["zero"] > 0 and layout["data"] > 1 and
                  layout["outermost"] == "data")
        check(sorted(named) == sorted((*DIMENSIONS, *["sharding"] * shards)),
              f"{named}\n{table}")
        shown = [row[4] for row in rows]
        check(len(set(shown)) == len(shown) > 1, f"twice the same\n{table}")
        given = re.search(r"^  given +(.*): fixed by the job", table,
                          re.M)
        check((given and given[1]) == ("tensor, context" if more else None),
              table)


@test
def network_advice_is_on_request():
    write("job.yaml", JOB + "layout: {pipeline: 5}\n")  # on all three sites
    args = ["plan", "job.yaml", *SHORT, "--effort", "200", "--show"]
    shown = ("all,network", True), ("all", False), ("network", True)
    for parts, there in shown[:2] if has_few_cases() else shown:
        said = run(*args, parts).stdout
        check(("\nNetwork\n" in said) == there, said)
        check(("--show network: recommended link settings" in said) != there,
              said)


@long_test
def nothing_is_called_0_0_percent():
    write("job.yaml", JOB)
    for search in SHORT, ["-q"]:
        done = run("plan", "job.yaml", *search, "--effort", "200", "--json")
        why = json.loads(done.stdout)["why"]
        check("more than 0.0 %" not in why, why)


@test
def a_plan_and_compare_have_one_bound():
    """compare may prove higher bounds, never lower ones, also for each
    schedule."""
    write("job.yaml", JOB)
    for effort in ("20000", "200")[has_few_cases():]:
        run("plan", "job.yaml", "-q", "--effort", effort)
        plan = json.loads(read("plan.json"))
        rows = json.loads(run("compare", "plan.json", "--json").stdout)["rows"]
        bounds = {row["lower_bound_s"] for row in rows
                  if row.get("lower_bound_s") and
                  row.get("pipeline", plan["placement"]) == plan["placement"]}
        check(len(bounds) == 1, f"{plan['placement']}: {bounds}, {rows[0]}")
        own = plan["lower_bound_ns"] / 1e9
        check(min(bounds) >= own - 1e-9, f"{bounds}, of the plan {own}")
        said = run("compare", "plan.json").stdout
        printed = re.search(rf"^lower bound(?: {plan['placement']})? +([\d.]+) "
                            r"(m?s) ", said, re.M)
        check(printed and own <= 1.001 * float(printed[1]) *
              {"ms": 1e-3, "s": 1}[printed[2]], f"{own} s in the plan; {said}")


@test
def bounds_are_of_makespans():
    """Minimising the first device's time gives no bound on the makespan."""
    write("far.yaml", """longhaul: pipeline/1
time_unit: ms
microbatches: 12
devices: 4
uniform: {chunks_per_device: 1, F: 10, D: 10, W: 10,
          memory: {F: 1, D: 0, W: -1}}
datacenters: {count: 2, latency: 20, transfer: 2}
memory_limit: 7
""")
    args = ["compare", "far.yaml", "--objective"]
    rows = {what: json.loads(run(*args, what, "--json").stdout)["rows"]
            for what in ("makespan", "first-device")}
    bounds = {what: {r["lower_bound_s"] for r in rows[what]} for what in rows}
    check(len(bounds["makespan"]) == 1
          and bounds["makespan"] == bounds["first-device"], bounds)
    check(any(r.get("objective_s", 1) < r["lower_bound_s"]
              for r in rows["first-device"]), rows)
    said = run(*args, "first-device").stdout
    check("no makespan is shorter" in said and "no schedule is" not in said
          and said.split("\n")[0].split()[1:3] == ["first", "device"], said)


@test
def curves_end_in_time():
    """Twelve points with a search of default length each would take minutes."""
    write("job.yaml", JOB)
    args = ["plan", "job.yaml", *SHORT, "--json", "--time", "0.5"]
    before = os.times().children_user
    run(*args)
    plain = os.times().children_user - before
    done = run(*args, "--curves")
    check(len(json.loads(done.stdout)["curves"]) == 2, done.stderr)
    curves = os.times().children_user - before - plain
    check(curves < 10 * plain, f"{curves} s, without curves {plain} s")


@test
def values_fixed_by_a_job_are_not_attributed_to_memory():
    """A single stage is in one datacenter, independent of memory."""
    write("job.yaml", JOB + "layout: {pipeline: 1, tensor: 2, context: 1}\n")
    said = run("plan", "job.yaml", *SHORT, "--effort", "2000",
               "--curves").stdout
    check(re.search(r"^  PP-out( +-)+$", said, re.M) and
          "oversubscription: no plan of both kinds at some points\n" in said,
          said)


@test
def zero_0_has_its_number():
    """The report prints it like the screen; here the best alternative with
    another stage has ZeRO 0."""
    one = re.sub(r"   - \{name: [bc].*\n|  links:\n|   - \{between.*\n", "", JOB)
    write("job.yaml", one + "layout: {tensor: 1, context: 1, pipeline: 2, "
          "schedule: 1f1b, chunks_per_device: 1}\n")
    run("plan", "job.yaml", *SHORT, "--effort", "2000", "-o", "plan.json")
    plan = json.loads(read("plan.json"))
    found = [runner["choice"] for runner in plan["runners_up"]
             if runner["dimension"] == "zero"]
    check(len(found) == 1, plan["runners_up"])
    found[0]["zero"] = 0
    write("none.json", json.dumps(plan))
    done = run("report", "none.json", "-o", "none.html")
    check('["zero 0",' in read("none.html"), done)


@test
def hybrid_sharding_needs_replicas_in_datacenters():
    one = re.sub(r"   - \{name: [bc].*\n|  links:\n|   - \{between.*\n", "", JOB)
    write("job.yaml", one + "layout: {sharding: hybrid}\n")
    case("one", ["plan", "job.yaml"], 1,
         err="job.yaml: layout.sharding: 'hybrid'.* the job has only one")
    nothing = "nothing to divide between datacenters"
    for layout, there in (("data: 1", True), ("sites: [{pipeline: [a]}, {pipeline: [b]}]",
                           False)):
        write("job.yaml", JOB + f"layout: {{sharding: hybrid, {layout}}}\n")
        said = " ".join(run("plan", "job.yaml", *SHORT).stdout.split())
        check("shards hybrid" in said and (nothing in said) == there, said)


def known_plans(plan):
    """Returns the choices with a cost that a plan file lists."""
    return [x for x in plan["alternatives"] + plan.get("front", []) +
            [x["choice"] for x in plan["runners_up"]] +
            [x["best"] for x in plan.get("idle", []) if x.get("best")]
            if x.get("cost") and x["status"] == "ok"]


@long_test
def far_cheaper_plans_are_mentioned():
    """The output for the fastest plan mentions the knee and the cheapest plan,
    with their costs."""
    said = 0
    near = JOB.replace("latency_ms: 5", "latency_ms: 0.1")
    # The fastest plan is in one site, and in all sites.
    for job in (JOB, near):
        write("job.yaml", job)
        args = ["plan", "job.yaml", *SHORT, "--gpu-hour", "2", "--per-gb",
                "0.05", "--pareto", "--effort", "200"]
        text = " ".join(run(*args).stdout.split())
        plan = json.loads(read("plan.json"))
        own = plan["cost"]["usd"]
        known = known_plans(plan) + [plan]
        least = min(x["cost"]["usd"] for x in known)
        knee = min(known, key=lambda x: x["iteration_s"] *
                   x["cost"]["usd"])["cost"]["usd"]
        for usd, option in ((least, "objective cost"), (knee, "pareto")):
            if option == "objective cost" and usd == knee:
                continue
            found = re.search(r"(\d+) % less, USD [\d.e-]+ \(time [-+][^;]*; "
                              f"see --{option}", text)
            check(bool(found) == (usd < 0.9 * own), f"{usd} of {own}: {text}")
            if found:
                said += 1
                check(abs(int(found[1]) - 100 * (1 - usd / own)) < 0.51, text)
        text = run(*args, "--objective", "cost").stdout
        check("% less, USD" not in text, text)
    check(said, "no cheaper plan: nothing is shown")


finish()
