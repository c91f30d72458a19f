#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that cannot be written or read, and what is no file: each has one clear
answer, and the exit status shows it."""
import json
import os
import pathlib
import re
import resource
import signal
import subprocess

from harness import (ANY, ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, case, check,
                     finish, json_case, makes, read, run, test, uniform, write)

NO_SPACE = r"No space left on device"
PLAYED = ["-s", "1f1b", "--speed", "100", "--message-bytes", "64"]


@makes("p.yaml", "s.csv", "plan.json", "trace.json", "scenario.yaml",
       "job.yaml")
def inputs():
    uniform("p.yaml", devices=2, microbatches=4, latency=8)
    run("schedule", "p.yaml", "-m", "1f1b", "-o", "s.csv")
    (WORK / "job.yaml").write_text(
        (ROOT / "examples/tiny-llama-cpu.yaml").read_text())
    run("plan", "job.yaml", "--no-optimal", "-o", "plan.json")
    run("simulate", "p.yaml", "-s", "s.csv", "--trace", "trace.json")
    text = (ROOT / "examples/optical-nsfnet.yaml").read_text()
    text = re.sub(r"seeds: .*", "seeds: [1]", text)
    text = re.sub(r"(  ksp-ff.*\n)(  .*\n)*", r"\1", text)
    write("scenario.yaml", text.replace("../data", str(ROOT / "data")))


def commands():
    """Each command, as something that prints."""
    return {
        "plan": ["plan", "job.yaml", "--no-optimal", "--json"],
        "compare": ["compare", "p.yaml", "-m", "1f1b,gpipe"],
        "simulate": ["simulate", "p.yaml", "-s", "s.csv"],
        "train": ["train", "p.yaml", *PLAYED, "-n", "1"],
        "profile": ["profile", "job.yaml"],
        "explain": ["explain", "p.yaml", "-s", "s.csv"],
        "schedule": ["schedule", "p.yaml", "-m", "1f1b"],
        "check": ["check", "p.yaml", "s.csv"],
        "report": ["report", "trace.json"],
        "export": ["export", "plan.json", "--to", "pytorch"],
        "optical": ["optical", "scenario.yaml"]}


@test
def every_command_says_that_its_output_cannot_be_written():
    inputs()
    listed = re.findall(r"^  (\w+) ", re.search(
        r"Commands:\n(.*?)\n\n", run("--help").stdout, re.S)[1], re.M)
    check(set(listed) == set(commands()), f"commands: {listed}")
    found = json_case("export", [*commands()["export"]])
    check(found["to"] == "pytorch" and found["text"].startswith("0F0"),
          f"export --json: {found}")
    for name, args in commands().items():
        for more in ([], ["--json"], ["--help"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run(
                    [PROGRAM, *args, *more], cwd=WORK, stdout=full, text=True,
                    stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=HANGS,
                    check=False)
            check(done.returncode == 1 and
                  re.search(rf"\Alonghaul: cannot write to standard output: "
                            rf"{NO_SPACE}\n\Z", done.stderr),
                  f"{name} {more}: {done.returncode} {done.stderr!r}")
        case(f"{name} -o /dev/full", [*args, "-o", "/dev/full"], 1, err=NO_SPACE)
    # Closed, standard output is none.
    done = subprocess.run(["sh", "-c", '"$0" simulate p.yaml -s s.csv >&-',
                           PROGRAM], cwd=WORK, capture_output=True, check=False,
                          timeout=HANGS)
    check(done.returncode == 1 and b"cannot write" in done.stderr,
          f"closed: {done}")


@test
def every_option_that_names_an_output_says_that_it_cannot_be_written():
    inputs()
    for name, args in commands().items():
        text = run(name, "--help").stdout
        for option in re.findall(r"--(html|svg|trace|stages|certificate)\b",
                                 text.split("Options:")[1]):
            if option == "certificate" and name == "check":
                continue
            more = {"stages": ["--form", "compute_comms", "-o", "x.csv"],
                    "certificate": ["-m", "optimal"]}.get(option, [])
            if option == "html" and name == "schedule":
                more = ["-m", "optimal", "--pareto"]
            case(f"{name} --{option}", [*args, *more, f"--{option}",
                                        "/dev/full"], 1, err=NO_SPACE)


@test
def a_log_that_cannot_be_written_is_said_once_and_the_run_goes_on():
    inputs()
    for transport in ("inproc", "local"):
        found = case(f"log on {transport}",
                     ["train", "p.yaml", *PLAYED, "-n", "4", "--transport",
                      transport, "--log", "/dev/full", "-q", "--json"], 1,
                     out=ANY,
                     err=rf"\Alonghaul: /dev/full: cannot write: {NO_SPACE}; "
                         r"the log ends here, the run goes on\n\Z")
        check(len(json.loads(found.stdout)["iterations"]) == 4,
              f"all iterations were run: {found.stdout}")
    case("a log that can be", ["train", "p.yaml", *PLAYED, "-n", "4", "--log",
                               "log"], out=ANY)
    check(len(read("log").splitlines()) == 4, "a line each")
    case("a log that is a folder", ["train", "p.yaml", *PLAYED, "--log", "."],
         1, err=r"\Alonghaul: \.: [^\n]*directory[^\n]*\n\Z")


@test
def a_log_that_becomes_full_keeps_whole_lines():
    """As on a disk that fills up while the run goes on."""
    inputs()

    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    done = case("a log of 300 bytes",
                ["train", "p.yaml", *PLAYED, "-n", "12", "--log", "log"], 1,
                out=r"iterations    12,", err=r"\Alonghaul: log: cannot write: "
                                              r"File too large; [^\n]*\n\Z",
                preexec_fn=little_room)
    lines = read("log").splitlines()
    check(1 <= len(lines) < 12 and read("log").endswith("\n") and
          [json.loads(line)["step"] for line in lines] ==
          list(range(len(lines))), f"the log: {read('log')!r} {done.stderr}")


finish()
