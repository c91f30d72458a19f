#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that cannot be written or read, and special files: each case has a defined
result and exit status.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess

from harness import (ANY, ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, case, check,
                     finish, json_case, makes, read, read_line, run, test,
                     uniform, until, write)
from input_files import HAS_PLAYGROUND, MEGATRON

NO_SPACE = r"No space left on device"
PLAYED = ["-s", "1f1b", "--speed", "100", "--message-bytes", "64"]


@makes("p.yaml", "s.csv", "plan.json", "trace.json",
       "scenario.yaml", "job.yaml")
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
    """Lists each command with arguments for which it prints."""
    all_of_them = {
        "init": ["init", "-m", "llama3-8b"],
        "import": ["import", "--from", "megatron", "--nodes", "2", MEGATRON],
        "plan": ["plan", "job.yaml", "--no-optimal", "--json"],
        "size": ["size", "job.yaml", "--tokens", "1K", "--deadline", "90d"],
        "playground": ["playground"],
        "compare": ["compare", "p.yaml", "-m", "1f1b,gpipe"],
        "simulate": ["simulate", "p.yaml", "-s", "s.csv"],
        "train": ["train", "p.yaml", *PLAYED, "-n", "1"],
        "profile": ["profile", "job.yaml"],
        "explain": ["explain", "p.yaml", "-s", "s.csv"],
        "schedule": ["schedule", "p.yaml", "-m", "1f1b"],
        "check": ["check", "p.yaml", "s.csv"],
        "diagnose": ["diagnose", "trace.json"],
        "report": ["report", "trace.json"],
        "export": ["export", "plan.json", "--to", "pytorch"],
        "packets": ["packets", "--gbps", "1", "--latency", "1ms",
                    "--message", "9kB", "--seeds", "1"],
        "optical": ["optical", "scenario.yaml"]}
    return {name: args for name, args in all_of_them.items()
            if name != "playground" or HAS_PLAYGROUND}


@test
def every_command_reports_output_write_errors():
    inputs()
    listed = re.findall(r"^  (\w+) ", re.search(
        r"Commands:\n(.*?)\n\n", run("--help").stdout, re.S)[1], re.M)
    check(set(listed) - {"playground"} == set(commands()) - {"playground"},
          f"commands: {listed}")
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
    # Standard output is closed.
    done = subprocess.run(["sh", "-c", '"$0" simulate p.yaml -s s.csv >&-',
                           PROGRAM], cwd=WORK, capture_output=True, check=False,
                          timeout=HANGS)
    check(done.returncode == 1 and b"cannot write" in done.stderr,
          f"closed: {done}")


@test
def every_output_option_reports_write_errors():
    inputs()
    for name, args in commands().items():
        text = run(name, "--help-all").stdout
        for option in re.findall(r"--(html|svg|trace|stages|certificate)\b",
                                 text.partition("Options:")[2]):
            if option == "certificate" and name == "check":
                continue
            more = {"stages": ["--form", "compute_comms", "-o", "x.csv"],
                    "certificate": ["-m", "optimal"]}.get(option, [])
            if option == "html" and name == "schedule":
                more = ["-m", "optimal", "--pareto"]
            case(f"{name} --{option}", [*args, *more, f"--{option}",
                                        "/dev/full"], 1, err=NO_SPACE)


@test
def a_log_write_error_is_reported_once_and_the_run_continues():
    inputs()
    for transport in ("inproc", "local"):
        found = case(f"log on {transport}",
                     ["train", "p.yaml", *PLAYED, "-n", "4", "--transport",
                      transport, "--log", "/dev/full", "-q", "--json"], 1,
                     out=ANY,
                     err=rf"\Alonghaul: /dev/full: cannot write: {NO_SPACE}; "
                         r"the log ends here, the run continues\n\Z")
        check(len(json.loads(found.stdout)["iterations"]) == 4,
              f"all iterations were run: {found.stdout}")
    case("a log that can be", ["train", "p.yaml", *PLAYED, "-n", "4", "--log",
                               "log"], out=ANY)
    check(len(read("log").splitlines()) == 4, "one per line")
    case("a log that is a folder", ["train", "p.yaml", *PLAYED, "--log", "."],
         1, err=r"\Alonghaul: \.: [^\n]*directory[^\n]*\n\Z")


@test
def a_log_that_becomes_full_keeps_whole_lines():
    """The disk fills up during the run."""
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


# --- one file under two names -----------------------------------------------------
ONE_FILE = (r"\Alonghaul: \w+: [^\n]*(are the same file|would overwrite)"
            r"[^\n]*\nTry")


@test
def an_output_that_is_an_input_or_another_output_is_refused():
    inputs()
    os.symlink("p.yaml", WORK / "link.yaml")
    os.link(WORK / "p.yaml", WORK / "hard.yaml")
    os.symlink("new.html", WORK / "nowhere")
    (WORK / "folder").mkdir()
    os.symlink("folder", WORK / "again")
    before = {path: (WORK / path).read_bytes() for path in
              ("p.yaml", "s.csv", "plan.json", "trace.json")}
    simulate = ["simulate", "p.yaml", "-s", "s.csv"]
    for args in (
            [*simulate, "--html", "p.yaml"], [*simulate, "--html", "./p.yaml"],
            [*simulate, "--svg", "link.yaml"], [*simulate, "-o", "hard.yaml"],
            [*simulate, "--trace", "s.csv"],
            [*simulate, "--html", "x.html", "--svg", "x.html"],
            [*simulate, "--html", "x.html", "--trace", "./x.html"],
            [*simulate, "--html", "new.html", "--trace", "nowhere"],
            [*simulate, "--html", "folder/x", "--trace", "again/x"],
            [*simulate, "-o", "x", "--trace", WORK / "x"],
            ["schedule", "p.yaml", "-o", "p.yaml"],
            ["schedule", "s.links.csv", "-o", "s.csv"],
            ["schedule", "p.yaml", "-m", "optimal", "-o", "x.csv",
             "--certificate", "x.csv"],
            ["schedule", "p.yaml", "-m", "optimal", "-o", "x.csv",
             "--certificate", "x.links.csv"],
            ["compare", "p.yaml", "--html", "p.yaml"],
            ["check", "p.yaml", "s.csv", "-o", "s.csv"],
            ["explain", "plan.json", "-o", "plan.json"],
            ["export", "plan.json", "--to", "pytorch", "-o", "plan.json"],
            ["plan", "job.yaml", "-o", "job.yaml"],
            ["plan", "job.yaml", "--html", "plan.json"],
            ["plan", "plan.json"],
            ["profile", "job.yaml", "-o", "job.yaml"],
            ["optical", "scenario.yaml", "-o", "scenario.yaml"],
            ["report", "trace.json", "-o", "trace.json"],
            ["report", "--predicted", "trace.json", "--measured", "s.csv",
             "-o", "s.csv"],
            ["train", "p.yaml", "--log", "p.yaml"],
            ["train", "p.yaml", "--trace", "t.json", "--log", "t.json"],
            ["train", "plan.json", "--device", "cpu", "--data", "s.csv",
             "--html", "s.csv"]):
        case("one file", args, 2, err=ONE_FILE)
    for path, was in before.items():
        check((WORK / path).read_bytes() == was, f"{path} is as it was")
    # A path that is no file, such as a device, may be named twice.
    case("nothing", [*simulate, "--html", "/dev/null", "--svg", "/dev/null",
                     "-o", "/dev/null"])
    case("two files", [*simulate, "--html", "a", "--svg", "b"], out=ANY)


@test
def an_output_that_a_job_or_a_scenario_names_is_refused():
    inputs()
    (WORK / "sub").mkdir()
    shutil.copy(ROOT / "tests/data/configs/Llama-3.2-1B/config.json",
                WORK / "sub/config.json")
    shutil.copy(ROOT / "data/topologies/nsfnet.yaml", WORK / "sub/net.yaml")
    write("sub/profile.json", """
        {"longhaul": "profile/1", "entries": [{"kind": "layer",
         "sequence": 512, "F_us": 9, "D_us": 9, "W_us": 9}]}""")
    write("named.yaml", """
        longhaul: job/1
        model: sub/config.json
        profile: sub/profile.json
        training: {global_batch: 4, sequence: 512}
        cluster:
          gpu: a100
          gpus_per_node: 2
          node_link: {gbps: 2400, latency_us: 3}
          datacenters: [{name: a, nodes: 1}]
        """)
    scenario = (ROOT / "examples/optical-nsfnet.yaml").read_text()
    write("optical.yaml", re.sub(r"^topology:.*$", "topology: sub/net.yaml",
                                 scenario, flags=re.M))
    os.symlink("sub/config.json", WORK / "link.json")
    write("s.links.csv", "0-1,0F0,0F1,0F2,0F3\n")
    before = {path: (WORK / path).read_bytes() for path in (
        "sub/config.json", "sub/profile.json", "sub/net.yaml", "s.links.csv")}
    for args in (["plan", "named.yaml", "-o", "sub/config.json"],
                 ["plan", "named.yaml", "-o", "link.json"],
                 ["plan", "named.yaml", "-o", "x", "--html",
                  "sub/profile.json"],
                 ["compare", "named.yaml", "--html", "sub/config.json"],
                 ["profile", "named.yaml", "-o", "sub/profile.json"],
                 ["optical", "optical.yaml", "--html", "sub/net.yaml"],
                 ["simulate", "p.yaml", "-s", "s.csv", "--html",
                  "s.links.csv"]):
        case("a file that is named", args, 2, err=ONE_FILE)
    for path, was in before.items():
        check((WORK / path).read_bytes() == was, f"{path} is as it was")
    (WORK / "s.links.csv").unlink()


@test
def default_outputs_overwrite_only_their_own_format():
    inputs()
    other = "notes about the plan\n"
    for name, args in (("plan.json", ["plan", "job.yaml", "--no-optimal"]),
                       ("report.html", ["report", "trace.json"])):
        write(name, other)
        case(f"{name} of somebody", args, 1,
             err=rf"\Alonghaul: {name} exists and was not written by "
                 rf"'longhaul {args[0]}'; name another file, or this one, with "
                 r"-o\n\Z")
        check(read(name) == other, f"{name} stays")
        case(f"{name} on request", [*args, "-o", name], out=ANY)
        ours = read(name)
        case(f"{name} again", args, out=ANY)
        check(read(name) == ours, f"{name} was replaced")
        (WORK / name).unlink()
        case(f"{name} that is not there", args, out=ANY)
        (WORK / name).unlink()
        os.mkdir(WORK / name)
        case(f"{name}, a folder", args, 1, err=r"is a directory; name a file")
        os.rmdir(WORK / name)
        write(name, "")
        case(f"{name}, empty", args, out=ANY)
    write("plan.json", other)
    case("--json needs no file", ["plan", "job.yaml", "--no-optimal", "--json"],
         out=ANY)
    check(read("plan.json") == other, "plan.json stays")


# --- special files ------------------------------------------------------------
@test
def folders_are_rejected_as_files():
    inputs()
    (WORK / "d").mkdir()
    folder = r"\Alonghaul: d/?: [^\n]*(directory|not a file)[^\n]*\n\Z"
    train = ["train", "plan.json", "--device", "cpu", "-n", "1"]
    for args in (["simulate", "d"], ["simulate", "d/"], ["plan", "d"],
                 ["report", "d"], ["optical", "d"], ["profile", "d"],
                 ["simulate", "p.yaml", "-s", "./d"],
                 ["check", "p.yaml", "d"],
                 ["check", "p.yaml", "s.csv", "--certificate", "d"],
                 ["report", "--predicted", "trace.json", "--measured",
                  "trace.json", "--log", "d"],
                 [*train, "--data", "d"],
                 [*train, "--data", "p.yaml", "--tokenizer", "d"],
                 ["train", "p.yaml", *PLAYED, "--log", "d"],
                 ["schedule", "p.yaml", "-o", "d"],
                 ["simulate", "p.yaml", "--html", "d"]):
        case("a folder", args, 1, err=folder.replace("d/?", r"(\./)?d/?"))
    case("a file is no folder", [*train, "--data", "p.yaml", "--resume",
                                 "p.yaml"], 1, err=r"p\.yaml")
    case("nor below one", ["simulate", "p.yaml", "-s", "s.csv", "--html",
                           "p.yaml/x"], 1, err=r"p\.yaml/x: [^\n]*directory")


@test
def a_pipe_is_read_and_a_fifo_without_writer_is_rejected():
    inputs()
    want = run("simulate", "p.yaml", "-s", "s.csv", "--json").stdout
    for args in ('simulate <(cat p.yaml) -s s.csv --json',
                 'simulate <(sleep 0.3; cat p.yaml) -s <(cat s.csv) --json',
                 'simulate p.yaml -s s.csv --json -o >(cat)',
                 'simulate p.yaml -s s.csv --json -o /dev/stdout',
                 'simulate - -s s.csv --json < <(cat p.yaml)',
                 'simulate /dev/stdin -s s.csv --json < p.yaml'):
        done = subprocess.run(["bash", "-c", f'"$0" {args} | cat', PROGRAM],
                              cwd=WORK, capture_output=True, text=True,
                              env=ENVIRONMENT, timeout=HANGS, check=False)
        check(done.stdout.replace("/dev/fd/62", "s.csv") == want and
              done.stderr == "",
              f"{args}: {done.stdout[:300]!r} {done.stderr!r}")
    os.mkfifo(WORK / "fifo.csv")
    nobody = r"\Alonghaul: fifo\.csv: [^\n]*is a FIFO without a "
    no_reader = r"\Alonghaul: fifo\.csv: FIFO without a reader; "
    waiting = [(args, says, subprocess.Popen(
        [PROGRAM, *args], cwd=WORK, env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)) for args, says in (
            (["simulate", "p.yaml", "-s", "s.csv", "--html", "fifo.csv"],
             nobody + "reader"),
            (["train", "p.yaml", *PLAYED, "--log", "fifo.csv"], no_reader))]
    for args, says, process in waiting:
        out, err = process.communicate(timeout=HANGS)
        check(process.returncode == 1 and out == "" and
              re.search(says, err), f"{args}: {err!r}")
    waiting = [(args, subprocess.Popen(
        [PROGRAM, *args], cwd=WORK, env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)) for args in (
            ["simulate", "fifo.csv"], ["plan", "fifo.csv"],
            ["report", "fifo.csv"], ["check", "p.yaml", "fifo.csv"],
            ["simulate", "p.yaml", "-s", "fifo.csv"],
            ["train", "plan.json", "--device", "cpu", "--data", "p.yaml",
             "--tokenizer", "fifo.csv"])]
    for args, process in waiting:
        out, err = process.communicate(timeout=HANGS)
        check(process.returncode == 1 and out == "" and
              re.search(nobody + "writer; ", err), f"{args}: {err!r}")
    for option in ("--data", "--weights"):
        data = [] if option == "--data" else ["--data", "p.yaml"]
        case(f"{option} of a FIFO", ["train", "plan.json", "--device", "cpu",
                                     *data, option, "fifo.csv"], 1,
             err=r"\Alonghaul: (rank \d+: )?fifo\.csv: is not a file\n\Z")
    # A FIFO with a writer works like a pipe.
    writer = subprocess.Popen(["sh", "-c", "cat p.yaml > fifo.csv"], cwd=WORK)
    case("a FIFO", ["simulate", "fifo.csv", "-s", "s.csv"], out=ANY)
    writer.wait(timeout=HANGS)
    reader = subprocess.Popen(["sh", "-c", "cat fifo.csv > got.html"], cwd=WORK)
    case("to a FIFO", ["simulate", "p.yaml", "-s", "s.csv", "--html",
                       "fifo.csv"], out=ANY)
    reader.wait(timeout=HANGS)
    check("<html" in read("got.html"), "all came through")


@test
def a_log_without_a_reader_does_not_end_the_run():
    inputs()
    os.mkfifo(WORK / "fifo")
    reader = os.open(WORK / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(
        [PROGRAM, "train", "p.yaml", *PLAYED, "-n", "1000000", "--log", "fifo",
         "--json"], cwd=WORK, env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def has_a_line():
        try:
            return b"\n" in os.read(reader, 4096)
        except BlockingIOError:
            return False

    check(until(has_a_line, process), "the log has its first line")
    os.close(reader)
    said = read_line(process.stderr, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANGS)
    check(process.returncode == 1 and
          re.search(r"\Alonghaul: fifo: cannot write: Broken pipe; ", said) and
          json.loads(out)["interrupted"] and "fifo" not in err,
          f"{process.returncode} {said!r} {err!r} {out[:200]!r}")


@test
def a_closed_standard_output_does_not_end_the_run():
    """Nor does a closed standard error. The ranks run in other processes."""
    inputs()

    def train(log, *more, **files):
        reader, pipe = os.pipe()
        os.close(reader)
        (WORK / log).unlink(missing_ok=True)
        done = subprocess.run(
            [PROGRAM, "train", "p.yaml", *PLAYED, "-n", "30", "--progress", "1",
             "--log", log, *more], cwd=WORK, env=ENVIRONMENT, text=True,
            timeout=HANGS, stdout=pipe, **files or {"stderr": pipe})
        os.close(pipe)
        check(len(read(log).splitlines()) == 30, f"{more}: all iterations")
        return done

    for more in [], ["--ranks", "local"], ["--ranks", "local",
                                           "--max-restarts", "1"]:
        done = train("log", *more, stderr=subprocess.PIPE)
        check(done.returncode == 1 and re.fullmatch(
            "longhaul: cannot write to standard output: Broken pipe; no more "
            "progress is printed, the run continues\n"
            "longhaul: cannot write to standard output: Broken pipe\n",
            done.stderr), f"{more}: {done}")
    done = train("both", "--json")
    check(done.returncode == -signal.SIGPIPE, f"both: {done}")


@test
def unreadable_link_orders_are_reported():
    inputs()
    os.symlink("gone", WORK / "s.links.csv")
    for args in (["simulate", "p.yaml", "-s", "s.csv"],
                 ["check", "p.yaml", "s.csv"],
                 ["explain", "p.yaml", "-s", "s.csv"],
                 ["train", "p.yaml", *PLAYED[2:], "-s", "./s.csv"]):
        case("a link to nothing", args, 1,
             err=r"\Alonghaul: (\./)?s\.links\.csv: [^\n]* dangling symbolic "
                 r"link; remove it\n\Z")
    case("not asked for", ["check", "p.yaml", "s.csv", "--fifo"], out=ANY)
    (WORK / "s.links.csv").unlink()
    case("none", ["check", "p.yaml", "s.csv"], out=ANY)
    (WORK / "s.links.csv").mkdir()
    case("a folder", ["check", "p.yaml", "s.csv"], 1,
         err=r"s\.links\.csv: is a directory")


@test
def a_memory_shortage_is_never_printed_as_zero():
    """The memory shortage of a pipeline or job has a unit in which it is not
    zero."""
    text = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    low, high = 1e-6, 4.0
    for _ in range(40):
        at = (low + high) / 2
        write("tight.yaml", text.replace("memory_gib: 4", f"memory_gib: {at}"))
        done = run("plan", "tight.yaml", "--no-optimal", "-o", "x.json")
        check(not re.search(r"[^\d.]0(\.0+)? [GMK]?i?B", done.stderr +
                            done.stdout), f"{at}: {done.stderr!r}")
        low, high = (low, at) if done.returncode == 0 else (at, high)
        if done.returncode:
            needs = re.search(r"at least ([\d.e-]+) GiB \(now ", done.stderr)
            check(needs and float(needs[1]) > at, f"{at}: {done.stderr!r}")


ONE_GPU = """longhaul: job/1
model: llama3-8b
training: {{global_batch: 32, sequence: 2048{training}}}
cluster:
  gpu: {{preset: h200, memory_gib: {memory}}}
  memory_reserve: 0%
  gpus_per_node: 1
  datacenters: [{{name: here, nodes: 1}}]
layout: {{{layout}}}
"""


@test
def the_stated_memory_suffices():
    """The stated memory suffices and little less does not; only settings that
    the job fixes are named."""
    def plan(memory, training="", layout=""):
        write("one.yaml", ONE_GPU.format(memory=memory, training=training,
                                         layout=layout))
        return run("plan", "one.yaml", "--no-optimal", "-q", "-o", "x.json")
    said = plan(130).stderr
    needs = float(re.search(r"use GPUs with at least ([\d.]+) GiB \(now 130; "
                            r".*recompute full\)\n\Z", said)[1])
    for memory, status in (needs * 1.001, 0), (0.99 * needs, 1):
        done = plan(memory)
        check(done.returncode == status, f"{said!r}, {memory}: {done}")
    check("training.recompute: full with GPUs of" in plan(
        130, ", recompute: none").stderr, "recomputation is fixed")
    check(plan(130, "", "tensor: 1").stderr.endswith(
        ", or fix less of layout\n"), "the layout is fixed")


finish()
