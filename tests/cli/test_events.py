#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--events: iterations with slow links and devices, simulated and run."""
import json
import os
import re
import subprocess

from harness import (ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, case, check,
                     finish, json_case, read, run, test, uniform, write)
from input_files import TWO_SITES
from trained import TRAIN, can_train, make_plan, over_transports, saved

TRACE = ROOT / "examples/adaptra-trace.yaml"
STAGES = ROOT / "examples/adaptra-8-stages.yaml"
DIRECT = ["--coupled", "1", "--receives", "late"]
EVENTS = """
    longhaul: events/1
    time_unit: ms
    events:
      - {from: 2, to: 4, links: [0-1], latency: 40}
      - {from: 3, to: 5, device: 1, slower: x1.5}
    """


@test
def the_published_trace_has_the_published_time():
    """The whole trace on the direct path: 45.6 and 48.2 minutes by the model,
    45.4 and 46.9 in the paper."""
    write("joint.yaml", STAGES.read_text() + "backward: joint\n")
    for pipeline, method, minutes in (("joint.yaml", "1f1b", 45.6),
                                      (STAGES, "zb-h2", 48.2)):
        found = json_case(method, ["simulate", pipeline, "-s", method, *DIRECT,
                                   "--events", TRACE, "--steps", "1200"])
        check(abs(found["total_s"] / 60 / minutes - 1) < 0.01,
              f"{method}: {found['total_s'] / 60} minutes")
        steps = found["iterations"]
        check([i["step"] for i in steps] == list(range(1200)), "steps")
        check(abs(sum(i["seconds"] for i in steps) - found["total_s"]) < 1e-6,
              "the sum of the iterations")
        check(all(i["path"] == "direct" and i["schedule"] == method
                  for i in steps), "path and schedule")
        check(steps[14]["slow"] == [] and steps[15]["slow"] == ["2-3"] and
              steps[84]["slow"] == ["2-3"] and steps[85]["slow"] == [] and
              steps[340]["slow"] == ["2-3", "3-4", "6-7"], "slow links")
        check(found["switches"] == [], found["switches"])


@test
def the_published_stages_keep_as_many_activations_as_their_warm_ups():
    """Algorithm 1 of the paper: D releases the activations."""
    found = json_case("memory", ["simulate", STAGES, "-s", "zb-h2"])
    peaks = found["peak_memory"]
    check(peaks == [15, 13, 11, 9, 7, 5, 3, 1], peaks)


@test
def an_iteration_has_the_time_of_its_own_pipeline():
    uniform("p.yaml", latency=8, transfer=1)
    write("e.yaml", EVENTS)
    found = json_case("played", ["simulate", "p.yaml", "-s", "zb-h1",
                                 "--events", "e.yaml", "-n", "7", "--log",
                                 "l.jsonl"])
    quiet = json_case("alone", ["simulate", "p.yaml", "-s", "zb-h1"])
    seconds = [i["seconds"] for i in found["iterations"]]
    for i in (0, 1, 5, 6):
        check(seconds[i] == quiet["makespan_s"], f"{i}: {seconds[i]}")
    check(min(seconds[2:5]) > quiet["makespan_s"], seconds)
    check(found["iterations"][3]["slow"] == ["0-1", "device 1"], found)
    check(all(i["path"] == "delegated" for i in found["iterations"]), "path")
    lines = [json.loads(line) for line in read("l.jsonl").splitlines()]
    check(lines == found["iterations"], "the log has the iterations")


@test
def the_text_fits_one_screen():
    done = case("text", ["simulate", STAGES, "-s", "zb-h2", *DIRECT,
                         "--events", TRACE, "--steps", "1200"],
                out=r"\Aschedule +zb-h2, direct path\n"
                    r"iterations +1200, of which 630 have events\n")
    text = done.stdout if done else ""
    check(len(text.splitlines()) <= 24 and
          max(map(len, text.splitlines()), default=0) <= 80, text)
    check(re.search(r"340 to 409 +2-3, 3-4, 6-7 +4494 ms", text), text)


@test
def events_without_effect_are_rejected():
    uniform("p.yaml")
    write("e.yaml", EVENTS)
    base = ["simulate", "p.yaml", "-s", "1f1b"]
    case("steps alone", [*base, "--steps", "3"], code=2,
         err=r"--steps requires --events")
    case("log alone", [*base, "--log", "l"], code=2,
         err=r"--log requires --events")
    case("events alone", [*base, "--events", "e.yaml"], code=2,
         err=r"--events requires --steps, the number of iterations")
    for option in (["--trace", "t"],
                   ["--objective", "makespan"]):
        case(option[0], [*base, "--events", "e.yaml", "--steps", "3", *option],
             code=2, err=r"applies to a single iteration; it cannot "
                  r"be combined with --events")
    case("restart alone", [*base, "--restart", "3"], code=2,
         err=r"--restart requires --events")
    case("restart of what goes on", [*base, "--events", "e.yaml", "--steps",
                                     "3", "--restart", "3", "--adapt"], code=2,
         err=r"--restart is for runs without a second rail")
    write("rail.yaml", EVENTS + "  - {at: 6, rank: 2, rail: up}\n")
    case("a rail", [*base, "--events", "rail.yaml", "-n", "3"], code=1,
         err=r"rail\.yaml:6: rank: .*")
    write("no.yaml", EVENTS.replace("0-1", "0-9"))
    case("no such link", [*base, "--events", "no.yaml", "-n", "3"], code=1,
         err=r"no\.yaml:4: links: '0-9' is neither a link of the pipeline")


@test
def iterations_are_drawn():
    uniform("p.yaml", latency=8, transfer=1)
    write("e.yaml", EVENTS)
    played = ["simulate", "p.yaml", "-s", "zb-h1", "--events", "e.yaml"]
    case("drawn", [*played, "-n", "7", "--svg", "s.svg", "--html", "h.html"],
         out="iterations")
    for text in (read("s.svg"), read("h.html")):
        check(text.count("<title>slow: 0-1</title>") == 1 and
              text.count("<title>slow: 0-1, device 1</title>") == 1 and
              text.count("<title>slow: device 1</title>") == 1, text[:2000])
    write("e.yaml", EVENTS.replace("to: 4", "to: 40"))
    found = json_case("adapting", [*played, "-n", "60", "--adapt", "--html",
                                   "h.html", "--svg", "s.svg"])
    check(found["switches"] and read("s.svg").count("stroke-dasharray") ==
          len(found["switches"]), found["switches"])
    check(all(s["why"].replace(">", "\\u003e") in read("h.html") or
              s["why"] in read("h.html") for s in found["switches"]), "why")


@test
def a_run_is_compared_under_the_same_events():
    uniform("p.yaml", microbatches=6)
    write("e.yaml", EVENTS)
    base = ["p.yaml", "-s", "zb-h1", "--events", "e.yaml", "--steps", "6"]
    played = json_case("played", ["simulate", *base])["iterations"]
    for more, n_slow in ((["--transport", "inproc"], 3),
                         (["--transport", "local", *DIRECT], 3)):
        direct = DIRECT if more[-1] == "late" else []
        if direct:
            played = json_case("played", ["simulate", *base, *direct])[
                "iterations"]
        found = json_case("run", ["train", *base, "--speed", "5", *more,
                                  "--log", f"log{len(more)}"])
        steps = found["iterations"]
        check([i["slow"] for i in steps] == [i["slow"] for i in played] and
              sum(i["slow"] != [] for i in steps) == n_slow, steps)
        for ran, was in zip(steps, played):
            check(abs(ran["predicted_s"] * 5 - was["seconds"]) < 1e-8 and
                  ran["seconds"] >= ran["predicted_s"] and
                  ran["path"] == was["path"] and
                  ran["schedule"] == was["schedule"], f"{ran}, played {was}")
        check(abs(found["total_s"] - sum(i["seconds"] for i in steps)) < 1e-8,
              found["total_s"])
        half = sorted(i["predicted_s"] for i in steps)[2:4]
        check(abs(found["predicted_s"] - sum(half) / 2) < 1e-8, found)
        log = [json.loads(line) for line in read(f"log{len(more)}"
                                                 ).splitlines()]
        check([i["slow"] for i in log] == [i["slow"] for i in steps], log)
    run("train", *base[:-1], "4", "--speed", "5", "--html", "r.html")
    check("slow in this iteration" in read("r.html") and
          "0-1, device 1" in read("r.html"), "the report says what is slow")
    check("Iterations and their events" in read("r.html") and
          "2 to 2" in read("r.html"), "the report lists the iterations")
    case("for people", ["train", *base, "--speed", "5"],
         out=r"\nevents +in 3 of 6 iterations; total of all iterations [\d.]+ ms\s+"
             "predicted")


@test
def rails_go_down_and_come_up():
    """Messages of rank 1 wait for the detection of the failure. Computation
    hides part of these 300 ms. A run without another rail restarts."""
    uniform("p.yaml", microbatches=6, latency=8, transfer=1)
    write("e.yaml", """
        longhaul: events/1
        events:
          - {at: 1, rank: 1, rail: down}
          - {at: 3, rank: 1, rail: up}
          - {at: 4, rank: 1, rail: down}
        """)
    base = ["p.yaml", "-s", "zb-h1", "--events", "e.yaml", "--steps", "5"]
    played = json_case("played", ["simulate", *base])["iterations"]
    quiet = played[0]["seconds"]
    check([i["slow"] for i in played] ==
          [["rail of rank 1"] if i in (1, 4) else [] for i in range(5)], played)
    check([i["seconds"] == quiet for i in played] ==
          [True, False, True, True, False] and
          played[1]["seconds"] == played[4]["seconds"] and
          quiet + 0.2 < played[1]["seconds"] <= quiet + 0.3, played)
    adapting = json_case("adapting", ["simulate", *base, "--adapt"])
    check([i["seconds"] for i in adapting["iterations"]] ==
          [i["seconds"] for i in played] and not adapting["switches"], adapting)
    again = json_case("again", ["simulate", *base, "--restart", "9"])
    check([round(i["seconds"] / quiet, 6) for i in again["iterations"]] ==
          [1, 10, 1, 1, 10], again)
    for transport in ("inproc", "local"):
        found = json_case(transport, ["train", *base, "--speed", "5",
                                      "--transport", transport])["iterations"]
        for ran, was in zip(found, played):
            check(ran["slow"] == was["slow"] and
                  abs(ran["predicted_s"] * 5 - was["seconds"]) < 1e-8 and
                  ran["seconds"] >= ran["predicted_s"], f"{ran}, played {was}")
    case("real links", ["train", *base, "--real-links"], code=1,
         err=r"fail rails, which requires emulated links")
    write("p.yaml", read("p.yaml") + "data_parallel:\n  chunks: "
          "[{chunk: 1, all_gather: 1, link: dc0>dc1}]\n")
    case("a shared link", ["train", *base], code=1,
         err=r"^longhaul: the rail of rank 1 fails at step 1 on link "
             r"'dc0>dc1', which .* simulate the event")
    json_case("simulated", ["simulate", *base])


@test
def another_schedule_under_events_is_predicted():
    uniform("p.yaml", microbatches=6)
    write("e.yaml", EVENTS)
    base = ["p.yaml", "--events", "e.yaml", "--steps", "6"]
    by = {name: json_case(name, ["simulate", *base, "-s", name])["iterations"]
          for name in ("zb-h1", "gpipe")}
    found = json_case("switched", ["train", *base, "-s", "zb-h1", "--speed",
                                   "5", "--schedule-at", "3=gpipe"])
    for i in found["iterations"]:
        name = "gpipe" if i["step"] >= 3 else "zb-h1"
        check(i["schedule"] == name and
              abs(i["predicted_s"] * 5 - by[name][i["step"]]["seconds"]) < 1e-8,
              i)


@test
def weights_are_unaffected_by_events():
    make_plan(TWO_SITES % 8)
    write("e.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 1, to: 3, links: [west-east], latency: 30, transfer: x3}
          - {at: 2, rank: 1, rail: down}
        """)
    write("device.yaml", EVENTS)
    train = [*TRAIN, "--steps", "4"]
    if not can_train(run(*train, "--checkpoint", "without")):
        return
    for transport, found in over_transports(train, ["--events", "e.yaml"],
                                            ("inproc", "local", "tcp")):
        steps = found["iterations"]
        check([i["slow"] for i in steps] ==
              [[], ["west-east"], ["west-east", "rail of rank 1"], []], steps)
        # Two messages of 31 ms each bound the iteration from below.
        check(all(i["seconds"] > 0.062 for i in steps[1:3]), steps)
        check(steps[2]["seconds"] > 0.331, steps)  # delayed by 300 ms
        check(saved(transport, 4) == saved("without", 4),
              f"{transport}: weights")
    case("a device", [*train, "--events", "device.yaml"], code=1,
         err=r"device\.yaml:4: links: |which only the timed device supports")
    write("device.yaml", """
        longhaul: events/1
        events:
          - {from: 1, to: 3, device: 1, slower: x2}
        """)
    case("a device", [*train, "--events", "device.yaml"], code=1,
         err="which only the timed device supports")
    case("a profile", [*train, "--events", "e.yaml", "--profile-out", "f"],
         code=2, err="cannot be combined with --events")


@test
def both_predictions_include_events():
    """Tests the prediction with a shared processor, and the one with a
    processor for each rank."""
    make_plan(TWO_SITES % 8)
    write("e.yaml", """
        longhaul: events/1
        time_unit: ms
        events: [{from: 0, to: 9, links: [west-east], latency: 300}]
        """)
    own = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [PROGRAM, *TRAIN, "--events", "e.yaml", "--json"], cwd=WORK,
        env=ENVIRONMENT, capture_output=True, text=True, timeout=HANGS,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {own}))
    if can_train(done):
        found = json.loads(done.stdout)
        check(found["unshared_s"] == found["predicted_s"] > 0.6, found)


@test
def events_of_real_links_are_rejected():
    uniform("p.yaml")
    write("e.yaml", EVENTS)
    case("links", ["train", "p.yaml", "-s", "1f1b", "--events", "e.yaml",
                   "--real-links", "--speed", "9"], code=1,
         err="which requires emulated links")
    write("device.yaml", """
        longhaul: events/1
        events:
          - {from: 1, to: 3, device: 1, slower: x2}
        """)
    case("a device", ["train", "p.yaml", "-s", "1f1b", "--events",
                      "device.yaml", "--real-links", "--speed", "9"],
         out=r"\nevents +in 2 of 3 iterations")


finish()
