#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one operator, number or statement of the source at a
time, and counts the mutants that some test notices.

    mutate-source.py BUILD [--sanitized BUILD] [--coverage BUILD]
                     [--count N] [--seed N] [--only FOLDER]
                     [--files PATTERN] [--seconds N] [--test-seconds N]

BUILD is a configured build folder of a clean checkout that nobody else uses:
the program edits the source in place and restores it. For each mutant it builds
and runs the test programs of the folder, one after the other, until one fails,
first those that detected the most mutants in the least time. A test ends at its
first failed check, or after --test-seconds of processor time; --seconds limits
the processor time of all tests of a mutant. With --sanitized, then those of a
build with sanitizers, which detect leaks and accesses beyond an array. With
--coverage, a build with -Db_coverage=true, it runs only tests that run the
changed line, or all tests if none does. It prints a line for each mutant (file,
line, change), and at the end the share of detected mutants per folder. Mutants
that do not compile, and mutants that change no object code, are not counted.
Same seed, same mutants. BUILD builds faster with -Dpage=disabled -Ddebug=false
-Dc_link_args=-fuse-ld=lld, also with -Db_coverage=true -Dwerror=false.
--count 0 only checks that the tests listed here exist.
"""
import argparse
import collections
import hashlib
import json
import math
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]

# The tests of each folder, fastest and most specific first.
TESTS = {
    "src/model": "cost cost_links cost_profile cost_memory cost_wide_groups "
                 "sharding expert_traffic layer_by_layer expert_groups zones "
                 "stage_nodes ops expert_dispatch kernel_sizes torchtitan_cost "
                 "kernels fp8 framework job job_model network transport "
                 "memory_limits recompute partition lower_bounds "
                 "layout_bounds numbers plan_memory validate "
                 "validate-published validate-gpu validate-scaleacross "
                 "plan_pipeline_check plan",
    "src/schedule/simulator": "simulator bounds trace offload describe "
                              "numbers agreement mirror makespan "
                              "timeline_rows jitter tolerance "
                              "schedule_methods shared_links",
    "src/schedule/methods": "schedule_methods schedule_look_ahead "
                            "schedule_rounds schedule_steady schedule_slack "
                            "schedule_memory generators methods "
                            "slices two_directions papers-crosspipe "
                            "papers-adaptra agreement",
    "src/schedule/solver": "solve solve_brute solve_engines solve_memory "
                           "tradeoff insert certificate bounds destroy_repair "
                           "papers-crosspipe-optimal solve_clauses "
                           "solve_threads",
    "src/schedule/verifier": "check verify_capacity certificate_work "
                             "certificate agreement cli-communication_cells "
                             "solve_brute optima",
    "src/planner": "plan plan_reasons plan_file_check plan_unexplored "
                   "plan_pareto plan_cost plan_elastic plan_network "
                   "plan_links plan_robust plan_partitions plan_idle "
                   "plan_unequal site_placements train_plan "
                   "plan_pipeline_check chunk_layers partition search_space "
                   "neighbourhood cost_cache sort whatif escape "
                   "tournament_tree best_schedule lower_bounds layout_bounds "
                   "exact plan_memory_limits elastic_bounds elastic_random "
                   "plan_monotonicity plan_fixed_dimensions plan_refine "
                   "papers-pipemesh papers-scaleacross",
    "src/runtime/engine": "engine engine_run process_grid engine_elastic "
                          "engine_migration engine_switch engine_events "
                          "engine_blocking_sends engine_delegated "
                          "engine_offload engine_memory engine_tensor "
                          "engine_context engine_experts engine_mtp "
                          "engine_zero engine_determinism engine_adapt "
                          "engine_votes engine_observation train_plan "
                          "cli-checkpoints",
}
SWAPS = [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "),
         (r" == ", " != "), (r" != ", " == "), (r" && ", " || "),
         (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "),
         (r" \+= ", " -= "), (r" -= ", " += ")]
STATEMENT = re.compile(r"^\s+(?!return|goto|break|continue|\w*free\b|fprintf)"
                       r"[\w>.\[\]()*-]+( [-+*/|&]?= [^;]*|\([^;]*\));$")

LIBRARY = "src/liblonghaul-all.a"  # which the tests are linked with
PROGRAM = re.compile(r"(cli|examples)/\w+$")  # as an argument of a test
# Printed by tests/unit/test.h.
FAILED = re.compile(rb"FAILED |\S*tests/\S+\.[ch]:\d+: ")
# Texts, and the sizes of allocations and limits, which tests need not notice.
SKIPPED = re.compile(r"""^\s*#|"|'|LHI_NEW|alloc|<<|sizeof""")


def code_lines(text):
    """Returns the indices of the lines inside functions, without comments."""
    plain = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text,
                   flags=re.S)
    inside, found = False, []
    for i, line in enumerate(plain.split("\n")):
        if line.startswith("{"):
            inside = True
        elif line.startswith("}"):
            inside = False
        elif inside and line.strip() and not SKIPPED.search(line):
            found.append((i, line))
    return found


def mutants(path):
    """Lists (line, old text, new text, description) of a file."""
    made = []
    for i, line in code_lines(path.read_text()):
        for pattern, new in SWAPS:
            for m in re.finditer(pattern, line):
                made.append((i, line, line[:m.start()] + new + line[m.end():],
                             f"{m[0].strip()} became {new.strip()}"))
        for m in re.finditer(r"(?<![\w.])(\d+)(?![\w.])", line):
            made.append((i, line, line[:m.start()] + str(int(m[1]) + 1)
                         + line[m.end():], f"{m[1]} became {int(m[1]) + 1}"))
        if STATEMENT.match(line) and " = " not in line[:line.find("(")]:
            made.append((i, line, re.match(r"\s*", line)[0] + ";",
                         f"dropped {line.strip()}"))
    return made


def run(*command):
    """Tests whether a command succeeds."""
    return subprocess.run(command, cwd=ROOT, capture_output=True,
                          check=False).returncode == 0


def used_seconds():
    """Returns the processor time of the children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_test(command, folder, env, seconds, cpu_seconds):
    """Tests whether a test passes, or skips, within the time. A test program
    ends at its first failed check."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    with subprocess.Popen(command, cwd=folder, env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, start_new_session=True,
                          preexec_fn=limit) as test:
        # Ends a test that hangs, also on a busy machine.
        end = threading.Timer(4 * seconds, os.killpg,
                              (test.pid, signal.SIGKILL))
        end.start()
        failed = True
        try:
            failed = any(FAILED.match(line) for line in test.stderr)
        finally:
            if failed:
                os.killpg(test.pid, signal.SIGKILL)
            status = test.wait()
            end.cancel()
    return not failed and status in (0, 77)


class Build:
    """A build folder and its tests."""

    def __init__(self, path):
        self.path = str(pathlib.Path(path).resolve())
        self.tests = {test["name"]: test for test in json.loads(
            subprocess.check_output(
                ["meson", "introspect", "--tests", self.path]))}

    def builds(self, names):
        return run("ninja", "-C", self.path, *sorted(
            {part.removeprefix(self.path + "/") for n in names
             for part in self.tests[n]["cmd"]
             if part.startswith(self.path + "/") or PROGRAM.match(part)}))

    def passes(self, name, cpu_seconds, env=None):
        """Builds one test and runs it."""
        test = self.tests[name]
        if not self.builds([name]):
            sys.exit(f"mutate-source.py: {name} does not build")
        return run_test(
            test["cmd"], test["workdir"] or self.path,
            {**os.environ, **test["env"], **(env or {})}, test["timeout"],
            cpu_seconds)


class Coverage:
    """The lines that each test runs, by gcov."""

    def __init__(self, path):
        self.build = Build(path)
        self.runs = collections.defaultdict(set)  # tests, by file and line

    def measure(self, name, folder):
        """Runs a test and adds its lines within a folder of the source."""
        with tempfile.TemporaryDirectory() as made:
            self.build.passes(name, 600, {"GCOV_PREFIX": made,
                                          "GCOV_ERROR_FILE": os.devnull})
            prefix = folder.removeprefix("src/").replace("/", "_") + "_"
            found = [p for p in pathlib.Path(made).rglob("*.gcda")
                     if p.name.startswith(prefix)]
            for path in found:  # gcov wants the notes beside the counts
                path.with_suffix(".gcno").symlink_to(
                    "/" / path.relative_to(made).with_suffix(".gcno"))
            printed = subprocess.run(
                ["gcov", "--stdout", "--json-format", *map(str, found)],
                cwd=self.build.path, capture_output=True, check=False).stdout
        for text in filter(None, printed.splitlines()):
            for file in json.loads(text)["files"]:
                path = (pathlib.Path(self.build.path) / file["file"]).resolve()
                for line in file["lines"]:
                    if line["count"]:
                        self.runs[path, line["line_number"]].add(name)

    def choose(self, tests, path, line):
        """Returns the tests that run a line, or all tests."""
        found = self.runs[path.resolve(), line]
        return [test for test in tests if test in found] or tests


class Folder:
    """A mutated folder: its files, and the tests that may notice."""

    def __init__(self, builds, coverage, name, given):
        self.name, self.builds, self.coverage = name, builds, coverage
        self.given = given
        self.tests = TESTS[name].split()
        for build in builds:
            unknown = set(self.tests) - set(build.tests)
            if unknown:
                sys.exit("mutate-source.py: no test "
                         + ", ".join(sorted(unknown)))
        self.noticed, self.survivors = 0, []
        self.hashes = {}  # of the unchanged object files
        # Per test: the processor time of its last run, the mutants detected.
        self.seconds = dict.fromkeys(self.tests, math.inf)
        self.detected = collections.Counter()

    def order(self, tests):
        """Sorts tests by processor time per detected mutant, unknown last."""
        return sorted(tests, key=lambda test: self.seconds[test]
                      / (self.detected[test] + 1))

    def kills(self, path, line):
        """Returns the test that fails, None if all pass, or "" if the time for
        tests ended."""
        tests = self.coverage.choose(self.tests, path, line) \
            if self.coverage else self.tests
        first = used_seconds()
        for build in self.builds:
            for test in self.order(tests):
                begin = used_seconds()
                if begin - first > self.given.seconds:
                    return ""
                passed = build.passes(test, self.given.test_seconds)
                self.seconds[test] = used_seconds() - begin
                if not passed:
                    self.detected[test] += 1
                    return test
        return None

    def draw(self, seed):
        """Lists all mutants (file, line, old text, new text, description) in a
        random order."""
        made = [(path, *mutant) for path in sorted(ROOT.glob(
                    f"{self.name}/{self.given.files}"))
                for mutant in mutants(path)]
        random.Random(f"{seed} {self.name}").shuffle(made)
        return made

    def try_mutant(self, path, at, old, new, change):
        """Builds and tests one mutant; false if it is not a mutant."""
        text = path.read_text()
        lines = text.split("\n")
        if lines[at] != old:  # a comment on the line
            return False
        lines[at] = new
        first = self.builds[0].path
        before = self.hashes.setdefault(path, object_hash(first, path))
        where = f"{path.relative_to(ROOT)}:{at + 1}: {change}"
        try:
            path.write_text("\n".join(lines))
            if not run("ninja", "-C", first, LIBRARY):
                return False
            if object_hash(first, path) == before:
                return False
            killer = self.kills(path, at + 1)
        finally:
            path.write_text(text)
        if killer:
            self.noticed += 1
            print(f"detected: {where}: {killer}", flush=True)
        else:
            self.survivors.append(where)
            late = " (within the time)" if killer == "" else ""
            print(f"undetected{late}: {where}", flush=True)
        return True


def object_hash(build, path):
    """Hashes the object file that the library has of a source file."""
    name = str(path.relative_to(ROOT / "src")).replace("/", "_") + ".o"
    return hashlib.sha256((pathlib.Path(build) / (LIBRARY + ".p") / name)
                          .read_bytes()).digest()


def stop(*_):
    """Ends the program, once: a second signal must not stop the restoring of
    the source. timeout(1) sends two."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build")
    parser.add_argument("--sanitized", metavar="BUILD")
    parser.add_argument("--coverage", metavar="BUILD")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(TESTS))
    parser.add_argument("--files", default="**/*.c", metavar="PATTERN")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--test-seconds", type=int, default=600)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    names = [given.only] if given.only else sorted(TESTS)
    builds = [Build(p) for p in (given.build, given.sanitized) if p]
    coverage = Coverage(given.coverage) if given.coverage else None
    folders = [Folder(builds, coverage, name, given) for name in names]
    if given.count == 0:
        return  # all tests exist
    if not all(run("ninja", "-C", b.path, LIBRARY) for b in builds):
        sys.exit("mutate-source.py: the source does not build")
    total = noticed = 0
    for folder in folders:
        for test in folder.tests if coverage else []:
            coverage.measure(test, folder.name)
        tried = 0
        for mutant in folder.draw(given.seed):
            if tried < -(-given.count // len(folders)):
                tried += folder.try_mutant(*mutant)
        n = folder.noticed + len(folder.survivors)
        total, noticed = total + n, noticed + folder.noticed
        print(f"{folder.name}: {folder.noticed} of {n} mutants detected",
              flush=True)
    print(f"total: {noticed} of {total} detected, "
          f"{100 * noticed / max(total, 1):.1f} %")


main()
