#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul diagnose on traces without ranges for passes: operators alone."""
import functools
import json
import re

from harness import WORK, check, finish, json_case, read, test
from operator_traces import (BACKWARD_MS, FORWARD_MS, STEP_MS, gpipe,
                             gpu_operators, last_first, one_f_one_b, operator_traces,
                             start_times)
from profiled import event


def found(names, *more):
    return json_case("diagnosed", ["diagnose", *names, *more], 0)


def orders_on_page(page):
    """Returns the passes of each device in the page's first step."""
    data = json.loads(re.search(
        r'<script type="application/json" id="data">(.*?)</script>',
        page, re.DOTALL).group(1))
    runs = data["diagnosis"]["steps"][0]["own"]["runs"]
    each = runs["of"] if isinstance(runs["of"], list) else [
        runs["of"]] * (runs["n"] // runs["of"])
    out, at = [], 0
    for n in each:
        numbers = runs["mb"] if isinstance(runs["mb"], list) else [
            runs["mb"]] * runs["n"]
        out.append(list(zip(runs["kind"][at:at + n], numbers[at:at + n])))
        at += n
    return out


def check_passes(names, stages, microbatches, schedule, slow=None, steps=2):
    """Checks the order of passes on the page and the mean times as a pipeline."""
    result = found(names, "--html", "p.html", "--pipeline-out", "p.json")
    check((result["stages"], result["microbatches"], result["n_steps"]) ==
          (stages, microbatches, steps), result)
    check(result["remarks"] == [], result["remarks"])
    want = [schedule(s, stages, microbatches) for s in range(stages)]
    got = orders_on_page(read("p.html"))
    check(got[:stages] == want, got)
    for chunk in json.loads(read("p.json"))["chunks"]:
        factor = (slow or {}).get(chunk["device"], 1)
        for name, ms, ns in (("F", FORWARD_MS, chunk["F"]),
                             ("B", BACKWARD_MS, chunk["D"] + chunk["W"])):
            check(abs(ns / 1e6 - factor * ms) < 0.01 * ms,
                  f"{name} of {chunk}: {ns}")
    return result


@test
def passes_are_those_of_the_schedule():
    for stages, microbatches, schedule in (
            (2, 4, one_f_one_b), (4, 8, one_f_one_b), (4, 2, one_f_one_b),
            (4, 4, gpipe), (2, 1, gpipe), (3, 4, last_first)):
        check_passes(operator_traces(stages, microbatches, schedule), stages,
                     microbatches, schedule)


@test
def a_slow_stage_is_named():
    names = operator_traces(4, 8, one_f_one_b, slow={(0, 2): 2})
    result = check_passes(names, 4, 8, one_f_one_b, {2: 2})
    check([(s["what"], s["stage"]) for s in result["slow"]] == [("stage", 2)],
          result["slow"])


@test
def a_slow_worker_of_replicas_is_named():
    names = operator_traces(2, 4, one_f_one_b, replicas=3, slow={(1, 0): 2})
    result = found(names)
    check((result["stages"], result["replicas"]) == (2, 3), result)
    check([(s["what"], s["stage"], s["replica"]) for s in result["slow"]] ==
          [("worker", 0, 1)], result["slow"])


@test
def kernels_time_passes_of_a_cpu_that_runs_ahead():
    for coalesced in False, True:
        make = functools.partial(gpu_operators, coalesced=coalesced)
        for schedule in one_f_one_b, gpipe:
            result = check_passes(
                operator_traces(3, 4, schedule, slow={(0, 1): 2}, make=make), 3,
                4, schedule, {1: 2})
            check([(s["what"], s["stage"]) for s in result["slow"]][:1] ==
                  [("stage", 1)], result["slow"])
            check(0.95 < result["t_s"] / result["measured_s"] <= 1, result)


@test
def steps_end_with_the_optimizer_if_unmarked():
    names = operator_traces(2, 4, one_f_one_b, marked=False)
    result = found(names, "--pipeline-out", "p.json")
    check((result["n_steps"], result["microbatches"]) == (2, 4), result)


@test
def steps_may_have_files_in_any_order():
    parts = []
    for name in operator_traces(2, 4, one_f_one_b, steps=3):
        trace = json.loads((WORK / name).read_text())
        for step in 0, 2, 1:
            parts.append(f"step{step}-{name}")
            # A step's mark begins 1 ms before its operators.
            (WORK / parts[-1]).write_text(json.dumps({**trace, "traceEvents": [
                e for e in trace["traceEvents"]
                if ((e["ts"] - 1e6) / 1000 + 1) // STEP_MS == step + 1]}))
    result = found(parts)
    check((result["stages"], result["microbatches"], result["n_steps"]) ==
          (2, 4, 3), result)
    check(result["remarks"] == [], result["remarks"])


@test
def a_wait_for_a_send_is_not_in_the_pass():
    """Stage 0 waits for its first send for 3 ms after its second forward pass."""
    def waits(rank, events):
        sends = [e for e in events if e["name"] == "gloo:send"]
        if rank == 0:
            second = [e for e in events if e["name"] == "c10d::send"][1]
            last = max(e["ts"] + e["dur"] for e in events
                       if e["name"] == "aten::detach" and
                       e["ts"] < second["ts"])
            events.append(event("aten::view", 0, 0.1, "cpu_op"))
            events[-1]["ts"] = last - 3100
            sends[0]["dur"] = last - 101 - sends[0]["ts"]
        return events
    names = operator_traces(2, 4, one_f_one_b, steps=1, edit=waits)
    found(names, "--pipeline-out", "p.json")
    f = json.loads(read("p.json"))["chunks"][0]["F"] / 1e6
    check(abs(f - (FORWARD_MS - 3 / 4)) < 0.01, f)


@test
def named_passes_get_their_messages():
    """Messages without names would let a stage start as early as it can."""
    for schedule in one_f_one_b, last_first:
        orders = [schedule(s, 2, 4) for s in range(2)]
        times = start_times(orders, {})

        def named(rank, events, orders=orders, times=times):
            for step in range(2):
                at = STEP_MS * (1 + step)
                for kind, i in orders[rank]:
                    start, end, _, _ = times[rank, kind, i]
                    events.append(event(f"PP:{rank}{kind}{i}", at + start,
                                        at + end))
            return events
        result = check_passes(operator_traces(2, 4, schedule, edit=named), 2,
                              4, schedule)
        check({"forward-pp-comm", "backward-pp-comm"} <=
              set(result["by_operation"]), result["by_operation"])


finish()
