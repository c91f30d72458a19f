# SPDX-License-Identifier: Apache-2.0
"""Synthetic traces in the format of PyTorch's profiler, with known contents.

A step: stage 0 computes forward for 10 ms, its message takes 2 ms, stage 1
computes 10 ms forward and 20 backward, its message takes 3 ms, stage 0 computes
20 ms backward. Gradients are summed over replicas in 5 ms, then the optimizer takes
1. Ranks are numbered replica by replica.
"""
import gzip
import json

from harness import WORK

STEP_MS, PASSES_S, ALL_S = 100, 0.065, 0.071
BASE_NS = 1790857026000000000


def event(name, start_ms, end_ms, cat="user_annotation", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1,
            "ts": 1e6 + 1000 * start_ms, "dur": 1000 * (end_ms - start_ms),
            "args": args}


def cpu_events(stage, at, replicas):
    """Returns traces like gloo's: a receive lasts until its pass has waited for
    it."""
    first = (("PP:0F0", 0, 10), ("PP:0SEND_F0", 10, 10.1),
             ("PP:0RECV_B0", 10.2, 10.3), ("gloo:recv", 10.25, 45),
             ("PP:0B0", 10.4, 65))
    last = (("PP:1RECV_F0", 0, 0.1), ("gloo:recv", 0.05, 12),
            ("PP:1F0", 0.2, 22), ("PP:1B0", 22, 42),
            ("PP:1SEND_B0", 42, 42.1))
    sums = (("gloo:all_reduce", 65, 67), ("gloo:all_reduce", 67, 70),
            ("Optimizer.step#SGD.step", 70, 71))
    return [event(name, at + start, at + end) for name, start, end in
            (last if stage else first) + (sums if replicas > 1 else ())]


def gpu_events(stage, at, replicas):
    """Returns traces in which the CPU finishes in 2 ms; kernels have their
    durations."""
    first = (("PP:0F0", "gemm", 0, 10), ("PP:0SEND_F0", "ncclSend", 10, 12),
             ("PP:0RECV_B0", "ncclRecv", 10, 45), ("PP:0B0", "gemm", 45, 65))
    last = (("PP:1RECV_F0", "ncclRecv", 0, 12), ("PP:1F0", "gemm", 12, 22),
            ("PP:1B0", "gemm", 22, 42), ("PP:1SEND_B0", "ncclSend", 42, 45))
    sums = (("nccl:all_reduce", "ncclAllReduce", 65, 70),
            ("Optimizer.step#SGD.step", "adam", 70, 71))
    out = []
    for i, (name, kernel, start, end) in enumerate(
            (last if stage else first) + (sums if replicas > 1 else ())):
        cpu, number = at + 0.2 * i, int(1000 * at) + i + 1
        out += [event(name, cpu, cpu + 0.15),
                event("cudaLaunchKernel", cpu + 0.05, cpu + 0.06,
                      "cuda_runtime", correlation=number),
                # The message has two parts, with an unknown interval between
                # them.
                event(kernel, at + start, at + start + 0.5, "kernel",
                      correlation=number),
                event(kernel, at + end - 0.5, at + end, "kernel",
                      correlation=number)]
    return out


def profiled(replicas=1, steps=3, gpu=False, told=True, edit=None, ahead=None,
             prefix="rank", ending="json"):
    """Writes the traces and returns their names. edit(rank, events) changes
    them; ahead is the lead of each rank's clock in ms."""
    names = []
    for rank in range(2 * replicas):
        stage, off = rank % 2, (ahead or {}).get(rank, 0)
        events = [{"ph": "M", "name": "process_name", "pid": 1, "ts": 0,
                   "args": {"name": "python"}}]
        for step in range(steps):
            at = STEP_MS * step + off
            events.append(event(f"ProfilerStep#{step + 5}", at - 1,
                                at + STEP_MS - 1))
            events += (gpu_events if gpu else cpu_events)(stage, at, replicas)
            events.append(event("aten::mm", at, at + 1, "cpu_op"))
        if edit:
            events = edit(rank, events)
        trace = {"schemaVersion": 1, "deviceProperties": []}
        if told:
            groups = [list(range(2 * replicas)),
                      [rank - stage, rank - stage + 1],
                      list(range(stage, 2 * replicas, 2))]
            trace["distributedInfo"] = {
                "backend": "gloo", "rank": rank, "world_size": 2 * replicas,
                "pg_config": [{"pg_name": str(i), "ranks": ranks}
                              for i, ranks in enumerate(groups)]}
        trace |= {"baseTimeNanoseconds": BASE_NS, "traceEvents": events,
                  "traceName": "x"}
        text = json.dumps(trace, indent=1).encode()
        name = f"{prefix}{rank}.{ending}"
        (WORK / name).write_bytes(
            gzip.compress(text) if ending.endswith("gz") else text)
        names.append(name)
    return names
