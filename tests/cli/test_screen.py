#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plan fits on one screen: limited lines and columns for any job."""
import json
import re

from harness import (ROOT, WORK, case, check, finish, has_few_cases, run, test,
                     write)

LINES, COLUMNS = 40, 100
WIDE = {"COLUMNS": str(COLUMNS)}
# Plan quality does not matter here.
SOON = ["--effort", "500", "--no-optimal", "--search", "even", "-q"]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

SMALL = """longhaul: job/1
model: {model}
training: {{global_batch: 32, sequence: 2048{training}}}
cluster:
  gpu: h100-sxm
  gpus_per_node: 2
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters:
{sites}
  links:
{links}
layout: {{{layout}}}
"""
MODEL = ("{layers: 12, hidden: 1024, ffn: 4096, heads: 8, kv_heads: 8, "
         "head_dim: 128, vocab: 32000, gated: true, tied_embeddings: false}")
EXPERTS = MODEL[:-1] + ", experts: 8, experts_per_token: 2, expert_ffn: 1024}"
LONG = "a-datacenter-with-a-name-as-long-as-any-that-people-give-"


def small(names=("west", "east"), nodes=(2, 2), model=MODEL, training="",
          layout="", links=None, zones=None):
    """Returns a job over these datacenters, all of which are linked."""
    sites = "\n".join(
        f"   - {{name: {name}, nodes: {n}}}" if not zones else
        f"   - {{name: {name}, zones: [{{name: a, nodes: {n}}}, "
        f"{{name: b, nodes: {n}}}], zone_link: {{gbps: 200, latency_us: 20}}}}"
        for name, n in zip(names, nodes))
    links = links or "latency_ms: 5, gbps: 200"
    pairs = "\n".join(f"   - {{between: [{a}, {b}], {links}}}"
                      for i, a in enumerate(names) for b in names[i + 1:])
    return SMALL.format(model=model, training=training, sites=sites,
                        links=pairs, layout=layout)


# Sections requested by options are printed in full below the screen.
ASKED = ("Pareto front ", "What-if: other link values", "Sensitivity: ",
         "Faster over ")


def screen(name, job, *options, path="job.yaml"):
    """Prints the plan of a job, which must fit on one screen."""
    if job:
        write(path, job)
    done = run("plan", path, *SOON, "-o", "plan.json", *options, env=WIDE)
    check(done.returncode == 0, f"{name}: {done.stderr}")
    lines = done.stdout.splitlines()
    asked = [i for i, line in enumerate(lines) if line.startswith(ASKED)]
    own = asked[0] if asked else len(lines)
    check(own <= LINES, f"{name}: {own} lines\n{done.stdout}")
    for line in lines:
        check(len(line) <= COLUMNS, f"{name}: {len(line)} columns: {line}")
        check(line == line.rstrip(), f"{name}: blanks at the end: {line!r}")
    return done.stdout


@test
def examples_are_one_screen():
    jobs = [path for path in EXAMPLES
            if "longhaul: job/1" in path.read_text()]
    check(len(jobs) >= 9, f"examples: {jobs}")
    if has_few_cases():  # their searches take minutes there
        jobs = jobs[::6]
    for path in jobs:
        said = screen(path.name, None, path=str(path))
        for label in ("iteration", "throughput", "why", "model", "GPUs",
                      "layout", "schedule", "datacenters", "breakdown", "memory",
                      "alternatives", "plan", "more"):
            check(len(re.findall(rf"^{label} +\S", said, re.M)) == 1,
                  f"{path.name}: one line of {label}\n{said}")


@test
def every_kind_of_job_is_one_screen():
    three = ("north", "middle", "south")
    prices = ["--gpu-hour", "3", "--per-gb", "0.02"]
    asked = ["--what-if", "latency=1:20:2,bandwidth=/2", "--sensitivity",
             "--curves"]
    kinds = {
        "experts": (small(model=EXPERTS), []),
        "elastic": (small(layout="schedule: elastic"), []),
        "unequal": (small(three, (1, 2, 4)), []),
        "zones": (small(zones=True), []),
        "cost": (small(), [*prices, "--objective", "cost"]),
        "pareto": (small(), [*prices, "--pareto"]),
        "jitter": (small(layout="tensor: 2, pipeline: 2"),
                   ["--jitter", "latency=1,straggler=0.001x1.5", "--samples",
                    "20"]),
        "what if": (small(), ["--what-if", "latency=1,10,bandwidth=x2,/2"]),
        "sensitivity": (small(three, (1, 1, 2),
                              layout="tensor: 2, micro_batch: 1, "
                                     "chunks_per_device: 1"),
                        ["--sensitivity"]),
        "all at once": (small(layout="tensor: 2, micro_batch: 1, "
                                     "chunks_per_device: 1"),
                        [*prices, "--pareto", *asked, "--jitter",
                         "latency=1", "--samples", "5"]),
        "links with ends": (small(links="latency_ms: 5, gbps: 200, "
                                        "load_balancing: spray, "
                                        "queue_pairs: 1",
                                  layout="tensor: 2, pipeline: 4"), []),
    }
    for name, (job, options) in kinds.items():
        said = screen(name, job, *options)
        if name == "links with ends":
            check(re.search(r"^network +(west>east|east>west): \+[\d.]+ % "
                            r"faster with ", said, re.M), said)


@test
def flags_leave_room_for_alternatives():
    """Single options of the program are left out first, then alternatives."""
    job = small(("north", "middle", "south"), (2, 2, 2),
                layout="tensor: 2, context: 1, chunks_per_device: 1")
    write("job.yaml", job + "framework: {preset: megatron}\n")
    said = run("plan", "job.yaml", *SOON, "-o", "plan.json",
               env={"COLUMNS": "80"}).stdout
    check(len(said.splitlines()) <= LINES and "more lines" not in said and
          re.search(r"^ +\+[\d.]+ % ", said, re.M) and
          re.search(r"^flags +-[\d.]+ %, .* with all 2 advised", said, re.M),
          said)


@test
def alternatives_are_whole_rows():
    """Tests narrow screens, and jitter, for which rows are longest."""
    write("job.yaml", small(("a", "b", "c", "d"), (1, 1, 1, 1),
                            layout="tensor: 2, data: 1, pipeline: 4, "
                                   "micro_batch: 1"))
    for columns, rows in ((83, 3), (82, 2), (80, 1), (76, 0)):
        said = run("plan", "job.yaml", *SOON, "-o", "plan.json", "--html",
                   "plan.html", "--jitter", "latency=1,straggler=0.001x1.5",
                   "--samples", "5", env={"COLUMNS": str(columns)}).stdout
        check(len(said.splitlines()) <= LINES and "more lines" not in said and
              len(re.findall(r"^ +\+[\d.]+ % ", said, re.M)) == rows and
              bool(re.search("^alternatives +#?slower", said, re.M)) ==
              (rows > 0) and re.search("^more .*layouts", said, re.M),
              f"{columns} columns:\n{said}")


@test
def the_screen_names_the_sites_in_use():
    """Pipelines span datacenters if they cross from one to another."""
    one = "sites: [{replicas: 1, pipeline: [{datacenter: west, stages: 2}]}]"
    kinds = {
        "all in one datacenter":
            f"tensor: 2, pipeline: 2, data: 1, {one}",
        "PP-out (pipelines over datacenters)":
            "tensor: 2, pipeline: 4, data: 1, outermost: pipeline",
        "DP-out (replicas in different datacenters)":
            "tensor: 2, pipeline: 2, data: 2, outermost: data",
    }
    for said, layout in kinds.items():
        text = screen(said, small(layout=layout + ", micro_batch: 1"))
        text = " ".join(text.split())
        check([kind for kind in kinds if f", {kind}, " in text] == [said], text)


@test
def a_rejected_job_prints_no_screen():
    write("job.yaml", small(layout="schedule: 1f1b, chunks_per_device: 2"))
    done = case("refused", ["plan", "job.yaml"], 1, err=r"1f1b")
    check(len(done.stderr.splitlines()) == 1, done.stderr)


@test
def long_names_do_not_collide():
    names = [LONG + letter for letter in "abcdefgh"]
    said = screen("long names", small(names, [1] * 8, layout="tensor: 2"))
    rows = re.findall(r"^ +(\S+)\.\.\.  (\d) of 2 GPUs  \S", said, re.M)
    check(len(rows) == 5 and "and 3 more: --show layouts" in said, said)
    path = "j" * 240 + ".yaml"
    screen("a long path", small(), "--html", "r" * 150 + ".html", path=path)


@test
def large_numbers_do_not_collide():
    job = small(model=MODEL.replace("layers: 12", "layers: 120"),
                layout="tensor: 1, pipeline: 8, micro_batch: 1",
                links="latency_ms: 60000, gbps: 0.001")
    said = screen("slow links", job.replace("global_batch: 32",
                                            "global_batch: 64"))
    check(re.search(r"^iteration +\d{4,}\.\d{3} s ", said, re.M), said)
    head = re.search(r"^alternatives .*$", said, re.M)
    check(head, said)


@test
def more_is_shown_on_request():
    parts = {"network": "Network", "layouts": "Other layouts",
             "schedules": "Schedules on this layout",
             "dimensions": "Best alternative per dimension", "search": "Search"}
    write("job.yaml", small())
    plan = ["plan", "job.yaml", *SOON, "-o", "plan.json"]
    first = case("none", plan, out=r"^more +--show network, layouts").stdout
    for shown in ([], ["search"], ["network", "dimensions"], list(parts)):
        done = case(f"{shown}", [*plan, *(["--show", ",".join(shown)]
                                          if shown else [])], out=r"layout")
        found = {part for part, heading in parts.items()
                 if re.search(rf"^{heading}$", done.stdout, re.M)}
        check(found == set(shown), f"{shown}: {found}")
        head = first[:first.index("\nplan ")]
        check(done.stdout.startswith(head), f"{shown} comes after the screen")
    all_of_it = case("all", [*plan, "--show", "all,network"],
                     out=r"layout").stdout
    check(all(re.search(rf"^{heading}$", all_of_it, re.M)
              for heading in parts.values()), all_of_it)
    check(all(len(line) <= 80 for line in all_of_it.splitlines()),
          f"80 columns: {all_of_it}")
    twice = case("given twice", [*plan, "--show", "search", "--show",
                                 "network"], out=r"^Network$.*^Search$")
    check("Other layouts" not in twice.stdout, twice.stdout)


@test
def unknown_parts_are_refused_with_those_that_there_are():
    write("job.yaml", small())
    for bad in ("everything", "search,", "layouts,nets"):
        case(f"--show {bad!r}", ["plan", "job.yaml", "--show", bad], 2,
             err=r"--show: '\w*' is not network, layouts, schedules, "
                 r"dimensions, search, flags, or all")
    case("with JSON", ["plan", "job.yaml", "--show", "all", "--json"], 2,
         err=r"--show has no effect with --json")


# Content that exceeds the screen is in the report and in JSON.
@test
def a_report_has_all_that_is_shown():
    write("job.yaml", small(("west", "east", "south"), (1, 1, 1),
                            layout="tensor: 2, micro_batch: 1"))
    case("all", ["plan", "job.yaml", *SOON, "-o", "plan.json", "--html",
                 "plan.html", "--pareto", "--gpu-hour", "3", "--per-gb",
                 "0.02", "--what-if", "latency=1,10", "--sensitivity"],
         out=r"^report +plan\.html$")
    html = (WORK / "plan.html").read_text()
    with open(WORK / "plan.json") as file:
        plan = json.load(file)
    for title in ("Layer placement", "Memory", "Runners-up", "Pareto front",
                  "What-if: other link values",
                  "Sensitivity: link values for which",
                  "Breakdown of the iteration"):
        check(title in html, f"the report has '{title}'")
    for name in ("model", "GPUs", "notation", "search", "why"):
        check(f'"{name}"' in html, f"the report has the fact '{name}'")
    for range_ in plan["sensitivity"]["ranges"]:
        if "between" in range_:
            check("-".join(range_["between"]) in html, f"{range_['between']}")
    answer = plan["what_if"][0]
    check(f'"What if","{answer["links"]}: ' in html,
          "the recommendation has the answer")
    check(len(plan["what_if"]) == 2 and plan["front"] and plan["memory"] and
          plan["runners_up"] and plan["search"], "the JSON has all")


# The share of iterations with a straggler is 1 - (1 - rate)^GPUs.
@test
def a_rate_per_gpu_is_printed_for_all_gpus():
    write("job.yaml", small(layout="tensor: 2, pipeline: 2, data: 2"))
    for rate in (0.001, 0.05, 1):
        varied = ["--jitter", f"straggler={rate}x2", "--samples", "5"]
        words = (rf"a GPU is slow with probability {100 * rate:.3g} %; on "
                 rf"average {8 * rate:.3g} of the 8 GPUs are slow; "
                 rf"{'over 99.9' if rate == 1 else f'{100 * (1 - (1 - rate) ** 8):.3g}'}"
                 rf" % of the iterations have a slow GPU").replace(" ", r"\s+")
        case(f"rate {rate}", ["plan", "job.yaml", *SOON, "-o", "plan.json",
                              *varied], out=words)
        case(f"of a plan, {rate}", ["simulate", "plan.json", *varied],
             out=words)


# A narrow terminal has more lines; no sentence is truncated.
@test
def sentences_are_wrapped_in_narrow_terminals():
    write("job.yaml", small(layout="tensor: 2, pipeline: 2, data: 2"))
    slow = (r"a GPU is slow with probability 0\.1 %; on average 0\.008 of the 8 "
            r"GPUs are slow; 0\.797 % of the iterations have a slow GPU"
            ).replace(" ", r"\s+")
    for columns in (75, 60, 44):
        said = case(f"{columns} columns",
                    ["plan", "job.yaml", *SOON, "-o", "plan.json", "--jitter",
                     "latency=1,straggler=0.001x1.5", "--samples", "5"],
                    out=slow, env={"COLUMNS": str(columns)}).stdout
        check(not re.search(r"\.\.\.$", said, re.M) and
              re.search(r"^memory +\S", said, re.M) and
              "more lines" not in said, f"cut: {said}")


# Links are a-b (both directions) and a>b; names of datacenters contain dashes.
@test
def links_are_named_by_their_ends():
    write("job.yaml", small(("a", "a-b", "b-c", "c"), (1, 1, 1, 1),
                            layout="tensor: 2, data: 1, pipeline: 4"))
    plan = ["plan", "job.yaml", *SOON, "-o", "plan.json"]
    case("two ways to read it", [*plan, "--what-if", "a-b-c.latency=5"], 2,
         err=r"--what-if: 'a-b-c' is ambiguous.*'>'")
    case("said", [*plan, "--what-if", "a>b-c.latency=5"],
         out=r"^  a>b-c\.latency=5 ")
    case("'>' in a name", ["plan", write("bad.yaml", small(("a", "b>c")))], 1,
         err=r"bad\.yaml:\d+: cluster\.datacenters\[1\]\.name: .*'>'")
    said = case("network", [*plan, "--show", "network"],
                out=r"^Network$").stdout
    check("a>a-b: " in said and " to a" not in said.split("Network\n")[1],
          said)
    with open(WORK / "plan.json") as file:
        links = json.load(file)["pipeline"]["links"]
    check(links and all(re.fullmatch(r"(a|a-b|b-c|c)>(a|a-b|b-c|c)",
                                     link["name"]) for link in links), links)
    delay = ["train", "plan.json", "-n", "1", "--speed", "1000", "--inject"]
    case("one link of a plan", [*delay, "a>a-b=latency:9ms"], out=r"predicted")
    case("both ways", [*delay, "a-a-b=latency:9ms"], out=r"predicted")
    case("no link", [*delay, "a-c=latency:9ms"], 1,
         err=r"'a-c' is neither a link of the pipeline: a>a-b, ")


# Printed alternatives must differ.
@test
def alternatives_are_distinguishable():
    write("job.yaml", small(layout="tensor: 2"))
    said = run("plan", "job.yaml", "--no-optimal", "-q", "-o", "plan.json",
               env=WIDE).stdout
    text = re.search(r"^alternatives .*\n((?: +.*\n)*)", said, re.M).group(1)
    rows = re.findall(r"^ +\+([\d.]+) % +([\d.]+) (m?s)  \S.*$", text, re.M)
    with open(WORK / "plan.json") as file:
        plan = json.load(file)
    best = plan["iteration_s"]
    check(0 < len(rows) <= 3, said)
    shares = [float(share) for share, _, _ in rows]
    rows = [(share, float(time) / (1000 if unit == "ms" else 1))
            for share, time, unit in rows]
    check(shares == sorted(set(shares)) and shares[0] > 0, f"ties: {rows}")
    for share, seconds in rows:
        check(abs(100 * (seconds / best - 1) - float(share)) <= 0.06,
              f"{share} % is not {seconds} s over {best} s")
        check(any(abs(a["iteration_s"] - seconds) < 1e-6
                  for a in plan["alternatives"]), f"{seconds}: no alternative")


finish()
