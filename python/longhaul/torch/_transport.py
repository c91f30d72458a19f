# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Messages of a rank: direct, or staged through host memory.

Each link into the rank has a thread that waits for messages, records their
times, and delays them if the link is emulated. On real links of CPUs, without
adaptation, there is no thread: the pass that needs a message waits for it, as a
hand-over takes longer than a small message. On the direct path the thread that
runs passes hands sends to the pipeline's own process group. On the delegated
path a message is copied to host memory, sent from there by a thread of its link
over a gloo group or rails, and copied to the device at the other end: passes
never wait for a send (Adaptra, arXiv:2504.19232, section 5).
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .._errors import Error
from ._clocks import host_ns


class MessageError(Error, RuntimeError):
    """A message cannot be sent or received, since a rank has failed. PyTorch's
    groups raise a RuntimeError then."""


@dataclasses.dataclass(frozen=True)
class Delays:
    """Delays of an emulated link, in nanoseconds."""

    latency_ns: int
    transfer_ns: int


class Message:
    """A received message. Times are the host's clock."""

    def __init__(
        self, ops: Sequence[Any], tag: int, device: Any, link: str
    ) -> None:
        """Makes a message; `link`: the name for errors."""
        self._link = link
        self.ops = ops
        self.tag = tag
        self.works: list[Any] = []
        self.device = device
        # On a GPU: its memory may be written after earlier work on it is done.
        self.free = _event(device)
        self.posted_ns = host_ns()
        self.entered_ns = 0  # lower bound; 0: real link, unknown
        self.arrived_ns = 0
        self.copied: Any = None  # event of a GPU's stream
        self.error: BaseException | None = None
        # None: no thread waits for the message
        self.there: threading.Event | None = None

    def wait(self) -> None:
        """Returns once the message has arrived. Without a thread its arrival
        is recorded here, which may be later.

        Raises:
            MessageError: it cannot arrive; with the rank and the link.
        """
        try:
            self._wait()
        except Exception as error:
            raise MessageError(
                f"receive from rank {self.ops[0].peer} over link {self._link}: "
                f"{error}"
            ) from error

    def _wait(self) -> None:
        if self.there is None:
            for work in self.works:
                work.wait()
            self.arrived_ns = host_ns()
            return
        self.there.wait()
        if self.error is not None:
            raise self.error
        while (left := self.arrived_ns - host_ns()) > 0:
            time.sleep(left * 1e-9)
        if self.copied is not None:
            torch.cuda.current_stream(self.device).wait_event(self.copied)


class Worker:
    """A thread that runs tasks in sequence."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(
            target=self._run, name=name, daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def add(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def close(self, waits: bool) -> None:
        """Ends the thread after all added tasks; `waits`: returns then."""
        self._jobs.put(None)
        if waits:
            self._thread.join()


class Sending:
    """A send in flight; keeps its data alive until completion."""

    def __init__(self, tensors: Sequence[Any], where: str = "") -> None:
        """Makes a send; `where`: the rank and the link for errors."""
        self._where = where
        self.tensors = tensors
        self.works: list[Any] = []
        self.error: BaseException | None = None
        self.over: threading.Event | None = None

    def wait(self) -> None:
        """Returns once the data may be overwritten.

        Raises:
            MessageError: it has failed; with the rank and the link.
        """
        try:
            for work in self.works:
                work.wait()
            if self.over is not None:
                self.over.wait()
            if self.error is not None:
                raise self.error
        except Exception as error:
            if not self._where:
                raise
            raise MessageError(f"{self._where}: {error}") from error


def _event(device: Any) -> Any:
    """Records an event behind the work on this thread's stream so far."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


def _host_like(tensor: torch.Tensor) -> torch.Tensor:
    """Makes host memory for a tensor, pinned if the tensor is on a GPU."""
    return torch.empty(
        tensor.shape,
        dtype=tensor.dtype,
        device="cpu",
        pin_memory=tensor.device.type == "cuda",
    )


class Inlet:
    """The receiving end of a link."""

    def __init__(
        self, name: str, link: str, host: Any, device: Any, is_observed: bool
    ) -> None:
        """Makes the end of a link. `name`: of its sender, for the thread;
        `link`: of the link, for errors; `host`: HostMessages for staged
        messages; `is_observed`: arrivals are recorded at once, for
        adaptation."""
        self.delays: Delays | None = None  # None: a real link
        self._name, self._link = name, link
        self._host = host
        self._device = device
        self._is_observed = is_observed or device.type != "cpu"
        self._free_ns = 0
        self._stream: Any = None
        self._worker: Worker | None = None

    def post(self, ops: Sequence[Any], tag: int, staged: bool) -> Message:
        """Posts a receive: in the pipeline's group, or in host memory."""
        message = Message(ops, tag, self._device, self._link)
        if not staged:
            message.works = [
                dist.irecv(op.tensor, op.peer, group=op.group, tag=tag + i)
                for i, op in enumerate(ops)
            ]
        if staged or self._is_observed or self.delays is not None:
            message.there = threading.Event()
            if self._worker is None:
                self._worker = Worker(f"longhaul from {self._name}")
            self._worker.add(lambda: self._await(message, staged))
        return message

    def _await(self, message: Message, staged: bool) -> None:
        try:
            if staged:
                self._take_staged(message)
            else:
                self._take(message)
            self._hold(message)
        except BaseException as error:  # the step raises it
            message.error = error
        assert message.there is not None
        message.there.set()

    def _take(self, message: Message) -> None:
        if self._device.type != "cuda":
            for work in message.works:
                work.wait()
            return
        with self._on_own_stream(message):
            for work in message.works:
                work.wait()

    def _take_staged(self, message: Message) -> None:
        with torch.no_grad(), self._on_own_stream(message):
            for i, op in enumerate(message.ops):
                host = _host_like(op.tensor)
                self._host.receive(host, op.peer, message.tag + i)
                op.tensor.copy_(host, non_blocking=True)

    @contextlib.contextmanager
    def _on_own_stream(self, message: Message) -> Iterator[None]:
        """On a GPU, copies run on a stream of this link, behind earlier work
        on the message's memory. A message has arrived once the stream is done.
        """
        if self._device.type != "cuda":
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(message.free)
            yield
            message.copied = _event(self._device)
            message.copied.synchronize()

    def _hold(self, message: Message) -> None:
        """Computes its times on an emulated link: first in, first out."""
        now = host_ns()
        delays = self.delays
        if delays is None:
            message.arrived_ns = now
            return
        # The real transfer time is part of the emulated delay. Counted as
        # waiting for the link, it would make the spacing of messages look like
        # a transfer time.
        queued = self._free_ns > now
        message.entered_ns = self._free_ns if queued else message.posted_ns
        self._free_ns = max(now, self._free_ns) + delays.transfer_ns
        message.arrived_ns = self._free_ns + delays.latency_ns

    def close(self, waits: bool) -> None:
        if self._worker is not None:
            self._worker.close(waits)


class Outlet:
    """The sending end of a link."""

    def __init__(self, name: str, link: str, host: Any, device: Any) -> None:
        """Makes the end of a link, as an Inlet's; `name`: of its receiver."""
        self._name, self._link = name, link
        self._host = host
        self._device = device
        self._stream: Any = None
        self._worker: Worker | None = None

    def send(self, ops: Sequence[Any], tag: int, staged: bool) -> Sending:
        where = f"send to rank {ops[0].peer} over link {self._link}"
        sending = Sending([op.tensor for op in ops], where)
        if not staged:
            sending.works = [
                dist.isend(op.tensor, op.peer, group=op.group, tag=tag + i)
                for i, op in enumerate(ops)
            ]
            return sending
        tensors = [op.tensor.detach() for op in ops]
        if self._device.type != "cuda":  # may be overwritten after this returns
            tensors = [tensor.clone() for tensor in tensors]
        made = _event(self._device)
        peers = [op.peer for op in ops]
        sending.tensors = ()
        sending.over = threading.Event()
        if self._worker is None:
            self._worker = Worker(f"longhaul to {self._name}")
        self._worker.add(
            lambda: self._deliver(sending, peers, tensors, made, tag)
        )
        return sending

    def _deliver(
        self,
        sending: Sending,
        peers: list[int],
        tensors: list[torch.Tensor],
        made: Any,
        tag: int,
    ) -> None:
        try:
            for i, (peer, tensor) in enumerate(
                zip(peers, tensors, strict=True)
            ):
                host = self._in_host_memory(tensor, made)
                self._host.send(host, peer, tag + i)
        except BaseException as error:  # the step raises it
            sending.error = error
        assert sending.over is not None
        sending.over.set()

    def _in_host_memory(self, tensor: torch.Tensor, made: Any) -> torch.Tensor:
        """On a GPU, copies run on a stream of this link, for which no pass
        waits."""
        if self._device.type != "cuda":
            return tensor
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        host = _host_like(tensor)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(made)
            host.copy_(tensor, non_blocking=True)
            self._stream.synchronize()
        return host

    def close(self, waits: bool) -> None:
        if self._worker is not None:
            self._worker.close(waits)
