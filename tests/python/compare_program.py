# SPDX-License-Identifier: Apache-2.0
"""Compares the results of the package and the program."""
import json

import longhaul
from harness import check, run, uniform

# A job with a short plan search.
SOON = """\
longhaul: job/1
model: llama3-8b
training: {global_batch: 32, sequence: 4096}
cluster:
  gpu: h100-sxm
  gpus_per_node: 4
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2}]
  links: [{between: [west, east], latency_ms: 20, gbps: 400}]
layout: {tensor: 4, context: 1, pipeline: 4}
"""


def printed(*args, code=0):
    """Returns the program's output with --json."""
    done = run(*args, "--json")
    check(done.returncode == code, f"{args}: {done.returncode} {done.stderr}")
    return json.loads(done.stdout) if done.stdout else None


def same(what, result, *args, code=0, but=()):
    """Checks that a result of the package equals the program's output."""
    mine, theirs = result.to_dict(), printed(*args, code=code)
    for key in but:
        mine.pop(key, None)
        theirs.pop(key, None)
    for key in {**mine, **theirs}:
        check(mine.get(key) == theirs.get(key),
              f"{what}: {key}: {mine.get(key)} is not {theirs.get(key)}")


def both(what, call, *args, but=()):
    """Checks that both return the same result or the same error; returns the
    package's."""
    try:
        result = call()
    except longhaul.Error as error:
        done = run(*args, "--json")
        check(done.returncode == 1 and " ".join(str(error).split()) in
              " ".join(done.stderr.split()), f"{what}: {error}: {done.stderr}")
        return None
    same(what, result, *args, but=but)
    return result


def random_pipeline(r, name):
    placement = r.choice(("ud", "loop", "wave"))
    return uniform(
        name, devices=r.choice((2, 4)), microbatches=r.randint(4, 10),
        placement=placement,
        chunks={"ud": 1, "loop": r.choice((2, 3)), "wave": 2}[placement],
        times=[r.randint(1, 20) for _ in range(3)], latency=r.randint(0, 30),
        transfer=r.randint(0, 9), limit=r.choice((None, 4, 8, 12)),
        backward=r.choice(("split", "split", "joint")))
