#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `schedule --method optimal` with OR-tools CP-SAT, in the same run.

    pip install ortools
    bench/optimal.py BENCH_OPTIMAL LONGHAUL [--limit S] [--threads N]
                     [--hint] [--only 8x16] [--markdown FILE] > optimal.json

BENCH_OPTIMAL and LONGHAUL are the programs build/bench/bench-optimal and
build/cli/longhaul. Each pipeline has uneven stages (times drawn between 3/4 and
5/4 of 38, 48 and 20 ms, seeded), once without delays and once with two
datacenters, latency and transfer 76 ms; each without a memory limit, and with a
limit of as many activations as devices. CP-SAT gets the model of
bench/peer_cpsat.py, with --hint also the best schedule of longhaul's generators,
from which longhaul starts. (Most often it is faster without.) Both get --limit
seconds of processor time per thread. All times are processor time, independent
of other load. `longhaul check` verifies every schedule that either finds.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SIZES = [(4, 8), (4, 16), (6, 12), (8, 8), (8, 16), (8, 32), (16, 32)]
WITHIN = 0.01  # relative to the best known
LEAST_S = 1e-4  # resolution of a process's clock checks


def pipeline(devices, microbatches, delays, limited):
    draw = random.Random(f"{devices}x{microbatches}")
    chunks = []
    for d in range(devices):
        f, b, w = (draw.randint(t * 3 // 4, t * 5 // 4) for t in (38, 48, 20))
        chunks.append({"device": d, "F": f, "D": b, "W": w,
                       "memory": {"F": 1, "D": 0, "W": -1}})
    p = {"longhaul": "pipeline/1", "time_unit": "ms",
         "microbatches": microbatches, "devices": devices, "chunks": chunks}
    if delays:
        p["datacenters"] = {"count": 2, "latency": 76, "transfer": 76}
    if limited:
        p["memory_limit"] = devices
    return p


def run(*command):
    done = subprocess.run([str(x) for x in command], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"optimal: {' '.join(map(str, command))}: {done.stderr}")
    return json.loads(done.stdout)


def judged(longhaul, path, schedule, found):
    """Tests whether the schedule is valid and as fast as reported. A non-
    optimal one may be faster: CP-SAT's passes can start later than possible.
    """
    if found["best_ns"] is None or found["best_ns"] < 0:
        return None
    verdict = run(longhaul, "check", path, schedule, "--json")
    takes = round(verdict["makespan_s"] * 1e9)
    return verdict["valid"] and (
        takes == found["best_ns"] or
        (takes < found["best_ns"] and found["status"] != "optimal"))


def when(found, target):
    """Returns the processor seconds until a schedule met the target."""
    for second, best, *_ in found["progress"]:
        if 0 <= best <= target:
            return second
    return None


def measure(o, folder, size, delays, limited):
    path = folder / "p.json"
    path.write_text(json.dumps(pipeline(*size, delays, limited)))
    ours_csv, theirs_csv = folder / "ours.csv", folder / "theirs.csv"
    ours = run(o.bench_optimal, path, o.limit, o.threads, ours_csv)
    hint = []
    if o.hint:
        hint = ["--hint", folder / "start.csv"]
        run(o.longhaul, "schedule", path, "--method", "auto", "--json", "-o",
            hint[1])
    theirs = run(sys.executable, HERE / "peer_cpsat.py", path, "--threads",
                 o.threads, "--time-limit", 20 * o.limit, "--cpu-limit",
                 o.limit * o.threads, "-o", theirs_csv, *hint)
    row = {"devices": size[0], "microbatches": size[1], "delays": delays,
           "limited": limited}
    known = min(x["best_ns"] for x in (ours, theirs)
                if x["best_ns"] and x["best_ns"] > 0)
    row["best_known_ns"] = known
    for name, x, csv in (("longhaul", ours, ours_csv),
                         ("cp_sat", theirs, theirs_csv)):
        row[name] = {k: x[k] for k in ("status", "best_ns", "bound_ns",
                                       "seconds", "cpu_seconds")}
        row[name]["within_1_percent_s"] = when(x, known * (1 + WITHIN))
        row[name]["proof_s"] = x["cpu_seconds"] \
            if x["status"] == "optimal" else None
        row[name]["valid"] = judged(o.longhaul, path, csv, x)
    both = [row[k] for k in ("longhaul", "cp_sat")]
    row["agree"] = both[0]["best_ns"] == both[1]["best_ns"] \
        if all(x["status"] == "optimal" for x in both) else None
    # No schedule may be below a proven bound.
    row["sound"] = all(x["bound_ns"] is None or x["bound_ns"] <= known
                       for x in both)
    print(f"{size[0]} x {size[1]}, delays {delays}, limited {limited}: "
          + "; ".join(f"{k} {row[k]['status']} {row[k]['best_ns']} in "
                      f"{row[k]['cpu_seconds']}" for k in
                      ("longhaul", "cp_sat")), file=sys.stderr)
    return row


def table(rows, limit):
    def seconds(x):
        return f"> {limit:g}" if x is None else f"{x:.3g}"

    def gap(x):
        if not x["best_ns"] or x["best_ns"] < 0:
            return "none"
        return f"{100 * (x['best_ns'] / max(x['bound_ns'], 1) - 1):.2f} %"

    lines = ["| pipeline | delays | memory | best known, ms | "
             "within 1 %: longhaul | CP-SAT | proof: longhaul | CP-SAT | "
             "gap left: longhaul | CP-SAT |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        a, b = r["longhaul"], r["cp_sat"]
        lines.append(
            f"| {r['devices']} × {r['microbatches']} "
            f"| {'76, 76 ms' if r['delays'] else 'none'} "
            f"| {r['devices'] if r['limited'] else 'no limit'} "
            f"| {r['best_known_ns'] / 1e6:g} "
            f"| {seconds(a['within_1_percent_s'])} "
            f"| {seconds(b['within_1_percent_s'])} "
            f"| {seconds(a['proof_s'])} | {seconds(b['proof_s'])} "
            f"| {gap(a)} | {gap(b)} |")
    return "\n".join(lines) + "\n"


def ratios(rows, key):
    """Returns the ratio of both times where both reach the target."""
    found = sorted(r["cp_sat"][key] / max(r["longhaul"][key], LEAST_S)
                   for r in rows
                   if r["cp_sat"][key] and r["longhaul"][key] is not None)
    if not found:
        return None
    return {"n": len(found), "least": found[0], "most": found[-1],
            "median": statistics.median(found),
            "geometric_mean": statistics.geometric_mean(found)}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("bench_optimal")
    a.add_argument("longhaul")
    a.add_argument("--limit", type=float, default=60,
                   help="processor seconds per thread for each case")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--hint", action="store_true",
                   help="CP-SAT starts from longhaul's best generator")
    a.add_argument("--only", metavar="8x16")
    a.add_argument("--markdown", metavar="FILE")
    o = a.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="longhaul-optimal-") as folder:
        for size in SIZES:
            if o.only and o.only != f"{size[0]}x{size[1]}":
                continue
            for delays in (False, True):
                for limited in (False, True):
                    rows.append(measure(o, pathlib.Path(folder), size, delays,
                                        limited))
    if o.markdown:
        pathlib.Path(o.markdown).write_text(table(rows, o.limit))
    good = all(r["sound"] and r["agree"] is not False and
               r["longhaul"]["valid"] and r["cp_sat"]["valid"] is not False
               for r in rows)
    print(json.dumps({"benchmark": "optimal", "limit_s": o.limit,
                      "threads": o.threads, "hint": o.hint,
                      "within_1_percent": ratios(rows, "within_1_percent_s"),
                      "proof": ratios(rows, "proof_s"), "rows": rows,
                      "good": good}, indent=1))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
