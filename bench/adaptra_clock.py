#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Adaptra's trace, including its iteration 1030, in real time.

    bench/adaptra_clock.py LONGHAUL [--speed 100] [--restart 100]
                           [--transport local] [--steps 1200] [--plain]

Runs examples/adaptra-8-stages.yaml under examples/adaptra-trace.yaml, with an
additional failure of stage 2's interface at iteration 1030. Prints simulated
and measured times of each run as a table for docs/papers/adaptra.md. Baselines
keep their schedule on the direct path and restart from a checkpoint: they
repeat the iterations since it. The measured times of the repeated iterations
are added, since the run itself continues over another rail. Eight ranks run as
processes with real-time priority (--plain: without). On two processors this
takes about two minutes; results are valid only on an otherwise idle machine.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PIPELINE = ROOT / "examples/adaptra-8-stages.yaml"
TRACE = ROOT / "examples/adaptra-trace.yaml"
FAILS = 1030
DIRECT = ["--coupled", "1", "--receives", "late"]
# Name, options, whether it restarts when the rail fails.
RUNS = [("1f1b, direct path, restarts", ["-s", "1f1b", *DIRECT], True),
        ("zb-h2, direct path, restarts", ["-s", "zb-h2", *DIRECT], True),
        ("zb-h2, delegated path, adapts", ["-s", "zb-h2", "--adapt"], False),
        ("zb-h2, direct path, adapts", ["-s", "zb-h2", *DIRECT, "--adapt"],
         False)]


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    return json.loads(done.stdout)


def seconds(found):
    return [i["seconds"] for i in found["iterations"]]


def begin_again(times, iterations):
    """Adds the time of the repeated iterations to iteration FAILS."""
    if len(times) > FAILS:
        times[FAILS] += sum(times[max(0, FAILS - iterations):FAILS])


def minutes(value):
    return f"{value / 60:.2f}"


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("longhaul")
    parse.add_argument("--speed", type=int, default=100)
    parse.add_argument("--restart", type=int, default=100)
    parse.add_argument("--transport", default="local")
    parse.add_argument("--steps", type=int, default=1200)
    parse.add_argument("--plain", action="store_true")
    o = parse.parse_args()
    print(f"| run | simulated, minutes | on the clock x {o.speed} | differs | "
          f"iteration {FAILS}, simulated | on the clock | switches, simulated "
          "| on the clock | late passes |\n" + "| --- " * 9 + "|")
    with tempfile.TemporaryDirectory() as folder:
        events = pathlib.Path(folder) / "events.yaml"
        events.write_text(TRACE.read_text() +
                          f"  - {{at: {FAILS}, rank: 2, rail: down}}\n")
        for name, words, restarts in RUNS:
            base = [PIPELINE, *words, "--events", events, "--steps", o.steps,
                    "--json"]
            said = run(o.longhaul, "simulate", *base,
                       *(["--restart", o.restart] if restarts else []))
            done = run(o.longhaul, "train", *base, "--speed", o.speed,
                       "--transport", o.transport,
                       *([] if o.plain else ["--realtime"]))
            times = [o.speed * s for s in seconds(done)]
            if restarts:
                begin_again(times, o.restart)
            total = sum(times)
            at = [f"{t[FAILS]:.3f} s" if len(t) > FAILS else ""
                  for t in (seconds(said), times)]
            steps = [", ".join(str(s["step"]) for s in found["switches"])
                     for found in (said, done)]
            print(f"| {name} | {minutes(said['total_s'])} | {minutes(total)} | "
                  f"{100 * (total / said['total_s'] - 1):+.2f} % | {at[0]} | "
                  f"{at[1]} | {steps[0]} | {steps[1]} | {done['slips']} |",
                  flush=True)


main()
