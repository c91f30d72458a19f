# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Moves layers between chunks, and chunks between ranks, with the optimizer's
state."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils._pytree import tree_map_only

from .._errors import Error, InvalidError, UnsupportedError
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


class _Departure:
    """A module that leaves this rank, with its optimizer state. Both are in
    host memory from pack() on, and can be put back until remove()."""

    def __init__(self, module: nn.Module, optimizer: Any) -> None:
        self._module, self._optimizer = module, optimizer
        # Of each parameter with a state: the device of its tensors.
        self._devices: dict[Any, dict[str, torch.device]] = {}

    def pack(self) -> bytes:
        """Returns the module, and for each parameter its group in the
        optimizer, or -1, and its state."""
        states: list[tuple[int, Any]] = []
        for p in self._module.parameters():
            group = _group_of(p, self._optimizer)
            state = {}
            if group is not None and p in self._optimizer.state:
                state = self._to_host(p)
            states.append((-1 if group is None else group, state))
        return pickle.dumps((self._module.to("cpu"), states))

    def _to_host(self, p: torch.Tensor) -> Any:
        old = self._optimizer.state[p]
        state = tree_map_only(torch.Tensor, lambda x: x.to("cpu"), old)
        self._devices[p] = {
            key: x.device
            for key, x in old.items()
            if isinstance(x, torch.Tensor)
        }
        self._optimizer.state[p] = state
        return state

    def put_back(self, device: torch.device) -> None:
        """Restores the module on its device, and its optimizer state."""
        self._module.to(device)
        for p, devices in self._devices.items():
            state = self._optimizer.state[p]
            for key, one in devices.items():
                state[key] = state[key].to(one)

    def remove(self) -> None:
        """Takes the parameters out of the optimizer."""
        for p in self._module.parameters():
            p.grad = None
            group = _group_of(p, self._optimizer)
            if group is not None:
                params = self._optimizer.param_groups[group]["params"]
                params[:] = [one for one in params if one is not p]
                self._optimizer.state.pop(p, None)


class _Arrival:
    """A module that another rank has packed, on this rank's device."""

    def __init__(self, packed: bytes, device: torch.device) -> None:
        layer, self._states = pickle.loads(packed)
        self.module: nn.Module = layer.to(device)
        for p, (_, state) in zip(
            self.module.parameters(), self._states, strict=True
        ):
            # A step count stays where the optimizer had it, in host memory.
            for key, x in state.items():
                if isinstance(x, torch.Tensor) and x.shape == p.shape:
                    state[key] = x.to(device)

    def add(self, optimizer: Any) -> None:
        """Adds the module's parameters to the optimizer."""
        for p, (group, state) in zip(
            self.module.parameters(), self._states, strict=True
        ):
            if group >= 0:
                optimizer.param_groups[group]["params"].append(p)
                if state:
                    optimizer.state[p] = state


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


def _agree(method: str, attempt: Callable[[], Any], host: HostMessages) -> Any:
    """Returns the result of `attempt`, or raises the error of any rank;
    collective."""
    made, why = None, None
    try:
        made = attempt()
    except Exception as error:  # the other ranks have to know
        why = str(error) or type(error).__name__
    for rank, text in enumerate(host.all_gather_object(why)):
        if text is not None:
            raise Error(f"{method}: rank {rank}: {text}; no layer has moved")
    return made


def _transfer(
    method: str,
    moving: Sequence[tuple[nn.Module | None, int, int]],
    optimizer: torch.optim.Optimizer | None,
    ranks: Ranks,
) -> dict[int, nn.Module]:
    """Moves modules between ranks: all of them, or none if an error occurs on
    any rank. Collective.

    Args:
        method: for errors.
        moving: each module, if this rank has it; the rank that sends it, and
            the one that receives it; the same order on all ranks.
        optimizer: this rank's; it loses and gets parameters.
        ranks: of the pipeline.

    Returns:
        The modules that this rank receives, by their index in `moving`.
    """
    mine, host = dist.get_rank(), ranks.host
    leaving = {
        i: _Departure(module, optimizer)
        for i, (module, source, _) in enumerate(moving)
        if module is not None and source == mine
    }
    packed: dict[int, bytes] = {}
    try:
        packed = _agree(
            method, lambda: {i: one.pack() for i, one in leaving.items()}, host
        )
        for i, (_, source, to) in enumerate(moving):
            if source == mine:
                host.send_bytes(packed.pop(i), to)
            elif to == mine:
                packed[i] = host.receive_bytes(source)
        arrived: dict[int, _Arrival] = _agree(
            method,
            lambda: {
                i: _Arrival(packed.pop(i), ranks.device) for i in [*packed]
            },
            host,
        )
    except BaseException:
        for one in leaving.values():
            one.put_back(ranks.device)
        raise
    for one in leaving.values():
        one.remove()
    for one in arrived.values():
        one.add(optimizer)
    return {i: one.module for i, one in arrived.items()}


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
    held = {chunk: iter([*container]) for chunk, container in mine.items()}
    own = [next(held[one]) if one in held else None for one, _ in moves]
    members = [ranks.members[device] for device in ranks.places]
    crosses = [
        number
        for number, (one, other) in enumerate(moves)
        if members[one] != members[other]
    ]
    arrived = _transfer(
        "move_layers",
        [
            (own[number], members[moves[number][0]], members[moves[number][1]])
            for number in crosses
        ],
        optimizer,
        ranks,
    )
    for i, module in arrived.items():
        own[crosses[i]] = module
    after: dict[int, list[Any]] = {chunk: [] for chunk in mine}
    for module, (_, other) in zip(own, moves, strict=True):
        if other in after:
            after[other].append(module)
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
    changes = [
        (chunk, ranks.members[device], members[device])
        for chunk, device in enumerate(ranks.places)
        if ranks.members[device] != members[device]
    ]
    arrived = _transfer(
        "move_hosts",
        [(chunks.get(chunk), old, new) for chunk, old, new in changes],
        optimizer,
        ranks,
    )
    left = {chunk for chunk, old, _ in changes if old == dist.get_rank()}
    after = {c: module for c, module in chunks.items() if c not in left}
    after |= {changes[i][0]: module for i, module in arrived.items()}
    return dict(sorted(after.items()))


def _group_of(p: torch.Tensor, optimizer: Any) -> int | None:
    groups = [] if optimizer is None else optimizer.param_groups
    for i, group in enumerate(groups):
        if any(one is p for one in group["params"]):
            return i
    return None
