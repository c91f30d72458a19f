#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the files that the tests of suites run, so that only these are built.

    suite-targets.py BUILD SUITE... [--without SUITE...]

Prints paths relative to the build folder, for ninja. Tests that are also in a
suite after --without do not count.
"""
import json
import os
import subprocess
import sys

build, suites, excluded = os.path.abspath(sys.argv[1]), sys.argv[2:], []
if "--without" in suites:
    i = suites.index("--without")
    suites, excluded = suites[:i], suites[i + 1:]
tests = json.loads(subprocess.check_output(
    ["meson", "introspect", "--tests", build]))
made = {path for target in json.loads(subprocess.check_output(
            ["meson", "introspect", "--targets", build]))
        for path in target["filename"]}
targets = {os.path.relpath(path, build)
           for test in tests
           for names in [{name.split(":")[-1] for name in test["suite"]}]
           if names & set(suites) and not names & set(excluded)
           for path in (os.path.join(build, part) for part in test["cmd"])
           if path.startswith(build + os.sep) and path in made}
print(" ".join(sorted(targets)))
