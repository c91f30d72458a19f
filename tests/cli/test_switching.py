#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train --schedule-at: runs that switch schedules."""
import json
import re

from harness import (WORK, case, check, finish, json_case, makes, read, run,
                     test, uniform, write)
from input_files import TRAINED
from trained import TRAIN, can_train, make_plan, over_transports, saved

PLAYED = ["train", "p.yaml", "-s", "1f1b", "--speed", "50"]
# gpipe, zb-h1, slack, gpipe, ...
TWENTY = [word for step in range(1, 21) for word in (
    "--schedule-at", f"{step}={('slack', 'gpipe', 's.csv')[step % 3]}")]
TWENTY = [word.replace("s.csv", "./s.csv") for word in TWENTY]


@makes("p.yaml", "s.csv")
def files():
    uniform("p.yaml", latency=8, transfer=1)
    run("schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv")


@makes("plan.json", "s.csv", "text")
def a_plan():
    make_plan(TRAINED % 2)
    done = run("schedule", "plan.json", "-m", "zb-h1", "-o", "s.csv")
    check(done.returncode == 0, done.stderr)


@test
def wrong_ones_are_found_before_the_run():
    files()
    write("bad.csv", "0F0,oops\n")
    write("stuck.csv", "".join(
        f"{d}F1,{d}F0,{d}B0,{d}B1\n" if d % 2 else f"{d}F0,{d}B0,{d}F1,{d}B1\n"
        for d in range(4)))
    for given, code, says in [
            ("1", 2, r"'1' is not STEP=S.csv or STEP=METHOD"),
            ("=zb-h1", 2, "is not STEP="),
            ("1=", 2, "is not STEP="),
            ("-1=zb-h1", 2, "is not STEP="),
            ("3=zb-h1", 2, "iterations 0 to 2; see --steps"),
            ("1=zb-hh1", 2, r"--schedule-at: unknown method 'zb-hh1'; did you "
                            "mean zb-h1"),
            ("1=zb-h1;1=gpipe", 2, "two schedules for iteration 1"),
            ("1=zb-v", 1, "--schedule-at 1: .*zb-v"),
            ("2=./none.csv", 1, r"--schedule-at 2: ./none.csv: "),
            ("1=bad.csv", 1, "--schedule-at 1: bad.csv:1: cell 2: 'oops'"),
            ("1=zb-h1;2=stuck.csv", 1, r"--schedule-at 2=stuck.csv: ")]:
        case(given, [*PLAYED, "--schedule-at", given, "--log", "log"], code,
             err=says)
    check(not (WORK / "log").exists(), "nothing was run")
    for output in ("--trace", "--log", "--html"):
        case(output, [*PLAYED, "--schedule-at", "1=gpipe;2=./s.csv", output,
                      "s.csv"], 2, err=rf"{output} would overwrite .*: s\.csv")
    check(read("s.csv").startswith("0F0,"), "the schedule is still there")
    case("profiles", ["train", "p.yaml", "--device", "cpu", "--profile-out",
                      "f", "--schedule-at", "1=gpipe"], 2,
         err="--profile-out measures one schedule")


@test
def switches_are_reported():
    files()
    for transport in ("inproc", "local"):
        (WORK / "log").unlink(missing_ok=True)
        args = [*PLAYED, "--transport", transport, "--steps", "6",
                "--schedule-at", "4=s.csv", "--schedule-at", "2=gpipe"]
        found = json_case(transport, [*args, "--log", "log", "--trace",
                                      "t.json", "--html", "t.html"])
        names = ["1f1b", "1f1b", "gpipe", "gpipe", "s.csv", "s.csv"]
        check([i["schedule"] for i in found["iterations"]] == names, found)
        switches = found["switches"]
        alone = {name: json_case(name, ["simulate", "p.yaml", "-s", name])
                 for name in ("gpipe", "s.csv")}
        for change, (step, before, to) in zip(
                switches, [(2, "1f1b", "gpipe"), (4, "gpipe", "s.csv")]):
            check(change["step"] == step and change["from"] == before and
                  change["to"] == to and change["refused"] is None and
                  change["path"] == "delegated" and
                  change["why"] == "--schedule-at" and
                  abs(change["predicted_s"] * 50 -
                      alone[to]["makespan_s"]) < 1e-6, change)
        check(len(switches) == 2 and
              found["predicted_s"] == switches[1]["predicted_s"], found)
        lines = [json.loads(line) for line in read("log").splitlines()]
        check([line["schedule"] for line in lines] == names, lines)
        check([line.get("switch") for line in lines] ==
              [None, None, switches[0], None, switches[1], None], lines)
        # Both values are of the last schedule.
        run("simulate", "p.yaml", "-s", "s.csv", "--trace", "s.json")
        n = [sum(event.get("ph") == "X" for event in
                 json.loads(read(name))["traceEvents"])
             for name in ("t.json", "s.json")]
        check(n[0] == n[1] > 0, n)
        check(re.search(r"Iterations and their schedules.*2 to 3.*gpipe.*"
                        r"4 to 5.*s\.csv", read("t.html"), re.S),
              "the report has them all")
    case("for people", [*args, "-q"],
         out=r"\nswitched +to gpipe from iteration 2 on; .*\nswitched +to "
             r"s.csv from iteration 4 on.*\niterations +6; with the last "
             r"schedule, ")


@test
def later_ones_may_be_cut():
    uniform("p.yaml", microbatches=4, times=(10, 10, 9), latency=8, transfer=1)
    cut = ["--sub-blocks", "4"]
    want = json_case("simulate", ["simulate", "p.yaml", "-s", "greedy", *cut])
    whole = json_case("whole", ["simulate", "p.yaml", "-s", "greedy"])
    found = json_case("cut", [*PLAYED, "--steps", "2", "--schedule-at",
                              "1=greedy", *cut])
    check(abs(found["switches"][0]["predicted_s"] * 50 - want["makespan_s"])
          < 1e-6 and want["makespan_s"] != whole["makespan_s"], found)
    case("none is", [*PLAYED, "--schedule-at", "1=gpipe", *cut], 2,
         err="--sub-blocks has no effect")


@test
def weights_are_unaffected_on_every_transport():
    a_plan()
    train = [*TRAIN, "--steps", "21"]
    if not can_train(run(*train, "--checkpoint", "without")):
        return
    for transport, found in over_transports(train, TWENTY,
                                            ("local", "tcp", "ucx")):
        check(len(found["switches"]) == 20 and
              all(one["refused"] is None for one in found["switches"]), found)
        check(len({i["schedule"] for i in found["iterations"]}) == 4, found)
        check(saved(transport, 21) == saved("without", 21),
              f"{transport}: weights")


@test
def a_resumed_run_keeps_its_schedule():
    a_plan()
    train = [*TRAIN, "--schedule-at", "3=gpipe", "--schedule-at", "7=slack"]
    done = run(*train, "--steps", "8", "--checkpoint", "run",
               "--checkpoint-every", "5", "--json")
    if not can_train(done):
        return
    found = json_case("resumed", [*train, "--steps", "8", "--resume",
                                  "run/step-00000005"])
    check([i["schedule"] for i in found["iterations"]] ==
          ["gpipe", "gpipe", "slack"], found["iterations"])
    check([(one["step"], one["from"], one["to"]) for one in found["switches"]]
          == [(5, "1f1b", "gpipe"), (7, "gpipe", "slack")], found["switches"])
    case("nothing is left to do", [*train, "--steps", "8", "--resume", "run",
                                   "--trace", "none", "--html", "none.html"],
         out=r"iterations +0", err=r"none: not written: .*\n.*none\.html: not "
                                   r"written: ")


finish()
