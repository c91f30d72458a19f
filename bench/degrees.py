#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Different tensor degrees per datacenter: prints the table of
docs/theory/unequal.md. About ten minutes of processor time.

    bench/degrees.py LONGHAUL

For three jobs on two datacenters with different GPUs:
- the plan of `longhaul plan`, whose degrees are common, with the default limit
  on the layers of chunks and with --max-chunk-ratio 3;
- a bound for all degrees: the GPUs compute all the time, each datacenter with
  its best degrees and unlimited memory;
- pipelines over both datacenters with one chunk per device and any two tensor
  degrees: times and memory of a layer are those of plans for one datacenter,
  and `longhaul compare` simulates the best estimates with every method. ZeRO
  stage 1, layers split evenly in each datacenter, no context parallelism. A
  change of the tensor degree between two stages costs nothing.
"""

import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile

LONGHAUL = sys.argv[1]
FEW_LAYERS = 4  # stages of the plans that give the times of a layer
CANDIDATES = 3  # estimates that are simulated, for each pair of degrees
PAIRS = 2  # pairs of equal degrees that are simulated, and of different ones

TIME = ("--time", "20")
THIRD = ("--max-chunk-ratio", "3")
MODELS = {"llama3-70b": (80, 8192), "llama3-8b": (32, 4096)}  # layers, hidden
GPUS = {  # presets, as maps: tflops, fp8_tflops, memory_gib, memory_gbps
    "h100-sxm": (989.5, 1979, 80, 3350),
    "a100-40g": (312, 0, 40, 1555),
    "l40s": (362, 733, 48, 864),
}


def site(gpu, nodes, gpus_per_node, node_gbps, fabric_gbps):
    return {
        "name": gpu,
        "gpu": gpu,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "node_link": {"gbps": node_gbps, "latency_us": 5},
        "fabric": {"gbps": fabric_gbps, "latency_us": 8},
    }


H100 = site("h100-sxm", 8, 8, 3600, 400)
JOBS = [  # model, global batch, sequence, datacenters, Gb/s between them
    ("llama3-70b", 256, 8192, [H100, site("a100-40g", 8, 8, 2400, 200)], 400),
    ("llama3-70b", 256, 8192, [H100, site("l40s", 16, 4, 200, 50)], 400),
    (
        "llama3-8b",
        256,
        8192,
        [site("h100-sxm", 2, 8, 3600, 400), site("l40s", 8, 4, 200, 50)],
        200,
    ),
]


def run(command, document, *options):
    """Runs a command on a document, and returns its JSON; None: infeasible."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "input.yaml")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(document, out)
        said = subprocess.run(
            [LONGHAUL, command, path, "--json", *options],
            capture_output=True,
            text=True,
            check=False,
        )
    return json.loads(said.stdout) if said.returncode == 0 else None


def job_of(job, sites, **more):
    model, batch, sequence, _, gbps = job
    cluster = {"datacenters": sites}
    if len(sites) > 1:
        cluster["links"] = [
            {
                "between": [s["name"] for s in sites],
                "latency_ms": 2,
                "gbps": gbps,
            }
        ]
    return {
        "longhaul": "job/1",
        "model": model,
        "cluster": cluster,
        "training": {
            "global_batch": batch,
            "sequence": sequence,
            "precision": "bf16",
            "optimizer": "adamw",
            **more.pop("training", {}),
        },
        **more,
    }


def with_memory(where):
    """Returns a datacenter with the same GPUs and unlimited memory."""
    tflops, fp8, _, gbps = GPUS[where["gpu"]]
    gpu = {"tflops": tflops, "memory_gib": 1024, "memory_gbps": gbps}
    if fp8:
        gpu["fp8_tflops"] = fp8
    return {**where, "gpu": gpu}


def bound_rate(job, where):
    """Returns the sequences per second that a datacenter computes at most."""
    large = (job[0], 16 * job[1], *job[2:])
    found = run("plan", job_of(large, [with_memory(where)]), "--time", "5")
    account = found["account"]
    return large[1] / (account["compute_s"] + account["inside_s"])


@functools.cache
def layer_costs(number, at, tensor, data, micro_batch, recompute, zero):
    """Returns the costs of a layer, and the additional ones of the first and
    the last stage, on datacenter `at` of job `number`."""
    job = JOBS[number]
    where = with_memory(job[3][at])
    need = tensor * data * FEW_LAYERS
    where["nodes"] = -(-need // where["gpus_per_node"])
    batch = (job[0], data * micro_batch * 8, *job[2:])
    plan = run(
        "plan",
        job_of(
            batch,
            [where],
            training={"recompute": recompute, "zero": zero},
            layout={
                "tensor": tensor,
                "context": 1,
                "pipeline": FEW_LAYERS,
                "data": data,
                "micro_batch": micro_batch,
                "chunks_per_device": 1,
                "schedule": "1f1b",
            },
        ),
        "--search",
        "even",
        "--no-optimal",
    )
    if not plan:
        return None
    chunks = plan["pipeline"]["chunks"]
    shared = plan["pipeline"].get("data_parallel", [])
    shared = {
        d["chunk"]: d
        for d in (shared if isinstance(shared, list) else shared["chunks"])
    }
    flat = [
        {
            "F": c["F"],
            "D": c["D"],
            "W": c["W"],
            **{"m" + k: v for k, v in c["memory"].items()},
            **{
                k: shared.get(i, {}).get(k, 0)
                for k in ("all_gather", "reduce_scatter")
            },
        }
        for i, c in enumerate(chunks)
    ]
    layers = MODELS[job[0]][0]
    middle = flat[1]
    return (
        {k: v * FEW_LAYERS / layers for k, v in middle.items()},
        {k: flat[0][k] - v for k, v in middle.items()},
        {k: flat[-1][k] - v for k, v in middle.items()},
    )


def stages_of(layout, layers):
    """Returns the costs of every stage, with layers[i] layers on stage i."""
    stages = []
    for i, n in enumerate(layers):
        layer, first, last = layout["costs"][i >= layout["pipelines"][0]]
        stages.append(
            {
                k: n * v
                + (first[k] if i == 0 else 0)
                + (last[k] if i == len(layers) - 1 else 0)
                for k, v in layer.items()
            }
        )
    return stages


def split(total, parts):
    return [total // parts + (i < total % parts) for i in range(parts)]


def estimate(layout, first, total, limits):
    """Estimates the time with `first` layers in the first datacenter; None: too
    much memory under 1F1B."""
    p = layout["pipelines"]
    layers = split(first, p[0]) + split(total - first, p[1])
    if min(layers) == 0:
        return None
    stages = stages_of(layout, layers)
    for i, s in enumerate(stages):
        resident = min(layout["n"], len(stages) - i)
        if s["mstatic"] + resident * s["mF"] > limits[i >= p[0]]:
            return None
    times = [s["F"] + s["D"] + s["W"] for s in stages]
    longest = max(times)
    return (
        (layout["n"] * longest + (sum(times) - longest) / 2) / 1e9
        + max(s["all_gather"] + s["reduce_scatter"] for s in stages) / 1e9,
        layers,
    )


def list_layouts(number):
    """Yields the layouts of pipelines over both datacenters."""
    job = JOBS[number]
    batch, sites = job[1], job[3]
    gpus = [s["nodes"] * s["gpus_per_node"] for s in sites]
    for order in ((0, 1), (1, 0)):
        for tensor in itertools.product(
            *(
                [t for t in (1, 2, 4, 8) if t <= sites[at]["gpus_per_node"]]
                for at in order
            )
        ):
            for data in (1, 2, 4, 8, 16, 32, 64):
                p = [
                    gpus[at] // (t * data)
                    for at, t in zip(order, tensor, strict=True)
                ]
                if min(p) == 0 or sum(p) > MODELS[job[0]][0]:
                    continue
                for mb, recompute, zero in itertools.product(
                    (1, 2), ("none", "selective", "full"), (1,)
                ):
                    if batch % (data * mb) == 0:
                        yield {
                            "order": order,
                            "tensor": tensor,
                            "data": data,
                            "pipelines": p,
                            "n": batch // (data * mb),
                            "micro_batch": mb,
                            "recompute": recompute,
                            "zero": zero,
                        }


def search(number):
    """Returns the best estimates of each pair of tensor degrees, best pair
    first."""
    job = JOBS[number]
    total = MODELS[job[0]][0]
    best = {}
    for layout in list_layouts(number):
        layout["costs"] = [
            layer_costs(
                number,
                at,
                t,
                layout["data"],
                layout["micro_batch"],
                layout["recompute"],
                layout["zero"],
            )
            for at, t in zip(layout["order"], layout["tensor"], strict=True)
        ]
        if None in layout["costs"]:
            continue
        limits = [
            GPUS[job[3][at]["gpu"]][2] * 0.94 * 2**30 for at in layout["order"]
        ]
        found = [
            x
            for x in (
                estimate(layout, first, total, limits)
                for first in range(1, total)
            )
            if x
        ]
        if found:
            seconds, layers = min(found)
            pair = tuple(
                t
                for _, t in sorted(
                    zip(layout["order"], layout["tensor"], strict=True)
                )
            )
            best.setdefault(pair, []).append((seconds, layers, layout, limits))
    for list_ in best.values():
        list_.sort(key=lambda x: x[0])
    return sorted(best.items(), key=lambda x: x[1][0][0])


def simulate(number, layers, layout, limits):
    """Returns the shortest makespan of all methods, in seconds."""
    job = JOBS[number]
    p, n = layout["pipelines"], sum(layout["pipelines"])
    stages = stages_of(layout, layers)
    size = layout["micro_batch"] * job[2] * MODELS[job[0]][1] * 2 * 8
    links = []
    for i in range(n - 1):
        between = i + 1 == p[0]
        at = layout["order"][i >= p[0]]
        gbps = (
            job[4] / layout["data"] if between else job[3][at]["fabric"]["gbps"]
        )
        for a, b in ((i, i + 1), (i + 1, i)):
            links.append(
                {
                    "from": a,
                    "to": b,
                    "transfer": round(size / gbps),
                    "latency": 2000000 if between else 8000,
                }
            )
    pipeline = {
        "longhaul": "pipeline/1",
        "time_unit": "ns",
        "microbatches": layout["n"],
        "devices": n,
        "backward": "split",
        "links": links,
        "memory_limit": [int(limits[i >= p[0]]) for i in range(n)],
        "chunks": [
            {
                "device": i,
                "F": round(s["F"]),
                "D": round(s["D"]),
                "W": round(s["W"]),
                "memory": {
                    "F": round(s["mF"]),
                    "D": round(s["mD"]),
                    "W": -round(s["mF"]) - round(s["mD"]),
                    "static": round(s["mstatic"]),
                },
            }
            for i, s in enumerate(stages)
        ],
        "data_parallel": [
            {
                "chunk": i,
                "all_gather": round(s["all_gather"]),
                "reduce_scatter": round(s["reduce_scatter"]),
            }
            for i, s in enumerate(stages)
        ],
    }
    found = run("compare", pipeline)
    times = [m["makespan_s"] for m in found["rows"] if m.get("makespan_s")]
    return min(times) if times else None


def describe(number, layout):
    """Returns the degrees per datacenter, in their order in the pipeline."""
    parts = [
        f"TP {t} PP {p} on {JOBS[number][3][at]['name']}"
        for at, t, p in zip(
            layout["order"], layout["tensor"], layout["pipelines"], strict=True
        )
    ]
    return ", ".join(parts) + f"; DP {layout['data']}"


def find_fastest(number):
    """Returns the fastest simulated layout with equal degrees, and with
    different ones: seconds, description."""
    fastest = {}
    tried = {True: 0, False: 0}
    for pair, found in search(number):
        same = pair[0] == pair[1]
        if tried[same] == PAIRS:
            continue
        tried[same] += 1
        for _, layers, layout, limits in found[:CANDIDATES]:
            seconds = simulate(number, layers, layout, limits)
            if seconds and seconds < fastest.get(same, (float("inf"),))[0]:
                fastest[same] = (seconds, describe(number, layout))
    return fastest[True], fastest[False]


def print_row(number):
    job = JOBS[number]
    both = job_of(job, job[3])
    plan = run("plan", both, *TIME)["iteration_s"]
    third = run("plan", both, *TIME, *THIRD)["iteration_s"]
    bound = job[1] / sum(bound_rate(job, s) for s in job[3])
    same, other = find_fastest(number)
    names = ", ".join(
        f"{s['nodes'] * s['gpus_per_node']} {s['name']}" for s in job[3]
    )
    print(
        f"| {job[0]}, {names} | {third:.2f} s | {plan:.2f} s | {bound:.2f} s "
        f"| {same[0]:.2f} s: {same[1]} | {other[0]:.2f} s: {other[1]} "
        f"| {100 * (1 - other[0] / same[0]):.1f} % |",
        flush=True,
    )


HEADS = (
    "job",
    "plan, chunk ratio 3",
    "plan",
    "bound, all degrees",
    "equal degrees",
    "different degrees",
    "time saved",
)
print("| " + " | ".join(HEADS) + " |\n" + "| --- " * len(HEADS) + "|")
for i in range(len(JOBS)):
    print_row(i)
