#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the zero-bubble authors' scheduler and longhaul's, in the same run.

    bench/peer_zero_bubble.py CHECKOUT [BENCH_GREEDY]

CHECKOUT is a clone of github.com/sail-sg/zero-bubble-pipeline-parallelism. Only its
scheduler/zbv.py is used (PipelineGraph.try_v_schedule, all four fill policies, as
its create_schedule runs them). BENCH_GREEDY is the program build/bench/greedy. Both
make ZB-V for 32 devices and 256 microbatches with unit costs, with the same orders;
longhaul also makes greedy's schedule of that size. Prints one JSON object.
"""
import importlib
import json
import pathlib
import statistics
import subprocess
import sys
import time
import types

DEVICES, MICROBATCHES, RUNS = 32, 256, 5


def load_zbv(checkout):
    """Imports zbv.py without its package, whose __init__ needs torch."""
    found = sorted(pathlib.Path(checkout).rglob("zerobubble/scheduler/zbv.py"))
    if not found:
        sys.exit(f"peer_zero_bubble: no zerobubble/scheduler/zbv.py in "
                 f"{checkout}")
    folder = found[0].parent
    parts = ["megatron", "core", "pipeline_parallel", "zerobubble",
             "scheduler"]
    for i in range(1, len(parts) + 1):
        package = types.ModuleType(".".join(parts[:i]))
        package.__path__ = [str(folder)] if i == len(parts) else []
        sys.modules[package.__name__] = package
    return importlib.import_module(".".join(parts) + ".zbv")


def peer_once(zbv):
    start = time.perf_counter()
    graph = zbv.PipelineGraph(DEVICES, MICROBATCHES, 1, 1, 1, 0, 1, 0, -1)
    best = None
    for fill_b in (True, False):
        for fill_f in (True, False):
            made = graph.try_v_schedule(fill_f=fill_f, fill_b=fill_b)
            if best is None or made[2] < best[2]:
                best = made
    return time.perf_counter() - start, max(best[1])


def ours(program, method, sub_blocks):
    made = subprocess.run(
        [program, str(RUNS), method, "wave", str(DEVICES), str(MICROBATCHES),
         str(sub_blocks)], check=True, capture_output=True, text=True)
    return json.loads(made.stdout)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    program = sys.argv[2] if len(sys.argv) == 3 else "build/bench/greedy"
    zbv = load_zbv(sys.argv[1])
    times, makespan = [], 0
    for _ in range(RUNS):
        seconds, makespan = peer_once(zbv)
        times.append(seconds)
    zb_v, greedy = ours(program, "zb-v", 1), ours(program, "greedy", 4)
    rows = [{"who": "zero-bubble authors' zbv.py, schedule only",
             "python": sys.version.split()[0], "best_s": min(times),
             "median_s": statistics.median(times), "makespan_units": makespan}]
    for label, made in (("longhaul zb-v", zb_v), ("longhaul greedy", greedy)):
        row = made["rows"][0]
        rows.append({"who": label + ", whole process with files",
                     "best_s": row["best_s"], "median_s": row["median_s"],
                     "peak_mb": row["peak_mb"]})
    print(json.dumps({"bench": "peer_zero_bubble", "devices": DEVICES,
                      "microbatches": MICROBATCHES, "runs": RUNS,
                      "version": zb_v["version"], "commit": zb_v["commit"],
                      "machine": zb_v["machine"], "rows": rows,
                      "times_faster": min(times) / zb_v["rows"][0]["best_s"]},
                     indent=2))


if __name__ == "__main__":
    main()
