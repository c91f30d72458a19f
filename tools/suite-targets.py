#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the files that the tests of suites run, so that only these are built.

    suite-targets.py BUILD SUITE...

Prints paths relative to the build folder, for ninja.
"""
import json
import os
import subprocess
import sys

build, suites = os.path.abspath(sys.argv[1]), set(sys.argv[2:])
tests = json.loads(subprocess.check_output(
    ["meson", "introspect", "--tests", build]))
made = {path for target in json.loads(subprocess.check_output(
            ["meson", "introspect", "--targets", build]))
        for path in target["filename"]}
targets = {os.path.relpath(path, build)
           for test in tests
           if suites & {name.split(":")[-1] for name in test["suite"]}
           for path in (os.path.join(build, part) for part in test["cmd"])
           if path.startswith(build + os.sep) and path in made}
print(" ".join(sorted(targets)))
