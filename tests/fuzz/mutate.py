#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the program: mutates the examples, the test data and the program's own
outputs (mutations.py), and runs every command that reads such a file.

    tests/fuzz/mutate.py [--program P] [--mutants N | --seconds S] [--first K]

Mutant K depends only on K and the files, so `--first K --mutants 1` reproduces
it. Requirements of each run:

  - It exits with status 0, 1 or 2, not by a signal, and without a report of a
    sanitizer.
  - A failure prints one message on standard error. It leaves no standard output
    and no file, also no temporary one.
  - Success writes the requested files and prints no message.
  - Outputs are UTF-8 without control characters and direction overrides.
  - No input is changed.
  - A second run prints and writes the same bytes.

Violations are stored in --findings: a folder per run with the input, the command
and the outputs. Needs only Python's standard library.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from mutations import mutate

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus"
# Seconds until an endless command is interrupted like by Ctrl-C, and until a
# program counts as hanging.
ENOUGH, HANGS = 2, 240
ENVIRONMENT = {
    **os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "80",
    "OPENBLAS_NUM_THREADS": "1",
    "ASAN_OPTIONS": "exitcode=99:allocator_may_return_null=1:"
                    "max_allocation_size_mb=4096:hard_rss_limit_mb=4096:"
                    "detect_leaks=0",
    "UBSAN_OPTIONS": "exitcode=99:halt_on_error=1:print_stacktrace=1",
    "LSAN_OPTIONS": "exitcode=99"}
# Leak detection doubles the time, so it runs for one mutant in this many.
LEAKS = {**ENVIRONMENT, "ASAN_OPTIONS": ENVIRONMENT["ASAN_OPTIONS"].replace(
    "detect_leaks=0", "detect_leaks=1")}
LEAKS_EVERY = 4
REPORT = re.compile(r"Sanitizer|runtime error:|Assertion .* failed|"
                    r"free\(\)|malloc\(\)|stack smashing")
# C0 without line feed, DEL, C1, and direction overrides.
CONTROL = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f"
                     "\u202a-\u202e\u2066-\u2069]")

# A file of this format, its name, and the commands that read it. In a command
# `@` is the mutant, `?` a random method; words that end in `!` are outputs
# (without the `!`). All commands are quiet, since remarks are not errors. `how`
# is a set of: "endless" (is interrupted), "differs" (its output contains
# measurements), "verdict" (fails with a verdict on standard output).
Kind = collections.namedtuple("Kind", "name file seeds commands")
Command = collections.namedtuple("Command", "words outputs how")


def command(text, *how):
    words = f"{text} -q".split()
    outputs = [word[:-1] for word in words if word.endswith("!")]
    return Command([word[:-1] if word.endswith("!") else word
                    for word in words], outputs, set(how))


def seeds(*patterns):
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))
            if path.is_file()]


METHODS = ("gpipe 1f1b zb-h1 zb-v flexible elastic slack greedy "
           "interleaved-1f1b interleaved-zbv look-ahead").split()
TINY = """\
longhaul: job/1
model: {MODEL}
training: {global_batch: 2, sequence: 16, precision: fp32, zero: 1, recompute: none}
cluster:
  gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}
  gpus_per_node: 2
  node_link: {gbps: 80, latency_us: 10}
  datacenters: [{name: here, nodes: 1}]
layout: {tensor: 1, context: 1, expert: 1, pipeline: 2, data: 1, micro_batch: 1, chunks_per_device: 1}
"""
MODEL = ("{layers: 2, hidden: 16, ffn: 16, heads: 2, kv_heads: 1, head_dim: 8, "
         "vocab: 256, gated: true, tied_embeddings: true}")
LARGE = """\
longhaul: job/1
model: llama3-8b
training: {global_batch: 8, sequence: 4096, zero: 1, recompute: full}
cluster:
  gpu: h100-sxm
  gpus_per_node: 4
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: west, nodes: 1}, {name: east, nodes: 1}]
  links: [{between: [west, east], latency_ms: 5, gbps: 400}]
layout: {tensor: 1, context: 1, expert: 1, pipeline: 4, data: 2, micro_batch: 1, chunks_per_device: 1}
"""
ROOMY = "gpu: {tflops: 100, memory_gib: 10000, memory_gbps: 1000}"
SCENARIO = """\
longhaul: optical/1
topology: {TOPOLOGY}
slots: 8
iterations: 2
seeds: [1]
job: {JOB}
policies: {ksp-ff: {ladder: true}, slack: {ask_late: true}}
"""
SMALL = ("{nodes: [{id: 1}, {id: 2}, {id: 3}], links: [{a: 1, b: 2, km: 100}, "
         "{a: 2, b: 3, km: 200}]}")
OF_PLANS = "{preset: 8b, stages: 2, datacenters: 2, schedule: 1f1b, microbatches: 3}"


def fill(text, **values):
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def make_fixtures(program, folder):
    """Makes the files that commands use beside the mutant, and the program's
    own outputs."""
    def put(name, text):
        (folder / name).write_text(text)

    def go(*words):
        subprocess.run([program, *words], cwd=folder, env=ENVIRONMENT,
                       check=True, stdout=subprocess.DEVNULL)

    put("tiny.yaml", fill(TINY, MODEL=MODEL))
    put("with-model.yaml", LARGE.replace("gpu: h100-sxm", ROOMY)
        .replace("model: llama3-8b", "model: ./m.json"))
    put("with-profile.yaml", LARGE + "profile: m.yaml\n")
    put("with-topology.yaml", fill(SCENARIO, TOPOLOGY="m.yaml", JOB=OF_PLANS))
    put("with-plan.yaml", fill(SCENARIO, TOPOLOGY=SMALL, JOB="{plan: m.json}"))
    put("with-pipeline.yaml", fill(
        SCENARIO, TOPOLOGY=SMALL,
        JOB="{pipeline: m.yaml, datacenters: 2, message_bits: 1000, "
            "schedule: 1f1b}"))
    for name in ("ud3x6_asym_links", "wave3x4_lat_mem6"):
        for end in (".json", ".csv"):
            shutil.copy(ROOT / "tests/data/optima" / (name + end), folder)
    shutil.copy(ROOT / "tests/data/optima/ud2x5_lat_mem2.json",
                folder / "few.json")
    # A tokenizer of the letters a to c, and files that need it.
    put("tokenizer.json", (CORPUS / "tokenizer/good").read_bytes().partition(
        b"\0")[0].decode())
    put("letters", "abc ab aaa cab " * 60)
    for size in (2, 4):
        (folder / f"tokens.u{8 * size}").write_bytes(
            b"".join((i % 251).to_bytes(size, "little") for i in range(600)))
    put("text", "It was the best of times, it was the worst of times.\n" * 40)
    go("plan", "tiny.yaml", "-o", "plan.json")
    go("simulate", "plan.json", "--trace", "trace.json")
    go("schedule", "few.json", "-m", "optimal", "-o", "few.csv",
       "--certificate", "certificate.json")
    # Link orders are beside the schedule if it has them.
    go("schedule", "ud3x6_asym_links.json", "-m", "optimal", "--effort",
       "20000", "-o", "ordered.csv")
    links = folder / "ordered.links.csv"
    if not links.exists():
        put("ordered.links.csv", "0>1,0F0,0F1,0F2,0F3,0F4,0F5\n")
    put("log.jsonl", '{"step": 0, "seconds": 1.5, "loss": 5}\n'
        '{"step": 1, "seconds": 1.25}\n')
    has_blas = subprocess.run(
        [program, "train", "plan.json", "--device", "cpu", "--data", "text",
         "-n", "2", "--checkpoint", "run"], cwd=folder, env=ENVIRONMENT,
        capture_output=True, text=True)
    if has_blas.returncode == 0:
        go("train", "plan.json", "--device", "cpu", "--data", "text", "-n", "3",
           "--resume", "run", "--checkpoint", "run")
        return True
    print(f"mutate: SKIPPED training: {has_blas.stderr.strip()}")
    return False


def all_kinds(fixtures, has_blas):
    methods = ",".join(METHODS)
    training = ("train plan.json --device cpu --data text -n 4 ")
    own = fixtures.joinpath
    kinds = [
        Kind("pipeline", "m.yaml", seeds(
            "examples/pipeline-*.yaml", "tests/fuzz/corpus/pipeline/*",
            "tests/data/optima/*.json", "tests/fuzz/corpus/run/*"), [
            command("schedule @ -m ?"),
            command("schedule @ -m auto --effort 2000"),
            command("schedule @ -m optimal --effort 2000 --threads 1 "
                    "--memory 16 -o s.csv! --certificate c.json!", "endless"),
            command("schedule @ -m optimal --pareto --points 3 --effort 500 "
                    "--memory 16 --html p.html!", "endless"),
            command("simulate @ -s ? --html s.html! --svg s.svg! "
                    "--trace t.json!"),
            command("simulate @ -s ? --jitter latency=0.5 --samples 20 "
                    "--json"),
            command(f"compare @ -m {methods} --html c.html!"),
            command("compare @ -m 1f1b,gpipe,zb-v --sweep latency=0:1:0.5"),
            command("check @ ordered.csv", "verdict"),
            command("explain @ -s ?"),
            command("export @ -s ? --form compute_comms -o e.csv!"),
            command("export @ -s greedy --to chrome"),
            command("optical with-pipeline.yaml -j 1"),
            command("train @ -s gpipe -n 1 --speed 1000 --message-bytes 64",
                    "endless", "differs")]),
        Kind("recording", "r.csv", seeds("tests/fuzz/corpus/recording/*"), [
            command("diagnose @ -j 1"),
            command("diagnose @ -j 1 --json")]),
        Kind("profiler", "rank0.json.gz", [
            ROOT / "tests/data/recordings/gloo/rank0.json.gz"], [
            command("diagnose @ -j 1 --json")]),
        Kind("schedule", "m.csv", seeds(
            "tests/fuzz/corpus/schedule/*", "tests/data/crashes/schedule/*",
            "tests/data/optima/*.csv", "tests/data/pytorch/*.csv") +
            [own("ordered.csv")] * 8 + [own("few.csv")] * 8, [
            command("check ud3x6_asym_links.json @", "verdict"),
            command("check few.json @ --json", "verdict"),
            command("check few.json @ --certificate certificate.json",
                    "verdict"),
            command("simulate ud3x6_asym_links.json -s @ --trace t.json!"),
            command("simulate few.json -s @ --fifo"),
            command("explain few.json -s @"),
            command("export few.json -s @ --form compute_comms"),
            command("schedule few.json -m optimal --start @ --effort 1000 "
                    "--threads 1"),
            command("train ud3x6_asym_links.json -s @ -n 1 --speed 1000",
                    "endless", "differs")]),
        Kind("links", "ordered.links.csv", [own("ordered.links.csv")], [
            command("check ud3x6_asym_links.json ordered.csv", "verdict"),
            command("simulate ud3x6_asym_links.json -s ordered.csv"),
            command("explain ud3x6_asym_links.json -s ordered.csv")]),
        Kind("certificate", "m.json", seeds("tests/fuzz/corpus/certificate/*") +
             [own("certificate.json")] * 6, [
            command("check few.json few.csv --certificate @", "verdict"),
            command("check few.json few.csv --certificate @ --json",
                    "verdict")]),
        Kind("job", "m.yaml", seeds("tests/fuzz/corpus/job/*",
                                    "examples/*.yaml") +
             [own("tiny.yaml")] * 12, [
            command("plan @ --no-optimal --search even -o p.json! "
                    "--html p.html!", "endless")]),
        Kind("tiny-job", "m.yaml", [own("tiny.yaml"), ROOT /
                                    "examples/tiny-llama-cpu.yaml"], [
            command("plan @ --no-optimal --search even --pareto --json",
                    "endless"),
            command("plan @ --effort 500 --search even -o p.json!", "endless"),
            command("compare @ -m 1f1b,gpipe", "endless"),
            *([command("profile @ --no-links --repeats 1", "endless",
                       "differs")] if has_blas else [])]),
        Kind("plan", "m.json", seeds("tests/fuzz/corpus/plan/*") +
             [own("plan.json")] * 6, [
            command("simulate @ --html s.html! --svg s.svg!"),
            command("simulate @ -s 1f1b --json"),
            command("simulate plan.json -s @"),
            command("check @", "verdict"),
            command("schedule @ -m 1f1b -o s.csv!"),
            command("export @ --stages st.json! -o e.csv!"),
            command("export @ --to torchtitan"),
            command("export @ --to megatron"),
            command("export @ --to chrome -o e.json!"),
            command("report @ -o r.html!"),
            command("explain @"),
            command("optical with-plan.yaml -j 1"),
            command("train @ -n 1 --speed 1000 --message-bytes 64",
                    "endless", "differs"),
            *([command("train @ --device cpu --data text -n 1", "endless",
                       "differs")] if has_blas else [])]),
        Kind("profile", "m.yaml", seeds("tests/fuzz/corpus/profile/*"), [
            command("plan with-profile.yaml --no-optimal --search even "
                    "-o p.json!", "endless")]),
        Kind("events", "m.yaml", seeds("tests/fuzz/corpus/events/*"), [
            command(f"simulate {ROOT}/examples/adaptra-8-stages.yaml -s 1f1b "
                    "--events @ --steps 99 --log l.jsonl!"),
            command("simulate few.json -s few.csv --events @ --steps 9 "
                    "--json")]),
        Kind("model", "m.json", seeds("tests/data/configs/*/config.json",
                                      "tests/fuzz/corpus/model/*"), [
            command("plan with-model.yaml --no-optimal --search even --json",
                    "endless")]),
        Kind("topology", "m.yaml", seeds("data/topologies/*.yaml",
                                         "tests/fuzz/corpus/topology/*"), [
            command("optical with-topology.yaml -j 1 --html o.html!",
                    "endless")]),
        Kind("scenario", "m.yaml", seeds("tests/fuzz/corpus/scenario/*",
                                         "tests/data/crashes/scenario/*",
                                         "examples/optical-*.yaml"), [
            command("optical @ -j 1 --seed 1 --json", "endless"),
            command("optical @ -j 1 --html o.html!", "endless")]),
        Kind("trace", "m.json", seeds("tests/fuzz/corpus/trace/*") +
             [own("trace.json")] * 3, [
            command("report @ -o r.html!"),
            command("report @ trace.json -o r.html!"),
            command("report --predicted trace.json --measured @ -o r.html!"),
            command("report --predicted @ --measured trace.json "
                    "--log log.jsonl -o r.html! --json")]),
        Kind("log", "m.jsonl", [own("log.jsonl")], [
            command("report --predicted trace.json --measured trace.json "
                    "--log @ -o r.html!")]),
    ]
    if has_blas:
        step = sorted(own("run").iterdir())[-1]
        for name in ("state.json", "model.safetensors",
                     "optimizer.safetensors", "config.json"):
            kinds.append(Kind("checkpoint", f"run/{step.name}/{name}",
                              [step / name], [
                command(training + "--resume run", "differs"),
                *([command(training + f"--weights run/{step.name}/{name}",
                           "differs")] if name[0] == "m" else [])]))
        kinds += [
            Kind("tokenizer", "m.json", [own("tokenizer.json")], [
                command("train plan.json --device cpu --data letters -n 1 "
                        "--tokenizer @", "differs")]),
            *(Kind("data", "m.bin", [own(name)], [
                command("train plan.json --device cpu -n 1 --data @ --format " +
                        form, "differs")])
              for form, name in (("text", "text"), ("u16", "tokens.u16"),
                                 ("u32", "tokens.u32")))]
    return kinds


class Mutant:
    """Mutant number `number`: its format, bytes and mutations."""

    def __init__(self, number, kinds):
        self.number = number
        self.rng = random.Random(number)
        names = sorted({kind.name for kind in kinds})
        name = names[number % len(names)]
        self.kind = self.rng.choice([k for k in kinds if k.name == name])
        self.seed = self.rng.choice(self.kind.seeds)
        data = self.seed.read_bytes()
        if self.rng.random() < .01:  # a valid file of another format
            other = self.rng.choice(self.rng.choice(kinds).seeds)
            self.data, self.said = other.read_bytes(), [f"is {other.name}"]
        else:
            self.data, self.said = mutate(self.rng, data)
        self.again = self.rng.randrange(len(self.kind.commands))
        self.method = self.rng.choice(METHODS)
        self.env = ENVIRONMENT if number % LEAKS_EVERY else LEAKS

    def words(self, given):
        """Returns the command's words."""
        for_it = {"@": self.kind.file, "?": self.method}
        return [for_it.get(word, word) for word in given.words]


def look(folder):
    """Returns all files of a folder, with values that change when they are
    written."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = pathlib.Path(where, name)
            stat = path.lstat()
            found[str(path.relative_to(folder))] = (
                stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return found


class Worker:
    """A folder with the files that mutants need, in which commands run."""

    def __init__(self, options, fixtures):
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=options.work))
        shutil.copytree(fixtures, self.folder, dirs_exist_ok=True)

    def run(self, words, how, env):
        """Returns status, standard output and error, and whether it was
        interrupted; status None: it did not end."""
        interrupted = False
        with subprocess.Popen([self.options.program, *words], cwd=self.folder,
                              env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              start_new_session=True) as process:
            try:
                if "endless" in how:
                    try:
                        out, err = process.communicate(timeout=ENOUGH)
                        return process.returncode, out, err, False
                    except subprocess.TimeoutExpired:
                        interrupted = True
                        process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=HANGS)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                return None, out, err, interrupted
        return process.returncode, out, err, interrupted

    def try_command(self, mutant, given, twice):
        """Runs one command on the mutant in the folder; returns its violations
        as sentences, and the outputs."""
        words = mutant.words(given)
        before = look(self.folder)
        seen = self.run(words, given.how, mutant.env)
        wrong = judge(given, seen)
        after = look(self.folder)
        new = set(after) - set(before)
        changed = [name for name in before if after.get(name) != before[name]]
        if changed:
            wrong.append(f"changed {', '.join(changed)}")
        succeeded = seen[0] == 0
        if not succeeded and new and not seen[3]:
            wrong.append(f"failed, and left {', '.join(sorted(new))}")
        allowed = {*given.outputs, *(name.replace(".csv", ".links.csv")
                                     for name in given.outputs)}
        if succeeded and not set(given.outputs) <= new <= allowed:
            wrong.append(f"wrote {', '.join(sorted(new)) or 'nothing'}")
        texts = {name: (self.folder / name).read_bytes() for name in new}
        self.remove(new)
        if twice and not wrong and not seen[3] and "differs" not in given.how:
            second = self.run(words, given.how, mutant.env)
            if second[3]:  # it was slow this time
                self.remove(set(look(self.folder)) - set(before))
                return wrong, seen
            more = set(look(self.folder)) - set(before)
            if second[:3] != seen[:3] or texts != {
                    name: (self.folder / name).read_bytes() for name in more}:
                wrong.append("a second run says or writes something else")
            self.remove(more)
        return wrong, seen

    def remove(self, names):
        for name in names:
            (self.folder / name).unlink()

    def try_mutant(self, mutant):
        """Runs all commands on one mutant; returns how many ran, accepted it,
        and failed."""
        path = self.folder / mutant.kind.file
        kept = path.read_bytes() if path.exists() else None
        path.write_bytes(mutant.data)
        n = taken = n_wrong = 0
        for i, given in enumerate(mutant.kind.commands):
            wrong, seen = self.try_command(mutant, given, i == mutant.again)
            n += 1
            taken += seen[0] == 0
            if wrong:
                n_wrong += 1
                self.keep(mutant, i, given, wrong, seen)
        if kept is None:
            path.unlink()
        else:
            path.write_bytes(kept)
        return n, taken, n_wrong

    def keep(self, mutant, i, given, wrong, seen):
        """Keeps the files that reproduce the result."""
        folder = self.options.findings / f"mutant-{mutant.number}-{i}"
        folder.mkdir(parents=True, exist_ok=True)
        name = pathlib.Path(mutant.kind.file).name
        (folder / name).write_bytes(mutant.data)
        line = shlex.join([self.options.program,
                           *mutant.words(given)])
        (folder / "command").write_text(
            f"# {'; '.join(wrong)}\n# status {seen[0]}\n"
            f"# from {mutant.seed.name}: {', '.join(mutant.said)}\n"
            f"# made and run again by: tests/fuzz/mutate.py --first "
            f"{mutant.number} --mutants 1\n{line}\n")
        (folder / "stdout").write_bytes(seen[1])
        (folder / "stderr").write_bytes(seen[2])
        print(f"mutate: {folder}: {'; '.join(wrong)}\n    {line}\n    "
              f"{seen[2][:300]!r}", flush=True)


def judge(given, seen):
    """Returns violations of a run: its exit status and its output."""
    status, out, err, interrupted = seen
    if status is None:
        return [f"hangs: not over after {HANGS} s"]
    wrong = []
    try:
        text, errors = out.decode(), err.decode()
    except UnicodeDecodeError as error:
        wrong.append(f"prints what is not UTF-8: {error}")
        text, errors = out.decode("latin1"), err.decode("latin1")
    if status < 0 and not (interrupted and status == -signal.SIGINT):
        wrong.append(f"ended by signal {-status}")
    elif status > 2:
        wrong.append(f"status {status}")
    if REPORT.search(errors):
        wrong.append("a sanitizer's report")
    for name, printed in (("output", text), ("error", errors)):
        found = CONTROL.search(printed)
        if found and not (name == "error" and interrupted):
            wrong.append(f"standard {name} has {found[0]!r}")
    if wrong or interrupted:
        return wrong
    lines = errors.removesuffix("\n").split("\n")
    messages = [line for line in lines if line.startswith("longhaul: ")]
    if status == 0 and messages:
        wrong.append("succeeds, with a message")
    if status != 0 and text:
        if "verdict" in given.how and not errors:
            return wrong
        wrong.append("fails, with output")
    if status == 1 and (len(messages) != 1 or len(lines) != 1):
        wrong.append(f"fails with {len(lines)} lines on standard error")
    if status == 2 and len(messages) != 1:
        wrong.append(f"fails with {len(messages)} messages")
    if status != 0 and any(len(line) > 2000 for line in lines):
        wrong.append("an endless message")
    return wrong


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--program", default="build/cli/longhaul")
    parser.add_argument("--mutants", type=int, default=10000,
                        help="how many there are at most")
    parser.add_argument("--seconds", type=float, default=0,
                        help="begin no mutant after so long; 0: no limit")
    parser.add_argument("--first", type=int, default=0,
                        help="number of the first one")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--findings", type=pathlib.Path,
                        default=pathlib.Path("findings"))
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    options.findings = options.findings.absolute()
    return options


def main():
    options = arguments()
    begin = time.monotonic()
    totals = collections.Counter()
    lock, local, ended = threading.Lock(), threading.local(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="longhaul-mutate-") as work:
        options.work = work
        fixtures = pathlib.Path(work, "fixtures")
        fixtures.mkdir()
        kinds = all_kinds(fixtures, make_fixtures(options.program, fixtures))

        def work_on(number):
            if ended.is_set() or options.seconds and (
                    time.monotonic() - begin > options.seconds):
                return
            if not hasattr(local, "worker"):
                local.worker = Worker(options, fixtures)
            mutant = Mutant(number, kinds)
            n, taken, wrong = local.worker.try_mutant(mutant)
            with lock:
                totals.update(mutants=1, runs=n, taken=taken, wrong=wrong)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            numbers = range(options.first, options.first + options.mutants)
            for done in pool.map(work_on, numbers):
                assert done is None
    seconds = time.monotonic() - begin
    print(f"mutants: {totals['mutants']} of them, {totals['runs']} runs, "
          f"{totals['taken']} of them took it, in {seconds:.0f} s, "
          f"{totals['wrong'] or 'no'} finding{'s' * (totals['wrong'] > 1)}")
    return 1 if totals["wrong"] or not totals["mutants"] else 0


if __name__ == "__main__":
    sys.exit(main())
