#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals: to the program alone, like `kill` and systemd's main process; to all
processes of a job, like control groups and Slurm; and to process 1 of a container,
which has no default actions.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness import (ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, check, children,
                     finish, has_few_cases, makes, read, run, test, uniform, until,
                     worked, write)

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def pipeline():
    """Writes a pipeline with iterations of half a second."""
    return uniform("p.yaml", latency=8, transfer=1, limit=4)


def endless():
    """Writes an iteration of minutes; single passes are short."""
    return uniform("long.yaml", times=(200, 200, 200),
                   microbatches=300)


def start(*args, before=(), **more):
    return subprocess.Popen(
        [*before, PROGRAM, *map(str, args)], cwd=WORK, env=ENVIRONMENT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=(WORK / "said").open("w"), text=True, start_new_session=True,
        **more)


def await_text(name, process, text=""):
    """Waits until the run has written this text to the file."""
    path = WORK / name
    return check(until(lambda: path.exists() and path.read_text() and
                       text in path.read_text(), process),
                 f"{name} has {text!r}")


def ended(process):
    """Returns exit status, standard output and standard error."""
    out = process.communicate(timeout=HANGS)[0]
    return process.returncode, out, read("said")


def is_gone(pid):
    """Tests whether a process has ended, reaped or not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


# --- running a plan -----------------------------------------------------------
PLAY = ["train", "p.yaml", "-s", "zb-h1", "--steps", "1000", "--json",
        "--log", "log.jsonl"]


def stopped(case, process, n_remarks=1):
    """Checks that the run ended after an iteration, and reported this."""
    code, out, err = ended(process)
    found = json.loads(out) if out else {}
    check(code == 1 and err.count("stopping") == n_remarks and
          err.count("\n") == n_remarks and found.get("interrupted") is True and
          0 < len(found.get("iterations", [])) < 1000,
          f"{case}: {code} {out[:200]} {err}")


@test
def a_signal_to_the_launcher_alone_ends_the_run():
    pipeline()
    for transport in ("local", "inproc"):
        for number in ENDING:
            (WORK / "log.jsonl").unlink(missing_ok=True)
            process = start(*PLAY, "--transport", transport)
            await_text("log.jsonl", process)
            process.send_signal(number)
            stopped(f"{transport}, {number}", process)


@test
def a_signal_to_all_processes_is_one():
    """systemd signals a control group, Slurm a step: both signal every process
    at once, sometimes twice."""
    pipeline()
    process = start(*PLAY, "--transport", "local")
    await_text("log.jsonl", process)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGTERM)
    stopped("two signals at once to all", process)


@test
def a_second_signal_ends_at_once():
    endless()
    args = ["train", "long.yaml", "-s", "1f1b", "--json"]
    for transport in ("local", "inproc"):
        for numbers in ((signal.SIGINT, signal.SIGINT),
                        (signal.SIGTERM, signal.SIGINT),
                        (signal.SIGTERM, signal.SIGTERM)):
            process = start(*args, "--transport", transport)
            # The run counts signals once it has started; before, a signal ends
            # it.
            check(until(lambda: has_begun(process, transport), process),
                  "the run begins")
            process.send_signal(numbers[0])
            await_text("said", process, "stopping")
            time.sleep(0.25)  # closer signals count as one
            process.send_signal(numbers[1])
            code, out, err = ended(process)
            found = json.loads(out) if out else {}
            check(code == 1 and found.get("interrupted") is True and
                  found.get("iterations") == [],
                  f"{transport}, {numbers}: {code} {out[:200]} {err}")


def has_begun(process, transport):
    """Tests whether ranks exist, as processes or threads."""
    if transport == "local":
        return len(children(process.pid)) == 4
    return len(os.listdir(f"/proc/{process.pid}/task")) > 4


@test
def signals_blocked_or_ignored_by_the_parent_are_handled():
    """The parent process set these masks and actions. Waiting for children
    still works."""
    def hostile():
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    pipeline()
    process = start(*PLAY, "--transport", "local", preexec_fn=hostile)
    await_text("log.jsonl", process)
    process.send_signal(signal.SIGTERM)
    stopped("blocked", process)
    (WORK / "log.jsonl").unlink()
    process = start(*PLAY, "--transport", "local", preexec_fn=hostile)
    await_text("log.jsonl", process)
    os.kill(children(process.pid)[1], signal.SIGKILL)
    code, out, err = ended(process)
    check(code == 1 and "rank 1: killed by signal 9" in err, (code, out, err))


@test
def nohup_keeps_it_running():
    pipeline()
    process = start(*PLAY[:-4], "4", "--json", "--log", "log.jsonl",
                    "--transport", "local", before=["nohup"])
    await_text("log.jsonl", process)
    process.send_signal(signal.SIGHUP)
    code, out, err = ended(process)
    check(code == 0 and len(json.loads(out)["iterations"]) == 4,
          (code, out, err))


@test
def no_rank_outlives_its_launcher():
    pipeline()
    process = start(*PLAY, "--transport", "local")
    await_text("log.jsonl", process)
    ranks = children(process.pid)
    process.kill()
    process.communicate(timeout=HANGS)
    begin = time.monotonic()
    while (not all(map(is_gone, ranks)) and
           # else the message is printed below
           time.monotonic() - begin < HANGS):
        time.sleep(0.02)
    check(len(ranks) == 4 and all(map(is_gone, ranks)), ranks)


# --- in a container -----------------------------------------------------------
def can_contain():
    if shutil.which("unshare") and subprocess.run(
            [*UNSHARE, "true"], capture_output=True).returncode == 0:
        return True
    print("SKIPPED process 1: no namespaces of processes here (unshare --pid)")
    return False


def contained(process):
    """Returns process 1 of its container."""
    until(lambda: children(process.pid), process)
    return children(process.pid)[0]


@test
def process_1_of_a_container_ends_as_any_other():
    if not can_contain():
        return
    pipeline()
    for transport in ("local", "inproc"):
        for number in (signal.SIGTERM, signal.SIGINT):
            (WORK / "log.jsonl").unlink(missing_ok=True)
            process = start(*PLAY, "--transport", transport, before=UNSHARE)
            await_text("log.jsonl", process)
            os.kill(contained(process), number)
            stopped(f"process 1, {transport}, {number}", process)


@test
def process_1_ends_in_the_middle_of_planning():
    """Process 1 has no default actions: the program exits by itself with the
    status that shells report for a process ended by the signal."""
    if not can_contain():
        return
    long_search()
    process = start(*SEARCH, before=UNSHARE)
    pid = contained(process)
    check(until(lambda: seconds_of(pid) > 0.5, process), "it works")
    os.kill(pid, signal.SIGHUP)
    code, out, err = ended(process)
    check((code, out, err) == (128 + signal.SIGHUP, "", "") and
          sorted(os.listdir(WORK)) == ["long.yaml", "said"],
          (code, out, err, os.listdir(WORK)))


@test
def process_1_waits_for_orphans():
    if not can_contain():
        return
    pipeline()
    # A child that loses its parent: in containers process 1 adopts it.
    script = ('(sleep 0.1 & exec sleep 0.2) & '
              f'exec "$0" "$@"')
    process = start(*PLAY, "--transport", "local",
                    before=[*UNSHARE, "sh", "-c", script])
    await_text("log.jsonl", process)
    pid = contained(process)

    def others():
        return [child for child in children(pid) if pathlib.Path(
            f"/proc/{child}/comm").read_text().strip() != "longhaul"]
    check(until(lambda: not others(), process), "no zombie stays")
    check(len(children(pid)) == 4, children(pid))
    os.kill(pid, signal.SIGTERM)
    stopped("with orphans", process)


# --- before a run -------------------------------------------------------------
SEARCH = ["plan", "long.yaml", "--search", "monte-carlo", "--draws",
          "1000000,20,1000000,1000000", "-o", "never.json"]


def long_search():
    write("long.yaml", """
        longhaul: job/1
        model: {layers: 16, hidden: 256, ffn: 512, heads: 4, vocab: 1000}
        training: {global_batch: 64, sequence: 512}
        cluster:
          gpus_per_node: 4
          gpu: {tflops: 100, memory_gib: 80, memory_gbps: 2000}
          node_link: {gbps: 1000, latency_us: 3}
          fabric: {gbps: 100, latency_us: 8}
          datacenters: [{name: here, nodes: 2}]
        """)


def seconds_of(pid):
    """Returns the processor seconds of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return sum(map(int, fields.rpartition(")")[2].split()[11:13])) / (
        os.sysconf("SC_CLK_TCK"))


@test
def work_skipped_after_a_signal_is_reported():
    """The plan is complete, its sensitivity is not: the output reports this."""
    job = ROOT / "examples/llama3-70b-two-sites.yaml"
    process = start("plan", job, "--sensitivity", "-o", "best.json")
    check(until(lambda: worked(process) >= 0.5, process), "it works")
    process.send_signal(signal.SIGTERM)
    code, out, err = ended(process)
    check(json.loads(read("best.json")).get("sensitivity") is None, out)
    check(re.search(r"\nsensitivity +not computed: the search was stopped "
                    r"before\n", out), (code, out, err))


@test
def planning_and_scheduling_end_by_the_signal():
    """Leaves no files. An interrupt or SIGTERM returns the best result so far;
    a second one ends the program."""
    long_search()
    uniform("big.yaml", devices=8, microbatches=20, placement="wave", chunks=2,
            times=(11, 13, 7), latency=30, transfer=9, limit=9)
    schedule = ["schedule", "big.yaml", "--method", "optimal", "--time-limit",
                "300", "--threads", "2", "-o", "never.csv"]
    for args in (SEARCH, schedule):
        for numbers in ((signal.SIGHUP,), (signal.SIGINT, signal.SIGHUP),
                        (signal.SIGTERM, signal.SIGINT)):
            code, out, err = signalled(args, numbers)
            check((code, out) == (-numbers[-1], "") and
                  sorted(os.listdir(WORK)) == ["big.yaml", "long.yaml", "said"],
                  (args[0], numbers, code, out, err, os.listdir(WORK)))


def signalled(args, numbers):
    """Returns the exit status after these signals in quick succession. On a
    busy machine the first one may end the program before the second is sent;
    then the result is deleted and the test repeated."""
    for _ in range(20):
        (WORK / args[-1]).unlink(missing_ok=True)
        process = start(*args)
        check(until(lambda: worked(process) >= 0.5, process), "it works")
        for number in numbers:
            process.send_signal(number)
        found = ended(process)
        if not (WORK / args[-1]).exists():
            break
    return found


def in_the_middle(args, number, seconds):
    """Sends a signal after this much processor time."""
    process = start(*args)
    check(until(lambda: worked(process) >= seconds, process), "it works")
    process.send_signal(number)
    return ended(process)


@test
def signals_leave_nothing_behind():
    uniform("big.yaml", devices=16, microbatches=512, latency=8, transfer=1)
    for number in (signal.SIGINT, signal.SIGTERM):
        found = in_the_middle(["compare", "big.yaml", "--sweep",
                               "latency=0:900:1", "-o", "never.txt"], number,
                              0.5)
        check(found == (-number, "", "") and
              sorted(os.listdir(WORK)) == ["big.yaml", "said"],
              (found, os.listdir(WORK)))


@test
def an_interrupted_plan_is_the_best_so_far():
    """The search would take minutes. Batch systems send SIGTERM."""
    long_search()
    signals = signal.SIGTERM, signal.SIGINT
    for number in signals[:1] if has_few_cases() else signals:
        (WORK / "some.json").unlink(missing_ok=True)
        code, out, err = in_the_middle([*SEARCH[:-1], "some.json"], number, 1)
        check(code == 0 and "the plan is the best one found so far" in err and
              "iteration" in out, (number, code, err))
        done = run("simulate", "some.json", "--json")
        check(done.returncode == 0, f"an interrupted plan is a plan: {done}")


@test
def an_interrupted_size_is_the_best_so_far():
    """All 10^6 sizes would take hours."""
    write("size.yaml", """longhaul: job/1
model: {layers: 2, hidden: 1024, ffn: 4096, heads: 8, vocab: 1000}
training: {global_batch: 4, sequence: 1024}
cluster:
  gpu: h100-sxm
  gpus_per_node: 1
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: west, nodes: 1000000}]
layout: {tensor: 1, context: 1, pipeline: 1}
""")
    code, out, err = in_the_middle(
        ["size", "size.yaml", "--tokens", "1B", "--deadline", "30d", "--effort",
         "1000000"], signal.SIGTERM, 0.3)
    found = re.search(r"interrupted: the result is the best of (\d+) planned "
                      r"sizes", err)
    check(code == 0 and found and re.search(
        r"\nfewest +1 GPU\n.*certainty +interrupted; best found so far, without "
        r"bounds;\s+" + found[1] + " of 1000000 sizes", out, re.S) and
        "proven" not in out, (code, out, err))


# --- training -----------------------------------------------------------------
@makes("plan.json", "text")
def plan_and_text():
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    write("job.yaml",
          job.replace("hidden: 128, ffn: 384", "hidden: 64, ffn: 96")
          .replace("head_dim: 32", "head_dim: 16")
          .replace("sequence: 128", "sequence: 32"))
    run("plan", "job.yaml", "-o", "plan.json")
    write("text", "It was the best of times, it was the worst of times.\n" *
          200)


@test
def a_signal_to_the_launcher_alone_leaves_a_checkpoint():
    """The weights are those of an undisturbed run."""
    plan_and_text()
    train = ["train", "plan.json", "--device", "cpu", "--data", "text",
             "--rate", "1e-2", "--warmup", "1", "--min-rate", "1e-2", "--json",
             "--transport", "local"]
    probe = run(*train, "--steps", "1")
    if "OpenBLAS" in probe.stderr:
        print("SKIPPED training: OpenBLAS is not installed")
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        folder = f"run{number}"
        (WORK / "log.jsonl").unlink(missing_ok=True)
        process = start(*train, "--steps", "1000000", "--checkpoint", folder,
                        "--log", "log.jsonl")
        await_text("log.jsonl", process)
        process.send_signal(number)
        stopped_training(f"signal {number}", process, folder)
    done = (WORK / folder).iterdir()
    step = int(next(done).name.removeprefix("step-"))
    straight = run(*train, "--steps", step, "--checkpoint", "straight")
    name = f"step-{step:08}/model.safetensors"
    check(straight.returncode == 0 and
          (WORK / "straight" / name).read_bytes() ==
          (WORK / folder / name).read_bytes(), "the same weights")


def stopped_training(case, process, folder):
    code, out, err = ended(process)
    found = json.loads(out) if out else {}
    n = len(found.get("iterations", []))
    check(code == 1 and n > 0 and
          os.listdir(WORK / folder) == [f"step-{n:08}"],
          f"{case}: {code} {n} {err} {os.listdir(WORK / folder)}")


finish()
