#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sharding over replicas in plans, and its cost in every row."""
import json

from harness import check, finish, run, test, write, WORK
from trained import TEXT, TRAIN, can_train

FAR = """\
longhaul: job/1
model: llama3-70b
training: {global_batch: 512, sequence: 4096, precision: bf16, zero: 3}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: west, nodes: 64}, {name: east, nodes: 64}]
  links: [{between: [west, east], latency_ms: 80, gbps: 3200}]
layout: {tensor: 2, pipeline: 1, data: 512%s}
"""
LAYERS, LATENCY = 80, 0.08

# GPT-3 58B on 96 V100s, as in PipeMesh.
NEAR = """\
longhaul: job/1
model: {layers: 72, hidden: 8192, ffn: 32768, heads: 64, vocab: 51200,
        gated: false}
training: {global_batch: 72, sequence: 3072, precision: fp16, zero: %d}
cluster:
  gpu: v100-32g
  gpus_per_node: 8
  node_link: {gbps: 1200, latency_us: 2}
  fabric: {gbps: 100, latency_us: %d}
  datacenters: [{name: a, nodes: 12}]
layout: {tensor: 8, pipeline: 4, data: 3, micro_batch: 1%s}
"""


# Two sites with this number of GPUs each.
SMALL = """\
longhaul: job/1
model: {layers: 4, hidden: 64, ffn: 96, heads: 2, vocab: 256}
training: {global_batch: 16, sequence: 32, precision: fp32, zero: %d}
cluster:
  gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}
  gpus_per_node: 1
  node_link: {gbps: 80, latency_us: 10}
  fabric: {gbps: 10, latency_us: 50}
  datacenters: [{name: west, nodes: %d}, {name: east, nodes: %d}]
  links: [{between: [west, east], latency_ms: 1, gbps: 1}]
layout: {tensor: 1, pipeline: 1, context: %d, data: %d, sharding: %s,
         micro_batch: 2, schedule: 1f1b}
"""


def plan(job, *options):
    write("job.yaml", job)
    done = run("plan", "job.yaml", "-o", "plan.json", *options)
    check(done.returncode == 0, done.stderr)
    return json.loads((WORK / "plan.json").read_text())


def rows_of(made):
    for row in [made] + made["methods"] + made["alternatives"]:
        if row["status"] == "ok" or row is made:
            yield row


def rounds(row):
    """Returns the minimum number of link transfers of each layer: forward,
    backward, and gradients. For an elastic plan these follow from its groups
    and shares."""
    elastic = row.get("elastic")
    if not elastic:
        return 3 * row["microbatches"]
    chunks = row["layout"]["chunks_per_device"]
    forward, backward = len(elastic["enqueue"]), len(elastic["dequeue"])
    # the last chunk keeps its parameters
    gathered = forward + backward - 1 / chunks
    return (elastic["parameters"] * gathered +
            elastic["gradients"] * backward)


@test
def parameters_of_far_sites_pay_every_layer():
    seen = {"elastic": 0, "other": 0, "hybrid": 0}
    open_made = plan(FAR % "", "--no-optimal", "--top", "100")
    full_made = plan(FAR % ", sharding: full", "--no-optimal", "--top", "100")
    for row in [*rows_of(open_made), *rows_of(full_made)]:
        if row["layout"].get("sharding", "full") != "full":
            seen["hybrid"] += 1
            continue
        seen["elastic" if "elastic" in row else "other"] += 1
        least = LAYERS * rounds(row) * LATENCY
        check(row["iteration_s"] >= least,
              f"{row['iteration_s']} s, {rounds(row)} latencies for each of "
              f"{LAYERS} layers are {least} s: {row['why']}")
    check(min(seen.values()) > 1, f"rows: {seen}")
    check(open_made["layout"]["sharding"].startswith("hybrid"),
          "what is shared inside each site is faster")


def of(zero, latency_us, schedule):
    more = f", schedule: {schedule}" if schedule else ""
    return plan(NEAR % (zero, latency_us, more), "--no-optimal")


@test
def latency_of_replicas_is_in_every_schedule():
    """Each replica is on ranks of its own, and messages are negligible."""
    for schedule in ["1f1b", "interleaved-1f1b", "elastic"]:
        for zero in [1, 2, 3]:
            near, far = (of(zero, us, schedule) for us in (50, 10000))
            what = f"{schedule}, ZeRO {zero}"
            check(far["iteration_s"] > near["iteration_s"], what)
            check(far["account"]["data_parallel_s"] >
                  near["account"]["data_parallel_s"], what)


@test
def first_gathers_and_last_reductions_are_operations():
    """Each rank has these operations, for any sharding, in pipeline and
    trace."""
    for schedule in ["1f1b", "zb-h1", "elastic"]:
        for zero in [1, 2, 3]:
            own, what = of(zero, 50, schedule), f"{schedule}, ZeRO {zero}"
            entry = own["pipeline"].get("data_parallel", [])
            chunks = entry["chunks"] if isinstance(entry, dict) else entry
            ranks = {c["chunk"] for c in chunks
                     if c.get("all_gather", 0) > 0 and
                     c.get("reduce_scatter", 0) > 0}
            check(ranks >= set(range(4)), f"{what}: of chunks {ranks}")
            done = run("simulate", "plan.json", "--trace", "trace.json")
            check(done.returncode == 0, done.stderr)
            trace = json.loads((WORK / "trace.json").read_text())
            events = trace["traceEvents"] if isinstance(trace, dict) else trace
            sent = [e for e in events if e.get("cat") == "collective"]
            passes = [e for e in events if e.get("cat") == "pass"]
            first = min(e["ts"] for e in passes)
            last = max(e["ts"] + e["dur"] for e in passes)
            check(any(e["args"]["op"] == "all-gather" and
                      e["args"]["arrive_ns"] / 1e3 <= first for e in sent),
                  f"{what}: the first pass waits for no gather")
            check(any(e["args"]["op"] == "reduce-scatter" and
                      e["args"]["depart_ns"] / 1e3 >= last - 0.001
                      for e in sent),
                  f"{what}: nothing is reduced after the last pass")


@test
def tensor_and_data_parallelism_are_apart_in_every_account():
    """Tensor-parallel communication and computation do not depend on the
    schedule and the sharding."""
    plain = of(1, 50, "1f1b")["account"]
    check(plain["inside_s"] > 1, f"sent in passes: {plain['inside_s']}")
    for schedule in ["1f1b", "elastic"]:
        for zero in [1, 2, 3]:
            own = plan(NEAR.replace("fp16,", "fp16, recompute: none,") %
                       (zero, 50, f", schedule: {schedule}"), "--no-optimal")
            its, what = own["account"], f"{schedule}, ZeRO {zero}"
            check(abs(its["inside_s"] - plain["inside_s"]) < 1e-3,
                  f"{what}: {its['inside_s']} s sent in passes")
            check(abs(its["compute_s"] - plain["compute_s"]) < 1e-3,
                  f"{what}: {its['compute_s']} s computed")
            check(its["data_parallel_s"] > 0, f"{what}: nothing exposed")


@test
def explain_lists_exactly_the_messages_of_passes():
    """Nothing is printed if a datacenter contains one of the replicas."""
    gather, scatter = "all-gather", "reduce-scatter"
    for zero, nodes, context, data, sharding, want in [
            (1, 2, 1, 4, "hybrid", []),
            (2, 2, 1, 4, "hybrid", [scatter]),
            (3, 2, 1, 4, "hybrid", [gather, scatter]),
            (3, 1, 1, 2, "full", [gather, scatter]),
            (2, 1, 1, 2, "hybrid", []),
            (3, 1, 1, 2, "hybrid", []),
            (3, 1, 1, 2, "hybrid-leaders", []),
            (3, 2, 2, 2, "hybrid", [gather, scatter]),
            (3, 2, 2, 1, "full", [gather, scatter])]:
        plan(SMALL % (zero, nodes, nodes, context, data, sharding),
             "--no-optimal")
        what = f"ZeRO {zero}, {data} x {context}, {sharding}"
        said = json.loads(run("explain", "plan.json", "--json").stdout)
        check(said["in_passes"] == want, f"{what}: {said['in_passes']}")
        line = "in passes" in run("explain", "plan.json").stdout
        check(line == bool(want), f"{what}: {line}")


@test
def gathers_take_their_time_over_emulated_links():
    """Passes of a run wait at least as long as planned."""
    for zero in (2, 3):
        its = plan(SMALL.replace("latency_us: 50", "latency_us: 3000")
                   % (zero, 1, 1, 1, 2, "full"), "-q")
        write("text", TEXT * 99)
        done = run(*TRAIN, "--steps", "2", "--emulate-links", "--json")
        if not can_train(done):
            return
        found = json.loads(done.stdout)
        exposed = its["account"]["data_parallel_s"]
        check(exposed > 0.02, its["account"])
        for i in found["iterations"]:
            check(i["seconds"] > exposed, f"ZeRO {zero}: {i}, {exposed}")
        check(abs(found["unshared_s"] - its["iteration_s"]) < 1e-6 and
              found["predicted_s"] < 1.5 * its["iteration_s"], found)


finish()
