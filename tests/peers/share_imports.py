#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests in child processes of a Python that has imported their packages.

    share_imports.py PACKAGE[,PACKAGE...] {TEST.py [ARGUMENT...] :}...

One import of torch, Megatron-LM and torchtitan takes as long as many of these
tests. A test runs as if it was started alone, and as many run at a time as there are
processors. Prints each test's processor time, the output of those that fail or are skipped,
and the sum of their checks. Packages that are missing are left to the tests.
$LONGHAUL_TORCH names a Python that has them.
"""
import importlib
import os
import pathlib
import re
import sys
import tempfile
import types
import warnings

import stand_ins
from skip_without import SKIP, skip_without

# The tests start longhaul by its path, and import the package's own library.
if os.environ.pop("LD_LIBRARY_PATH", None):
    os.execv(sys.executable, [sys.executable, *sys.argv])
try:
    import torch
except ImportError as error:
    skip_without("torch", error, "LONGHAUL_TORCH", "exports and the torch package")


def import_packages(names):
    """Imports the packages that are installed."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    # The compiler takes longer than what these tests compute.
    torch.compiler.set_stance("force_eager")
    stand_ins.put_in()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError as error:
                print(f"{name}: {error}", file=sys.stderr)


def run(command):
    """Executes a test file as the main module of this process."""
    sys.argv = command
    sys.path[0] = str(pathlib.Path(command[0]).parent)
    main = types.ModuleType("__main__")
    main.__file__ = command[0]
    sys.modules["__main__"] = main
    with open(command[0], encoding="utf-8") as source:
        exec(compile(source.read(), command[0], "exec"), main.__dict__)


def split(arguments):
    """Returns the commands that end with colons."""
    commands = [[]]
    for one in arguments:
        if one == ":":
            commands.append([])
        else:
            commands[-1].append(one)
    return commands[:-1]


class Test:
    """A test file that runs in a child process."""

    def __init__(self, command):
        self.failure = ""
        self.name = "/".join(pathlib.Path(command[0]).parts[-2:])
        self.streams = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        sys.stdout.flush()
        sys.stderr.flush()
        self.child = os.fork()
        if not self.child:
            for number, stream in enumerate(self.streams, 1):
                os.dup2(stream.fileno(), number)
            run(command)
            sys.exit()

    def finish(self, status, seconds):
        """Prints the test's result; returns its checks: passed, failed, skipped."""
        print(f"{seconds:6.1f} s {self.name}, exit status {status}", flush=True)
        texts = []
        for stream in self.streams:
            stream.seek(0)
            texts.append(stream.read())
        if status == SKIP:
            print(texts[1], file=sys.stderr)
            return 0, 0, 1
        if status:
            self.failure = "\n".join([self.name, *texts])
        found = re.findall(r"(\d+) passed, (\d+) failed", texts[0])
        passed, failed = map(int, found[-1]) if found else (int(not status), 0)
        return passed, max(failed, int(status != 0)), 0


def main(packages, *arguments):
    import_packages(packages.split(","))
    waiting, running, total = split(arguments), {}, [0, 0, 0]
    failures = []
    while waiting or running:
        if waiting and len(running) < len(os.sched_getaffinity(0)):
            test = Test(waiting.pop(0))
            running[test.child] = test
            continue
        child, status, used = os.wait3(0)
        test = running.pop(child)
        counts = test.finish(os.waitstatus_to_exitcode(status),
                             used.ru_utime + used.ru_stime)
        total = [a + b for a, b in zip(total, counts)]
        failures.append(test.failure)
    print(*filter(None, failures), sep="\n", file=sys.stderr)  # at the end
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0 if total[0] else SKIP


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
