# SPDX-License-Identifier: Apache-2.0
"""Exceptions."""

from __future__ import annotations

import re


class Error(Exception):
    """An error of the library, in one sentence.

    Attributes:
        file: the file with the error, or a name for a text; None: no file.
        line: its line, counted from 1.
        key: its key, e.g. ``"training.zero"``.
        status: the library's status name, e.g. ``"infeasible"``.
    """

    status = "error"

    def __init__(
        self,
        text: str,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(text)
        self.file = file
        self.line = line
        self.key = key


class InvalidError(Error, ValueError):
    """An argument is out of range."""

    status = "invalid argument"


class InputError(Error, ValueError):
    """The content of a file or text is invalid."""

    status = "invalid input"


class FileError(Error, OSError):
    """A file cannot be read or written."""

    status = "input/output error"

    def __str__(self) -> str:
        return str(self.args[0])


class InfeasibleError(Error):
    """No such plan or schedule exists."""

    status = "infeasible"


class DeadlockError(InfeasibleError):
    """Passes of a schedule wait for each other in a cycle."""

    status = "deadlock"


class UnsupportedError(Error):
    """The library, or the program that shall run a plan, lacks a feature."""

    status = "unsupported"


# file:line: key: message; each part except the last is optional.
_LOCATED = re.compile(
    r"(?P<line>\d+)(?::\d+)?: (?:(?P<key>[A-Za-z_][\w.\[\]-]*): )?"
)


def locate(text: str, name: str | None) -> dict[str, str | int | None]:
    """Returns the position in `name` that a library message refers to."""
    if name is None or not text.startswith(name + ":"):
        return {}
    found = _LOCATED.match(text, len(name) + 1)
    if not found:
        return {"file": name}
    return {"file": name, "line": int(found["line"]), "key": found["key"]}
