# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as exceptions."""

from __future__ import annotations

import re


class Error(Exception):
    """What the library refuses, in one sentence.

    Attributes:
        file: the file that is wrong, or what stands for a text; None: none is.
        line: the line there, counted from 1.
        key: the key there, e.g. ``"training.zero"``.
        status: the library's word for it, e.g. ``"infeasible"``.
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
    """What a file or text says is wrong."""

    status = "invalid input"


class FileError(Error, OSError):
    """A file cannot be read or written."""

    status = "input/output error"

    def __str__(self) -> str:
        return str(self.args[0])


class InfeasibleError(Error):
    """There is no such plan or schedule."""

    status = "infeasible"


class DeadlockError(InfeasibleError):
    """Passes of a schedule wait for each other."""

    status = "deadlock"


class UnsupportedError(Error):
    """The library, or the program that is to run a plan, has no such thing."""

    status = "unsupported"


# file:line: key: what is wrong; each but the last may be missing.
_LOCATED = re.compile(
    r"(?P<line>\d+)(?::\d+)?: (?:(?P<key>[A-Za-z_][\w.\[\]-]*): )?"
)


def locate(text: str, name: str | None) -> dict[str, str | int | None]:
    """Where a message of the library about `name` points to."""
    if name is None or not text.startswith(name + ":"):
        return {}
    found = _LOCATED.match(text, len(name) + 1)
    if not found:
        return {"file": name}
    return {"file": name, "line": int(found["line"]), "key": found["key"]}
