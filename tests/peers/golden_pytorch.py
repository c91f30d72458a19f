#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own schedule files load, pass the checks and are simulated; written again,
they contain the same passes.

    golden_pytorch.py PROGRAM SOURCE
"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM, SOURCE = sys.argv[1:]
DATA = pathlib.Path(SOURCE, "tests/data/pytorch")
count = {True: 0, False: 0}
PASS = re.compile(r"(?<![\dA-Z_])(\d+)([FIWB])(\d+)(?![\d_])")


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def longhaul(*args):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True,
                          text=True)


def passes(path):
    """Returns (chunk, kind, microbatch) of each row, without communication."""
    rows = []
    for row in path.read_text().splitlines():
        # In 0SEND_F0 digits surround a name of its own.
        row = re.sub(r"\d+(SEND|RECV)_[FB]\d+|\d+(UNSHARD|RESHARD)", "", row)
        rows.append([(int(c), k, int(m)) for c, k, m in PASS.findall(row)])
    return rows


def pipeline(rows, path):
    """Returns a pipeline for a schedule: every pass takes a millisecond."""
    device = {}
    for d, row in enumerate(rows):
        for chunk, _, _ in row:
            device[chunk] = d
    n = 1 + max(m for row in rows for _, _, m in row)
    path.write_text(
        "longhaul: pipeline/1\ntime_unit: ms\n"
        f"microbatches: {n}\ndevices: {len(rows)}\nbackward: split\nchunks:\n"
        + "".join(f"  - {{device: {device[c]}, F: 1, D: 1, W: 1}}\n"
                  for c in sorted(device)))
    return n * len(device)


with tempfile.TemporaryDirectory(prefix="longhaul-pytorch-") as temp:
    p = pathlib.Path(temp, "p.yaml")
    for path in sorted(DATA.glob("*.csv")):
        rows = passes(path)
        kinds = collections.Counter(k for row in rows for _, k, _ in row)
        work = pipeline(rows, p)
        done = longhaul("check", p, path, "--json")
        verdict = json.loads(done.stdout or "{}")
        check(done.returncode == 0 and verdict.get("valid"),
              f"{path.name} is valid: {done.stdout}{done.stderr}")
        without = pathlib.Path(temp, "without.csv")
        without.write_text(re.sub(r"\b\d+SEND_[FB]\d+", "",
                                  path.read_text(), count=1))
        if without.read_text() != path.read_text():
            done = longhaul("check", p, without, "--json")
            check(done.returncode == 1, f"{path.name} without its first send: "
                  f"{done.stdout}{done.stderr}")
        done = longhaul("simulate", p, "-s", path, "--json")
        found = json.loads(done.stdout or "{}")
        check(done.returncode == 0 and
              found["makespan_s"] == verdict["makespan_s"],
              f"{path.name}: simulator and judge agree")
        check(kinds["F"] == work and
              kinds["B"] + (kinds["I"] + kinds["W"]) / 2 == work,
              f"{path.name}: the test sees all passes: {kinds}")
        busy = kinds["F"] + kinds["I"] + kinds["W"] + 2 * kinds["B"]
        idle = 1 - busy / (found["makespan_s"] * 1e3 * len(rows))
        check(abs(found["bubble_ratio"] - idle) < 1e-12,
              f"{path.name}: bubble ratio")

    # Without communication the order equals the file's.
    path = DATA / "zb1p_2rank_2stagep_compute.csv"
    pipeline(passes(path), p)
    trace = pathlib.Path(temp, "t.json")
    longhaul("simulate", p, "-s", path, "--trace", trace)
    events = [e for e in json.loads(trace.read_text())["traceEvents"]
              if e.get("ph") == "X" and e.get("cat") == "pass"]
    events.sort(key=lambda e: e["ts"])
    ran = [[e["name"] for e in events if e["tid"] == tid]
           for tid in sorted({e["tid"] for e in events})]
    check(ran == [[f"{c}{k}{m}" for c, k, m in row] for row in passes(path)],
          "passes run in the file's order")

print(f"{count[True]} passed, {count[False]} failed")
sys.exit(1 if count[False] else 0)
