#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Different tensor degrees per datacenter: prints the table of
docs/theory/unequal.md. About three minutes of processor time.

    bench/degrees.py LONGHAUL [--data-degrees] [NUMBER ...]

Plans each job (NUMBER: only these rows, from 1) with `layout.tensor:
per-datacenter`, and compares the plan with its best alternative that has one
tensor degree for all stages. With --data-degrees, prints instead the best
estimates with equal and with different data degrees and microbatch sizes per
datacenter; some seconds.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile

LONGHAUL = sys.argv[1]
NUMBERS = [int(x) for x in sys.argv[2:] if x.isdigit()]
DATA_DEGREES = "--data-degrees" in sys.argv[2:]


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


# --- different data degrees ---------------------------------------------------

LLAMA3_70B = {
    "layers": 80,
    "hidden": 8192,
    "ffn": 28672,
    "heads": 64,
    "kv_heads": 8,
    "vocab": 128256,
}


def layer_seconds(model, sequence, where, tensor, size):
    """Returns the time of F, D and W of a layer for a microbatch of `size`
    sequences on the datacenter's GPUs, from the second of two chunks of a small
    pipeline, which has neither embedding nor head."""
    job = {
        "longhaul": "job/1",
        "model": {**model, "layers": 4},
        "cluster": {"datacenters": [{**where, "nodes": where["nodes"] + 1}]},
        "training": {
            "global_batch": 4 * size,
            "sequence": sequence,
            "precision": "bf16",
            "optimizer": "adamw",
            "recompute": "none",
        },
        "layout": {
            "tensor": tensor,
            "context": 1,
            "expert": 1,
            "pipeline": 2,
            "data": 1,
            "micro_batch": size,
            "chunks_per_device": 2,
            "layers": [1, 1, 1, 1],
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "job.yaml")
        out = os.path.join(folder, "plan.json")
        with open(path, "w", encoding="utf-8") as to:
            json.dump(job, to)
        subprocess.run(
            [LONGHAUL, "plan", path, "-o", out, "--no-optimal", "-q"],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        with open(out, encoding="utf-8") as plan_file:
            chunk = json.load(plan_file)["pipeline"]["chunks"][1]
    return (chunk["F"] + chunk["D"] + chunk["W"]) * 1e-9


def usable_bytes(where):
    """Returns the memory of the datacenter's GPU less 6 % reserve."""
    gib = where["gpu"]["memory_gib"] if isinstance(where["gpu"], dict) else 80
    return 0.94 * gib * 2**30


def memory_factor(model, sequence, where, own, count, resident):
    """Returns how much longer passes take with the recomputation that a
    datacenter's stages need: 1, 4/3, or infinity if they do not fit. `count`:
    layers per stage; `resident`: microbatches on its first stage. As in the
    search: 6 + 12 / DP bytes per parameter, 34 bytes per activation, 2 per
    input."""
    tensor, size, data = own
    hidden = model["hidden"]
    kv_share = model.get("kv_heads", model["heads"]) / model["heads"]
    parameters = hidden * hidden * (2 + 2 * kv_share)
    parameters += 3 * hidden * model["ffn"]
    state = count * parameters / tensor * (6 + 12 / data)
    inputs = 2 * count * size * sequence * hidden / tensor * resident
    free = usable_bytes(where) - state
    return float("inf") if free < inputs else 4 / 3 if free < 17 * inputs else 1


def estimate(model, batch, sequence, sequences, parts):
    """Returns the iteration time by the search's estimate
    (docs/theory/unequal.md) without messages, for microbatches of `sequences`
    sequences. parts: per datacenter in the pipeline's order, the datacenter,
    tensor degree, microbatch size of a replica, and time per layer."""
    stages = [
        where["nodes"] * where["gpus_per_node"] * size // (tensor * sequences)
        for where, tensor, size, _ in parts
    ]
    if not all(stages) or sum(stages) > model["layers"]:
        return float("inf")
    rate = sum(n / part[3] for n, part in zip(stages, parts))
    stage, slower = model["layers"] / rate, 1
    for i, (where, tensor, size, seconds) in enumerate(parts):
        own = tensor, size, sequences // size
        resident = min(sum(stages[i:]), batch // sequences)
        count = stage / seconds
        slower = max(
            slower,
            memory_factor(model, sequence, where, own, count, resident),
        )
    stage *= slower
    return stage * (batch / sequences) + stage * (sum(stages) - 1) / 2


def describe_estimate(seconds, sequences, parts):
    """Returns an estimate and its degrees, as in a cell of the table."""
    degrees = [
        "/".join(str(value) for value in values)
        for values in (
            [tensor for _, tensor, _, _ in parts],
            [sequences // size for _, _, size, _ in parts],
            [size for _, _, size, _ in parts],
        )
    ]
    return (
        f"{seconds:.3f} s: {', '.join(where['name'] for where, *_ in parts)}; "
        f"TP {degrees[0]}, DP {degrees[1]}, mb {degrees[2]}"
    )


def print_data_row(model, batch, sequence, sites, _):
    shape = LLAMA3_70B if isinstance(model, str) else model
    options = [
        [
            (s, tensor, size, layer_seconds(shape, sequence, s, tensor, size))
            for tensor in (1, 2, 4, 8)
            if s["gpus_per_node"] % tensor == 0
            for size in (1, 2, 4)
        ]
        for s in sites
    ]
    best = {True: (float("inf"),), False: (float("inf"),)}
    for chosen in itertools.product(*options):
        equal = len({size for _, _, size, _ in chosen}) == 1
        for sequences in range(1, batch + 1):
            if batch % sequences or any(sequences % c[2] for c in chosen):
                continue
            for parts in chosen, chosen[::-1]:
                found = estimate(shape, batch, sequence, sequences, parts)
                best[equal] = min(
                    best[equal],
                    (found, sequences, parts),
                    key=lambda one: one[0],
                )
    name = model if isinstance(model, str) else f"{model['layers']} layers"
    slower = 100 * (best[False][0] / best[True][0] - 1)
    cells = [describe_estimate(*best[equal]) for equal in (True, False)]
    print(
        f"| {name}, {batch} × {sequence} | {' | '.join(cells)} "
        f"| {slower:+.1f} % |",
        flush=True,
    )


HEADS = ("job", "one tensor degree", "degrees per datacenter", "time saved")
if DATA_DEGREES:
    HEADS = (
        "job",
        "equal data degrees",
        "different data degrees",
        "difference",
    )
print("| " + " | ".join(HEADS) + " |\n" + "| --- " * len(HEADS) + "|")
for number, row in enumerate(JOBS, 1):
    if not NUMBERS or number in NUMBERS:
        (print_data_row if DATA_DEGREES else print_row)(*row)
