#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makespan, bound and time for CrossPipe's settings, one or two chunks per device.

    bench/waves.py BENCH_OPTIMAL [--limit S] [--only TEXT] > waves.json
    bench/waves.py BENCH_OPTIMAL --sizes 16,32,64 --table > gaps.md

8 stages of a 70-billion-parameter model (F, D, W = 38, 48, 20 ms per device; half
of it per chunk with two), over two and four datacenters; latency and transfer are
multiples of a forward. Case 1: 16 microbatches, memory for 8 activations of a stage;
case 2: 32, 8, D with recomputation; case 3: 32, 16. --limit is in seconds of
processor time (default 60), on one thread.

With --sizes: Wave and Loop placements of P stages instead, 2 P microbatches, memory
for P activations of a stage, and two datacenters with a latency and a transfer of a
quarter of a forward. --table: a table of bench/README.md in place of JSON.
"""
import argparse
import json
import subprocess
import sys
import tempfile

DELAYS = [(0, 0), (.25, .25), (.25, 2), (2, .25), (2, 2)]
CASES = {1: (16, 8, 48), 2: (32, 8, 86), 3: (32, 16, 48)}


def pipeline(placement, devices, case, datacenters, latency, transfer):
    n, memory, d = case
    return {"longhaul": "pipeline/1", "time_unit": "ms", "microbatches": n,
            "devices": devices,
            "uniform": {"placement": placement, "F": 38, "D": d, "W": 20,
                        "memory": {"F": 1, "D": 0, "W": -1}},
            "datacenters": {"count": datacenters, "latency": 38 * latency,
                            "transfer": 38 * transfer},
            "memory_limit": memory * (1 if placement == "ud" else 2)}


def settings(sizes):
    if sizes:
        return [(f"{p} {n} × {2 * n}",
                 pipeline(p, n, (2 * n, n, 48), 2, .25, .25))
                for p in ("wave", "loop") for n in sizes]
    return [("{} case {}, {} datacenters, {}, {}".format(p, c, k, *d),
             pipeline(p, 8, CASES[c], k, *d))
            for p in ("ud", "wave") for c in CASES for k in (2, 4)
            for d in DELAYS]


def print_table(rows):
    print("| pipeline | makespan, ms | bound, ms | gap | seconds |")
    print("| --- | --- | --- | --- | --- |")
    for r in rows:
        gap = r["best_ns"] / r["bound_ns"] - 1
        proven = "proven" if r["status"] == "optimal" else f"{100 * gap:.2f} %"
        print(f"| {r['setting']} | {r['best_ns'] / 1e6:g} | "
              f"{r['bound_ns'] / 1e6:g} | {proven} | {r['cpu_seconds']:.1f} |")


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    a.add_argument("bench_optimal")
    a.add_argument("--limit", default="60")
    a.add_argument("--only", default="")
    a.add_argument("--sizes", default="")
    a.add_argument("--table", action="store_true")
    o = a.parse_args()
    rows = []
    for name, problem in settings([int(n) for n in o.sizes.split(",") if n]):
        if o.only not in name:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(problem, f)
            f.flush()
            found = json.loads(subprocess.run(
                [o.bench_optimal, f.name, o.limit], check=True,
                capture_output=True, text=True).stdout)
        rows.append({"setting": name, **{k: found[k] for k in (
            "status", "best_ns", "bound_ns", "cpu_seconds")}})
        gap = found["best_ns"] / found["bound_ns"] - 1
        print(f"{name}: {found['status']} {found['best_ns'] / 1e6:g} ms, bound "
              f"{found['bound_ns'] / 1e6:g}, gap {100 * gap:.2f} %, "
              f"{found['cpu_seconds']:.2f} s", file=sys.stderr, flush=True)
    if o.table:
        print_table(rows)
    else:
        json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
