#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Differences on a terminal: width, colours, progress."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

from harness import ENVIRONMENT, HANGS, PROGRAM, WORK, check, finish, run, uniform

uniform("p.yaml", latency=8, transfer=1, limit=4)
uniform("big.yaml", devices=16, microbatches=256, latency=8, transfer=1)


def drain(master, process):
    """Returns the terminal's output until the program ends."""
    text = b""
    while True:
        if select.select([master], [], [], 0.1)[0]:
            try:
                got = os.read(master, 65536)
            except OSError:
                break
            if not got:
                break
            text += got
        elif process.poll() is not None:
            break
    return text.decode("utf-8", "replace")


def start(args, columns, env=None, on=("stdout", "stderr")):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ,
                struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**ENVIRONMENT, "TERM": "xterm-256color", **(env or {})}
    environment.pop("COLUMNS", None)
    streams = {name: slave if name in on else subprocess.PIPE
               for name in ("stdout", "stderr")}
    process = subprocess.Popen([PROGRAM, *args], cwd=WORK, env=environment,
                               stdin=subprocess.DEVNULL, **streams)
    os.close(slave)
    return process, master


def on_terminal(args, columns=100, env=None, on=("stdout", "stderr")):
    process, master = start(args, columns, env, on)
    text = drain(master, process)
    process.communicate(timeout=HANGS)
    os.close(master)
    return text


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text.replace("\r\n", "\n"))


def drawn(text):
    """Returns the lines of the timeline: a device's name, then its passes."""
    return [line for line in plain(text).split("\n")
            if re.match(r"  device \d .*\d%$", line)]


for columns in (60, 100, 180):
    text = on_terminal(["simulate", "p.yaml", "-s", "zb-h1"], columns)
    lines = drawn(text)
    check(len(lines) == 4 and
          columns - 12 <= max(map(len, lines)) <= columns,
          f"{columns} columns: {[len(line) for line in lines]}")
    check("\x1b[" in text, f"{columns} columns: colours")
    text = on_terminal(["compare", "p.yaml", "--sweep", "latency=0:2:0.5"],
                       columns, on=("stdout",))
    check(max(map(len, plain(text).split("\n"))) <= columns,
          f"sweep in {columns} columns")

text = on_terminal(["simulate", "p.yaml", "-s", "zb-h1"], 80,
                   {"NO_COLOR": "1"})
check("\x1b[" not in re.sub(r"\r[^\n]*?\x1b\[K", "", text),
      "NO_COLOR: no colours")
text = on_terminal(["simulate", "p.yaml", "-s", "zb-h1"], 80, {"TERM": "dumb"})
check("\x1b[3" not in text and "\x1b[4" not in text, "dumb: no colours")
text = run("simulate", "p.yaml", "-s", "zb-h1").stdout
check("\x1b" not in text, "no terminal: no colours")
check(max(map(len, drawn(text))) <= 80, "no terminal: 80 columns")
wide = run("simulate", "p.yaml", "-s", "zb-h1", env={"COLUMNS": "120"}).stdout
check(80 < max(map(len, drawn(wide))) <= 120, "no terminal: COLUMNS")
ascii_ = run("simulate", "p.yaml", "-s", "zb-h1", env={"LC_ALL": "C"}).stdout
check(ascii_.isascii(), "C locale: ASCII")
check("\x1b" not in on_terminal(["simulate", "p.yaml", "--json"],
                                on=("stdout",)), "JSON has no colours")

# Progress goes to standard error, on a terminal only, and leaves no trace.
SWEEP = ["compare", "big.yaml", "-m", "greedy,zb-h1", "--sweep",
         "latency=0:3:1"]
text = on_terminal(SWEEP, on=("stderr",))
check("comparing: point 4 of 4" in text and text.endswith("\r\x1b[K"),
      f"progress: {text[-80:]!r}")
check(on_terminal([*SWEEP, "-q"], on=("stderr",)) == "", "quiet")
done = run(*SWEEP)
check(done.stderr == "" and done.returncode == 0, "no terminal: no progress")

# Ctrl-C clears the progress line, and ends the program at once without output.
process, master = start([*SWEEP[:-1], "latency=0:900:1"], 80, on=("stderr",))
seen = b""
while b"point" not in seen:
    seen += os.read(master, 4096)
process.send_signal(signal.SIGINT)
rest = drain(master, process)
out, _ = process.communicate(timeout=HANGS)
check(process.returncode == -signal.SIGINT and out == b"" and
      rest.endswith("\r\x1b[K") and "longhaul" not in rest,
      f"Ctrl-C: {process.returncode} {rest[-60:]!r}")
os.close(master)

# Ctrl-C in longhaul packets prints the rows that are finished. The second row
# takes minutes.
process, master = start(["packets", "--gbps", "400", "--latency", "1us", "--message",
                         "10KB,900GB", "--window-kib", "1024", "--seeds", "1", "--json"], 100,
                        on=("stderr",))
seen = b""
while b"row 1 of 2" not in seen:
    seen += os.read(master, 4096)
process.send_signal(signal.SIGINT)
rest = drain(master, process)
out, _ = process.communicate(timeout=HANGS)
rows = json.loads(out)["rows"]
check(process.returncode == 1 and [row["message_bytes"] for row in rows] == [10000] and
      rows[0]["sent"] == 3 and "interrupted: the results have 1 of 2 rows" in rest,
      f"Ctrl-C: {process.returncode} {rest[-90:]!r} {rows}")
os.close(master)
finish()
