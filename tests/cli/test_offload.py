#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Activation offloading in jobs, plans, pipelines and runs."""
import json
import signal
import subprocess
import time

from harness import (ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, case, check, finish,
                     json_case, run, test, until, until_blocked, write)

PIPELINE = """longhaul: pipeline/1
time_unit: ms
microbatches: 4
devices: 1
backward: joint
chunks:
  - {device: 0, F: 10, D: 12, W: 8, offload: 15}
"""


def job(name, offload, **changes):
    """Returns the example's model in a pipeline of two, all forwards first."""
    text = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    for old, new in {"pipeline: 4": "pipeline: 2",
                     "chunks_per_device: 1": "chunks_per_device: 1, "
                                             "schedule: gpipe",
                     **changes}.items():
        check(old in text, f"the example has no '{old}'")
        text = text.replace(old, new)
    if offload:
        text = text.replace("recompute: none", f"recompute: none, {offload}")
    write(name, text)


def planned(offload, **changes):
    job("job.yaml", offload, **changes)
    done = run("plan", "job.yaml", "-o", "plan.json", "-q")
    check(done.returncode == 0, f"{offload}: {done.stderr}")
    return json.loads((WORK / "plan.json").read_text())


def refused(name, offload, why, *args, **changes):
    job("job.yaml", offload, **changes)
    case(name, ["plan", "job.yaml", "-o", "none.json", *args], 1, err=why)


@test
def all_commands_support_offload_in_pipelines():
    write("p.yaml", PIPELINE)
    found = json_case("simulated", ["simulate", "p.yaml", "-s", "gpipe"])
    check(found["makespan_s"] == 0.16, found)
    check(found["bubble_s"]["copy"] == 0.04, found["bubble_s"])
    kinds = [s["kind"] for s in found["critical_path"]]
    check(kinds.count("copy") == 6, kinds)
    check({s["back"] for s in found["critical_path"] if s["kind"] == "copy"}
          == {True, False}, found["critical_path"])
    case("said", ["simulate", "p.yaml", "-s", "gpipe"],
         out=r"copy +activations were on their way[\s\S]*copy 90(\.0+)? ms")
    case("made", ["schedule", "p.yaml", "-m", "gpipe", "-o", "s.csv"], out="")
    found = json_case("judged", ["check", "p.yaml", "s.csv"])
    check(found["valid"] and found["makespan_s"] == 0.16, found)
    found = json_case("searched", ["schedule", "p.yaml", "-m", "optimal"])
    check(found["makespan_s"] == 0.12 and found["status"] == "optimal", found)
    found = json_case("explained", ["explain", "p.yaml", "-s", "gpipe"])
    copies = [i for i in found["instructions"] if i["stream"] == "offload"]
    check(len(copies) == 8 and copies[0]["before"] == "0F2" and
          copies[0]["pass"] == "0F0", copies)
    case("explained to people", ["explain", "p.yaml", "-s", "gpipe"],
         out=r"offload +8 copies, out and back[\s\S]*offload +activations of "
             r"0F0 leave, before 0F2[\s\S]*come back, before 0B0")


@test
def timed_runs_emulate_offload_at_any_speed():
    write("p.yaml", PIPELINE)
    found = json_case("sped up", ["train", "p.yaml", "-s", "gpipe", "-n", "1",
                                  "--speed", "5", "--trace", "t.json"])
    check(abs(found["predicted_s"] - 0.032) < 1e-9 and
          found["iterations"][0]["seconds"] >= 0.032, found)
    events = json.loads((WORK / "t.json").read_text())["traceEvents"]
    copies = [e["args"] for e in events if e.get("cat") == "copy"]
    check(len(copies) == 8 and
          all(c["end_ns"] - c["depart_ns"] == 3000000 for c in copies), copies)


@test
def pipelines_that_are_wrong_are_refused():
    for old, new, why in (("joint", "split", "requires backward: joint"),
                          (": 15", ": -1", "offload"),
                          (": 15", ": soon", "offload"),
                          (": 15", ": 1e300", "offload")):
        write("p.yaml", PIPELINE.replace(old, new))
        case(new, ["simulate", "p.yaml", "-s", "gpipe"], 1,
             err=rf"p\.yaml:\d+: .*{why}")


@test
def plans_hold_less_for_more_time():
    without = planned("")
    half, full = planned("offload: 0.5"), planned("offload: 1")
    slow = planned("offload: {layers: 1, storage_gbps: 0.2}")
    for plan in (half, full, slow):
        check(plan["pipeline"]["backward"] == "joint", "split")
        check(all(c["offload"] > 0 for c in plan["pipeline"]["chunks"]),
              plan["pipeline"]["chunks"])
    kept = [sum(c["memory"]["F"] for c in plan["pipeline"]["chunks"])
            for plan in (without, half, full)]
    check(kept[0] > 1.3 * kept[1] > 1.3 * 1.3 * kept[2], kept)
    copy = [plan["pipeline"]["chunks"][0]["offload"] for plan in (full, slow)]
    check(abs(copy[1] / copy[0] - 25.6 / 0.2) < 0.5, copy)
    check(slow["iteration_s"] > full["iteration_s"],
          (slow["iteration_s"], full["iteration_s"]))
    check(slow["job"]["training"]["offload"] ==
          {"layers": 1, "storage_gbps": 0.2}, slow["job"]["training"])
    check(half["job"]["training"]["offload"] == 0.5, half["job"]["training"])
    check("offload" not in without["job"]["training"], "out of nowhere")
    zero = planned("offload: 0")
    check(zero["pipeline"] == without["pipeline"], "0 is not none")


@test
def plans_are_searched_under_every_schedule():
    slow = "offload: {layers: 1, storage_gbps: 0.5}"
    for chunks in ("1", "2"):
        plan = planned(slow, **{"chunks_per_device: 1, schedule: gpipe":
                                f"chunks_per_device: {chunks}"})
        check(len(plan["pipeline"]["chunks"]) == 2 * int(chunks) and
              plan["layout"]["schedule"] != "optimal", plan["layout"])


@test
def shares_are_of_decimals():
    """0.28 * 25 slightly exceeds 7 in binary floating point."""
    copies = []
    for share in (0.27999, 0.28, 0.28001):
        plan = planned(f"offload: {share}",
                       **{"layers: 4,": "layers: 25,",
                          "pipeline: 2": "pipeline: 1"})
        copies.append(plan["pipeline"]["chunks"][0]["offload"])
    check(copies[0] == copies[1] < copies[2], copies)


@test
def jobs_that_are_wrong_are_refused():
    where = r"job\.yaml:\d+: "
    refused("more than all", "offload: 1.5", where + ".*offload")
    refused("a word", "offload: all", where)
    refused("no share", "offload: {storage_gbps: 2}", where + ".*layers")
    refused("an unknown key", "offload: {layers: 1, gbps: 2}", where + ".*gbps")
    refused("no bandwidth", "offload: {layers: 1, storage_gbps: 0}",
            where + ".*storage_gbps")
    refused("nothing is left", "", where + ".*recompute: full",
            **{"recompute: none": "recompute: full, offload: 1"})
    refused("elastic", "offload: 1", where + ".*elastic plans",
            **{"chunks_per_device: 1": "chunks_per_device: 1, "
                                       "schedule: elastic"})
    refused("for others", "offload: 1", "training.offload",
            "--for", "torchtitan")
    planned("offload: 1", **{"chunks_per_device: 1": "chunks_per_device: 1, "
                                                     "schedule: 1f1b"})
    for to in ("pytorch", "megatron", "torchtitan"):
        case(to, ["export", "plan.json", "--to", to, "-o", "out"], 1,
             err="training.offload")


@test
def runs_have_equal_weights_and_the_predicted_memory():
    write("text", "the quick brown fox jumps over the lazy dog. " * 80)
    how = ["train", "plan.json", "--device", "cpu", "--data", "text",
           "--steps", "2", "--seed", "3"]
    losses, held = [], []
    for offload in ("", "offload: {layers: 1, storage_gbps: 1}"):
        planned(offload)
        to = ["--offload-to", str(WORK)] if offload else []
        done = run(*how, "--json", *to)
        if done.returncode and "OpenBLAS" in done.stderr:
            print(f"SKIPPED: {done.stderr.strip()}")
            return
        check(done.returncode == 0, done.stderr)
        found = json.loads(done.stdout)
        losses.append([i["loss"] for i in found["iterations"]])
        held.append(sum(m["by_kind"]["activations"]
                        for m in found["memory"]))
        for m in found["memory"]:
            check(abs(m["measured_bytes"] / m["predicted_bytes"] - 1) < 0.03,
                  m)
            check(m["by_kind"]["storage"] ==
                  m["predicted_by_kind"]["storage"], m)
            check((m["by_kind"]["storage"] > 0) == bool(offload), m)
            check(sum(m["by_kind"].values()) - m["by_kind"]["storage"] ==
                  m["measured_bytes"], m)
        copies = found["copies_s"]
        check((copies["predicted"] > 0) == bool(offload) and
              (copies["measured"] > 0) == bool(offload), copies)
    check(losses[0] == losses[1], losses)
    check(held[1] < 0.8 * held[0], held)
    case("said", [*how, "--memory", "report"],
         out=r"offload +copies per rank and iteration: predicted[\s\S]*"
             r"storage \d", err=None)
    case("no folder", [*how, "--offload-to", "none"], 1,
         err=r"cannot create a file in 'none'.*--offload-to")
    case("timed", ["train", "plan.json", "--steps", "1", "--offload-to", "."],
         2, err="--offload-to requires --device cpu")
    planned("")
    case("of no use", [*how, "--offload-to", "."], 2,
         err="--offload-to requires a plan whose job has offload")


@test
def copy_times_of_an_aborted_run_are_unknown():
    write("text", "the quick brown fox jumps over the lazy dog. " * 80)
    planned("offload: {layers: 1, storage_gbps: 0.05}")
    # The second iteration cannot end between two signals.
    write("e.yaml", "longhaul: events/1\ntime_unit: s\nevents:\n"
          "  - {from: 1, to: 99, links: [0-1], latency: 600}\n")
    args = ["train", "plan.json", "--device", "cpu", "--data", "text",
            "--steps", "99", "--events", "e.yaml", "--log", "log.jsonl"]
    if "OpenBLAS" in run(*args, "--offload-to", "none").stderr:
        print("SKIPPED: without OpenBLAS")
        return
    for more in ([], ["--json"]):
        (WORK / "log.jsonl").unlink(missing_ok=True)
        log, said = WORK / "log.jsonl", WORK / "said"
        process = subprocess.Popen(
            [PROGRAM, *args, *more], cwd=WORK, env=ENVIRONMENT, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=said.open("w"), start_new_session=True)
        check(until(lambda: log.exists() and log.read_text(), process) and
              until_blocked(process), "in the second iteration")
        process.send_signal(signal.SIGINT)
        check(until(lambda: "stopping" in said.read_text(), process), "stops")
        time.sleep(0.25)  # closer signals count as one
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=HANGS)[0]
        check(process.returncode == 1,
              f"{process.returncode} {out} {said.read_text()}")
        if more:
            found = json.loads(out)
            copies = found["copies_s"]
            check(found["memory"] == [] and copies["predicted"] > 0 and
                  copies["measured"] is copies["waited"] is None, found)
            check({k for k, v in found["exchanges_s"].items()
                   if v is not None} == {"planned"}, found)
        else:
            check("unknown for an aborted run" in " ".join(
                out.split()), out)


finish()
