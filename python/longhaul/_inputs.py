# SPDX-License-Identifier: Apache-2.0
"""Accepted inputs: paths, texts, maps, and results of earlier calls."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from . import _errors
from ._library import encoded, ffi, lib, owned, text_of, try_call

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


class Text:
    """A text to parse, with its name in messages."""

    def __init__(self, source: Source) -> None:
        self.path: str | None = None
        if isinstance(source, Mapping):
            self.name = "map"
            self.text = _json_of(source)
        elif isinstance(source, str) and _is_text(source):
            self.name = "text"
            self.text = source.encode()
        else:
            self.path = self.name = os.fsdecode(source)
            self.text = _file(self.path)
        kind = ffi.new(f"char[{lib.LH_KIND_TEXT_SIZE}]")
        self.kind = text_of(lib.lh_text_detect_kind(self.text, kind))

    @property
    def folder(self) -> bytes:
        """Returns the folder for relative paths in the text."""
        return os.fsencode(os.path.dirname(self.path or "") or ".")

    def parsed(self, kind: str, free: Any, parse: Any, *more: Any) -> Any:
        """Returns the object that a parser makes from the text."""
        return owned(
            kind,
            free,
            parse,
            self.text,
            len(self.text),
            os.fsencode(self.name),
            *more,
            name=self.name,
        )

    def is_other(self, kind: str) -> bool:
        """Tests whether the text declares another format."""
        return self.kind in ("job", "pipeline", "plan") and self.kind != kind

    def refuse(self, wants: str) -> _errors.InputError:
        """Returns the error for an unexpected format."""
        return _errors.InputError(
            f"{self.name}: it is a {self.kind}; give {wants}", file=self.name
        )


def _is_text(source: str) -> bool:
    """Tests for text instead of a path: several lines, or a JSON map."""
    return "\n" in source or source.lstrip().startswith("{")


def _json_of(source: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(source, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise _errors.InputError(f"map: {error}", file="map") from error


def _file(path: str) -> bytes:
    most = 512 << 20
    text, size = ffi.new("char **"), ffi.new("size_t *")
    try_call(lib.lh_file_read, encoded(path), most, text, size, name=path)
    try:
        return bytes(ffi.buffer(text[0], size[0]))
    finally:
        lib.lh_text_free(text[0])


def job_of(source: Source) -> Any:
    """Reads an lh_job from a path, a text or a map."""
    text = Text(source)
    if text.is_other("job"):
        raise text.refuse("a job")
    return text.parsed("lh_job", lib.lh_job_free, lib.lh_job_parse, text.folder)


def plan_of(text: Text) -> Any:
    """Parses an lh_plan."""
    return text.parsed("lh_plan", lib.lh_plan_free, lib.lh_plan_parse)


def pipeline_of(text: Text) -> Any:
    """Parses an lh_pipeline."""
    return text.parsed(
        "lh_pipeline", lib.lh_pipeline_free, lib.lh_pipeline_parse
    )


def schedule_of_file(path: str, fifo: bool) -> Any:
    """Reads an lh_schedule from a CSV, with the link orders beside it, or from
    a plan."""
    text = Text(path)
    if text.kind == "plan":
        plan = plan_of(text)
        return owned(
            "lh_schedule",
            lib.lh_schedule_free,
            lib.lh_schedule_copy,
            plan.schedule,
            not fifo,
        )
    if text.kind:
        raise text.refuse("a plan or a CSV where it takes a schedule")
    return owned(
        "lh_schedule",
        lib.lh_schedule_free,
        lib.lh_schedule_read,
        encoded(path),
        fifo,
        name=path,
    )
