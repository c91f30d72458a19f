# SPDX-License-Identifier: Apache-2.0
"""Calls into the library: errors, texts, and release of objects."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from . import _errors
from ._native import ffi, lib

_KINDS: dict[int, type[_errors.Error]] = {
    lib.LH_EINVAL: _errors.InvalidError,
    lib.LH_EINPUT: _errors.InputError,
    lib.LH_EIO: _errors.FileError,
    lib.LH_EINFEASIBLE: _errors.InfeasibleError,
    lib.LH_EDEADLOCK: _errors.DeadlockError,
    lib.LH_EUNSUPPORTED: _errors.UnsupportedError,
}


def text_of(chars: Any) -> str:
    """Converts a string of the library."""
    return ffi.string(chars).decode(errors="replace")


def encoded(path: str | bytes | os.PathLike[str]) -> bytes:
    """Encodes a path or name for the library, whose strings end at a NUL."""
    made = os.fsencode(path)
    if b"\0" in made:
        raise _errors.InvalidError(f"{os.fsdecode(made)!r}: has a NUL")
    return made


def try_call(function: Any, *arguments: Any, name: str | None = None) -> None:
    """Calls a function whose last argument is an error; raises that error.

    `name` is the name of the parsed text in messages, if any.
    """
    err = ffi.new("lh_error *")
    status = function(*arguments, err)
    if status == lib.LH_OK:
        return
    if status == lib.LH_ENOMEM:
        raise MemoryError(text_of(err.text))
    if status == lib.LH_ECANCELED:
        raise KeyboardInterrupt
    text = text_of(err.text)
    where: dict[str, Any] = _errors.locate(text, name)
    raise _KINDS[status](text, **where)


def made_text(function: Any, *arguments: Any) -> str:
    """Returns the text from a call with the outputs text and length."""
    text, size = ffi.new("char **"), ffi.new("size_t *")
    try_call(function, *arguments, text, size)
    try:
        return bytes(ffi.buffer(text[0], size[0])).decode(errors="replace")
    finally:
        lib.lh_text_free(text[0])


def made_json(function: Any, *arguments: Any) -> dict[str, Any]:
    """Returns the parsed JSON from such a call."""
    return json.loads(made_text(function, *arguments))


def owned(
    kind: str,
    free: Any,
    function: Any,
    *arguments: Any,
    name: str | None = None,
) -> Any:
    """Returns the object from a call; its last reference releases it."""
    out = ffi.new(kind + " **")
    try_call(function, *arguments, out, name=name)
    return ffi.gc(out[0], free)


# Arguments whose member of a struct has another name.
_ARGUMENTS = {"min_interval_steps": "least_steps", "round_size": "group"}


def options(kind: str, **fields: Any) -> Any:
    """Makes a struct that begins with its size; None leaves a member at 0.

    Keeps the referenced objects alive as long as the struct.
    """
    made = ffi.new(kind + " *")
    made.size = ffi.sizeof(kind)
    for key, value in fields.items():
        if value is None:
            continue
        try:
            setattr(made, key, value)
        except OverflowError as error:
            name = _ARGUMENTS.get(key, key)
            raise _errors.InvalidError(f"{name}: {value}: {error}") from error

    def release(_: Any) -> None:
        fields.clear()

    return ffi.gc(made, release)


def numbered(name: Callable[[int], Any], what: str, value: str, n: int) -> int:
    """Returns an enumerator by its name."""
    names = [text_of(name(i)) for i in range(n)]
    if value not in names:
        known = ", ".join(names)
        raise _errors.InvalidError(f"{what}: {value!r} is none of {known}")
    return names.index(value)
