#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every option has an effect or is rejected, and errors are reported before the work
begins.
"""
import json
import re

from harness import (ANY, ROOT, WORK, case, check, finish, json_case, makes,
                     read, run, test, uniform, write)

METHODS = re.findall(r"^  ([a-z0-9][\w-]+) ", run(
    "schedule", "--help-all").stdout.split("\nMethods:\n")[1].split("\n\n")[0],
    re.M)
# Options of schedule that apply only to some methods, with a value.
FOR = {"--warmup": ("initial", {"slack", "steady-slack", "auto"}),
       "--group": ("2", {"flexible", "dorapp", "auto"}),
       "--enqueue": ("6,6", {"elastic", "auto"}),
       "--dequeue": ("6,6", {"elastic", "auto"}),
       "--any-network": (None, {"interleaved-zbv", "auto"}),
       "--sub-blocks": ("2", {"greedy", "look-ahead", "auto", "optimal"}),
       "--effort": ("1000", {"optimal", "auto"}),
       "--time-limit": ("100", {"optimal"}),
       "--gap": ("50", {"optimal"}),
       "--memory": ("64", {"optimal"}),
       "--threads": ("1", {"optimal"}),
       "--start": ("start.csv", {"optimal"}),
       "--certificate": ("proof.json", {"optimal"}),
       "--without": ("beams", {"optimal", "auto"}),
       "--pareto": (None, {"optimal"}),
       "--objective": ("first-device", {"optimal"})}


@makes("ud.yaml", "loop.yaml", "wave.yaml", "start.csv")
def inputs():
    uniform("ud.yaml", latency=8, transfer=1)
    uniform("loop.yaml", placement="loop", chunks=2, latency=8, transfer=1)
    uniform("wave.yaml", placement="wave", chunks=2, latency=8, transfer=1)
    run("schedule", "ud.yaml", "-m", "gpipe", "-o", "start.csv")


@test
def an_option_of_schedule_is_for_a_method_or_is_refused():
    inputs()
    check(len(METHODS) >= 15 and "optimal" in METHODS, f"methods: {METHODS}")
    for option, (value, methods) in FOR.items():
        args = [option, value] if value else [option]
        for method in METHODS:
            done = run("schedule", "ud.yaml", "-m", method, *args)
            refused = (done.returncode == 2 and option in done.stderr and
                       "longhaul: schedule: --" in done.stderr)
            check(refused == (method not in methods),
                  f"-m {method} {option}: {done.returncode} {done.stderr!r}")
    # The table contains every option that the help restricts to a method.
    text = " ".join(run("schedule", "--help-all", env={"COLUMNS": "1000"}
                        ).stdout.split("Options:")[1].split("\n"))
    for option, of in re.findall(r"(--[\w-]+)(?: \S+)? {2,}([a-z0-9, -]+): ",
                                 text):
        if set(of.split(", ")) <= set(METHODS):
            check(option in FOR, f"{option} is for {of}")


@test
def options_of_a_method_change_its_schedule():
    inputs()
    for file, method, args in (
            ("ud.yaml", "slack", ["--warmup", "9,7,4,1"]),
            ("ud.yaml", "slack", ["--warmup", "initial"]),
            ("ud.yaml", "steady-slack", ["--warmup", "9,7,4,1"]),
            ("loop.yaml", "flexible", ["--group", "6"]),
            ("loop.yaml", "dorapp", ["--group", "6"]),
            ("loop.yaml", "elastic", ["--enqueue", "4,8"]),
            ("loop.yaml", "elastic", ["--enqueue", "6,6", "--dequeue", "4,8"]),
            ("wave.yaml", "interleaved-zbv", ["--any-network"]),
            ("ud.yaml", "greedy", ["--sub-blocks", "3"]),
            ("ud.yaml", "look-ahead", ["--sub-blocks", "3"])):
        plain = run("schedule", file, "-m", method)
        other = run("schedule", file, "-m", method, *args)
        check(plain.returncode == other.returncode == 0 and
              plain.stdout != other.stdout,
              f"{method} {args}: {other.stderr!r} {other.stdout[:200]!r}")


@test
def passes_are_cut_only_where_something_cuts_them():
    inputs()
    run("plan", str(ROOT / "examples/tiny-llama-cpu.yaml"), "--no-optimal",
        "-o", "plan.json")
    refused = r"--sub-blocks has no effect (on|with) "
    for args in (["simulate", "ud.yaml", "-s", "1f1b"],
                 ["simulate", "ud.yaml", "-s", "start.csv"],
                 ["simulate", "plan.json"], ["explain", "plan.json"],
                 ["explain", "ud.yaml", "-s", "zb-h1"],
                 ["train", "plan.json"], ["train", "ud.yaml", "-s", "gpipe"],
                 ["export", "plan.json", "--to", "pytorch"],
                 ["compare", "ud.yaml", "-m", "1f1b,gpipe"]):
        case("nothing to cut", [*args, "--sub-blocks", "3"], 2, err=refused)
    for args in (["simulate", "ud.yaml", "-s", "greedy"],
                 ["explain", "ud.yaml", "-s", "greedy"]):
        done = run(*args, "--sub-blocks", "3", "--json")
        check(done.returncode == 0 and
              done.stdout != run(*args, "--json").stdout, f"cut: {args}")
    case("some cut", ["compare", "ud.yaml", "-m", "1f1b,greedy",
                      "--sub-blocks", "3"], out=ANY)


@test
def an_option_of_train_is_for_the_device_or_is_refused():
    inputs()
    run("plan", str(ROOT / "examples/tiny-llama-cpu.yaml"), "--no-optimal",
        "-o", "plan.json")
    write("data", "a text that is long enough for a window\n" * 200)
    cpu = {"--data": "data", "--format": "text", "--tokenizer": "t.json",
           "--validation": "0.1", "--validate-every": "2", "--rate": "1e-3",
           "--min-rate": "0", "--warmup": "1", "--weight-decay": "0",
           "--threads": "2", "--rate-decay": "linear", "--decay-steps": "2", "--beta1": "0.8",
           "--beta2": "0.9", "--epsilon": "1e-6", "--clip": "2",
           "--validation-data": "data", "--delayed-update": None,
           "--checkpoint": "c", "--checkpoint-every": "2",
           "--keep": "3", "--resume": "c", "--weights": "w",
           "--emulate-links": None, "--profile-out": "p.json",
           "--offload-to": ".", "--memory": "report"}
    timed = {"--speed": "2", "--message-bytes": "64", "--real-links": None}
    help_text = run("train", "--help-all", env={"COLUMNS": "1000"}).stdout
    said = {of: set(re.findall(rf"(--[\w-]+)(?: \S+)?\s+{of}: ", help_text))
            for of in ("cpu", "timed")}
    check(said == {"cpu": set(cpu), "timed": set(timed)}, f"help: {said}")
    for options, args, other in (
            (cpu, ["train", "ud.yaml"], "cpu"),
            (timed, ["train", "plan.json", "--device", "cpu", "--data",
                     "data"], "timed")):
        for option, value in options.items():
            case(f"not of this device: {option}",
                 [*args, option, *([value] if value else [])], 2,
                 err=rf"\Alonghaul: train: {option} requires --device "
                     rf"{other}\n")
    train = ["train", "plan.json", "--device", "cpu", "--data", "data", "-n",
             "1"]
    for more, message in (
            (["--keep", "3"], "--keep requires --checkpoint"),
            (["--validate-every", "3"],
             "--validate-every requires --validation above 0, or "
             "--validation-data"),
            (["--validation", "0.1", "--validation-data", "data"],
             "--validation cannot be combined with --validation-data"),
            (["--rate-decay", "constant", "--min-rate", "0"],
             "--min-rate cannot be combined with --rate-decay constant"),
            (["--rate-decay", "constant", "--decay-steps", "1"],
             "--decay-steps cannot be combined with --rate-decay constant"),
            (["--beta2", "1"], "--beta1 and --beta2 must be at least 0 and "
             "less than 1"),
            (["--epsilon", "0"], "--epsilon must be above 0"),
            (["--format", "u16", "--tokenizer", "t.json"],
             "--tokenizer requires --format text")):
        case("alone of no effect", [*train, *more], 2, err=message)


@test
def errors_are_reported_before_the_search():
    """An endless search would start if the error were not found before."""
    example = (ROOT / "examples/llama3-405b-100k-gpus.yaml").read_text()
    write("large.yaml", example)
    case("a range that jitter has not",
         ["plan", "large.yaml", "--jitter", "degraded=2x3"], 1,
         err=r"\Alonghaul: jitter: degraded_rate is 2; expected 0 to 1\n\Z")
    two = str(ROOT / "examples/llama3-405b-two-sites.yaml")
    done = run("plan", two, "--what-if", "loss=0,2", "--effort",
               str(1 << 40), "--search", "exact")
    check(done.returncode == 1 and
          re.search(r"\Alonghaul: what if loss=2: [^\n]*out of range[^\n]*\n\Z",
                    done.stderr), f"loss=2: {done.stderr!r}")
    inputs()
    case("before what is to be simulated",
         ["simulate", "nowhere.yaml", "--jitter", "straggler=0.1x0.5"], 1,
         err=r"straggler_factor is 0\.5; expected 1 to")


@test
def engines_to_do_without_add_up():
    inputs()
    once = json_case("in a list", ["schedule", "ud.yaml", "-m", "optimal",
                                   "--without", "beams,insertion"])
    twice = json_case("given twice", ["schedule", "ud.yaml", "-m", "optimal",
                                      "--without", "beams", "--without",
                                      "insertion"])
    off = [{e["name"] for e in found["engines"] if not e["on"]}
           for found in (once, twice)]
    check(off[0] == off[1] == {"beams", "insertion"}, f"off: {off}")
    former = json_case("names of earlier versions", [
        "schedule", "ud.yaml", "-m", "optimal", "--without",
        "loose,fewer,regrowth"])
    check({e["name"] for e in former["engines"] if not e["on"]} ==
          {"relaxation", "reduction", "destroy-repair"}, former["engines"])
    case("each is checked", ["schedule", "ud.yaml", "-m", "optimal",
                             "--without", "beam", "--without", "beams"], 2,
         err=r"--without: unknown engine 'beam'; did you mean beams\?")


@test
def traces_of_different_jobs_are_not_compared():
    inputs()
    shapes = {"a": {}, "devices": {"devices": 8},
              "microbatches": {"microbatches": 8}}
    for name, shape in shapes.items():
        uniform(f"{name}.yaml", **shape)
        run("simulate", f"{name}.yaml", "-s", "1f1b", "--trace", f"{name}.json")
    run("simulate", "wave.yaml", "-s", "greedy", "--trace", "chunks.json")
    for other in ("devices", "microbatches", "chunks"):
        for pair in (("a", other), (other, "a")):
            case(f"other {other}",
                 ["report", "--predicted", f"{pair[0]}.json", "--measured",
                  f"{pair[1]}.json"], 1,
                 err=r"\Alonghaul: the predicted and the measured trace "
                     r"belong to different jobs: \d+ devices, \d+ chunks, \d+ "
                     r"microbatches, and \d+, \d+, \d+\n\Z")
    run("simulate", "a.yaml", "-s", "gpipe", "--trace", "b.json")
    case("another schedule of the same", ["report", "--predicted", "a.json",
                                          "--measured", "b.json"], out=ANY)


finish()
