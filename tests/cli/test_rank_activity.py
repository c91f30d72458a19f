#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul diagnose on traces of any job: the ranks' activity, compared."""
import gzip
import json

from harness import (WORK, case, check, finish, json_case, read, test,
                     write)
from operator_traces import one_f_one_b, operator_traces
from profiled import BASE_NS, event

STEPS, STEP_MS = 2, 100


def gpu_step(rank, at, slow):
    """Returns a step that computes 40 ms, or longer with `slow`; communicates
    from 30 to 60; copies for 5; then is idle until 100."""
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
def categories_of_older_traces_are_read():
    """PyTorch up to 1.11 writes other names of categories."""
    names = traces(2, gpu_step, slow={1: 1.5})
    new = activity(names)
    older = {"user_annotation": "Operator", "cpu_op": "Operator",
             "kernel": "Kernel", "gpu_memcpy": "Memcpy"}
    for name in names:
        trace = json.loads(read(name))
        for e in trace["traceEvents"]:
            e["cat"] = older.get(e.get("cat"), e.get("cat"))
        write(name, json.dumps(trace))
    old = activity(names)
    check(old == new and new[0]["copy_s"] > 0, f"{old}{new}")


@test
def kernels_give_a_gpus_activity():
    for one in activity(traces(2, gpu_step)):
        check(one["source"] == "gpu" and one["n_steps"] == STEPS, one)
        check_times(one, span=100, compute=40, communication=30, overlap=10,
                    copy=5, idle=35)
        check(one["ratio"] == 1 and not one["slow"], one)


@test
def operators_give_a_cpus_activity():
    one, = activity(traces(1, cpu_step))
    check(one["source"] == "cpu" and one["ratio"] == 0, one)
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
def ranks_with_other_marks_or_sources_are_not_compared():
    for other in ({"make": gpu_step, "marked": False}, {"make": cpu_step}):
        last = (WORK / traces(3, **other)[2]).read_text()
        names = traces(3, gpu_step)
        (WORK / names[2]).write_text(last)
        ranks = activity(names)
        check([(one["ratio"], one["slow"]) for one in ranks] ==
              [(0, False)] * 3, ranks)
        case("text", ["diagnose", *names],
             out="slow          ranks are not compared: only some have step")


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
def files_of_a_rank_come_in_any_order():
    for step in 1, 2, 3:
        at = STEP_MS * step
        (WORK / f"part{step}.json").write_text(json.dumps({
            "distributedInfo": {"rank": 0, "world_size": 1},
            "baseTimeNanoseconds": BASE_NS, "traceEvents": [
                event(f"ProfilerStep#{step}", at, at + STEP_MS),
                *gpu_step(0, at, 1)]}))
    result = json_case("parts", ["diagnose", *(
        f"part{step}.json" for step in (1, 3, 2, 3))], 0)
    one, = result["ranks"]
    check(one["n_steps"] == 3, one)
    check_times(one, span=100, compute=40)
    check([(r["kind"], "part3.json: is as part3.json" in r["text"])
           for r in result["remarks"]] == [("doubled-rows", True)], result)


@test
def events_outside_the_clock_are_remarked():
    name, = traces(1, gpu_step)
    trace = json.loads((WORK / name).read_text())
    for cat in "kernel", "cpu_op":
        trace["traceEvents"].append({**event("late", 0, 1, cat), "ts": 1e15})
    (WORK / name).write_text(json.dumps(trace))
    result = json_case("late", ["diagnose", name], 0)
    check([(r["kind"], r["n"]) for r in result["remarks"]] ==
          [("unread-rows", 2)], result["remarks"])
    check_times(result["ranks"][0], span=100, compute=40)


@test
def the_page_has_the_activity_and_measurements_are_refused():
    names = traces(2, gpu_step)
    case("page", ["diagnose", *names, "--html", "p.html"], out="rank")
    check("Time per step and its shares" in read("p.html"), "page")
    case("pipeline", ["diagnose", *names, "--pipeline-out", "p.yaml"], 1,
         err="--pipeline-out requires replayed steps: rank0.json: has no passes")


def timer_block(times, prefix=""):
    """Formats times like megatron/core/timers.py; times: {name: [ms of a
    rank]}."""
    lines = ["times across ranks (ms):"]
    for name, of_ranks in times.items():
        lines.append(f"  {name}:")
        lines += [f"     rank {rank:2d}: {ms:.2f}"
                  for rank, ms in enumerate(of_ranks) if ms]
    return "".join(f"{prefix}{line}\n" for line in lines)


def timer_log(name, forward=(10, 10, 15, 10), prefix=""):
    """Formats two iterations; times in the second are doubled."""
    text = "INFO: using world size: 4\n[2024-09-14 19:44:09] done with setup\n"
    text += timer_block({"model-and-optimizer-setup": [900] * 4}, prefix)
    for k in range(2):
        text += (f" [2024-09-14 19:44:{k:02d}] iteration {k:8d}/ 10 | loss: 1 |"
                 "\n")
        text += timer_block({
            "forward-backward": [100 + 100 * k] * 4,
            "forward-compute": [(1 + k) * ms for ms in forward],
            "backward-compute": [(1 + k) * 20 for _ in forward],
            "batch-generator": [5] * 4,
            "forward-recv": [0, 4, 4, 4],
            "optimizer-inner-step": [7] * 4,
            "optimizer": [10 + 10 * k] * 4}, prefix)
    (WORK / name).write_text(text)
    return name


@test
def megatrons_timers_give_the_ranks_activity():
    for prefix in "", "INFO:megatron.core.timers:", "[rank 3]: ":
        name = timer_log("train.log", prefix=prefix)
        result = json_case("timers", ["diagnose", name], 0)
        check("is a log of Megatron-LM's timers" in result["unreplayed"],
              result["unreplayed"])
        ranks = result["ranks"]
        check([(one["rank"], one["source"], one["n_steps"], one["slow"])
               for one in ranks] ==
              [(i, "timers", 2, i == 2) for i in range(4)], ranks)
        check_times(ranks[0], span=165, compute=60, communication=0, idle=105)
        check_times(ranks[2], span=165, compute=67.5, communication=4,
                    idle=93.5)
    (WORK / "train.log.gz").write_bytes(gzip.compress(
        (WORK / "train.log").read_bytes()))
    again = json_case("compressed", ["diagnose", "train.log.gz"], 0)["ranks"]
    check([{**one, "file": None} for one in again] ==
          [{**one, "file": None} for one in ranks], again)


@test
def timers_without_ranks_are_refused():
    (WORK / "max.log").write_text(
        "iteration 1/ 10\n(min, max) time across ranks (ms):\n"
        "    forward-backward ...............................: (1.00, 2.00)\n")
    case("extremes", ["diagnose", "max.log"], 1,
         err="max.log: is a log of Megatron-LM with the extremes of its timers "
             "over all ranks, .*--timing-log-option all")
    (WORK / "setup.log").write_text(timer_block({"load-checkpoint": [1, 2]}))
    case("setup", ["diagnose", "setup.log"], 1,
         err="setup.log: is a log of Megatron-LM without each rank's times of "
             "passes")
    case("second", ["diagnose", timer_log("t.log"), "setup.log"], 1,
         err="setup.log: is a log of Megatron-LM without each rank's times of "
             "passes")
    case("two kinds", ["diagnose", timer_log("t.log"), *traces(1, gpu_step)], 1,
         err="rank0.json: is a trace of PyTorch's profiler, but an earlier file "
             "is a log of Megatron-LM's timers")


@test
def ranks_of_several_logs_have_their_files():
    lines = (WORK / timer_log("all.log")).read_text().splitlines(True)
    for name, others in (("a.log", "23"), ("b.log", "01")):
        (WORK / name).write_text("".join(
            line for line in lines
            if not any(f" rank  {rank}: " in line for rank in others)))
    ranks = json_case("logs", ["diagnose", "a.log", "b.log"], 0)["ranks"]
    check([(one["rank"], one["file"], one["n_steps"]) for one in ranks] ==
          [(0, "a.log", 2), (1, "a.log", 2), (2, "b.log", 2), (3, "b.log", 2)],
          ranks)


@test
def truncated_logs_are_remarked():
    text = (WORK / timer_log("cut.log")).read_bytes()
    (WORK / "cut.log.gz").write_bytes(gzip.compress(text)[:-8])
    result = json_case("cut", ["diagnose", "cut.log.gz"], 0)
    check([(r["kind"], r["n"]) for r in result["remarks"]] ==
          [("cut-files", 1)], result["remarks"])
    check([one["rank"] for one in result["ranks"]] == [0, 1, 2, 3], result)


@test
def times_that_sum_to_decades_are_refused():
    lines = "     rank 0: 10000000\n" * 100001
    (WORK / "sum.log").write_text(
        "times across ranks (ms):\n  forward-compute:\n" + lines)
    case("sum", ["diagnose", "sum.log"], 1,
         err="sum.log:100003: the times of rank 0 sum to more than 31 years")


finish()
