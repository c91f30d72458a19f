#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train --adapt: runs that monitor themselves, and switch schedules. They run in
virtual time, since their decisions depend on measured times."""
import json

from harness import (VIRTUAL, case, check, finish, json_case, read, run, test,
                     uniform, write)
from input_files import TWO_SITES
from trained import TRAIN, can_train, make_plan, over_transports, saved

SLOW = """
    longhaul: events/1
    time_unit: ms
    events:
      - {from: 11, to: 1000, links: ['0>1'], latency: 400}
    """
STEPS = 40


@test
def slow_iterations_are_printed_without_a_detection():
    """Two of six iterations are slow, while the monitor still calibrates."""
    uniform("p.yaml", microbatches=8)
    write("e.yaml", SLOW.replace("from: 11, to: 1000", "from: 2, to: 4"))
    case("few", ["train", "p.yaml", "-s", "1f1b", "--events", "e.yaml",
                 "--steps", "6", "--speed", "10", "--adapt"], program=VIRTUAL,
         out=r"noticed +nothing.*iterations +6, 33\.000 ms to 153\.000 ms.*"
             r"events +in 2 of 6 iterations; total of all iterations 438\.\d+ ms\s+"
             r"measured\n")


@test
def detections_and_decisions_are_reported():
    """A link's latency becomes forty times a pass: an iteration then takes 153
    ms in place of 33 ms, or with slack 67 ms."""
    uniform("p.yaml", microbatches=8)
    write("e.yaml", SLOW)
    found = json_case("run", ["train", "p.yaml", "-s", "1f1b", "--events",
                              "e.yaml", "--steps", str(STEPS), "--speed", "10",
                              "--adapt", "--log", "log", "--html", "r.html",
                              "--svg", "s.svg"], program=VIRTUAL)
    steps = found["iterations"]
    check([i["step"] for i in steps] == list(range(STEPS)), "steps")
    check(all(set(i) >= {"step", "seconds", "schedule", "path", "slow"}
              for i in steps), steps[0])
    begun = [n for n in found["noticed"] if n["change"] == "begins"]
    check(len(begun) == 1 and begun[0]["what"] == "link" and
          begun[0]["from"] == 11 and begun[0]["step"] == 12 and
          abs(begun[0]["now_s"] - 0.04) < 1e-6 and
          "from iteration" in begun[0]["text"], found["noticed"])
    switches = found["switches"]
    check(len(switches) == 1 and switches[0]["to"] == "slack" and
          abs(switches[0]["predicted_s"] - 0.067) < 1e-9, found["decisions"])
    check([round(i["seconds"], 4) for i in steps] == [0.033] * 11 + [0.153] *
          (switches[0]["step"] - 11) + [0.067] * (STEPS - switches[0]["step"]),
          steps)
    check(all(set(s) >= {"step", "from", "to", "path", "predicted_s", "why"} and
              s["refused"] is None and s["why"] for s in switches), switches)
    decided = [d for d in found["decisions"] if d["switch"]]
    check(len(decided) >= len(switches) and
          decided[0]["predicted_s"] < decided[0]["now_s"] and
          decided[0]["bound_s"] <= decided[0]["predicted_s"] and
          decided[0]["why"] == switches[0]["why"] and
          decided[0]["step"] + 1 < switches[0]["step"], decided)
    # The schedule changes only in the steps of the switches.
    name = "1f1b"
    for i in steps:
        for s in switches:
            if s["step"] == i["step"]:
                check(s["from"] == name, switches)
                name = s["to"]
        check(i["schedule"] == name, i)
    log = [json.loads(line) for line in read("log").splitlines()]
    check([i["step"] for i in log] == list(range(STEPS)) and
          [i["schedule"] for i in log] == [i["schedule"] for i in steps], log)
    told = [n for i in log for n in i.get("noticed", [])]
    why = [d for i in log for d in i.get("decisions", [])]
    check(told == found["noticed"] and why == found["decisions"], told)
    check([i["switch"]["step"] for i in log if "switch" in i] ==
          [s["step"] for s in switches], "switches in the log")
    check("Iterations and their events" in read("r.html") and
          "Detections and decisions" in read("r.html") and
          "<svg" in read("r.html"), "report")
    drawn = read("s.svg")
    check(drawn.count("stroke-dasharray") == len(switches) and
          drawn.count("<title>slow: 0&gt;1</title>") == 1, drawn)


@test
def the_text_contains_the_reasons():
    uniform("p.yaml", microbatches=8)
    write("e.yaml", SLOW)
    done = case("text", ["train", "p.yaml", "-s", "1f1b", "--events", "e.yaml",
                         "--steps", str(STEPS), "--speed", "20", "--adapt"],
                program=VIRTUAL,
                out=r"noticed +after iteration 12: from iteration 11 on a "
                    r"message from device\s+0 to 1 takes 20 ms")
    text = done.stdout if done else ""
    check("decided " in text and "switched " in text and "monitor " in text and
          max(map(len, text.splitlines()), default=0) <= 80, text)


@test
def possible_migrations_are_reported():
    """A slow device: the run does not move layers without --moving, and reports
    this."""
    uniform("p.yaml", microbatches=8)
    write("e.yaml", """
        longhaul: events/1
        events:
          - {from: 11, to: 1000, device: 2, slower: x3}
        """)
    found = json_case("device", ["train", "p.yaml", "-s", "1f1b", "--events",
                                 "e.yaml", "--steps", "24", "--speed", "10",
                                 "--adapt"], program=VIRTUAL)
    begun = [n for n in found["noticed"] if n["what"] == "device" and
             n["index"] == 2 and n["change"] == "begins"]
    check(found["noticed"] == begun and len(begun) == 1 and
          begun[0]["from"] == 11 and begun[0]["cost_s"] > 0 and
          "migrated layers could save a part; enable migration with "
          "--moving" in begun[0]["text"], found["noticed"])


@test
def incompatible_options_are_rejected():
    uniform("p.yaml")
    write("text", "It was the best of times.\n" * 9)
    for more in (["--schedule-at", "1=gpipe"],
                 ["--device", "cpu", "--data", "text", "--profile-out", "f"]):
        case(more[0], ["train", "p.yaml", "--adapt", *more], code=2,
             err=r"--adapt chooses schedules itself")


@test
def weights_are_unaffected():
    """Final weights are bit-identical with and without events."""
    make_plan(TWO_SITES % 12)
    write("e.yaml", f"""
        longhaul: events/1
        time_unit: ms
        events:
          - {{from: 10, to: {STEPS - 4}, links: [west-east], latency: 20}}
        """)
    train = [*TRAIN, "--steps", str(STEPS)]
    if not can_train(run(*train, "--checkpoint", "without")):
        return
    adapting = ["--events", "e.yaml", "--adapt"]
    found = json_case("virtual time", [*train, *adapting, "--checkpoint", "v"],
                      program=VIRTUAL)
    predicted = [i.get("predicted_s") for i in found["iterations"]]
    check(predicted[-1] and min(p for p in predicted if p) <=
          found["predicted_s"] <= max(p for p in predicted if p), predicted)
    begun = [n["from"] for n in found["noticed"] if n["what"] == "link" and
             n["change"] == "begins" and abs(n["now_s"] - 0.021) < 1e-4]
    ended = [n["from"] for n in found["noticed"] if n["change"] == "ends"]
    check(begun == [10, 10] and ended == [STEPS - 4] * 2, found["noticed"])
    check([s["refused"] for s in found["switches"]] == [None],
          found["switches"])
    check(saved("v", STEPS) == saved("without", STEPS), "weights")
    # In real time other load may change what is detected, but no weights.
    for transport, found in over_transports(train, adapting):
        first = found["decisions"][0]
        predicted = [i.get("predicted_s") for i in found["iterations"]]
        check(0 < found["monitor_s"] < found["total_s"], found["monitor_s"])
        check(first["step"] == 1 and "it took " in first["why"] and
              "planned" in first["why"], f"{transport}: {first}")
        check(predicted[:2] == [None, None] and predicted[-1] and
              min(p for p in predicted if p) <= found["predicted_s"] <=
              max(p for p in predicted if p),
              f"{transport}: {predicted}")
        check(all(s["refused"] is None for s in found["switches"]), transport)
        check(saved(transport, STEPS) == saved("without", STEPS),
              f"{transport}: weights")


finish()
