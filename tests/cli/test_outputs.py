#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is written, where, and what happens when it cannot be."""
import json
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as xml

from harness import (ANY, ENVIRONMENT, PROGRAM, ROOT, WORK, case, check,
                     finish, json_case, read, run, uniform, write)

uniform("p.yaml", latency=8, transfer=1, limit=4)
SITES = (ROOT / "examples/llama3-70b-two-sites.yaml").read_text()
# Llama 3 70B on two sites, with what takes the search long given.
JOB = write("job.yaml",
            SITES +
            "layout: {tensor: 8, context: 1, chunks_per_device: 2}\n")


def names():
    return sorted(os.listdir(WORK))


# --- schedule ----------------------------------------------------------------
text = case("schedule", ["schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv"],
            out=r"\Amethod +zb-h1\nmakespan +458 ms\nlower bound .*"
                r"written +s\.csv\n\Z")
check(read("s.csv") == run("schedule", "p.yaml", "-m", "zb-h1").stdout,
      "-o and standard output agree")
check(len(read("s.csv").splitlines()) == 4, "a row per device")
found = json_case("schedule as JSON",
                  ["schedule", "p.yaml", "-m", "zb-h1", "-o", "t.csv"])
check(read("t.csv") == read("s.csv"), "--json writes the same file")
check(found["makespan_s"] == 0.458 and found["peak_memory"] == [4, 4, 4, 4]
      and found["method"] == "zb-h1" and found["status"] == "feasible"
      and 0 < found["lower_bound_s"] <= 0.458 and found["seconds"] >= 0
      and abs(found["gap"] - (0.458 / found["lower_bound_s"] - 1)) < 1e-12,
      f"numbers of schedule --json: {found}")
found = json_case("auto says which", ["schedule", "p.yaml"])
check(found["requested"] == "auto" and found["method"] != "auto",
      "auto names the method that won")
optimal = uniform("one.yaml", devices=1)
found = json_case("nothing faster", ["schedule", optimal, "-m", "gpipe"])
check(found["status"] == "optimal" and found["gap"] == 0, "a gap of 0")
case("parts", ["schedule", "p.yaml", "-m", "greedy", "--sub-blocks", "4"],
     out=r"W\d+:\d/4", err=ANY)
case("whole again", ["schedule", "p.yaml", "-m", "greedy", "--sub-blocks", "4",
                     "--whole"], out=r"\A[^:]+\Z",
     err=r"whole weight-gradient passes (cost|save) [\d.]+ ms")
case("quiet", ["schedule", "p.yaml", "-m", "greedy", "--sub-blocks", "4",
               "--whole", "-q"], out=r"\A[^:]+\Z")
case("warm-up given", ["schedule", "p.yaml", "-m", "slack", "--warmup",
                       "4,3,2,1"], out=r"\A0F0,0F1,0F2,0F3,0[^F]")
case("standard input", ["schedule", "-", "-m", "zb-h1"], stdin=read("p.yaml"),
     out="^" + re.escape(read("s.csv")) + "$")
case("wrong standard input", ["schedule", "-"], 1, stdin="what: 1\n",
     err=r"\Alonghaul: standard input:1: [^\n]+\n\Z")

# --- check ---------------------------------------------------------------------
case("valid", ["check", "p.yaml", "s.csv"], out=r"\Avalid: s\.csv takes 458 ms")
found = json_case("valid as JSON", ["check", "p.yaml", "s.csv"])
check(found["valid"] is True and found["violations"] == [] and
      found["makespan_s"] == 0.458 and found["peak_memory"] == [4, 4, 4, 4],
      "check --json")
write("less.csv", read("s.csv").replace(",0F7", "", 1))
found = json_case("not valid as JSON", ["check", "p.yaml", "less.csv"], 1)
check(found["valid"] is False and len(found["violations"]) >= 1,
      "check --json of a schedule without 0F7")
case("not valid", ["check", "p.yaml", "less.csv"], 1,
     out=r"\Anot valid: \d+ violation.*0F7")

# --- simulate --------------------------------------------------------------------
case("simulate", ["simulate", "p.yaml", "-s", "s.csv", "--trace", "t.json",
                  "--svg", "t.svg", "--html", "t.html"],
     out=r"makespan +458 ms.*Critical path.*Slackness.*Links")
trace = json.loads(read("t.json"))
check(sum(e.get("ph") == "X" for e in trace["traceEvents"]) >= 4 * 36,
      "the trace has all passes")
check(xml.fromstring(read("t.svg")).tag.endswith("svg"), "SVG is XML")
check(read("t.html").lower().startswith("<!doctype html>") and
      not re.search(r"""(src|href)=["']?https?:""", read("t.html")),
      "the report loads nothing")
found = json_case("simulate as JSON", ["simulate", "p.yaml", "-s", "s.csv"])
path = found["critical_path"]
check(found["makespan_s"] == 0.458 and path[0]["start_s"] == 0 and
      path[-1]["end_s"] == 0.458 and
      all(a["end_s"] == b["start_s"] for a, b in zip(path, path[1:])),
      "the critical path joins from 0 to the makespan")
idle = 4 * 0.458 - 4 * 12 * 0.030
check(abs(sum(found["bubble_s"].values()) - idle) < 1e-12,
      "causes add up to the idle time")
check(abs(found["bubble_ratio"] - idle / (4 * 0.458)) < 1e-12, "bubble ratio")
check([link["name"] for link in found["links"]] == ["dc0-dc1", "dc1-dc0"],
      "links by name")
for model, least in ((["--receives", "late"], 0.458),
                     (["--receives", "late-fd"], 0.458),
                     (["--coupled", "1"], 0.458)):
    slower = json_case(f"{model}", ["simulate", "p.yaml", "-s", "zb-h1",
                                    *model])
    check(slower["makespan_s"] >= least, f"{model} is not faster")
found = json_case("first device", ["simulate", "p.yaml", "-s", "zb-h1",
                                   "--objective", "first-device"])
check(found["objective_s"] == found["first_device_s"] <= found["makespan_s"],
      "objective first-device")
case("over memory", ["simulate", "p.yaml", "-s", "less.csv"], 1,
     err=r"\Alonghaul: ")
uniform("roomy.yaml", latency=8, transfer=1)
run("schedule", "roomy.yaml", "-m", "gpipe", "-o", "g.csv")
case("over memory", ["simulate", "p.yaml", "-s", "g.csv"],
     out=r"peak memory +12 on device \d, over the limit",
     err=r"\Alonghaul: the schedule needs more memory than the limit")

# Messages in an order of their own, from the file beside the schedule.
uniform("two.yaml", devices=2, microbatches=2, latency=8, transfer=5)
run("schedule", "two.yaml", "-m", "gpipe", "-o", "two.csv")
fifo = json_case("first in, first out", ["simulate", "two.yaml", "-s",
                                         "two.csv"])
write("two.links.csv", "dc0-dc1,0F1,0F0\n")
held = json_case("0F0 waits for 0F1", ["simulate", "two.yaml", "-s",
                                       "two.csv"])
check(round((held["makespan_s"] - fifo["makespan_s"]) * 1e3) == 15,
      f"link orders count: {held['makespan_s']} and {fifo['makespan_s']}")
check(json_case("--fifo", ["simulate", "two.yaml", "-s", "two.csv", "--fifo"])
      ["makespan_s"] == fifo["makespan_s"], "--fifo ignores link orders")
check(json_case("check", ["check", "two.yaml", "two.csv"])["makespan_s"] ==
      held["makespan_s"], "check reads link orders")
case("what PyTorch cannot", ["export", "two.yaml", "-s", "two.csv"], out=ANY,
     err=r"PyTorch knows neither .* takes 15 ms less")
write("two.links.csv", "dc0-dc1,0F1\n")
case("link order not whole", ["check", "two.yaml", "two.csv"], 1,
     out=r"not valid")
case("link order not whole", ["simulate", "two.yaml", "-s", "two.csv"], 1,
     err=r"\Alonghaul: [^\n]+\n\Z")
run("schedule", "two.yaml", "-m", "gpipe", "-o", "two.csv")
check("two.links.csv" not in names(), "an old links file goes")

# --- compare ---------------------------------------------------------------------
case("compare", ["compare", "p.yaml"],
     out=r"\Amethod +makespan.*\ngreedy .*\ngpipe .*limit is 4.*lower bound")
rows = json_case("compare as JSON", ["compare", "p.yaml"])["rows"]
times = [r["makespan_s"] for r in rows if r["status"] == "ok"]
check(times == sorted(times) and len(times) >= 4 and
      {r["method"] for r in rows} >= {"gpipe", "1f1b", "zb-h1", "zb-v"},
      "rows are sorted and all there")
check(all(len(r["peak_memory"]) == 4 and max(r["peak_memory"]) <= 4
          for r in rows if r["status"] == "ok"),
      "a row has the peak memory of each device")
check(all(r["makespan_s"] >= r["lower_bound_s"] for r in rows
          if r["status"] == "ok"), "nothing beats the bound")
rows = json_case("sweep", ["compare", "p.yaml", "-m", "zb-h1,greedy",
                           "--sweep", "latency=0:1:0.5,transfer=0,2ms"])["rows"]
check(sorted({(r["latency_s"], r["transfer_s"]) for r in rows}) ==
      [(0.0, 0.0), (0.0, 0.002), (0.005, 0.0), (0.005, 0.002), (0.01, 0.0),
       (0.01, 0.002)] and len(rows) == 12, "points of a sweep")
alone = json_case("one point", ["compare", "p.yaml", "-m", "zb-h1", "--sweep",
                                "latency=8ms,transfer=1ms"])["rows"][0]
check(alone["makespan_s"] == 0.458, "a sweep sets what the file says, too")
done = case("sweep as text", ["compare", "p.yaml", "-m", "zb-h1,greedy",
                              "--sweep", "latency=0:2:0.25"],
            out=r"\nlatency .*\nzb-h1 .*slowdown")
check(max(map(len, done.stdout.splitlines())) <= 80, "a sweep fits the width")
replayed = json_case("replay", ["compare", "p.yaml", "-m", "slack", "--replay",
                                "--sweep", "latency=0:4:1"])["rows"]
remade = json_case("no replay", ["compare", "p.yaml", "-m", "slack",
                                 "--sweep", "latency=0:4:1"])["rows"]
check(replayed != remade, "--replay keeps the schedules")
uniform("wave.yaml", placement="wave", chunks=2, latency=8, transfer=1)
rows = json_case("two files", ["compare", "p.yaml", "wave.yaml"])["rows"]
check({r["pipeline"] for r in rows if r["method"] == "greedy"} ==
      {"p", "wave"} and
      {r["pipeline"] for r in rows if r["method"] == "zb-v"} == {"wave"},
      "methods compete on the placements that suit them")
case("compare with a report", ["compare", "p.yaml", "--html", "c.html"],
     out=ANY)
check("zb-h1" in read("c.html"), "the report has the methods")

# --- jobs and plans ----------------------------------------------------------------
told = case("plan", ["plan", JOB, "--html", "plan.html"],
            out=r"iteration .*layout .*Schedules on this layout.*Other layouts.*"
                r"plan +plan\.json\nreport +plan\.html\n\Z").stdout
plan = json.loads(read("plan.json"))
check({"iteration_s", "layout", "schedule", "alternatives"} <= plan.keys(),
      "keys of a plan")
before = names()
done = case("plan as JSON", ["plan", JOB, "--json"], out=r"\A\{")
check(done.stdout == read("plan.json"), "--json prints the plan itself")
check(names() == before, "--json leaves no file behind")
found = json_case("simulate a plan", ["simulate", "plan.json"])
check(found["makespan_s"] <= plan["iteration_s"], "a plan's iteration holds "
      "its makespan")
case("compare a job", ["compare", JOB], out=r"greedy wave.*greedy loop", err=ANY)
job_rows = json_case("compare a job", ["compare", JOB], err=ANY)["rows"]
check(abs(job_rows[0]["iteration_s"] - plan["iteration_s"]) < 1e-9,
      "compare's best of a job is the plan's")
case("a job is compared alone", ["compare", JOB, "p.yaml"], 2,
     err=r"compared on its own")
check(abs(sum(plan["account"].values()) - plan["iteration_s"]) < 1e-9 and
      all(part >= 0 for part in plan["account"].values()),
      f"the parts add up: {plan['account']}")
second = {r["dimension"]: r["choice"] for r in plan["runners_up"]}
check({"data", "micro_batch", "schedule"} <= second.keys() and
      all(second[d]["layout"][d] != plan["layout"][d]
          for d in ("data", "micro_batch", "schedule")),
      f"runners-up: {second.keys()}")
check(all(c["iteration_ns"] >= plan["iteration_ns"] or c["status"] != "ok"
          for c in second.values()), "runners-up are no faster")
check([(a["from"], a["to"]) for a in plan["network"]] ==
      [("west", "east"), ("east", "west")], "every link has advice")
for link in plan["network"]:
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
        check(q["matters"] != q["why"].startswith("nothing to gain"), q["why"])
check(re.search(r"^made of +compute [0-9.]+ s,.* optimizer and overhead",
                told, re.M | re.S) and
      re.search(r"^The best with another\n.*^  data, \d+ +\+[0-9.]+ %",
                told, re.M | re.S), f"reasons in words: {told}")
check(re.search(r"^Network\n  west to east: \d+ messages of [0-9.]+ MB\n"
                r"    load_balancing +\S.*^  iteration with all of it +[0-9.]+ s",
                told, re.M | re.S), f"advice in words: {told}")

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
         r"^  oversubscription +1 +2 +4 +8 +16 +32$.*^  PP-out .*^  DP-out ")
curves = json.loads(read("curves.json"))["curves"]
check([c["over"] for c in curves] == ["oversubscription"] and
      [s["name"] for s in curves[0]["series"]] == ["PP-out", "DP-out"] and
      curves[0]["x"] == [1, 2, 4, 8, 16, 32] and
      all(a <= b * 1.05 for s in curves[0]["series"]
          for a, b in zip(s["iteration_s"], s["iteration_s"][1:])),
      f"curves: {curves}")
for part in ("Pipelines or replicas over datacenters", "Network: west to east",
             "What the iteration consists of", "Runners-up", "PP-out"):
    check(part in read("curves.html"), f"the report has '{part}'")
case("a report of a plan", ["report", "curves.json", "-o", "again.html"],
     out=ANY)
check("Network: west to east" in read("again.html"),
      "report says why, too")

VARIED = ["--jitter", "latency=1,degraded=0.2x6,straggler=0.001x1.5",
          "--samples", "50", "--seed", "3"]
# Fewer layouts: each is played 50 times.
FEWER = write("fewer.yaml", SITES + "layout: {tensor: 8, context: 1, pipeline: 4,"
              " chunks_per_device: 2, micro_batch: 1}\n")
case("a plan under jitter", ["plan", FEWER, "-o", "varied.json", "--by", "p95",
                             *VARIED],
     out=r"^with jitter +mean [0-9.]+ s, 95 % within [0-9.]+ s.*"
         r"^chosen by +the 95th percentile, among \d+ schedules of \d+ layouts.*"
         r"without jitter, its mean, its 95th percentile")
varied = json.loads(read("varied.json"))
found = json_case("simulate it", ["simulate", "varied.json", *VARIED])["jitter"]
after = varied["iteration_ns"] - varied["makespan_ns"]
check(all(abs(varied["jitter"][k] - found[k] - after / 1e9) < 2e-9
          for k in found if k != "samples"),
      f"simulate draws what plan does: {varied['jitter']} {found}")
check(varied["robust"]["by"] == "p95" and varied["robust"]["seed"] == 3 and
      varied["robust"]["straggler"] == {"rate": 0.001, "factor": 1.5},
      f"what was drawn: {varied['robust']}")
check(all(varied["jitter"]["p95_s"] <= row["jitter"]["p95_s"]
          for row in varied["methods"] + varied["alternatives"]
          if "jitter" in row), "the least 95th percentile wins")
case("by p95 alone", ["plan", JOB, "--by", "p95"], 2,
     err=r"--by p95 needs --jitter")
for what, options, says in [
        ("samples of nothing", ["--samples", "50"], "--samples needs --jitter"),
        ("by mean alone", ["--by", "mean"], "--by mean needs --jitter"),
        ("jitter of draws", ["--search", "monte-carlo", "--jitter",
                             "latency=1"],
         "--jitter does not go with --search monte-carlo"),
        ("front of draws", ["--search", "monte-carlo", "--pareto"],
         "--pareto does not go with --search monte-carlo"),
        ("cheapest of draws", ["--search", "monte-carlo", "--objective",
                               "cost"],
         "--objective cost does not go with --search monte-carlo"),
        ("ratio of even chunks", ["--search", "even", "--max-chunk-ratio",
                                  "2"],
         "--max-chunk-ratio does nothing with --search even"),
        ("effort for nothing", ["--no-optimal", "--effort", "9"],
         "--effort does nothing with --no-optimal")]:
    case(what, ["plan", JOB, *options], 2, err=re.escape(says))
case("samples of a simulation", ["simulate", "varied.json", "--samples", "9"], 2,
     err=r"--samples needs --jitter")
case("samples of a comparison", ["compare", "varied.json", "--samples", "9"], 2,
     err=r"--samples needs --jitter")
case("none that works", ["plan", JOB, "--search", "monte-carlo", "--draws",
                         "1,1,1,1"], 1,
     err=r"none of the layouts that were drawn works.*; draw more")
seeds = [json_case(f"draws of seed {seed}",
                   ["plan", JOB, "--search", "monte-carlo", "--draws",
                    "20,5,5,5", "--no-optimal", "--seed", str(seed)])
         for seed in (1, 7, 7)]
check(seeds[1] == seeds[2] and
      seeds[0]["iteration_ns"] != seeds[1]["iteration_ns"],
      "other seeds draw other layouts")
case("draws of nothing", ["plan", JOB, "--draws", "5"], 2,
     err=r"--draws needs --search monte-carlo")
case("curves of one site", ["plan", str(ROOT / "examples/tiny-llama-cpu.yaml"),
                            "--curves"], 1,
     err=r"tiny-llama-cpu\.yaml: cluster\.datacenters: --curves compares")
case("no jitter", ["plan", JOB, "--jitter", "latency"], 2,
     err=r"--jitter: 'latency' is not latency=A")

# --- export, report ------------------------------------------------------------------
LINKED = str(ROOT / "examples/crosspipe-m70-four-sites.yaml")

# --- costs -------------------------------------------------------------------
case("a plan with prices", ["plan", LINKED, "--no-optimal", "--search", "even",
                            "-o", "priced.json", "--gpu-hour", "3", "--per-gb",
                            "0.02"],
     out=r"^cost +USD [\d.]+ per iteration, [\d.]+ per 10\^9 tokens; 32 GPUs at "
         r"96 an hour\n +of it [\d.]+ for [\d.]+ GB between datacenters$")
priced = json.loads(read("priced.json"))
cost = priced["cost"]
check(abs(cost["usd"] - 96 * priced["iteration_s"] / 3600
          - 0.02 * cost["between_gb"]) < 1e-9 and cost["gpus"] == 32,
      f"what an iteration costs: {cost}")
check(priced["job"]["cluster"]["datacenters"][0]["usd_per_gpu_hour"] == 3,
      "the plan's job has the prices")

cheap = case("the cheapest plan", ["plan", LINKED, "--no-optimal", "--search",
                                   "even", "-o", "cheap.json", "--gpu-hour",
                                   "3", "--per-gb", "0.02", "--objective",
                                   "cost", "--pareto"],
             out=r"^why +the cheapest of \d+ layouts.* in cost, [-+][\d.]+ % in "
                 r"time, on \d+ GPUs.*\nNothing is as good in time, memory and "
                 r"cost as one of these\n +iteration +memory +cost\n"
                 r"( +[\d.]+ s +[\d.]+ GiB  USD +[\d.]+  TP [^\n]+\n)+")
cheap = json.loads(read("cheap.json"))
rows = [(f["iteration_ns"], f["peak_memory_bytes"], f["cost"]["usd"])
        for f in cheap["front"]]
check(cheap["objective"] == "cost" and cheap["front_whole"]
      and cheap["cost"]["usd"] <= cost["usd"]
      and min(r[2] for r in rows) == cheap["cost"]["usd"]
      and min(r[0] for r in rows) <= priced["iteration_ns"]
      and not any(all(a <= b for a, b in zip(x, y))
                  for x in rows for y in rows if x is not y),
      f"the front, the cheapest and the fastest: {rows}")

# --- other links -------------------------------------------------------------
# Each change of a link is planned for again: with one number of chunks.
with open(LINKED) as file:
    CHUNKED = write("chunked.yaml", file.read().replace(
        "data: 1,", "data: 1, chunks_per_device: 2,"))
case("what if", ["plan", CHUNKED, "--no-optimal", "--search", "even", "-o",
                 "links.json", "--what-if", "latency=x1,x8", "--sensitivity"],
     out=r"If the links were others\n  latency=x1\n    this plan takes [\d.]+ s "
         r"\(\+0\.0 %\), and is the best\n  latency=x8\n    this plan takes.*"
         r"How far the links may change.*latency, all links: stays the best "
         r"from .*bandwidth, all links: stays the best from ")
links = json.loads(read("links.json"))
same, far = links["what_if"]
check(same["links"] == "latency=x1" and same["keeping_costs"] == 0
      and same["kept"]["iteration_ns"] == links["iteration_ns"],
      "the same links give the same plan")
check(far["kept"]["iteration_ns"] > links["iteration_ns"]
      and abs(far["keeping_costs"] - (far["kept"]["iteration_s"]
                                      / far["best"]["iteration_s"] - 1)) < 1e-9,
      f"what keeping a plan costs: {far['keeping_costs']}")
spans = links["sensitivity"]["ranges"]
check({s["quantity"] for s in spans} == {"latency", "bandwidth"}
      and "between" not in spans[0] and len(spans[2]["between"]) == 2,
      "ranges of sensitivity")
check(json_case("simulate a plan with answers", ["simulate", "links.json"])
      ["makespan_s"] <= links["iteration_s"], "and it is a plan like others")

case("PyTorch", ["export", "plan.json", "--to", "pytorch", "-o", "x.csv"],
     out=r"written +x\.csv", err=ANY)
check(":" not in read("x.csv"), "no parts for PyTorch")
case("what Megatron-LM cannot", ["export", "plan.json", "--to", "megatron"], 1,
     err=r"Megatron-LM puts stage k on rank k mod pipeline.* as a wave; plan "
         r"with")
case("torchtitan", ["export", "plan.json", "--to", "torchtitan", "--stages",
                    "stages.json"],
     out=r"--parallelism.tensor_parallel_degree \d+\n.*"
         r"--parallelism.pipeline_parallel_schedule ZBVZeroBubble\n.*"
         r"--training.num_tokens_per_train_step 4194304\n")
stages = json.loads(read("stages.json"))
modules = sum(stages["module_fqns_per_model_part"], [])
check(modules == ["tok_embeddings", *(f"layers.{i}" for i in range(80)),
                  "norm", "lm_head"], "stages hold the model in order")
there = list(range(plan["layout"]["pipeline"]))
check(stages["stage_ranks"] == there + there[::-1],
      f"stages lie on a V: {stages['stage_ranks']}")
case("with sends", ["export", "p.yaml", "-s", "1f1b", "--form",
                    "compute_comms"],
     out=r"\A0UNSHARD,0F0,.*0SEND_F0,.*0WAIT_REDUCE_GRAD\n")
case("a pipeline has no stages", ["export", "p.yaml", "--stages", "x.json"], 1,
     err=r"p\.yaml: which layers a stage has.*give a plan")
text = SITES + (
    "\nlayout: {schedule: interleaved-1f1b, pipeline: 4, tensor: 8}\n")
(WORK / "mega.yaml").write_text(text)
case("a plan for Megatron-LM", ["plan", "mega.yaml", "-o", "mega.json"],
     out=ANY, err=ANY)
case("Megatron-LM", ["export", "mega.json", "--to", "megatron"],
     out=r"--tensor-model-parallel-size \d+\n.*"
         r"--pipeline-model-parallel-layout Et\*\d+[^\n]*L\n.*"
         r"--num-layers 80\n")
# Where the job fixes which datacenter has what, the plan says so, and exports say
# which ranks these are.
(WORK / "sited.yaml").write_text(SITES + """
layout:
  schedule: interleaved-1f1b
  tensor: 8
  sites:
    - replicas: 8
      pipeline: [{datacenter: east, stages: 2}, {datacenter: west, stages: 2}]
""")
case("a plan with sites", ["plan", "sited.yaml", "-o", "sited.json", "--html",
                           "sited.html"],
     out=r"datacenters +pipeline east -> west \(2, 2 stages\)\n", err=ANY)
check("pipeline east -> west (2, 2 stages)" in read("sited.html").replace(
    "&gt;", ">").replace("\\u003e", ">"), "the report says where stages are")
case("where ranks are", ["export", "sited.json", "--to", "megatron"],
     out=r"# Ranks 0 to 127: east\n# Ranks 128 to 255: west\n")
# PipeMesh's plans: what Megatron-LM has arguments for becomes these, the rest is
# said; torchtitan numbers ranks another way.
ELASTIC = ROOT / "examples/llama3-70b-elastic.yaml"
case("an elastic plan", ["plan", str(ELASTIC), "-o", "elastic.json"],
     out=r"schedule +elastic, .*zero-bubble.*Other layouts", err=ANY)
text = run("export", "elastic.json", "--to", "megatron").stdout
groups = json.loads((WORK / "elastic.json").read_text())["elastic"]
size = int(re.search(r"--microbatch-group-size-per-virtual-pipeline-stage (\d+)",
                     text)[1])
check(4 <= size <= groups["enqueue"][0] and (64 % size == 0 or 64 % size >= 4),
      f"a group that Megatron-LM takes: {size}")
check(re.search(rf"takes {size} microbatches together.*: \d+\.\d+ s", text),
      f"what these groups take: {text}")
check((groups["gradients"] > 0) == ("sharded beyond ZeRO-1" in text),
      f"sharding that is not expressed: {text}")
elastic = json.loads((WORK / "elastic.json").read_text())
elastic["elastic"]["recomputed"] = [
    {"operation": name, "first": 1, "last": last}
    for name, last in (("attention norm", 1), ("mlp norm", 1), ("value", 0.5))]
(WORK / "again.json").write_text(json.dumps(elastic))
text = run("export", "again.json", "--to", "megatron").stdout
check("--recompute-granularity selective\n--recompute-modules layernorm\n" in text,
      f"recomputed modules: {text}")
check("recomputed value 100 to 50 % of the layers" in text and
      "recomputed attention norm" not in text, f"and what is none: {text}")
for key, value, why in (
        ("enqueue", [60, 5], r"elastic\.enqueue: the groups have 65 micro"
                             r"batches, the plan 64"),
        ("dequeue", [], r"elastic\.dequeue: must hold at least one group"),
        ("parameters", 1.5, r"1\.5 is out of range"),
        ("parameters", 1, r"a share of 1 is .* more than 'gradients'")):
    broken = json.loads((WORK / "elastic.json").read_text())
    broken["elastic"][key] = value
    (WORK / "broken.json").write_text(json.dumps(broken))
    case(f"an elastic plan of {key} {value}", ["simulate", "broken.json"], 1,
         err=why)
case("torchtitan cannot", ["export", "elastic.json", "--to", "torchtitan"], 1,
     err=r"layout\.outermost: pipeline")
# State that each datacenter has all of.
HYBRID = """longhaul: job/1
model: llama3-8b
training: {global_batch: 64, sequence: 4096, zero: 1}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: a, nodes: 2}, {name: b, nodes: 2}]
  links: [{between: [a, b], latency_ms: 1, gbps: 800}]
layout: {tensor: 4, pipeline: 1, data: 8, micro_batch: 1, outermost: data,
         sharding: %s}
"""
for kind in ("hybrid", "hybrid-leaders"):
    (WORK / "hybrid.yaml").write_text(HYBRID % kind)
    case(kind, ["plan", "hybrid.yaml", "-o", f"{kind}.json"],
         out=rf"DP-out sharding {kind}", err=ANY)
case("instances of the optimizer", ["export", "hybrid.json", "--to", "megatron"],
     out=r"--num-distributed-optimizer-instances 2\n")
case("groups of replicas", ["export", "hybrid.json", "--to", "torchtitan"],
     out=r"data_parallel_replicate_degree 2\n.*data_parallel_shard_degree 4\n")
for target in ("megatron", "torchtitan"):
    case(f"leaders in {target}", ["export", "hybrid-leaders.json", "--to",
                                  target], 1,
         err=r"this plan those of one in each datacenter; plan with "
             r"layout\.sharding: hybrid")
case("Chrome", ["export", "plan.json", "--to", "chrome", "-o", "x.json"],
     out=ANY)
found = json_case("report", ["report", "--predicted", "plan.json",
                             "--measured", "x.json", "-o", "both.html"])
passes = (3 * plan["microbatches"] * plan["layout"]["pipeline"] *
          plan["layout"]["chunks_per_device"])
check(found["error"] == 0 and found["mean_start_error_s"] == 0 and
      found["passes"] == passes and found["report"] == "both.html",
      f"a plan and its own trace agree: {found}")
case("report of files", ["report", "plan.json", "x.json"],
     out=r"\Areport +report\.html\n\Z")
uniform("single.yaml", devices=1, microbatches=1)
uniform("double.yaml", devices=1, microbatches=1, backward="joint")
run("simulate", "single.yaml", "-s", "zb-h1", "--trace", "single.json")
run("simulate", "double.yaml", "--trace", "double.json")
case("other passes", ["report", "--predicted", "single.json", "--measured",
                      "double.json"],
     out=r"not in both: 2 predicted, 1 measured passes")

# --- writing --------------------------------------------------------------------------
check(not [n for n in names() if ".tmp-" in n], "no temporary files are left")
inode = (WORK / "s.csv").stat().st_ino
run("schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv")
check((WORK / "s.csv").stat().st_ino != inode, "a file is replaced whole")
(WORK / "no").mkdir()
for args in (["schedule", "p.yaml", "-o"], ["simulate", "p.yaml", "--html"],
             ["simulate", "p.yaml", "--trace"], ["plan", JOB, "-o"],
             ["simulate", "p.yaml", "-o"], ["compare", "p.yaml", "-o"],
             ["check", "p.yaml", "s.csv", "-o"], ["export", "plan.json", "-o"],
             ["report", "plan.json", "-o"],
             ["train", "p.yaml", "--steps", "100000000", "--trace"],
             ["train", "p.yaml", "--steps", "100000000", "--html"],
             ["train", "p.yaml", "--steps", "100000000", "-o"]):
    case(f"no such folder: {args}", [*args, "nowhere/f"], 1,
         err=r"\A(longhaul: [^\n]*\n)?longhaul: nowhere/f: cannot write: No "
             r"such file or directory\n\Z")
    case(f"a folder: {args}", [*args, "no"], 1,
         err=r"\A(longhaul: [^\n]*\n)?longhaul: no: is a directory[^\n]*\n\Z")
if os.geteuid() != 0:
    (WORK / "no").chmod(0o555)
    case("folder that is closed", ["schedule", "p.yaml", "-o", "no/f"], 1,
         err=r"no/f: cannot write: Permission denied")
case("text to a file", ["simulate", "p.yaml", "-o", "sim.txt"])
check("makespan" in read("sim.txt"), "simulate -o")
case("JSON to a file", ["check", "p.yaml", "s.csv", "--json", "-o", "v.json"])
check(json.loads(read("v.json"))["valid"] is True, "check --json -o")
if os.path.exists("/dev/full"):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "schedule", "p.yaml"], stdout=full,
                              stderr=subprocess.PIPE, text=True, cwd=WORK)
    check(done.returncode == 1 and
          re.match(r"\Alonghaul: cannot write to standard output: No space",
                   done.stderr), f"full device: {done}")

# Closed standard output: an error, and no file is mistaken for it.
done = subprocess.run(["sh", "-c", f"'{PROGRAM}' schedule p.yaml -o z.csv >&-"],
                      cwd=WORK, capture_output=True, text=True)
check(done.returncode == 1 and "standard output" in done.stderr and
      read("z.csv").startswith("0F0"), f"closed standard output: {done}")
# A reader that goes away ends the program without a word.
done = subprocess.run(["sh", "-c",
                       f"'{PROGRAM}' simulate wave.yaml --json | true"],
                      cwd=WORK, capture_output=True, text=True)
check(done.stderr == "", f"reader gone: {done.stderr}")

# --- interrupted ------------------------------------------------------------------------
uniform("big.yaml", devices=16, microbatches=512, latency=8, transfer=1)
for number in (signal.SIGINT, signal.SIGTERM):
    process = subprocess.Popen(
        [PROGRAM, "compare", "big.yaml", "--sweep", "latency=0:900:1", "-o",
         "never.txt"], cwd=WORK, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=ENVIRONMENT)
    time.sleep(0.7)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    check(process.returncode == -number and out == b"" and err == b"" and
          not [n for n in names() if n.startswith("never")],
          f"signal {number}: {process.returncode} {out!r} {err!r}")

# A plan that is interrupted is the best so far; how soon that is does not
# matter. The search takes hours by itself.
with open(os.path.join(WORK, "long.yaml"), "w") as file:
    file.write("""longhaul: job/1
model: {layers: 16, hidden: 256, ffn: 512, heads: 4, vocab: 1000}
training: {global_batch: 64, sequence: 512}
cluster:
  gpus_per_node: 4
  gpu: {tflops: 100, memory_gib: 80, memory_gbps: 2000}
  node_link: {gbps: 1000, latency_us: 3}
  fabric: {gbps: 100, latency_us: 8}
  datacenters: [{name: here, nodes: 2}]
""")
process = subprocess.Popen(
    [PROGRAM, "plan", "long.yaml", "--search", "monte-carlo", "--draws",
     "1000000,20,1000,20", "-o", "some.json"], cwd=WORK,
    stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
time.sleep(3)
process.send_signal(signal.SIGINT)
out, err = process.communicate(timeout=60)
check(process.returncode == 0 and b"best of what was searched" in err and
      b"iteration" in out, f"interrupted plan: {process.returncode} {err!r}")
done = run("simulate", "some.json", "--json")
check(done.returncode == 0, f"an interrupted plan is a plan: {done}")
finish()
