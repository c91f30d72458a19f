#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Outputs of the commands on a page are real.

    test_interop_page.py PROGRAM ROOT [--write]

Indented blocks after a line "`NAME`:" are files. In other indented blocks each line
"$ COMMAND" is followed by its output, errors included; a line "..." stands for any
lines. With --write the page gets the outputs of commands that have none of "...".
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

from harness import ENVIRONMENT, PROGRAM, ROOT, WORK, check, finish
from operator_traces import one_f_one_b, operator_traces
from profiled import BASE_NS, event

PAGE = ROOT / "docs/interop.md"


def output_of(command):
    done = subprocess.run(["bash", "-c", command], cwd=WORK, text=True,
                          env=ENVIRONMENT | {"PATH": f"{WORK / 'bin'}:/usr/bin:/bin"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.stdout.rstrip("\n").split("\n") if done.stdout else []


def equal(shown, real):
    """Compares lines; "..." matches any."""
    parts = [r"(.*\n)*?" if line == "..." else re.escape(line) + "\n"
             for line in shown]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in real))


def blocks(text):
    """Returns the indented blocks, each with the line before it."""
    for found in re.finditer(r"^(.*)\n\n((?:    .*\n|\n(?=    ))+)", text, re.M):
        yield found[1], [line[4:] for line in found[2].splitlines()]


def commands(lines):
    """Yields each command with the lines below it."""
    out = []
    for line in lines:
        if line.startswith("$ "):
            out.append((line[2:], []))
        else:
            out[-1][1].append(line)
    return out


for folder in (ROOT / "tests/data/configs").iterdir():
    if folder.is_dir():
        shutil.copytree(folder, WORK / folder.name)
for file in "deepspeed/ds_config.json", "nemo/gpt.yaml":
    shutil.copy(ROOT / "tests/data" / file, WORK)
operator_traces(2, 4, one_f_one_b)
for rank in 0, 1:  # computes for 40 or 60 ms, then communicates
    compute = 40 + 20 * rank
    (WORK / f"trace{rank}.json").write_text(json.dumps({
        "baseTimeNanoseconds": BASE_NS,
        "distributedInfo": {"rank": rank, "world_size": 2},
        "traceEvents": [
            event("ProfilerStep#0", 100, 200),
            event("gemm", 100, 100 + compute, "kernel"),
            event("ncclDevKernel_AllReduce_Sum", 160, 180, "kernel")]}))
(WORK / "bin").mkdir()
(WORK / "bin/longhaul").symlink_to(pathlib.Path(PROGRAM).resolve())
page = PAGE.read_text()
n = 0
for before, lines in blocks(page):
    named = re.fullmatch(r"`(.*)`:", before)
    if named:
        (WORK / named[1]).write_text("\n".join(lines) + "\n")
        continue
    for command, shown in commands(lines):
        real = output_of(command)
        n += 1
        if "--write" in sys.argv and "..." not in shown:
            old = "".join(f"    {line}\n" for line in [f"$ {command}", *shown])
            new = "".join(f"    {line}".rstrip() + "\n"
                          for line in [f"$ {command}", *real])
            page = page.replace(old, new)
            continue
        check(equal(shown, real), f"{command}: {real}")
check(n > 20, f"{n} commands")
if "--write" in sys.argv:
    PAGE.write_text(page)
finish()
