#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages copied to host memory and sent from there: train agrees with simulate on
every transport; options without effect are rejected.
"""
import json
import shutil
import subprocess

from harness import (HANGS, PROGRAM, UNDER_MPI, VIRTUAL, WORK, case, check,
                     finish, json_case, read, test, uniform, write)

DIRECT = ["--coupled", "1", "--receives", "late"]
ALL = ["--path", "delegated", "--staging", "500us"]
ONE_WAY = ["--path", "0>1=delegated", "--staging", "500us"]


def pipeline():
    write("p.yaml", "longhaul: pipeline/1\ntime_unit: ms\n"
          "microbatches: 4\ndevices: 2\nbackward: split\n"
          "uniform: {placement: ud, F: 3, D: 3, W: 3, memory: {F: 1, W: -1}}\n"
          "links: [{from: 0, to: 1, latency: 12, transfer: 0},\n"
          "        {from: 1, to: 0, latency: 12, transfer: 0}]\n")


def with_paths(command, *args):
    return [command, "p.yaml", "-s", "1f1b", *DIRECT, *args]


@test
def the_prediction_is_the_simulators():
    pipeline()
    direct = json_case("direct", with_paths("simulate"))["makespan_s"]
    for name, paths, path in (("all", ALL, "delegated"),
                              ("one way", ONE_WAY, "mixed")):
        want = json_case(name, with_paths("simulate", *paths))["makespan_s"]
        check(want != direct and (path == "mixed" or want < direct),
              f"{name}: nothing is gained: {want}, {direct}")
        for transport in ("inproc", "local"):
            found = json_case(f"{name} {transport}", with_paths(
                "train", *paths, "-n", "1", "--transport", transport,
                "--trace", "t.json"))
            check(found["predicted_s"] == want and
                  found["median_s"] >= want and
                  found["iterations"][0]["path"] == path, f"{name}: {found}")
            check("are delegated" in read("t.json"), "the trace's title")
        explained = json_case(f"explain {name}",
                              with_paths("explain", *paths))
        check(explained["predicted_s"] == want, explained)
        ways = {i["stream"]: i["path"] for i in explained["instructions"]
                if "path" in i}
        check(ways == {"send-next": "delegated",
                       "receive-next": "delegated" if path == "delegated"
                       else "direct"}, ways)
    case("in words", with_paths("train", *ONE_WAY, "-n", "1"),
         out=r"(?m)^path +mixed: messages of some links are copied to host "
             r"memory and sent\n +from there, 500 us a copy$")
    case("explained", with_paths("explain", *ALL),
         out=r"send-next +0F0 to rank 1 over 0-1, delegated, queue 0")


@test
def faster_with_its_copies():
    pipeline()
    want = json_case("simulate", with_paths("simulate", *ALL))["makespan_s"]
    found = json_case("ten times", with_paths("train", *ALL, "-n", "1",
                                              "--speed", "10"))
    check(abs(found["predicted_s"] - want / 10) < 1e-12, found)


@test
def it_works_with_events_and_schedule_switches():
    pipeline()
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n"
          "  - {from: 1, to: 2, links: [0-1], latency: 40}\n")
    want = json_case("simulate", with_paths(
        "simulate", *ONE_WAY, "--events", "e.yaml", "--steps", "3"))
    found = json_case("events", with_paths(
        "train", *ONE_WAY, "--events", "e.yaml", "-n", "3"))
    check([i["predicted_s"] for i in found["iterations"]] ==
          [i["seconds"] for i in want["iterations"]], (found, want))
    later = json_case("later", ["simulate", "p.yaml", "-s", "gpipe", *DIRECT,
                                *ALL])
    found = json_case("switched", with_paths(
        "train", *ALL, "-n", "2", "--schedule-at", "1=gpipe"))
    check(found["switches"][0]["refused"] is None and
          found["predicted_s"] == later["makespan_s"], found)


@test
def other_transports_run_it_too():
    if not shutil.which("mpirun"):
        print("SKIPPED transports: mpirun is not installed")
        return
    pipeline()
    want = json_case("simulate", with_paths("simulate", *ALL))["makespan_s"]
    for transport in ("tcp", "ucx"):
        for more in ([], ["--real-links"]):
            done = subprocess.run(
                ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2",
                 PROGRAM, *with_paths("train", *ALL, "-n", "1", "--transport",
                                      transport, *more, "--json")],
                cwd=WORK, env=UNDER_MPI, text=True, timeout=HANGS,
                capture_output=True, check=False)
            if "this build" in done.stderr or "cannot be loaded" in done.stderr:
                print(f"SKIPPED: {done.stderr}")
                continue
            what = f"{transport} {more}: {done.stderr}"
            check(done.returncode == 0, what)
            found = json.loads(done.stdout or "{}")
            check(found.get("predicted_s") == want and
                  (more or found["median_s"] >= want), f"{what} {found}")


@test
def options_without_effect_are_rejected():
    pipeline()
    for command in ("train", "explain"):
        case(f"{command} alike", [command, "p.yaml", "-s", "1f1b", "--path",
                                  "delegated"], 2,
             err="--path has no effect: no send blocks")
        case(f"{command} copies", with_paths(command, "--staging", "1ms"), 2,
             err="--staging requires --path")
        case(f"{command} no link", with_paths(command, "--path",
                                              "0-7=delegated"), 1,
             err="--path: '0-7' is neither a link of the pipeline")
    case("chosen", with_paths("train", *ALL, "--adapt"), 2,
         err="--path cannot be combined with --adapt, which chooses the path")
    uniform("many.yaml", devices=2, microbatches=100, times=(1, 1, 1))
    case("queues", ["train", "many.yaml", "-s", "gpipe", "--path", "delegated",
                    "--staging", "65ms"], 1,
         err="needs 65 queues between two ranks")


@test
def activations_are_stored_on_the_host():
    uniform("h.yaml", devices=2, microbatches=4, times=(3, 3, 3), latency=6,
            limit=2)
    plain = json_case("plain", ["simulate", "h.yaml", "-s", "zb-h2",
                                "--host-memory", "all"])
    hosted = ["h.yaml", "-s", "zb-h2", "--host-memory", "all", "--host-copy",
              "2ms"]
    want = json_case("simulate", ["simulate", *hosted])
    found = json_case("train", ["train", *hosted, "-n", "1"])
    check(want["makespan_s"] > plain["makespan_s"], "copies take no time")
    check(found["predicted_s"] == want["makespan_s"] and
          found["median_s"] >= want["makespan_s"], found)
    case("alone", ["train", "h.yaml", "--host-copy", "2ms"], 2,
         err="--host-copy requires --host-memory")
    case("faster", ["train", *hosted, "--speed", "2"], 2,
         err="--host-memory cannot be combined with --speed or --inject")


@test
def a_run_that_adapts_warms_up_into_host_memory():
    """Four activations fit: only with host memory do more forwards hide the
    slow link."""
    uniform("h.yaml", devices=4, microbatches=12, times=(2, 2, 2), limit=4)
    write("e.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 12, to: 60, links: [0-1], latency: 4}
        """)
    adapting = ["h.yaml", "-s", "zb-h1", "--events", "e.yaml", "--adapt",
                "--steps", "40"]
    host = ["--host-memory", "all", "--host-copy", "0.1ms"]
    clipped = json_case("clipped", ["simulate", *adapting])
    want = json_case("simulate", ["simulate", *adapting, *host])
    found = json_case("train", ["train", *adapting, *host], program=VIRTUAL)
    end = want["iterations"][-1]["seconds"]
    check(want["switches"] and end < 0.9 * clipped["iterations"][-1]["seconds"],
          (want["switches"], clipped["switches"]))
    last = found["switches"][-1] if found["switches"] else None
    check(last and last["to"] == want["switches"][-1]["to"] and
          abs(last["predicted_s"] - end) < 1e-6, found["switches"])
    times = [i["seconds"] for i in found["iterations"][last["step"]:]]
    check(all(abs(time - end) < 1e-4 * end for time in times), times)


finish()
