#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the what-if analysis of a recording in pandas and NumPy with longhaul's.

    pip install "pandas<2.3"
    bench/peer_whatif.py build-fast/cli/longhaul tests/data/recordings/AR.csv.gz

The method is section 4 of Lin et al., "Understanding Stragglers in Large Model
Training Using What-if Analysis" (OSDI 2025, arXiv:2505.05713), reimplemented from
the paper for recordings like its two: one chunk per stage, the same operations in
every step. Prints both programs' times and the largest difference of their
results as JSON.

    git clone https://github.com/ByteDance-Seed/StragglerAnalysis
    pip install "pandas<2.3" -r StragglerAnalysis/requirements.txt
    bench/peer_whatif.py build-fast/cli/longhaul tests/data/recordings/AR.csv.gz \
        --authors StragglerAnalysis

also runs its authors' own three programs, like their run_all.sh, on their data of
that name.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import pandas as pd

TAIL = ["gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce",
        "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer"]
ALONE = {"forward-compute", "backward-compute", "optimizer", "gc"}


def read(path):
    """Returns the rows sorted equally in each step, and one step's positions."""
    rows = pd.read_csv(path)
    rows = rows.sort_values(["step", "dp_rank", "stage", "optype", "seq_id"])
    steps = rows.step.nunique()
    first = rows[rows.step == rows.step.iloc[0]].reset_index(drop=True)
    if len(first) * steps != len(rows):
        sys.exit("peer_whatif: steps differ")
    shape = (steps, len(first))
    return (first, rows.start_ts.to_numpy().reshape(shape),
            rows.duration.to_numpy().reshape(shape))


def places(first):
    return {key: list(group.index) for key, group in
            first.groupby(["dp_rank", "stage", "optype"])}


def needs_of(first, of):
    """Finds the dependencies of each operation, and groups that start
    together."""
    needs = [[] for _ in range(len(first))]
    groups = {i: (i,) for i in range(len(first))}
    last_stage = first.stage.max()

    def get(replica, stage, op):
        return of.get((replica, stage, op), [])

    def together(members):
        for i in members:
            groups[i] = tuple(members)

    replicas, stages = sorted(first.dp_rank.unique()), range(last_stage + 1)
    for r in replicas:
        for s in stages:
            forward, backward = (get(r, s, f"{d}-compute")
                                 for d in ("forward", "backward"))
            passes = sorted(forward + backward,
                            key=lambda i: first.start_ts[i])
            before = passes[:passes.index(backward[0])]
            for one, two in zip(passes, passes[1:]):
                needs[two].append(one)
            for kind, computes in ("forward", forward), ("backward", backward):
                for k, i in enumerate(get(r, s, kind + "-recv")):
                    needs[computes[k]].append(i)
                    if k:
                        needs[i] += [computes[k - 1],
                                     get(r, s, kind + "-recv")[k - 1]]
                    elif kind == "backward" and len(before) > 1:
                        needs[i].append(before[-2])
                for k, i in enumerate(get(r, s, kind + "-send")):
                    needs[i].append(computes[k])
                    if k:
                        needs[i].append(get(r, s, kind + "-send")[k - 1])
            needs[forward[0]] += get(r, s, "params-all-gather")
            at = backward[-1]
            for op in TAIL:
                for i in get(r, s, op):
                    needs[i].append(at)
                    at = i
            for kind, to in ("forward", s + 1), ("backward", s - 1):
                for pair in zip(get(r, s, kind + "-send"),
                                get(r, to, kind + "-recv")):
                    together(pair)
        together([i for s in (0, last_stage)
                  for i in get(r, s, "embedding-grads-all-reduce")])
    for s in stages:
        for op in "params-all-gather", "grads-reduce-scatter":
            together([i for r in replicas for i in get(r, s, op)])
    together([i for r in replicas for s in stages
              for i in get(r, s, "optimizer-clip-main-grad")])
    return needs, groups


def in_order(needs, groups):
    """Orders groups behind all dependencies of their members."""
    left = {g: sum(len(needs[i]) for i in g) for g in groups.values() if g}
    users = {}
    for i, all_of_it in enumerate(needs):
        for need in all_of_it:
            users.setdefault(need, []).append(groups[i])
    ready = [g for g, n in left.items() if n == 0]
    for g in ready:
        for i in g:
            for user in users.get(i, []):
                left[user] -= 1
                if left[user] == 0:
                    ready.append(user)
    return ready


def own_times(start, duration, order):
    """Subtracts the group's last start from each end."""
    takes = duration.copy()
    for g in order:
        if len(g) > 1:
            g = list(g)
            takes[:, g] = (start + duration)[:, g] - \
                start[:, g].max(axis=1, keepdims=True)
    takes[takes < -0.01] = 0
    return takes


def play(order, needs, takes):
    """Returns the end of each step."""
    ends = np.zeros_like(takes.T)
    by_op = takes.T
    for g in order:
        before = [need for i in g for need in needs[i]]
        begin = ends[before].max(axis=0) if before else 0
        for i in g:
            ends[i] = begin + by_op[i]
    return ends.max(axis=0)


def analyse(path):
    first, start, duration = read(path)
    needs, groups = needs_of(first, places(first))
    order = in_order(needs, groups)
    takes = own_times(start, duration, order)
    usual = np.empty_like(takes)
    for op, group in first.groupby("optype"):
        own = takes[:, group.index]
        usual[:, group.index] = own.mean() if op in ALONE else np.median(own)
    kinds = first.optype.str.replace(r"^(forward|backward)-(send|recv)$",
                                     r"\1-pp-comm", regex=True)
    ideal = play(order, needs, usual).mean()
    own = play(order, needs, takes).mean()

    def with_own(which):
        mixed = np.where(which.to_numpy()[None, :], takes, usual)
        return play(order, needs, mixed).mean() / ideal

    return {"t_s": own, "ideal_s": ideal, "slowdown": own / ideal,
            "by_stage": {str(s): with_own(first.stage == s)
                         for s in sorted(first.stage.unique())},
            "by_replica": {str(r): with_own(first.dp_rank == r)
                           for r in sorted(first.dp_rank.unique())},
            "by_operation": {k: with_own(kinds == k)
                             for k in sorted(kinds.unique())}}


def numbers(found, at=""):
    for key, value in found.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{at}{key} ")
        else:
            yield at + key, value


def processor_s(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def run_authors(folder, name):
    """Measures the processor time of each of the authors' programs, and of an
    empty one; returns their results."""
    data = folder / "data"
    seconds = {}
    with tempfile.TemporaryDirectory() as made:
        def run(label, *words):
            before = processor_s(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *words], check=True, cwd=folder,
                           env={**os.environ, "PYTHONPATH":
                                f"{folder}:{folder / 'analyzer'}"},
                           capture_output=True)
            seconds[label] = processor_s(resource.RUSAGE_CHILDREN) - before

        run("start", "-c", "import analyzer.wia")
        run("slowdowns", "analyzer/wia.py", "--metadata",
            data / f"meta-{name}.yaml", "--trace",
            data / f"trace-{name}.parquet", "--dump-dir", made, "--root", made)
        found = json.loads((pathlib.Path(made) / f"{name}.json").read_text())
        for of in "ms", "mw":
            run(of, f"analyzer/compute_{of}.py", "--trial", name, "--dump-dir",
                made, "--root", made, "--analysis-result",
                data / f"result-{name}.json")
            found |= json.loads(
                (pathlib.Path(made) / f"{of}-{name}.json").read_text())
    return seconds, {"slowdown": found["blocking_slowdown"],
                     "t_s": found["tori"], "ideal_s": found["tideal"],
                     "last_stage_share": found["Ms"],
                     "worker_share": found["Mw"]}


def beside_authors(folder, name, runs, told, ours):
    every = []
    for _ in range(runs):
        seconds, found = run_authors(folder, name)
        every.append(seconds)
    medians = {k: float(np.median([one[k] for one in every]))
               for k in every[0]}
    whole = sum(v for k, v in medians.items() if k != "start")
    return {"authors_s": medians, "authors_times_as_long": whole / ours,
            "authors_times_without_starts":
                (whole - 3 * medians["start"]) / ours,
            "authors_largest_difference": max(abs(told[k] - v) / max(1, abs(v))
                                              for k, v in found.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("longhaul")
    parser.add_argument("recording")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--authors", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args()
    theirs, ours = [], []
    for _ in range(args.runs):
        before = processor_s(resource.RUSAGE_SELF)
        analysis = analyse(args.recording)
        theirs.append(processor_s(resource.RUSAGE_SELF) - before)
        before = processor_s(resource.RUSAGE_CHILDREN)
        text = subprocess.run([args.longhaul, "diagnose", args.recording,
                               "--json", "-j", "1"], check=True,
                              capture_output=True).stdout
        ours.append(processor_s(resource.RUSAGE_CHILDREN) - before)
    result = json.loads(text)
    told = dict(numbers({k: v for k, v in result.items() if k in analysis}))
    authors = beside_authors(
        args.authors.resolve(), pathlib.Path(args.recording).name.split(".")[0],
        args.runs, result, float(np.median(ours))) if args.authors else {}
    worst = max(abs(told[name] / value - 1)
                for name, value in numbers(analysis))
    print(json.dumps({
        "recording": args.recording, "pandas": pd.__version__,
        "when": time.strftime("%Y-%m-%d"), "runs": args.runs,
        "pandas_s": {"best": min(theirs), "median": float(np.median(theirs))},
        "longhaul_s": {"best": min(ours), "median": float(np.median(ours))},
        "times_as_long": float(np.median(theirs) / np.median(ours)),
        "largest_difference": worst, **authors}, indent=1))


main()
