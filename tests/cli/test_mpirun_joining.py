#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks started by mpirun join, despite unauthenticated connections.

The environment variable DELAY_JOINING_LIBRARY names the library that delays ranks until
others wait for them (tests/net/delay_joining.c).
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys

from harness import (HANGS, PROGRAM, ROOT, UNDER_MPI, WORK, check, finish,
                     is_sanitized, makes, run, test, uniform, until, write)

if not shutil.which("mpirun"):
    print("SKIPPED: mpirun is not installed")
    sys.exit(77)
N_RANKS = 4
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
# The library comes before the sanitizer's.
BEFORE_ASAN = {**UNDER_MPI, "ASAN_OPTIONS":
               UNDER_MPI["ASAN_OPTIONS"] + ":verify_asan_link_order=0"}
LIBRARY = os.environ.get("DELAY_JOINING_LIBRARY")


def launched(*args, env=None):
    return subprocess.run([*MPIRUN, *map(str, args)], cwd=WORK, text=True,
                          env={**BEFORE_ASAN, **(env or {})}, timeout=HANGS,
                          capture_output=True, check=False)


def lacks(text):
    """Skips the test if the build or the machine lacks a feature; prints
    which."""
    found = any(words in text for words in (
        "this build", "UCX cannot be loaded", "OpenBLAS is not installed"))
    if found:
        print(f"SKIPPED: {text}")
    return found


def said(done):
    return [line for line in done.stderr.splitlines()
            if line.startswith("longhaul: ")]


# --- unauthenticated connections
# -------------------------------------------------
@makes("job.yaml", "plan.json", "text", "weights")
def make_plan():
    """Makes a plan, data, and the weights of an undisturbed run."""
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    write("job.yaml", job.replace("hidden: 128, ffn: 384", "hidden: 64, ffn: 96")
          .replace("head_dim: 32", "head_dim: 16")
          .replace("sequence: 128", "sequence: 32"))
    write("text", "It was the best of times, it was the worst of times.\n" * 99)
    done = run("plan", "job.yaml", "-o", "plan.json")
    check(done.returncode == 0, f"plan: {done.stderr}")
    done = run(*train("reference"))
    if done.returncode:
        check(lacks(done.stderr), f"the reference: {done.stderr}")
        (WORK / "weights").touch()
    else:
        shutil.copy(WORK / "reference/step-00000002/model.safetensors",
                    WORK / "weights")


def train(folder):
    return ["train", "plan.json", "--device", "cpu", "--data", "text",
            "--steps", "2", "--checkpoint", folder]


def knock(port, sent):
    """Opens a connection and sends data, which arrives before anyone reads."""
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", port))
    if sent:
        try:
            one.send(sent)
        except OSError:  # the queue was full
            pass
    return one


def besieged(transport, limit):
    """Runs training; rank 0 finds 500 unauthenticated connections before any
    rank's."""
    door = WORK / "door"
    shutil.rmtree(door, ignore_errors=True)
    shutil.rmtree(WORK / "c", ignore_errors=True)
    door.mkdir()
    # Version 4, HELLO, of rank 1 of 4 at some port, for another job.
    hello = (b"longhaul\4\1\0\0" + b"\1\0\0\0" + b"\4\0\0\0" + b"\x88\x13\0\0" +
             bytes(8) + os.urandom(32) + bytes(32) + os.urandom(32) + bytes(64))
    held = [f"LD_PRELOAD={LIBRARY}", f"HOLD_DOOR={door}"]
    process = subprocess.Popen(
        [*MPIRUN, "-np", str(N_RANKS), "sh", "-c",
         f'ulimit -n {limit}; exec env "$@"', "sh", *held, PROGRAM,
         *train("c"), "--transport", transport], cwd=WORK,
        env=BEFORE_ASAN, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    port = door / "port"
    strangers = []
    if until(port.exists, process):
        strangers += [knock(int(port.read_text()), b"") for _ in range(300)]
        strangers += [knock(int(port.read_text()), hello[:77])
                      for _ in range(100)]
        strangers += [knock(int(port.read_text()), hello) for _ in range(100)]
    (door / "go").touch()
    out, err = process.communicate(timeout=HANGS)
    for one in strangers:
        one.close()
    return process.returncode, out, err, len(strangers)


@test
def unauthenticated_connections_do_not_delay_ranks():
    if not LIBRARY:
        print("SKIPPED strangers: DELAY_JOINING_LIBRARY is not given")
        return
    make_plan()
    reference = (WORK / "weights").read_bytes()
    # With sanitizers the program has additional open files.
    for transport, limit in [("tcp", 1024), ("tcp", 64), ("ucx", 1024)]:
        if not reference:
            return
        if is_sanitized() and limit < 1024:
            continue
        code, _, err, n = besieged(transport, limit)
        if lacks(err):
            continue
        what = f"{transport}, {limit} files, {n} strangers"
        check(n == 500, f"{what}: {err}")
        weights = WORK / "c/step-00000002/model.safetensors"
        check(code == 0 and weights.exists() and
              weights.read_bytes() == reference, f"{what}: {code} {err}")


# --- ranks of different jobs ---------------------------------------------
@test
def ranks_with_another_model_are_refused():
    make_plan()
    job = (WORK / "job.yaml").read_text()
    how = ["--device", "cpu", "--data", "text", "--steps", "1", "--transport",
           "tcp"]
    for here, there in (("tied_embeddings: true", "tied_embeddings: false"),
                        ("tied_embeddings: true",
                         "tied_embeddings: true, qkv_bias: true"),
                        ("training: {", "training: {dropout: true, ")):
        check(here in job, f"the job has no {here}")
        write("other.yaml", job.replace(here, there))
        done = run("plan", "other.yaml", "-o", "other.json")
        check(done.returncode == 0, f"plan: {done.stderr}")
        done = launched("-np", "1", PROGRAM, "train", "plan.json", *how, ":",
                        "-np", N_RANKS - 1, PROGRAM, "train", "other.json",
                        *how)
        if not lacks(done.stderr):
            check(done.returncode != 0 and len(said(done)) == 1 and
                  "rank 1 has another plan than rank 0" in done.stderr,
                  f"{there}: {done.returncode} {done.stderr}")


@test
def ranks_with_other_limits_are_refused():
    """Memory limits are enforced on all ranks or on none."""
    make_plan()
    plan = json.loads((WORK / "plan.json").read_text())
    plan["pipeline"]["memory_limit"][0] -= 1
    write("other.json", json.dumps(plan))
    how = ["--device", "cpu", "--data", "text", "--steps", "1", "--transport",
           "tcp"]
    enforced = ["--memory", "enforce"]
    for plans, what in (
            (["plan.json", enforced, "plan.json", []], "another --memory"),
            (["plan.json", [], "plan.json", enforced], "another --memory"),
            (["plan.json", enforced, "other.json", enforced], "other options")):
        done = launched("-np", "1", PROGRAM, "train", plans[0], *how,
                        *plans[1], ":", "-np", N_RANKS - 1, PROGRAM, "train",
                        plans[2], *how, *plans[3])
        if not lacks(done.stderr):
            check(done.returncode != 0 and len(said(done)) == 1 and
                  f"rank 1 has {what} than rank 0" in done.stderr,
                  f"{plans}: {done.returncode} {done.stderr}")


@test
def ranks_with_other_data_are_refused():
    """Tests data with the same and with a larger number of tokens."""
    make_plan()
    text = (WORK / "text").read_text()
    write("other", text.replace("worst", "best!"))
    write("longer", text + "It was.\n")
    how = ["train", "plan.json", "--device", "cpu", "--steps", "1",
           "--transport", "tcp", "--data"]
    for other in ("other", "longer"):
        done = launched("-np", "1", PROGRAM, *how, "text", ":",
                        "-np", N_RANKS - 1, PROGRAM, *how, other)
        if not lacks(done.stderr):
            check(done.returncode != 0 and len(said(done)) == 1 and
                  "rank 1 has other data than rank 0" in done.stderr,
                  f"{other}: {done.returncode} {done.stderr}")


@test
def ranks_with_other_work_are_refused():
    uniform("a.yaml", devices=2, microbatches=4)
    uniform("b.yaml", devices=2, microbatches=5)
    for transport in ("tcp", "ucx"):
        quiet = ["-s", "1f1b", "--steps", "1", "--transport", transport]
        done = launched("-np", "1", PROGRAM, "train", "a.yaml", *quiet, ":",
                        "-np", "1", PROGRAM, "train", "b.yaml", *quiet)
        if not lacks(done.stderr):
            check(done.returncode != 0 and len(said(done)) == 1 and
                  "rank 1 has another plan than rank 0" in
                  said(done)[0], f"another plan, {transport}: {done.stderr}")
        # The queue is so long that the iteration time is the same.
        for other in (["--message-bytes", "70000"], ["--coupled", "64"]):
            done = launched("-np", "1", PROGRAM, "train", "a.yaml", *quiet, ":",
                            "-np", "1", PROGRAM, "train", "a.yaml", *quiet,
                            *other)
            if not lacks(done.stderr):
                check(done.returncode != 0 and len(said(done)) == 1 and
                      "give all ranks the same plan, options and data" in
                      said(done)[0],
                      f"{other}, {transport}: {done.stderr}")


def rank_of(pid):
    """Returns the rank of a process started by mpirun; None: another
    process."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = dict(word.partition(b"=")[::2]
                         for word in file.read().split(b"\0"))
        with open(f"/proc/{pid}/comm") as file:
            is_ours = file.read().strip() == "longhaul"
    except OSError:
        return None
    rank = words.get(b"OMPI_COMM_WORLD_RANK")
    return int(rank) if is_ours and rank else None


def below(pid):
    """Returns a process and all its descendants."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(child) for child in file.read().split()]
    except OSError:
        return []
    return [one for child in children for one in [child, *below(child)]]


@test
def a_stop_request_to_one_rank_ends_the_run():
    uniform("p.yaml", devices=2, latency=8, transfer=1)
    args = ["train", "p.yaml", "-s", "1f1b", "--steps", "100000"]
    for transport in ("tcp", "ucx"):
        (WORK / "log.jsonl").unlink(missing_ok=True)
        process = subprocess.Popen(
            [*MPIRUN, "-np", "2", PROGRAM, *args, "--transport", transport,
             "--log", "log.jsonl"], cwd=WORK, env=BEFORE_ASAN, text=True,
            stdout=subprocess.PIPE, stderr=(WORK / "said").open("w"))

        def text_of(name):
            path = WORK / name
            return path.read_text() if path.exists() else ""
        if not until(lambda: text_of("log.jsonl"), process):
            lacks(text_of("said"))
            continue
        ranks = {rank_of(pid): pid for pid in below(process.pid)}
        os.kill(ranks[1], signal.SIGTERM)
        process.communicate(timeout=HANGS)
        err = text_of("said")
        check(process.returncode == 1 and err.count(
            "rank 1 received a stop request: the run ends") == 1,
            f"{transport}: {err}")


@test
def ucx_beyond_this_host_has_to_be_allowed():
    uniform("a.yaml", devices=2, microbatches=4)
    quiet = ["train", "a.yaml", "-s", "1f1b", "--steps", "1"]
    done = launched("-np", "2", PROGRAM, *quiet, "--transport", "ucx",
                    env={"UCX_NET_DEVICES": "lo,dummy7"})
    if not lacks(done.stderr):
        check(done.returncode != 0 and len(said(done)) == 1 and
              "would listen at devices lo,dummy7" in said(done)[0] and
              "--insecure" in said(done)[0], f"refused: {done.stderr}")
        done = launched("-np", "2", PROGRAM, *quiet, "--transport", "ucx",
                        "--insecure")
        check(done.returncode == 0 and not said(done),
              f"allowed: {done.stderr}")
    done = run(*quiet, "--insecure")
    check(done.returncode == 2 and
          "--insecure requires --transport ucx" in done.stderr,
          f"--insecure alone: {done.stderr}")


# --- rails -----------------------------------------------------------------------
@test
def weights_are_unaffected_by_rails():
    """Rail failures are tested in tests/net/rails.sh and test_net_faults.c."""
    make_plan()
    reference = (WORK / "weights").read_bytes()
    if not reference:
        return
    done = launched("-np", N_RANKS, PROGRAM, *train("r"), "--transport", "tcp",
                    "--rails", "lo,127.0.0.2,127.0.0.3/32")
    check("127.0.0.3/32" in said(done)[0] if done.returncode else False,
          f"an address that lo has not: {done.stderr}")
    done = launched("-np", N_RANKS, PROGRAM, *train("r"), "--transport", "tcp",
                    "--rails", "lo,127.0.0.2")
    weights = WORK / "r/step-00000002/model.safetensors"
    check(done.returncode == 0 and weights.exists() and
          weights.read_bytes() == reference, f"{done.stderr}")


@test
def invalid_rails_are_rejected():
    uniform("a.yaml", devices=2, microbatches=4)
    quiet = ["train", "a.yaml", "-s", "1f1b", "--steps", "1"]
    for more, code, why in [
            (["--rails", "lo"], 2, "--rails requires --transport tcp"),
            (["--transport", "ucx", "--rails", "lo"], 2,
             "--rails requires --transport tcp"),
            (["--transport", "tcp", "--rails", "lo,,lo"], 2,
             "--rails lo,,lo: expected 1 to 8"),
            (["--transport", "tcp", "--rails", ",".join("abcdefghi")], 2,
             "expected 1 to 8 interfaces")]:
        done = run(*quiet, *more)
        check(done.returncode == code and why in done.stderr,
              f"{more}: {done.stderr}")
    for rails, why in [
            ("eth77", "'eth77' is neither an interface of this host"),
            ("127.0.0.1,lo", "rails 0 and 1 have the same address")]:
        done = launched("-np", 2, PROGRAM, *quiet, "--transport", "tcp",
                        "--rails", rails)
        if not lacks(done.stderr):
            check(done.returncode != 0 and why in said(done)[0],
                  f"{rails}: {done.stderr}")


# --- clocks ----------------------------------------------------------------------
@test
def clocks_of_other_machines_are_not_compared():
    """The clocks of three of four ranks differ by a day from the first
    one's."""
    apart = ["unshare", "-T", "--monotonic", "86400", "--fork"]
    if not shutil.which("unshare") or subprocess.run(
            [*apart, "true"], capture_output=True, check=False).returncode:
        print("SKIPPED: no clock of its own can be had for a process")
        return
    make_plan()
    job = (WORK / "job.yaml").read_text()
    write("two.yaml", job.replace("pipeline: 4", "pipeline: 2")
          .replace("data: 1", "data: 2"))
    done = run("plan", "two.yaml", "-o", "two.json", "--no-optimal")
    check(done.returncode == 0, f"plan: {done.stderr}")
    done = launched("-np", "4", "sh", "-c",
                    f'[ $OMPI_COMM_WORLD_RANK = 0 ] || '
                    f'exec {" ".join(apart)} "$@"; exec "$@"', "sh", PROGRAM,
                    "train", "two.json", "--device", "cpu", "--data", "text",
                    "--steps", "2", "--transport", "tcp", "--trace", "t.json")
    if done.returncode:
        check(lacks(done.stderr), f"train: {done.stderr}")
        return
    trace = json.loads((WORK / "t.json").read_text())
    ends = [event["ts"] + event.get("dur", 0)
            for event in trace["traceEvents"] if "ts" in event]
    check(trace["makespan_ns"] < 3600e9 and max(ends) < 3600e6,
          f"an iteration of {max(ends) / 1e6} s")


finish()
