# SPDX-License-Identifier: Apache-2.0
"""The program `longhaul`, installed beside this file."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

from ._errors import Error, FileError, InputError, InvalidError
from ._inputs import Source, Text

PROGRAM = pathlib.Path(__file__).parent / "bin" / "longhaul"
_STDIN = "standard input"
# file:line: key: message; the key is optional.
_LOCATED = re.compile(
    r"(?P<file>[^\n]+?):(?P<line>\d+)(?::\d+)?: "
    r"(?:(?P<key>[A-Za-z_][\w.\[\]-]*): )?"
)
_CAUSES = {os.strerror(number) for number in errno.errorcode}


def _environment() -> dict[str, str]:
    """Environment of the program: `profile --torch` runs layers with this
    Python."""
    return {"LONGHAUL_PYTHON": sys.executable, **os.environ}


def main() -> NoReturn:
    """Replaces this process by the program, with the same arguments."""
    os.execve(PROGRAM, ["longhaul", *sys.argv[1:]], _environment())


def error_of(
    command: str, status: int, stderr: str, name: str | None = None
) -> Error:
    """Returns the exception for a failed command. `name` is that of the text
    on its standard input, if any."""
    lines = [
        line.removeprefix("longhaul: ")
        for line in stderr.strip().splitlines()
        if not line.startswith("Try '")
    ]
    text = "\n".join(lines)
    if not text:
        return Error(f"{command}: failed with status {status}, without a cause")
    if name is not None:
        text = text.replace(_STDIN, name)
    if status == 2:
        return InvalidError(text)
    if found := _LOCATED.match(text):
        return InputError(text, found["file"], int(found["line"]), found["key"])
    file, _, cause = text.rpartition(": ")
    if file and cause in _CAUSES:
        return FileError(text, file)
    return Error(text)


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Returns the command line's words for options given by name: True for a
    flag, a sequence for values between commas, a map for `KEY=VALUE`, each its
    own option. None and False leave an option out."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, Mapping):
            for key, one in value.items():  # pyright: ignore
                words += [option, f"{key}={_word(one)}"]
        else:
            words += [option, _word(value)]
    return words


def _word(value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)  # pyright: ignore
    if isinstance(value, Sequence):
        return ",".join(map(_word, value))  # pyright: ignore
    return str(value)


class Process:
    """A run of the program with --json.

    Standard output and error go to files, so that the program never waits for
    a reader.
    """

    def __init__(
        self,
        command: str,
        what: Source | str | None,
        words: Sequence[str],
        pass_fds: Sequence[int] = (),
        folder: str | None = None,
    ) -> None:
        """Starts the program. `what` is its input: a path, or a text that it
        reads from its standard input; None: has none. `folder`: of files whose
        names are printed without it."""
        self._command = command
        self._folder = folder
        self._name: str | None = None
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        operands: list[str] = []
        with tempfile.TemporaryFile() as given:
            if what is not None:
                text = Text(what)
                operands = [text.path or "-"]
                if text.path is None:
                    self._name = text.name
                    given.write(text.text)
                    given.seek(0)
            self.popen = subprocess.Popen(
                [PROGRAM, command, *operands, *words, "--json"],
                stdin=given,
                stdout=self._out,
                stderr=self._err,
                pass_fds=pass_fds,
                env=_environment(),
            )

    def shown(self, text: str) -> str:
        """Returns a printed text without the folder of the files."""
        return text.replace(f"{self._folder}/", "") if self._folder else text

    def result(self) -> Any:
        """Waits for the program's end, and returns its JSON; None if it prints
        nothing, as some commands do with "-o"."""
        status = self.popen.wait()
        self._out.seek(0)
        self._err.seek(0)
        out = self.shown(self._out.read().decode(errors="replace"))
        err = self.shown(self._err.read().decode(errors="replace"))
        self._out.close()
        self._err.close()
        if not out and status == 0:
            return None
        try:
            return json.loads(out)
        except ValueError:
            raise error_of(self._command, status, err, self._name) from None


def run(command: str, *arguments: str | os.PathLike[str] | float) -> Any:
    """Returns the output of `longhaul COMMAND ... --json`, run as a process.

    For commands without a function in this package, such as "report", "init",
    "import" and "explain": ``longhaul.run("explain", "p.json")``. Returns None
    if the command prints nothing, as some commands do with "-o".

    Raises:
        Error: the program fails; with its message, and its file, line and key
            if it has them.
    """
    words = [
        os.fspath(a) if isinstance(a, os.PathLike) else str(a)
        for a in arguments
    ]
    return Process(command, None, words).result()
