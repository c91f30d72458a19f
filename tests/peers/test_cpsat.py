#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CP-SAT and `schedule --method optimal` agree, by bench/peer_cpsat.py.

    test_cpsat.py PROGRAM SOURCE [CASES [FIRST]]

Needs ortools; $LONGHAUL_ORTOOLS names a Python that has it, if this one has
not. Without it the test is skipped with a message.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from skip_without import skip_without

PROGRAM, SOURCE = os.path.abspath(sys.argv[1]), sys.argv[2]
CASES = int(sys.argv[3]) if len(sys.argv) > 3 else 120
FIRST = int(sys.argv[4]) if len(sys.argv) > 4 else 0
try:
    import ortools.sat.python.cp_model  # noqa: F401
except ImportError as error:
    skip_without("ortools", error, "LONGHAUL_ORTOOLS",
            "CP-SAT finds the same optima")
sys.path.insert(0, str(pathlib.Path(SOURCE, "bench")))
import peer_cpsat  # noqa: E402

count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def longhaul(*args):
    done = subprocess.run([PROGRAM, *map(str, args), "--json"],
                          capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout.strip() else \
        {"error": done.stderr}


def known_optima(folder):
    readme = pathlib.Path(SOURCE, "tests/data/optima/README.md").read_text()
    known = dict(re.findall(r"\| (\w+) \| (\d+) ms \|", readme))
    check(len(known) == 8, f"eight known optima, not {len(known)}")
    for name, ms in known.items():
        path = pathlib.Path(SOURCE, "tests/data/optima", name + ".json")
        compare(name, path, folder, int(ms) * 10**6)


def compare(name, path, folder, known=None):
    """Checks that both find the same optimum, and that the verifier accepts
    both schedules."""
    theirs_csv, ours_csv = folder / "theirs.csv", folder / "ours.csv"
    theirs = peer_cpsat.solve(path, time_limit=60, output=theirs_csv)
    ours = longhaul("schedule", path, "--method", "optimal", "--effort",
                    20_000_000, "-o", ours_csv)
    said = f"{name}: CP-SAT {theirs['status']} {theirs['best_ns']}, " \
           f"longhaul {ours}"
    check(theirs["status"] in ("optimal", "infeasible"), said)
    check(ours.get("status") == theirs["status"], said)
    if known is not None:
        check(theirs["best_ns"] == known, said)
    if theirs["status"] != "optimal" or not ours.get("makespan_s"):
        return theirs["status"]
    best = theirs["best_ns"]
    check(round(ours["makespan_s"] * 1e9) == best, said)
    check(round(ours["lower_bound_s"] * 1e9) == best, said)
    for csv in (theirs_csv, ours_csv):
        verdict = longhaul("check", path, csv)
        check(verdict.get("valid") and
              round(verdict["makespan_s"] * 1e9) == best,
              f"{said}; the judge of {csv.name}: {verdict}")
    return theirs["status"]


def random_pipeline(seed):
    """Returns a tiny random pipeline: any placement, shared links, tight or
    insufficient memory, gathers, B passes, D that frees memory."""
    r = random.Random(seed)
    devices, kind = r.randint(1, 4), r.choice(["ud", "ud", "loop", "wave",
                                               "any"])
    chunks = devices * (1 if kind == "ud" else 2)
    place = {"ud": lambda c: c, "loop": lambda c: c % devices,
             "wave": lambda c: c if c < devices else 2 * devices - 1 - c,
             "any": lambda c: r.randrange(devices)}[kind]
    top, held = r.choice([3, 9, 40]), r.choice([1, 1, 3])
    p = {"longhaul": "pipeline/1", "time_unit": "ms", "devices": devices,
         "microbatches": r.randint(1, 6 if chunks <= 4 else 3),
         "backward": r.choice(["split", "split", "joint"]), "chunks": []}
    least = [0] * devices
    for c in range(chunks):
        f, early, d = r.randint(1, held), r.random() < .3, place(c)
        back = -r.randint(0, f) if early else 0
        static = r.choice([0, 0, 2])
        p["chunks"].append({"device": d, "memory": {
            "F": f, "D": back, "W": -f - back, "static": static},
            **{k: r.randint(1, top) for k in "FDW"}})
        least[d] += f + static
    shared = r.random() < .5
    p["links"] = [] if r.random() < .2 else [
        {"from": a, "to": b, "latency": r.randint(0, top),
         "transfer": r.choice([0, r.randint(1, 2 * top)]),
         **({"name": f"g{2 * a // devices}-g{2 * b // devices}"}
            if shared else {})}
        for a in range(devices) for b in range(devices)
        if a != b and (not shared or 2 * a // devices != 2 * b // devices)]
    if r.random() < .7:
        p["memory_limit"] = [max(0, m + r.randint(-1, 3)) for m in least]
    if r.random() < .3:
        p["data_parallel"] = [
            {"chunk": c, "all_gather": r.randint(0, top),
             "reduce_scatter": r.randint(0, 2 * top),
             "latency": r.randint(0, top)}
            for c in range(chunks) if r.random() < .7]
    return p


with tempfile.TemporaryDirectory(prefix="longhaul-cpsat-") as temp:
    temp = pathlib.Path(temp)
    known_optima(temp)
    seen = {}
    for seed in range(FIRST, FIRST + CASES):
        if count[False]:
            break
        path = temp / "p.json"
        path.write_text(json.dumps(random_pipeline(seed)))
        status = compare(f"seed {seed}", path, temp)
        seen[status] = seen.get(status, 0) + 1
        if count[False]:
            print(path.read_text(), file=sys.stderr)

print(f"random pipelines: {seen}", file=sys.stderr)
print(f"{count[True]} passed, {count[False]} failed")
sys.exit(1 if count[False] else 0)
