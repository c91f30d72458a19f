#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The help is valid: every example line, and the form of every argument."""
import json
import re
import shlex
import shutil
import subprocess

import harness
from harness import (
    ROOT,
    WORK,
    case,
    check,
    finish,
    long_test,
    makes,
    read,
    run,
    test,
    uniform,
    write,
)
from input_files import HAS_PLAYGROUND, MEGATRON, TORCHTITAN
from profiled import profiled

COMMANDS = re.findall(r"^  (\w+) ", re.search(
    r"Commands:\n(.*?)\n\n", run("--help").stdout, re.S)[1], re.M)
# Each of these values is as good as another.
PLAIN = {"FILE", "DIR", "N", "K", "TEXT"}
JOB = """
    longhaul: job/1
    model: {layers: 4, hidden: 64, ffn: 128, heads: 4, vocab: 256}
    training: {global_batch: 12, sequence: 32, precision: fp32, zero: 1,
               recompute: none}
    cluster:
      gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}
      gpus_per_node: 1
      fabric: {gbps: 10, latency_us: 50}
      datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2}]
      links: [{between: [west, east], latency_ms: 1, gbps: 1,
               load_balancing: ecmp, recovery: selective-repeat}]
    layout: {tensor: 1, context: 1, pipeline: 4, data: 1, micro_batch: 1,
             chunks_per_device: 1}
    """
FILES = ["job.yaml", "plan.json", "mega.json", "titan.json", "pipeline.yaml", "p.yaml", "ud.yaml",
         "wave.yaml", "s.csv", "a.json", "b.json", "c.json", "before.json", "after.json",
         "proof.json", "book.txt",
         "args.txt", "events.yaml", "alike.yaml", "hosts.yaml", "today.toml",
         "csv.txt", "steps.csv.gz", "rank0.json", "rank1.json", "ranks.yaml", "python",
         "ds_config.json", "config.json", "gpt.yaml", "plan.0.et", "plan.1.et",
         "plan.2.et", "plan.3.et"]
harness.ENVIRONMENT["LONGHAUL_PYTHON"] = str(WORK / "python")


@makes(*FILES)
def inputs():
    shutil.copy(ROOT / "tests/data/recordings/ST.csv.gz", WORK / "steps.csv.gz")
    for name in ("deepspeed/ds_config.json", "nemo/gpt.yaml",
                 "configs/Llama-3.1-8B/config.json"):
        shutil.copy(ROOT / "tests/data" / name, WORK)
    write("job.yaml", JOB)
    run("plan", "job.yaml", "--no-optimal", "-q", "-o", "plan.json")
    run("plan", "job.yaml", "--no-optimal", "-q", "-o", "mega.json", "--for",
        "megatron")
    write("titan.yaml", JOB.replace("zero: 1", "zero: 2"))
    run("plan", "titan.yaml", "--no-optimal", "-q", "-o", "titan.json", "--for",
        "torchtitan")
    uniform("pipeline.yaml", latency=8, transfer=1, limit=8)
    run("export", "plan.json", "--to", "chakra", "-o", "plan")
    for name in ("p.yaml", "ud.yaml"):
        write(name, read("pipeline.yaml"))
    uniform("wave.yaml", placement="wave", chunks=2, latency=8, transfer=1)
    run("schedule", "pipeline.yaml", "-m", "optimal", "-o", "s.csv",
        "--certificate", "proof.json", "-q")
    for name in ("before.json", "after.json"):
        write(name, read("plan.json"))
    for name in ("a.json", "b.json", "c.json"):
        run("simulate", "pipeline.yaml", "-s", "s.csv", "--trace", name)
    write("args.txt", MEGATRON)
    uniform("alike.yaml")
    write("hosts.yaml", """
        longhaul: events/1
        events:
          - {from: 1, to: 2, links: [h0-h4], latency: 0.03}
        """)
    write("events.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 15, to: 85, links: [0-1], latency: 30}
        """)
    write("today.toml", TORCHTITAN)
    write("csv.txt", "--module llama3 --config llama3_debugmodel "
          "--parallelism.pipeline_parallel_degree 2 "
          "--parallelism.pipeline_parallel_schedule 1F1B "
          "--parallelism.pipeline_parallel_schedule_csv s.csv")
    profiled()
    write("ranks.yaml", "longhaul: ranks/1\nranks: [{rank: 0, stage: 0, "
          "replica: 0}, {rank: 1, stage: 1, replica: 0}]\n")
    # A fake Python with torch: `profile --torch` accepts its output.
    write("python", "#!/bin/sh\ncat >/dev/null\necho '{\"longhaul\": "
          "\"profile/1\", \"entries\": [{\"kind\": \"layer\", \"sequence\": 8, "
          "\"F_us\": 1, \"D_us\": 1, \"W_us\": 1}]}'\n")
    write("book.txt", "It is a truth universally acknowledged. " * 200)


def clear():
    inputs()
    for path in WORK.iterdir():
        if path.is_file() and path.name not in FILES:
            path.unlink()
    (WORK / "python").chmod(0o755)
    if not (WORK / "examples").exists():
        (WORK / "examples").symlink_to(ROOT / "examples")


def examples(text):
    return re.findall(r"^  longhaul (.*)$",
                      text.partition("\nExamples:\n")[2], re.M)


def options(command):
    """Yields (name, argument, help) of each option with an argument."""
    part = run(command, "--help-all").stdout.partition("\nOptions:\n")[2]
    part = part.partition("\nCommon options:")[0]
    for text in re.split(r"\n(?=  -|      --)", "\n" + part):
        flat = " ".join(text.split())
        found = re.match(r"(?:-\w, )?--([\w-]+) (\S+) ", flat)
        if found and (found[2].upper() == found[2] or
                      re.search(r"[|,=]", found[2])):
            yield found[1], found[2], flat[found.end():]


@test
def every_example_works():
    ran = set()
    for command in COMMANDS:
        for line in examples(run(command, "--help-all").stdout):
            clear()
            args = shlex.split(line.partition(" | ")[0])
            ran.add(args[0])
            if args[0] == "playground" and not HAS_PLAYGROUND:
                continue
            if args[0] in ("init", "import") and "-o" in args:
                (WORK / "job.yaml").unlink()
            done = run(*args, "-q")
            # The tiny job's machines may be too few for the example's tokens.
            check(done.returncode == 0 or
                  args[0] == "size" and not done.stderr,
                  f"{line}: {done.stderr}")
    check(ran == set(COMMANDS), f"commands with examples: {ran}")


@test
def the_first_lines_of_all_help_work():
    for line in examples(run("--help").stdout):
        clear()
        if line.startswith(("init", "import")):
            (WORK / "job.yaml").unlink()
        if line.startswith("init"):
            line += " -m llama3-8b"
        done = run(*shlex.split(line), "-q")
        check(done.returncode == 0, f"{line}: {done.stderr}")


IMPORTED = ["args.txt", "--from", "megatron", "-s", "2"]
TITAN = ["--from", "torchtitan", "-n", "1"]
DEEPSPEED = ["ds_config.json", "--from", "deepspeed", "-m", "llama3-8b", "-n",
             "2"]
# Further options that an option requires to have an effect.
BESIDE = {
    "init": {"link-gbps": ["-s", "2"], "latency-ms": ["-s", "2"]},
    "import": {"": IMPORTED,
               "gpu": ["-n", "2"], "gpus-per-node": ["-n", "2"],
               "link-gbps": ["-n", "2"], "latency-ms": ["-n", "2"],
               "cluster": ["args.txt", "--from", "megatron"],
               "sites": ["args.txt", "--from", "megatron", "-n", "2"],
               "model": ["today.toml", *TITAN],
               "schedule": ["csv.txt", *TITAN],
               "sequence": DEEPSPEED},
    "plan": {"": ["job.yaml"], "gpu": IMPORTED + ["-n", "1"],
             "nodes": IMPORTED, "gpus-per-node": IMPORTED + ["-n", "1"],
             "link-gbps": IMPORTED + ["-n", "1"],
             "latency-ms": IMPORTED + ["-n", "1"],
             "cluster": ["args.txt", "--from", "megatron"],
             "sites": ["args.txt", "--from", "megatron", "-n", "2"],
             "model": ["today.toml", *TITAN, "--no-optimal"],
             "schedule": ["csv.txt", *TITAN],
             "sequence": [*DEEPSPEED, "--no-optimal", "--search", "even"],
             "draws": ["--search", "monte-carlo"],
             "per-gb": ["--gpu-hour", "2"], "by": ["--jitter", "latency=1"],
             "max-iteration": ["--gpu-hour", "2", "--objective", "cost"]},
    "size": {"": ["job.yaml", "--tokens", "1B", "--deadline", "900d"],
             "per-gb": ["--gpu-hour", "2"], "budget": ["--gpu-hour", "2"],
             "spot": ["--gpu-hour", "2"]},
    "packets": {"": ["--gbps", "100", "--latency", "1ms", "--message", "90kB",
                     "--seeds", "1"], "sample": ["plan.json", "--seeds", "1"],
                "flow-control": ["--switch-kib", "65536"],
                "failed-at": ["--paths", "4", "--failed", "1"],
                "reroute": ["--paths", "4", "--failed", "1"],
                "other-message": ["--other-gpus", "4", "--other-load", "0.1"]},
    "optical": {"sweep": [str(ROOT / "examples/optical-nsfnet.yaml"),
                          "--seed", "1"]},
    "check": {"": ["plan.json"]},
    "compare": {"": ["pipeline.yaml"]},
    "simulate": {"": ["pipeline.yaml"],
                 "path": ["pipeline.yaml", "--coupled", "1"],
                 "host-copy": ["pipeline.yaml", "--host-memory", "4"],
                 "staging": ["pipeline.yaml", "--events", "events.yaml",
                             "--steps", "3", "--adapt", "--coupled", "1"],
                 "moving": ["alike.yaml", "--events", "hosts.yaml", "--steps",
                            "3", "--adapt", "--replicas", "2"],
                 "layers": ["alike.yaml", "--events", "events.yaml", "--steps",
                            "3", "--adapt", "--moving", "1s"]},
    "train": {"": ["plan.json", "--speed", "1000"],
              "path": ["plan.json", "--speed", "1000", "--coupled", "9"],
              "staging": ["plan.json", "--speed", "1000", "--path",
                          "delegated"],
              "layers-at": ["alike.yaml", "--speed", "100", "--layers",
                            "8,8,8,8"],
              "layers": ["alike.yaml", "--speed", "100", "--layers-at",
                         "2=9,7,8,8"],
              "moving": ["alike.yaml", "--speed", "100", "--layers-at",
                         "2=9,7,8,8", "--layers", "8,8,8,8"],
              "places-at": ["alike.yaml", "--speed", "100", "--events",
                            "hosts.yaml", "--replicas", "2"],
              "host-memory": ["pipeline.yaml", "-n", "1"],
              "host-copy": ["pipeline.yaml", "-n", "1", "--host-memory", "4"],
              "validation": [], "min-rate": [], "rate": []},
    "profile": {"": ["job.yaml", "--torch"]},
    "explain": {"": ["pipeline.yaml"],
                "path": ["pipeline.yaml", "--coupled", "9"],
                "staging": ["pipeline.yaml", "--path", "delegated"]},
    "schedule": {"": ["pipeline.yaml", "-m", "optimal"],
                 "host-copy": ["pipeline.yaml", "-m", "slack",
                               "--host-memory", "4"],
                 "warmup": ["pipeline.yaml", "-m", "slack"],
                 "enqueue": ["pipeline.yaml", "-m", "elastic"],
                 "dequeue": ["pipeline.yaml", "-m", "elastic", "--enqueue",
                             "8,4"],
                 "makespan": ["pipeline.yaml", "-m", "optimal", "--objective",
                              "memory"]},
    "export": {"": ["plan.json"]},
}
# Options whose form is tested by the tests of their device or transport.
ELSEWHERE = (r"\Alonghaul: train: --[\w-]+ requires "
             r"(--device cpu|--transport ((local, )?tcp( or ucx)?))\n")


@test
def every_form_is_shown_and_works():
    n = 0
    for command in COMMANDS:
        beside = BESIDE.get(command, {})
        for name, argument, text in options(command):
            like = re.search(r"\(such as (\S+)\)", text)
            if argument in PLAIN and not like:
                continue
            if not check(like or re.search(r"\(default: |One of: ", text),
                         f"{command} --{name} {argument} says no form"):
                continue
            if not like:
                continue
            clear()
            more = beside.get(name, [])
            base = beside.get("", [])
            args = more if more[:1] and not more[0].startswith("-") else (
                base + more)
            done = run(command, *args, f"--{name}", like[1], "-q")
            works = (done.returncode == 0 or re.search(ELSEWHERE, done.stderr) or
                     # The tiny job's machines may be too few.
                     command == "size" and done.returncode == 1 and
                     not done.stderr)
            check(works, f"{command} {args} --{name} {like[1]}: {done.stderr}")
            n += 1
    check(n > 25, f"{n} forms")


@test
def help_names_the_unit_of_every_quantity():
    """The help of every quantity names its unit."""
    units = {"init --link-gbps": "10^9 bit/s",
             "init --latency-ms": "milliseconds",
             "plan --time": "Processor seconds", "plan --per-gb": "10^9 bytes",
             "plan --gpu-hour": "hour", "plan --what-if": "(ms)",
             "schedule --gap": "percent", "schedule --makespan": "unit",
             "schedule --memory": "MIB", "schedule --time-limit": "SECONDS",
             "compare --sweep": "(ns, us, ms, s)",
             "train --inject": "latency:20ms,gbps:10",
             "train --message-bytes": "message size in bytes"}
    for option, unit in units.items():
        command, name = option.split()
        text = " ".join(run(command, "--help-all").stdout.split())
        text = text.partition(" Options: ")[2]
        check(any(unit in text[at.start():at.start() + 700]
                  for at in re.finditer(f"{name} ", text)), f"{option}: {unit}")


@test
def errors_request_the_form_in_the_help():
    clear()
    case("a time", ["schedule", "p.yaml", "-m", "optimal", "--objective",
                    "memory", "--makespan", "3980"], 2,
         err=r"'3980' has no unit; did you mean 3980ms\?")
    check(json.loads(run("init", "--json").stdout)["sites"] == 1, "JSON")


def check_transcript(lines, files):
    """Runs the commands. The lines between two "[...]" occur consecutively in
    the output. `files`: pattern of the files' names, in which "readme" replaces
    the first group."""
    said, shown = "", []
    for line in [*(x[4:] for x in lines.split("\n")), "$ end"]:
        if not line.startswith("$ ") and line not in ("[...]", ""):
            shown[-1] += line + "\n"
            continue
        check(all(part in said for part in shown),
              f"{shown}\n\nprinted:\n{said}")
        if line.startswith("$ longhaul "):
            line = re.sub(files, "readme.", line)
            said = subprocess.run(  # not run(), which lowers the effort
                [harness.PROGRAM, *shlex.split(line)[2:]], text=True, cwd=WORK,
                capture_output=True, check=True).stdout
            shown = []
        shown.append("")


@test
@makes("readme.yaml", "readme.json")
def the_readme_shows_the_real_output():
    readme = (ROOT / "README.md").read_text()
    check_transcript(re.search(r"\n## Example\n\n((?:    .*\n)+)", readme)[1],
                     r"job\.|plan\.")


@long_test
@makes("readme.yaml", "readme.json", "sized.yaml")
def the_readme_sizes_a_cluster():
    """A minute of processor time."""
    readme = (ROOT / "README.md").read_text()
    check_transcript(re.search(r"\*\*Size a cluster\.\*\* (?:.+\n)+\n"
                               r"((?:    .*\n)+)", readme)[1],
                     r"job\.|plan\.")


@test
def the_readme_states_the_numbers_of_its_pages():
    """Compares each measured claim with the page that has its measurement."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    page = (ROOT / "docs/theory/plan-search.md").read_text()
    gap, seconds = re.search(
        r"^\| `examples/llama3-405b-100k-gpus.yaml` \|.*\| ([\d.]+ %) \| "
        r"([\d.]+ s) \|", page, re.M).groups()
    check(f"in {seconds} of processor time. The plan is within {gap} of a "
          "proven lower bound" in readme, f"plan-search.md: {seconds}, {gap}")
    calculon, sailor, shipped = re.search(
        r"^\| \*\*times faster\*\* \|[^\d]*(\d+)[^\d]*([\d.]+); (\d+)",
        (ROOT / "bench/README.md").read_text(), re.M).groups()
    check(f"the search is {calculon} times as fast as Calculon" in readme and
          f"search is {float(sailor):.0f} times as fast as Sailor, and "
          f"{shipped} times as fast as Sailor with its default tables" in
          readme, f"bench/README.md: {calculon}, {sailor}, {shipped}")
    page = (ROOT / "docs/papers/crosspipe-optimal.md").read_text()
    gaps = [float(row) for row in re.findall(
        r"^\| [24] \|(?:[^|]*\|){4} ([\d.]+) % \|", page, re.M)]
    proven = sum(gap == 0 for gap in gaps)
    near = sum(gap <= 2 for gap in gaps)
    check(f"{proven} of [CrossPipe's {len(gaps)} settings]"
          "(docs/papers/crosspipe-optimal.md) are proven on one core, and "
          f"{near} come within 2 % of the bound" in readme,
          f"crosspipe-optimal.md: {proven}, {near} of {len(gaps)}")


@long_test
def the_readme_states_the_size_of_the_largest_search():
    """Plans with the default effort: 20 s of processor time."""
    clear()
    found = json.loads(subprocess.run(
        [harness.PROGRAM, "plan", ROOT / "examples/llama3-405b-100k-gpus.yaml",
         "--json"], text=True, cwd=WORK, capture_output=True,
        check=True).stdout)
    readme = " ".join((ROOT / "README.md").read_text().split())
    millions = found["search"]["layouts"] / 1e6
    check(f"covers {millions:.1f} million layouts" in readme and
          f"within {100 * found['search']['gap']:.1f} % of a proven" in readme,
          f"{millions} million, {found['search']['gap']}")


finish()
