#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the test results of a build.

    count-tests.py TESTLOG.json...
    count-tests.py --slowest N TESTLOG.json...

Programs whose output ends with "N passed, N failed", or also "N skipped", count as
that many checks, others as one. Prints the end of the output of failing and
skipped programs, then one line of numbers: "PASSED FAILED SKIPPED". With --slowest
it prints the N slowest tests instead, with their seconds of real time.
"""
import json
import os
import re
import sys


def count(test):
    """Returns (passed, failed, skipped) for one entry of meson's log."""
    if test["result"] == "SKIP":
        return 0, 0, 1
    fine = test["result"] in ("OK", "EXPECTEDFAIL")
    found = re.findall(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?",
                       test.get("stdout") or "")
    passed, failed, skipped = [
        int(n or 0) for n in found[-1]] if found else (int(fine), 0, 0)
    # A crashed program prints no counts.
    return passed, failed if fine or failed else failed + 1, skipped


def show(test):
    print(f"--- {test['name']}: {test['result']}", file=sys.stderr)
    for stream in ("stdout", "stderr"):
        for line in (test.get(stream) or "").splitlines()[-25:]:
            print("   ", line, file=sys.stderr)


def show_slowest(n, paths):
    rows = []
    for path in paths:
        build = os.path.basename(path).rsplit("-", 1)[0]
        with open(path, encoding="utf-8") as log:
            for line in log:
                test = json.loads(line)
                rows.append((test["duration"], build, test["name"]))
    for seconds, build, name in sorted(rows, reverse=True)[:n]:
        print(f"{seconds:7.1f} s  {build}  {name}")


if sys.argv[1:2] == ["--slowest"]:
    show_slowest(int(sys.argv[2]), sys.argv[3:])
    sys.exit()
total = [0, 0, 0]
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            numbers = count(test)
            total = [a + b for a, b in zip(total, numbers)]
            if numbers[1] or numbers[2]:
                show(test)
print(*total)
