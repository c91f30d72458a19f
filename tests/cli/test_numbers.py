#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published and derived numbers, through the program."""
from harness import (ANY, WORK, case, check, finish, json_case, run,
                     uniform)


def makespan(name, pipeline, method, *more):
    """Returns seconds, of a simulation by method or file."""
    return json_case(name, ["simulate", pipeline, "-s", method,
                            *more]).get("makespan_s", -1)


def is_ms(name, got_s, want_ms):
    check(round(got_s * 1e9) == round(want_ms * 1e6),
          f"{name}: {got_s * 1e3:.6f} ms, not {want_ms}")


# --- static orders ---------------------------------------------------------
# zb-v with F = D = W = 1 per chunk, and replayed with 19/24/10 per chunk over
# two sites with latency 38 and transfer 9.5.
for devices, n, unit, far in ((2, 4, 25, 737), (4, 6, 39, 1057),
                              (4, 8, 51, 1296), (4, 16, 99, 2292),
                              (8, 16, 103, 2543), (8, 32, 199, 4535)):
    one = uniform("unit.yaml", devices, n, "wave", 2, (2, 2, 2), unit="s",
                  limit=2 * devices)
    run("schedule", one, "-m", "zb-v", "-o", "zbv.csv")
    check(makespan("zb-v", one, "zbv.csv") == unit, f"zb-v {devices}x{n}")
    two = uniform("far.yaml", devices, n, "wave", 2, (38, 48, 20), 38, 9.5)
    is_ms(f"zb-v {devices}x{n} replayed", makespan("zb-v", two, "zbv.csv"), far)
two = uniform("unit.yaml", 2, 3, "wave", 2, (2, 2, 2), unit="s", limit=4)
check(run("schedule", two, "-m", "zb-v").stdout ==
      "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,0I1,3W2,0I2,0W1,0W2"
      "\n1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,1I1,2I2,1I2,2W1,1W1,2W2,"
      "1W2\n", "zb-v, 2 devices, 3 microbatches, cell by cell")
for devices, n, want in ((2, 4, 27), (4, 8, 57)):
    loop = uniform("loop.yaml", devices, n, "loop", 2, (2, 2, 2), unit="s",
                   backward="joint")
    check(makespan("interleaved", loop, "interleaved-1f1b") == want,
          f"interleaved-1f1b {devices}x{n}")
# greedy equals zb-h1 if all passes have the same duration.
for devices, n, want in ((4, 12, 312), (8, 16, 440)):
    same = uniform("same.yaml", devices, n, times=(8, 8, 8), limit=devices)
    for method in ("zb-h1", "greedy"):
        is_ms(f"{method} {devices}x{n}", makespan(method, same, method), want)
uneven = uniform("uneven.yaml", 8, 16, times=(38, 48, 20), limit=8)
is_ms("zb-h1, 38/48/20", makespan("zb-h1", uneven, "zb-h1"), 2158)

# --- Adaptra's figure: delays on the first link of four devices --------------
def delayed(delay):
    name = f"delay{delay}.yaml"
    chunks = "".join(f"  - {{device: {d}, F: 10, D: 10, W: 10}}\n"
                     for d in range(4))
    (WORK / name).write_text(
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 12\ndevices: 4\n"
        f"backward: split\nchunks:\n{chunks}links:\n"
        f"  - {{from: 0, to: 1, latency: {delay}, transfer: 0}}\n"
        f"  - {{from: 1, to: 0, latency: {delay}, transfer: 0}}\n")
    return name


calm = delayed(0)
for label, args, wanted in (
        ("given warm-ups, replayed", ["slack", "--warmup", "7,5,3,1"],
         (390, 400, 440)),
        ("zb-h2 replayed", ["zb-h2"], (390, 400, 420)),
        ("zb-h1 replayed", ["zb-h1"], (390, 460, 560))):
    run("schedule", calm, "-m", *args, "-o", "calm.csv")
    for delay, want in zip((0, 10, 20), wanted):
        is_ms(f"{label}, {delay} ms",
              makespan(label, delayed(delay), "calm.csv"), want)
for label, args in (("given warm-ups, made anew", ["--warmup", "7,5,3,1"]),
                    ("adapted warm-ups", [])):
    for delay, want in zip((0, 10, 20), (390, 400, 410)):
        found = json_case(label, ["schedule", delayed(delay), "-m", "slack",
                                  *args])
        is_ms(f"{label}, {delay} ms", found.get("makespan_s", -1), want)
# The same by compare: a sweep that keeps the schedules made without delay.
rows = json_case("compare --replay",
                 ["compare", calm, "-m", "zb-h1,zb-h2", "--replay",
                  "--sweep", "latency=0:20ms:10ms"]).get("rows", [])
for method, wanted in (("zb-h2", (390, 400, 420)), ("zb-h1", (390, 460, 560))):
    got = sorted((r["latency_s"], r["makespan_s"]) for r in rows
                 if r["method"] == method)
    check([round(ms * 1e3) for _, ms in got] == list(wanted),
          f"{method} by compare --replay: {got}")
# Slackness as printed by simulate. On the last boundary, where all devices are
# busy, a delay of (slackness - 1) times a pass is absorbed (Adaptra, section
# 4).
found = json_case("slackness", ["simulate", delayed(10), "-s", "zb-h2"])
check([(s["warmup"], s["slackness"], s["tolerates_s"], s["delay_s"])
       for s in found["slack"]] ==
      [(7, 2, 0.016666667, 0.01), (5, 2, 0.013333333, 0), (3, 2, 0.01, 0)],
      f"slackness of zb-h2: {found['slack']}")
found = json_case("any delay", ["simulate", delayed(10), "-s", "gpipe"])
check([(s["tolerates_s"], s["tolerates_any"]) for s in found["slack"]] ==
      [(None, True)] * 3, f"slackness of gpipe: {found['slack']}")
case("any delay in words", ["simulate", delayed(10), "-s", "gpipe"],
     out=r"0 and 1 +12 +0 +any delay +10 ms\n")
found = json_case("too large", ["simulate", uniform("large.yaml", 16, 300), "-s",
                                "1f1b", "--receives", "late"])
check(all(s["tolerates_s"] is None and "tolerates_any" not in s
          for s in found["slack"]), f"large: {found['slack']}")
case("too large in words", ["simulate", "large.yaml", "-s", "1f1b",
                            "--receives", "late"],
     out=r"0 and 1 +16 +1 +not known +0 ms\n(.*\n)*  tolerated delays: too "
         r"many simulations for a pipeline of this size\n")

# --- variable delays: all links three times as slow equal another pipeline
# --------
varied = json_case("jitter", ["simulate", delayed(10), "-s", "zb-h2", "--jitter",
                              "degraded=1x3,latency=0", "--samples", "7"])
slow = makespan("three times as slow", delayed(30), "zb-h2")
check(varied["jitter"]["samples"] == 7 and varied["jitter"]["least_s"] == slow ==
      varied["jitter"]["p99_s"], f"degraded links: {varied['jitter']}, {slow}")
check(varied["jitter"]["of"] == "makespan", f"of a pipeline: {varied['jitter']}")
case("jitter in words", ["simulate", delayed(10), "--jitter", "latency=0.2"],
     out=r"^jitter +mean [0-9.]+ m?s, median .*95 % within .*1000 samples\)$")
for bad in ("latency", "speed=1", "latency=x", "degraded=0.1", "straggler=1x",
            "latency=1,", "latency=1;transfer=2"):
    case(f"jitter {bad}", ["simulate", delayed(10), "--jitter", bad], 2,
         err=r"--jitter: '.*' is not latency=A")
case("jitter out of range", ["simulate", delayed(10), "--jitter",
                             "degraded=2x2"], 1, err=r"degraded_rate is 2")

rows = json_case("compared by the unlucky", [
    "compare", delayed(10), "--jitter", "latency=0.5", "--by", "p95",
    "--samples", "100"])["rows"]
numbers = [row["jitter"]["p95_s"] for row in rows if row["status"] == "ok"]
check(numbers == sorted(numbers) and len(numbers) > 3 and
      all(row["objective_s"] == row["jitter"]["p95_s"] >= row["makespan_s"]
          for row in rows if row["status"] == "ok"),
      f"compare ranks by p95: {numbers}")
case("by what", ["compare", delayed(10), "--by", "mean"], 2,
     err=r"--by mean requires --jitter")
case("jitter is read first", ["compare", delayed(10), "--jitter", "x"], 2,
     err=r"--jitter: 'x' is not")

# --- CrossPipe's Table 5, case 1: 8 stages, 16 microbatches, two sites ----------
# Seconds per microbatch, as predicted, to the three digits of the table.
for method, placement, latency, transfer, receives, want in (
        ("1f1b", "ud", 0, 0, "late", 0.152),
        ("1f1b", "ud", 2, 2, "late", 0.322),
        ("zb-h1", "ud", 2, 0.25, "late", 0.229),
        ("zb-v", "wave", 0.25, 2, "late-fd", 0.316)):
    cell = uniform("cell.yaml", 8, 16, placement, 2 if placement == "wave"
                   else 1, (38, 48, 20), 38 * latency, 38 * transfer,
                   memory="{F: 2, D: 0, W: -2}" if placement == "wave"
                   else "{F: 1, D: 0, W: -1}")
    if method == "zb-v":  # the authors' order assumes passes of equal duration
        even = uniform("even.yaml", 8, 16, "wave", 2, (2, 2, 2), limit=16)
        run("schedule", even, "-m", "zb-v", "-o", "zbv.csv")
    got = makespan("Table 5", cell, "zbv.csv" if method == "zb-v" else method,
                   "--receives", receives) / 16
    check(abs(got - want) < 0.000501, f"Table 5, {method}, {latency}, {transfer}: "
                                 f"{got:.4f}, not {want}")
finish()
