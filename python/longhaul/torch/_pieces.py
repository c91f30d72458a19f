# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Parts of a model that run alone, and what they take."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Runs that choose kernels and warm caches count for nothing.
_WARM_UP = 3


@dataclasses.dataclass
class Piece:
    """Something of a model that sees one microbatch.

    Attributes:
        run: its forward pass: the outputs that go on.
        inputs: tensors whose gradients D makes.
        weights: parameters whose gradients W adds up.
        kept_inputs: bytes of the inputs that stay for the backward; None: what
            it is seen to keep.
        shared: tensors that are there anyway, such as masks and rotations.
    """

    run: Callable[[], Sequence[torch.Tensor]]
    inputs: list[torch.Tensor]
    weights: list[torch.Tensor]
    kept_inputs: int | None = None
    shared: list[torch.Tensor] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Times:
    """Milliseconds of F, D and W, and bytes that stay from F to W."""

    f: float
    d: float
    w: float
    kept: int

    def __add__(self, other: Times) -> Times:
        return Times(
            self.f + other.f,
            self.d + other.d,
            self.w + other.w,
            self.kept + other.kept,
        )


def size_of(*tensors: torch.Tensor) -> int:
    """Bytes."""
    return sum(x.numel() * x.element_size() for x in tensors)


class Clock:
    """Times work in ms: CUDA events on a GPU, the host's clock else."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        # Written between runs, so that none finds the last one's operands.
        size = 256 << 20 if self._is_cuda else 1024
        self._flush = torch.empty(size, dtype=torch.int8, device=device)
        self._begin: Any = None

    def start(self) -> None:
        self._flush.zero_()
        if not self._is_cuda:
            self._begin = time.perf_counter()
            return
        self._begin = torch.cuda.Event(enable_timing=True)
        # The host runs ahead of the GPU, as in training.
        torch.cuda._sleep(2_000_000)
        self._begin.record()

    def stop(self) -> float:
        if not self._is_cuda:
            return (time.perf_counter() - self._begin) * 1e3
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        end.synchronize()
        return self._begin.elapsed_time(end)


def _once(
    piece: Piece, clock: Clock, sums: list[torch.Tensor]
) -> tuple[float, float, float]:
    clock.start()
    outputs = piece.run()
    f = clock.stop()
    ones = [torch.ones_like(y) for y in outputs]
    d = 0.0
    if piece.inputs:
        clock.start()
        torch.autograd.grad(
            outputs, piece.inputs, ones, retain_graph=True, allow_unused=True
        )
        d = clock.stop()
    clock.start()
    gradients = torch.autograd.grad(
        outputs, piece.inputs + piece.weights, ones, allow_unused=True
    )
    made = gradients[len(piece.inputs) :]
    for total, gradient in zip(sums, made, strict=True):
        if gradient is not None:  # of experts to which no token went
            total.add_(gradient)
    both = clock.stop()
    return f, d, max(both - d, 0.0)


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def kept_bytes(piece: Piece) -> int:
    """What autograd saves for the backward, each storage once, but for weights
    and what goes on as the next part's input."""
    passed = {_place(t) for t in (*piece.weights, *piece.shared)}
    if piece.kept_inputs is not None:
        passed |= {_place(t) for t in piece.inputs}
    kept: dict[int, torch.Tensor] = {}

    def saved(tensor: torch.Tensor) -> None:
        # An output that its own function saves would never be freed if it were
        # returned itself. Nothing goes back through this run.
        kept[_place(tensor)] = tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(saved, lambda _: None):
        outputs = piece.run()
    passed |= {_place(y) for y in outputs}
    total = sum(
        tensor.untyped_storage().nbytes()
        for at, tensor in kept.items()
        if at not in passed
    )
    return total + (piece.kept_inputs or 0)


def timed(piece: Piece, clock: Clock, repeats: int) -> Times:
    """Medians; gradients of weights are added up in fp32."""
    sums = [torch.zeros_like(w, dtype=torch.float) for w in piece.weights]
    runs = [_once(piece, clock, sums) for _ in range(repeats + _WARM_UP)]
    f, d, w = (
        statistics.median(column)
        for column in zip(*runs[_WARM_UP:], strict=True)
    )
    return Times(f, d, w, kept_bytes(piece))
