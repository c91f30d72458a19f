#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one operator, number or statement of the source at a
time, and counts the mutants that some test notices.

    mutate-source.py BUILD [--sanitized BUILD] [--coverage BUILD]
                     [--count N] [--seed N] [--only FOLDER]

BUILD is a configured build folder of a clean checkout that nobody else uses:
the program edits the source in place and restores it. For each mutant it builds
and runs the test programs of the folder, one after the other, until one fails;
with --sanitized, then those of a build with sanitizers, which detect leaks and
accesses beyond an array. With --coverage, a build with -Db_coverage=true, it
runs only tests that run the changed line, fastest first, or all tests if none
does. It prints a line for each undetected mutant (file, line, change), and at
the end the share of detected mutants per folder. Mutants that do not compile,
and mutants that change no object code, are drawn again. Same seed, same mutants.
--count 0 only checks that the tests listed here exist.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

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
                             "certificate agreement solve_brute optima",
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


def run(*command, cwd=ROOT, env=None, seconds=600):
    """Tests whether a command succeeds, or skips, within the time."""
    try:
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True,
                              check=False, timeout=seconds).returncode in (0, 77)
    except subprocess.TimeoutExpired:
        return False


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
             if part.startswith(self.path + "/")}))

    def passes(self, name, env=None):
        """Builds one test and runs it."""
        test = self.tests[name]
        return self.builds([name]) and run(
            *test["cmd"], cwd=test["workdir"] or self.path,
            env={**os.environ, **test["env"], **(env or {})},
            seconds=test["timeout"])


class Coverage:
    """The lines that each test runs, by gcov, and the test's duration."""

    def __init__(self, path):
        self.build, self.seconds = Build(path), {}
        self.runs = collections.defaultdict(set)  # tests, by file and line

    def measure(self, name, folder):
        """Runs a test and adds its lines within a folder of the source."""
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as made:
            self.build.passes(name, {"GCOV_PREFIX": made,
                                     "GCOV_ERROR_FILE": os.devnull})
            self.seconds[name] = time.monotonic() - begin
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
        """Returns the tests that run a line, fastest first, or all tests."""
        return sorted(self.runs[path.resolve(), line],
                      key=self.seconds.get) or tests


class Folder:
    """A mutated folder: its files, and the tests that may notice."""

    def __init__(self, builds, coverage, name):
        self.name, self.builds, self.coverage = name, builds, coverage
        self.files = sorted((ROOT / name).rglob("*.c"))
        self.tests = TESTS[name].split()
        for build in builds:
            unknown = set(self.tests) - set(build.tests)
            if unknown:
                sys.exit("mutate-source.py: no test "
                         + ", ".join(sorted(unknown)))
        self.noticed, self.survivors = 0, []

    def kills(self, path, line):
        """Tests whether some test fails, or some build."""
        tests = self.coverage.choose(self.tests, path, line) \
            if self.coverage else list(self.tests)
        for build in self.builds:
            for test in tests:
                if not build.passes(test):
                    self.tests.remove(test)  # likely to notice the next, too
                    self.tests.insert(0, test)
                    return True
        return False

    def try_mutant(self, drawn):
        """Builds and tests one mutant; false if it is not a mutant."""
        path = drawn.choice(self.files)
        made = mutants(path)
        if not made:
            return False
        at, old, new, change = drawn.choice(made)
        text = path.read_text()
        lines = text.split("\n")
        if lines[at] != old:  # a comment on the line
            return False
        lines[at] = new
        first = self.builds[0].path
        before = library_hash(first)
        try:
            path.write_text("\n".join(lines))
            if not run("ninja", "-C", first, LIBRARY):
                return False
            if library_hash(first) == before:
                return False
            if self.kills(path, at + 1):
                self.noticed += 1
                return True
        finally:
            path.write_text(text)
        where = f"{path.relative_to(ROOT)}:{at + 1}: {change}"
        self.survivors.append(where)
        print(f"undetected: {where}", flush=True)
        return True


def library_hash(build):
    """Hashes the static library that the tests are linked with."""
    found = sorted(pathlib.Path(build).glob("src/*.p/*.o"))
    total = hashlib.sha256()
    for path in found:
        total.update(path.read_bytes())
    return total.hexdigest()


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
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    names = [given.only] if given.only else sorted(TESTS)
    builds = [Build(p) for p in (given.build, given.sanitized) if p]
    coverage = Coverage(given.coverage) if given.coverage else None
    folders = [Folder(builds, coverage, name) for name in names]
    if given.count == 0:
        return  # all tests exist
    if not all(b.builds(f.tests) for b in builds for f in folders):
        sys.exit("mutate-source.py: the source does not build")
    total = noticed = 0
    for folder in folders:
        for test in folder.tests if coverage else []:
            coverage.measure(test, folder.name)
        drawn = random.Random(f"{given.seed} {folder.name}")
        tried = 0
        while tried < -(-given.count // len(folders)):
            tried += folder.try_mutant(drawn)
        for build in builds:
            build.builds(folder.tests)
        n = folder.noticed + len(folder.survivors)
        total, noticed = total + n, noticed + folder.noticed
        print(f"{folder.name}: {folder.noticed} of {n} mutants detected",
              flush=True)
    print(f"total: {noticed} of {total} detected, "
          f"{100 * noticed / max(total, 1):.1f} %")


main()
