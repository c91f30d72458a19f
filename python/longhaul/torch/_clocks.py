# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Times of device events, in nanoseconds of the host's clock."""

from __future__ import annotations

import hashlib
import pathlib
import time
import uuid
from typing import Any

import torch


def host_ns() -> int:
    """Reads the clock that all processes of a host share."""
    return time.monotonic_ns()


def host_clock() -> int:
    """Returns an identifier that processes with the same clock share."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
    text = boot.read_text() if boot.exists() else str(uuid.getnode())
    digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


class HostMarks:
    """Time marks on a CPU: a pass ends when its call returns."""

    def begin(self) -> None:
        """Begins a step."""

    def mark(self) -> Any:
        return host_ns()

    def finish(self) -> None:
        """Completes all marks of the step, so that they can be read."""

    def ns(self, mark: Any) -> int:
        return mark


class CudaMarks:
    """Time marks in a GPU's stream, which runs asynchronously to the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._base: Any = None
        self._base_ns = 0

    def begin(self) -> None:
        torch.cuda.synchronize(self._device)
        self._base = self.mark()
        self._base.synchronize()
        self._base_ns = host_ns()

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def finish(self) -> None:
        torch.cuda.synchronize(self._device)

    def ns(self, mark: Any) -> int:
        # elapsed_time() is in milliseconds.
        return self._base_ns + round(self._base.elapsed_time(mark) * 1e6)


def marks_of(device: torch.device) -> HostMarks | CudaMarks:
    return CudaMarks(device) if device.type == "cuda" else HostMarks()
