# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Checkpoints of an elastic plan's optimizer state.

Megatron's optimizers describe and load the state of whole parameters. A copy of
the optimizer with the parameters' whole states, gathered from all replicas,
does so for the optimizer of the replicas' parts. The checkpoints are thus those
of Megatron's optimizers without the distributed optimizer, for any replicas and
shares.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from .._errors import UnsupportedError

# In place of a state's name: the parameter in fp32, of which the model has a
# copy in 16 bits.
_MAIN = "fp32_param"


def store_whole_state(one: Any, chunks: list[Any]) -> None:
    """Makes a Megatron optimizer of sharded chunks store whole states in
    Megatron's distributed checkpoint formats."""
    state = _State(one, chunks)
    one.sharded_state_dict = state.describe
    one.load_state_dict = state.load
    one.state_dict = _reject_state


def _reject_state(*_: Any, **__: Any) -> Any:
    raise UnsupportedError(
        "optimizer: one replica has a part of the optimizer's state of an "
        "elastic plan; use a distributed checkpoint format (--ckpt-format "
        "torch_dist), or add --no-save-optim and --no-load-optim"
    )


class _State:
    """The state of an optimizer, one of Megatron's without sharding."""

    def __init__(self, one: Any, chunks: list[Any]) -> None:
        self._one = one
        # Megatron has another optimizer for experts on several ranks.
        of_experts = any(
            group["is_expert_parallel"] for group in one.param_groups
        )
        self._parts = [
            part
            for chunk in chunks
            for part in chunk.parts
            if getattr(part.named[0][1], "allreduce", True) != of_experts
        ]

    def describe(
        self, model_state: Any, is_loading: bool = False, **more: Any
    ) -> Any:
        """Returns the sharded state dict; collective over the replicas."""
        whole = self._whole(not is_loading)
        return type(whole).sharded_state_dict(
            whole, model_state, is_loading, **more
        )

    def load(self, state: Any) -> None:
        """Loads a state that describe() has described; collective over the
        replicas."""
        whole = self._whole(False)
        type(whole).load_state_dict(whole, state)
        inner, loaded = self._one.optimizer, whole.optimizer
        for group, other in zip(
            inner.param_groups, loaded.param_groups, strict=True
        ):
            group |= {k: v for k, v in other.items() if k != "params"}
        with torch.no_grad():
            for part, name, p, main in self._parameters():
                if name not in part.shards:
                    continue
                own = self._main(part.shards[name])
                for key, value in loaded.state[main].items():
                    if _is_like(value, p):
                        value = part.piece_of(name, value).clone()
                    inner.state[own][key] = value
                if own is not part.shards[name]:
                    own.copy_(part.piece_of(name, main))

    def _parameters(self) -> Iterator[tuple[Any, str, Any, Any]]:
        """Yields the parts, names and whole parameters of the chunks, and their
        places in the last copy of the optimizer."""
        for part in self._parts:
            for name, p in part.named:
                yield part, name, p, self._mains[id(p)]

    def _main(self, piece: Any) -> Any:
        """Returns the parameter of the optimizer for a part of the model's."""
        one = self._one
        for models, mains in zip(
            getattr(one, "float16_groups", []),
            getattr(one, "fp32_from_float16_groups", []),
            strict=True,
        ):
            for model, main in zip(models, mains, strict=True):
                if model is piece:
                    return main
        return piece

    def _whole(self, with_state: bool) -> Any:
        """Returns a copy of the optimizer for whole parameters, with the state
        of all replicas or an empty one."""
        one = self._one
        whole, inner = copy.copy(one), copy.copy(one.optimizer)
        for name in ("sharded_state_dict", "load_state_dict", "state_dict"):
            vars(whole).pop(name)
        whole.optimizer = inner
        inner.state = collections.defaultdict(dict)
        inner.param_groups = [
            {**group, "params": []} for group in inner.param_groups
        ]
        n = len(inner.param_groups)
        is_mixed = hasattr(one, "float16_groups")
        if is_mixed:
            whole.float16_groups = [[] for _ in range(n)]
            whole.fp32_from_float16_groups = [[] for _ in range(n)]
            whole.fp32_from_fp32_groups = [[] for _ in range(n)]
        self._mains: dict[int, Any] = {}
        for part in self._parts:
            groups, states = self._gathered(part, with_state)
            for name, p in part.named:
                main, state, k = p, states[name], groups[name]
                if is_mixed and p.dtype != torch.float32:
                    main = state.pop(_MAIN, None)
                    if main is None:
                        main = torch.zeros_like(p, dtype=torch.float32)
                    whole.float16_groups[k].append(p)
                    whole.fp32_from_float16_groups[k].append(main)
                elif is_mixed:
                    whole.fp32_from_fp32_groups[k].append(p)
                self._mains[id(p)] = main
                inner.param_groups[k]["params"].append(main)
                if state:
                    inner.state[main] = state
        return whole

    def _gathered(
        self, part: Any, with_state: bool
    ) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
        """Returns the group of each parameter of a part, and its whole state.
        Collective over the replicas, some of which have no piece of it."""
        inner = self._one.optimizer
        numbers = {
            id(p): i
            for i, one in enumerate(inner.param_groups)
            for p in one["params"]
        }
        mine: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {}
        values: dict[str, dict[str, torch.Tensor]] = {}
        for name, piece in part.shards.items():
            main = self._main(piece)
            found = dict(inner.state[main]) if main in inner.state else {}
            if main is not piece:
                found[_MAIN] = main
            values[name] = {
                k: v for k, v in found.items() if _is_like(v, piece)
            }
            kinds = {k: v.dtype for k, v in values[name].items()}
            rest = {k: v for k, v in found.items() if k not in kinds}
            mine[name] = numbers[id(main)], kinds, rest
        told: list[Any] = [None] * dist.get_world_size(part.group)
        dist.all_gather_object(told, mine, group=part.group)
        groups: dict[str, int] = {}
        states: dict[str, dict[str, Any]] = {name: {} for name, _ in part.named}
        all_kinds: dict[str, Any] = {}
        for one in told:
            for name, (number, kinds, rest) in one.items():
                groups[name] = number
                all_kinds |= kinds
                if with_state:
                    states[name] |= rest
        for key in sorted(all_kinds) if with_state else ():
            pieces = {k: v[key] for k, v in values.items() if key in v}
            found = part.gather_values(pieces, all_kinds[key])
            for name, value in found.items():
                states[name][key] = value
        return groups, states


def _is_like(value: Any, p: torch.Tensor) -> bool:
    """Tests whether a state has a value for each one of a parameter."""
    return isinstance(value, torch.Tensor) and value.shape == p.shape
