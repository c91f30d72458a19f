#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every function that has a command: with random arguments, on random pipelines
and scenarios, it returns the program's output, or both reject the input.

    test_functions.py PROGRAM ROOT

Needs longhaul installed by pip; $LONGHAUL_PYTHON names a Python that has it."""
import inspect
import json
import random
import re
import subprocess

from import_longhaul import longhaul

import harness
from compare_program import printed, random_pipeline
from harness import PROGRAM, ROOT, WORK, check, run, test

# --- arguments, and the program's options for them
# ------------------------------


def flag(word):
    return lambda r: (True, [word])


def one_of(word, *values):
    def draw(r):
        value = r.choice(values)
        return value, [word, value]
    return draw


def timed(option, hours):
    """Returns a maker of a time in seconds, and of its option in hours."""
    return lambda r: (3600.0 * hours, [option, f"{hours}h"])


def listed(word, least, most, n):
    """Joins numbers by commas."""
    def draw(r):
        values = [r.randint(least, most) for _ in range(n)]
        return values, [word, ",".join(map(str, values))]
    return draw


def some_of(word, *names):
    def draw(r):
        chosen = r.sample(names, r.randint(1, 3))
        return chosen, [word, ",".join(chosen)]
    return draw


def jitter(r):
    latency, rate, factor = r.choice((0.1, 0.3)), 0.05, r.choice((2, 3))
    samples, seed = r.randint(5, 40), r.randint(0, 9)
    return (longhaul.Jitter(latency=latency, degraded=(rate, factor),
                            samples=samples, seed=seed),
            ["--jitter", f"latency={latency},degraded={rate}x{factor}",
             "--samples", samples, "--seed", seed])


SIMULATED = {"receives": one_of("--receives", "early", "late", "late-fd"),
             "coupled": one_of("--coupled", 1, 2, 5),
             "fifo": flag("--fifo"),
             "sub_blocks": one_of("--sub-blocks", 2, 3)}
OBJECTIVE = one_of("--objective", "makespan", "first-device")
METHODS = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "greedy",
           "interleaved-1f1b")
MORE_METHODS = (*METHODS, "auto", "elastic", "flexible", "dorapp", "slack")
# Arguments that are generated together.
ARGUMENTS = {
    "simulate": {**SIMULATED, "objective": OBJECTIVE, "jitter": jitter},
    "schedule": {**SIMULATED, "whole": flag("--whole"),
                 "group": one_of("--group", 2, 4),
                 "enqueue": listed("--enqueue", 1, 3, 2),
                 "dequeue": listed("--dequeue", 1, 3, 2),
                 "warmup": listed("--warmup", 1, 4, 2),
                 "objective": one_of("--objective", "makespan")},
    "optimal": {"effort": one_of("--effort", 500, 3000),
                "threads": one_of("--threads", 1),
                "gap": lambda r: (0.05, ["--gap", 5]),
                "seed": one_of("--seed", 1, 2),
                "without": one_of("--without", "beams", "annealing"),
                "objective": OBJECTIVE},
    "check": {"fifo": flag("--fifo")},
    "compare": {**SIMULATED, "objective": OBJECTIVE, "jitter": jitter,
                "methods": some_of("--methods", *METHODS),
                "by": one_of("--by", "predicted"),
                "replay": flag("--replay")},
    "export": {"form": one_of("--form", "compute_only", "compute_comms"),
               "sub_blocks": one_of("--sub-blocks", 2)},
    "optical": {"seeds": lambda r: (lambda n: ([n], ["--seed", n]))(
                    r.randint(1, 99)),
                "threads": one_of("--threads", 1, 2)},
    "size": {"budget_usd": one_of("--budget", 1000000),
             "nodes": lambda r: ([(1, 2)], ["--nodes", "1:2"]),
             "gpu_mtbf_s": timed("--gpu-mtbf", 1000),
             "link_mtbf_s": timed("--link-mtbf", 100),
             "checkpoint_s": timed("--checkpoint", 1),
             "restart_s": timed("--restart", 2),
             "repair_s": timed("--repair", 3),
             "link_repair_s": timed("--link-repair", 4),
             "spares": one_of("--spares", 1),
             "lose": one_of("--lose", 1),
             "spot": lambda r: ((0.5, 72000), ["--spot", "0.5,20h"]),
             "gpu_hour_usd": one_of("--gpu-hour", 3),
             "per_gb_usd": one_of("--per-gb", 0.02),
             "effort": one_of("--effort", 2, 30),
             "threads": one_of("--threads", 1)},
}
# Arguments that other tests cover, that have no option, that depend on the
# machine, or that do not affect the result.
ELSEWHERE = {
    "simulate": {"schedule", "progress"},
    "schedule": {"method", "time_limit_s", "progress"},
    "check": {"schedule", "certificate"},
    "compare": {"latency", "transfer", "progress"},
    "export": {"schedule", "allow_inexact"},
    "optical": {"progress"},
    "size": {"tokens", "deadline_s", "progress"},
}


def drawn(r, command, most=3):
    """Returns random arguments, and the options for them."""
    table = ARGUMENTS[command]
    given, words = {}, []
    for name in r.sample(sorted(table), r.randint(0, min(most, len(table)))):
        given[name], more = table[name](r)
        words += more
    return given, words


seen = {}


def agree(command, call, *words, but=()):
    """Checks that both return the same result or both reject the arguments;
    returns the package's result. The program also rejects options without
    effect; such cases are not compared."""
    what = f"{command} {' '.join(map(str, words))}"
    done = run(command, *words, "--json")
    if done.returncode == 2:
        return None
    try:
        result = call()
    except longhaul.Error as error:
        check(done.returncode == 1 and " ".join(str(error).split()) in
              " ".join(done.stderr.split()),
              f"{what}: {error}, but {done.stdout[:200]} {done.stderr}")
        return None
    told = {"text": result} if isinstance(result, str) else result.to_dict()
    # check exits with 1 for an invalid schedule
    if not check(done.returncode == int(told.get("valid") is False),
                 f"{what}: {done.stderr}"):
        return None
    theirs = json.loads(done.stdout)
    keys = {"text"} if isinstance(result, str) else {*told, *theirs}
    for key in keys - set(but):
        check(told.get(key) == theirs.get(key), f"{what}: {key}: "
              f"{str(told.get(key))[:400]} is not {str(theirs.get(key))[:400]}")
    seen[command] = seen.get(command, 0) + 1
    return result


# --- random inputs ------------------------------------------------------------


@test
def pipelines_by_all_functions():
    r = random.Random(11)
    for i in range(16):
        path = str(WORK / random_pipeline(r, f"p{i}.yaml"))
        method = r.choice(METHODS)
        maker = r.choice(MORE_METHODS)
        given, words = drawn(r, "schedule", 2)
        made = agree("schedule", lambda: longhaul.schedule(
            path, maker, **given), path, "--method", maker, *words,
            but=("seconds",))
        given, words = drawn(r, "simulate")
        agree("simulate", lambda: longhaul.simulate(path, method, **given),
              path, "-s", method, *words)
        given, words = drawn(r, "compare")
        agree("compare", lambda: longhaul.compare(path, **given), path, *words)
        to = r.choice(("pytorch", "chrome"))
        given, words = drawn(r, "export")
        agree("export", lambda: longhaul.export(
            path, to, schedule=method, **given), path, "--to", to, "-s",
            method, *words)
        if made:
            csv = str(WORK / f"s{i}.csv")
            made.write(csv)
            given, words = drawn(r, "check")
            agree("check", lambda: longhaul.check(path, csv, **given), path,
                  csv, *words)


@test
def searches_for_the_optimal():
    r = random.Random(12)
    for i in range(2):
        path = str(WORK / random_pipeline(r, f"p{i}.yaml"))
        given, words = drawn(r, "optimal")
        given.setdefault("effort", 2000)
        given.setdefault("threads", 1)
        if "--effort" not in words:
            words += ["--effort", 2000]
        if "--threads" not in words:
            words += ["--threads", 1]
        agree("schedule", lambda: longhaul.schedule(path, "optimal", **given),
              path, "--method", "optimal", *words, but=("seconds",))


@test
def proofs_are_gone_through():
    path, csv = str(ROOT / "examples/pipeline-two-sites.yaml"), WORK / "s.csv"
    proof = WORK / "proof.json"
    printed("schedule", path, "--method", "optimal", "--effort", 50000,
            "--certificate", proof, "-o", csv)
    for fifo in (False, True):
        agree("check", lambda: longhaul.check(path, csv, certificate=proof,
                                              fifo=fifo),
              path, csv, "--certificate", proof, *["--fifo"][:fifo])


@test
def sweeps_of_random_delays():
    r = random.Random(13)
    for i in range(2):
        path = str(WORK / random_pipeline(r, f"p{i}.yaml"))
        values = sorted(round(r.random() * 3, 2) for _ in range(2))
        listed = ",".join(map(str, values))
        delays = longhaul.Delays(forwards=values)
        name = r.choice(("latency", "transfer"))
        given, words = drawn(r, "compare", 2)
        agree("compare", lambda: longhaul.compare(path, **{
            name: delays, **given}), path, "--sweep", f"{name}={listed}",
            *words)


def scenario(r):
    policies = {"sd-ff": {}, "ksp-ff": {}, "cba": {},
                "ladder": {"policy": "cba", "ladder": True},
                "slack": {"policy": "slack", "ask_late": True}}
    topology = ROOT / "data/topologies" / r.choice(
        ("nsfnet.yaml", "cost239.yaml", "nobel-us.yaml"))
    return {
        "longhaul": "optical/1", "topology": str(topology),
        "slots": r.choice((40, 80)), "candidate_paths": r.randint(1, 5),
        "job": {"preset": r.choice(("8b", "70b")), "stages": r.randint(2, 6),
                "datacenters": 2, "schedule": r.choice(("gpipe", "1f1b")),
                "microbatches": r.randint(4, 16)},
        "background": {"erlang": r.choice((0, 50, 150))},
        "request_slots": r.randint(1, 4), "iterations": 2,
        "seeds": [1],
        "policies": {name: policies[name] for name in r.sample(
            sorted(policies), 2)}}


@test
def scenarios_of_optical_networks():
    r = random.Random(15)
    for i in range(2):
        path = WORK / f"o{i}.yaml"
        path.write_text(json.dumps(scenario(r)))
        given, words = drawn(r, "optical")
        agree("optical", lambda: longhaul.optical(path, **given), path, *words)


@test
def sizes_of_a_cluster():
    r = random.Random(16)
    path = WORK / "sizes.yaml"
    path.write_text("""longhaul: job/1
model: {layers: 4, hidden: 4096, ffn: 16384, heads: 8, vocab: 1000}
training: {global_batch: 32, sequence: 1024}
cluster:
  gpu: h100-sxm
  gpus_per_node: 1
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters:
   - {name: west, nodes: 2, usd_per_gpu_hour: 3}
   - {name: east, nodes: 2, gpu: a100-80g, usd_per_gpu_hour: 1}
  links: [{between: [west, east], latency_ms: 1, gbps: 100}]
""")
    for hours in (10, 10, 200):
        given, words = drawn(r, "size", 6)
        agree("size", lambda: longhaul.size(
            path, tokens=1e9, deadline_s=3600 * hours, **given), path,
            "--tokens", "1B", "--deadline", f"{hours}h", *words)
    found = longhaul.size(path, tokens=1e9, deadline_s=36000)
    check(isinstance(found.fewest, longhaul.Size) and found.fewest.gpus == 1 and
          found.fastest is None, f"{found}")
    try:
        longhaul.size(path, tokens=1e9, deadline_s=36000, lose=0)
        check(False, "lose=0 is accepted")
    except longhaul.InvalidError as error:
        check("lose is 0" in str(error), f"{error}")


@test
def every_command_and_argument_is_covered():
    """Every argument of a function is generated above. Every command with a
    function was compared."""
    shown = subprocess.run([PROGRAM, "--help"], text=True, check=True,
                           stdout=subprocess.PIPE).stdout
    functions = {name for name in re.findall(r"^  (\w+) +[A-Z]", shown, re.M)
                 if inspect.isfunction(getattr(longhaul, name, None))}
    # test_binding.py has plans of random jobs, and functions that run the
    # program.
    functions -= {"plan", "train", "diagnose", "profile"}
    check(functions == set(ELSEWHERE), f"{functions}: {sorted(ELSEWHERE)}")
    for name in sorted(functions):
        takes = {p.name for p in inspect.signature(
            getattr(longhaul, name)).parameters.values()
            if p.kind == p.KEYWORD_ONLY or p.default is not p.empty}
        knows = ELSEWHERE[name] | set(ARGUMENTS[name]) | set(
            ARGUMENTS["optimal"] if name == "schedule" else ())
        check(takes == knows, f"{name}: {sorted(takes ^ knows)}")
    if not harness.NAMES:
        check(all(seen.get(name, 0) >= 2 for name in functions), f"{seen}")


harness.finish()
