#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--events: iterations while links and devices become slow, played and run."""
import json
import re

from harness import (ROOT, case, check, finish, json_case, read, run, test,
                     uniform, write)

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
def the_published_trace_takes_as_long_as_published():
    """Whole trace on the direct path: 45.6 and 48.2 minutes by the model,
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
def an_iteration_takes_what_its_pipeline_takes_alone():
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
def people_see_one_screen():
    done = case("text", ["simulate", STAGES, "-s", "zb-h2", *DIRECT,
                         "--events", TRACE, "--steps", "1200"],
                out=r"\Aschedule +zb-h2, direct path\n"
                    r"iterations +1200, of which 630 have events\n")
    text = done.stdout if done else ""
    check(len(text.splitlines()) <= 24 and
          max(map(len, text.splitlines()), default=0) <= 80, text)
    check(re.search(r"340 to 409 +2-3, 3-4, 6-7 +4494 ms", text), text)


@test
def what_would_have_no_effect_is_refused():
    uniform("p.yaml")
    write("e.yaml", EVENTS)
    base = ["simulate", "p.yaml", "-s", "1f1b"]
    case("steps alone", [*base, "--steps", "3"], code=2,
         err=r"--steps is for --events")
    case("log alone", [*base, "--log", "l"], code=2,
         err=r"--log is for --events")
    case("events alone", [*base, "--events", "e.yaml"], code=2,
         err=r"how many iterations: --steps")
    for option in (["--trace", "t"], ["--html", "h"], ["--svg", "s"],
                   ["--jitter", "latency=0.1"], ["--objective", "makespan"]):
        case(option[0], [*base, "--events", "e.yaml", "--steps", "3", *option],
             code=2, err=r"is of one iteration; not with --events")
    write("rail.yaml", EVENTS + "  - {at: 6, rank: 2, rail: down}\n")
    case("a rail", [*base, "--events", "rail.yaml", "-n", "3"], code=1,
         err=r"rail\.yaml:6: rail: .*leave the event out")
    write("no.yaml", EVENTS.replace("0-1", "0-9"))
    case("no such link", [*base, "--events", "no.yaml", "-n", "3"], code=1,
         err=r"no\.yaml:4: links: '0-9' is no link of the pipeline")


finish()
