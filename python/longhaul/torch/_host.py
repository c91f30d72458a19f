# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Messages between ranks over host memory: by a gloo group, or over rails.

Rails are several connections between each two ranks over separate network
interfaces. If an interface goes down, messages continue on the others; the
library's transport does this (longhaul/experimental/transport.h).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pickle
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .._errors import Error, FileError, InvalidError
from .._library import encoded, ffi, lib, options, text_of, try_call
from ._clocks import host_clock
from ._transport import MessageError, Sending, Worker

_VOTE_TAG, _OBJECT_TAG = 5, 6  # below the tags of messages between passes
_SECRET_BYTES = 32
_NOTICE_BYTES = 400
_JOIN_NS = 60 * 10**9  # all ranks begin to join together


class HostMessages:
    """Messages between all ranks of the job. Tensors are in host memory."""

    def send(self, tensor: torch.Tensor, rank: int, tag: int) -> None:
        """Sends a tensor; returns when it may be overwritten."""
        raise NotImplementedError

    def receive(self, tensor: torch.Tensor, rank: int, tag: int) -> None:
        raise NotImplementedError

    def begin_send(self, tensor: torch.Tensor, rank: int, tag: int) -> Any:
        """Begins to send; the result's wait() ends it. The messages of a rank
        arrive in order."""
        raise NotImplementedError

    def begin_receive(self, tensor: torch.Tensor, rank: int, tag: int) -> Any:
        """Begins to receive; the result's wait() ends it."""
        raise NotImplementedError

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Returns the tensors of all ranks, which have one shape."""
        raise NotImplementedError

    def separate_votes(self) -> None:
        """Lets all_gather() run while another thread exchanges messages;
        collective."""

    def read_notices(self) -> list[str]:
        """Returns new sentences about lost and reconnected connections."""
        return []

    def close(self, failure: str | None = None) -> None:
        """Ends the messages. `failure`: the reason why this rank has failed,
        which all waits of other ranks over rails get."""

    def send_object(self, what: Any, rank: int) -> None:
        self.send_bytes(pickle.dumps(what), rank)

    def send_bytes(self, what: bytes, rank: int) -> None:
        data = torch.frombuffer(bytearray(what), dtype=torch.uint8)
        size = torch.tensor([data.numel()], device="cpu")
        self.send(size, rank, _OBJECT_TAG)
        self.send(data, rank, _OBJECT_TAG)

    def all_gather_object(self, what: Any) -> list[Any]:
        """Returns the objects of all ranks."""
        data = pickle.dumps(what)
        size = torch.tensor([len(data)], device="cpu")
        most = max(int(n) for n in self.all_gather(size))
        padded = torch.zeros(most, dtype=torch.uint8, device="cpu")
        padded[: len(data)] = torch.frombuffer(
            bytearray(data), dtype=torch.uint8
        )
        # A pickled object ends itself.
        return [
            pickle.loads(one.numpy().tobytes())
            for one in self.all_gather(padded)
        ]

    def receive_object(self, rank: int) -> Any:
        return pickle.loads(self.receive_bytes(rank))

    def receive_bytes(self, rank: int) -> bytes:
        size = torch.empty(1, dtype=torch.int64, device="cpu")
        self.receive(size, rank, _OBJECT_TAG)
        data = torch.empty(int(size), dtype=torch.uint8, device="cpu")
        self.receive(data, rank, _OBJECT_TAG)
        return data.numpy().tobytes()


class GlooMessages(HostMessages):
    """Messages by a gloo group of all ranks."""

    def __init__(self, group: Any, limit: datetime.timedelta) -> None:
        self._group = self._votes = group
        self._limit = limit

    def separate_votes(self) -> None:
        self._votes = dist.new_group(backend="gloo", timeout=self._limit)

    def send(self, tensor: torch.Tensor, rank: int, tag: int) -> None:
        dist.send(tensor, rank, group=self._group, tag=tag)

    def receive(self, tensor: torch.Tensor, rank: int, tag: int) -> None:
        dist.recv(tensor, rank, group=self._group, tag=tag)

    def begin_send(self, tensor: torch.Tensor, rank: int, tag: int) -> Any:
        return dist.isend(tensor, rank, group=self._group, tag=tag)

    def begin_receive(self, tensor: torch.Tensor, rank: int, tag: int) -> Any:
        return dist.irecv(tensor, rank, group=self._group, tag=tag)

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        made = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(made, tensor, group=self._votes)
        return made


class _Later:
    """A call that wait() makes."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.wait = call


class RailMessages(HostMessages):
    """Messages over rails."""

    def __init__(
        self, names: Sequence[str], group: Any, limit: datetime.timedelta
    ) -> None:
        """Connects all ranks; collective.

        Args:
            names: this rank's rails: interfaces, networks or addresses.
            group: gloo group of all ranks, for the start.
            limit: of each wait for a message.

        Raises:
            InvalidError: a rail is none of this host's.
            Error: the ranks cannot be connected.
        """
        self._rank, self._n = dist.get_rank(), dist.get_world_size()
        self._sender: Worker | None = None
        told: list[Any] = [None] * self._n
        host = os.environ.get("MASTER_ADDR", "")
        dist.all_gather_object(
            told, (host_clock(), len(names), host), group=group
        )
        if len({n for _, n, _ in told}) > 1:
            raise InvalidError(
                "rails: must be equally many on all ranks; they have "
                + ", ".join(str(n) for _, n, _ in told)
            )
        is_one_host = len({clock for clock, _, _ in told}) == 1
        if not all(host for _, _, host in told) and not is_one_host:
            raise InvalidError(
                "rails: the ranks are on several hosts; set MASTER_ADDR to an "
                "address of rank 0's host, as torchrun does"
            )
        host = host or "127.0.0.1"
        kept = [ffi.new("char[]", encoded(name)) for name in names]
        out = ffi.new("lh_transport **")
        with contextlib.ExitStack() as sockets:
            listener, port, secret = _meet(host, group, sockets)
            asked = options(
                "lh_transport_options",
                rank=self._rank,
                n_ranks=self._n,
                host=ffi.new("char[]", encoded(host)),
                port=port,
                listener=listener,
                job=ffi.new("char[]", b"longhaul.torch"),
                secret=ffi.new("char[]", secret),
                secret_bytes=_SECRET_BYTES,
                join_ns=_JOIN_NS,
                wait_ns=round(limit.total_seconds() * 1e9),
                n_rails=len(kept),
                rails=ffi.new("char *[]", kept),
                stop=lib.longhaul_on_wait,
            )
            _try(lib.lh_transport_join, asked, out)
        # Freed by close() alone, after the last call of a thread.
        self._transport: Any = out[0]
        self._calls = threading.Condition()
        self._n_calls = 0

    def _call(self, function: Any, *arguments: Any) -> None:
        with self._calls:
            if self._transport is None:
                raise MessageError("the messages have ended")
            transport = self._transport
            self._n_calls += 1
        try:
            _try(function, transport, *arguments)
        finally:
            with self._calls:
                self._n_calls -= 1
                self._calls.notify_all()

    def send(self, tensor: torch.Tensor, rank: int, tag: int) -> None:
        tensor = tensor.contiguous()
        size = tensor.numel() * tensor.element_size()
        data = ffi.cast("void *", tensor.data_ptr())
        self._call(lib.lh_transport_send, rank, tag, data, size)

    def receive(self, tensor: torch.Tensor, rank: int, tag: int) -> None:
        if not tensor.is_contiguous():
            made = torch.empty_like(
                tensor, memory_format=torch.contiguous_format
            )
            self.receive(made, rank, tag)
            tensor.copy_(made)
            return
        size = tensor.numel() * tensor.element_size()
        data = ffi.cast("void *", tensor.data_ptr())
        self._call(lib.lh_transport_receive, rank, tag, size, data)

    def begin_send(self, tensor: torch.Tensor, rank: int, tag: int) -> Any:
        if self._sender is None:
            self._sender = Worker("longhaul control")
        sending = Sending([tensor])
        sending.over = threading.Event()
        self._sender.add(lambda: self._deliver(sending, rank, tag))
        return sending

    def _deliver(self, sending: Sending, rank: int, tag: int) -> None:
        try:
            self.send(sending.tensors[0], rank, tag)
        except BaseException as error:  # wait() raises it
            sending.error = error
        assert sending.over is not None
        sending.over.set()

    def begin_receive(self, tensor: torch.Tensor, rank: int, tag: int) -> Any:
        return _Later(lambda: self.receive(tensor, rank, tag))

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        others = [rank for rank in range(self._n) if rank != self._rank]
        works = [self.begin_send(tensor, rank, _VOTE_TAG) for rank in others]
        made = [tensor] * self._n
        for rank in others:
            made[rank] = torch.empty_like(tensor)
            self.receive(made[rank], rank, _VOTE_TAG)
        for work in works:
            work.wait()
        return made

    def read_notices(self) -> list[str]:
        found = []
        text = ffi.new("char[]", _NOTICE_BYTES)
        while lib.lh_transport_read_notice(
            self._transport, _NOTICE_BYTES, text
        ):
            found.append(text_of(text))
        return found

    def close(self, failure: str | None = None) -> None:
        if self._transport is None:
            return
        if failure is not None:  # all waits end soon
            lib.lh_transport_abort(
                self._transport, failure.replace("\0", " ").encode()
            )
        if self._sender is not None:
            self._sender.close(True)
        with self._calls:
            ended, self._transport = self._transport, None
            self._calls.wait_for(lambda: self._n_calls == 0)
        # Delivers the reason of a failure before this process ends.
        lib.lh_transport_free(ended)


def messages_over(
    rails: str | Iterable[str] | None, group: Any, limit: datetime.timedelta
) -> HostMessages:
    """Returns the messages of all ranks: over rails, or by a gloo group;
    collective. `limit`: of each wait.

    Raises:
        InvalidError: no rail is named.
        UnsupportedError: the library has no TCP.
    """
    if rails is None:
        return GlooMessages(group, limit)
    names = rails.split(",") if isinstance(rails, str) else list(rails)
    if not names or not all(names):
        raise InvalidError(
            f"rails: {rails!r} must be names of network interfaces, networks "
            "or addresses: 'eth1,eth2'"
        )
    return RailMessages(names, group, limit)


# What a signal's handler raised during a wait of this thread.
_raised = threading.local()


def _keep(_: Any, error: BaseException, __: Any) -> None:
    _raised.error = error


@ffi.def_extern(error=True, onerror=_keep)
def longhaul_on_wait(_: Any) -> bool:
    """Runs the handlers of signals that came during a wait: Python runs them
    in each function of the main thread. The wait ends if one raises."""
    return False


def _try(function: Any, *arguments: Any) -> None:
    _raised.error = None
    try:
        try_call(function, *arguments)
    except KeyboardInterrupt as error:  # the wait was stopped
        raise (_raised.error or error) from None
    except FileError as error:  # a lost rank
        raise MessageError(str(error)) from error


def _meet(
    host: str, group: Any, sockets: contextlib.ExitStack
) -> tuple[int, int, bytes]:
    """Lets rank 0 listen at a free port of its address `host`; collective.

    Returns:
        Rank 0's socket, in `sockets`, and 0 on other ranks; its port; and a
        secret of all ranks.

    Raises:
        Error: rank 0 cannot listen.
    """
    listener, first = 0, [("", 0, b"")]
    if dist.get_rank() == 0:
        try:
            kind, _, _, _, at = socket.getaddrinfo(
                host, 0, type=socket.SOCK_STREAM
            )[0]
            made = sockets.enter_context(socket.socket(kind))
            made.bind(at)
            made.listen()
            listener, port = made.fileno(), made.getsockname()[1]
            first = [("", port, secrets.token_bytes(_SECRET_BYTES))]
        except OSError as error:  # the other ranks have to know
            first = [(str(error), 0, b"")]
    dist.broadcast_object_list(
        first, 0, group=group, device=torch.device("cpu")
    )
    wrong, port, secret = first[0]
    if wrong:
        raise Error(
            f"rails: rank 0 cannot listen at {host}: {wrong}; set MASTER_ADDR "
            "to an address of its host"
        )
    return listener, port, secret
