#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul diagnose on the output of `nsys export --type jsonlines`. The synthetic files
have the lines of public exports: events with numbers as texts, and strings by number."""
import gzip
import json

from harness import WORK, case, check, finish, json_case, test, write
from operator_traces import one_f_one_b, operator_traces
from profiled import PASSES_S, event, profiled

PREFIX = 1 << 48
MAP = """
    longhaul: ranks/1
    ranks:
      - {rank: 0, stage: 0, replica: 0, file: nsys0.jsonl}
      - {rank: 1, stage: 1, replica: 0, file: nsys1.jsonl}
    """


def nsight_lines(events, process, strings, operator_ids=True):
    """Converts events of PyTorch's profiler; names of kernels go to strings."""
    lines = []
    for i, e in enumerate(events):
        if e["ph"] != "X":
            continue
        start = round(e["ts"] * 1000)
        end, args = start + round(e["dur"] * 1000), e["args"]
        global_pid = PREFIX | process << 24
        cuda = {"startNs": str(start), "endNs": str(end),
                "correlationId": args.get("correlation", 0)}
        if e["cat"] == "cuda_runtime":
            lines.append({"Type": 48, "TraceProcessEvent": {
                **cuda, "eventClass": 1, "name": "0",
                "globalTid": str(global_pid | e["tid"])}})
        elif e["cat"] == "kernel":
            if e["name"] not in strings:
                strings.append(e["name"])
            lines.append({"Type": 79, "CudaEvent": {
                **cuda, "deviceId": 1, "streamId": "7", "eventClass": 3,
                "globalPid": str(global_pid), "kernel": {
                    "shortName": str(strings.index(e["name"]))}}})
        else:
            text = e["name"]
            if e["cat"] == "cpu_op" and "Sequence number" in args:
                text += f", seq = {args['Sequence number']}"
            if operator_ids:
                text += f", op_id = {i + 1}"
            lines.append({"Type": 59, "NvtxEvent": {
                "Type": 59, "Timestamp": str(start), "Text": text,
                "GlobalTid": str(global_pid | e["tid"]),
                "EndTimestamp": str(end), "DomainId": "0", "NsTime": True}})
    lines.append({"Type": 75, "NvtxEvent": {
        "Type": 75, "Timestamp": "5", "Text": "a mark",
        "GlobalTid": str(PREFIX), "DomainId": "0"}})
    return lines


def export(name, parts, first=False, **more):
    """Writes one export of processes {number: events}. With `first` all strings
    are in the first line, else each has a line at the end."""
    strings = ["[Unknown]"]
    lines = [line for process, events in parts.items()
             for line in nsight_lines(events, process, strings, **more)]
    if first:
        lines.insert(0, {"data": strings})
    else:
        lines += [{"type": "String", "id": str(i), "value": text}
                  for i, text in enumerate(strings)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n"
                   for line in lines)
    (WORK / name).write_bytes(gzip.compress(text.encode())
                              if name.endswith("gz") else text.encode())
    return name


def events_of(name):
    return json.loads((WORK / name).read_text())["traceEvents"]


@test
def named_ranges_and_their_kernels_are_passes():
    write("m.yaml", MAP)
    names = profiled(gpu=True)
    for first in False, True:
        exports = [export(f"nsys{i}.jsonl", {7 + i: events_of(name)}, first)
                   for i, name in enumerate(names)]
        result = json_case("ranges", ["diagnose", *exports, "--map", "m.yaml"],
                           0)
        check(result["remarks"] == [] and result["n_steps"] == 3, result)
        for step in result["steps"]:
            check(abs(step["t_s"] - PASSES_S) < 1e-6, step)
        check([one["source"] for one in result["ranks"]] == ["gpu"] * 2, result)
        check(result["ranks"][0]["communication_s"] > 0, result["ranks"])


@test
def operators_of_emit_nvtx_are_passes():
    """Names follow torch.autograd.profiler.emit_nvtx(): the range of an
    autograd function has no number; the number is in its node's range
    inside."""
    def apart(rank, events):
        out = []
        for e in events:
            out.append(e)
            if "AddmmBackward0" in e["name"]:
                out.append({**e, "name": "AddmmBackward0",
                            "args": dict(e["args"])})
                e["args"] = {}
        return out
    write("m.yaml", MAP)
    names = operator_traces(2, 4, one_f_one_b, slow={(0, 1): 2}, edit=apart)
    exports = [export(f"nsys{i}.jsonl", {7: events_of(name)})
               for i, name in enumerate(names)]
    result = json_case("operators", ["diagnose", *exports, "--map", "m.yaml"], 0)
    check((result["n_steps"], result["stages"], result["microbatches"]) ==
          (2, 2, 4), result)
    check([(s["what"], s["stage"]) for s in result["slow"]] == [("stage", 1)],
          result["slow"])


@test
def each_process_of_an_export_is_a_rank():
    def busy(ms):
        return [event("gemm", 10, 10 + ms, "kernel"),
                event("ncclDevKernel_AllReduce", 60, 70, "kernel")]
    name = export("two.jsonl.gz", {40: busy(20), 50: busy(30)})
    result = json_case("processes", ["diagnose", name], 0)
    check([(one["rank"], one["file"], one["source"], one["slow"])
           for one in result["ranks"]] ==
          [(None, "two.jsonl.gz#40", "gpu", False),
           (None, "two.jsonl.gz#50", "gpu", True)], result["ranks"])
    check([round(1e3 * one["communication_s"], 6)
           for one in result["ranks"]] == [10, 10], result["ranks"])
    name = export("one.jsonl", {40: busy(20)})
    one, = json_case("one", ["diagnose", name], 0)["ranks"]
    check((one["rank"], one["file"]) == (0, "one.jsonl"), one)


@test
def steps_have_other_names():
    events = [event(f"iteration {k}", 100 * k, 100 * k + 90)
              for k in range(1, 4)] + [event("gemm", 110, 140, "kernel")]
    name = export("nsys0.jsonl", {7: events}, operator_ids=False)
    write("steps.yaml", "longhaul: ranks/1\nnames:\n"
          '  - {name: "iteration {step}", is: step}\n')
    one, = json_case("steps", ["diagnose", name, "--map", "steps.yaml"],
                     0)["ranks"]
    check((one["n_steps"], round(1e3 * one["compute_s"], 6)) == (3, 10), one)


@test
def exports_without_times_are_refused():
    write("x.jsonl", '{"data":["[Unknown]"]}\n{"Type":59,"NvtxEvent":{}}\n')
    case("none", ["diagnose", "x.jsonl"], 1,
         err="x.jsonl: has no NVTX range or kernel with a time: record with "
             "nsys profile --trace cuda,nvtx, and export with --type jsonlines")
    name = export("y.jsonl", {7: [event("gemm", 1, 2, "kernel")]})
    text = (WORK / name).read_text()
    (WORK / name).write_text(text + '{"Type":79,"CudaEvent":{"startNs":"soon",'
                             '"endNs":"2","globalPid":"5","kernel":{}}}\n'
                             '{"Type":79,"CudaEvent":{"startNs":"1",'
                             '"endNs":"2","kernel":{}}}\n'
                             '{"Type":79,"CudaEvent":\n')
    result = json_case("damaged", ["diagnose", name], 0)
    check([(r["kind"], r["n"]) for r in result["remarks"]] ==
          [("unread-rows", 3), ("unmarked-steps", 1)], result["remarks"])
    check("y.jsonl:5: 'startNs' and 'endNs' are not times in ns" in
          result["remarks"][0]["text"], result["remarks"])
    write("z.jsonl", text + '{"Type":59,"NvtxEvent":{"Timestamp":"1",'
          '"EndTimestamp":"2","Text":"iteration"}}\n')
    result = json_case("no thread", ["diagnose", "z.jsonl"], 0)
    check("z.jsonl:5: 'GlobalTid' is not a number" in
          result["remarks"][0]["text"], result["remarks"])
    case("two kinds", ["diagnose", name, *profiled()], 1,
         err="is a trace of PyTorch's profiler, but an earlier file is an "
             "export of Nsight Systems")


finish()
