#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Different tensor degrees per datacenter: prints the table of
docs/theory/unequal.md. About three minutes of processor time.

    bench/degrees.py LONGHAUL [NUMBER ...]

Plans each job (NUMBER: only these rows, from 1) with `layout.tensor:
per-datacenter`, and compares the plan with its best alternative that has one
tensor degree for all stages.
"""

import json
import os
import subprocess
import sys
import tempfile

LONGHAUL = sys.argv[1]


def site(name, gpu, nodes, gpus_per_node, node_gbps, fabric_gbps):
    inside = {"gbps": node_gbps, "latency_us": 3}
    return {
        "name": name,
        "gpu": gpu,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        **({"node_link": inside} if node_gbps else {}),
        "fabric": {"gbps": fabric_gbps, "latency_us": 8 if node_gbps else 20},
    }


def nvlink(nodes):
    return site("h100", "h100-sxm", nodes, 8, 3600, 400)


H100_NVL = {
    "name": "h100-nvl",
    "tflops": 835,
    "memory_gib": 94,
    "memory_gbps": 3900,
}
MODEL_40B = {
    "layers": 48,
    "hidden": 7168,
    "ffn": 28672,
    "heads": 56,
    "vocab": 50272,
}
MODEL_88B = {
    "layers": 64,
    "hidden": 9216,
    "ffn": 36864,
    "heads": 72,
    "vocab": 50272,
}
JOBS = [  # model, global batch, sequence, datacenters, Gb/s between them
    (
        "llama3-70b",
        16,
        2048,
        [nvlink(2), site("single h100", "h100-sxm", 16, 1, 0, 50)],
        400,
    ),
    (
        MODEL_88B,
        16,
        2048,
        [nvlink(2), site("single h100-nvl", H100_NVL, 16, 1, 0, 40)],
        400,
    ),
    (
        MODEL_40B,
        8,
        2048,
        [
            site("a100", "a100-80g", 1, 8, 2400, 200),
            site("single a100", "a100-80g", 8, 1, 0, 20),
        ],
        200,
    ),
]


def job_of(model, batch, sequence, sites, gbps):
    between = [s["name"] for s in sites]
    return {
        "longhaul": "job/1",
        "model": model,
        "cluster": {
            "datacenters": sites,
            "links": [{"between": between, "latency_ms": 2, "gbps": gbps}],
        },
        "training": {
            "global_batch": batch,
            "sequence": sequence,
            "precision": "bf16",
            "optimizer": "adamw",
        },
        "layout": {"tensor": "per-datacenter"},
    }


def plan(job):
    """Returns a job's plan."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "job.yaml")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(job, out)
        said = subprocess.run(
            [LONGHAUL, "plan", path, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(said.stdout)


def degrees_of(choice):
    """Returns the tensor degrees along the pipeline."""
    layout = choice["layout"]
    parts = layout["sites"][0]["pipeline"]
    return [part.get("tensor", layout["tensor"]) for part in parts]


def describe(choice):
    """Returns a plan's time and degrees, as in a cell of the table."""
    layout = choice["layout"]
    parts = layout["sites"][0]["pipeline"]
    tensor = "/".join(str(degree) for degree in degrees_of(choice))
    return (
        f"{choice['iteration_s']:.3f} s: "
        f"{', '.join(part['datacenter'] for part in parts)}; "
        f"TP {tensor}, CP {layout['context']}, PP {layout['pipeline']}, "
        f"DP {layout['data']}"
    )


def print_row(model, batch, sequence, sites, gbps):
    found = plan(job_of(model, batch, sequence, sites, gbps))
    one = next(
        choice
        for choice in found["alternatives"]
        if len(set(degrees_of(choice))) == 1
    )
    name = model if isinstance(model, str) else f"{model['layers']} layers"
    names = ", ".join(
        f"{s['nodes'] * s['gpus_per_node']} {s['name']}" for s in sites
    )
    saved = 100 * (1 - found["iteration_s"] / one["iteration_s"])
    print(
        f"| {name}, {batch} × {sequence}; {names} | {describe(one)} "
        f"| {describe(found)} | {saved:.1f} % |",
        flush=True,
    )


HEADS = ("job", "one tensor degree", "degrees per datacenter", "time saved")
print("| " + " | ".join(HEADS) + " |\n" + "| --- " * len(HEADS) + "|")
for number, row in enumerate(JOBS, 1):
    if len(sys.argv) == 2 or str(number) in sys.argv[2:]:
        print_row(*row)
