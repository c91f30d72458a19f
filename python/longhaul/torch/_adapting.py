# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Schedule switches during a run: agreement of all ranks between steps.

The leader is the first rank of the first replica. At the start of a step it
sends a control message to all ranks. They receive it at the end of the step, so
that no rank waits. The first replica's ranks return their measurements after
the step. A thread of the leader passes these to the library's monitor, and asks
the library's adapt for a decision. The next control message carries a proposed
schedule. At the end of that step the ranks prepare it and vote, which
synchronises them. They switch at once if all accept. The reaction to a change
in step i thus begins with step i + 3, as the library's adapt assumes: the
decision is made during the next step, and sent with the one after that.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .._errors import Error
from .._library import ffi, lib, options, owned, text_of, try_call
from .._problems import sim_options
from ._host import HostMessages
from ._orders import Course, Order
from ._records import COLUMNS, Rows, seen_of, unpacked
from ._transport import Worker

log = logging.getLogger("longhaul.torch")
_ROWS_TAG, _WORD_TAG, _TEXT_TAG = 2, 3, 4
KEEP, PROPOSE = range(2)
_BALLOT = 256  # bytes: the first is 1 if the rest is the reason to reject


@dataclasses.dataclass(frozen=True)
class Adapt:
    """Options of an adaptive run; None: as for `longhaul train --adapt`.

    Attributes:
        steps: number of steps in the run; None: unknown.
        effort: work per decision, in units of about a microsecond.
        switch_s: duration of a switch, in seconds.
        least_steps: minimum number of steps between two switches.
        at_once: a slowdown of the step by at least this share is handled
            before `least_steps` have passed.
        least_gain: minimum saving by a switch, as a share of a step.
        candidates: names of permitted schedules, separated by commas.
        warm_up: number of steps that calibrate the monitor, without events.
        receives, coupled: message semantics of the direct path, as for
            `longhaul.simulate`; with `coupled` passes wait for sends.
        staging_s: duration of a copy to or from host memory; with it messages
            may also be switched to the delegated path.
        same_sums: only schedules with the same reduction order of each chunk's
            gradients, for bitwise equal results.
    """

    steps: int | None = None
    effort: int | None = None
    switch_s: float | None = None
    least_steps: int | None = None
    at_once: float | None = None
    least_gain: float | None = None
    candidates: str | None = None
    warm_up: int | None = None
    receives: str | None = None
    coupled: int | None = None
    staging_s: float | None = None
    same_sums: bool = True


@dataclasses.dataclass(frozen=True)
class Switch:
    """A switch of schedule or path during a run.

    Attributes:
        step: the first step after the switch, counted from 0.
        to: the new schedule.
        path: the new data path.
        before_s, predicted_s: simulated duration of a step before and after.
        why: the reason, in one or two sentences.
        refused: the reason why no rank switches; None: all do.
    """

    step: int
    to: str
    path: str
    before_s: float
    predicted_s: float
    why: str
    refused: str | None = None


@dataclasses.dataclass(frozen=True)
class Word:
    """Action of all ranks at the end of a step."""

    kind: int
    text: str = ""


def _numbers(values: list[int], dtype: Any = torch.int64) -> torch.Tensor:
    """Makes a tensor in host memory, independent of the default device."""
    return torch.tensor(values, dtype=dtype, device="cpu")


def vote(against: str | None, host: HostMessages) -> str | None:
    """Collects the votes: a rank's reason for a rejection; None: all accept."""
    data = list((against or "").encode()[: _BALLOT - 1])
    data += [0] * (_BALLOT - 1 - len(data))
    own = _numbers([against is not None, *data], torch.uint8)
    for rank, ballot in enumerate(host.all_gather(own)):
        if ballot[0]:
            why = bytes(ballot[1:].tolist()).rstrip(b"\0")
            return f"rank {rank}: {why.decode(errors='replace')}"
    return None


class Follower:
    """A rank other than the leader."""

    def __init__(self, leader: int, host: HostMessages, tells: bool) -> None:
        self._leader, self._host, self._tells = leader, host, tells
        self._head: Any = None
        self._coming: Any = None
        self._sent: list[tuple[Any, torch.Tensor]] = []

    def _send(self, numbers: torch.Tensor, tag: int) -> None:
        """Sends without blocking; keeps the numbers alive until completion."""
        work = self._host.begin_send(numbers, self._leader, tag)
        self._sent.append((work, numbers))
        while len(self._sent) > 8:
            self._sent.pop(0)[0].wait()

    def begin(self, step: int) -> None:
        self._head = torch.empty(2, dtype=torch.int64, device="cpu")
        self._coming = self._host.begin_receive(
            self._head, self._leader, _WORD_TAG
        )

    def end(self, step: int, rows: torch.Tensor) -> Word:
        if self._tells:
            self._send(rows, _ROWS_TAG)
        self._coming.wait()
        kind, size = self._head.tolist()
        if size == 0:
            return Word(kind)
        data = torch.empty(size, dtype=torch.uint8, device="cpu")
        self._host.receive(data, self._leader, _TEXT_TAG)
        return Word(kind, bytes(data.tolist()).decode())

    def answer(self, step: int, followed: bool) -> None:
        """Does nothing: the leader knows the result."""

    def close(self, waits: bool) -> None:
        for work, _ in self._sent if waits else ():
            work.wait()
        self._sent.clear()


class Leader:
    """The rank that decides, and its thread."""

    def __init__(
        self,
        course: Course,
        order: Order,
        how: Adapt,
        clocks: Sequence[int],
        members: Sequence[int],
        host: HostMessages,
    ) -> None:
        self._course, self._order, self._how = course, order, how
        self._members, self._host = members, host
        rank = dist.get_rank()
        self._others = [r for r in range(dist.get_world_size()) if r != rank]
        self._sent: list[tuple[Any, torch.Tensor]] = []
        self._lock = threading.Lock()
        self._proposal: tuple[Order, str] | None = None
        self._open: Order | None = None  # subject of the vote
        self._word = Word(KEEP)
        self._make(clocks)
        self._worker = Worker("longhaul adapt")

    def _make(self, clocks: Sequence[int]) -> None:
        how = self._how
        sim = sim_options(how.receives, how.coupled, True)
        numbers = {clock: i for i, clock in enumerate(dict.fromkeys(clocks))}
        watched = options(
            "lh_monitor_options",
            clocks=ffi.new("uint32_t[]", [numbers[c] for c in clocks]),
            sim=sim,
            warm_up=how.warm_up,
        )
        self._monitor = owned(
            "lh_monitor",
            lib.lh_monitor_free,
            lib.lh_monitor_make,
            self._course.pipeline,
            self._order.schedule,
            watched,
        )
        names = how.candidates
        staged = how.staging_s
        decides = options(
            "lh_adapt_options",
            sim=sim,
            effort=how.effort,
            switch_ns=None
            if how.switch_s is None
            else round(how.switch_s * 1e9),
            min_interval_steps=how.least_steps,
            keep_reduction_order=how.same_sums,
            urgent_slowdown=how.at_once,
            min_gain=how.least_gain,
            candidates=None
            if names is None
            else ffi.new("char[]", names.encode()),
            delegation=None
            if staged is None
            else options("lh_delegation", staging_ns=round(staged * 1e9)),
        )
        self._adapt = owned(
            "lh_adapt",
            lib.lh_adapt_free,
            lib.lh_adapt_make,
            self._course.pipeline,
            self._order.schedule,
            decides,
        )

    # rank thread

    def _send(self, numbers: torch.Tensor, tag: int) -> None:
        for rank in self._others:
            work = self._host.begin_send(numbers, rank, tag)
            self._sent.append((work, numbers))
        while len(self._sent) > 8 * len(self._others):
            self._sent.pop(0)[0].wait()

    def begin(self, step: int) -> None:
        with self._lock:
            self._word = self._next()
        data = self._word.text.encode()
        self._send(_numbers([self._word.kind, len(data)]), _WORD_TAG)
        if data:
            self._send(_numbers(list(data), torch.uint8), _TEXT_TAG)

    def _next(self) -> Word:
        if self._proposal is not None:
            self._open, text = self._proposal
            self._proposal = None
            return Word(PROPOSE, text)
        return Word(KEEP)

    def end(self, step: int, rows: torch.Tensor) -> Word:
        self._worker.add(lambda: self._safely(lambda: self._learn(step, rows)))
        return self._word

    def answer(self, step: int, followed: bool) -> None:
        """Records the result of the last proposal, effective from that step
        on."""
        self._worker.add(
            lambda: self._safely(lambda: self._answer(step, followed))
        )

    def close(self, waits: bool) -> None:
        """Ends the decisions and drops pending measurements."""
        self._worker.close(waits)
        for work, _ in self._sent if waits else ():
            work.wait()
        self._sent.clear()

    # decision thread

    def _safely(self, job: Callable[[], None]) -> None:
        """Skips a step without usable measurements, and reports it."""
        try:
            job()
        except Error as error:
            log.warning("adapt: %s", error)

    def _rows(self, own: torch.Tensor) -> Rows:
        order = self._order
        rows = unpacked(order, 0, own)
        for device in range(1, self._course.n_devices):
            numbers = torch.empty(
                (len(order.passes[device]), COLUMNS),
                dtype=torch.int64,
                device="cpu",
            )
            self._host.receive(numbers, self._members[device], _ROWS_TAG)
            rows.update(unpacked(order, device, numbers))
        return rows

    def _learn(self, step: int, own: torch.Tensor) -> None:
        rows = self._rows(own)
        seen = seen_of(self._course, rows, step)
        try_call(lib.lh_monitor_add, self._monitor, seen)
        with self._lock:
            busy = self._open is not None or self._proposal is not None
        if not busy:
            self._decide(step)

    def _decide(self, step: int) -> None:
        now = owned(
            "lh_pipeline",
            lib.lh_pipeline_free,
            lib.lh_monitor_pipeline,
            self._monitor,
        )
        n = ffi.new("uint32_t *")
        events = lib.lh_monitor_active_events(self._monitor, n)
        left = (1 << 64) - 1
        if self._how.steps is not None:
            left = max(self._how.steps - step - 1, 0)
        given = options(
            "lh_adapt_input",
            pipeline=now,
            n_events=n[0],
            events=events,
            step=step,
            steps_left=left,
        )
        out = ffi.new("lh_decision **")
        try_call(lib.lh_adapt_decide, self._adapt, given, out)
        if out[0].is_switch:
            self._propose(step, out[0], now)

    def _propose(self, step: int, decision: Any, now: Any) -> None:
        name = text_of(decision.name)
        order = self._course.lowered(decision.schedule, name, now)
        if self._how.same_sums and not order.adds_alike(self._order):
            log.info("adapt: %s adds gradients in another order", name)
            try_call(lib.lh_adapt_confirm, self._adapt, step + 1, False)
            return
        links: list[str] | None = None
        if self._how.staging_s is not None:
            links = self._delegated(decision)
        text = json.dumps(
            {
                "name": name,
                "passes": self._course.text(order),
                "rows": order.rows,
                "delegated": links,
                "before_s": decision.current_ns * 1e-9,
                "predicted_s": decision.predicted_ns * 1e-9,
                "why": text_of(decision.why),
            }
        )
        with self._lock:
            self._proposal = order, text

    def _delegated(self, decision: Any) -> list[str]:
        links = sorted(self._course.links().values())
        if decision.path == lib.LH_DATA_PATH_DELEGATED:
            return [link.name for link in links]
        if decision.path == lib.LH_DATA_PATH_DIRECT:
            return []
        return [x.name for x in links if decision.delegated[x.number]]

    def _answer(self, step: int, followed: bool) -> None:
        """Applies the result of the proposal before processing `step`."""
        with self._lock:
            order, self._open = self._open, None
        try_call(lib.lh_adapt_confirm, self._adapt, step, followed)
        if followed and order is not None:
            self._order = order
            try_call(lib.lh_monitor_set_schedule, self._monitor, order.schedule)
