#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Contents of plans: text, JSON and files."""
import re

from harness import (ANY, ROOT, case, check, finish, has_few_cases, json_case,
                     makes, read, test, write)
from input_files import SITES, job, loaded, names, pipeline, plan

LINKED = str(ROOT / "examples/crosspipe-m70-four-sites.yaml")
# Options for which the plan search would take long are given.
EVEN = ["--no-optimal", "--search", "even"]
PRICES = ["--gpu-hour", "3", "--per-gb", "0.02"]
VARIED = ["--jitter", "latency=1,degraded=0.2x6,straggler=0.001x1.5",
          "--samples", "50", "--seed", "3"]


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
             r".*^  PP-out .*^  DP-out .*"
             r"^ +Curves use even chunks and scheduling methods,[^;]*; "
             r"the\s+plan\s+takes ")


@makes("varied.json")
def varied():
    """Returns a plan chosen under jitter, of few layouts: each is sampled 50
    times."""
    write("fewer.yaml", SITES + "layout: {tensor: 8, context: 1, pipeline: 4,"
          " chunks_per_device: 2, micro_batch: 1}\n")
    case("a plan under jitter", ["plan", "fewer.yaml", "-o", "varied.json",
                                 "--by", "p95", *VARIED, "--show",
                                 "schedules"],
         out=r"^with jitter +mean [0-9.]+ s, 95 % within [0-9.]+ s.*"
             r"^chosen by +the 95th percentile, among \d+ schedules of "
             r"\d+ layouts.*iteration +mean with jitter +95th percentile")


@makes("priced.json")
def priced():
    case("a plan with prices", ["plan", LINKED, *EVEN, "-o", "priced.json",
                                *PRICES],
         out=r"^cost +USD [\d.]+ per iteration, [\d.]+ per 10\^9 tokens; "
             r"32 GPUs at\s+USD 96 an hour\n"
             r" +including USD [\d.]+ for [\d.]+ GB sent between datacenters$")


@makes("links.json")
def linked():
    """Plans again for each change of a link, with one number of chunks."""
    with open(LINKED) as file:
        write("chunked.yaml", file.read().replace(
            "data: 1,", "data: 1, chunks_per_device: 2,"))
    case("what if", ["plan", "chunked.yaml", *EVEN, "-o", "links.json",
                     "--what-if", "latency=x1,x8", "--sensitivity", "--show",
                     "all"],
         out=r"What-if: other link values\n"
             r"  links +this plan +change +best found +with\n"
             r"  latency=x1 +[\d.]+ s +\+0\.0 % +[\d.]+ s +this plan\n"
             r"  latency=x8 +[\d.]+ s .*"
             r"Sensitivity: link values for which this plan's layout stays "
             r"the best.*"
             r"in brackets: end of the searched range.*"
             r"  links +quantity +stays from +to\n"
             r"  all links +latency +\(?[\d.]+ ms\)? +\(?[\d.]+ ms\)?.*"
             r"  all links +bandwidth +\(?[\d.]+ Gb/s\)? +\(?[\d.]+ Gb/s\)?")


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
    """Uses the default effort, like compare, and therefore few layouts and
    microbatches."""
    write("few.yaml", SITES.replace("global_batch: 512", "global_batch: 128") +
          "layout: {tensor: 8, context: 1, pipeline: 4, micro_batch: 1, "
          "chunks_per_device: 2}\n")
    if not has_few_cases():
        case("as text", ["compare", "few.yaml"],
             out=r"greedy wave.*greedy loop", err=ANY)
    rows = json_case("as JSON", ["compare", "few.yaml"], err=ANY)["rows"]
    best = json_case("planned", ["plan", "few.yaml", "--effort", "400000"],
                     err=ANY)
    check(abs(rows[0]["iteration_s"] - best["iteration_s"]) < 1e-9, "compare's best of a job is the plan's")
    pipeline()
    case("with a pipeline", ["compare", "few.yaml", "p.yaml"], 2,
         err=r"a job cannot be compared with other files")


@test
def a_plan_has_a_breakdown_of_its_time():
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
    check(re.search(r"^breakdown +compute [0-9.]+ s,.* optimizer and overhead",
                    told, re.M | re.S) and
          re.search(r"^Best alternative per dimension\n.*"
                    r"^  [a-z_, 0-9]*data \d+.* \+[0-9.]+ % ",
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
            check(advised[0]["iteration_s"] <= least * 1.0101,
                  f"{q['question']}: nothing gains 1 %: {q['why']}")
            check(q["matters"] == (" to gain" not in q["why"]), q["why"])
            check(not q["matters"] or q["gain"] >= 0.01, q)
            check("unsure" in q["sure"] or "here" in q["sure"] or
                  "retransmitted" in q["sure"], f"how sure: {q['sure']}")
    check(re.search(r"^Network\n  west>east: \d+ messages of [0-9.]+ MB\n"
                    r"    load_balancing +\S.*"
                    r"^  (iteration with these settings +[0-9.]+ s|"
                    r"no change recommended)",
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
def a_report_of_a_plan_contains_the_reasons():
    curves()
    for part in ("Pipelines or replicas over datacenters",
                 "Network: west", "Breakdown of the iteration",
                 "Runners-up", "PP-out"):
        check(part in read("curves.html"), f"the report has '{part}'")
    case("a report of a plan", ["report", "curves.json", "-o", "again.html"],
         out=ANY)
    check("Network: west" in read("again.html"),
          "report says why, too")


@test
def curves_are_of_two_sites_or_more():
    case("one site", ["plan", str(ROOT / "examples/tiny-llama-cpu.yaml"),
                      "--curves"], 1,
         err=r"tiny-llama-cpu\.yaml: cluster\.datacenters: --curves "
             r"requires at least two datacenters")


# --- plans under jitter ----------------------------------------------------------
@test
def simulate_and_plan_use_the_same_samples():
    varied()
    made = loaded("varied.json")
    found = json_case("simulate", ["simulate", "varied.json", *VARIED])[
        "jitter"]
    check(found.pop("of") == "iteration" and made["jitter"].keys() ==
          found.keys() and all(abs(made["jitter"][k] - found[k]) < 2e-9
                               for k in found), f"{made['jitter']} {found}")
    case("simulate in words", ["simulate", "varied.json", *VARIED],
         out=rf"95 % within {made['jitter']['p95_s']:.3f}\d* s.*of the"
             r"\s+iteration")


@test
def two_plans_are_compared_under_jitter():
    varied()
    made = loaded("varied.json")["jitter"]
    case("a page", ["report", "varied.json", "varied.json", "-o", "two.html"],
         out=ANY)
    page = read("two.html")
    for name, key in (("mean with jitter", "mean_s"),
                      ("95 % with jitter within", "p95_s")):
        row = re.search(rf"{name}(.{{0,200}})", page, re.S)
        check(row and row[1].count(f"{made[key]:.3f}"[:5]) == 2,
              f"{name}, {made[key]}: {row and row[1]}")


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
             err=r"--samples requires --jitter")


@test
def options_of_plans_go_together():
    job()
    draws = ["--search", "monte-carlo"]
    for options, says in [
            (["--by", "p95"], "--by p95 requires --jitter"),
            (["--by", "mean"], "--by mean requires --jitter"),
            (["--samples", "50"], "--samples requires --jitter"),
            (["--pareto-times", "2"], "--pareto-times requires --pareto"),
            (["--max-iteration", "2s"],
             "--max-iteration requires --objective cost"),
            (["--schedule", "1f1b"], "--schedule requires --from"),
            (["--jitter", "latency"],
             "--jitter: 'latency' is not latency=A"),
            ([*draws, "--jitter", "latency=1"],
             "--jitter cannot be combined with --search monte-carlo"),
            ([*draws, "--pareto"],
             "--pareto cannot be combined with --search monte-carlo"),
            ([*draws, "--objective", "cost"],
             "--objective cost cannot be combined with --search monte-carlo"),
            (["--draws", "5"], "--draws requires --search monte-carlo"),
            (["--search", "even", "--max-chunk-ratio", "2"],
             "--max-chunk-ratio has no effect with --search even"),
            (["--search", "monte-carlo", "--time", "5"],
             "--time has no effect with --search monte-carlo"),
            (["--search", "monte-carlo", "--no-optimal", "--effort", "5"],
             "--effort has no effect with --no-optimal and --search "
             "monte-carlo"),
            (["--no-optimal", "--time", "5", "--effort", "5"],
             "--effort has no effect with --no-optimal and --time")]:
        case(" ".join(options), ["plan", "job.yaml", *options], 2,
             err=re.escape(says))


@test
def layouts_can_be_drawn():
    job()
    draw = ["plan", "job.yaml", "--search", "monte-carlo", "--draws"]
    # Most random layouts do not fit: they are drawn again.
    made = json_case("layouts that fit", [*draw, "12,1,1,1", "--no-optimal"])
    check(made["search"]["layouts"] == made["search"]["simulated"] == 12,
          made["search"])
    write("small.yaml", read("job.yaml").replace(
        "gpu: h100-sxm", "gpu: {preset: h100-sxm, memory_gib: 1}"))
    case("none fits", ["plan", "small.yaml", *draw[2:], "1,1,1,1"], 1,
         err=r"none of the sampled layouts is feasible.*; use more samples")
    first, other, again = [
        json_case(f"seed {seed}", [*draw, "8,2,2,2", "--no-optimal", "--seed",
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
                               *PRICES, "--objective", "cost", "--pareto",
                               "--show", "layouts"],
         out=r"^why +best found, all of \d+ layouts.*% cheaper is possible.*"
             r"\nPareto front in time, memory and cost\n +iteration +memory +cost +layout, schedule"
             r"\n( +[\d.]+ s +[\d.]+ GiB +USD +[\d.]+  TP [^\n]+\n)+.*"
             r" in cost, [-+][\d.]+ % in time, on \d+ GPUs")
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


finish()
