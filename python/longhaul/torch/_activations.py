# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Recomputes single operations of layers, and offloads activations to host
memory."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from .._errors import InvalidError, UnsupportedError

_local = threading.local()


@contextlib.contextmanager
def operation(name: str) -> Iterator[None]:
    """Names the operations of a layer that run in this context, as plans name
    those that they recompute.

        with longhaul.torch.operation("mlp norm"):
            y = self.norm(x)
    """
    names = getattr(_local, "names", ())
    _local.names = (*names, name)
    try:
        yield
    finally:
        _local.names = names


def _name(layer: nn.Module, names: Mapping[str, str | Iterable[str]]) -> None:
    """Names the submodules of a layer."""
    for name, paths in names.items():
        for path in [paths] if isinstance(paths, str) else paths:
            try:
                module = layer.get_submodule(path)
            except AttributeError as error:
                raise InvalidError(
                    f"operations: {name!r}: a layer, {type(layer).__name__}, "
                    f"has no submodule {path!r}"
                ) from error
            module.forward = operation(name)(module.forward)


def recompute(
    layer: nn.Module,
    recomputed: frozenset[str],
    names: Mapping[str, str | Iterable[str]],
) -> None:
    """Lets a layer's backward recompute the named operations, with the results
    of all others saved; with no names everything but the layer's input."""
    forward = layer.forward
    if not recomputed:
        layer.forward = functools.partial(
            checkpoint, forward, use_reentrant=False
        )
        return
    _name(layer, names)
    missing = set(recomputed)

    def policy(_: Any, __: Any, *___: Any, **____: Any) -> CheckpointPolicy:
        here = recomputed.intersection(getattr(_local, "names", ()))
        missing.difference_update(here)
        if here:
            return CheckpointPolicy.MUST_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def run(*args: Any, **more: Any) -> Any:
        made = checkpoint(
            forward, *args, use_reentrant=False, context_fn=contexts, **more
        )
        # Without gradients checkpoint() does not call the policy.
        if missing and torch.is_grad_enabled():
            raise UnsupportedError(
                f"elastic.recomputed: a layer, {type(layer).__name__}, ran no "
                f"operation {sorted(missing)[0]!r}; name it by `operations` or "
                "`with longhaul.torch.operation(...)` in the layer's forward"
            )
        return made

    layer.forward = run


class Offload:
    """Copies activations of layers to host memory in F, and back in B: on GPUs
    on a stream of its own.

    Attributes:
        n_bytes: bytes copied to the host since the runtime was made.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = (
            torch.cuda.Stream(device) if device.type == "cuda" else None
        )
        self.n_bytes = 0

    def wrap(self, layer: nn.Module) -> None:
        """Offloads what a layer saves for its backward, except for its inputs
        and parameters."""
        forward = layer.forward

        def run(*args: Any, **more: Any) -> Any:
            tensors = [
                x
                for x in (*args, *more.values(), *layer.parameters())
                if isinstance(x, torch.Tensor)
            ]
            kept = {x.untyped_storage().data_ptr() for x in tensors}
            # A tensor that several functions save is copied once. References
            # keep its memory from being used again meanwhile.
            copies: dict[Any, tuple[torch.Tensor, Any]] = {}

            def pack(x: torch.Tensor) -> Any:
                at = x.untyped_storage().data_ptr()
                if at in kept or x.numel() == 0:
                    return x
                key = (x.data_ptr(), x.dtype, x.shape, x.stride(), x._version)
                if key not in copies:
                    copies[key] = x, self._store(x)
                return copies[key][1]

            with torch.autograd.graph.saved_tensors_hooks(pack, self._load):
                made = forward(*args, **more)
            copies.clear()
            return made

        layer.forward = run

    def _store(self, x: torch.Tensor) -> Callable[[], torch.Tensor]:
        x = x.detach()
        self.n_bytes += x.numel() * x.element_size()
        if self._stream is None:
            copy = x.clone()
            return lambda: copy
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            host = torch.empty_like(x, device="cpu", pin_memory=True)
            host.copy_(x, non_blocking=True)
        x.record_stream(stream)

        def load() -> torch.Tensor:
            now = torch.cuda.current_stream(self._device)
            with torch.cuda.stream(stream):
                back = torch.empty_like(host, device=self._device)
                back.copy_(host, non_blocking=True)
            now.wait_stream(stream)
            back.record_stream(now)
            return back

        return load

    @staticmethod
    def _load(packed: Any) -> torch.Tensor:
        return packed if isinstance(packed, torch.Tensor) else packed()
