#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that torchrun's variables or --hosts start, over tcp."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import harness
import trained
from harness import (
    ANY, ENVIRONMENT, PROGRAM, ROOT, VIRTUAL, WORK, case, check, children,
    read, reserved_port, test, uniform, write)

TRAIN = ["train", "pair.yaml", "-s", "1f1b", "--transport", "tcp", "--steps", "1",
         "--json"]
NAME = os.uname().nodename
LAUNCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK",
          "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
          "LOCAL_WORLD_SIZE", "LONGHAUL_SECRET", "LONGHAUL_PORT")
SECRET = {"LONGHAUL_SECRET": "0123456789abcdef"}
for name in LAUNCH:
    ENVIRONMENT.pop(name, None)


def together(*starts):
    """Runs the program at the same time with each pair of arguments and
    variables; returns statuses, outputs and errors."""
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    running = [subprocess.Popen(
        [PROGRAM, *TRAIN, *args], env=ENVIRONMENT | env, text=True, cwd=WORK,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for args, env in starts]
    return [(*one.communicate(timeout=harness.HANGS), one.returncode)
            for one in running]


def check_run(ended):
    check([code for _, _, code in ended] == [0] * len(ended), f"{ended}")
    check('"transport": "tcp"' in ended[0][0], f"{ended[0]}")
    check(not any(out for out, _, _ in ended[1:]), f"{ended}")


def rank(number, **more):
    return [], SECRET | {"RANK": str(number), "WORLD_SIZE": "2",
                         "MASTER_ADDR": "127.0.0.1", **more}


@test
def torchrun_s_variables_start_a_rank():
    with reserved_port() as port:
        check_run(together(*(rank(r, MASTER_PORT=str(port)) for r in range(2))))


@test
def restart_counts_of_torchrun_s_agents_may_differ():
    """An agent that joins a run later counts from 0."""
    with reserved_port() as port:
        check_run(together(*(
            rank(r, MASTER_PORT=str(port - 1), TORCHELASTIC_RUN_ID="x",
                 TORCHELASTIC_RESTART_COUNT=str(r)) for r in range(2))))


@test
def the_port_of_torchrun_s_own_server_stays_free():
    while True:
        with reserved_port() as port, socket.socket() as server:
            try:
                server.bind(("127.0.0.1", port - 1))
            except OSError:  # another program has it
                continue
            server.listen()
            check_run(together(*(
                rank(r, MASTER_PORT=str(port - 1), TORCHELASTIC_RUN_ID="x")
                for r in range(2))))
            return


@test
def hosts_start_the_ranks_of_each_host():
    with reserved_port() as port:
        given = SECRET | {"MASTER_PORT": str(port)}
        check_run(together((["--hosts", f"{NAME}:2"], given)))
    with reserved_port() as port:  # where srun starts a process on each host
        given = SECRET | {"MASTER_PORT": str(port), "PMIX_RANK": "0"}
        check_run(together((["--hosts", f"{NAME}:2"], given)))
    for first, more in ("127.0.0.1", {}), ("x.invalid",
                                           {"MASTER_ADDR": "127.0.0.1"}):
        with reserved_port() as port:
            given = SECRET | {"MASTER_PORT": str(port)} | more
            check_run(together(*((["--hosts", f"{first}:1,localhost:1"],
                                  given | {"NODE_RANK": str(n)})
                                 for n in range(2))))


@test
def ranks_without_hosts_join_hosts():
    """A rank that plain variables start does not know the ranks per host."""
    for alone in range(2):
        with reserved_port() as port:
            starts = [(["--hosts", "127.0.0.1:1,localhost:1"], SECRET |
                       {"NODE_RANK": str(i), "MASTER_PORT": str(port)})
                      for i in range(2)]
            starts[alone] = rank(alone, MASTER_PORT=str(port))
            check_run(together(*starts))


@test
def other_lists_of_hosts_end_the_run():
    """Rank 1 is missing, but the ranks do not wait for it."""
    for n, first, last in ((3, "127.0.0.1:1,localhost:2",
                            "127.0.0.1:2,localhost:1"),
                           (5, "127.0.0.1:2,localhost:1,x.invalid:2",
                            "127.0.0.1:4,localhost:1")):
        uniform("more.yaml", devices=n, microbatches=2, times=(1, 1, 1))
        with reserved_port() as port:
            hosts = [subprocess.Popen(
                [PROGRAM, "train", "more.yaml", *TRAIN[2:], "--hosts", names],
                cwd=WORK, text=True, env=ENVIRONMENT | SECRET |
                {"NODE_RANK": str(i), "MASTER_PORT": str(port)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for i, names in enumerate((first, last))]
            errors = [one.communicate(timeout=harness.HANGS)[1] for one in hosts]
        check(all(one.returncode == 1 for one in hosts) and
              all(f"rank {n - 1} has another --hosts than rank 0: give all ranks "
                  "the same plan, options and data" in err for err in errors),
              errors)


@test
def rank_0_s_error_ends_its_host_s_ranks():
    """Another program has the port: rank 1 connects to it, but does not wait
    until rank 0's answer times out, and so prints nothing."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (_, err, code), = together((["--hosts", f"{NAME}:2"], SECRET | {
            "MASTER_PORT": str(other.getsockname()[1])}))
    check(code == 1 and err.count("longhaul: ") == 1 and "uses the port; set "
          "LONGHAUL_PORT to another port for all ranks" in err, err)


@test
def a_rank_names_the_port_of_a_program_that_does_not_answer():
    """In virtual time; after 60 s."""
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        case("silent", TRAIN, 1, program=VIRTUAL, env=rank(
            1, MASTER_PORT=str(port))[1],
             err="rank 0: its handshake timed out while rank 1 joined; another "
             f"program may use port {port}: see rank 0's error, or set "
             "LONGHAUL_PORT to another port for all ranks")


def make_training():
    """A small model on two stages, and data for it in two hosts' folders."""
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    for old, new in [("hidden: 128, ffn: 384", "hidden: 16, ffn: 24"),
                     ("head_dim: 32", "head_dim: 4"), ("pipeline: 4", "pipeline: 2"),
                     ("gpus_per_node: 4", "gpus_per_node: 2"),
                     ("sequence: 128", "sequence: 8")]:
        job = job.replace(old, new)
    trained.make_plan(job)
    for name in ("west", "east"):
        (WORK / name).mkdir(exist_ok=True)
        for file in ("plan.json", "text"):
            shutil.copy(WORK / file, WORK / name)


def train(*hosts, more=(), last=()):
    """Runs a rank in each of the folders, the last with more options; returns
    statuses, errors."""
    with reserved_port() as port:
        running = [subprocess.Popen(
            [PROGRAM, *trained.TRAIN, "--transport", "tcp", "--steps", "3", *more,
             *(last if i == len(hosts) - 1 else ())],
            cwd=WORK / host, text=True,
            env=ENVIRONMENT | rank(i, MASTER_PORT=str(port))[1],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for i, host in enumerate(hosts)]
        return [(one.communicate(timeout=harness.HANGS)[1], one.returncode)
                for one in running]


@test
def a_checkpoint_folder_that_hosts_do_not_share_ends_the_run():
    """Before the first step, on all ranks; the folders stay as before."""
    make_training()
    (WORK / "west/run").mkdir()
    stale = WORK / "west/run/.shared-00000000000a1"  # of a killed run
    stale.write_text("")
    other = WORK / "west/run/.shared-notes"  # of no run
    other.write_text("")
    for east in (False, True):  # the other host has none, or another one
        if east:
            (WORK / "east/run").mkdir()
        ended = train("west", "east", more=["--checkpoint", "run"])
        check(all(code == 1 for _, code in ended) and
              "rank 1: run: is not the folder in which rank 0 has created a file: "
              "all hosts need the same checkpoint folder on a shared file system"
              in ended[0][0] + ended[1][0], f"{ended}")
        check([*(WORK / "west/run").iterdir()] == [other], "other files")
    other.unlink()
    (WORK / "east/run").rmdir()
    (WORK / "east/run").symlink_to(WORK / "west/run")
    ended = train("west", "east", more=["--checkpoint", "run"])
    check(all(code == 0 for _, code in ended), f"{ended}")
    check([one.name for one in (WORK / "west/run").iterdir()] ==
          ["step-00000003"], "files remain")


@test
def other_files_on_another_host_end_the_run():
    """The validation data, the checkpoint to resume, or the initial weights; they
    have the same names and sizes on both hosts."""
    make_training()
    for host, seed in ("west", 1), ("east", 2):
        (WORK / host / "more").write_text(host * 99)
        done = harness.run(*trained.TRAIN, "--steps", "2", "--seed", "3",
                           "--rate", f"{seed}e-3", "--checkpoint",
                           str(WORK / host / "old"))
        check(done.returncode == 0, done.stderr)
    shutil.copytree(WORK / "west/old", WORK / "west/alone")
    for more, message in (
            (["--validation-data", "more"], "rank 1 has other data than rank 0"),
            (["--seed", "3", "--resume", "alone"], "alone: none of its checkpoints "
             "is intact; the newest: rank 1: alone/step-00000002/state.json: No "
             "such file"),
            (["--seed", "3", "--resume", "old"], "rank 1: old: is another "
             "checkpoint than that of rank 0: all hosts need the same folder"),
            (["--weights", "old/step-00000002"], "rank 1: old/step-00000002: has "
             "other weights than on rank 0's host")):
        ended = train("west", "east", more=more)
        check(all(code == 1 for _, code in ended) and
              message in ended[0][0] + ended[1][0], f"{ended}")


@test
def another_option_is_named():
    make_training()
    for option, *value in (("--clip", "0.25"), ("--warmup", "2"),
                          ("--validation", "0.2"), ("--delayed-update",),
                          ("--adapt",)):
        ended = train("west", "east", last=[option, *value])
        check(all(code == 1 for _, code in ended) and
              f"rank 1 has another {option} than rank 0" in
              ended[0][0] + ended[1][0], f"{option}: {ended}")
    ended = train("west", "east", last=["-s", "gpipe"])
    check("rank 1 has another schedule or other times (--schedule, --speed, "
          "--inject, or the plan) than rank 0" in ended[0][0] + ended[1][0], f"{ended}")


@test
def a_rank_that_fails_before_it_joins_ends_all():
    """Rank 1 cannot read a file, or its arguments; rank 0's errors reach rank 1,
    too."""
    make_training()
    for option, reason in ((["--clip", "-1"], "--clip: '-1' is not a number"),
                           (["--data", "none"], "none: No such file")):
        ended = train("west", "east", last=option)
        check("longhaul: rank 1 failed before it joined: " + reason in
              ended[0][0] and reason in ended[1][0], f"{ended}")
    (WORK / "west/plan.json").write_text("{")
    ended = train("west", "east")
    check("longhaul: rank 0 failed before it joined: plan.json:" in ended[1][0],
          f"{ended}")


@test
def a_launcher_reports_a_rank_that_was_killed_before_it_joined():
    """Its pipeline file is a pipe to which nobody writes."""
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    (WORK / "blocked").mkdir()
    os.mkfifo(WORK / "blocked/pair.yaml")
    with reserved_port() as port:
        hosts = [subprocess.Popen(
            [PROGRAM, *TRAIN, "--hosts", "127.0.0.1:1,localhost:1"],
            cwd=WORK / folder, text=True, env=ENVIRONMENT | SECRET |
            {"NODE_RANK": str(i), "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for i, folder in enumerate((".", "blocked"))]
        check(harness.until(lambda: children(hosts[1].pid), hosts[1]), "rank 1")
        os.kill(children(hosts[1].pid)[0], signal.SIGKILL)
        errors = [one.communicate(timeout=harness.HANGS)[1] for one in hosts]
    check([one.returncode for one in hosts] == [1, 128 + signal.SIGKILL] and
          errors[0] == "longhaul: rank 1 failed before it joined: killed by "
          "signal 9\n", f"{errors}")


@test
def only_ranks_report_failures():
    """srun has started a process per host for --hosts, which is not a rank."""
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    with socket.socket() as rank_0:
        rank_0.bind(("127.0.0.1", 0))
        rank_0.listen()
        rank_0.setblocking(False)
        done = harness.run(*TRAIN, "--hosts", "elsewhere:2", env=SECRET | {
            "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0",
            "LONGHAUL_HOST": "127.0.0.1",
            "LONGHAUL_PORT": str(rank_0.getsockname()[1])})
        check("this host is not in the list" in done.stderr, done.stderr)
        try:
            rank_0.accept()[0].close()
            check(False, "the process reports a failure as a rank of srun")
        except BlockingIOError:
            pass


@test
def a_signal_ends_ranks_that_join():
    """Rank 0 waits for rank 2; the signal to rank 1, whose handshake may not be
    complete, reaches rank 0, too."""
    uniform("three.yaml", devices=3, microbatches=2, times=(1, 1, 1))
    with reserved_port() as port:
        ranks = [subprocess.Popen(
            [PROGRAM, "train", "three.yaml", *TRAIN[2:]], cwd=WORK, text=True,
            env=ENVIRONMENT | rank(i, MASTER_PORT=str(port))[1] |
            {"WORLD_SIZE": "3"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for i in range(2)]
        harness.until(lambda: is_connected(ranks[1].pid, port), ranks[1])
        ranks[1].send_signal(signal.SIGTERM)
        ended = [(one.communicate(timeout=harness.HANGS)[1], one.returncode)
                 for one in ranks]
    check(ended == [("longhaul: rank 1 was stopped before all ranks had joined\n",
                     1)] * 2, f"{ended}")


@test
def a_signal_to_one_host_reaches_hosts_that_join_later():
    """The other host's rank reads the pipeline file, a pipe, when the signal
    comes; with --max-restarts ranks run in child processes."""
    uniform("three.yaml", devices=3, microbatches=2, times=(1, 1, 1))
    for late, more in (1, []), (0, []), (1, ["--max-restarts", "1"]):
        folder = WORK / f"late{late}{len(more)}"
        folder.mkdir()
        os.mkfifo(folder / "three.yaml")
        with reserved_port() as port:
            hosts = [subprocess.Popen(
                [PROGRAM, "train", "three.yaml", *TRAIN[2:], *more, "--hosts",
                 f"127.0.0.1:{1 + late},localhost:{2 - late}"], cwd=folder if i == late else WORK,
                text=True, env=ENVIRONMENT | SECRET |
                {"NODE_RANK": str(i), "MASTER_PORT": str(port)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for i in range(2)]
            first, last = hosts[1 - late], hosts[late]
            harness.until(lambda: len(children(first.pid)) == 2 and
                          children(last.pid), first)
            first.send_signal(signal.SIGTERM)
            said = harness.read_line(first.stderr, first)
            check(harness.write_fifo(folder / "three.yaml", read("three.yaml"),
                                     last), "the late rank reads its file")
            ends = [one.communicate(timeout=harness.HANGS)[1] for one in hosts]
        check("was stopped before all ranks had joined" in said or
              "was killed by signal 15" in said, f"{late} {more}: {said} {ends}")
        check(last.returncode == 1 and re.search(
            r"longhaul: rank \d (was stopped before all ranks had joined|failed "
            r"before it joined: killed by signal 15)\n", ends[late]) and
              "cannot be reached" not in ends[late] and
              "in time" not in ends[late], f"{late} {more}: {ends}")


@test
def a_rank_that_sends_the_reason_is_not_killed():
    """Rank 0 waits 10 s for the other host's rank; rank 1 ends before."""
    uniform("three.yaml", devices=3, microbatches=2, times=(1, 1, 1))
    with reserved_port() as port:
        host = subprocess.Popen(
            [PROGRAM, "train", "three.yaml", *TRAIN[2:], "--hosts",
             "127.0.0.1:2,localhost:1"], cwd=WORK, text=True,
            env=ENVIRONMENT | SECRET |
            {"NODE_RANK": "0", "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(harness.until(lambda: len(children(host.pid)) == 2 and is_connected(
            children(host.pid)[1], port), host), "rank 1 is connected")
        host.send_signal(signal.SIGTERM)
        err = host.communicate(timeout=harness.HANGS)[1]
    check(host.returncode == 1 and re.fullmatch(
        r"(longhaul: rank \d was stopped before all ranks had joined\n)+", err),
        f"{host.returncode} {err}")


def is_connected(pid, port):
    """Tests whether the process is connected to a port of this host."""
    with open(f"/proc/{pid}/net/tcp", encoding="utf-8") as file:
        peers = [line.split()[2:4] for line in file]
    return [f"0100007F:{port:04X}", "01"] in peers


@test
def launched_processes_do_not_run_the_whole_job_each():
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        case(name, ["train", "pair.yaml"], 2, env={name: "2"},
             err=f"{name}=2: each of the processes that a launcher has started "
             "would run the whole job; add --transport tcp, or --transport inproc")
    case("one process", ["train", "pair.yaml"], out=ANY, env={"WORLD_SIZE": "1"})
    case("chosen", ["train", "pair.yaml", "--transport", "inproc"], out=ANY,
         env={"WORLD_SIZE": "2"})


@test
def wrong_launches_are_reported():
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    given = SECRET | {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                      "MASTER_PORT": "1"}
    for env, message in (
            (given | {"WORLD_SIZE": "3"}, "3 ranks were started, but the plan "
             "has 2: WORLD_SIZE 2"),
            (given | {"RANK": "2"}, r"RANK, WORLD_SIZE \(at most 4096\) and "),
            (given | {"LONGHAUL_SECRET": "short"}, "ranks started by torchrun "
             "or --hosts"),
            (given | {"LONGHAUL_PORT": "0"}, "LONGHAUL_PORT: '0' is not a port"),
            ({}, "RANK, WORLD_SIZE=2, MASTER_ADDR and MASTER_PORT")):
        case("environment", TRAIN, 1, err=message, env=env, program=VIRTUAL)
    # Each rank reports its own environment: rank 0's may be valid.
    for more, message in (
            ({"WORLD_SIZE": "3"}, "3 ranks were started, but the plan has 2"),
            ({"LONGHAUL_SECRET": ""}, "ranks started by torchrun")):
        case("rank 1", TRAIN, 1, err=f"longhaul: RANK=1: {message}",
             env=given | {"RANK": "1"} | more, program=VIRTUAL)
    # One rank of a host reports that the host lacks the secret.
    done = harness.run(*TRAIN, "--hosts", f"{NAME}:2", env={
        "NODE_RANK": "0", "MASTER_PORT": "1"})
    check(done.returncode == 1 and done.stderr.count("longhaul: ") == 1 and
          "RANK=0: ranks started by torchrun or --hosts" in done.stderr,
          done.stderr)
    # Rank 0's host name, as seen by other hosts, must not mean themselves.
    local = given | {"MASTER_ADDR": "localhost", "LOCAL_WORLD_SIZE": "1"}
    case("loopback", TRAIN, 1, env=local,
         err="rank 0's node localhost resolves its own name to a loopback "
         r"address \(/etc/hosts\): set MASTER_ADDR, or the first name of --hosts")
    case("loopback", [*TRAIN, "--hosts", "localhost:1,b:1"], 1,
         err="resolves its own name to a loopback",
         env=SECRET | {"NODE_RANK": "0"})
    for hosts, message in (
            ("a:1,b", "'b' must be NAME:RANKS"), ("a:0", "'a:0' must be"),
            (":2", "':2' must be"), ("nowhere:2", "not in the list"),
            (f"{NAME}:1,{NAME}:1", "is there twice")):
        case("hosts", [*TRAIN, "--hosts", hosts], 2, err=message)
    case("position", [*TRAIN, "--hosts", f"{NAME}:2"], 2,
         err="NODE_RANK: 'x' is not a position", env={"NODE_RANK": "x"})
    case("both", [*TRAIN, "--hosts", f"{NAME}:2"], 2, err="RANK is set", env=given)
    case("transport", ["train", "pair.yaml", "--hosts", "a:2"], 2,
         err="--hosts requires --transport tcp or ucx")


def stopped_launch(stopped, *options):
    """Starts the launcher of two ranks, and stops the listed ones in the run."""
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    log = WORK / "stopped.jsonl"
    log.unlink(missing_ok=True)
    with reserved_port() as port:
        process = subprocess.Popen(
            [PROGRAM, *TRAIN[:-3], "--hosts", "x:2", "--steps", "1000000", "--log",
             str(log), *options], env=ENVIRONMENT | SECRET | {
                "NODE_RANK": "0", "MASTER_PORT": str(port)}, text=True,
            cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(harness.until(lambda: log.exists() and log.read_text(), process),
              "the run has begun")
    ranks = children(process.pid)
    for rank in stopped:
        os.kill(ranks[rank], signal.SIGSTOP)
    return process


@test
def a_launcher_kills_a_stopped_rank_after_the_silence():
    process = stopped_launch([0], "--silence", "0.2s")
    err = process.communicate(timeout=harness.HANGS)[1]
    check(process.returncode == 128 + signal.SIGKILL and
          "longhaul: the process of rank 0 was stopped for longer than 200 ms "
          "(--silence) and is killed\n" in err and "did not end" not in err, err)


@test
def a_launcher_kills_stopped_ranks_after_the_second_signal():
    process = stopped_launch([0, 1], "--silence", "1h")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        harness.until(lambda: caught_none(process.pid, signal.SIGINT), process)
    err = process.communicate(timeout=harness.HANGS)[1]
    check(process.returncode == 128 + signal.SIGKILL and all(
        f"longhaul: rank {rank} did not end after the second signal and was "
        "killed\n" in err for rank in range(2)), err)


def run_on_hosts(*options, between=lambda hosts: None, last=()):
    """Runs a rank with the options on each of two hosts, the last with more
    options, and calls `between` with the launchers once the run has begun.
    Returns errors and statuses."""
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    uniform("slow.yaml", devices=2, microbatches=2, times=(50, 50, 50))
    log = WORK / "hosts.jsonl"
    log.unlink(missing_ok=True)
    with reserved_port() as port:
        hosts = [subprocess.Popen(
            [PROGRAM, *options, *(last if i else ()), "--transport", "tcp",
             "--hosts", "127.0.0.1:1,localhost:1"], cwd=WORK, text=True,
            env=ENVIRONMENT | SECRET | {"NODE_RANK": str(i), "MASTER_PORT":
                                        str(port)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(2)]
        if "--log" in options:
            check(harness.until(lambda: log.exists() and log.read_text(),
                                hosts[0]), "the run has begun")
        between(hosts)
        return [(one.communicate(timeout=harness.HANGS)[1], one.returncode)
                for one in hosts]


ENDLESS = ["train", "pair.yaml", "-s", "1f1b", "--steps", "1000000", "--log",
           "hosts.jsonl"]


@test
def each_host_prints_why_the_run_failed():
    make_training()
    ended = run_on_hosts(*trained.TRAIN, "--resume", "none")
    check(ended == [("longhaul: rank 0: none: No such file or directory\n", 1)] * 2,
          f"{ended}")
    ended = run_on_hosts(*ENDLESS, between=lambda hosts: os.kill(
        children(hosts[1].pid)[0], signal.SIGKILL))
    check("longhaul: rank 1: its connection to rank 0 was " in ended[0][0] and
          "checkpoint" not in ended[0][0] and
          ended[1] == ("longhaul: rank 1 was killed by signal 9 (Killed)\n",
                       128 + signal.SIGKILL), f"{ended}")
    log = WORK / "hosts.jsonl"
    ended = run_on_hosts(
        *trained.TRAIN, "--steps", "1000000", "--checkpoint", "last",
        "--checkpoint-every", "1", "--keep", "1", "--log", log.name,
        between=lambda hosts: [
            harness.until(lambda: [*(WORK / "last").glob("step-*")], hosts[0]),
            os.kill(children(hosts[1].pid)[0], signal.SIGKILL)])
    check(re.search(r"rank 1: its connection to rank 0 was .*; the last checkpoint "
                    r"is step \d+ in last: continue with --resume",
                    ended[0][0]), f"{ended}")
    write("kills.yaml", """
        longhaul: events/1
        events:
          - {at: 1, rank: 1, process: killed}
          - {at: 2, rank: 1, process: killed}
        """)
    ended = run_on_hosts(*ENDLESS[:-2], "--events", "kills.yaml", "--max-restarts",
                         "1")
    check(all(code == 1 and "all restarts are used up (--max-restarts 1)" in err
              for err, code in ended), f"{ended}")


@test
def a_signal_to_one_host_ends_all():
    """Each names the rank. With restarts, ranks run in child processes."""
    for more in [], ["--max-restarts", "1"]:
        ended = run_on_hosts(*ENDLESS, *more, between=lambda hosts:
                             hosts[1].send_signal(signal.SIGTERM))
        check(ended == [("longhaul: rank 1 received a stop request: the run "
                         "ends\n", 1)] * 2, f"{more}: {ended}")
    ended = run_on_hosts(*ENDLESS, between=lambda hosts:
                         hosts[0].send_signal(signal.SIGTERM))
    check("stopping after this iteration" in ended[0][0] and ended[1] ==
          ("longhaul: rank 0 received a stop request: the run ends\n", 1),
          f"{ended}")


@test
def a_stopped_rank_that_does_not_restart_ends_all():
    """The rank that a process supervises is lost after the process received a
    stop request; the other host restarts, and would wait 60 s for it."""
    def lose(host):
        supervisor, = children(host.pid)
        rank, = children(supervisor)
        os.kill(rank, signal.SIGSTOP)
        os.kill(supervisor, signal.SIGTERM)
        harness.until(lambda: caught_none(supervisor, signal.SIGTERM), host)
        os.kill(rank, signal.SIGKILL)

    for i in range(2):
        ended = run_on_hosts(*ENDLESS, "--max-restarts", "9", "--silence", "600s",
                             between=lambda hosts, i=i: lose(hosts[i]))
        check(all(code == 1 and f"the run ends instead of restarting, because "
                  f"rank {i} received a stop request" in err and
                  "in time" not in err for err, code in ended), f"{ended}")


@test
def a_signal_in_the_last_iteration_changes_nothing():
    ended = run_on_hosts("train", "slow.yaml", *ENDLESS[2:4], "--steps", "2",
                         *ENDLESS[-2:], between=lambda hosts:
                         hosts[1].send_signal(signal.SIGTERM))
    check(ended == [("", 0)] * 2, f"{ended}")


@test
def an_invalid_command_line_on_one_host_ends_all():
    """Also if --hosts follows the invalid option."""
    for option, message in (["--steps", "-1"], "--steps: '-1' "), (
            ["--keep", "1"], "--keep requires --device cpu"):
        ended = run_on_hosts(*TRAIN[:4], last=option)
        check(ended[1][1] == 2 and message in ended[1][0] and ended[0][1] == 1 and
              "longhaul: rank 1 failed before it joined: " + message in
              ended[0][0], f"{ended}")


def caught_none(pid, number):
    """Tests whether the process has handled this signal: none is pending."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        pending = [int(line.split()[1], 16) for line in file
                   if line.startswith(("SigPnd", "ShdPnd"))]
    return not any(one >> (number - 1) & 1 for one in pending)


if __name__ == "__main__":
    (lacks,) = together(([], SECRET | {"RANK": "0", "WORLD_SIZE": "1",
                                       "MASTER_ADDR": "127.0.0.1",
                                       "MASTER_PORT": "1"}))
    if "this build" in lacks[1]:
        print(f"SKIPPED: {lacks[1]}", file=sys.stderr)
        sys.exit(77)
    harness.finish()
