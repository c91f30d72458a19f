# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Parts of a model that run alone, and their measured cost."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Warm-up runs, which select kernels and fill caches, are not measured.
_WARM_UP = 3


@dataclasses.dataclass
class Piece:
    """A part of a model for one microbatch.

    Attributes:
        run: its forward pass; returns the outputs for the next part.
        inputs: tensors whose gradients D computes.
        weights: parameters whose gradients W accumulates.
        kept_inputs: bytes of the inputs saved for the backward; None: measured.
        shared: tensors that exist anyway, such as masks and rotations.
    """

    run: Callable[[], Sequence[torch.Tensor]]
    inputs: list[torch.Tensor]
    weights: list[torch.Tensor]
    kept_inputs: int | None = None
    shared: list[torch.Tensor] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Times:
    """Milliseconds of F, D and W, and bytes saved from F to W."""

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
    """Times work in ms: by CUDA events on a GPU, else by the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        # Written between runs to evict the last operands from the caches.
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
        if gradient is not None:  # of experts without tokens
            total.add_(gradient)
    both = clock.stop()
    return f, d, max(both - d, 0.0)


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def kept_bytes(piece: Piece) -> int:
    """Counts the bytes that autograd saves for the backward, each storage
    once, except for weights and the next part's input."""
    passed = {_place(t) for t in (*piece.weights, *piece.shared)}
    if piece.kept_inputs is not None:
        passed |= {_place(t) for t in piece.inputs}
    kept: dict[int, torch.Tensor] = {}

    def saved(tensor: torch.Tensor) -> None:
        # If a function saves its own output, returning that output would
        # create a cycle that is never freed. This run needs no backward.
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
    """Returns medians; weight gradients are accumulated in fp32."""
    sums = [torch.zeros_like(w, dtype=torch.float) for w in piece.weights]
    runs = [_once(piece, clock, sums) for _ in range(repeats + _WARM_UP)]
    f, d, w = (
        statistics.median(column)
        for column in zip(*runs[_WARM_UP:], strict=True)
    )
    return Times(f, d, w, kept_bytes(piece))
