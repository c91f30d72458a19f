# SPDX-License-Identifier: Apache-2.0
"""Synthetic traces of a pipeline whose program names no passes, as PyTorch's
Schedule1F1B: operators, autograd functions and messages, with known contents.

A forward pass takes FORWARD_MS, a backward pass BACKWARD_MS, a message MESSAGE_MS.
A pass begins when its receive has completed. Each pass is followed by its send.
"""
import json

from harness import WORK
from profiled import BASE_NS, event

FORWARD_MS, BACKWARD_MS, MESSAGE_MS, STEP_MS = 10, 20, 1, 1000
POST_MS = 0.125  # to post a message


def one_f_one_b(stage, stages, microbatches):
    """Returns the pass order of a stage: ("F" or "B", microbatch)."""
    ahead = min(microbatches, stages - stage)
    order = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        order.append(("B", i))
        if ahead + i < microbatches:
            order.append(("F", ahead + i))
    return order


def gpipe(stage, stages, microbatches):
    del stage, stages
    return [(kind, i) for kind in "FB" for i in range(microbatches)]


def last_first(stage, stages, microbatches):
    """Returns GPipe's order with the backward passes in reverse."""
    del stage, stages
    return [(kind, i) for kind, numbers in
            (("F", range(microbatches)), ("B", reversed(range(microbatches))))
            for i in numbers]


def start_times(orders, slow):
    """Returns {(stage, kind, microbatch): (start, end, receive posted, arrived)}
    in ms."""
    stages, done = len(orders), {}
    free, at = [0.0] * stages, [0] * stages
    while any(at[s] < len(orders[s]) for s in range(stages)):
        for s in range(stages):
            if at[s] == len(orders[s]):
                continue
            kind, i = orders[s][at[s]]
            peer = s - 1 if kind == "F" else s + 1
            start, arrived = free[s], None
            if 0 <= peer < stages:
                if (peer, kind, i) not in done:
                    continue
                arrived = max(done[peer, kind, i][1] + POST_MS,
                              free[s]) + MESSAGE_MS
                start = arrived
            end = start + slow.get(s, 1) * (
                FORWARD_MS if kind == "F" else BACKWARD_MS)
            done[s, kind, i] = (start, end, free[s], arrived)
            follows = s + 1 if kind == "F" else s - 1
            free[s] = end + (POST_MS if 0 <= follows < stages else 0)
            at[s] += 1
    return done


def operators(stage, stages, order, times, at, number):
    """Returns one step's events of a stage; `number` is the first sequence
    number."""
    out, first = [], {}

    def add(name, start, end, cat="cpu_op", tid=1, **args):
        out.append({**event(name, at + start, at + end, cat, **args),
                    "tid": tid})
    add("aten::randn", -0.5, 0)
    for kind, i in order:
        start, end, posted, arrived = times[stage, kind, i]
        if arrived is not None:
            add("aten::empty_strided", posted, posted)
            add("c10d::recv_", posted, posted + POST_MS,
                **{"Sequence number": number, "Fwd thread id": 0})
            add("gloo:recv", posted + POST_MS / 2, arrived, "user_annotation")
        if kind == "F":
            # The module's own code runs before its operators.
            first[i], half = number, (start + end) / 2
            for k, name in enumerate(("aten::linear", "aten::relu")):
                add(name, half + k, half + k + 0.75,
                    **{"Sequence number": number, "Fwd thread id": 0})
                add("aten::t", half + k, half + k + 0.25,
                    **{"Sequence number": number, "Fwd thread id": 0})
                add("aten::addmm", half + k + 0.25, half + k + 0.5,
                    **{"Sequence number": number + 1, "Fwd thread id": 0})
                number += 2
            # This event has the number of the next pass's first node.
            add("aten::detach", end - 0.1, end,
                **{"Sequence number": number, "Fwd thread id": 0})
        else:
            part = (end - start) / 4
            for k in range(4):
                begin = start + k * part
                add("autograd::engine::evaluate_function: AddmmBackward0",
                    begin, begin + part * 0.75, tid=2,
                    **{"Sequence number": first[i] + 3 - k,
                       "Fwd thread id": 1})
                # Recomputation inside the pass: new numbers, but no forward
                # pass.
                add("aten::addmm", begin, begin + part / 4, tid=2,
                    **{"Sequence number": number + 40, "Fwd thread id": 0})
                add("autograd::engine::evaluate_function: "
                    "torch::autograd::AccumulateGrad",
                    begin + part * 0.75, begin + part, tid=2)
        if 0 <= (stage + 1 if kind == "F" else stage - 1) < stages:
            add("c10d::send", end, end + POST_MS,
                **{"Sequence number": number, "Fwd thread id": 0})
            add("gloo:send", end + POST_MS / 2, end + POST_MS,
                "user_annotation")
    last = max(times[stage, kind, i][1] for kind, i in order) + 1
    add("aten::div_", last, last + 0.1, **{"Sequence number": number})
    add("Optimizer.step#SGD.step", last + 1, last + 2, "user_annotation")
    return out, number


def gpu_operators(stage, stages, order, times, at, number, coalesced):
    """Like operators(), but the CPU launches kernels ahead of the GPU and never
    waits. Kernels of messages are launched in their operators, or coalesced
    after the last one was posted."""
    out, first, now, waiting = [], {}, [at], []

    def add(name, took, cat="cpu_op", tid=1, **args):
        out.append({**event(name, now[0], now[0] + took, cat, **args),
                    "tid": tid})

    def launch(name, start, end):
        correlation = int(1000 * at) + len(out)
        out.append(event("cudaLaunchKernel", now[0], now[0] + 0.01,
                         "cuda_runtime", correlation=correlation))
        out.append(event(name, at + start, at + end, "kernel",
                         correlation=correlation))

    def flush():
        for start, end in waiting:
            launch("ncclDevKernel_SendRecv", start, end)
            now[0] += 0.02
        waiting.clear()

    def post(name, start, end):
        add(name, 0.05, **{"Sequence number": number})
        waiting.append((start, end))
        if not coalesced:
            now[0] += 0.01
            flush()
        now[0] += 0.06
    for kind, i in order:
        start, end, posted, arrived = times[stage, kind, i]
        if arrived is not None:
            post("c10d::recv_", posted, arrived)
        flush()
        for k in range(2):
            if kind == "F":
                first[i] = number if k == 0 else first[i]
                add("aten::addmm", 0.1, **{"Sequence number": number})
                number += 1
            else:
                add("autograd::engine::evaluate_function: AddmmBackward0", 0.1,
                    tid=2, **{"Sequence number": first[i] + 1 - k})
            launch("gemm", *((start, start + 2) if k == 0 else (end - 2, end)))
            now[0] += 0.12
        if 0 <= (stage + 1 if kind == "F" else stage - 1) < stages:
            post("c10d::send", end, end + POST_MS + MESSAGE_MS)
    flush()
    return out, number


def operator_traces(stages, microbatches, schedule, replicas=1, slow=None,
                    steps=2, marked=True, edit=None, make=operators):
    """Writes the traces; returns their names. slow: {(replica, stage): factor}."""
    names = []
    for replica in range(replicas):
        orders = [schedule(s, stages, microbatches) for s in range(stages)]
        times = start_times(orders, {
            s: f for (r, s), f in (slow or {}).items() if r == replica})
        for stage in range(stages):
            rank, number, events = replica * stages + stage, 50, []
            for step in range(steps):
                at = STEP_MS * (1 + step)
                if marked:
                    events.append(event(f"ProfilerStep#{step + 2}", at - 1,
                                        at + STEP_MS - 2))
                more, number = make(stage, stages, orders[stage], times, at,
                                    number)
                events += more
            if edit:
                events = edit(rank, events)
            world = list(range(replicas * stages))
            groups = [world, [replica * stages + s for s in range(stages)],
                      world[stage::stages]]
            name = f"ops{rank}.json"
            (WORK / name).write_text(json.dumps({
                "distributedInfo": {
                    "backend": "gloo", "rank": rank, "world_size": len(world),
                    "pg_config": [{"pg_name": str(i), "ranks": ranks}
                                  for i, ranks in enumerate(groups)]},
                "baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
            names.append(name)
    return names
