#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Output of train on the measured run: ranks, clock, processors, and the measured
parts of the prediction.
"""
import json
import os
import re
import shutil
import subprocess
import sys

from harness import (ANY, HANGS, PROGRAM, UNDER_MPI, VIRTUAL, WORK, case, check,
                     finish, json_case, long_test, makes, read, run, test, uniform,
                     write)
from input_files import TRAINED

CPU = ["--device", "cpu", "--data", "text", "--steps", "2"]


@makes("one.json", "two.json", "one.yaml", "two.yaml", "text")
def a_plan():
    """Plans two stages by four replicas, and one replica."""
    for name, replicas in (("two", 4), ("one", 1)):
        write(f"{name}.yaml", TRAINED % replicas)
        done = run("plan", f"{name}.yaml", "-o", f"{name}.json")
        check(done.returncode == 0, done.stderr)
    write("text", "It was the best of times, it was the worst of times.\n" * 99)


def has_blas():
    probe = run("train", "one.json", *CPU)
    if "OpenBLAS" in probe.stderr:
        print("SKIPPED training: OpenBLAS is not installed")
    return "OpenBLAS" not in probe.stderr


@test
def replicas_are_ranks_too():
    a_plan()
    case("a replica that stands for all", ["train", "two.json", "--speed", "9"],
         out=r"\Aschedule +1f1b on 2 ranks: one of 4 replicas, timed over")
    case("no replicas", ["train", "one.json", "--speed", "9"],
         out=r"\Aschedule +1f1b on 2 ranks, timed over inproc")
    if has_blas():
        case("all replicas", ["train", "two.json", *CPU],
             out=r"\Aschedule +1f1b on 8 ranks: 2 stages x 4 replicas, cpu")
        found = json_case("in JSON", ["train", "two.json", *CPU])
        check(found["ranks"] == 8 and found["replicas"] == 4, found)


@test
def a_timed_run_prints_its_clock():
    uniform("p.yaml", latency=1, transfer=1)
    words = r"clock +passes follow the predicted times"
    case("for people", ["train", "p.yaml", "-s", "1f1b", "--speed", "20",
                        "--trace", "t.json", "--html", "t.html"],
         out=r"\nelapsed +[\d.]+ m?s, of which all iterations took [\d.]+ m?s\n"
             r"(.|\n)*\nmeasured +[\d.]+ m?s \(median\), [+]\d.*%\n" + words)
    found = json_case("in JSON", ["train", "p.yaml", "-s", "1f1b", "--speed",
                                  "20"])
    check(found["clock"] == "deadlines", found["clock"])
    as_said = "timed device: passes wait for the prediction's deadlines"
    check(json.loads(read("t.json"))["title"] == as_said, "the trace says so")
    check(as_said.replace("'", "") in re.sub(r"&#39;|'|\\u0027", "",
                                             read("t.html")),
          "the report says so")
    case("of a trace", ["report", "--predicted", "t.json", "--measured",
                        "t.json", "-o", "both.html"],
         out=r"\Ameasured +timed device: passes wait for")
    found = json_case("of a trace, in JSON", [
        "report", "--predicted", "t.json", "--measured", "t.json", "-o",
        "both.html"])
    check(found["measured_as"] == as_said, found["measured_as"])


def long_enough(*options):
    """Returns what a run of at least 2 s prints; shorter ones do not measure the
    load."""
    steps, seconds = 50, 0
    while seconds < 2:
        steps *= 2
        done = run("train", "two.json", *CPU[:-1], str(steps), *options)
        elapsed = re.search(r'^elapsed +([\d.]+) (ms|s|min)|"elapsed_s": '
                            r'([\d.e-]+)', done.stdout, re.M)
        if not check(elapsed, f"{done.stdout} {done.stderr}"):
            break
        seconds = float(elapsed[3] or elapsed[1]) * {
            "ms": 1e-3, "min": 60}.get(elapsed[2], 1)
    return done.stdout


@long_test
def a_busy_machine_is_reported():
    """As many other programs compute as there are processors."""
    a_plan()
    if not has_blas():
        return
    n = len(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
              for _ in range(n)]
    try:
        # Ranks and other programs share the processors by halves.
        found = json.loads(long_enough("--json"))["other_processors"]
        check(found is not None and found > 0.25, found)
        found = long_enough()
        check("\nload          other programs used " in found, found)
    finally:
        for one in others:
            one.kill()
            one.wait()


@test
def training_is_compared_with_its_prediction():
    a_plan()
    if not has_blas():
        return
    case("for people", ["train", "one.json", *CPU],
         out=r"\npredicted +[\d.]+ [mu]?s, modelled.*\nmeasured +[\d.]+ [mu]?s "
             r"\(median\), [+-]")
    plan = json.loads(read("one.json"))
    one = {min(os.sched_getaffinity(0))}
    for cpus in ({}, {"preexec_fn": lambda: os.sched_setaffinity(0, one)}):
        done = run("train", "one.json", *CPU, "--json", **cpus)
        check(done.returncode == 0, done.stderr)
        found = json.loads(done.stdout)
        check(found["clock"] == "real" and
              found["unshared_s"] == plan["iteration_s"],
              f"{found['unshared_s']}, planned {plan['iteration_s']}")
        few = cpus or len(os.sched_getaffinity(0)) < 2
        check(found["shared_processors"] == (1 if few else None), found)
        passes = sum(c[kind] for c in plan["pipeline"]["chunks"]
                     for kind in "FDW") * plan["microbatches"] / 1e9
        check(not few or found["predicted_s"] >= passes,
              f"{found['predicted_s']}, passes alone {passes}")
        check(few or found["predicted_s"] == found["unshared_s"], found)
        check(abs(found["median_s"] / found["predicted_s"] - 1 -
                  found["error"]) < 1e-9, found)
    done = run("train", "one.json", *CPU, "--html", "run.html",
               preexec_fn=lambda: os.sched_setaffinity(0, one))
    check(re.search(r"predicted .*2 ranks\s+share\s+1\s+processor\b",
                    done.stdout, re.S), done.stdout)
    page = read("run.html")
    for name in "predicted", "measured":
        printed = re.search(rf"^{name} +(.*(?:\n .*)*)", done.stdout, re.M)[1]
        printed = " ".join(printed.split())
        check(f'["{name}","{printed}"]' in page, f"the report has: {printed}")


@test
def planned_memory_is_not_drawn_as_measured():
    a_plan()
    runs = [["one.json", "--speed", "9"]]
    if has_blas():
        runs.append(["one.json", *CPU])
    for args in runs:
        case("a trace", ["train", *args, "--trace", "t.json"], out="measured")
        trace = json.loads(read("t.json"))
        check(all(d["memory_static"] == 0 and "memory_limit" not in d
                  for d in trace["devices"]), trace["devices"])
        check(all(e["args"]["memory"] == 0 for e in trace["traceEvents"]
                  if e.get("cat") == "pass"), "memory of passes")


def middle_half(found):
    """Returns the mean of the middle half of the values, without the first."""
    times = sorted(one["seconds"] for one in found["iterations"][1:])
    skipped = len(times) // 4
    times = times[skipped:len(times) - skipped]
    return sum(times) / len(times)


@test
def the_profile_of_a_run_predicts_that_run():
    """Equals to the microsecond under any load: with the run's profile and
    schedule, the prediction is the sum of the measured times."""
    a_plan()
    if not has_blas():
        return
    for name, method, options, emulated in [
            ("one", "1f1b", [], False),
            ("one", "zb-h1", ["--transport", "local"], False),
            ("one", "gpipe", ["--receives", "late"], False),
            ("two", "1f1b", [], False),
            ("two", "zb-h1", ["--transport", "local"], False),
            ("two", "1f1b", ["--emulate-links"], True),
            ("one", "zb-h1", ["--inject", "0-1=latency:20ms"], True)]:
        what = f"{name} {method} {options}"
        text = read(f"{name}.yaml").replace("schedule: 1f1b",
                                            f"schedule: {method}")
        write("job.yaml", text)
        run("plan", "job.yaml", "-o", "first.json")
        found = json_case(what, [
            "train", "first.json", *CPU[:-1], "8", *options, "--profile-out",
            "profile.json"])
        profile = json.loads(read("profile.json"))
        check([(e["kind"], e["chunk"], e["of"]) for e in profile["entries"]] ==
              [("chunk", 0, 2), ("chunk", 1, 2)], f"{what}: {profile}")
        layers = [e["layers"] for e in profile["entries"]]
        check(all(e["F_us"] > 0 and e["D_us"] > 0 and e["W_us"] > 0 and
                  e["static_bytes"] > 0 for e in profile["entries"]), profile)
        check(emulated == (not profile["links"]), f"{what}: {profile['links']}")
        check(all(link["path"] == "node" and link["site"] == "here"
                  for link in profile["links"]), profile["links"])
        write("job.yaml", text + "profile: profile.json\n")
        case(f"{what}: planned again", ["plan", "job.yaml", "-o", "next.json"],
             out="from measured passes")
        if "--inject" in options or profile["iteration_us"] <= 0.01:
            continue
        next_plan = json.loads(read("next.json"))
        check(next_plan["job"]["layout"]["layers"] == layers and
              sum(layers) == 4, f"{what}: {layers}, {next_plan['job']}")
        late = "late" in options
        again = (next_plan["iteration_s"] if not late else json_case(
            f"{what}: predicted", ["train", "next.json", *CPU, *options])
                 ["predicted_s"])
        check(abs(again - middle_half(found)) < 2e-6,
              f"{what}: {again}, measured {middle_half(found)}")
        check(late or next_plan["optimizer_ns"] == 0 and abs(
            next_plan["overhead_ns"] / 1e3 - profile["iteration_us"]) < 0.01,
              f"{what}: {next_plan['overhead_ns']}")


@test
def a_run_is_measured_with_ranks_that_share_layers_and_experts():
    """The measured state is that of the first rank of each stage. In virtual time
    passes take the time of their collectives."""
    a_plan()
    if not has_blas():
        return
    experts = "experts: 4, experts_per_token: 2, expert_ffn: 512"
    for degrees, model in [({"tensor": 2}, None), ({"context": 2}, None),
                           ({"expert": 2}, experts),
                           ({"tensor": 2, "expert": 4}, experts)]:
        text = TRAINED % 2
        for name, degree in degrees.items():
            text = text.replace(f"{name}: 1", f"{name}: {degree}")
        text = text.replace("ffn: 48", model or "ffn: 48")
        write("job.yaml", text)
        run("plan", "job.yaml", "-o", "first.json")
        found = json_case(f"{degrees}", [
            "train", "first.json", *CPU[:-1], "6", "--memory", "report",
            "--profile-out", "profile.json"], program=VIRTUAL)
        entries = json.loads(read("profile.json"))["entries"]
        check([{name: e[name] for name in degrees} for e in entries] ==
              [degrees] * 2, entries)
        check(all(e["F_us"] > 0 and e["D_us"] > 0 and e["W_us"] > 0
                  for e in entries), entries)
        for entry, rank in zip(entries, found["memory"]):
            held = rank["by_kind"]
            least = sum(held[kind] for kind in
                        ("parameters", "gradients", "moments"))
            check(0.97 * least < entry["static_bytes"] <
                  1.03 * (least + held["buffers"]),
                  f"{degrees}: {entry['static_bytes']}, {held}")
        write("job.yaml", text + "profile: profile.json\n")
        case(f"{degrees}: planned again", ["plan", "job.yaml", "-o",
                                           "next.json"],
             out="from measured passes")
        planned, took = (json.loads(read("next.json"))["iteration_s"],
                         middle_half(found))
        # The profile's overhead completes the prediction to the measured time. It
        # is never negative: passes that waited for their groups count too much.
        is_exact = json.loads(read("profile.json"))["iteration_us"] > 0.01
        check(-2e-6 < planned - took < (2e-6 if is_exact else 0.1 * took),
              f"{degrees}: {planned}, {took}")


@test
def a_profile_without_expert_tensor_degree_is_rejected():
    a_plan()
    if not has_blas():
        return
    text = (TRAINED % 2).replace("tensor: 1", "tensor: 2, expert_tensor: 1")
    write("job.yaml", text.replace("ffn: 48", "experts: 4, experts_per_token: "
                                   "2, expert_ffn: 16"))
    run("plan", "job.yaml", "-o", "cut.json")
    case("runs", ["train", "cut.json", *CPU], out="tensor 2")
    case("not measured", ["train", "cut.json", *CPU, "--profile-out", "p.json"],
         1, err="a profile cannot record that experts are sliced over 1 ranks")


@test
def an_unmeasured_layout_is_reported_as_modelled():
    """A run measures one layout. For other layouts formulas apply, which may
    predict less time."""
    a_plan()
    if not has_blas():
        return
    case("train", ["train", "one.json", *CPU, "--profile-out", "profile.json"],
         out=ANY, err=None)
    said = r"\(modelled; the profile measured another\s+layout\)"
    job = read("one.yaml") + "profile: profile.json\n"
    write("job.yaml", job)
    case("as it ran", ["plan", "job.yaml"], out=r"\(from measured passes\)")
    write("job.yaml", job.replace("pipeline: 2", "pipeline: 1"))
    case("another", ["plan", "job.yaml"], out=said)
    write("job.yaml", read("one.yaml").replace("pipeline: 2", "pipeline: 1"))
    case("without a profile", ["plan", "job.yaml"], out=r"\(modelled\)")


@test
def a_run_without_iterations_leaves_no_profile():
    """The run had already completed all its iterations."""
    a_plan()
    if not has_blas():
        return
    case("train", ["train", "one.json", *CPU, "--checkpoint", "run"], out=ANY)
    case("nothing is left", ["train", "one.json", *CPU, "--resume", "run",
                             "--profile-out", "profile.json"], out=ANY,
         err=r"profile\.json: not written: no iteration was measured")
    check(not (WORK / "profile.json").exists(), "no profile")


@test
def links_between_sites_are_measured_by_the_run():
    """Measures each direction separately, also for processes started by
    mpirun."""
    a_plan()
    if not has_blas():
        return
    text = read("one.yaml").replace("gpus_per_node: 8", "gpus_per_node: 1")
    sites = ("fabric: {gbps: 10, latency_us: 50}\n"
             "  datacenters: [{name: west, nodes: 1}, {name: east, nodes: 1}]\n"
             "  links: [{between: [west, east], latency_ms: 3600000, gbps: 1}]")
    write("far.yaml", text.replace("datacenters: [{name: here, nodes: 1}]",
                                   sites))
    case("plan", ["plan", "far.yaml", "-o", "far.json"], out="west")
    train = ["train", "far.json", *CPU, "--profile-out", "profile.json"]
    ways = [train]
    if shutil.which("mpirun"):
        ways.append(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                     "2", PROGRAM, *train, "--transport", "tcp"])
    else:
        print("SKIPPED mpirun: it is not installed")
    for way in ways:
        done = (run(*way) if way is train else subprocess.run(
            way, cwd=WORK, env=UNDER_MPI, capture_output=True, text=True,
            timeout=HANGS))
        check(done.returncode == 0, f"{way}: {done.stderr}")
        links = json.loads(read("profile.json"))["links"]
        check([(x["path"], x["from"], x["to"]) for x in links] ==
              [("wan", "west", "east"), ("wan", "east", "west")], links)
        check(all(x["alpha_us"] >= 0 and x["beta_ns_per_byte"] > 0 for x in
                  links), links)
        write("again.yaml", read("far.yaml") + "profile: profile.json\n")
        run("plan", "again.yaml", "-o", "again.json")
        # The job has an hour for each message and direction.
        plan = json.loads(read("again.json"))
        check(all(x["latency"] + x["transfer"] < 3600e9 for x in
                  plan["pipeline"]["links"]), plan["pipeline"]["links"])
        os.remove(WORK / "profile.json")


@test
def a_profile_is_of_training():
    a_plan()
    case("not of a timed run", ["train", "one.json", "--profile-out", "p.json"],
         2, err="--profile-out requires --device cpu")


finish()
