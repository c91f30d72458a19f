#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the files that the tests of suites run, so that only these are built.

    suite-targets.py BUILD SUITE... [--without SUITE...]
    suite-targets.py BUILD --without SUITE...

Prints paths relative to the build folder, for ninja. Tests that are also in a
suite after --without do not count. Without a SUITE before it: everything that is
built by default, without the programs that only tests of these suites run.
"""
import json
import os
import subprocess
import sys

build, suites, excluded = os.path.abspath(sys.argv[1]), sys.argv[2:], []
if "--without" in suites:
    i = suites.index("--without")
    suites, excluded = suites[:i], suites[i + 1:]
tests, targets = (json.loads(subprocess.check_output(
    ["meson", "introspect", what, build])) for what in ("--tests", "--targets"))
made = {path: target for target in targets for path in target["filename"]}


def list_files(test):
    """Returns the built files that a test runs or depends on."""
    return {path for part in test["cmd"] for path in [os.path.join(build, part)]
            if path.startswith(build + os.sep) and path in made} | {
        path for path, target in made.items()
        if target["id"] in test.get("depends", [])}


wanted, unwanted = set(), set()
for test in tests:
    names = {name.split(":")[-1] for name in test["suite"]}
    if names & set(excluded):
        unwanted |= list_files(test)
    elif not suites or names & set(suites):
        wanted |= list_files(test)
if not suites:
    wanted |= {path for path, target in made.items()
               if target["build_by_default"]} - unwanted
print(" ".join(sorted(os.path.relpath(path, build) for path in wanted)))
