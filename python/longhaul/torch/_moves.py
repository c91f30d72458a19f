# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Moves layers between chunks, with the optimizer's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils._pytree import tree_map_only

from .._errors import InvalidError, UnsupportedError
from ._modules import stack_of


def container_of(
    chunk: nn.Module,
    layers: Callable[[nn.Module], Sequence[nn.Module]] | None,
) -> Any:
    """Returns the module list that holds a chunk's layers.

    Raises:
        UnsupportedError: they are in no such list, or wrapped for data
            parallelism.
    """
    for module in chunk.modules():
        if isinstance(
            module, (FSDPModule, nn.parallel.DistributedDataParallel)
        ):
            raise UnsupportedError(
                "move_layers: the stages are wrapped in fully_shard or "
                "DistributedDataParallel, which cannot lose or get parameters"
            )
    found = list((layers or stack_of)(chunk))
    for module in chunk.modules():
        if (
            isinstance(module, (nn.ModuleList, nn.Sequential))
            and list(module) == found
        ):
            return module
    raise UnsupportedError(
        "move_layers: a chunk's layers are in no nn.ModuleList or "
        "nn.Sequential; pass `layers` to the runtime"
    )


def moves_of(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the chunk of each layer in model order, before and after."""

    def chunks(counts: Sequence[int]) -> list[int]:
        return [c for c, n in enumerate(counts) for _ in range(n)]

    return list(zip(chunks(old), chunks(new), strict=True))


def check_counts(old: Sequence[int], new: Sequence[int]) -> None:
    """Raises if the new layers per chunk are no partition of the same
    layers."""
    if len(new) != len(old) or sum(new) != sum(old) or min(new) < 1:
        raise InvalidError(
            f"counts: {list(new)} must have {len(old)} numbers, one for each "
            f"chunk, of at least 1 and {sum(old)} together"
        )


def pack(layer: nn.Module, optimizer: Any) -> Any:
    """Takes a layer's parameters out of the optimizer; returns the layer and
    its optimizer state, in host memory."""
    states: list[tuple[int, Any]] = []
    for p in layer.parameters():
        p.grad = None
        group = _group_of(p, optimizer)
        state = {}
        if group is not None:
            params = optimizer.param_groups[group]["params"]
            params[:] = [one for one in params if one is not p]
            state = optimizer.state.pop(p, {})
        states.append((-1 if group is None else group, _to(state, "cpu")))
    return layer.to("cpu"), states


def unpack(packed: Any, optimizer: Any, device: torch.device) -> nn.Module:
    """Adds a layer's parameters to the optimizer; returns the layer."""
    layer, states = packed
    layer = layer.to(device)
    for p, (group, state) in zip(layer.parameters(), states, strict=True):
        if group >= 0:
            optimizer.param_groups[group]["params"].append(p)
            if state:
                # A step count stays where the optimizer had it, in host memory.
                optimizer.state[p] = {
                    key: x.to(device)
                    if isinstance(x, torch.Tensor) and x.shape == p.shape
                    else x
                    for key, x in state.items()
                }
    return layer


def send(packed: Any, rank: int, group: Any) -> None:
    dist.send_object_list(
        [packed], rank, group=group, device=torch.device("cpu")
    )


def receive(rank: int, group: Any) -> Any:
    got: list[Any] = [None]
    dist.recv_object_list(got, rank, group=group, device=torch.device("cpu"))
    return got[0]


def _group_of(p: torch.Tensor, optimizer: Any) -> int | None:
    groups = [] if optimizer is None else optimizer.param_groups
    for i, group in enumerate(groups):
        if any(one is p for one in group["params"]):
            return i
    return None


def _to(state: Any, device: str) -> Any:
    return tree_map_only(torch.Tensor, lambda x: x.to(device), state)
