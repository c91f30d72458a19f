#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on two hosts with two links between them, under twenty random events:
each run ends with the weights of an undisturbed run, bit for bit.

    tests/net/random_events.py PAIR LONGHAUL SOURCE_ROOT FIRST N  (rails_pair)

Hosts are network namespaces, each with two of the four ranks. Events of the
network and the processes: a link fails and recovers, a link has a lower rate for
a time, a rank is stopped and continued. Events of the run: schedule switches,
layers that migrate to other chunks, ranks that exchange places. Some runs adapt;
some have blocking sends or delegated messages. Exits with status 77 and a reason
if the machine does not permit namespaces. tests/cli/test_random_events.py has the
same events on emulated links."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

EVENTS = 20
STEPS = 60
LAYERS = 5
RANKS = 4
HANGS = 200  # s; processes that hang are ended, and reported
METHODS = ("gpipe", "zb-h1", "zb-h2", "slack", "steady-slack", "1f1b")
JOB = f"""
longhaul: job/1
model: {{layers: {LAYERS}, hidden: 32, ffn: 48, heads: 2, vocab: 256}}
training: {{global_batch: 8, sequence: 16, precision: fp32, zero: 1,
           recompute: none}}
cluster:
  gpu: {{tflops: 0.1, memory_gib: 4, memory_gbps: 20}}
  gpus_per_node: 8
  node_link: {{gbps: 80, latency_us: 10}}
  datacenters: [{{name: here, nodes: 1}}]
layout: {{tensor: 1, context: 1, expert: 1, pipeline: 2, data: 2,
         micro_batch: 1, chunks_per_device: 1, schedule: 1f1b}}
"""


def skip(why):
    print("SKIPPED:", why)
    sys.exit(77)


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


class Hosts:
    """Two network namespaces and the links rail0 and rail1 between them."""

    def __init__(self):
        self.names = [f"lhe{os.getpid()}{end}" for end in "ab"]

    def make(self):
        for name in self.names:
            if ip("netns", "add", name).returncode:
                skip("network namespaces are not permitted here")
            ip("-n", name, "link", "set", "lo", "up")
        for k in range(2):
            if ip("-n", self.names[0], "link", "add", f"rail{k}", "type",
                  "veth", "peer", "name", f"rail{k}", "netns",
                  self.names[1]).returncode:
                skip("no veth here")
            for number, name in enumerate(self.names, 1):
                ip("-n", name, "addr", "add", f"10.79.{k}.{number}/24", "dev",
                   f"rail{k}")
                self.set_link(name, k, "up")

    def set_link(self, name, k, state):
        ip("-n", name, "link", "set", f"rail{k}", state)

    def set_rate(self, name, k, mbit):
        """Sets the rate of a link; 0: unlimited."""
        words = ["tc", "-n", name, "qdisc"]
        root = ["dev", f"rail{k}", "root"]
        if mbit:
            subprocess.run([*words, "replace", *root, "tbf", "rate",
                            f"{mbit}mbit", "burst", "64kb", "latency",
                            "200ms"], capture_output=True)
        else:
            subprocess.run([*words, "del", *root], capture_output=True)

    def are_up(self):
        return all("state UP" in ip("-n", name, "link", "show",
                                    f"rail{k}").stdout
                   for name in self.names for k in range(2))

    def await_up(self):
        for _ in range(600):
            if self.are_up():
                return
            time.sleep(0.1)
        skip("the links do not come up")

    def well_again(self):
        for name in self.names:
            for k in range(2):
                self.set_rate(name, k, 0)
                self.set_link(name, k, "up")
        self.await_up()

    def remove(self):
        for name in self.names:
            ip("netns", "del", name)


def the_changes(chance):
    """Returns options of a run, and the number of events among them."""
    words, blocking = [], []
    if chance.random() < 0.5:
        blocking += ["--coupled", str(chance.randint(1, 3))]
    if chance.random() < 0.5:
        blocking += ["--receives", chance.choice(("late", "late-fd"))]
    if chance.random() < 0.3:
        return [*blocking, "--adapt", "--moving", "1ms"], 0
    if blocking and chance.random() < 0.5:
        words += ["--path", "delegated"]
    n = 0
    for option, most in (("schedule", 4), ("layers", 3), ("places", 3)):
        for step in sorted(chance.sample(range(1, STEPS),
                                         chance.randint(1, most))):
            if option == "schedule":
                to = chance.choice(METHODS)
            elif option == "layers":
                first = chance.randint(1, LAYERS - 1)
                to = f"{first},{LAYERS - first}"
            else:
                to = ",".join(map(str, chance.sample(range(RANKS), RANKS)))
            words += [f"--{option}-at", f"{step}={to}"]
            n += 1
    return words + blocking, n


def the_events(chance, n):
    """Returns (step, kind, ...), by step. A failed link recovers before the
    other one fails, so that a rail is available except for moments."""
    steps = sorted(chance.sample(range(1, STEPS - 1), n))
    down, rows = None, []
    for step in steps:
        what = chance.choice(("link", "link", "rate", "stop"))
        if what == "link" and down:
            rows.append((step, "up", *down))
            down = None
        elif what == "link":
            down = (chance.randrange(2), chance.randrange(2))
            rows.append((step, "down", *down))
        elif what == "rate":
            rows.append((step, "rate", chance.randrange(2), chance.randrange(2),
                         chance.choice((0, 1, 2, 5, 20))))
        else:
            rows.append((step, "stop", chance.randrange(RANKS),
                         chance.uniform(0.05, 0.5)))
    return rows


def make_happen(hosts, ranks, row):
    _, what, *rest = row
    if what in ("up", "down"):
        end, k = rest
        hosts.set_link(hosts.names[end], k, what)
    elif what == "rate":
        end, k, mbit = rest
        hosts.set_rate(hosts.names[end], k, mbit)
    else:
        rank, seconds = rest
        if ranks[rank].poll() is None:
            ranks[rank].send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            ranks[rank].send_signal(signal.SIGCONT)


def start(hosts, longhaul, work, name, port, words):
    """Starts a rank. `ip netns exec` is replaced by the program: signals reach
    the rank itself."""
    ranks = []
    for rank in range(RANKS):
        env = {**os.environ, "SLURM_PROCID": str(rank),
               "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_JOB_ID": "1",
               "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2",
               "LONGHAUL_HOST": "10.79.0.1", "LONGHAUL_PORT": str(port),
               "LONGHAUL_SECRET": "0123456789abcdef" * 2}
        more = ["--log", f"{name}.log", "--json"] if rank == 0 else []
        with open(work / f"{name}.{rank}", "w") as out, \
                open(work / f"{name}.{rank}.err", "w") as err:
            ranks.append(subprocess.Popen(
                ["ip", "netns", "exec", hosts.names[rank // 2], longhaul,
                 *words, *more], cwd=work, env=env, stdout=out, stderr=err))
    return ranks


def steps_done(work, name):
    log = work / f"{name}.log"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def play(hosts, ranks, work, name, rows, until):
    """Applies each event in its step, until the output ends."""
    for row in rows:
        while steps_done(work, name) < row[0]:
            if any(r.poll() is not None for r in ranks) or time.time() > until:
                return
            time.sleep(0.01)
        make_happen(hosts, ranks, row)
    # The last failed link recovers with this.
    hosts.well_again()


def said(work, name):
    texts = [(work / f"{name}.{rank}.err").read_text() for rank in range(RANKS)]
    return " | ".join(" ".join(text.split())[-400:] for text in texts if text)


def run_seed(hosts, longhaul, work, seed, quiet):
    chance = random.Random(f"rails {seed}")
    words, n = the_changes(chance)
    rows = the_events(chance, EVENTS - n)
    what = f"seed {seed}: train {' '.join(words)}; {rows}"
    for attempt in ("blocking", "free"):
        name = f"seed{seed}{attempt}"
        train = ["train", "plan.json", "--device", "cpu", "--data", "text",
                 "--steps", str(STEPS), "--transport", "tcp", "--rails",
                 "rail0,rail1", "--checkpoint", name, *words]
        port = 4800 + 2 * seed + (attempt == "free")
        hosts.well_again()
        ranks = start(hosts, longhaul, work, name, port, train)
        until = time.time() + HANGS
        try:
            play(hosts, ranks, work, name, rows, until)
            for rank in ranks:
                rank.wait(max(1, until - time.time()))
        except subprocess.TimeoutExpired:
            print(f"FAILED: {what}: it hangs after "
                  f"{steps_done(work, name)} steps: {said(work, name)}")
            return False
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.send_signal(signal.SIGCONT)
                    rank.kill()
                    rank.wait()
        if any(r.returncode for r in ranks) and \
                "deadlock: " in said(work, name) and attempt == "blocking":
            # Deadlocks under blocking sends are rejected before the run; the
            # run then uses no blocking sends.
            blocks = {"--coupled", "--receives", "--path"}
            words = [word for before, word in zip(["", *words], words)
                     if not blocks & {before, word}]
            continue
        break
    if any(r.returncode for r in ranks):
        print(f"FAILED: {what}: {[r.returncode for r in ranks]}: "
              f"{said(work, name)}")
        return False
    found = json.loads((work / f"{name}.0").read_text())
    refused = [s for s in found["switches"] if s["refused"]]
    same = weights(work, name) == quiet
    if refused or not same or len(found["iterations"]) != STEPS:
        print(f"FAILED: {what}: refused {refused}, "
              f"{len(found['iterations'])} iterations, "
              f"{'the same' if same else 'other'} bytes")
        return False
    moved = sum(s["moved"] is not None for s in found["switches"])
    print(f"seed {seed}: {len(found['switches'])} switches, {moved} of them "
          f"moved something, {len(rows)} events on links and ranks, "
          f"{found['total_s']:.1f} s of iterations: the same bytes")
    return True


def weights(work, name):
    folder = work / name / f"step-{STEPS:08}"
    return [(folder / file).read_bytes()
            for file in ("model.safetensors", "optimizer.safetensors")]


def main():
    pair, longhaul, _, first, n = sys.argv[1:]
    longhaul = os.path.abspath(longhaul)
    if subprocess.run([pair, "--probe"]).returncode:
        sys.exit(77)
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            skip(f"{tool} is not installed")
    hosts = Hosts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "job.yaml").write_text(JOB)
        (work / "text").write_text(
            "It was the best of times, it was the worst of times.\n" * 99)
        subprocess.run([longhaul, "plan", "job.yaml", "-o", "plan.json", "-q"],
                       cwd=work, check=True, capture_output=True)
        done = subprocess.run(
            [longhaul, "train", "plan.json", "--device", "cpu", "--data",
             "text", "--steps", str(STEPS), "--checkpoint", "quiet"],
            cwd=work, capture_output=True, text=True)
        if "OpenBLAS" in done.stderr:
            skip("OpenBLAS is not installed")
        if done.returncode:
            print(done.stderr)
            sys.exit(1)
        try:
            hosts.make()
            failed = [seed for seed in range(int(first), int(first) + int(n))
                      if not run_seed(hosts, longhaul, work, seed,
                                      weights(work, "quiet"))]
        finally:
            hosts.remove()
    sys.exit(1 if failed else 0)


main()
