#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the zero-bubble authors' schedulers with longhaul's in one run.

    bench/peer_zero_bubble.py CHECKOUT [BENCH_GREEDY]
    bench/peer_zero_bubble.py CHECKOUT --offload LONGHAUL [--markdown FILE]

CHECKOUT is a clone of sail-sg/zero-bubble-pipeline-parallelism at github.com.
Only its folder zerobubble/scheduler is used. Prints one JSON object.

Without --offload: the times of both schedulers. From zbv.py only
PipelineGraph.try_v_schedule is used, with all four fill policies, as its
create_schedule runs them. BENCH_GREEDY is the program build/bench/greedy. Both
make ZB-V for 32 devices and 256 microbatches with unit costs, with the same
orders; longhaul also makes greedy's schedule of that size.

With --offload: makespans of 20 pipelines whose activations are copied to host
memory, in longhaul's simulator: the orders of group_interleaved_1f1b.py with
offloading.py, of longhaul's methods, and of its search. LONGHAUL is the program
build/cli/longhaul. bench/README.md defines the pipelines and both copy rules.
"""
import argparse
import contextlib
import importlib
import io
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import types

DEVICES, MICROBATCHES, RUNS = 32, 256, 5
PIPELINES = 20
BUFFERS = 3  # passes whose offloaded activations a device holds
EFFORT = 1000000


def load(checkout, *names):
    """Imports scheduler modules without their package, which needs torch."""
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
    training = types.ModuleType("megatron.training")
    training.get_args = None  # imported, but not called here
    sys.modules[training.__name__] = training
    return [importlib.import_module(".".join([*parts, name]))
            for name in names]


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


def compare_speed(checkout, program):
    zbv, = load(checkout, "zbv")
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
    return {"bench": "peer_zero_bubble", "devices": DEVICES,
            "microbatches": MICROBATCHES, "runs": RUNS,
            "version": zb_v["version"], "commit": zb_v["commit"],
            "machine": zb_v["machine"], "rows": rows,
            "times_faster": min(times) / zb_v["rows"][0]["best_s"]}


# --- activations in host memory ----------------------------------------------

def draw_case(draw):
    devices = draw.choice([4, 6, 8])
    return types.SimpleNamespace(
        devices=devices, chunks=draw.choice([2, 3, 4]),
        microbatches=devices * draw.choice([2, 3]),
        times={k: draw.randint(8, 12) for k in ("F", "D")} |
        {"W": draw.randint(6, 12)},
        group=draw.choice([devices, devices // 2]),
        offloaded=draw.randint(1, 3), ratio=draw.randint(10, 60) / 100)


def make_peer_order(peer, case):
    """Sets the case's order, makespan, peaks and copy time by the peer's
    scheduler. Returns False if that rejects the case, or copies nothing.
    """
    graph, interleaved, passes, offloading = peer
    f, d, w = (float(case.times[k]) for k in "FDW")
    config = graph.GraphConfig.basic_config(
        f=f, b=d, w=w, n_stages=case.devices, n_micro=case.microbatches,
        max_chunks=case.chunks)
    if case.offloaded > case.chunks:
        return False
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            rows = interleaved.create_schedule(
                config, True, None, None, None, case.group, case.offloaded)
            rows = passes.add_send_recv_peer_stage(config, rows)
            rows = passes.add_time(config, rows)
            peaks = offloading.get_peak_memory(rows)
            rows = offloading.add_offload(config, rows, case.ratio)
    except (AssertionError, IndexError):
        return False
    case.limits = offloading.get_peak_memory(rows)
    case.host = max(a - b for a, b in zip(peaks, case.limits, strict=True))
    case.rows = [[(n.layer_group_idx, n.type.value, n.microbatch) for n in row
                  if n.type.value in "FBW"] for row in rows]
    case.peer_ms = max(n.completion_time for row in rows for n in row)
    case.copy_ms = round((f + d + w) * case.ratio, 2)
    return case.host > 0


def draw_cases(peer):
    """Returns the pipelines, and the number of draws that the peer rejects."""
    draw, cases, rejected = random.Random("offload"), [], 0
    while len(cases) < PIPELINES:
        case = draw_case(draw)
        if make_peer_order(peer, case):
            cases.append(case)
        else:
            rejected += 1
    return cases, rejected


def pipeline(case, concurrent):
    """Returns the case for longhaul: with copies by a concurrent stream, or
    with copies that lengthen passes.
    """
    n = case.devices * case.chunks
    chunks = [{"device": c % case.devices, **case.times,
               "memory": {"F": 1, "D": 0, "W": -1}} for c in range(n)]
    for c in range(case.devices * case.offloaded if concurrent else 0):
        chunks[c]["offload"] = case.copy_ms
        chunks[c]["memory"] = {"static": BUFFERS if c < case.devices else 0}
    return {"longhaul": "pipeline/1", "time_unit": "ms",
            "microbatches": case.microbatches, "devices": case.devices,
            "backward": "joint" if concurrent else "split", "chunks": chunks}


def write_order(case, concurrent, path):
    """Writes the peer's order; its W directly follows its B."""
    kinds = {"F": "F", "B": "B"} if concurrent else \
        {"F": "F", "B": "I", "W": "W"}
    path.write_text("".join(
        ",".join(f"{chunk}{kinds[kind]}{m}" for chunk, kind, m in row
                 if kind in kinds) + "\n" for row in case.rows))


def run(*command):
    done = subprocess.run([str(x) for x in command], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"peer_zero_bubble: {' '.join(map(str, command))}: "
                 f"{done.stderr}")
    return json.loads(done.stdout)


def compare_case(o, folder, case, concurrent):
    """Returns the makespans of the peer, of the methods and of the search, and
    the lower bound, in ms.
    """
    path, order, found = (folder / x for x in ("p.json", "s.csv", "o.csv"))
    p = pipeline(case, concurrent)
    write_order(case, concurrent, order)
    host = [] if concurrent else ["--host-memory", case.host]
    copies = [] if concurrent else ["--host-copy", f"{case.copy_ms}ms"]
    if not concurrent:
        p["memory_limit"] = case.limits
    path.write_text(json.dumps(p))
    peer = run(o.offload, "simulate", path, "-s", order, *host, *copies,
               "--json")
    if concurrent:
        p["memory_limit"] = peer["peak_memory"]
        path.write_text(json.dumps(p))
    run(o.offload, "check", path, order, *host, "--json")
    row = {"peer": 1000 * peer["makespan_s"]}
    for name, method in (("methods", ["auto", "--effort", 1]),
                         ("search", ["optimal", "--effort", o.effort])):
        start = time.perf_counter()
        made = run(o.offload, "schedule", path, "-m", *method, *host, *copies,
                   "--json", "-o", found)
        run(o.offload, "check", path, found, *host, "--json")
        row[name] = 1000 * made["makespan_s"]
        row["bound"] = 1000 * made["lower_bound_s"]
        row[name + "_s"] = time.perf_counter() - start
    return row


def compare_offloading(o):
    peer = load(o.checkout, "graph", "group_interleaved_1f1b", "passes",
                "offloading")
    cases, rejected = draw_cases(peer)
    rows = []
    with tempfile.TemporaryDirectory(prefix="longhaul-offload-") as folder:
        for case in cases:
            row = {"devices": case.devices, "chunks": case.chunks,
                   "microbatches": case.microbatches, "times_ms": case.times,
                   "group": case.group, "offloaded_chunks": case.offloaded,
                   "copy_ms": case.copy_ms, "memory": case.limits,
                   "host_memory": case.host, "peer_clock_ms": case.peer_ms}
            for rule in ("blocking", "concurrent"):
                row[rule] = compare_case(o, pathlib.Path(folder), case,
                                         rule == "concurrent")
            print(json.dumps(row), file=sys.stderr)
            rows.append(row)
    if o.markdown:
        pathlib.Path(o.markdown).write_text(table(rows))
    return {"bench": "peer_zero_bubble", "effort": o.effort,
            "rejected_by_peer": rejected, "rows": rows,
            "summary": {r: summary([x[r] for x in rows])
                        for r in ("blocking", "concurrent")}}


def summary(rows):
    ratios = sorted(r["search"] / r["peer"] for r in rows)
    return {"search_faster": sum(x < 1 for x in ratios),
            "equal": sum(x == 1 for x in ratios),
            "search_slower": sum(x > 1 for x in ratios),
            "methods_slower": sum(r["methods"] > r["peer"] for r in rows),
            "ratio_least": ratios[0], "ratio_most": ratios[-1],
            "ratio_mean": statistics.geometric_mean(ratios)}


def table(rows):
    lines = ["| devices × chunks × microbatches | F, D, W | copy | memory, "
             "host | peer's clock | blocking: peer | methods | search | bound "
             "| concurrent: peer | methods | search | bound |",
             "| --- |" + " --- |" * 12]
    for r in rows:
        cells = [f"{r['devices']} × {r['chunks']} × {r['microbatches']}",
                 ", ".join(str(x) for x in r["times_ms"].values()),
                 f"{r['copy_ms']:g}", f"{max(r['memory'])}, {r['host_memory']}",
                 f"{r['peer_clock_ms']:g}"]
        cells += [f"{r[rule][k]:.6g}" for rule in ("blocking", "concurrent")
                  for k in ("peer", "methods", "search", "bound")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    a = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("checkout")
    a.add_argument("bench_greedy", nargs="?", default="build/bench/greedy")
    a.add_argument("--offload", metavar="LONGHAUL",
                   help="compare schedules with copies to host memory")
    a.add_argument("--effort", type=int, default=EFFORT,
                   help="--offload: effort of the search")
    a.add_argument("--markdown", metavar="FILE",
                   help="--offload: write the table")
    o = a.parse_args()
    print(json.dumps(compare_offloading(o) if o.offload else
                     compare_speed(o.checkout, o.bench_greedy), indent=2))


if __name__ == "__main__":
    main()
