# SPDX-License-Identifier: Apache-2.0
"""Shared code of the program's tests.

Each test file runs as `test_X.py PROGRAM SOURCE_ROOT` and calls finish() at its
end, which prints "N passed, N failed" and exits. A case is one run of the
program: its arguments, the expected exit status, and patterns for standard output
and standard error; without a pattern the output must be empty.

The name of a test function, marked with @test, states the expected behaviour. Each
test starts in an empty folder. One test can be run alone, with the program of some
build folder:

    test_X.py NAME...
    test_X.py PROGRAM SOURCE_ROOT NAME...

Functions marked with @makes make input files that several tests share.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback

if len(sys.argv) > 2 and os.path.isdir(sys.argv[2]):
    PROGRAM = os.path.abspath(sys.argv[1])
    ROOT = pathlib.Path(os.path.abspath(sys.argv[2]))
    NAMES = sys.argv[3:]
else:
    ROOT = pathlib.Path(__file__).resolve().parents[2]
    built = sorted(ROOT.glob("build*/cli/longhaul"),
                   key=lambda path: path.stat().st_mtime)
    if not built:
        sys.exit("there is no build*/cli/longhaul; give PROGRAM SOURCE_ROOT")
    PROGRAM, NAMES = str(built[-1]), sys.argv[1:]
# The same program in virtual time (tests/virtual): a run's measured times, and the
# decisions that depend on them, are the same on any machine. Ranks are threads.
VIRTUAL = str(pathlib.Path(PROGRAM).parents[1] / "tests/virtual/longhaul-virtual")
ANY = ""  # a pattern that matches everything
_folder = tempfile.TemporaryDirectory(prefix="longhaul-cli-")
WORK = pathlib.Path(_folder.name)
_count = {"passed": 0, "failed": 0}
_tests = []
_running = ""

# Seconds after which a program counts as hanging. Promptness is tested by
# events, their order, and processor time, since other programs may load the
# machine.
HANGS = 900

# Restores the signal handling of a terminal: nohup ignores the one, shells in
# the background the other, and children inherit ignored signals.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
ENVIRONMENT.pop("NO_COLOR", None)
# Open MPI and UCX free memory only at process exit; other transports reveal
# our own leaks.
UNDER_MPI = {**ENVIRONMENT, "ASAN_OPTIONS": ":".join(
    [*filter(None, [ENVIRONMENT.get("ASAN_OPTIONS")]), "detect_leaks=0"])}


def check(ok, what):
    """Counts a check and prints its failure."""
    _count["passed" if ok else "failed"] += 1
    if not ok:
        print("FAILED:", _running and f"{_running}:", what, file=sys.stderr)
    return ok


def test(function):
    """Marks a test for finish()."""
    _tests.append(function)
    return function


def long_test(function):
    """Marks a test that is too long for runs with few cases, unless named."""
    if has_few_cases() and function.__name__ not in NAMES:
        return function
    return test(function)


def makes(*names):
    """Marks a function that makes these files in the working folder. The files
    are cached, so that it runs once."""
    def mark(function):
        kept = {}

        @functools.wraps(function)
        def make():
            if not kept:
                function()
                kept.update({name: (WORK / name).read_bytes()
                             for name in names})
            for name, text in kept.items():
                (WORK / name).write_bytes(text)
        return make
    return mark


def write(name, text):
    """Writes a file in the working folder; returns its name."""
    (WORK / name).write_text(textwrap.dedent(text).lstrip("\n"))
    return name


def read(name):
    return (WORK / name).read_text()


@functools.cache
def effort():
    """Returns the default search budget of test plans: a twentieth of the
    program's default, or a fifth of that in runs with few cases."""
    return ["--effort", "4000" if has_few_cases() else "20000"]


def with_effort(args):
    args = [*map(str, args)]
    given = {"--effort", "--time", "--help", "--draws"} & set(args)
    if args[:1] != ["plan"] or given:
        return args
    return args[:1] + effort() + args[1:]


def run(*args, stdin="", env=None, program=None, **more):
    return subprocess.run([program or PROGRAM, *with_effort(args)], input=stdin, text=True,
                          capture_output=True, cwd=WORK, check=False,
                          env={**ENVIRONMENT, **(env or {})}, timeout=HANGS,
                          **more)


def until(condition, process):
    """Waits until the condition holds; false if the program ends before. Raises
    TimeoutExpired after HANGS seconds."""
    end = time.monotonic() + HANGS
    while not condition():
        if process.poll() is not None:
            return condition()
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, HANGS)
        time.sleep(0.02)
    return True


def read_line(pipe, process):
    """Returns the next line from a pipe of the program, and leaves the rest for
    communicate(). Raises TimeoutExpired after HANGS seconds."""
    end = time.monotonic() + HANGS
    line = b""
    while not line.endswith(b"\n"):
        left = max(0, end - time.monotonic())
        if not select.select([pipe], [], [], left)[0]:
            raise subprocess.TimeoutExpired(process.args, HANGS, line)
        byte = os.read(pipe.fileno(), 1)
        if not byte:
            break
        line += byte
    return line.decode()


def write_fifo(path, text, process):
    """Writes a short text to a named pipe once it is read; false if the program
    ends before."""
    def writes():
        try:
            fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it
            return False
        with open(fifo, "w", encoding="utf-8") as file:
            file.write(text)
        return True

    return until(writes, process)


def children(pid):
    """Returns a process's child processes, each thread's in the order in which it
    started them; none if the process has ended."""
    with contextlib.suppress(OSError):
        return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                for child in (task / "children").read_text().split()]
    return []


def _switches(pids):
    """Returns the processes' threads, with the number of times that each gave up
    a processor; None: some thread can run."""
    counts = {}
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            fields = dict(line.split(":\t", 1) for line in
                          (task / "status").read_text().splitlines())
            if not fields["State"].startswith("S"):
                return None
            counts[task.name] = fields["voluntary_ctxt_switches"]
    return counts


def until_blocked(process):
    """Waits until no thread of a program and its child processes can run: all wait
    for messages, timers and signals. False if the program ends before."""
    def is_blocked():
        pids = [process.pid, *children(process.pid)]
        try:
            before = _switches(pids)
            return before is not None and before == _switches(pids)
        except OSError:  # a thread has ended
            return False

    return until(is_blocked, process)


@functools.cache
def has_few_cases():
    """Tests whether this run checks a part of all cases: the default. `test.sh
    --all` sets LONGHAUL_ALL_CASES; sanitizers are too slow for all cases."""
    return not os.environ.get("LONGHAUL_ALL_CASES") or is_sanitized()


def is_sanitized():
    """Sanitizers map terabytes, and reserve several bytes for each byte."""
    libraries = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True,
                               check=False).stdout
    names = b"__asan_init", b"__tsan_init", b"__msan_init"
    with open(PROGRAM, "rb") as program:
        text = program.read()
    return any(word in libraries for word in ("libasan", "libtsan")) or any(
        name in text for name in names)


def worked(process):
    """Returns a program's processor seconds."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    return sum(map(int, fields.rpartition(")")[2].split()[11:13])) / (
        os.sysconf("SC_CLK_TCK"))


def _matches(pattern, text):
    if pattern is None:
        return text == ""
    return re.search(pattern, text, re.M | re.S) is not None


def without_progress(stderr):
    """Returns standard error without the progress lines of train."""
    return re.sub(r"(?m)^longhaul: (step|iteration) \d+ of \d+: .*\n", "",
                  stderr)


def case(name, args, code=0, out=None, err=None, **more):
    """Runs the program and checks status and outputs; returns the process."""
    done = run(*args, **more)
    ok = (done.returncode == code and _matches(out, done.stdout) and
          _matches(err, without_progress(done.stderr)))
    check(ok, f"{name}: longhaul {' '.join(map(str, args))}\n"
              f"  status {done.returncode}, expected {code}\n"
              f"  stdout {done.stdout[:400]!r}, expected {out!r}\n"
              f"  stderr {done.stderr[:600]!r}, expected {err!r}")
    return done


def json_case(name, args, code=0, err=None, **more):
    """Runs it with --json: exactly one object; returns it."""
    done = case(name, [*args, "--json"], code, r"\A\{.*\}\n\Z", err, **more)
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        check(False, f"{name}: not JSON: {error}")
        return {}


def uniform(name, devices=4, microbatches=12, placement="ud", chunks=1,
            times=(10, 10, 10), latency=0, transfer=0, sites=2, limit=None,
            unit="ms", memory="{F: 1, D: 0, W: -1}", backward="split"):
    """Writes a regular pipeline; `times` are F, D, W of a device."""
    limit = f"memory_limit: {limit}\n" if limit else ""
    far = (f"datacenters: {{count: {sites}, latency: {latency}, "
           f"transfer: {transfer}}}\n" if latency or transfer else "")
    (WORK / name).write_text(
        f"longhaul: pipeline/1\ntime_unit: {unit}\n"
        f"microbatches: {microbatches}\ndevices: {devices}\n"
        f"backward: {backward}\n"
        f"uniform: {{placement: {placement}, chunks_per_device: {chunks}, "
        f"F: {times[0]}, D: {times[1]}, W: {times[2]}, memory: {memory}}}\n"
        f"{far}{limit}")
    return name


@contextlib.contextmanager
def reserved_port():
    """A port at which ranks can listen and no other program gets: sockets with
    SO_REUSEADDR share a port of which at most one listens."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("", 0))
        yield one.getsockname()[1]


def _empty_folder():
    for path in WORK.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def finish():
    global _running
    unknown = set(NAMES) - {function.__name__ for function in _tests}
    if unknown:
        sys.exit(f"no test {', '.join(sorted(unknown))}; there are "
                 f"{', '.join(function.__name__ for function in _tests)}")
    for function in _tests:
        if NAMES and function.__name__ not in NAMES:
            continue
        _empty_folder()
        _running = function.__name__
        before = sum(os.times()[:4])
        try:
            function()
        except Exception:  # the others continue
            check(False, traceback.format_exc())
        if os.environ.get("LONGHAUL_TEST_TIMES"):
            print(f"{sum(os.times()[:4]) - before:8.2f} s {_running}")
    print(f"{_count['passed']} passed, {_count['failed']} failed")
    _folder.cleanup()
    sys.exit(1 if _count["failed"] else 0)
