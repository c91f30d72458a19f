# SPDX-License-Identifier: Apache-2.0
"""The program `longhaul`, installed beside this file."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, NoReturn

from ._errors import Error

PROGRAM = pathlib.Path(__file__).parent / "bin" / "longhaul"


def _environment() -> dict[str, str]:
    """Environment of the program: `profile --torch` runs layers with this
    Python."""
    return {"LONGHAUL_PYTHON": sys.executable, **os.environ}


def main() -> NoReturn:
    """Replaces this process by the program, with the same arguments."""
    os.execve(PROGRAM, ["longhaul", *sys.argv[1:]], _environment())


def run(command: str, *arguments: str | os.PathLike[str] | float) -> Any:
    """Returns the output of `longhaul COMMAND ... --json`, run as a process.

    For commands without a function in this package, such as "train",
    "diagnose", "report", "init", "import", "profile" and "explain":
    ``longhaul.run("train", "p.json", "--steps", 3)``. Returns None if the
    command prints nothing, as some commands do with "-o".

    Raises:
        Error: the program fails; with its message.
    """
    words = [
        os.fspath(a) if isinstance(a, os.PathLike) else str(a)
        for a in arguments
    ]
    done = subprocess.run(
        [PROGRAM, command, *words, "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env=_environment(),
    )
    out = done.stdout.decode(errors="replace")
    if not out and done.returncode == 0:
        return None
    try:
        return json.loads(out)
    except ValueError as error:
        said = done.stderr.decode(errors="replace").strip()
        raise Error(said or f"{command}: prints no JSON") from error
