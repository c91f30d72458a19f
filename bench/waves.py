#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makespan, bound and time for CrossPipe's settings, one or two chunks per device.

    bench/waves.py BENCH_OPTIMAL [--limit S] [--only TEXT] > waves.json

8 stages of a 70-billion-parameter model (F, D, W = 38, 48, 20 ms per device; half
of it per chunk with two), over two and four datacenters; latency and transfer are
multiples of a forward. Case 1: 16 microbatches, memory for 8 activations of a stage;
case 2: 32, 8, D with recomputation; case 3: 32, 16. --limit is in seconds of
processor time (default 60), on one thread.
"""
import argparse
import json
import subprocess
import sys
import tempfile

DELAYS = [(0, 0), (.25, .25), (.25, 2), (2, .25), (2, 2)]
CASES = {1: (16, 8, 48), 2: (32, 8, 86), 3: (32, 16, 48)}


def pipeline(placement, case, datacenters, latency, transfer):
    n, memory, d = CASES[case]
    return {"longhaul": "pipeline/1", "time_unit": "ms", "microbatches": n,
            "devices": 8,
            "uniform": {"placement": placement, "F": 38, "D": d, "W": 20,
                        "memory": {"F": 1, "D": 0, "W": -1}},
            "datacenters": {"count": datacenters, "latency": 38 * latency,
                            "transfer": 38 * transfer},
            "memory_limit": memory * (2 if placement == "wave" else 1)}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    a.add_argument("bench_optimal")
    a.add_argument("--limit", default="60")
    a.add_argument("--only", default="")
    o = a.parse_args()
    rows = []
    for row in [(p, c, k, *d) for p in ("ud", "wave") for c in CASES
                for k in (2, 4) for d in DELAYS]:
        name = "{} case {}, {} datacenters, {}, {}".format(*row)
        if o.only not in name:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(pipeline(*row), f)
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
    json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
