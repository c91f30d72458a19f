#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A standard SAT solver confirms optima: by tools/export_sat.py a schedule of that
length exists, and none that is one time unit shorter.

    test_sat.py PROGRAM SOURCE [CASES [FIRST]]

Needs python-sat (CaDiCaL); $LONGHAUL_ORTOOLS names a Python that has it, if this one
has not. Without it the test is skipped with a message.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from skip_without import skip_without

PROGRAM, SOURCE = os.path.abspath(sys.argv[1]), sys.argv[2]
CASES = int(sys.argv[3]) if len(sys.argv) > 3 else 60
FIRST = int(sys.argv[4]) if len(sys.argv) > 4 else 0
try:
    from pysat.solvers import Cadical153
except ImportError as error:
    skip_without("python-sat", error, "LONGHAUL_ORTOOLS",
            "a SAT solver confirms optima")
sys.path[:0] = [str(pathlib.Path(SOURCE, "tools"))]
import export_sat  # noqa: E402
import peer_cpsat  # noqa: E402  (export_sat sets its path)

count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def satisfiable(path, limit_ns):
    cnf = export_sat.Cnf(peer_cpsat.load(path), limit_ns)
    if [] in cnf.clauses:
        return False
    with Cadical153(bootstrap_with=cnf.clauses) as solver:
        return solver.solve()


def confirm(name, path):
    done = subprocess.run(
        [PROGRAM, "schedule", str(path), "--method", "optimal", "--effort",
         "20000000", "--json"], capture_output=True, text=True)
    found = json.loads(done.stdout or "{}")
    unit = peer_cpsat.load(path)["unit"]
    if found.get("status") == "infeasible":
        serial = peer_cpsat.load(path)
        long = sum(2 * sum(c["time"].values()) for c in serial["chunks"])
        long += sum(2 * (x[1] + x[2]) for x in serial["links"].values())
        check(not satisfiable(path, long * serial["n"]),
              f"{name}: infeasible, but there is a schedule")
        return
    check(found.get("status") == "optimal", f"{name}: {done.stdout}")
    best = round(found["makespan_s"] * 1e9)
    check(satisfiable(path, best), f"{name}: no schedule of {best} ns")
    check(not satisfiable(path, best - unit),
          f"{name}: there is a schedule below {best} ns")


def random_pipeline(seed):
    r = random.Random(seed)
    devices, kind = r.randint(1, 3), r.choice(["ud", "loop", "wave"])
    chunks = devices * (1 if kind == "ud" else 2)
    place = {"ud": lambda c: c, "loop": lambda c: c % devices,
             "wave": lambda c: c if c < devices else 2 * devices - 1 - c}[kind]
    top = r.choice([2, 5])
    p = {"longhaul": "pipeline/1", "time_unit": "ms", "devices": devices,
         "microbatches": r.randint(1, 5 if kind == "ud" else 3),
         "backward": r.choice(["split", "joint"]),
         "chunks": [{"device": place(c),
                     "memory": {"F": 1, "D": 0, "W": -1},
                     **{k: r.randint(1, top) for k in "FDW"}}
                    for c in range(chunks)],
         "links": [{"from": a, "to": b, "latency": r.randint(0, top),
                    "transfer": r.randint(0, top)}
                   for a in range(devices) for b in range(devices) if a != b]}
    if r.random() < .7:
        p["memory_limit"] = r.randint(1 if kind == "ud" else 2, 4)
    return p


with tempfile.TemporaryDirectory(prefix="longhaul-sat-") as temp:
    optima = sorted(pathlib.Path(SOURCE, "tests/data/optima").glob("*.json"))
    check(len(optima) == 8, f"eight known optima, not {len(optima)}")
    for path in optima:
        confirm(path.stem, path)
    for seed in range(FIRST, FIRST + CASES):
        if count[False]:
            break
        path = pathlib.Path(temp, "p.json")
        path.write_text(json.dumps(random_pipeline(seed)))
        confirm(f"seed {seed}", path)
        if count[False]:
            print(path.read_text(), file=sys.stderr)

print(f"{count[True]} passed, {count[False]} failed")
sys.exit(1 if count[False] else 0)
