# SPDX-License-Identifier: Apache-2.0
"""The program `longhaul`, which lies beside this file."""

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
    """The program's: `profile --torch` runs layers by this Python."""
    return {"LONGHAUL_PYTHON": sys.executable, **os.environ}


def main() -> NoReturn:
    """Becomes the program, with the arguments of this process."""
    os.execve(PROGRAM, ["longhaul", *sys.argv[1:]], _environment())


def run(command: str, *arguments: str | os.PathLike[str] | float) -> Any:
    """What `longhaul COMMAND ... --json` prints, in a process of its own.

    For what has no function here, as "train", "diagnose", "report", "init",
    "import", "profile" and "explain":
    ``longhaul.run("train", "p.json", "--steps", 3)``. None where it prints
    nothing, as with "-o" of some commands.

    Raises:
        Error: the program says what is wrong.
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
