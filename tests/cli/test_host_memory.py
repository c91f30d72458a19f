#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--host-memory: devices offload activations that exceed their memory."""
from harness import (ANY, ROOT, VIRTUAL, case, check, finish, json_case, read,
                     run, test, uniform, write)
from trained import TRAIN, can_train, make_plan, saved

SLOW = "".join(f"  - {{from: {a}, to: {b}, latency: 20}}\n"
               for a, b in ((0, 1), (1, 0)))


def slow_first_link(name, limit, unit="activations"):
    """Writes 4 devices, 12 microbatches, F = D = W = 10 ms, 20 ms on link 0 -
    1."""
    memory = ("{F: 1073741824, D: 0, W: -1073741824}" if unit == "bytes"
              else "{F: 1, D: 0, W: -1}")
    uniform(name, limit=limit, memory=memory)
    write(name, read(name) + f"memory_unit: {unit}\nlinks:\n{SLOW}")


@test
def warm_ups_are_limited_by_device_memory():
    slow_first_link("p.yaml", 4)
    made = ["schedule", "p.yaml", "-m", "slack", "-o", "s.csv"]
    found = json_case("clipped", made)
    check(found["makespan_s"] == 0.51 and "host_memory" not in found, found)
    found = json_case("hosted", [*made, "--host-memory", "all"])
    check(found["makespan_s"] == 0.41, found)
    check(found["host_memory"] == [p - 4 for p in found["peak_memory"]] and
          max(found["host_memory"]) > 0, found)
    some = json_case("some", [*made, "--host-memory", "3"])
    check(0.41 <= some["makespan_s"] < 0.51 and
          max(some["peak_memory"]) == 7, some)
    case("said", [*made, "--host-memory", "3"],
         out=r"\nhost memory   3 activations of device 0 at most, \d+ "
             r"activations over all devices\n")
    case("said beside the CSV", made[:4] + ["--host-memory", "3"], out=ANY,
         err=r"host memory: 3 activations of device 0 at most")


@test
def every_method_uses_the_host_memory():
    slow_first_link("p.yaml", 4)
    case("over", ["schedule", "p.yaml", "-m", "gpipe"], 1,
         err="gpipe: device 0 needs memory 12 activations, its limit is 4")
    for method in ("gpipe", "steady-slack", "greedy", "auto"):
        found = json_case(method, ["schedule", "p.yaml", "-m", method,
                                   "--host-memory", "8"])
        check(max(found["host_memory"]) > 0, f"{method}: {found}")
    found = json_case("optimal", [
        "schedule", "p.yaml", "-m", "optimal", "--host-memory", "2", "-o",
        "o.csv", "--certificate", "proof.json"])
    check(found["makespan_s"] == 0.41, found)
    case("its proof", ["check", "p.yaml", "o.csv", "--certificate",
                       "proof.json", "--host-memory", "2"],
         out=r"certificate: verified")


@test
def the_verifier_reports_host_memory():
    slow_first_link("p.yaml", 4)
    case("made", ["schedule", "p.yaml", "-m", "slack", "--host-memory", "2",
                  "-o", "s.csv"], out=ANY)
    case("without", ["check", "p.yaml", "s.csv"], 1,
         out=r"device 0 holds 6 activations in cell \d+, 0F\d+, of 4 allowed")
    case("with", ["check", "p.yaml", "s.csv", "--host-memory", "2"],
         out=r"valid: s.csv takes 430 ms\nhost memory: 2 activations of "
             r"device 0 at most, \d+ activations over all devices\n$")
    found = json_case("too little", ["check", "p.yaml", "s.csv",
                                     "--host-memory", "1"], 1)
    check(not found["valid"] and found["host_memory"] ==
          [p - 4 for p in found["peak_memory"]], found)
    found = json_case("simulated", ["simulate", "p.yaml", "-s", "s.csv",
                                    "--host-memory", "2"])
    check(found["fits"] and found["host_memory"] ==
          [p - 4 for p in found["peak_memory"]], found)
    case("in words", ["simulate", "p.yaml", "-s", "s.csv", "--host-memory",
                      "2"], out=r"\nhost memory   2 activations of device 0")
    case("none needed", ["simulate", "p.yaml", "-s", "1f1b", "--host-memory",
                         "2"], out=r"\nhost memory   not needed\n")


@test
def optimal_schedules_include_the_time_of_copies():
    slow_first_link("p.yaml", 2)
    times = []
    for copy in ("1us", "1ms", "1s"):
        args = ["--host-memory", "all", "--host-copy", copy]
        found = json_case(copy, ["schedule", "p.yaml", "-m", "optimal",
                                 "--effort", "100000", "-o", "s.csv", *args])
        again = json_case(f"again {copy}", ["simulate", "p.yaml", "-s",
                                            "s.csv", *args])
        check(again["makespan_s"] == found["makespan_s"], found)
        times.append(found["makespan_s"])
    check(times[0] < times[1] < times[2], times)
    found = json_case("simulated", ["simulate", "p.yaml", "-s", "optimal",
                                    "--host-memory", "all", "--host-copy",
                                    "10s"])
    check(found["makespan_s"] < 10, found)
    case("no host", ["schedule", "p.yaml", "-m", "optimal", "--host-copy",
                     "1ms"], 2, err="--host-copy requires --host-memory")


@test
def a_slackness_with_too_many_simulations_is_unknown():
    """Copies make each simulation slower, so fewer of them fit into the
    budget."""
    uniform("p.yaml", devices=16, microbatches=256, latency=5, limit=16)
    for more, is_known in (([], True), (["--host-copy", "1ms"], False)):
        found = json_case(f"{more}", ["simulate", "p.yaml", "-s", "1f1b",
                                      "--host-memory", "16", *more])
        check(all((s["tolerates_s"] is not None) == is_known
                  for s in found["slack"]), found["slack"])


@test
def bytes_have_units():
    slow_first_link("b.yaml", 4 << 30, "bytes")
    for amount in ("2GiB", "2 GiB", "2147483648", "2048MiB"):
        found = json_case(amount, ["simulate", "b.yaml", "-s", "slack",
                                   "--host-memory", amount])
        check(max(found["host_memory"]) == 2 << 30, f"{amount}: {found}")
    for amount in ("0", "-1", "2GB", "GiB", "nan", "1.5", "1e30"):
        case(f"'{amount}'", ["simulate", "b.yaml", "-s", "slack",
                             "--host-memory", amount], 2,
             err=r"--host-memory: '.*' is not an amount of memory above 0: "
                 r"bytes, or with a unit as 64GiB, or all")
    slow_first_link("p.yaml", 4)
    case("a unit of another", ["simulate", "p.yaml", "-s", "slack",
                               "--host-memory", "2GiB"], 2,
         err="a whole number of activations, or all")


@test
def the_option_is_rejected_without_effect():
    uniform("free.yaml")
    for command in (["schedule", "free.yaml"], ["simulate", "free.yaml"]):
        case("no limit", [*command, "--host-memory", "all"], 1,
             err="host memory has no effect: the pipeline has no memory_limit")
    slow_first_link("p.yaml", 4)
    for asked in (["--pareto"], ["--objective", "memory"]):
        case("what is looked for", ["schedule", "p.yaml", "-m", "optimal",
                                    *asked, "--host-memory", "2"], 2,
             err=f"--host-memory cannot be combined with {' '.join(asked)}, "
                 "which searches memory limits")
    uniform("static.yaml", limit=4,
            memory="{F: 1, D: 0, W: -1, static: 4}")
    case("no room on the device", ["schedule", "static.yaml", "-m", "slack",
                                   "--host-memory", "all"], 1,
         err="host memory holds only activations that wait for their "
             "backward pass: device 0 needs memory 5, its limit is 4")


# --- the cpu device -----------------------------------------------------------
HOST = ["--host-memory", "all", "--host-copy", "200us"]


def small_job(memory_gib, recompute="none"):
    """A model on four stages; with 0.0014 GiB it has memory for five
    microbatches' activations of eight."""
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    job = job.replace("recompute: none", f"recompute: {recompute}")
    for old, new in [("hidden: 128, ffn: 384", "hidden: 48, ffn: 96"),
                     ("head_dim: 32", "head_dim: 12"),
                     ("sequence: 128", "sequence: 64"),
                     ("memory_gib: 4", f"memory_gib: {memory_gib}")]:
        check(old in job, old)
        job = job.replace(old, new)
    return job


def trains(steps, *more):
    return [*TRAIN, "--steps", str(steps), "--rate", "1e-2", "--fresh", *more]


@test
def the_cpu_device_copies_activations():
    """The weights are those of a run with enough memory."""
    make_plan(small_job(4))
    train = trains(4, "-s", "gpipe")
    if not can_train(run(*train, "--checkpoint", "free")):
        return
    make_plan(small_job(0.0014))
    found = json_case("hosted", [*train, *HOST, "--emulate-links",
                                 "--checkpoint", "hosted"])
    check(saved("free", 4) == saved("hosted", 4), "weights")
    copies = found["copies_s"]
    check(abs(copies["predicted"] - 1.2e-3) < 1e-9, copies)
    check(copies["measured"] >= copies["predicted"], copies)
    for rank in found["memory"]:
        check(rank["by_kind"]["storage"] > 0 and
              rank["by_kind"]["storage"] == rank["predicted_by_kind"]["storage"],
              rank)
        check(abs(rank["measured_bytes"] / rank["predicted_bytes"] - 1) < 0.03,
              rank)
    case("without host memory", [*train, "--checkpoint", "hosted"], 1,
         err="gpipe: device 0 needs memory 1.7 MiB, its limit is 1.3 MiB")
    case("without a time", [*train, "--host-memory", "all", "--checkpoint",
                            "hosted"], 2,
         err="--host-memory on the cpu device requires --host-copy")
    make_plan(small_job(0.0014, "full"))
    case("nothing to copy", [*train, *HOST, "--checkpoint", "hosted"], 1,
         err="chunk 0 has no activations that the cpu device could copy")


@test
def the_cpu_device_adapts_with_host_memory():
    """A link of 200 ms: larger warm-ups, whose activations need host memory."""
    make_plan(small_job(0.0014))
    write("slow.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 12, to: 1000, links: [0-1], latency: 200}
        """)
    train = trains(40, "-s", "1f1b")
    if not can_train(run(*train, "--checkpoint", "calm")):
        return
    found = json_case("adapts", [*train, *HOST, "--adapt", "--events",
                                 "slow.yaml", "--checkpoint", "adapts"],
                      program=VIRTUAL)
    check(saved("calm", 40) == saved("adapts", 40), "weights")
    check(any(one["to"] == "slack" and not one["refused"]
              for one in found["switches"]), found["switches"])
    check(found["memory"][0]["by_kind"]["storage"] > 0 and
          found["copies_s"]["measured"] > 0, found["memory"][0])


finish()
