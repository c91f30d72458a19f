#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs with twenty random events each end with the bytes of an undisturbed run.

The events: links that become slower by a time or a factor; slower devices (timed
device only); rails that fail and recover; another schedule or path, manually or by
--adapt; layers that migrate and ranks that exchange places; with two replicas, also
the links between hosts, including data-parallel ones. Default runs use a few seeds,
the suite `slow` a hundred.
"""
import json
import pathlib
import random

from harness import (WORK, check, finish, has_few_cases, makes, run, test,
                     uniform, write)
from input_files import TWO_SITES

EVENTS = 20
STEPS = 24
LAYERS = 7  # on four chunks
TRANSPORTS = ("inproc", "local")
METHODS = ("gpipe", "zb-h1", "zb-h2", "slack", "steady-slack", "greedy")


@makes("plan.json", "twins.json", "text")
def plans():
    """Plans four stages on two sites, and two stages with two replicas."""
    job = (TWO_SITES % 8).replace("layers: 4", f"layers: {LAYERS}")
    write("twins.yaml", job)
    write("job.yaml", job.replace("pipeline: 2, data: 2",
                                  "pipeline: 4, data: 1"))
    for name, plan in (("job", "plan"), ("twins", "twins")):
        done = run("plan", f"{name}.yaml", "-o", f"{plan}.json")
        check(done.returncode == 0, done.stderr)
    write("text", "It was the best of times, it was the worst of times.\n" * 99)


def an_event(chance, far, near, kinds):
    """Returns a row of an events file. Delays are long enough to affect
    iterations of some milliseconds, and too short to prolong the run much.
    Factors of one link multiply."""
    begin = chance.randrange(STEPS - 1)
    end = chance.randrange(begin + 1, STEPS + 4)
    what = chance.choice(kinds)
    row = f"  - {{from: {begin}, to: {end}, "
    if what == "device":
        return (row + f"device: {chance.randrange(4)}, "
                f"slower: x{chance.uniform(1.1, 1.5):.2f}}}")
    # Only links between the sites have delays that a factor could change.
    links = far if what == "factor" else far + near
    some = chance.sample(links, chance.randint(1, 2))
    row += f"links: [{', '.join(repr(link) for link in some)}], "
    if what == "factor":
        return row + f"slower: x{chance.uniform(1.1, 1.5):.2f}}}"
    return row + f"{what}: {chance.uniform(0.1, 2):.2f}}}"


def a_rail(chance):
    """Returns events of a rail that fails and recovers, then fails again. Ranks
    1 and 2 communicate between the sites; other ranks may have no links."""
    rank = chance.randint(1, 2)
    steps = sorted(chance.sample(range(STEPS), chance.randint(1, 3)))
    return [f"  - {{at: {step}, rank: {rank}, rail: {('down', 'up')[i % 2]}}}"
            for i, step in enumerate(steps)]


def the_events(chance, n, *named, rails=True):
    rows = a_rail(chance) if rails else []
    rows += [an_event(chance, *named) for _ in range(n - len(rows))]
    chance.shuffle(rows)
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n" +
          "\n".join(rows) + "\n")


def ring():
    """Returns four stages on equal hosts, which exchange data in a ring."""
    links = [(a, b) for a in range(4) for b in (a - 1, a + 1) if 0 <= b < 4]
    write("ring.yaml", "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 8\n"
          "devices: 4\nuniform: {placement: ud, F: 2, D: 2, W: 2, memory: "
          "{F: 1, D: 0, W: -1}}\nlinks:\n" +
          "".join(f"  - {{from: {a}, to: {b}, latency: 1, transfer: 1}}\n"
                  for a, b in links) + "data_parallel:\n" +
          "".join(f"  - {{chunk: {c}, all_gather: 3, reduce_scatter: 3}}\n"
                  for c in range(4)))


def the_moves(chance, chunks, hosts, timed):
    """Returns the migrations of layers and ranks, and their number."""
    words, n = [], 0
    layers = chance.sample(range(1, STEPS), chance.randint(0, 3))
    for step in sorted(layers):
        cuts = [0, *sorted(chance.sample(range(1, LAYERS), chunks - 1)),
                LAYERS]
        numbers = [str(b - a) for a, b in zip(cuts, cuts[1:])]
        words += ["--layers-at", f"{step}={','.join(numbers)}"]
        n += 1
    if timed and n:
        words += ["--layers", "2,2,2,1"]
    ranks = chance.sample(range(1, STEPS), chance.randint(0, 3))
    for step in sorted(ranks) if hosts else []:
        places = [str(rank) for rank in chance.sample(range(hosts), hosts)]
        words += ["--places-at", f"{step}={','.join(places)}"]
        n += 1
    return words + (["--moving", "20ms"] if timed and n else []), n


def how_it_changes(chance, transport, link, chunks=4, hosts=4, timed=False):
    """Returns options, and the number of events among them."""
    words = ["--transport", transport, "--steps", str(STEPS)]
    blocking = []
    if chance.random() < 0.5:
        blocking += ["--coupled", str(chance.randint(1, 3))]
    if chance.random() < 0.5:
        blocking += ["--receives", chance.choice(("late", "late-fd"))]
    words += blocking
    if chance.random() < 0.4:
        words += ["--adapt", "--moving", "1ms"]
        return words + (["--layers", "2,2,2,1"] if timed else []), 0
    if blocking and chance.random() < 0.5:
        words += ["--path", chance.choice(("delegated", f"{link}=delegated"))]
    steps = chance.sample(range(1, STEPS), chance.randint(1, 6))
    for step in sorted(steps):
        words += ["--schedule-at", f"{step}={chance.choice(METHODS)}"]
    moves, n = the_moves(chance, chunks, hosts, timed)
    return words + moves, len(steps) + n


def trained(words):
    """Runs training. Deadlocks under blocking sends are rejected before the
    run; the run then uses no blocking sends."""
    done = run("train", *words, "--json")
    if done.returncode and "deadlock: " in done.stderr:
        blocks = {"--coupled", "--receives", "--path"}
        free = [word for before, word in zip(["", *words], words)
                if not blocks & {before, word}]
        return run("train", *free, "--json")
    return done


def links_of(n):
    """Returns the links between hosts, bidirectional and unidirectional."""
    return [f"h{a}{way}h{b}" for way in "->" for a in range(n)
            for b in range(n) if a < b or way == ">" and a != b]


def weights(name):
    return pathlib.Path(WORK, name, f"step-{STEPS:08}",
                        "model.safetensors").read_bytes()


def trains_to_the_same_bytes(seed, transport, quiet):
    chance = random.Random(f"{seed} {transport} cpu")
    twins = chance.random() < 0.5
    words, n = how_it_changes(chance, transport, "west>east",
                              chunks=2 if twins else 4)
    kinds = ["latency", "transfer", "factor"]
    if twins:
        the_events(chance, EVENTS - n, links_of(4), [], kinds, rails=False)
        words += ["--replicas", "2"]
        if "--places-at" in words:
            words += ["--moving", "1ms"]
    else:
        the_events(chance, EVENTS - n, ["west-east", "west>east", "east>west"],
                   ["0-1", "2>3", "3>2"], kinds)
    plan = "twins.json" if twins else "plan.json"
    name = f"cpu-{seed}-{transport}"
    done = trained([plan, "--device", "cpu", "--data", "text", "--checkpoint",
                    name, "--events", "e.yaml", *words])
    what = f"seed {seed}, {transport}: train {plan} {' '.join(words)}"
    if check(done.returncode == 0, f"{what}: {done.stderr}"):
        found = json.loads(done.stdout)
        check(len(found["iterations"]) == STEPS, what)
        check(all(s["refused"] is None for s in found["switches"]),
              f"{what}: {found['switches']}")
        check(weights(name) == quiet[plan], f"{what}: weights")
        return len(found["switches"]), sum(s["moved"] is not None
                                           for s in found["switches"])
    return 0, 0


def plays_to_its_end(seed, transport):
    """Runs the timed device, whose passes only wait; devices may be slowed
    down, too."""
    chance = random.Random(f"{seed} {transport} timed")
    twins = chance.random() < 0.5
    words, n = how_it_changes(chance, transport, "0>1" if twins else "dc0>dc1",
                              hosts=8 if twins else 0, timed=True)
    kinds = ["latency", "transfer", "factor", "device"]
    if twins:
        the_events(chance, EVENTS - n, links_of(8), [], kinds, rails=False)
        words += ["--replicas", "2"]
    else:
        the_events(chance, EVENTS - n, ["dc0-dc1", "dc0>dc1", "dc1>dc0"],
                   ["0-1", "2>3", "3>2"], kinds)
    name = "ring.yaml" if twins else "p.yaml"
    done = trained([name, "-s", "1f1b", "--speed", "8", "--events", "e.yaml",
                    *words])
    what = f"seed {seed}, {transport}: train {name} {' '.join(words)}"
    if check(done.returncode == 0, f"{what}: {done.stderr}"):
        check(len(json.loads(done.stdout)["iterations"]) == STEPS, what)


def runs(seeds):
    plans()
    ring()
    uniform("p.yaml", microbatches=8, times=(2, 2, 2), latency=1, transfer=1)
    quiet, trains = {}, True
    for plan in ("plan.json", "twins.json"):
        done = run("train", plan, "--device", "cpu", "--data", "text",
                   "--steps", STEPS, "--checkpoint", f"quiet-{plan}", "--json")
        trains = "OpenBLAS" not in done.stderr
        if not trains:
            print("SKIPPED training: OpenBLAS is not installed")
            break
        if not check(done.returncode == 0, done.stderr):
            return
        quiet[plan] = weights(f"quiet-{plan}")
    n_switches = n_moved = 0
    for seed in seeds:
        for transport in TRANSPORTS:
            plays_to_its_end(seed, transport)
            if trains:
                n = trains_to_the_same_bytes(seed, transport, quiet)
                n_switches += n[0]
                n_moved += n[1]
    if trains:
        check(n_switches > n_moved, "no run went on by another schedule")
        check(n_moved > 0, "nothing moved in any run")


@test
def a_few_seeds():
    runs(range(1, 2) if has_few_cases() else range(3))


@test
def a_hundred_seeds():
    runs(range(100))


finish()
