#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Help, version, usage errors."""
import re

from harness import (ANY, ROOT, case, check, finish, json_case, read, run, uniform,
                     write)

COMMANDS = ("init", "import", "plan", "compare", "simulate", "schedule", "check",
            "report", "export")
TRY = r"[^\n]*\nTry 'longhaul {} --help'\.\n\Z"

uniform("p.yaml")
GROUPS = (ROOT / "cli/help_groups.c").read_text()

# Help states the purpose and usage of the command, with examples of it.
case("help", ["--help"], out=r"Usage: longhaul COMMAND.*Examples:")
case("help word", ["help"], out=r"Usage: longhaul COMMAND")
case("version", ["--version"], out=r"\Alonghaul \d+\.\d+\.\d+\n\Z")
for command in COMMANDS:
    done = case(f"help of {command}", [command, "--help"],
                out=rf"\AUsage: longhaul {command} .*--json.*"
                    rf"Examples:\n  longhaul {command} ")
    lines = done.stdout.splitlines()
    check(max(map(len, lines)) <= 80, f"help of {command} fits 80 columns")
    check(len(lines) <= 60, f"help of {command} is {len(lines)} lines")
    option = re.compile(r"^  (?:-\w, |    )--([\w-]+)", re.M)
    some = set(option.findall(done.stdout))
    done = case(f"whole help of {command}", [command, "--help-all"],
                out=rf"\AUsage: longhaul {command} .*Options:.*"
                    rf"--json.*Examples:\n  longhaul {command} ")
    every = set(option.findall(done.stdout))
    check(some <= every, f"help of {command}: {some - every}")
    grouped = {name for names in re.findall(
        rf'{{"{command}",\s+"[^"]+",\s+"([^"]+)"}}', GROUPS)
               for name in names.split()}
    check(grouped <= every, f"unknown options of {command}: {grouped - every}")
    check((some == every) != (f"longhaul {command} --help-all" in
                              case(f"rest of {command}", [command, "--help"],
                                   out=ANY).stdout),
          f"help of {command} says where the rest is")
    case(f"help {command}", ["help", command],
         out=rf"\AUsage: longhaul {command} ")
    case(f"version of {command}", [command, "--version"],
         out=r"\Alonghaul \d")
    case(f"-h of {command}", [command, "-h"], out=rf"longhaul {command}")
    # Help does not require valid arguments.
    case(f"help of {command} wins", [command, "nowhere", "--help"], out=ANY)
    case(f"{command}: unknown option", [command, "--jsom"], 2,
         err=rf"\Alonghaul: {command}: unknown option '--jsom'; did you "
             rf"mean '--json'\?" + TRY.format(command))
    case(f"{command}: unknown letter", [command, "-Z"], 2,
         err=rf"unknown option '-Z'" + TRY.format(command))
    case(f"{command}: flag with value", [command, "--json=yes"], 2,
         err=r"--json takes no argument" + TRY.format(command))
    case(f"{command}: option without value", [command, "-o"], 2,
         err=r"-o requires an argument: FILE" + TRY.format(command))
    case(f"{command}: bad seed", [command, "--seed", "-1"], 2,
         err=r"--seed: '-1' is not a whole number" + TRY.format(command))
    case(f"{command}: seed too large",
         [command, "--seed=18446744073709551616"], 2,
         err=r"is not a whole number" + TRY.format(command))

MAIN = r"[^\n]*\nTry 'longhaul --help'\.\n\Z"
case("no command", [], 2, err=r"\Alonghaul: a command is required" + MAIN)
case("unknown command", ["simulat"], 2,
     err=r"unknown command 'simulat'; did you mean 'simulate'\?" + MAIN)
case("nothing near", ["xyzzy"], 2, err=r"unknown command 'xyzzy'" + MAIN)
case("help of nothing", ["help", "xyzzy"], 2,
     err=r"unknown command 'xyzzy'" + MAIN)
case("option first", ["--json", "plan"], 2,
     err=r"'--json' is before the command" + MAIN)

# Operands.
for command in ("plan", "simulate", "schedule", "export", "compare"):
    case(f"{command} of nothing", [command], 2,
         err=r"a required argument is missing; it takes " + ANY)
case("check of none", ["check"], 2, err=r"a required argument is missing; "
     r"it takes PIPELINE\|PLAN \[SCHEDULE\]")
case("check of one", ["check", "p.yaml"], 2, err=r"SCHEDULE is required for a "
     r"pipeline")
# The rest after a letter is its value, including blanks.
case("value with a blank", ["schedule", "p.yaml", "-omy schedule.txt"], out=ANY)
check(read("my schedule.txt"), "a name with a blank")
case("one too many", ["schedule", "p.yaml", "q.yaml"], 2,
     err=r"unexpected argument 'q\.yaml'; it takes PIPELINE")
case("report of nothing", ["report"], 2, err=r"no input; name plans or traces")
case("report of a half", ["report", "--measured", "x.json"], 2,
     err=r"--predicted and --measured are required together")

# Values of options.
case("unknown method", ["schedule", "p.yaml", "--method", "zbh1"], 2,
     err=r"--method: unknown method 'zbh1'; did you mean zb-h1\?")
case("no method near", ["schedule", "p.yaml", "--method", "qqqqqqq"], 2,
     err=r"unknown method 'qqqqqqq'; known: gpipe, 1f1b, ")
case("unknown method, simulate", ["simulate", "p.yaml", "-s", "gpip"], 2,
     err=r"--schedule: unknown method 'gpip'; did you mean gpipe\?")
case("unknown method, compare", ["compare", "p.yaml", "-m", "1f1b,zv"], 2,
     err=r"--methods: unknown method 'zv'")
case("choice", ["simulate", "p.yaml", "--receives", "soon"], 2,
     err=r"--receives: 'soon' is not one of: pipeline, early, late, late-fd")
case("count 0", ["schedule", "p.yaml", "--sub-blocks", "0"], 2,
     err=r"'0' is not a whole number from 1 to 4096")
case("count too large", ["schedule", "p.yaml", "--sub-blocks=4097"], 2,
     err=r"'4097' is not a whole number from 1 to 4096")
case("count with rest", ["schedule", "p.yaml", "--sub-blocks", "3x"], 2,
     err=r"'3x' is not a whole number")
case("count empty", ["schedule", "p.yaml", "--sub-blocks="], 2,
     err=r"'' is not a whole number")
case("text empty", ["schedule", "p.yaml", "--method="], 2,
     err=r"--method: the argument is empty")
case("warm-up short", ["schedule", "p.yaml", "-m", "slack", "--warmup",
                       "4,3,2"], 2,
     err=r"--warmup: 3 numbers for 4 devices; give one number per device")
case("warm-up wrong", ["schedule", "p.yaml", "-m", "slack", "--warmup",
                       "4,3,,1"], 2,
     err=r"--warmup: '' is not a whole number of forwards")
case("warm-up word", ["schedule", "p.yaml", "-m", "slack", "--warmup",
                      "lots"], 2,
     err=r"--warmup: 'lots' is not a whole number of forwards")

# Numbers and times: one text for each type.
for option, value, message in (
        ("--gap", "-1", "a number, 0 or more"),
        ("--gap", "5%", "a number, 0 or more"),
        ("--time-limit", "soon", "a number, 0 or more"),
        ("--effort", "0", "a whole number from 1 to 4611686018427387904"),
        ("--memory", "1.5", "a whole number from 1 to 16777216"),
        ("--makespan", "0s", "a time above 0 such as 3980ms"),
        ("--makespan", "4sec", "a time above 0 such as 3980ms")):
    case(f"{option} {value}", ["schedule", "p.yaml", option, value], 2,
         err=rf"\Alonghaul: schedule: {option}: '{value}' is not {message}\n")
case("no unit", ["schedule", "p.yaml", "--makespan", "4"], 2,
     err=r"\Alonghaul: schedule: --makespan: '4' has no unit; did you mean "
     r"4ms\?\n")
case("a time of weeks", ["schedule", "p.yaml", "-m", "optimal", "--objective",
                         "memory", "--makespan", "2000000s"], out=r"\A0F0,")
for option, value, message in (
        ("--warmup", "0", "requires --device cpu"),
        ("--min-rate", "0", "requires --device cpu"),
        ("--warmup", "200000000", "'200000000' is not a whole number from 0 to "
         "100000000")):
    case(f"train {option} {value}", ["train", "p.yaml", option, value], 2,
         err=rf"\Alonghaul: train: {option}:? {message}")
case("a warm-up above the run", ["train", "p.yaml", "--device", "cpu", "--steps",
                                "4", "--warmup", "5"], 2,
     err=r"--warmup 5 is above --steps 4: the learning rate would not reach "
     "--rate")
case("--max-chunk-ratio", ["plan", "job.yaml", "--max-chunk-ratio", "0.5"], 2,
     err=r"--max-chunk-ratio: '0\.5' is not a number, 1 or more\n")

for name, value, message in (
        ("name", "delay=1", r"does not begin with latency= or transfer="),
        ("no name", "1", r"does not begin with latency= or transfer="),
        ("nothing", "latency=", r"is not a value such as"),
        ("word", "latency=soon", r"'soon' is not a value such as"),
        ("negative", "latency=-1", r"is not a value such as"),
        ("nan", "latency=nan", r"is not a value such as"),
        ("inf", "latency=inf", r"is not a value such as"),
        ("hex", "latency=0x10", r"is not a value such as"),
        ("huge", "latency=1e300", r"is not a value such as"),
        ("unit", "latency=5weeks", r"is not a value such as"),
        ("two parts", "latency=0:2", r"is not a value such as"),
        ("four parts", "latency=0:2:1:1", r"is not a value such as"),
        ("no step", "latency=0:2:0", r"is not a valid range"),
        ("backwards", "latency=2:0:1", r"is not a valid range"),
        ("too many", "latency=0:2:0.0001", r"more than 1000 values"),
        ("mixed", "latency=0:2ms:0.5", r"with and without a unit"),
        ("mixed list", "latency=1,2ms", r"with and without a unit"),
        ("twice", "latency=1,latency=2", r"latency is given twice"),
        ("points", "latency=0:900:1,transfer=0:900:1", r"at most 10000")):
    case(f"sweep: {name}", ["compare", "p.yaml", "--sweep", value], 2,
         err=r"\Alonghaul: compare: --sweep: .*" + message)

# --what-if, against the sites of a job.
LINKED = str(ROOT / "examples/crosspipe-m70-four-sites.yaml")
for name, value, message in (
        ("no name", "40", r"'40' is not latency, bandwidth, loss or"),
        ("another name", "speed=40", r"'speed' is not latency"),
        ("another link", "west-moon.latency=4", r"'west-moon\.latency' is not"),
        ("no value", "latency", r"latency: '' is not a value such as"),
        ("empty", "latency=", r"latency: '' is not a value such as"),
        ("word", "loss=soon", r"loss: 'soon' is not a value such as"),
        ("unit", "latency=40ms", r"'40ms' is not a value such as"),
        ("negative", "latency=-4", r"'-4' is not a value such as"),
        ("by nothing", "latency=/0", r"'/0' is not a value such as"),
        ("range of factors", "latency=x1:2:1", r"is not a value such as"),
        ("two parts", "latency=1:2", r"is not a value such as"),
        ("backwards", "latency=3:2:1", r"is not a valid range"),
        ("too many", "latency=1:2:0.001", r"more than 64 values of latency"),
        ("twice", "latency=40,bandwidth=/4,bandwidth=400",
         r"bandwidth is given twice; list its values"),
        ("twice in the second list", "latency=1;loss=0,loss=0.1",
         r"loss is given twice"),
        ("nothing behind", "latency=1;", r"'' is not latency"),
        ("too many in all", "latency=1:40:1,bandwidth=1:40:1",
         r"more than 256 combinations")):
    case(f"what if: {name}", ["plan", LINKED, "--what-if", value], 2,
         err=r"\Alonghaul: plan: --what-if: .*" + message)
case("what if: out of range", ["plan", LINKED, "--what-if", "loss=1"], 1,
     err=r"what if loss=1: loss of the link .*: 1 is out of range; from 0 to "
         r"0\.99")
named = (ROOT / "examples/llama3-8b-gcp-regions.yaml").read_text().replace(
    "us-central1-a", "a.1").replace("us-west1-b", "west=1.0")
write("named.yaml", named)
case("what if: dots and = in names",
     ["plan", "named.yaml", "--what-if", "a.1-west=1.0.latency=soon"], 2,
     err=r"--what-if: a\.1-west=1\.0\.latency: 'soon' is not a value")
case("what if: one site", ["plan", str(ROOT / "examples/tiny-llama-cpu.yaml"),
                           "--what-if", "latency=4"], 2,
     err=r"has one datacenter and no links between")

for option, value in (("--gpu-hour", "0"), ("--gpu-hour", "-1"),
                      ("--per-gb", "free"), ("--per-gb", "1e10")):
    case(f"{option} {value}", ["plan", LINKED, option, value], 2,
         err=rf"\Alonghaul: plan: {option}: '{value}' is not a number above 0, "
             r"at most 1000000000\n")
case("costs without prices", ["plan", LINKED, "--objective", "cost"], 1,
     err=r"the cheapest plan requires prices; set usd_per_gpu_hour \(and "
         r"usd_per_gb\) in the job's cluster")
case("--per-gb alone", ["plan", LINKED, "--per-gb", "1"], 1,
     err=r"a price per byte requires a price per GPU hour")

# All forms of an option are equivalent.
want = run("schedule", "p.yaml", "--method", "zb-h1").stdout
for args in (["-m", "zb-h1", "p.yaml"], ["-mzb-h1", "p.yaml"],
             ["--method=zb-h1", "p.yaml"], ["p.yaml", "-qm", "zb-h1"],
             ["-m", "gpipe", "p.yaml", "-m", "zb-h1"],
             ["-m", "zb-h1", "--", "p.yaml"]):
    check(run("schedule", *args).stdout == want, f"same option: {args}")
write("-odd.yaml", read("p.yaml"))
case("file that looks like an option",
     ["schedule", "-m", "zb-h1", "--", "-odd.yaml"], out=r"\A0F0,")

found = json_case("JSON of a schedule", ["schedule", "p.yaml"])
check({"method", "makespan_s", "lower_bound_s", "gap", "status",
       "bubble_ratio", "peak_memory", "seconds"} <= found.keys(),
      "keys of schedule --json")
finish()
