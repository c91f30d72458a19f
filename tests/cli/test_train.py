#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Execution: train, explain, profile, and reports of runs."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess

from harness import (ANY, ENVIRONMENT, HANGS, PROGRAM, ROOT, UNDER_MPI, WORK,
                     case, check, finish, json_case, read, read_line, uniform,
                     until, without_progress, write)
from harness import run as run_once

uniform("p.yaml", latency=8, transfer=1, limit=4)
QUIET = ["train", "p.yaml", "-s", "zb-h1"]

# --- explain ------------------------------------------------------------------
case("explain", ["explain", "p.yaml", "-s", "zb-h1", "--rank", "1"],
     out=r"rank +1 of 4\n.*free of deadlock.*receive-prev +1F0 from rank 0")
found = json_case("explain as JSON",
                  ["explain", "p.yaml", "-s", "1f1b", "--receives", "late"])
check(found["ranks"] == 4 and found["receives"] == "late" and
      found["receive_buffers"] == 1, f"explain --json: {found.keys()}")
streams = {i["stream"] for i in found["instructions"]}
check(streams == {"compute", "send-next", "receive-next"},
      f"rank 0's streams: {streams}")
case("explain a rank that is not there", ["explain", "p.yaml", "-r", "4"], 2,
     err="out of range; ranks are 0 to 3")

# --- timed runs ------------------------------------------------------------------
for transport in ("inproc", "local"):
    found = json_case(f"train over {transport}", [
        *QUIET, "--transport", transport, "--steps", "2", "--trace",
        f"{transport}.json", "--log", "log.jsonl"])
    check(found["predicted_s"] == 0.458 and len(found["iterations"]) == 2,
          f"train --json: {found}")
    for one in found["iterations"]:
        check(one["loss"] is None and one["seconds"] >= 0.458,
              f"an iteration over {transport}: {one}")
    check(json.loads(read(f"{transport}.json"))["source"] == "measured",
          "the trace is measured")
lines = [json.loads(line) for line in read("log.jsonl").splitlines()]
check([line["step"] for line in lines] == [0, 1, 0, 1], f"the log: {lines}")

case("the prediction's trace",
     ["simulate", "p.yaml", "-s", "zb-h1", "--trace", "simulated.json"],
     out=ANY)
found = json_case("report of both", [
    "report", "--predicted", "simulated.json", "--measured", "inproc.json",
    "-o", "both.html"])
check(found["passes"] == 4 * 12 * 3 and found["only_measured"] == 0 and
      found["error"] >= 0 and found["messages"]["n"] == 2 * 3 * 12,
      f"report --json: {found}")
found = json_case("report of all iterations", [
    "report", "--predicted", "simulated.json", "--measured", "local.json",
    "--log", "log.jsonl", "-o", "both.html"])
check([(one["step"], one["seconds"] >= .458, abs(
    one["error"] - (one["seconds"] / .458 - 1)) < 1e-6)
       for one in found["iterations"]] == [(0, True, True), (1, True, True)] and
      found["median_s"] >= .458, f"report --log: {found}")
case("the same for people", [
    "report", "--predicted", "simulated.json", "--measured", "local.json",
    "--log", "log.jsonl", "-o", "both.html"],
     out=r"iterations +2 +458 ms .* %, median\n +iteration +[12] .*at worst")
write("bad.jsonl", '{"step": 0, "seconds": 1}\n{"step": 1}\n')
case("not a log", ["report", "--predicted", "simulated.json", "--measured",
                   "local.json", "--log", "bad.jsonl"], 1, err="bad.jsonl:2:")
case("a log alone", ["report", "local.json", "--log", "log.jsonl"], 2,
     err="--log requires --measured")
case("a report at once", [*QUIET, "-n", "1", "--html", "run.html"],
     out=r"predicted +458 ms\nmeasured +.* %")
check("measured" in read("run.html"), "the report shows the run")

found = json_case("another delay", [
    *QUIET, "-n", "1", "--inject", "dc0-dc1=latency:30ms,transfer:2ms"])
check(found["predicted_s"] > 0.458 and
      found["median_s"] >= found["predicted_s"], f"injected: {found}")
case("receives posted late", [*QUIET, "-n", "1", "--receives", "late"],
     out="predicted")
slow = json_case("a slower link that was named by its ends", [
    *QUIET, "-n", "1", "--inject", "0-1=latency:20ms"])
check(slow["predicted_s"] > 0.458, f"a link that was added: {slow}")


def injected(text, file="p.yaml"):
    found = json_case(text, ["train", file, "-s", "1f1b", "--speed", "1000",
                             "-n", "1", "--inject", text])
    return round(found["predicted_s"] * 1000, 6)


# a-b is bidirectional, a>b one direction; a name in the file is that link.
write("named.yaml", """
    longhaul: pipeline/1
    time_unit: ms
    microbatches: 4
    devices: 2
    uniform: {placement: ud, chunks_per_device: 1, F: 10, D: 10, W: 10,
              memory: {F: 1, D: 0, W: -1}}
    links: [{from: 0, to: 1, latency: 1, transfer: 0, name: a-b},
            {from: 1, to: 0, latency: 1, transfer: 0, name: a>b}]
    """)
write("plain.yaml", """
    longhaul: pipeline/1
    time_unit: ms
    microbatches: 4
    devices: 2
    uniform: {placement: ud, chunks_per_device: 1, F: 10, D: 10, W: 10,
              memory: {F: 1, D: 0, W: -1}}
    links: [{from: 0, to: 1, latency: 1, transfer: 0}]
    """)
for file, both, ways in [
        ("p.yaml", "dc0-dc1", ["dc0>dc1", "dc1>dc0"]),
        ("plain.yaml", "0-1", ["0>1", "1>0"])]:
    delay = "=latency:40ms"
    each = ";".join(way + delay for way in ways)
    check(injected(both + delay, file) == injected(each, file),
          f"{both} is {ways[0]} and {ways[1]}")
    check(injected(ways[0] + delay, file) < injected(both + delay, file),
          f"{ways[0]} is below {both}")
check(injected("a-b=latency:9ms;a>b=latency:9ms", "named.yaml") >
      injected("a-b=latency:9ms", "named.yaml"),
      "the file's own names are one link each")

fast = json_case("five times as fast", [*QUIET, "-n", "1", "--speed", "5"])
check(fast["predicted_s"] == 0.0916 and fast["speed"] == 5,
      f"--speed: {fast}")

# --- rejected options
# ---------------------------------------------------------------
for text, why in [("x=latency:1ms", "'x' is neither a link of the pipeline: "
                   "dc0>dc1, dc1>dc0, nor a pair of its 4 devices"),
                  ("0-2=latency:1ms", "'0-2' has no effect: no messages are "
                   "sent between devices 0 and 2"),
                  ("dc0-dc1", "LINK=latency"),
                  ("dc0-dc1=speed:3", "must be latency:TIME"),
                  ("dc0-dc1=gbps:0", "must be latency:TIME"),
                  ("dc0-dc1=", "latency, transfer or gbps is required for link"),
                  (";", "a link is required")]:
    code = 1 if text[0] in "0x" else 2
    case(f"--inject {text}", [*QUIET, "--inject", text], code, err=why)
# --- progress in batch logs -----------------------------------------------------
FAST = [*QUIET, "--speed", "100"]
for more, steps in (((), [10, 20]), (("--progress", "8"), [8, 16, 24]),
                    (("--progress", "0"), []), (("--quiet",), [])):
    for transport in ("inproc", "local"):
        done = run_once(*FAST, "--transport", transport, "--steps", "24", *more)
        lines, prefix = done.stderr, "longhaul: "
        if more and more != ("--quiet",):
            check(done.stderr == "", f"progress {more}: {done.stderr}")
            lines, prefix = done.stdout.partition("schedule  ")[0], ""
        said = re.fullmatch(
            rf"({prefix}iteration \d+ of 24: [0-9.]+ m?s\n)*", lines)
        got = [int(n) for n in re.findall(r"iteration (\d+)", lines)]
        check(done.returncode == 0 and said and got == steps,
              f"progress {more} over {transport}: {lines}")
done = run_once(*FAST, "--steps", "4", "--progress", "2", "--json")
check(len(json.loads(done.stdout)["iterations"]) == 4 and
      done.stderr.count("longhaul: iteration ") == 2, f"--json: {done}")
# The line is printed during the run.
endless = subprocess.Popen(
    [PROGRAM, *FAST, "--steps", "100000000", "--progress", "1"], cwd=WORK,
    env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
first = read_line(endless.stdout, endless)
check(first.startswith("iteration 1 of 100000000: ") and
      endless.poll() is None, f"the first line: {first}")
endless.send_signal(signal.SIGINT)
endless.communicate(timeout=HANGS)

case("cpu wants a plan", ["train", "p.yaml", "--device", "cpu", "--data", "x"],
     2, err="--device cpu requires a plan")
for options, why in [(["--ranks", "local", "--transport", "tcp"], "--ranks"),
                     (["--data", "x"], "requires --device cpu"),
                     (["--checkpoint", "x"], "requires --device cpu"),
                     (["--resume", "x"], "requires --device cpu"),
                     (["--emulate-links"], "requires --device cpu"),
                     (["--device", "cpu", "--speed", "3"],
                      "requires --device timed"),
                     (["--device", "cpu", "--real-links"],
                      "requires --device timed"),
                     (["--inject", "0-1=latency:1ms", "--real-links"],
                      "cannot be combined with --real-links"),
                     (["--device", "cpu", "--checkpoint-every", "2"],
                      "--checkpoint-every requires --checkpoint")]:
    case(" ".join(options), [*QUIET, *options], 2, err=why)
found = json_case("ranks as processes", [*QUIET, "-n", "1", "--ranks",
                                         "local"])
check(found["transport"] == "local", f"--ranks local cannot be combined with --transport {found['transport']}")
case("no mpirun", [*QUIET, "--transport", "ucx"], 1, err="mpirun -np 4")


def await_text(name, process, text=""):
    """Waits until the run has written this text: each iteration writes a
    line."""
    path = WORK / name
    check(until(lambda: path.exists() and path.read_text() and
                text in path.read_text(), process), f"{name} has {text!r}")


# --- interrupts ----------------------------------------------------------------------
for transport in ("inproc", "local"):
    for times in (1, 2):
        run = subprocess.Popen(
            [PROGRAM, *QUIET, "--transport", transport, "--steps", "1000",
             "--json", "--log", f"{transport}{times}.jsonl"], cwd=WORK,
            env=ENVIRONMENT, stdout=subprocess.PIPE,
            stderr=(WORK / "said").open("w"), text=True,
            start_new_session=True)
        await_text(f"{transport}{times}.jsonl", run)
        os.killpg(run.pid, signal.SIGINT)
        await_text("said", run, "stopping")
        if times == 2:
            os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=HANGS)[0], read("said")
        ok = run.returncode == 1 and "stopping" in err
        check(ok, f"{transport}, {times} interrupts: {run.returncode} {err}")
        found = json.loads(out) if ok and out else {}
        check(found.get("interrupted") is True and
              0 < len(found.get("iterations", [])) < 1000,
              f"{transport}, {times} interrupts: {out[:200]} {err}")

# --- a rank that dies -------------------------------------------------------------------
run = subprocess.Popen([PROGRAM, *QUIET, "--transport", "local", "--steps",
                        "1000", "--log", "killed.jsonl"], cwd=WORK,
                       env=ENVIRONMENT, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
await_text("killed.jsonl", run)
children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(run.pid)],
                          capture_output=True, text=True).stdout.split()
check(len(children) == 4, f"a process per rank: {children}")
if children:
    os.kill(int(children[2]), signal.SIGKILL)
out, err = run.communicate(timeout=HANGS)
check(run.returncode == 1 and out == "" and re.fullmatch(
    r"longhaul: rank 2: killed by signal 9 \(Killed\); \d+ iterations? "
    r"(was|were) completed\n", without_progress(err)),
      f"a rank was killed: {run.returncode} {err!r}")

# --- a stopped rank keeps its connections, but sends nothing ------------------------
# With two ranks, load cannot delay another rank beyond the time limit.
uniform("pair.yaml", devices=2, latency=8, transfer=1)
run = subprocess.Popen([PROGRAM, "train", "pair.yaml", "-s", "1f1b",
                        "--transport", "local", "--steps", "100000000", "--log",
                        "stopped.jsonl", "--silence", "3s"], cwd=WORK,
                       env=ENVIRONMENT, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
await_text("stopped.jsonl", run)
children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(run.pid)],
                          capture_output=True, text=True).stdout.split()
check(len(children) == 2, f"a process per rank: {children}")
if children:
    os.kill(int(children[1]), signal.SIGSTOP)
out, err = run.communicate(timeout=HANGS)
check(run.returncode == 1 and out == "" and re.fullmatch(
    r"longhaul: rank 1: silent for [0-9.]+ s, as measured by rank 0; "
    r"\d+ iterations? (was|were) completed\n",
    without_progress(err)), f"a rank was stopped: {run.returncode} {err!r}")
case("threads are not stopped", [*QUIET, "--silence", "3s"], 2,
     err="--silence requires --transport local, tcp or ucx")
case("too short a silence", [*QUIET, "--transport", "local", "--silence",
                             "99ms"], 1, err="at least 0.1 s")
case("too short a silence of rails", [
    *QUIET, "--transport", "tcp", "--rails", "lo", "--silence", "1599ms"], 1,
     err="over rails the silence of a rank is limited to at least 1.6 s")

# A timed pass that is much longer than the others does not hang.
write("uneven.yaml", """
    longhaul: pipeline/1
    time_unit: ms
    microbatches: 1
    devices: 1
    backward: joint
    chunks:
      - {device: 0, F: 1, D: 1, W: 0}
      - {device: 0, F: 700, D: 1, W: 0}
    """)
case("a long pass", ["train", "uneven.yaml", "-s", "gpipe", "--steps", "1",
                     "--transport", "local", "--silence", "100ms"], out=ANY)

# --- the same under mpirun: one rank reports it
# -----------------------------------
if not shutil.which("mpirun"):
    print("SKIPPED mpirun: it is not installed")
else:
    few = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3",
         PROGRAM, *QUIET, "--transport", "tcp"], cwd=WORK, env=UNDER_MPI,
        capture_output=True, text=True, timeout=HANGS)
    check(few.returncode != 0 and few.stderr.count("longhaul: ") == 1 and
          "mpirun -np 4" in few.stderr, f"too few ranks: {few.stderr!r}")
    run = subprocess.Popen(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4",
         PROGRAM, *QUIET, "--transport", "tcp", "--steps", "1000", "--log",
         "mpi.jsonl"], cwd=WORK, env=UNDER_MPI, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    await_text("mpi.jsonl", run)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(run.pid)],
                              capture_output=True, text=True).stdout.split()
    for child in children:
        with open(f"/proc/{child}/environ", encoding="latin1") as of:
            if "OMPI_COMM_WORLD_RANK=2" in of.read().split("\0"):
                os.kill(int(child), signal.SIGKILL)
    out, err = run.communicate(timeout=HANGS)
    ours = [line for line in err.splitlines() if line.startswith("longhaul:")]
    # mpirun ends the other ranks after a second, and reports the killed rank.
    check(run.returncode != 0 and len(ours) <= 1 and
          all("rank 2:" in line for line in ours) and "rank 2" in err,
          f"a rank was killed under mpirun: {err!r}")

# --- training ------------------------------------------------------------------------------
job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
write("job.yaml", job.replace("hidden: 128, ffn: 384", "hidden: 64, ffn: 96")
      .replace("head_dim: 32", "head_dim: 16").replace("sequence: 128",
                                                       "sequence: 32"))
case("plan to train", ["plan", "job.yaml", "-o", "plan.json"], out=ANY)
write("text", "It was the best of times, it was the worst of times.\n" * 200)
TRAIN = ["train", "plan.json", "--device", "cpu", "--data", "text", "--rate",
         "1e-2", "--steps", "12"]
probe = subprocess.run([PROGRAM, *TRAIN, "--json"], cwd=WORK, env=ENVIRONMENT,
                       capture_output=True, text=True)
if "OpenBLAS" in probe.stderr:
    print("SKIPPED training: OpenBLAS is not installed")
else:
    found = json_case("train", [*TRAIN, "--checkpoint", "run",
                                "--checkpoint-every", "6"])
    losses = [one["loss"] for one in found["iterations"]]
    check(len(losses) == 12 and 5 < losses[0] < 6 and losses[-1] < 4,
          f"the loss falls: {losses}")
    again = json_case("the rest of it", [
        *TRAIN, "--resume", "run/step-00000006", "--transport", "local", "-s",
        "1f1b"])
    check([one["loss"] for one in again["iterations"]] == losses[6:],
          "a resumed run goes on bit for bit")
    none = json_case("nothing to run", [*TRAIN, "--resume", "run"])
    check(none["iterations"] == [] and [none[key] for key in (
        "median_s", "error", "mfu")] == [None] * 3, f"no statistics: {none}")
    case("training, for people", [*TRAIN, "--validation", "0.2"],
         out=r"loss +5\.\d+ at step 1, .*validation +\d.*tokens/s")
    case("another recipe", [*TRAIN, "--resume", "run", "--seed", "3"], 1,
         err="rank \\d")
    whole = (WORK / "run/step-00000012/model.safetensors").read_bytes()
    for transport in ("tcp", "ucx") if shutil.which("mpirun") else ():
        launched = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4",
             PROGRAM, *TRAIN, "--transport", transport, "--checkpoint",
             transport, "--json"], cwd=WORK, env=UNDER_MPI,
            capture_output=True, text=True, timeout=HANGS)
        if "this build" in launched.stderr or "UCX" in launched.stderr:
            print(f"SKIPPED training over {transport}: {launched.stderr}")
            continue
        weights = WORK / transport / "step-00000012/model.safetensors"
        check(launched.returncode == 0 and weights.exists() and
              weights.read_bytes() == whole,
              f"the same weights over {transport}: {launched.stderr}")
    # A full disk (files of at most 40 kB) does not damage existing checkpoints.
    before = {f.name: f.read_bytes()
              for f in (WORK / "run/step-00000012").iterdir()}
    for transport in ("inproc", "local"):
        full = subprocess.run(
            [PROGRAM, *TRAIN[:-1], "14", "--resume", "run", "--override",
             "steps", "--checkpoint", "run", "--transport", transport], cwd=WORK, env=ENVIRONMENT,
            capture_output=True, text=True, timeout=HANGS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                  (40000, 40000)))
        check(full.returncode == 1 and full.stderr.count("\n") == 1 and
              "rank " in full.stderr and "large" in full.stderr,
              f"a full disk: {full.stderr!r}")
    after = {f.name: f.read_bytes()
             for f in (WORK / "run/step-00000012").iterdir()}
    check(before == after and sorted(os.listdir(WORK / "run")) ==
          ["step-00000006", "step-00000012"],
          f"checkpoints after that: {os.listdir(WORK / 'run')}")
    weights = WORK / "run/step-00000012/model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-100] ^= 16
    weights.write_bytes(damaged)
    case("a damaged checkpoint",
         [*TRAIN[:-1], "14", "--resume", "run/step-00000012", "--override",
          "steps"], 1,
         err=r"\Alonghaul: rank \d.*model\.safetensors[^\n]*\n\Z")
    found = json_case("profile", ["profile", "job.yaml", "--repeats", "3",
                                  "-o", "profile.json"])
    case("profile says what it did not measure",
         ["profile", "job.yaml", "--repeats", "1", "-o", "profile2.json"],
         out="between hosts .*are not measured")
    write("measured.yaml", read("job.yaml") + "profile: profile.json\n")
    case("plan by the profile", ["plan", "measured.yaml", "-o", "m.json"],
         out="from measured passes")
case("profile wants a job", ["profile", "p.yaml"], 1, err="a job")
finish()
