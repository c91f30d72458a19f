#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul diagnose on traces of any job: the ranks' activity, compared."""
import json

from harness import WORK, case, check, finish, json_case, read, test
from operator_traces import one_f_one_b, operator_traces
from profiled import BASE_NS, event

STEPS, STEP_MS = 2, 100


def gpu_step(rank, at, slow):
    """Computes 40 ms, or with `slow` more; communicates from 30 to 60; copies
    5; then is idle until 100."""
    compute = 40 * slow
    return [event("gemm", at, at + compute, "kernel", correlation=1),
            event("gemm", at + 1, at + 20, "kernel"),  # on another stream
            event("ncclDevKernel_AllReduce_Sum", at + 30, at + 60, "kernel"),
            event("Memcpy HtoD", at + 70, at + 75, "gpu_memcpy"),
            event("aten::mm", at, at + 90, "cpu_op")]


def cpu_step(rank, at, slow):
    return [event("aten::mm", at, at + 40 * slow, "cpu_op"),
            event("aten::sum", at + 10, at + 20, "cpu_op"),  # inside
            event("c10d::allreduce_", at + 50, at + 51, "cpu_op"),
            event("gloo:all_reduce", at + 50.5, at + 60)]


def traces(ranks, make, slow=None, marked=True, told=True):
    names = []
    for rank in range(ranks):
        events = []
        for step in range(STEPS):
            at = STEP_MS * (step + 1)
            if marked:
                events.append(event(f"ProfilerStep#{step}", at, at + STEP_MS))
            events += make(rank, at, (slow or {}).get(rank, 1))
        trace = {"baseTimeNanoseconds": BASE_NS, "traceEvents": events}
        if told:
            trace["distributedInfo"] = {"rank": rank, "world_size": ranks}
        name = f"rank{rank}.json"
        (WORK / name).write_text(json.dumps(trace))
        names.append(name)
    return names


def activity(names):
    result = json_case("activity", ["diagnose", *names], 0)
    check(result["n_steps"] == 0 and result["steps"] == [] and
          result["helps"] == [], result)
    check("has no passes" in result["unreplayed"], result["unreplayed"])
    return result["ranks"]


def check_times(one, **ms):
    for name, value in ms.items():
        check(abs(one[f"{name}_s"] * 1e3 - value) < 1e-3,
              f"{name}: {one[f'{name}_s']}")


@test
def kernels_give_a_gpus_activity():
    for one in activity(traces(2, gpu_step)):
        check(one["on_gpu"] and one["n_steps"] == STEPS, one)
        check_times(one, span=100, compute=40, communication=30, overlap=10,
                    copy=5, idle=35)
        check(one["ratio"] == 1 and not one["slow"], one)


@test
def operators_give_a_cpus_activity():
    one, = activity(traces(1, cpu_step))
    check(not one["on_gpu"] and one["ratio"] == 0, one)
    check_times(one, span=100, compute=40, communication=10, overlap=0, copy=0,
                idle=50)


@test
def without_marks_the_times_are_of_the_whole_trace():
    one, _ = activity(traces(2, gpu_step, marked=False))
    check(one["n_steps"] == 0, one)
    check_times(one, span=175, compute=80, communication=60, copy=10,
                overlap=20, idle=45)


@test
def the_slow_rank_is_named():
    names = traces(5, gpu_step, {3: 1.5})
    ranks = activity(names)
    check([one["slow"] for one in ranks] == [False] * 3 + [True, False], ranks)
    check(abs(ranks[3]["ratio"] - 1.5) < 1e-9, ranks[3])
    case("text", ["diagnose", *names],
         out=r"slow          rank 3 computes for 60 ms per step, 1.50 times "
             r"as long as the")
    names = traces(2, gpu_step, {0: 1.09})
    case("none", ["diagnose", *names], out="slow          no rank computes 1.1")


@test
def ranks_without_numbers_have_their_files():
    ranks = activity_reason(traces(3, gpu_step, {1: 2}, told=False),
                            "does not contain its rank")
    check([(one["rank"], one["file"], one["slow"]) for one in ranks] ==
          [(None, f"rank{i}.json", i == 1) for i in range(3)], ranks)


def activity_reason(names, reason):
    result = json_case("activity", ["diagnose", *names], 0)
    check(reason in result["unreplayed"], result["unreplayed"])
    return result["ranks"]


@test
def missing_ranks_leave_the_activity_of_the_others():
    names = operator_traces(4, 4, one_f_one_b)
    ranks = activity_reason(names[:2], "without the traces of rank 2, rank 3")
    check([one["rank"] for one in ranks] == [0, 1], ranks)


@test
def replayed_steps_have_activity_too():
    result = json_case("replayed", ["diagnose",
                                    *operator_traces(2, 4, one_f_one_b)], 0)
    check(result["unreplayed"] is None and len(result["ranks"]) == 2, result)


@test
def a_file_twice_counts_once():
    names = traces(2, gpu_step)
    result = json_case("twice", ["diagnose", *names, names[0]], 0)
    check_times(result["ranks"][0], span=100, compute=40)
    check([r["kind"] for r in result["remarks"]] == ["doubled-rows"], result)
    names = traces(2, gpu_step, {1: 1.2})
    text = (WORK / names[1]).read_text().replace('"rank": 1', '"rank": 0')
    (WORK / names[1]).write_text(text)
    case("another", ["diagnose", *names], 1,
         err="rank1.json: is a trace of rank 0, as rank0.json is, of the same "
             "time")


@test
def the_page_has_the_activity_and_measurements_are_refused():
    names = traces(2, gpu_step)
    case("page", ["diagnose", *names, "--html", "p.html"], out="rank")
    check("Time per step and its shares" in read("p.html"), "page")
    case("pipeline", ["diagnose", *names, "--pipeline-out", "p.yaml"], 1,
         err="--pipeline-out requires replayed steps: rank0.json: has no passes")


finish()
