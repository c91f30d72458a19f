# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Checkpoints of `longhaul train` as PyTorch's distributed checkpoints."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Iterator

import torch

from .._checkpoints import checkpoint_folder, read_header

__all__ = ["write_dcp"]


def _tensors(path: pathlib.Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors of a checkpoint's file, mapped into memory: all in
    float32, at multiples of their size."""
    header, at = read_header(path)
    size = path.stat().st_size // 4
    values = torch.from_file(str(path), size=size, dtype=torch.float32)
    for name, one in header.items():
        begin = (at + one["data_offsets"][0]) // 4
        shape = one["shape"]
        yield name, values[begin : begin + math.prod(shape)].view(shape)


def write_dcp(
    checkpoint: str | os.PathLike[str], folder: str | os.PathLike[str]
) -> None:
    """Writes a checkpoint as one of torch.distributed.checkpoint, which loads
    it into models on any number of ranks.

    The state has the keys of PyTorch's `get_state_dict`: "model", with Hugging
    Face's names, and "optimizer" with "state": per parameter AdamW's "exp_avg",
    "exp_avg_sq" and "step".

    Args:
        checkpoint: its folder, or a folder of several: the newest one.
        folder: to write.

    Raises:
        longhaul.Error: the checkpoint cannot be read.
    """
    from torch.distributed import checkpoint as dcp  # half a second

    source = checkpoint_folder(checkpoint)
    step = float(json.loads((source / "state.json").read_text())["step"])
    state: dict[str, dict[str, torch.Tensor]] = {}
    for name, values in _tensors(source / "optimizer.safetensors"):
        parameter, _, moment = name.rpartition(".")
        state.setdefault(parameter, {"step": torch.tensor(step)})
        state[parameter][moment] = values
    dcp.save(
        {
            "model": dict(_tensors(source / "model.safetensors")),
            "optimizer": {"state": state},
        },
        checkpoint_id=os.fspath(folder),
        no_dist=True,
    )
