# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""The links of a rank's device: their data paths, emulated delays, and ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .._errors import InvalidError, UnsupportedError
from ._host import HostMessages, RailMessages
from ._inject import injected
from ._orders import Course, links_of
from ._transport import Delays, Inlet, Message, Outlet, Sending


class Links:
    """The links into and out of a device.

    Attributes:
        path: data path of messages: "direct", "delegated" or "mixed".
        transfers: of emulated links, by their end devices: duration of a
            message's transfer, in nanoseconds.
    """

    def __init__(
        self,
        course: Course,
        host: HostMessages,
        device: int,
        place: Any,
        is_staged: bool,
    ) -> None:
        """Makes the links; all are real and direct.

        Args:
            course: the pipeline.
            host: messages of delegated links.
            device: the device of this rank.
            place: of this rank's tensors.
            is_staged: the process group cannot send the tensors' memory.
        """
        self.path = "direct"
        self.transfers: dict[tuple[int, int], int] = {}
        self._course, self._host = course, host
        self._device, self._place = device, place
        self._is_staged = is_staged
        self._links = course.links()
        self._delegated: frozenset[tuple[int, int]] = frozenset()
        self._is_observed = self._is_emulated = False
        self._delays: dict[tuple[int, int], Delays] = {}
        self._inlets: dict[int, Inlet] = {}
        self._outlets: dict[int, Outlet] = {}

    # data paths

    def choose_path(self, path: str | Iterable[str] | None) -> None:
        """Sets the data path of each link; None: the usual one.

        Raises:
            InvalidError: the path names another link, or rails are unused.
            UnsupportedError: a direct link cannot send the tensors' memory.
        """
        has_rails = isinstance(self._host, RailMessages)
        if path is None:
            is_staged = self._is_staged or has_rails
            path = "delegated" if is_staged else "direct"
        names = {link.name for link in self._links.values()}
        wanted = links_of(path, names)
        if has_rails and names and not wanted:
            raise InvalidError(
                "rails: only delegated messages use them, and path is "
                "'direct'; leave one of both out"
            )
        if self._is_staged and wanted != names:
            raise UnsupportedError(
                f"path: {sorted(names - wanted)[0]!r} is to be direct, but the "
                "stages' process group is gloo, which sends no GPU's memory; "
                'take "delegated", or NCCL for the group'
            )
        self.delegate(wanted)

    def delegate(self, names: Iterable[str]) -> None:
        """Delegates the links with these names, and no others."""
        names = set(names)
        self._delegated = frozenset(
            ends for ends, link in self._links.items() if link.name in names
        )
        self.path = "mixed" if self._delegated else "direct"
        if self._delegated == frozenset(self._links):
            staged = self._links or self._is_staged
            self.path = "delegated" if staged else "direct"

    # delays

    def inject(self, text: str) -> None:
        """Emulates the links from the next step on, with these delays in place
        of the plan's."""
        emulated = self._course.links(injected(self._course.pipeline, text))
        self._is_emulated = True
        self.transfers = {
            ends: link.transfer_ns for ends, link in emulated.items()
        }
        self._delays = {
            ends: Delays(link.latency_ns, link.transfer_ns)
            for ends, link in emulated.items()
        }
        for device, inlet in self._inlets.items():
            inlet.delays = self._delays.get((device, self._device))

    def observe(self) -> None:
        """Records arrivals at once, for adaptation; before the first step."""
        self._is_observed = True

    # messages

    def post(self, device: int, ops: Sequence[Any], tag: int) -> Message:
        """Posts the receive of a message from a device."""
        if device not in self._inlets:
            made = Inlet(
                f"device {device}",
                self._name(device, self._device),
                self._host,
                self._place,
                self._is_observed,
            )
            if self._is_emulated:
                made.delays = self._delays.get((device, self._device))
            self._inlets[device] = made
        staged = self._uses_host(device, self._device)
        return self._inlets[device].post(ops, tag, staged)

    def send(self, device: int, ops: Sequence[Any], tag: int) -> Sending:
        """Begins to send a message to a device."""
        if device not in self._outlets:
            self._outlets[device] = Outlet(
                f"device {device}",
                self._name(self._device, device),
                self._host,
                self._place,
            )
        staged = self._uses_host(self._device, device)
        return self._outlets[device].send(ops, tag, staged)

    def _uses_host(self, source: int, to: int) -> bool:
        return self._is_staged or (source, to) in self._delegated

    def _name(self, source: int, to: int) -> str:
        link = self._links.get((source, to))
        return f"{source}>{to}" if link is None else link.name

    # the ends' threads

    def move(self, device: int) -> None:
        """Ends the links of this rank's device, between two steps, and makes
        those of another one."""
        self.close(True)
        self._device = device

    def close(self, waits: bool) -> None:
        """Ends the threads after the messages in flight; `waits`: returns
        then."""
        for end in (*self._inlets.values(), *self._outlets.values()):
            end.close(waits)
        self._inlets.clear()
        self._outlets.clear()
