#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one operator, number or statement of the source at a
time, and counts the mutants that some test notices.

    mutate-source.py BUILD [--count N] [--seed N] [--only FOLDER]

BUILD is a configured build folder of a clean checkout that nobody else uses:
the program edits the source in place and restores it. For each mutant it builds
and runs the test programs of the folder, one after the other, until one fails. It prints a line
for each survivor (file, line, change), and at the end the share of noticed
mutants per folder. Mutants that do not compile, and mutants that change no
object code, are drawn again. Same seed, same mutants. --count 0 only checks that
the tests listed here exist.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# The tests of each folder, fastest and most specific first.
TESTS = {
    "src/model": "cost cost_links cost_profile cost_memory cost_wide_groups "
                 "sharding expert_traffic layer_by_layer expert_groups zones "
                 "torchtitan_cost kernels fp8 framework job job_model network transport "
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
    "src/schedule/verifier": "check certificate agreement solve_brute optima",
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


class Folder:
    """A mutated folder: its files, and the tests that may notice."""

    def __init__(self, build, name):
        self.name = name
        self.files = sorted((ROOT / name).rglob("*.c"))
        known = {test["name"]: test for test in json.loads(
            subprocess.check_output(["meson", "introspect", "--tests", build]))}
        self.tests = TESTS[name].split()
        unknown = set(self.tests) - set(known)
        if unknown:
            sys.exit(f"mutate-source.py: no test {', '.join(sorted(unknown))}")
        top = str(pathlib.Path(build).resolve()) + "/"
        self.known = {n: known[n] for n in self.tests}
        self.targets = {n: [part.removeprefix(top) for part in
                            known[n]["cmd"] if part.startswith(top)]
                        for n in self.tests}
        self.noticed, self.survivors = 0, []

    def builds(self, build, tests):
        return run("ninja", "-C", build, *sorted(
            {target for n in tests for target in self.targets[n]}))

    def kills(self, build, name):
        """Builds one test and runs it."""
        test = self.known[name]
        return not (self.builds(build, [name]) and run(
            *test["cmd"], cwd=test["workdir"] or build,
            env={**os.environ, **test["env"]}, seconds=test["timeout"]))

    def try_mutant(self, build, drawn):
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
        before = library_hash(build)
        try:
            path.write_text("\n".join(lines))
            if not run("ninja", "-C", build, LIBRARY):
                return False
            if library_hash(build) == before:
                return False
            for test in self.tests:
                if self.kills(build, test):
                    self.tests.remove(test)  # likely to notice the next, too
                    self.tests.insert(0, test)
                    self.noticed += 1
                    return True
        finally:
            path.write_text(text)
        where = f"{path.relative_to(ROOT)}:{at + 1}: {change}"
        self.survivors.append(where)
        print(f"survived: {where}", flush=True)
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
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(TESTS))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    names = [given.only] if given.only else sorted(TESTS)
    folders = [Folder(given.build, name) for name in names]
    if given.count == 0:
        return  # all tests exist
    if not all(f.builds(given.build, f.tests) for f in folders):
        sys.exit("mutate-source.py: the source does not build")
    for folder in folders:
        drawn = random.Random(f"{given.seed} {folder.name}")
        tried = 0
        while tried < -(-given.count // len(folders)):
            tried += folder.try_mutant(given.build, drawn)
        folder.builds(given.build, folder.tests)
    total = noticed = 0
    for folder in folders:
        n = folder.noticed + len(folder.survivors)
        total, noticed = total + n, noticed + folder.noticed
        print(f"{folder.name}: {folder.noticed} of {n} mutants noticed")
    print(f"total: {noticed} of {total} noticed, "
          f"{100 * noticed / max(total, 1):.1f} %")


main()
