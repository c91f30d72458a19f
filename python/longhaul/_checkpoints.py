# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of `longhaul train`, for other programs."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from ._errors import FileError, InputError, InvalidError

_LENGTH = 8  # bytes of a safetensors file before its header
_BLOCK = 1 << 24


def checkpoint_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns a checkpoint's folder: `path`, or the newest one in it."""
    folder = pathlib.Path(path)
    if (folder / "state.json").exists():
        return folder
    found = sorted(
        step for step in folder.glob("step-*") if (step / "state.json").exists()
    )
    if not found:
        raise FileError(f"{folder}: has no checkpoint", str(folder))
    return max(found, key=lambda step: int(step.name.removeprefix("step-")))


def read_header(path: pathlib.Path) -> tuple[dict[str, Any], int]:
    """Returns the header of a safetensors file, and where its values begin."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            if length > path.stat().st_size:
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
    except ValueError as error:
        raise InputError(f"{path}: damaged: {error}", str(path)) from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}", str(path)) from error
    header.pop("__metadata__", None)
    return header, _LENGTH + length


def _divide(
    header: dict[str, Any], max_bytes: int
) -> Iterator[list[tuple[str, Any]]]:
    """Yields the tensors of each file, in their order in the checkpoint."""
    part: list[tuple[str, Any]] = []
    size = 0
    for name, one in sorted(
        header.items(), key=lambda item: item[1]["data_offsets"]
    ):
        begin, end = one["data_offsets"]
        if part and size + end - begin > max_bytes:
            yield part
            part, size = [], 0
        part.append((name, one))
        size += end - begin
    if part:
        yield part


def _write(
    part: list[tuple[str, Any]], source: Any, at: int, path: pathlib.Path
) -> None:
    """Writes consecutive tensors of a safetensors file to one of its own."""
    first = part[0][1]["data_offsets"][0]
    size = part[-1][1]["data_offsets"][1] - first
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for name, one in part:
        ends = [end - first for end in one["data_offsets"]]
        header[name] = {**one, "data_offsets": ends}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _LENGTH)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH, "little") + text)
        source.seek(at + first)
        while size > 0:
            block = source.read(min(size, _BLOCK))
            if not block:
                raise InputError(f"{source.name}: truncated", source.name)
            file.write(block)
            size -= len(block)


def write_shards(
    checkpoint: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    max_bytes: int = 5 * 10**9,
) -> list[pathlib.Path]:
    """Writes a checkpoint's weights as several safetensors files with an
    index, for Hugging Face's `from_pretrained` and `longhaul train --weights`.

    Args:
        checkpoint: its folder, or a folder of several: the newest one.
        folder: to write; created. config.json and tokenizer.json are copied.
        max_bytes: of the values in a file, if it has more than one tensor.

    Returns:
        The paths of the safetensors files.

    Raises:
        FileError: a file cannot be read or written.
        InputError: the checkpoint is damaged.
    """
    if max_bytes < 1:
        raise InvalidError(f"max_bytes: {max_bytes} must be 1 or more")
    source, to = checkpoint_folder(checkpoint), pathlib.Path(folder)
    weights = source / "model.safetensors"
    header, at = read_header(weights)
    parts = list(_divide(header, max_bytes))
    names = [
        f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
        for i in range(len(parts))
    ]
    index = {
        "metadata": {
            "total_size": max(one["data_offsets"][1] for one in header.values())
        },
        "weight_map": {
            tensor: name
            for part, name in zip(parts, names, strict=True)
            for tensor, _ in part
        },
    }
    try:
        to.mkdir(parents=True, exist_ok=True)
        with weights.open("rb") as file:
            for part, name in zip(parts, names, strict=True):
                _write(part, file, at, to / name)
        (to / "model.safetensors.index.json").write_text(
            json.dumps(index, indent=2) + "\n"
        )
        for name in ("config.json", "tokenizer.json"):
            if (source / name).exists():
                shutil.copyfile(source / name, to / name)
    except OSError as error:
        raise FileError(
            f"{error.filename}: {error.strerror}", str(error.filename)
        ) from error
    return [to / name for name in names]
