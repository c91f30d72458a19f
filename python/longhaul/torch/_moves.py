# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Moves layers between chunks, and chunks between ranks, with the optimizer's
state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils._pytree import tree_map_only

from .._errors import InvalidError, UnsupportedError
from ._host import HostMessages
from ._modules import stack_of


def check_unwrapped(chunk: nn.Module, method: str) -> None:
    """Raises UnsupportedError if a chunk is wrapped for data parallelism."""
    for module in chunk.modules():
        if isinstance(
            module, (FSDPModule, nn.parallel.DistributedDataParallel)
        ):
            raise UnsupportedError(
                f"{method}: the stages are wrapped in fully_shard or "
                "DistributedDataParallel, which cannot lose or get parameters"
            )


def check_agreed(groups: Sequence[int], errors: Sequence[str]) -> None:
    """Raises the error of any rank, or if optimizers have different numbers of
    parameter groups."""
    for text in filter(None, errors):
        raise UnsupportedError(text)
    if len(set(groups)) > 1:
        raise InvalidError(
            "optimizer: must have the same parameter groups on all ranks"
        )


def container_of(
    chunk: nn.Module,
    layers: Callable[[nn.Module], Sequence[nn.Module]] | None,
) -> Any:
    """Returns the module list that holds a chunk's layers.

    Raises:
        UnsupportedError: they are in no such list, or wrapped for data
            parallelism.
    """
    check_unwrapped(chunk, "move_layers")
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


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The ranks of a pipeline.

    Attributes:
        places: device of each chunk.
        members: rank of each device.
        host: messages between ranks.
        device: of this rank's tensors.
    """

    places: Sequence[int]
    members: Sequence[int]
    host: HostMessages
    device: torch.device


def move(
    chunks: Mapping[int, nn.Module],
    counts: Sequence[int],
    optimizer: torch.optim.Optimizer | None,
    ranks: Ranks,
    layers: Callable[[nn.Module], Sequence[nn.Module]] | None,
) -> int:
    """Moves layers between chunks, of which this rank has some, so that they
    have `counts` layers; returns the number that moved. Collective."""
    mine: dict[int, Any] = {}
    wrong = ""
    try:
        for chunk, module in chunks.items():
            mine[chunk] = container_of(module, layers)
    except UnsupportedError as error:  # the other ranks have to know
        wrong = str(error)
    have = {chunk: len(held) for chunk, held in mine.items()}
    groups = 0 if optimizer is None else len(optimizer.param_groups)
    told = ranks.host.all_gather_object((have, groups, wrong))
    check_agreed([n for _, n, _ in told], [text for _, _, text in told])
    n = {chunk: k for one, _, _ in told for chunk, k in one.items()}
    old = [n[chunk] for chunk in range(len(ranks.places))]
    check_counts(old, counts)
    moves = moves_of(old, counts)
    held = {chunk: list(container) for chunk, container in mine.items()}
    after: dict[int, list[Any]] = {chunk: [] for chunk in mine}
    for old_chunk, new in moves:  # one at a time, in one order on all ranks
        here, there = ranks.places[old_chunk], ranks.places[new]
        layer = held[old_chunk].pop(0) if old_chunk in held else None
        if layer is not None and here != there:
            packed = pack(layer, optimizer)
            ranks.host.send_object(packed, ranks.members[there])
        elif new in after and layer is None:
            packed = ranks.host.receive_object(ranks.members[here])
            layer = unpack(packed, optimizer, ranks.device)
        if new in after:
            after[new].append(layer)
    for chunk, container in mine.items():
        del container[:]
        container.extend(after[chunk])
    return sum(one != other for one, other in moves)


def check_hosts(hosts: Sequence[int], n: int) -> None:
    """Raises if the hosts are no permutation of n hosts."""
    if sorted(hosts) != list(range(n)):
        raise InvalidError(
            f"hosts: {list(hosts)} must have each of the numbers 0 to {n - 1} "
            "once"
        )


def exchange(
    chunks: Mapping[int, nn.Module],
    members: Sequence[int],
    optimizer: torch.optim.Optimizer | None,
    ranks: Ranks,
) -> dict[int, nn.Module]:
    """Moves chunks, of which this rank has some, to the ranks `members` of
    their devices; returns this rank's chunks. Collective."""
    wrong = ""
    for module in chunks.values():
        try:
            check_unwrapped(module, "move_hosts")
        except UnsupportedError as error:  # the other ranks have to know
            wrong = str(error)
    groups = 0 if optimizer is None else len(optimizer.param_groups)
    told = ranks.host.all_gather_object((groups, wrong, list(members)))
    check_agreed([n for n, _, _ in told], [text for _, text, _ in told])
    pipeline = [one for _, _, one in told if dist.get_rank() in one]
    if any(one != list(members) for one in pipeline):
        raise InvalidError("move_hosts: the hosts differ between ranks")
    after: dict[int, nn.Module] = {}
    mine = dist.get_rank()
    for chunk, device in enumerate(ranks.places):  # one at a time, on all ranks
        old, new = ranks.members[device], members[device]
        if mine == old == new:
            after[chunk] = chunks[chunk]
        elif mine == old:
            packed = pack(chunks[chunk], optimizer)
            ranks.host.send_object(packed, new)
        elif mine == new:
            packed = ranks.host.receive_object(old)
            after[chunk] = unpack(packed, optimizer, ranks.device)
    return after


def _group_of(p: torch.Tensor, optimizer: Any) -> int | None:
    groups = [] if optimizer is None else optimizer.param_groups
    for i, group in enumerate(groups):
        if any(one is p for one in group["params"]):
            return i
    return None


def _to(state: Any, device: str) -> Any:
    return tree_map_only(torch.Tensor, lambda x: x.to(device), state)
