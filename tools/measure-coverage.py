#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures by gcov which lines of the library and program the tests run.

    measure-coverage.py [--read] [ARGUMENTS OF meson test...]

Builds build-coverage with gcc, runs the tests there (all suites but slow,
searches, house and peers, unless arguments say otherwise; 15 minutes on two
processors), and writes build-coverage/coverage.txt: the covered lines of each
folder, then each line that no test ran. --read only writes the page anew.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build-coverage"
SUITES = "--no-suite slow --no-suite searches --no-suite house --no-suite peers"


def read(path):
    """Returns (file, line, times run) of the lines in an object file."""
    printed = subprocess.run(["gcov", "--stdout", "--json-format", path],
                             cwd=BUILD, capture_output=True, check=False).stdout
    return [((BUILD / file["file"]).resolve(), line["line_number"],
             line["count"]) for text in printed.splitlines() if text.strip()
            for file in json.loads(text)["files"] for line in file["lines"]]


def write_page(page):
    """Adds the counts of all objects and writes the page."""
    objects = sorted(map(str, BUILD.rglob("*.gcno")))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = collections.Counter()
        for lines in pool.map(read, objects):
            for file, number, times in lines:
                if file.is_relative_to(ROOT / "src") or file.is_relative_to(
                        ROOT / "cli"):
                    counts[str(file.relative_to(ROOT)), number] += times
    folders = collections.defaultdict(lambda: [0, 0])
    for (file, _), times in counts.items():
        for folder in (file.rsplit("/", 1)[0], "total"):
            folders[folder][0] += times > 0
            folders[folder][1] += 1
    table = "".join(f"{folder:32} {run:6} of {lines:6} lines"
                    f" {100 * run / lines:6.1f} %\n"
                    for folder, (run, lines) in sorted(folders.items()))
    texts = {file: (ROOT / file).read_text().split("\n")
             for file in {file for file, _ in counts}}
    page.write_text(table + "\nLines that no test ran:\n" + "".join(
        f"{file}:{number}: {texts[file][number - 1].strip()}\n"
        for (file, number), times in sorted(counts.items()) if not times))
    print(table + f"{page} has each line that no test ran")


def main():
    given = sys.argv[1:]
    if given in (["--help"], ["-h"]):
        print(__doc__)
        return
    if given != ["--read"]:
        # The compiler cache's objects may name another folder's gcov files.
        os.environ.update(CC="gcc", CCACHE_DISABLE="1")
        if not (BUILD / "build.ninja").exists():
            subprocess.run(["meson", "setup", BUILD, "-Db_coverage=true",
                            "-Dwerror=false", "-Dplayground=disabled"],
                           cwd=ROOT, check=True)
        subprocess.run(["ninja", "-C", BUILD], check=True)
        for path in BUILD.rglob("*.gcda"):
            path.unlink()
        # gcov's own messages would appear in the tests' stderr.
        subprocess.run(["meson", "test", "-C", BUILD, "--no-rebuild", "--quiet",
                        "--timeout-multiplier", "10",
                        *(given or SUITES.split())], check=False,
                       env={**os.environ, "GCOV_ERROR_FILE": os.devnull})
    write_page(BUILD / "coverage.txt")


main()
