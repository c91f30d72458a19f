#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files that the tests of a suite run, so that only these have to be built.

    suite-targets.py BUILD SUITE

Prints paths relative to the build folder, for ninja.
"""
import json
import os
import subprocess
import sys

build, suite = os.path.abspath(sys.argv[1]), sys.argv[2]
tests = json.loads(subprocess.check_output(
    ["meson", "introspect", "--tests", build]))
targets = {os.path.relpath(path, build)
           for test in tests
           if any(name.split(":")[-1] == suite for name in test["suite"])
           for path in test["cmd"]
           if os.path.abspath(path).startswith(build + os.sep)}
print(" ".join(sorted(targets)))
