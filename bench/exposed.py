#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares measured and predicted exposed communication of sharded training.

    bench/exposed.py LONGHAUL [--ratios X,Y,...] [--runs N] [--data FILE] >exposed.json

Two replicas of one fully sharded stage (zero: 3, four chunks, schedule: elastic,
so that parameters are gathered during passes) run over emulated data-parallel
links (--emulate-links, --transport local, one thread per process). A first run
measures a profile. Each ratio sets the link rate so that a chunk's gather takes
that multiple of its forward passes. The job is planned with the profile, N runs
train the plan for a few steps, and the last step of each is evaluated.

Communication is exposed while a collective occupies the link and the rank
computes nothing, in percent of the time from the first collective to the last.
It is computed from three traces:

    planned    the plan's prediction, with the profile's times
    predicted  the same order simulated with the mean pass times of that step
    measured   the step

`difference` is measured minus predicted in percent of predicted, `points` the
same in percent of the step: medians of the runs. Needs two idle cores: with other
load, ranks wait for each other. `other` is that time, without computation and
communication; `quietest` is the run with the least of it.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile

from running import run

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 4  # the last one is evaluated

JOB = """longhaul: job/1
model: {{layers: 4, hidden: 128, ffn: 344, heads: 4, kv_heads: 2, head_dim: 32,
        vocab: 256, gated: true, tied_embeddings: false}}
training: {{global_batch: 32, sequence: 128, precision: fp32, optimizer: adamw,
           zero: 3, recompute: none}}
cluster:
  gpu: {{tflops: 0.1, memory_gib: 4, memory_gbps: 20}}
  gpus_per_node: 1
  node_link: {{gbps: 80, latency_us: 10}}
  fabric: {{gbps: {gbps}, latency_us: 100}}
  datacenters: [{{name: here, nodes: 2}}]
layout: {{tensor: 1, context: 1, expert: 1, pipeline: 1, data: 2, micro_batch: 4,
         chunks_per_device: 4, schedule: elastic}}
"""


def spans_of(trace, kind, first, last):
    """Merges overlapping intervals; in order."""
    joined = []
    for begin, end in sorted((e["args"][first], e["args"][last]) for e in trace
                             if e.get("cat") == kind):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([begin, end])
    return joined


def time_in(spans):
    return sum(end - begin for begin, end in spans)


def time_in_both(some, others):
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0]))
               for a in some for b in others)


def shares(path):
    """Returns the iteration time of a trace in nanoseconds, and its shares of
    exposed communication and of other waiting, in percent."""
    trace = json.loads(path.read_text())["traceEvents"]
    passes = spans_of(trace, "pass", "start_ns", "end_ns")
    sent = spans_of(trace, "collective", "depart_ns", "arrive_ns")
    begin, end = (pick(span[k] for span in (*passes, *sent))
                  for k, pick in ((0, min), (1, max)))
    exposed = time_in(sent) - time_in_both(sent, passes)
    rest = end - begin - time_in(passes) - exposed
    return end - begin, 100 * exposed / (end - begin), 100 * rest / (end - begin)


def with_times_of(plan, path):
    """Returns the plan's pipeline with the mean pass times of a trace."""
    taken = {}
    for e in json.loads(path.read_text())["traceEvents"]:
        if e.get("cat") == "pass":
            chunk, kind = re.match(r"(\d+)([FB])", e["name"]).groups()
            taken.setdefault((int(chunk), kind), []).append(
                e["args"]["end_ns"] - e["args"]["start_ns"])
    pipeline = json.loads(json.dumps(plan["pipeline"]))
    for i, chunk in enumerate(pipeline["chunks"]):
        backward = round(statistics.mean(taken[i, "B"]))
        share = chunk["D"] / (chunk["D"] + chunk["W"])
        chunk["F"] = round(statistics.mean(taken[i, "F"]))
        chunk["D"] = round(backward * share)
        chunk["W"] = backward - chunk["D"]
    return pipeline


def make_plan(program, folder, gbps, profile=None):
    """Makes a job with such a link between its replicas."""
    job = folder / "job.yaml"
    job.write_text(JOB.format(gbps=gbps) +
                   (f"profile: {profile.name}\n" if profile else ""))
    run(program, "plan", job, "-q", "-o", folder / "plan.json")
    return json.loads((folder / "plan.json").read_text())


def gbps_of(plan, ratio):
    """Computes the link rate from a plan at 1 Gbit/s, so that a gather of
    chunk 1 takes `ratio` times its forward passes."""
    pipeline = plan["pipeline"]
    gather = next(op["all_gather"] for op in pipeline["data_parallel"]["operations"]
                  if op["chunk"] == 1 and op["kind"] == "AGO")
    return gather / (ratio * pipeline["chunks"][1]["F"] * pipeline["microbatches"])


def measure(train, program, gbps, profile, runs, folder):
    own = make_plan(program, folder, gbps, profile)
    plan, pipeline = folder / "plan.json", folder / "pipeline.json"
    made = [folder / name for name in ("planned", "predicted", "measured")]
    run(program, "simulate", plan, "--trace", made[0])
    rows = []
    for _ in range(runs):
        run(*train, "--trace", made[2])
        pipeline.write_text(json.dumps(with_times_of(own, made[2])))
        run(program, "simulate", pipeline, "--schedule", plan, "--trace", made[1])
        (_, predicted, _), (ns, measured, other) = map(shares, made[1:])
        rows.append((predicted, measured, ns / 1e6, other,
                     measured - predicted, 100 * (measured / predicted - 1)))
    names = ("predicted_percent", "measured_percent", "step_ms", "other_percent",
             "points", "difference_percent")
    medians = map(statistics.median, zip(*rows))
    ns, planned, _ = shares(made[0])
    return {"gbps": gbps, "plan": own["why"], "runs": runs,
            "planned_ms": ns / 1e6, "planned_percent": planned,
            **dict(zip(names, medians)),
            "worst_difference_percent": max((row[-1] for row in rows), key=abs),
            "quietest": dict(zip(names, min(rows, key=lambda row: row[3])))}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("program")
    arguments.add_argument("--ratios", default="0.5,1,2")
    arguments.add_argument("--runs", type=int, default=9)
    arguments.add_argument("--data", default=str(HERE.parent / "LICENSE"))
    o = arguments.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        profile = folder / "profile.json"
        train = [o.program, "train", folder / "plan.json", "--device", "cpu",
                 "--transport", "local", "--emulate-links", "--steps", STEPS,
                 "--data", os.path.abspath(o.data)]
        make_plan(o.program, folder, 1)
        run(*train, "--profile-out", profile)
        at_1 = make_plan(o.program, folder, 1, profile)
        for ratio in map(float, o.ratios.split(",")):
            rows.append({"ratio": ratio, **measure(
                train, o.program, gbps_of(at_1, ratio), profile, o.runs, folder)})
    json.dump(rows, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
