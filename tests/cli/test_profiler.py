#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul diagnose on traces of PyTorch's profiler."""
import gzip
import json

from harness import ROOT, WORK, case, check, finish, json_case, run, test, write
from profiled import ALL_S, PASSES_S, event, profiled

RECORDINGS = ROOT / "tests/data/recordings"
MAP = """
    longhaul: ranks/1
    ranks:
      - {rank: 0, stage: 0, replica: 0, file: rank0.json}
      - {rank: 1, stage: 1, replica: 0, file: rank1.json}
    """


def found(names, *more, code=0):
    return json_case("diagnosed", ["diagnose", *names, *more], code)


def kinds(result):
    return {r["kind"]: r["n"] for r in result["remarks"]}


def check_steps(result, seconds, steps=3, remarks=None):
    check(result["n_steps"] == steps, result["steps"])
    for step in result["steps"]:
        check(abs(step["t_s"] - seconds) < 1e-6, step)
    check(kinds(result) == (remarks or {}), result["remarks"])


@test
def a_step_has_its_known_duration():
    result = found(profiled())
    check_steps(result, PASSES_S)
    check([s["step"] for s in result["steps"]] == [5, 6, 7], result["steps"])
    check(abs(result["measured_s"] - PASSES_S) < 1e-6, result["measured_s"])
    result = found(profiled(replicas=3))
    check_steps(result, ALL_S)
    check((result["stages"], result["replicas"]) == (2, 3), result)


@test
def kernels_give_the_busy_times_of_a_gpu():
    check_steps(found(profiled(gpu=True)), PASSES_S)
    check_steps(found(profiled(replicas=2, gpu=True)), ALL_S)


def without_ranks(result):
    """Returns the result without activities, which contain file names."""
    return {**result, "ranks": None}


@test
def compressed_files_and_files_in_any_order_are_the_same():
    want = without_ranks(found(profiled(replicas=2)))
    names = profiled(replicas=2, ending="json.gz")
    check(without_ranks(found(names[::-1])) == want, "compressed")
    # Each rank has a file per step, as written by periodic profiling.
    def of_step(number):
        return lambda rank, events: [
            e for e in events if e["ph"] != "X" or
            int((e["ts"] - 1e6 + 1000) // 1e5) == number]
    names = [name for k in range(3) for name in
             profiled(replicas=2, edit=of_step(k), prefix=f"cycle{k}-")]
    check(len(names) == 12 and without_ranks(found(names)) == want, "cycles")


@test
def one_slow_worker_is_named():
    def slow(rank, events):
        if rank != 3:
            return events
        out = []
        for e in events:  # its forward passes take 20 ms longer
            at = (e["ts"] - 1e6) / 1000 % 100
            out.append(e)
            if e["ph"] != "X" or e["name"].startswith("ProfilerStep"):
                continue
            if e["name"] == "PP:1F0":
                e["dur"] += 20000
            elif 22 <= at < 99:
                e["ts"] += 20000
        return out

    def later(rank, events):
        for e in slow(rank, events):
            if rank == 2 and e.get("name") in ("gloo:recv", "PP:0B0"):
                e["dur"] += 20000
            elif rank == 2 and (e["ts"] - 1e6) / 1000 % 100 >= 65 and \
                    e["ph"] == "X" and "Step#" not in e["name"]:
                e["ts"] += 20000
            elif rank < 2 and "all_reduce" in e.get("name", ""):
                e["dur"] += 20000
        return events
    result = found(profiled(replicas=3, edit=later))
    check([(s["what"], s["stage"], s["replica"], s["steps"])
           for s in result["slow"]] == [("worker", 1, 1, 3)], result["slow"])


@test
def clocks_that_contradict_messages_are_set():
    for gpu in False, True:
        result = found(profiled(replicas=2, gpu=gpu, ahead={2: 3000}))
        check_steps(result, ALL_S, remarks={"clocks": 3})
        check("rank 2, ahead by 3.0" in result["remarks"][0]["text"],
              result["remarks"])
    # A slow link is not attributed to clocks, since it contradicts nothing.
    check_steps(found(profiled(ahead={1: 1})), PASSES_S)


@test
def damaged_records_are_counted():
    names = profiled(replicas=2)
    text = (WORK / "rank3.json").read_bytes()
    # Truncated within the third step: two steps of its replica remain.
    at = text.index(b"ProfilerStep#7")
    (WORK / "cut.json").write_bytes(text[:at + 100])
    result = found([*names[:3], "cut.json"])
    check(kinds(result).get("cut-files") == 1 and
          result["n_steps"] == 2, result["remarks"])
    (WORK / "cut.json.gz").write_bytes(gzip.compress(text)[:-40])
    check(kinds(found([*names[:3], "cut.json.gz"])).get("cut-files") == 1,
          "cut gzip")
    # A file is missing, is given twice, has other types, or is not JSON.
    result = found(names[:3])
    check_steps(result, ALL_S, remarks={"missing-files": 1,
                                        "replicas-left-out": 3})
    check("rank 3" in result["remarks"][0]["text"], result["remarks"])
    result = found([*names, names[0]])
    check_steps(result, ALL_S, remarks={"doubled-rows": 3 * 6})

    def odd(rank, events):
        return events + [event("PP:(0F1;1B0)OVERLAP_F_B", 1, 2),
                         {"ph": "X", "cat": "user_annotation", "name": "x",
                          "ts": "soon", "dur": 1}, 5,
                         {"ph": "X", "cat": "user_annotation",
                          "name": "PP:0F9", "ts": 3e18, "dur": 1}]
    result = found(profiled(replicas=2, edit=odd))
    check_steps(result, ALL_S, remarks={"unknown-types": 4, "unread-rows": 8})
    check("its 'ts' is a text" in str(result["remarks"]), result["remarks"])


@test
def times_as_texts_are_the_reason():
    def texts(rank, events):
        for e in events:
            if rank == 1 and "dur" in e:
                e["ts"], e["dur"] = str(e["ts"]), str(e["dur"])
        return events
    case("texts", ["diagnose", *profiled(edit=texts)], 1,
         err="rank1.json: none of its 21 operators, ranges and kernels has a "
             "readable time; event 2: its 'ts' is a text, not a number of "
             "microseconds; write 'ts' and 'dur' as numbers")


@test
def a_rank_that_comes_twice_is_named():
    names = profiled(replicas=2)
    trace = json.loads((WORK / "rank3.json").read_text())
    trace["distributedInfo"]["rank"] = 2
    (WORK / "rank3.json").write_text(json.dumps(trace))
    case("twice", ["diagnose", *names], 1,
         err="^longhaul: rank3.json: is a trace of rank 2, as rank2.json is, "
             "of the same time, but with other operations; give one trace per "
             "rank")


@test
def all_missing_ranks_are_named():
    names = profiled(replicas=3)
    result = found([names[0], names[1], names[4]])
    check("3 ranks of the job without a trace; the first: rank 2, "
          "rank 3, rank 5" in str(result["remarks"]), result["remarks"])


@test
def steps_without_marks_are_counted_and_missing_ones_omitted():
    def unmarked(rank, events):
        return [e for e in events if "Step#" not in e["name"] or
                "Optimizer" in e["name"]]
    check_steps(found(profiled(replicas=2, edit=unmarked)), ALL_S,
                remarks={"unmarked-steps": 4})

    def skip_without(rank, events):
        return [e for e in events if e["name"] != "ProfilerStep#6" or rank]
    result = found(profiled(edit=skip_without))
    check([s["step"] for s in result["steps"]] == [5, 7] and
          kinds(result) == {"replicas-left-out": 1,
                            "incomplete-steps": 1}, result["remarks"])


@test
def a_map_supplies_ranks_that_traces_lack():
    names = profiled(told=False)
    case("one rank of each stage", ["diagnose", *names],
         out=r"not replayed  rank0.json: does not contain its rank")
    write("ranks.yaml", MAP)
    check_steps(found(names, "--map", "ranks.yaml"), PASSES_S)

    def renamed(rank, events):
        own = {"PP:0F0": "fwd mb 0 of 4", "PP:1F0": "fwd mb 0 of 4",
               "PP:0B0": "bwd mb 0", "PP:1B0": "bwd mb 0"}
        for e in events:
            e["name"] = own.get(e["name"], e["name"])
            if "Step#" in e["name"]:
                e["name"] = e["name"].replace("ProfilerStep#", "train/")
        return events
    names = profiled(told=False, edit=renamed)
    case("nothing known", ["diagnose", *names, "--map", "ranks.yaml"],
         out="not replayed  rank0.json: (no step is complete|has no operations)")
    write("names.yaml", MAP + """
        names:
          - {name: "fwd mb {microbatch}*", is: forward-compute}
          - {name: "bwd mb {microbatch}", is: backward-compute}
          - {name: "train/{step}", is: step}
        """.replace("        ", "    "))
    check_steps(found(names, "--map", "names.yaml"), PASSES_S)


@test
def ranks_of_a_map_may_be_replicas():
    """As ranks of one stage they would be more than one pipeline."""
    names = profiled(replicas=2)
    for groups, want in (((0, 0, 1, 1), 2), ((0, 0, 0, 0), 1)):
        write("r.yaml", "longhaul: ranks/1\nranks:\n" + "".join(
            f"  - {{rank: {rank}, stage: {rank % 2}, replica: {groups[rank]}}}"
            "\n" for rank in range(4)))
        result = found(names, "--map", "r.yaml")
        check(result["replicas"] == want, result)
    check(list(kinds(result)) == ["more-ranks"], result["remarks"])


@test
def contradictory_maps_are_rejected():
    names = profiled()
    head = "longhaul: ranks/1\n"
    place = "{rank: 0, stage: 0, replica: 0}"
    for text, want in (
            (head, ":1: .*is empty; set 'ranks' or 'names'"),
            (head + "rank: 1\n", ":2: rank: unknown key"),
            ("longhaul: ranks/2\nranks: []\n", "ranks/2"),
            (head + "ranks: []\n", ":2: ranks: "),
            (head + f"ranks: [{place}, {place}]\n",
             r":2: ranks: lists rank 0 twice, in lines 2 and 2"),
            (head + "ranks: [{rank: 0, stage: 0, replica: 0, file: a},\n"
             "  {rank: 1, stage: 1, replica: 0, file: a}]\n",
             r"ranks: lists a file twice, in lines 2 and 3"),
            (head + "ranks: [{rank: 0, stage: 70000, replica: 0}]\n",
             r"ranks\[0\]\.stage"),
            (head + f"ranks: [{place}]\n",
             r"rank1.json: is the trace of rank 1, which m.yaml lacks"),
            (head + "ranks: [{rank: 1, stage: 0, replica: 0, "
             "file: rank0.json}]\n", r"of rank 0 by its own data, but of "
             "rank 1 by m.yaml"),
            (head + "names: [{name: 'f{mb}', is: gc}]\n",
             r"names\[0\]\.name: has a brace"),
            (head + "names: [{name: 'f', is: forward-compute}]\n",
             r"names\[0\]\.name: requires \{microbatch\}"),
            (head + "names: [{name: '{microbatch}{microbatch}', "
             "is: forward-compute}]\n", r"contains \{microbatch\} twice"),
            (head + "names: [{name: 'f', is: step}]\n", r"requires \{step\}"),
            (head + "names: [{name: '{step}', is: gc}]\n", r"contains \{step\}"),
            (head + "names: [{name: '{chunk}', is: optimizer}]\n",
             r"contains \{chunk\} or"),
            (head + "names: [{name: x, is: pass}]\n", r"names\[0\]\.is: "),
            (head + "\nnames: [{name: 'absent', is: gc}]\n",
             r"m.yaml:3: names\[0\]\.name: no range in the traces "
             "matches 'absent'")):
        write("m.yaml", text)
        case(text, ["diagnose", *names, "--map", "m.yaml"], 1,
             err=f"^longhaul: .*{want}")
    case("a table", ["diagnose", RECORDINGS / "ST.csv.gz", "--map", "m.yaml"],
         1, err="names.*|is a table, but a map of ranks applies only to traces")


@test
def where_a_rank_belongs_is_not_made_up():
    def no_groups(rank, events):
        return events
    names = profiled(replicas=2)
    for name in names:
        trace = json.loads((WORK / name).read_text())
        del trace["distributedInfo"]["pg_config"]
        (WORK / name).write_text(json.dumps(trace))
    case("no groups", ["diagnose", *names],
         out="not replayed  rank0.json: does not list the ranks of its pipeline")
    # One rank of each stage is one pipeline.
    case("two of four", ["diagnose", *names[:2]], out="2 stages x 1 replica")
    names = profiled(edit=lambda rank, events: [
        e for e in events if not e["name"].startswith("PP:")])
    case("no passes", ["diagnose", *names],
         out=r"not replayed  rank0.json: has no passes whose names contain")


@test
def other_json_is_refused():
    for text, want in (('{"a": [1]}', "is JSON, but neither a trace of longhaul "
                        "nor of PyTorch's profiler"),
                       ('{"a": 1, ' + '"b": 2, ' * 90 + '"longhaul": "plan/1"}',
                        "has the key 'longhaul', but not as its first"),
                       ('{"traceEvents": [1', "x.json: has no operator, range or kernel"),
                       ("[1, 2]", "x.json: has no operator, range or kernel")):
        write("x.json", text)
        case(text, ["diagnose", "x.json"], 1, err=want)
    names = profiled()
    case("two kinds", ["diagnose", names[0], RECORDINGS / "ST.csv.gz"], 1,
         err="ST.csv.gz: is a table, but an earlier file is a trace of PyTorch")


@test
def a_real_run_has_its_slow_rank_and_its_slow_link():
    """Uses the recording of tests/peers/test_profiled_training.py."""
    names = sorted((RECORDINGS / "gloo").glob("rank*.json.gz"))
    want = json.loads((RECORDINGS / "gloo/expected.json").read_text())
    check(len(names) == 4, names)
    result = found(names)
    check(kinds(result) == {}, result["remarks"])
    for key, value in want["about"].items():
        check(result[key] == value, f"{key}: {result[key]}")
    for key, value in want["seconds"].items():
        check(abs(result[key] - value) < 1e-3 * value, f"{key}: {result[key]}")
    check(abs(result["slow"][0]["ratio"] - want["ratio_of_stage_2"]) < 1e-3,
          result["slow"])
    check([{k: s.get(k) for k in one} for s, one in
           zip(result["slow"], want["slow"])] == want["slow"] and
          len(result["slow"]) == len(want["slow"]), result["slow"])


finish()
