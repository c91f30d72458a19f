#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is written, where, and what happens when it cannot be."""
import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree as xml

from harness import (ANY, ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, case, check,
                     finish, json_case, makes, read, run, test, uniform, until,
                     worked, write)

SITES = (ROOT / "examples/llama3-70b-two-sites.yaml").read_text()
LINKED = str(ROOT / "examples/crosspipe-m70-four-sites.yaml")
ELASTIC = str(ROOT / "examples/llama3-70b-elastic.yaml")
# With what takes the search of a plan long given.
EVEN = ["--no-optimal", "--search", "even"]
PRICES = ["--gpu-hour", "3", "--per-gb", "0.02"]
VARIED = ["--jitter", "latency=1,degraded=0.2x6,straggler=0.001x1.5",
          "--samples", "50", "--seed", "3"]


def names():
    return sorted(os.listdir(WORK))


def loaded(name):
    return json.loads(read(name))


# --- files that tests begin with ------------------------------------------------
def pipeline():
    """p.yaml, on which zb-h1 takes 458 ms."""
    uniform("p.yaml", latency=8, transfer=1, limit=4)


@makes("p.yaml", "s.csv")
def schedule():
    """The same, and its schedule s.csv."""
    pipeline()
    run("schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv")


@makes("p.yaml", "less.csv")
def less_schedule():
    """p.yaml and a schedule of it that lacks a pass."""
    schedule()
    write("less.csv", read("s.csv").replace(",0F7", "", 1))


@makes("two.yaml", "two.csv")
def two_devices():
    """Two devices and messages of 5 ms, in turn."""
    uniform("two.yaml", devices=2, microbatches=2, latency=8, transfer=5)
    run("schedule", "two.yaml", "-m", "gpipe", "-o", "two.csv")


def job():
    """Llama 3 70B on two sites."""
    write("job.yaml", SITES +
          "layout: {tensor: 8, context: 1, chunks_per_device: 2}\n")


@makes("job.yaml", "plan.json", "plan.html", "told")
def plan():
    """Its plan, a report and what the program says."""
    job()
    told = case("plan", ["plan", "job.yaml", "--html", "plan.html"],
                out=r"iteration .*layout .*Schedules on this layout.*"
                    r"Other layouts.*plan +plan\.json\n"
                    r"report +plan\.html\n\Z").stdout
    write("told", told)


@makes("curves.json", "curves.html")
def curves():
    """A small plan over two sites with its curves."""
    write("curves.yaml", """
        longhaul: job/1
        model: {layers: 4, hidden: 512, ffn: 1024, heads: 8, kv_heads: 8,
                head_dim: 64, vocab: 256, gated: true, tied_embeddings: false}
        training: {global_batch: 16, sequence: 512}
        cluster:
          gpu: a100-80g
          gpus_per_node: 1
          node_link: {gbps: 2400, latency_us: 3}
          fabric: {gbps: 100, latency_us: 8}
          datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2}]
          links: [{between: [west, east], latency_ms: 1, gbps: 10}]
        layout: {sites: [{pipeline: [west, east]}]}
        """)
    case("curves", ["plan", "curves.yaml", "--curves", "-o", "curves.json",
                    "--html", "curves.html"],
         out=r"^Faster over oversubscription: (PP|DP)-out .*"
             r"^  oversubscription +1 +2 +4 +8 +16 +32$"
             r".*^  PP-out .*^  DP-out ")


@makes("varied.json")
def varied():
    """A plan that was chosen under jitter, of few layouts: each is played 50
    times."""
    write("fewer.yaml", SITES + "layout: {tensor: 8, context: 1, pipeline: 4,"
          " chunks_per_device: 2, micro_batch: 1}\n")
    case("a plan under jitter", ["plan", "fewer.yaml", "-o", "varied.json",
                                 "--by", "p95", *VARIED],
         out=r"^with jitter +mean [0-9.]+ s, 95 % within [0-9.]+ s.*"
             r"^chosen by +the 95th percentile, among \d+ schedules of "
             r"\d+ layouts.*without jitter, its mean, its 95th percentile")


@makes("priced.json")
def priced():
    case("a plan with prices", ["plan", LINKED, *EVEN, "-o", "priced.json",
                                *PRICES],
         out=r"^cost +USD [\d.]+ per iteration, [\d.]+ per 10\^9 tokens; "
             r"32 GPUs at 96 an hour\n"
             r" +of it [\d.]+ for [\d.]+ GB between datacenters$")


@makes("links.json")
def linked():
    """Each change of a link is planned for again: with one number of chunks."""
    with open(LINKED) as file:
        write("chunked.yaml", file.read().replace(
            "data: 1,", "data: 1, chunks_per_device: 2,"))
    case("what if", ["plan", "chunked.yaml", *EVEN, "-o", "links.json",
                     "--what-if", "latency=x1,x8", "--sensitivity"],
         out=r"If the links were others\n  latency=x1\n"
             r"    this plan takes [\d.]+ s \(\+0\.0 %\), and is the best\n"
             r"  latency=x8\n    this plan takes.*"
             r"How far the links may change.*"
             r"latency, all links: stays the best from .*"
             r"bandwidth, all links: stays the best from ")


@makes("elastic.json")
def elastic():
    case("an elastic plan", ["plan", ELASTIC, "-o", "elastic.json"],
         out=r"schedule +elastic, .*zero-bubble.*Other layouts", err=ANY)


# --- schedule --------------------------------------------------------------------
@test
def schedule_tells_and_writes():
    pipeline()
    case("schedule", ["schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv"],
         out=r"\Amethod +zb-h1\nmakespan +458 ms\nlower bound .*"
             r"written +s\.csv\n\Z")
    check(read("s.csv") == run("schedule", "p.yaml", "-m", "zb-h1").stdout,
          "-o and standard output agree")
    check(len(read("s.csv").splitlines()) == 4, "a row per device")


@test
def schedule_as_json_has_its_numbers():
    schedule()
    found = json_case("schedule as JSON", ["schedule", "p.yaml", "-m", "zb-h1",
                                           "-o", "t.csv"])
    check(read("t.csv") == read("s.csv"), "--json writes the same file")
    check(found["makespan_s"] == 0.458 and found["peak_memory"] == [4, 4, 4, 4]
          and found["method"] == "zb-h1" and found["status"] == "feasible"
          and 0 < found["lower_bound_s"] <= 0.458 and found["seconds"] >= 0
          and abs(found["gap"] - (0.458 / found["lower_bound_s"] - 1)) < 1e-12,
          f"numbers of schedule --json: {found}")


@test
def auto_names_the_method_that_won():
    pipeline()
    found = json_case("auto", ["schedule", "p.yaml"])
    check(found["requested"] == "auto" and found["method"] != "auto", found)


@test
def what_meets_the_bound_is_optimal():
    uniform("one.yaml", devices=1)
    found = json_case("one device", ["schedule", "one.yaml", "-m", "gpipe"])
    check(found["status"] == "optimal" and found["gap"] == 0, "a gap of 0")


@test
def weight_gradients_are_cut_and_made_whole():
    pipeline()
    parts = ["schedule", "p.yaml", "-m", "greedy", "--sub-blocks", "4"]
    case("parts", parts, out=r"W\d+:\d/4", err=ANY)
    case("whole", [*parts, "--whole"], out=r"\A[^:]+\Z",
         err=r"whole weight-gradient passes (cost|save) [\d.]+ ms")
    case("quiet", [*parts, "--whole", "-q"], out=r"\A[^:]+\Z")


@test
def slack_takes_a_warm_up():
    pipeline()
    case("warm-up given", ["schedule", "p.yaml", "-m", "slack", "--warmup",
                           "4,3,2,1"], out=r"\A0F0,0F1,0F2,0F3,0[^F]")


@test
def a_pipeline_comes_from_standard_input():
    schedule()
    case("standard input", ["schedule", "-", "-m", "zb-h1"],
         stdin=read("p.yaml"), out="^" + re.escape(read("s.csv")) + "$")
    case("wrong standard input", ["schedule", "-"], 1, stdin="what: 1\n",
         err=r"\Alonghaul: standard input:1: [^\n]+\n\Z")


# --- check -----------------------------------------------------------------------
@test
def check_says_that_a_schedule_is_valid():
    schedule()
    case("valid", ["check", "p.yaml", "s.csv"],
         out=r"\Avalid: s\.csv takes 458 ms")
    found = json_case("as JSON", ["check", "p.yaml", "s.csv"])
    check(found["valid"] is True and found["violations"] == [] and
          found["makespan_s"] == 0.458 and
          found["peak_memory"] == [4, 4, 4, 4], found)


@test
def check_says_what_is_not_valid():
    less_schedule()
    case("not valid", ["check", "p.yaml", "less.csv"], 1,
         out=r"\Anot valid: \d+ violation.*0F7")
    found = json_case("as JSON", ["check", "p.yaml", "less.csv"], 1)
    check(found["valid"] is False and len(found["violations"]) >= 1, found)


# --- simulate --------------------------------------------------------------------
@test
def simulate_writes_trace_and_pictures():
    schedule()
    case("simulate", ["simulate", "p.yaml", "-s", "s.csv", "--trace", "t.json",
                      "--svg", "t.svg", "--html", "t.html"],
         out=r"makespan +458 ms.*Critical path.*Slackness.*Links")
    check(sum(e.get("ph") == "X" for e in loaded("t.json")["traceEvents"])
          >= 4 * 36, "the trace has all passes")
    check(xml.fromstring(read("t.svg")).tag.endswith("svg"), "SVG is XML")
    check(read("t.html").lower().startswith("<!doctype html>") and
          not re.search(r"""(src|href)=["']?https?:""", read("t.html")),
          "the report loads nothing")


@test
def simulate_accounts_for_all_time():
    schedule()
    found = json_case("as JSON", ["simulate", "p.yaml", "-s", "s.csv"])
    path = found["critical_path"]
    check(found["makespan_s"] == 0.458 and path[0]["start_s"] == 0 and
          path[-1]["end_s"] == 0.458 and
          all(a["end_s"] == b["start_s"] for a, b in zip(path, path[1:])),
          "the critical path joins from 0 to the makespan")
    idle = 4 * 0.458 - 4 * 12 * 0.030
    check(abs(sum(found["bubble_s"].values()) - idle) < 1e-12,
          "causes add up to the idle time")
    check(abs(found["bubble_ratio"] - idle / (4 * 0.458)) < 1e-12,
          "bubble ratio")
    check([link["name"] for link in found["links"]] == ["dc0-dc1", "dc1-dc0"],
          "links by name")


@test
def stricter_receives_are_no_faster():
    pipeline()
    for model in (["--receives", "late"], ["--receives", "late-fd"],
                  ["--coupled", "1"]):
        slower = json_case(f"{model}", ["simulate", "p.yaml", "-s", "zb-h1",
                                        *model])
        check(slower["makespan_s"] >= 0.458, f"{model} is not faster")


@test
def the_first_device_is_an_objective():
    pipeline()
    found = json_case("first device", ["simulate", "p.yaml", "-s", "zb-h1",
                                       "--objective", "first-device"])
    check(found["objective_s"] == found["first_device_s"]
          <= found["makespan_s"], found)


@test
def simulate_refuses_what_lacks_a_pass():
    less_schedule()
    case("less", ["simulate", "p.yaml", "-s", "less.csv"], 1,
         err=r"\Alonghaul: ")


@test
def memory_over_the_limit_is_told():
    pipeline()
    uniform("roomy.yaml", latency=8, transfer=1)
    run("schedule", "roomy.yaml", "-m", "gpipe", "-o", "g.csv")
    case("over memory", ["simulate", "p.yaml", "-s", "g.csv"],
         out=r"peak memory +12 on device \d, over the limit",
         err=r"\Alonghaul: the schedule needs more memory than the limit")


# --- messages in an order of their own, from the file beside the schedule --------
@test
def link_orders_beside_a_schedule_count():
    two_devices()
    simulate = ["simulate", "two.yaml", "-s", "two.csv"]
    fifo = json_case("first in, first out", simulate)["makespan_s"]
    write("two.links.csv", "dc0-dc1,0F1,0F0\n")
    held = json_case("0F0 waits for 0F1", simulate)["makespan_s"]
    # 0F1 leaves as it ends, 10 ms after 0F0, which then takes 5.
    check(round((held - fifo) * 1e3) == 15, f"{held} and {fifo}")
    check(json_case("--fifo", [*simulate, "--fifo"])["makespan_s"] == fifo,
          "--fifo ignores link orders")
    check(json_case("check", ["check", "two.yaml", "two.csv"])["makespan_s"]
          == held, "check reads link orders")
    case("what PyTorch cannot", ["export", "two.yaml", "-s", "two.csv"],
         out=ANY, err=r"PyTorch knows neither .* takes 15 ms less")


@test
def link_orders_have_every_message():
    two_devices()
    write("two.links.csv", "dc0-dc1,0F1\n")
    case("check", ["check", "two.yaml", "two.csv"], 1, out=r"not valid")
    case("simulate", ["simulate", "two.yaml", "-s", "two.csv"], 1,
         err=r"\Alonghaul: [^\n]+\n\Z")


@test
def a_new_schedule_takes_old_link_orders_away():
    two_devices()
    write("two.links.csv", "dc0-dc1,0F1,0F0\n")
    run("schedule", "two.yaml", "-m", "gpipe", "-o", "two.csv")
    check("two.links.csv" not in names(), "an old links file goes")


# --- compare ---------------------------------------------------------------------
@test
def compare_sorts_all_methods():
    pipeline()
    case("compare", ["compare", "p.yaml"],
         out=r"\Amethod +makespan.*\ngreedy .*\ngpipe .*limit is 4.*"
             r"lower bound")
    rows = json_case("as JSON", ["compare", "p.yaml"])["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    times = [r["makespan_s"] for r in good]
    check(times == sorted(times) and len(times) >= 4 and
          {r["method"] for r in rows} >= {"gpipe", "1f1b", "zb-h1", "zb-v"},
          "rows are sorted and all there")
    check(all(len(r["peak_memory"]) == 4 and max(r["peak_memory"]) <= 4
              for r in good), "a row has the peak memory of each device")
    check(all(r["makespan_s"] >= r["lower_bound_s"] for r in good),
          "nothing beats the bound")


@test
def a_sweep_has_all_its_points():
    pipeline()
    sweep = ["compare", "p.yaml", "-m", "zb-h1,greedy", "--sweep"]
    rows = json_case("sweep", [*sweep, "latency=0:1:0.5,transfer=0,2ms"])[
        "rows"]
    check(sorted({(r["latency_s"], r["transfer_s"]) for r in rows}) ==
          [(0.0, 0.0), (0.0, 0.002), (0.005, 0.0), (0.005, 0.002), (0.01, 0.0),
           (0.01, 0.002)] and len(rows) == 12, "points of a sweep")
    alone = json_case("one point", [*sweep, "latency=8ms,transfer=1ms"])
    check([r["makespan_s"] for r in alone["rows"] if r["method"] == "zb-h1"] ==
          [0.458], "a sweep sets what the file says, too")
    done = case("as text", [*sweep, "latency=0:2:0.25"],
                out=r"\nlatency .*\nzb-h1 .*slowdown")
    check(max(map(len, done.stdout.splitlines())) <= 80,
          "a sweep fits the width")


@test
def replay_keeps_the_schedules_of_a_sweep():
    pipeline()
    sweep = ["compare", "p.yaml", "-m", "slack", "--sweep", "latency=0:4:1"]
    check(json_case("replay", [*sweep, "--replay"])["rows"] !=
          json_case("no replay", sweep)["rows"], "they are others")


@test
def methods_compete_on_placements_that_suit_them():
    pipeline()
    uniform("wave.yaml", placement="wave", chunks=2, latency=8, transfer=1)
    rows = json_case("two files", ["compare", "p.yaml", "wave.yaml"])["rows"]
    check({r["pipeline"] for r in rows if r["method"] == "greedy"} ==
          {"p", "wave"} and
          {r["pipeline"] for r in rows if r["method"] == "zb-v"} == {"wave"},
          rows)


@test
def compare_writes_a_report():
    pipeline()
    case("report", ["compare", "p.yaml", "--html", "c.html"], out=ANY)
    check("zb-h1" in read("c.html"), "the report has the methods")


# --- jobs and plans --------------------------------------------------------------
@test
def a_plan_has_its_keys():
    plan()
    check({"iteration_s", "layout", "schedule", "alternatives"} <=
          loaded("plan.json").keys(), "keys of a plan")


@test
def a_plan_as_json_is_the_plan():
    plan()
    before = names()
    done = case("plan", ["plan", "job.yaml", "--json"], out=r"\A\{")
    check(done.stdout == read("plan.json"), "--json prints the plan itself")
    check(names() == before, "--json leaves no file behind")


@test
def an_iteration_holds_its_makespan():
    plan()
    found = json_case("simulate", ["simulate", "plan.json"])
    check(found["makespan_s"] <= loaded("plan.json")["iteration_s"], found)


@test
def a_job_is_compared_with_its_plan_best():
    plan()
    case("as text", ["compare", "job.yaml"], out=r"greedy wave.*greedy loop",
         err=ANY)
    rows = json_case("as JSON", ["compare", "job.yaml"], err=ANY)["rows"]
    check(abs(rows[0]["iteration_s"] - loaded("plan.json")["iteration_s"])
          < 1e-9, "compare's best of a job is the plan's")
    pipeline()
    case("with a pipeline", ["compare", "job.yaml", "p.yaml"], 2,
         err=r"compared on its own")


@test
def a_plan_says_why_it_takes_its_time():
    plan()
    made = loaded("plan.json")
    check(abs(sum(made["account"].values()) - made["iteration_s"]) < 1e-9 and
          all(part >= 0 for part in made["account"].values()),
          f"the parts add up: {made['account']}")
    second = {r["dimension"]: r["choice"] for r in made["runners_up"]}
    check({"data", "micro_batch", "schedule"} <= second.keys() and
          all(second[d]["layout"][d] != made["layout"][d]
              for d in ("data", "micro_batch", "schedule")),
          f"runners-up: {second.keys()}")
    check(all(c["iteration_ns"] >= made["iteration_ns"] or c["status"] != "ok"
              for c in second.values()), "runners-up are no faster")
    told = read("told")
    check(re.search(r"^made of +compute [0-9.]+ s,.* optimizer and overhead",
                    told, re.M | re.S) and
          re.search(r"^The best with another\n.*^  data, \d+ +\+[0-9.]+ %",
                    told, re.M | re.S), f"reasons in words: {told}")


@test
def a_plan_advises_on_its_links():
    plan()
    network = loaded("plan.json")["network"]
    check([(a["from"], a["to"]) for a in network] ==
          [("west", "east"), ("east", "west")], "every link has advice")
    for link in network:
        asked = {q["question"]: q for q in link["questions"]}
        check(asked.keys() == {"load_balancing", "queue_pairs",
                               "congestion_control", "recovery", "fec"},
              f"questions: {asked.keys()}")
        for q in asked.values():
            advised = [o for o in q["options"] if o["advised"]]
            check(len(advised) == 1 and advised[0] == link["advised"],
                  f"{q['question']}: one is advised")
            least = min(o["iteration_s"] for o in q["options"])
            check(advised[0]["iteration_s"] <= least * 1.002,
                  f"{q['question']}: the best is advised: {q['why']}")
            check(q["matters"] != q["why"].startswith("nothing to gain"),
                  q["why"])
    check(re.search(r"^Network\n  west to east: \d+ messages of [0-9.]+ MB\n"
                    r"    load_balancing +\S.*"
                    r"^  iteration with all of it +[0-9.]+ s",
                    read("told"), re.M | re.S), "advice in words")


@test
def curves_rise_with_oversubscription():
    curves()
    found = loaded("curves.json")["curves"]
    check([c["over"] for c in found] == ["oversubscription"] and
          [s["name"] for s in found[0]["series"]] == ["PP-out", "DP-out"] and
          found[0]["x"] == [1, 2, 4, 8, 16, 32] and
          all(a <= b * 1.05 for s in found[0]["series"]
              for a, b in zip(s["iteration_s"], s["iteration_s"][1:])), found)


@test
def a_report_of_a_plan_says_why():
    curves()
    for part in ("Pipelines or replicas over datacenters",
                 "Network: west to east", "What the iteration consists of",
                 "Runners-up", "PP-out"):
        check(part in read("curves.html"), f"the report has '{part}'")
    case("a report of a plan", ["report", "curves.json", "-o", "again.html"],
         out=ANY)
    check("Network: west to east" in read("again.html"),
          "report says why, too")


@test
def curves_are_of_two_sites_or_more():
    case("one site", ["plan", str(ROOT / "examples/tiny-llama-cpu.yaml"),
                      "--curves"], 1,
         err=r"tiny-llama-cpu\.yaml: cluster\.datacenters: --curves compares")


# --- plans under jitter ----------------------------------------------------------
@test
def simulate_draws_what_plan_does():
    varied()
    made = loaded("varied.json")
    found = json_case("simulate", ["simulate", "varied.json", *VARIED])[
        "jitter"]
    after = made["iteration_ns"] - made["makespan_ns"]
    check(all(abs(made["jitter"][k] - found[k] - after / 1e9) < 2e-9
              for k in found if k != "samples"),
          f"{made['jitter']} {found}")


@test
def the_least_percentile_wins():
    varied()
    made = loaded("varied.json")
    check(made["robust"]["by"] == "p95" and made["robust"]["seed"] == 3 and
          made["robust"]["straggler"] == {"rate": 0.001, "factor": 1.5},
          f"what was drawn: {made['robust']}")
    check(all(made["jitter"]["p95_s"] <= row["jitter"]["p95_s"]
              for row in made["methods"] + made["alternatives"]
              if "jitter" in row), "the least 95th percentile wins")


@test
def samples_need_jitter():
    varied()
    for command in ("simulate", "compare"):
        case(command, [command, "varied.json", "--samples", "9"], 2,
             err=r"--samples needs --jitter")


@test
def options_of_plans_go_together():
    job()
    draws = ["--search", "monte-carlo"]
    for options, says in [
            (["--by", "p95"], "--by p95 needs --jitter"),
            (["--by", "mean"], "--by mean needs --jitter"),
            (["--samples", "50"], "--samples needs --jitter"),
            (["--jitter", "latency"],
             "--jitter: 'latency' is not latency=A"),
            ([*draws, "--jitter", "latency=1"],
             "--jitter does not go with --search monte-carlo"),
            ([*draws, "--pareto"],
             "--pareto does not go with --search monte-carlo"),
            ([*draws, "--objective", "cost"],
             "--objective cost does not go with --search monte-carlo"),
            (["--draws", "5"], "--draws needs --search monte-carlo"),
            (["--search", "even", "--max-chunk-ratio", "2"],
             "--max-chunk-ratio does nothing with --search even"),
            (["--no-optimal", "--effort", "9"],
             "--effort does nothing with --no-optimal")]:
        case(" ".join(options), ["plan", "job.yaml", *options], 2,
             err=re.escape(says))


@test
def layouts_can_be_drawn():
    job()
    draw = ["plan", "job.yaml", "--search", "monte-carlo", "--draws"]
    case("none that works", [*draw, "1,1,1,1"], 1,
         err=r"none of the layouts that were drawn works.*; draw more")
    first, other, again = [
        json_case(f"seed {seed}", [*draw, "20,5,5,5", "--no-optimal", "--seed",
                                   str(seed)]) for seed in (1, 7, 7)]
    check(other == again and first["iteration_ns"] != other["iteration_ns"],
          "other seeds draw other layouts")


# --- costs -----------------------------------------------------------------------
@test
def a_plan_with_prices_has_a_cost():
    priced()
    made = loaded("priced.json")
    cost = made["cost"]
    check(abs(cost["usd"] - 96 * made["iteration_s"] / 3600
              - 0.02 * cost["between_gb"]) < 1e-9 and cost["gpus"] == 32,
          f"what an iteration costs: {cost}")
    check(made["job"]["cluster"]["datacenters"][0]["usd_per_gpu_hour"] == 3,
          "the plan's job has the prices")


@test
def the_front_has_the_cheapest_and_the_fastest():
    priced()
    case("the cheapest plan", ["plan", LINKED, *EVEN, "-o", "cheap.json",
                               *PRICES, "--objective", "cost", "--pareto"],
         out=r"^why +the cheapest of \d+ layouts.* in cost, [-+][\d.]+ % in "
             r"time, on \d+ GPUs.*\nNothing is as good in time, memory and "
             r"cost as one of these\n +iteration +memory +cost\n"
             r"( +[\d.]+ s +[\d.]+ GiB  USD +[\d.]+  TP [^\n]+\n)+")
    cheap, fast = loaded("cheap.json"), loaded("priced.json")
    rows = [(f["iteration_ns"], f["peak_memory_bytes"], f["cost"]["usd"])
            for f in cheap["front"]]
    check(cheap["objective"] == "cost" and cheap["front_whole"]
          and cheap["cost"]["usd"] <= fast["cost"]["usd"]
          and min(r[2] for r in rows) == cheap["cost"]["usd"]
          and min(r[0] for r in rows) <= fast["iteration_ns"]
          and not any(all(a <= b for a, b in zip(x, y))
                      for x in rows for y in rows if x is not y), rows)


# --- other links -----------------------------------------------------------------
@test
def keeping_a_plan_under_other_links_costs():
    linked()
    made = loaded("links.json")
    same, far = made["what_if"]
    check(same["links"] == "latency=x1" and same["keeping_costs"] == 0
          and same["kept"]["iteration_ns"] == made["iteration_ns"],
          "the same links give the same plan")
    check(far["kept"]["iteration_ns"] > made["iteration_ns"]
          and abs(far["keeping_costs"] - (far["kept"]["iteration_s"]
                                          / far["best"]["iteration_s"] - 1))
          < 1e-9, f"what keeping a plan costs: {far['keeping_costs']}")


@test
def sensitivity_has_ranges():
    linked()
    made = loaded("links.json")
    spans = made["sensitivity"]["ranges"]
    check({s["quantity"] for s in spans} == {"latency", "bandwidth"}
          and "between" not in spans[0] and len(spans[2]["between"]) == 2,
          "ranges of sensitivity")
    found = json_case("simulate", ["simulate", "links.json"])
    check(found["makespan_s"] <= made["iteration_s"],
          "a plan with answers is a plan like others")


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
         out=r"datacenters +pipeline east -> west \(2, 2 stages\)\n", err=ANY)
    check("pipeline east -> west (2, 2 stages)" in
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
    check(re.search(rf"takes {size} microbatches together.*: \d+\.\d+ s",
                    text), f"what these groups take: {text}")
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


# --- report ----------------------------------------------------------------------
@test
def a_plan_and_its_own_trace_agree():
    plan()
    case("Chrome", ["export", "plan.json", "--to", "chrome", "-o", "x.json"],
         out=ANY)
    found = json_case("report", ["report", "--predicted", "plan.json",
                                 "--measured", "x.json", "-o", "both.html"])
    made = loaded("plan.json")
    passes = (3 * made["microbatches"] * made["layout"]["pipeline"] *
              made["layout"]["chunks_per_device"])
    check(found["error"] == 0 and found["mean_start_error_s"] == 0 and
          found["passes"] == passes and found["report"] == "both.html", found)
    case("files", ["report", "plan.json", "x.json"],
         out=r"\Areport +report\.html\n\Z")


@test
def passes_of_one_trace_alone_are_counted():
    uniform("single.yaml", devices=1, microbatches=1)
    uniform("double.yaml", devices=1, microbatches=1, backward="joint")
    run("simulate", "single.yaml", "-s", "zb-h1", "--trace", "single.json")
    run("simulate", "double.yaml", "--trace", "double.json")
    case("other passes", ["report", "--predicted", "single.json",
                          "--measured", "double.json"],
         out=r"not in both: 2 predicted, 1 measured passes")


# --- writing ---------------------------------------------------------------------
@test
def a_file_is_replaced_whole():
    schedule()
    inode = (WORK / "s.csv").stat().st_ino
    run("schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv")
    check((WORK / "s.csv").stat().st_ino != inode, "it is another file")
    check(not [n for n in names() if ".tmp-" in n],
          "no temporary files are left")


@test
def what_cannot_be_written_is_an_error():
    schedule()
    plan()
    (WORK / "no").mkdir()
    long = ["train", "p.yaml", "--steps", "100000000"]
    for args in (["schedule", "p.yaml", "-o"], ["simulate", "p.yaml", "--html"],
                 ["simulate", "p.yaml", "--trace"], ["plan", "job.yaml", "-o"],
                 ["simulate", "p.yaml", "-o"], ["compare", "p.yaml", "-o"],
                 ["check", "p.yaml", "s.csv", "-o"],
                 ["export", "plan.json", "-o"], ["report", "plan.json", "-o"],
                 [*long, "--trace"], [*long, "--html"], [*long, "-o"]):
        case(f"no such folder: {args}", [*args, "nowhere/f"], 1,
             err=r"\A(longhaul: [^\n]*\n)?longhaul: nowhere/f: cannot write: "
                 r"No such file or directory\n\Z")
        case(f"a folder: {args}", [*args, "no"], 1,
             err=r"\A(longhaul: [^\n]*\n)?longhaul: no: is a directory"
                 r"[^\n]*\n\Z")
    if os.geteuid() != 0:
        (WORK / "no").chmod(0o555)
        case("folder that is closed", ["schedule", "p.yaml", "-o", "no/f"], 1,
             err=r"no/f: cannot write: Permission denied")


@test
def text_and_json_go_to_files():
    schedule()
    case("text to a file", ["simulate", "p.yaml", "-o", "sim.txt"])
    check("makespan" in read("sim.txt"), "simulate -o")
    case("JSON to a file", ["check", "p.yaml", "s.csv", "--json", "-o",
                            "v.json"])
    check(loaded("v.json")["valid"] is True, "check --json -o")


@test
def a_full_device_is_an_error():
    pipeline()
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "schedule", "p.yaml"], stdout=full,
                              stderr=subprocess.PIPE, text=True, cwd=WORK)
    check(done.returncode == 1 and
          re.match(r"\Alonghaul: cannot write to standard output: No space",
                   done.stderr), done)


@test
def closed_standard_output_is_an_error():
    """And no file is mistaken for it."""
    pipeline()
    done = subprocess.run(["sh", "-c",
                           f"'{PROGRAM}' schedule p.yaml -o z.csv >&-"],
                          cwd=WORK, capture_output=True, text=True)
    check(done.returncode == 1 and "standard output" in done.stderr and
          read("z.csv").startswith("0F0"), done)


@test
def a_reader_that_goes_away_ends_the_program_without_a_word():
    uniform("wave.yaml", placement="wave", chunks=2, latency=8, transfer=1)
    done = subprocess.run(["sh", "-c",
                           f"'{PROGRAM}' simulate wave.yaml --json | true"],
                          cwd=WORK, capture_output=True, text=True)
    check(done.stderr == "", done)


# --- interrupted -----------------------------------------------------------------
def interrupted(args, number, seconds):
    """Runs the program until it has computed so long, and signals to it."""
    process = subprocess.Popen([PROGRAM, *args], cwd=WORK, env=ENVIRONMENT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(until(lambda: worked(process) >= seconds, process),
          "it is in the middle of its work")
    process.send_signal(number)
    out, err = process.communicate(timeout=HANGS)
    return process.returncode, out, err


@test
def signals_leave_nothing_behind():
    uniform("big.yaml", devices=16, microbatches=512, latency=8, transfer=1)
    for number in (signal.SIGINT, signal.SIGTERM):
        ended = interrupted(["compare", "big.yaml", "--sweep",
                             "latency=0:900:1", "-o", "never.txt"], number, 0.5)
        check(ended == (-number, b"", b"") and
              not [n for n in names() if n.startswith("never")], ended)


@test
def an_interrupted_plan_is_the_best_so_far():
    """The search takes hours by itself; how soon it ends does not matter."""
    write("long.yaml", """
        longhaul: job/1
        model: {layers: 16, hidden: 256, ffn: 512, heads: 4, vocab: 1000}
        training: {global_batch: 64, sequence: 512}
        cluster:
          gpus_per_node: 4
          gpu: {tflops: 100, memory_gib: 80, memory_gbps: 2000}
          node_link: {gbps: 1000, latency_us: 3}
          fabric: {gbps: 100, latency_us: 8}
          datacenters: [{name: here, nodes: 2}]
        """)
    code, out, err = interrupted(
        ["plan", "long.yaml", "--search", "monte-carlo", "--draws",
         "1000000,20,1000,20", "-o", "some.json"], signal.SIGINT, 3)
    check(code == 0 and b"best of what was searched" in err and
          b"iteration" in out, (code, err))
    done = run("simulate", "some.json", "--json")
    check(done.returncode == 0, f"an interrupted plan is a plan: {done}")


finish()
