#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul size: options, output and errors on a job that plans at once."""
import json
import math
import re

from harness import (ANY, ROOT, case, check, finish, json_case, long_test, read, run, test,
                     write)

JOB = """longhaul: job/1
model: {layers: 4, hidden: 4096, ffn: 16384, heads: 8, vocab: 1000}
training: {global_batch: 32, sequence: 1024}
cluster:
  gpu: h100-sxm
  gpus_per_node: 1
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters:
   - {name: west, nodes: 2, usd_per_gpu_hour: 3}
   - {name: east, nodes: 2, gpu: a100-80g, usd_per_gpu_hour: 1}
  links: [{between: [west, east], latency_ms: 1, gbps: 100}]
"""
SIZE = ["size", "job.yaml", "--tokens", "1B"]


def size(*options, code=0):
    write("job.yaml", JOB)
    return json_case(" ".join(options), [*SIZE, *options], code)


@test
def the_numbers_belong_together():
    r = size("--deadline", "10h")
    best = r["cheapest"]
    check(r["found"] and r["all_planned"] and r["sizes"] == 9, f"{r}")
    check(r["fewest"]["gpus"] <= best["gpus"] and
          best["usd"] <= r["fewest"]["usd"], f"{r}")
    check(r["gpus_bound"] <= r["fewest"]["gpus"] and
          r["usd_bound"] <= best["usd"] and best["train_s"] <= 36000, f"{r}")
    goodput = best["goodput"]
    check(abs(1e9 / best["tokens_per_s"] / goodput["fraction"] -
              best["train_s"]) < 1e-6 * best["train_s"], f"{best}")
    check(abs(goodput["progress"] * goodput["speed"] -
              goodput["fraction"]) < 1e-12, f"{goodput}")
    hours = best["train_s"] / 3600
    price = sum(x["nodes"] * {"west": 3, "east": 1}[x["datacenter"]]
                for x in best["datacenters"])
    check(abs(best["usd"] - price * hours) < 1e-6 * best["usd"], f"{best}")
    fixed = size("--deadline", "10h", "--nodes", "2:2", "--lose", "1")
    for loss, price in zip(fixed["cheapest"]["losses"], (1 * 3 + 2, 2 * 3 + 1)):
        usd = price * loss["train_s"] / 3600
        check(abs(loss["usd"] - usd) < 1e-6 * usd, f"{loss}")


@test
def each_option_has_an_effect():
    base = size("--deadline", "10h", "--nodes", "1:2")["fewest"]
    for options in (["--gpu-mtbf", "100h"], ["--link-mtbf", "20h"],
                    ["--link-mtbf", "20h", "--link-repair", "5h"],
                    ["--gpu-mtbf", "100h", "--checkpoint", "5min"],
                    ["--gpu-mtbf", "100h", "--restart", "1h"],
                    ["--gpu-mtbf", "100h", "--repair", "3d"],
                    ["--spares", "1"], ["--nodes", "2:2"],
                    ["--gpu-hour", "9"]):
        other = size("--deadline", "10h", "--nodes", "1:2", *options)["fewest"]
        check(other != base, f"{options}: {other}")
    east = size("--deadline", "10h", "--nodes", "0,0:2")["fewest"]
    check(east["datacenters"][0]["datacenter"] == "east", f"{east}")
    two = ["--deadline", "10h", "--nodes", "2:2"]
    check(size(*two)["fewest"]["losses"] !=
          size(*two, "--lose", "1")["fewest"]["losses"], "--lose")
    spot = size("--deadline", "30h", "--spot", "0.3,100h")["cheapest"]
    check(spot["spot"] and spot["goodput"]["failures_per_day"] > 0.2, f"{spot}")


def keys_of(value):
    """Returns the keys of all maps in a JSON value."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set()


@test
def the_page_has_exactly_the_keys():
    """Rows of the tables under "JSON output" begin with keys."""
    page = read(ROOT / "docs/sizing.md").split("## JSON output")[1]
    named = set(re.findall(r"`([a-z_]+)`", page))
    keys = keys_of([size("--deadline", "10h"),
                    size("--deadline", "10h", "--budget", "9"),
                    size("--deadline", "1min", code=1)])
    check(keys == named, f"{keys ^ named}")


@test
def the_text_answers_the_questions():
    write("job.yaml", JOB)
    text = case("text", [*SIZE, "--deadline", "10h", "-o", "sized.yaml"],
                out=r"training +1\.00 B tokens, 30518 iterations of 32 "
                r"sequences").stdout
    for part in ("where ", "of 10.0 h (modelled)", "goodput ", "failures ",
                 "cost          USD ", "losses ", "certainty     best found of all",
                 "at least 1 GPU and USD ", "(proven for the", "no size has fewer "
                 "GPUs", "next          longhaul plan sized.yaml"):
        check(part in text, f"{part!r}: {text}")
    check("missing" not in text, text)
    options = ["--deadline", "10h", "--nodes", "0:2,0", "--gpu-mtbf", "200h"]
    best = size(*options)["cheapest"]
    rest = best["goodput"]["node_loss_iteration_s"]
    text = " ".join(case("missing", [*SIZE, *options], out=ANY).stdout.split())
    check(f"{best['goodput']['missing_nodes']:.2g} nodes are missing on average; "
          + (f"iterations take up to {rest:.3f} s" if rest else "training stops")
          + " " in text, text)
    spared = case("spares", [*SIZE, "--deadline", "10h", "--nodes", "1:2",
                             "--spares", "2"], out=ANY).stdout
    check("losses        the spare nodes replace up to 2 lost nodes" in spared
          and re.search(r"\n +2 more nodes? of ", spared), spared)
    nodes = {x["name"]: x["nodes"]
             for x in json.loads(read("sized.yaml"))["cluster"]["datacenters"]}
    found = size("--deadline", "10h")["cheapest"]["datacenters"]
    check(nodes == {x["datacenter"]: x["nodes"] for x in found},
          f"{nodes}: {found}")


@test
def the_accuracy_is_that_of_a_plan():
    """A deadline that the mean error may exceed is named, with one that allows
    for the error."""
    best = size("--deadline", "10h", "-o", "sized.yaml")["cheapest"]
    plan = json_case("plan", ["plan", "sized.yaml", "--effort", "1"])
    check(best["accuracy"] == plan["accuracy"] and
          best["accuracy"]["kind"].startswith("dense models"), f"{best}")
    line = re.search(r"\naccuracy .*?\n(?=\S)", case(
        "plan's", ["plan", "sized.yaml", "--effort", "1"], out=ANY).stdout,
        re.S)[0]
    longer = 1 + best["accuracy"]["mean_percent"] / 100
    hours = best["train_s"] / 3600
    late = f"{hours * (1 + longer) / 2:.4f}h"
    text = case("within the error", [*SIZE, "--deadline", late], out=ANY).stdout
    check(line in text, f"{line}: {text}")
    found = re.search(r"with \+(\d+) % the run takes ([\d.]+) h, beyond the "
                      r"deadline; allow for the error by --deadline ([\d.]+)h",
                      " ".join(text.split()))
    check(found and int(found[1]) == round(100 * (longer - 1)) and
          abs(float(found[2]) - hours * longer) < 0.06, text)
    check(0 <= float(late[:-1]) / longer - float(found[3]) < 0.1, text)
    enough = size("--deadline", f"{found[3]}h")["cheapest"]["train_s"]
    check(enough * longer <= float(late[:-1]) * 3600, f"{enough}")
    check("beyond the" not in case("beyond the error", [
        *SIZE, "--deadline", f"{hours * longer * 1.01:.4f}h"], out=ANY).stdout,
        "--deadline beyond the error")


@test
def the_knee_is_named():
    r = size("--deadline", "10h")
    knee, best = r["knee"], r["cheapest"]
    check(knee["train_s"] * knee["usd"] < 0.9 * best["train_s"] * best["usd"]
          and knee["train_s"] <= 36000, f"{r}")
    text = case("text", [*SIZE, "--deadline", "10h"], out=ANY).stdout
    less = round(100 * (1 - knee["train_s"] / best["train_s"]))
    more = round(100 * (knee["usd"] / best["usd"] - 1))
    check(f"{less} % less time for {more} % more cost than the cheapest" in
          text and f"knee          {knee['gpus']} GPUs: " in text, text)
    only = ["--deadline", "10h", "--nodes", "1,0"]
    check(size(*only)["knee"] is None, "one size has no knee")
    check("knee" not in case("one", [*SIZE, *only], out=ANY).stdout, "one size")


@test
def the_next_command_keeps_the_deadline():
    """With a price of traffic, size gives the cheapest plan in time; the
    printed command of plan finds one that costs no more."""
    write("job.yaml", JOB.replace("gpu: a100-80g, ", "").replace(
        "gbps: 100", "gbps: 100, usd_per_gb: 0.01"))
    options = ["--deadline", "1.2h", "--nodes", "2:2", "-o", "sized.yaml"]
    text = case("next", [*SIZE, *options], out=ANY).stdout
    found = json_case("json", [*SIZE, *options])["cheapest"]
    words = re.search(r"next +longhaul (plan .*?) \(searches longer", text)[1]
    check("--objective cost --max-iteration" in words, text)
    plan = json_case("plan", [*words.split(), "--effort", "5000"])
    iterations = 1e9 / (32 * 1024)
    check(plan["cost"]["usd"] * iterations <= 1.01 * found["usd"], f"{plan['cost']}")
    check(plan["iteration_s"] * iterations <= 1.2 * 3600, f"{plan['iteration_s']}")
    case("no plan is so fast", ["plan", "sized.yaml", "--objective", "cost",
                                "--max-iteration", "1us", "--effort", "1"], 1,
         err=r"no plan found with an iteration of at most 1e-06 s \(--max-iteration\); "
         r"the fastest found takes [\d.]+ s \(modelled\)")


@test
def a_budget_pays_for_the_fastest_size():
    cheapest = size("--budget", "9")["cheapest"]
    r = size("--budget", str(cheapest["usd"] * 1.5), "-o", "paid.yaml")
    best = r["fastest"]
    check(best["train_s"] < cheapest["train_s"] and
          cheapest["usd"] < best["usd"] <= r["budget_usd"], f"{r}")
    check(0 < r["train_bound_s"] <= best["train_s"], f"{r}")
    nodes = {x["name"]: x["nodes"]
             for x in json.loads(read("paid.yaml"))["cluster"]["datacenters"]}
    check(nodes == {x["datacenter"]: x["nodes"]
                    for x in best["datacenters"]}, f"{nodes}: {best}")
    text = case("text", [*SIZE, "--budget", str(r["budget_usd"])],
                out=r"fastest +\d GPU.*cheapest +\d GPU").stdout
    for part in ("no size within the budget takes less than ", "at least USD "):
        check(part in text, f"{part!r}: {text}")


@test
def the_fewest_gpus_of_a_budget_are_named():
    """One GPU recomputes; four cost less."""
    write("few.yaml", JOB[:JOB.index("cluster")] + """cluster:
  gpu: {tflops: 989, memory_gib: 22, memory_gbps: 3350}
  gpus_per_node: 1
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 3200, latency_us: 8}
  datacenters: [{name: west, nodes: 64, usd_per_gpu_hour: 3}]
layout: {tensor: 1, context: 1, pipeline: 1}
""")
    args = ["size", "few.yaml", "--tokens", "1B", "--budget", "100K", "--effort",
            "12"]
    fewest = json_case("json", args)["fewest"]
    check(fewest["gpus"] == 1, f"{fewest}")
    text = case("text", args, out=ANY).stdout
    found = re.search(r"\nfewest +1 GPU: ([\d.]+) h \(modelled\), USD ([\d.]+)", text)
    check(found and abs(float(found[1]) - fewest["train_s"] / 3600) < 0.06 and
          abs(float(found[2]) - fewest["usd"]) < 0.06, text)


@test
def an_impossible_deadline_is_proven():
    r = size("--deadline", "1min", code=1)
    check(not r["found"] and r["gpus_bound"] is None and
          r["fastest"]["train_s"] > 60, f"{r}")
    case("text", [*SIZE, "--deadline", "1min"], 1,
         out=r"no planned size meets the requirements; this is the "
         r"fastest.*can meet the requirements \(proven")


def flat(name, args):
    """Returns the text of a failed search, without line breaks."""
    return " ".join(case(name, args, 1, out=ANY).stdout.split())


@test
def failures_may_stop_all_progress():
    options = ["--deadline", "10h", "--gpu-mtbf", "1h", "--repair"]
    one = size(*options, "2h", code=1)["fastest"]
    check(one["gpus"] == 1, f"{one}")  # runs while it does not need repair
    check(abs(one["goodput"]["speed"] - math.exp(-2)) < 1e-9, f"{one}")
    options.append("2000h")
    r = size(*options, code=1)
    check(not r["found"] and r["fastest"]["train_s"] is None and
          r["fastest"]["usd"] is None and
          r["fastest"]["goodput"]["fraction"] == 0, f"{r}")
    text = flat("text", [*SIZE, *options])
    check(re.search(r"Without failures it takes [\d.]+ h\. Spare nodes \(--spares\) "
                    r"or a shorter repair \(--repair\) may help .*time no end "
                    r"\(failures stop all progress\); the deadline is 10\.0 h",
                    text), text)
    text = flat("lost work", [*SIZE, "--deadline", "4h", "--gpu-mtbf", "2h",
                              "--restart", "1d", "--repair", "0s"])
    check(re.search(r"Without failures it takes [\d.]+ h\. Shorter checkpoints "
                    r"\(--checkpoint\) and restarts \(--restart\) may help", text),
          text)
    text = case("text", [*SIZE, *options], 1,
                out=r"time +no end \(failures stop all progress\).*not proven\s+"
                r"impossible: a size that meets the requirements needs at\s+least "
                r"\d GPUs? and USD ").stdout
    check("best found" not in text, text)


@test
def remedies_are_for_the_requirement_that_fails():
    write("job.yaml", JOB)
    for options, remedies in (
            (["--deadline", "1min"], "More nodes (--nodes) or a later deadline"),
            (["--deadline", "1min", "--budget", "1"],
             "More nodes (--nodes), a later deadline or a higher budget"),
            (["--budget", "0.01"], "A higher budget")):
        text = flat(" ".join(options), [*SIZE, *options])
        check(f"fastest of them. {remedies} may help" in text, text)


@test
def times_of_zero_are_times():
    """Checkpoints without cost need no interval, and a repair without duration
    leaves no node missing."""
    options = ["--deadline", "10h", "--gpu-mtbf", "100h"]
    free = size(*options, "--checkpoint", "0s")["cheapest"]["goodput"]
    check(free["checkpoint_interval_s"] == 0, f"{free}")
    whole = size(*options, "--repair", "0s")["cheapest"]["goodput"]
    check(whole["speed"] == 1 and whole["missing_nodes"] == 0, f"{whole}")
    case("negative", [*SIZE, *options, "--repair", "-1s"], 2,
         err="--repair: '-1s' is not a time such as 24h")
    case("deadline", [*SIZE, "--deadline", "0s"], 2,
         err="--deadline: '0s' is not a time above 0 such as 30d")


@test
def time_and_deadline_have_one_unit():
    write("job.yaml", JOB)
    text = case("days", [*SIZE, "--deadline", "47h", "--nodes", "0,1",
                         "--gpu-mtbf", "2h", "--restart", "1d", "--repair",
                         "0s"], 1, out=ANY).stdout
    found = re.search(r"time +[\d.]+ (\w+) of [\d.]+ (\w+) \(", text)
    check(found and found[1] == found[2], text)


@test
def errors_name_the_option_or_the_key():
    write("job.yaml", JOB)
    write("free.yaml", JOB.replace(", usd_per_gpu_hour: 3", "").replace(
        ", usd_per_gpu_hour: 1", ""))
    case("tokens", ["size", "job.yaml", "--deadline", "1d"], 2,
         err="--tokens is required")
    case("deadline", SIZE, 2, err="--deadline or --budget is required")
    case("amount", ["size", "job.yaml", "--tokens", "1X", "--budget", "1"], 2,
         err="--tokens: '1X' is not a number above 0 such as 15T")
    case("unit", [*SIZE, "--deadline", "20"], 2,
         err=r"--deadline: '20' has no unit; did you mean 20d\?")
    case("range", [*SIZE, "--deadline", "1d", "--nodes", "4:2"], 2,
         err="--nodes: '4:2' is not a range of nodes such as 4:64")
    case("none", [*SIZE, "--deadline", "1d", "--nodes", "0"], 2,
         err="--nodes: no datacenter may have a node")
    case("many", [*SIZE, "--deadline", "1d", "--nodes", "0:16000000"], 2,
         err="--nodes: 32000000 GPUs in all datacenters; at most ")
    case("ranges", [*SIZE, "--deadline", "1d", "--nodes", "1,2,3"], 2,
         err="--nodes: 3 ranges for 2 datacenters")
    case("spot", [*SIZE, "--deadline", "1d", "--spot", "2,1h"], 2,
         err="--spot: '2,1h' is not a share of the price up to 1 and a time")
    case("prices", ["size", "free.yaml", "--tokens", "1B", "--budget", "1M"],
         1, err="free.yaml: cluster.usd_per_gpu_hour: required for a budget and for "
        r"spot capacity; or give one price for all GPUs \(--gpu-hour\)")
    write("zones.yaml", JOB.replace("{name: west, nodes: 2,", "{name: west, "
          "zones: [{name: a, nodes: 1}, {name: b, nodes: 1}],").replace(
        "  datacenters", "  zone_link: {gbps: 400, latency_us: 20}\n"
        "  datacenters"))
    case("zones", ["size", "zones.yaml", "--tokens", "1B", "--deadline", "1d"],
         1, err="zones.yaml: cluster.datacenters: .* give 'west' nodes")


@long_test
def wide_ranges_of_other_gpus_keep_the_answer():
    """The largest sizes are planned badly by short searches."""
    write("wide.yaml", run("init", "--model", "qwen3-235b-a22b", "--gpu",
                           "h100,h200,b200", "--sites", "3", "--nodes",
                           "24,16,8", "--latency-ms", "12", "--link-gbps",
                           "1600").stdout)
    r = json_case("three kinds of GPUs",
                  ["size", "wide.yaml", "--tokens", "300B", "--deadline", "30d",
                   "--nodes", "0:24,0:16,0:8"])
    check(r["found"] and r["fewest"]["gpus"] <= 80, f"{r['fewest']}")
    check(not any(x["meets_deadline"] for x in r["fewest"]["losses"]),
          f"{r['fewest']['losses']}")


finish()
