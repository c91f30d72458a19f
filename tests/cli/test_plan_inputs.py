#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands accept a plan in place of a pipeline or a schedule, with results equal to
those of the plan's own pipeline and schedule, to the nanosecond.
"""
import json

from harness import (ANY, case, check, finish, json_case, makes, read, run,
                     test, write)

JOB = """
    longhaul: job/1
    model: {{layers: 8, hidden: 2048, heads: 16, ffn: 8192, vocab: 32000}}
    training: {{global_batch: 16, sequence: 2048, recompute: none}}
    cluster:
      gpu: h100-sxm
      gpus_per_node: 2
      node_link: {{gbps: 3600, latency_us: 3}}
      fabric: {{gbps: 400, latency_us: 8}}
      datacenters: [{{name: west, nodes: 1}}, {{name: east, nodes: 1}}]
      links: [{{between: [west, east], latency_ms: 2, gbps: 20}}]
    layout: {{pipeline: {}, tensor: 1, schedule: {}, chunks_per_device: {}}}
    """
# A method, a schedule with link orders, groups, data parallelism.
PLANS = {"greedy": (4, "greedy", 2), "slack": (4, "slack", 1),
         "elastic": (4, "elastic", 2), "data": (2, "1f1b", 1)}
FILES = [f"{name}{end}" for name in PLANS for end in (".json", ".yaml", ".csv")]


@makes(*FILES)
def plans():
    """Writes NAME.json, and its pipeline NAME.yaml and schedule NAME.csv."""
    for name, layout in PLANS.items():
        write("job.yaml", JOB.format(*layout))
        run("plan", "job.yaml", "-q", "--no-optimal", "-o", f"{name}.json")
        plan = json.loads(read(f"{name}.json"))
        write(f"{name}.yaml", json.dumps(plan["pipeline"]))
        write(f"{name}.csv", "\n".join(plan["schedule"]["rows"]) + "\n")
        check("link_orders" not in plan["schedule"], "in order of entry")


def told(*args):
    """Returns the program's output without the names of its inputs."""
    done = run(*args)
    check(done.returncode == 0, f"{' '.join(args)}: {done.stderr}")
    text = done.stdout
    for name in PLANS:
        for end in (".json", ".yaml", ".csv"):
            text = text.replace(f"{name}{end}", "FILE")
    return text


def without(text, *keys):
    return {k: v for k, v in json.loads(text).items() if k not in keys}


def same(what, a, b):
    check(a == b, f"{what}: {str(a)[:300]}\nis not {str(b)[:300]}")


def each(function):
    """Yields each plan: its file, its pipeline's, its schedule's."""
    def of_all():
        plans()
        for name in PLANS:
            function(f"{name}.json", f"{name}.yaml", f"{name}.csv")
    of_all.__name__ = function.__name__
    return test(of_all)


@each
def schedule_takes_the_pipeline_of_a_plan(plan, pipeline, _):
    same("text", told("schedule", plan, "-m", "gpipe", "-q"),
         told("schedule", pipeline, "-m", "gpipe", "-q"))
    same("JSON", *(without(told("schedule", file, "-m", "auto", "--json"),
                           "seconds") for file in (plan, pipeline)))


@each
def a_search_begins_with_the_schedule_of_a_plan(plan, pipeline, schedule):
    begun = [told("schedule", pipeline, "-m", "optimal", "--effort", "1",
                  "--threads", "1", "-q", "--start", start)
             for start in (schedule, plan)]
    same("start", *begun)


@each
def check_judges_what_a_plan_says(plan, pipeline, schedule):
    of_plan = told("check", plan, "--json")
    verdict = json.loads(of_plan)
    check(verdict["valid"] and round(verdict["makespan_s"] * 1e9) ==
          json.loads(read(plan))["makespan_ns"], "the plan's own time")
    for args in ((pipeline, schedule), (plan, schedule), (pipeline, plan),
                 (plan, plan), (plan, "--fifo")):
        same(f"check {args}", told("check", *args, "--json"), of_plan)
    case("check", ["check", plan],
         out=r"\Avalid: the plan's schedule takes [\d.]+ ms\n\Z")


@each
def simulate_is_the_same_of_both(plan, pipeline, schedule):
    own = told("simulate", plan, "--json")
    check(round(json.loads(own)["makespan_s"] * 1e9) ==
          json.loads(read(plan))["makespan_ns"], "the plan's own time")
    for args in ((pipeline, "-s", schedule), (plan, "-s", schedule),
                 (pipeline, "-s", plan), (plan, "-s", plan)):
        same(f"simulate {args}",
             without(told("simulate", *args, "--json"), "schedule",
                     "iteration_s"),
             without(own, "schedule", "iteration_s"))
    # Jitter applies to a plan's iteration, and to a pipeline's makespan.
    # Iterations are longer by the time after the pipeline.
    varied = [json.loads(told("simulate", *args, "--jitter=latency=0.5",
                              "--json"))["jitter"]
              for args in ([plan], [pipeline, "-s", schedule])]
    check([j["of"] for j in varied] == ["iteration", "makespan"], varied)
    after = json.loads(own)["iteration_s"] - json.loads(own)["makespan_s"]
    check(all(abs(value - varied[1][key] - after) < 1e-8
              for key, value in varied[0].items() if key.endswith("_s")),
          f"{varied}, {after}")
    for option in ("--receives=late", "--coupled=1"):
        same(f"simulate {option}",
             without(told("simulate", plan, option, "--json"), "schedule",
                     "iteration_s"),
             without(told("simulate", pipeline, "-s", schedule, option,
                          "--json"), "schedule", "iteration_s"))


@each
def explain_is_the_same_of_both(plan, pipeline, schedule):
    own = without(told("explain", plan, "-r", "1", "--json"), "schedule")
    for args in ((pipeline, "-s", schedule), (pipeline, "-s", plan)):
        same(f"explain {args}",
             without(told("explain", *args, "-r", "1", "--json"), "schedule"),
             own)


@each
def export_is_the_same_of_both(plan, pipeline, schedule):
    for target in ("pytorch", "chrome"):
        own = told("export", plan, "--to", target, "-q")
        for args in ((pipeline, "-s", schedule), (pipeline, "-s", plan)):
            same(f"export {args}",
                 told("export", *args, "--to", target, "-q"), own)


@each
def train_runs_the_same_of_both(plan, pipeline, schedule):
    fast = ["--speed", "1000", "--message-bytes", "64", "--steps", "1",
            "--json", "-q"]
    own = json.loads(told("train", plan, *fast))["predicted_s"]
    for args in ((pipeline, "-s", schedule), (pipeline, "-s", plan)):
        same(f"train {args}", json.loads(told("train", *args, *fast))[
            "predicted_s"], own)


@test
def compare_accepts_plans_among_pipelines():
    plans()
    sweep = ["--sweep", "latency=0,4ms", "-m", "1f1b,gpipe,greedy,zb-h1"]
    for more in ([], sweep):
        rows = [json.loads(told("compare", *files, "--json", *more))["rows"]
                for files in (("slack.yaml", "data.yaml"),
                              ("slack.json", "data.yaml"),
                              ("slack.json", "data.json"))]
        check(len(rows[0]) > 4, "there are some")
        same("compare", rows[1], rows[0])
        same("compare", rows[2], rows[0])


@test
def compare_sweeps_a_plan_from_its_own_time_on():
    plans()
    rows = json_case("sweep", ["compare", "slack.json", "--json", "--sweep",
                               "latency=2ms,8ms", "-m", "slack"])["rows"]
    here = [row for row in rows if row["latency_s"] == 0.002]
    check([row["makespan_s"] for row in here if "makespan_s" in row] or here,
          "there is a row")
    plan = json.loads(read("slack.json"))
    times = [round(row["iteration_s"] * 1e9) for row in here]
    check(plan["iteration_ns"] in times, f"{times}: {plan['iteration_ns']}")


@test
def missing_parts_of_a_file_are_reported():
    plans()
    write("job.yaml", JOB.format(4, "1f1b", 1))
    case("no schedule", ["check", "slack.yaml"], 2,
         err=r"check: SCHEDULE is required for a pipeline, which contains "
             r"no schedule")
    case("another plan's", ["check", "slack.json", "greedy.json"], 1,
         out=r"\Anot valid: ")
    case("another plan's", ["simulate", "data.yaml", "-s", "slack.json"], 1,
         err=r"\Alonghaul: ")
    for args in (["check", "slack.json", "job.yaml"],
                 ["simulate", "slack.json", "-s", "job.yaml"],
                 ["schedule", "slack.yaml", "-m", "optimal", "--start",
                  "slack.yaml"]):
        case(" ".join(args), args, 1,
             err=rf"is a (job|pipeline); '{args[0]}' takes a plan or a CSV "
                 r"file as a schedule\n\Z")
    case("a job", ["schedule", "job.yaml"], 1,
         err=r"is a job; 'schedule' takes a pipeline or a plan\n\Z")
    case("a job", ["check", "job.yaml", "slack.csv"], 1,
         err=r"is a job; 'check' takes a pipeline or a plan\n\Z")
    case("a job among others", ["compare", "slack.json", "job.yaml"], 2,
         err=r"a job cannot be compared with other files; several files "
             r"must be pipelines or plans")
    write("broken.json", read("slack.json")[:-40])
    case("half a plan", ["check", "broken.json"], 1, err=r"broken\.json:")
    case("half a plan", ["simulate", "slack.yaml", "-s", "broken.json"], 1,
         err=r"broken\.json:")


finish()
