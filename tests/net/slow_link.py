#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A link between two of four hosts is throttled during a run, and no file
announces it: the run locates the link and moves the hosts out of their
data-parallel ring. Other load may delay this and move hosts too: the run continues
until the two hosts share no ring. tests/cli/test_host_exchange.py has the exact steps
of such a run in virtual time.

    tests/net/slow_link.py LONGHAUL

Hosts are network namespaces with a link between any two. Exit status 77, with
the reason, where that is not possible."""
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 4
STEPS = 1000000  # the run is stopped
THROTTLED_AFTER = 14
HANGS_S = 900
JOB = """
longhaul: job/1
model: {layers: 4, hidden: 96, ffn: 256, heads: 2, vocab: 256}
training: {global_batch: 8, sequence: 32, precision: fp32, zero: 1,
           recompute: none}
cluster:
  gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}
  gpus_per_node: 8
  node_link: {gbps: 80, latency_us: 10}
  datacenters: [{name: here, nodes: 1}]
layout: {tensor: 1, context: 1, expert: 1, pipeline: 2, data: 2,
         micro_batch: 1, chunks_per_device: 1, schedule: 1f1b}
"""
NAMES = [f"lhs{os.getpid()}{rank}" for rank in range(RANKS)]


def skip(why):
    print("SKIPPED:", why)
    sys.exit(77)


def call(*words, allowed=True):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode and not allowed:
        skip(f"{' '.join(words)}: {done.stderr.strip()}")
    return done


def address(rank):
    return f"10.78.0.{rank + 1}"


def make_hosts():
    for name in NAMES:
        call("ip", "netns", "add", name, allowed=False)
        call("ip", "-n", name, "link", "set", "lo", "up")
    for a, b in itertools.combinations(range(RANKS), 2):
        call("ip", "-n", NAMES[a], "link", "add", f"to{b}", "type", "veth",
             "peer", "name", f"to{a}", "netns", NAMES[b], allowed=False)
        for here, there in ((a, b), (b, a)):
            call("ip", "-n", NAMES[here], "addr", "add", address(here), "peer",
                 f"{address(there)}/32", "dev", f"to{there}")
            call("ip", "-n", NAMES[here], "link", "set", f"to{there}", "up")


def throttle(a, b):
    """Between the hosts a and b only, in both directions."""
    for here, there in ((a, b), (b, a)):
        call("tc", "-n", NAMES[here], "qdisc", "add", "dev", f"to{there}",
             "root", "tbf", "rate", "20mbit", "burst", "16kb", "latency", "2s",
             allowed=False)


def start(longhaul, work):
    train = ["train", "plan.json", "--device", "cpu", "--data", "text",
             "--steps", str(STEPS), "--transport", "tcp", "--adapt",
             "--moving", "20ms", "--replicas", "2"]
    ranks = []
    for rank in range(RANKS):
        env = {**os.environ, "SLURM_PROCID": str(rank),
               "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_JOB_ID": "1",
               "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "4",
               "LONGHAUL_HOST": address(0), "LONGHAUL_PORT": "4790",
               "LONGHAUL_SECRET": "0123456789abcdef" * 2}
        more = ["--log", "log", "--json"] if rank == 0 else []
        with open(work / f"out.{rank}", "w") as out, \
                open(work / f"err.{rank}", "w") as err:
            ranks.append(subprocess.Popen(
                ["ip", "netns", "exec", NAMES[rank], longhaul, *train, *more],
                cwd=work, env=env, stdout=out, stderr=err))
    return ranks


def lines_of(log):
    """Returns the complete lines of a log."""
    text = log.read_text() if log.exists() else ""
    return [json.loads(line) for line in text.splitlines(True)
            if line.endswith("\n")]


def exchanges_of(rows):
    switches = [row["switch"] for row in rows if row.get("switch")]
    return [s for s in switches
            if s["moved"] and s["moved"]["places"] and not s["refused"]]


def moves_of(rows):
    """Returns the places of the hosts after each exchange."""
    return [{rank: place for place, rank in enumerate(s["moved"]["places"])}
            for s in exchanges_of(rows)]


def share_no_ring(places):
    return places[0] % 2 != places[2] % 2


def play(longhaul, work):
    """Returns the log, and the result of rank 0."""
    begin, log = time.monotonic(), work / "log"
    ranks = start(longhaul, work)

    def wait_for(condition):
        while not condition(lines_of(log)):
            if time.monotonic() - begin > HANGS_S or \
                    any(rank.poll() is not None for rank in ranks):
                errors = [(work / f"err.{rank}").read_text()
                          for rank in range(RANKS)]
                sys.exit(f"FAILED: after {len(lines_of(log))} steps: {errors}")
            time.sleep(0.02)
    try:
        wait_for(lambda rows: len(rows) > THROTTLED_AFTER)
        throttle(0, 2)
        wait_for(lambda rows: any(map(share_no_ring, moves_of(rows)[-1:])))
        ranks[0].send_signal(signal.SIGTERM)
        for rank in ranks:
            rank.wait(HANGS_S)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    return lines_of(log), json.loads((work / "out.0").read_text())


def check(rows, found):
    for n in found["noticed"]:
        print(f"after iteration {n['step']}: {n['text']}")
    located = [d["why"] for d in found["decisions"] if "located" in d["why"]]
    reasons = [s["why"] for s in exchanges_of(rows)]
    print(*located, *reasons, moves_of(rows), len(rows), sep="\n")
    if not any("link from host 0 to 2" in why or "link from host 2 to 0" in why
               for why in located):
        if any("slow link between hosts 0 and 2 " in why for why in reasons):
            sys.exit("FAILED: the link was not located")
        print("other load moved the hosts, not the link")
    if not found["interrupted"]:
        sys.exit("FAILED: the run was not stopped")


def main():
    longhaul = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            skip(f"{tool} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "job.yaml").write_text(JOB)
        (work / "text").write_text(
            "It was the best of times, it was the worst of times.\n" * 99)
        subprocess.run([longhaul, "plan", "job.yaml", "-o", "plan.json", "-q"],
                       cwd=work, check=True, capture_output=True)
        done = subprocess.run(
            [longhaul, "train", "plan.json", "--device", "cpu", "--data",
             "text", "--steps", "1"], cwd=work, capture_output=True, text=True)
        if "OpenBLAS" in done.stderr:
            skip("OpenBLAS is not installed")
        try:
            make_hosts()
            check(*play(longhaul, work))
        finally:
            for name in NAMES:
                call("ip", "netns", "del", name)


main()
