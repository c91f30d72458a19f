#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests in child processes of a Python that has imported their packages.

    share_imports.py PACKAGE[,PACKAGE...] {TEST.py [ARGUMENT...] :}...

One import of torch, Megatron-LM and torchtitan takes as long as many of these
tests. As many tests run at a time as there are processors, each for at most half
an hour. They differ from tests that are started alone: packages that torchtitan
only imports are stubs if they are missing (stand_ins.py), Hugging Face's hub is
offline, and PyTorch compiles no functions, unless $LONGHAUL_ALL_CASES is set.

Prints each test's processor time and output, the output of failing tests again,
and the sum of their checks. Packages that cannot be imported are left to the tests.
$LONGHAUL_TORCH names a Python that has them.
"""
import importlib
import os
import pathlib
import re
import signal
import sys
import tempfile
import types
import warnings

import stand_ins
from library_path import leave_built_library
from skip_without import SKIP, skip_without

LIMIT_S = 1800
leave_built_library()
try:
    import torch
except ImportError as error:
    skip_without("torch", error, "LONGHAUL_TORCH", "exports and the torch package")


def import_packages(names):
    """Imports the packages that are installed."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    if "LONGHAUL_ALL_CASES" not in os.environ:
        # Compilation takes longer than these tests.
        torch.compiler.set_stance("force_eager")
    stand_ins.put_in()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as error:  # the tests that need it report it
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
    """A test file that runs in a child process, which leads a process group."""

    def __init__(self, command):
        self.name = "/".join(pathlib.Path(command[0]).parts[-2:])
        self.output = tempfile.TemporaryFile()
        sys.stdout.flush()
        sys.stderr.flush()
        self.child = os.fork()
        if not self.child:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.alarm(LIMIT_S)  # no handler: ends the process
            for stream in (1, 2):
                os.dup2(self.output.fileno(), stream)
            run(command)
            sys.exit()

    def kill(self):
        """Kills the test and the ranks that it has started."""
        try:
            os.killpg(self.child, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def finish(self, status, seconds):
        """Prints the test's result; returns its checks (passed, failed, skipped)
        and, if it failed, its output."""
        if status == -signal.SIGALRM:
            self.kill()
        self.output.seek(0)
        text = self.output.read().decode(errors="replace")
        print(f"{seconds:6.1f} s {self.name}, exit status {status}\n{text}",
              flush=True)
        if status == SKIP:
            return (0, 0, 1), None
        found = re.findall(r"(\d+) passed, (\d+) failed", text)
        passed, failed = map(int, found[-1]) if found else (int(not status), 0)
        return ((passed, max(failed, int(status != 0)), 0),
                f"{self.name}, exit status {status}\n{text}" if status else None)


def main(packages, *arguments):
    import_packages(packages.split(","))
    waiting, running, total = split(arguments), {}, [0, 0, 0]
    failures = []

    def stop(number, _):
        for test in running.values():
            test.kill()
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while waiting or running:
        if waiting and len(running) < len(os.sched_getaffinity(0)):
            test = Test(waiting.pop(0))
            running[test.child] = test
            continue
        child, status, used = os.wait3(0)
        counts, failure = running.pop(child).finish(
            os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime)
        total = [a + b for a, b in zip(total, counts)]
        failures += [failure] if failure else []
    print(*failures, sep="\n", file=sys.stderr)
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0 if total[0] else SKIP


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
