#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocking sends, and receives that are posted late: train agrees with simulate on
every transport, or rejects the options.
"""
import json
import shutil
import subprocess

from harness import (HANGS, PROGRAM, UNDER_MPI, WORK, case, check, finish,
                     json_case, read, run, test, uniform)

DIRECT = ["--coupled", "1", "--receives", "late"]


def pipeline():
    """Writes 1F1B on two devices, 12 ms each way, with blocking sends and late
    receives."""
    uniform("p.yaml", devices=2, microbatches=4, times=(3, 3, 3), latency=12)
    return "p.yaml"


def slow_train(*args):
    """On some machines a pass may take arbitrarily long, so only minimum times
    are tested."""
    return ["train", "p.yaml", "-s", "1f1b", *args, "-n", "1"]


@test
def the_prediction_is_the_simulators():
    pipeline()
    direct = json_case("direct", ["simulate", "p.yaml", "-s", "1f1b", *DIRECT])
    free = json_case("free", ["simulate", "p.yaml", "-s", "1f1b"])
    check(direct["makespan_s"] > free["makespan_s"], "the queue costs nothing")
    for transport in ("inproc", "local"):
        found = json_case(transport, slow_train(
            *DIRECT, "--transport", transport, "--trace", "t.json"))
        check(found["predicted_s"] == direct["makespan_s"] and
              found["coupled"] == 1 and found["receives"] == "late",
              f"{transport}: {found}")
        check(found["median_s"] >= direct["makespan_s"],
              f"{transport}: nothing was blocked: {found}")
        check("a queue of 1 sends" in read("t.json"), "the trace's title")
    found = json_case("free", slow_train())
    check(found["coupled"] == 0, f"sends that do not block: {found}")
    case("in words", slow_train(*DIRECT),
         out=r"(?m)^path +direct: passes block behind 1 message on its way, "
             r"receives late$")
    explained = json_case("explain", ["explain", "p.yaml", "-s", "1f1b",
                                      *DIRECT])
    check(explained["predicted_s"] == direct["makespan_s"] and
          explained["coupled"] == 1, explained)


@test
def other_transports_run_it_too():
    if not shutil.which("mpirun"):
        print("SKIPPED transports: mpirun is not installed")
        return
    pipeline()
    want = json_case("simulate", ["simulate", "p.yaml", "-s", "1f1b", *DIRECT])
    for transport in ("tcp", "ucx"):
        for more in ([], ["--real-links"]):
            done = subprocess.run(
                ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2",
                 PROGRAM, *slow_train(*DIRECT, "--transport", transport, *more,
                                      "--json")],
                cwd=WORK, env=UNDER_MPI, text=True, timeout=HANGS,
                capture_output=True, check=False)
            if "this build" in done.stderr or "cannot be loaded" in done.stderr:
                print(f"SKIPPED: {done.stderr}")
                continue
            what = f"{transport} {more}: {done.stderr}"
            check(done.returncode == 0, what)
            found = json.loads(done.stdout or "{}")
            check(found.get("predicted_s") == want["makespan_s"] and
                  (more or found["median_s"] >= want["makespan_s"]),
                  f"{what} {found}")


@test
def deadlocks_are_rejected():
    uniform("loop.yaml", devices=2, microbatches=4, placement="loop", chunks=2)
    for command in ("train", "explain", "simulate"):
        case(f"{command} stops", [command, "loop.yaml", "-s", "gpipe", *DIRECT],
             1, err=r"deadlock: device 0 stops after 0F3 because its send "
                    r"queue stays full; make the queue longer")
    done = run("train", "loop.yaml", "-s", "gpipe", "--coupled", "4",
               "--receives", "late", "--speed", "10", "-n", "1")
    check(done.returncode == 0, f"a longer queue: {done.stderr}")


finish()
