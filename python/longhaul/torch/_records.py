# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Measurements of a step, exchanged by ranks as numbers, and their conversion
to the library's traces and monitor observations.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import torch

from .._library import encoded, ffi, lib, made_text, options, owned, try_call
from ._host import HostMessages
from ._orders import Course, Order, Pass, pass_of

_TRACE_TAG = 1


@dataclasses.dataclass
class Row:
    """A pass of this rank, and its input message.

    Times are nanoseconds of the host's clock; 0: none.
    """

    could_ns: int = 0  # its device is free and its input available
    start_ns: int = 0
    end_ns: int = 0
    posted_ns: int = 0  # the receive of its input is posted
    entered_ns: int = 0  # lower bound on its input's link entry
    arrived_ns: int = 0


COLUMNS = len(dataclasses.fields(Row))


def packed(rows: Sequence[Row]) -> torch.Tensor:
    return torch.tensor(
        [dataclasses.astuple(row) for row in rows],
        dtype=torch.int64,
        device="cpu",
    )


def settle(
    rows: Sequence[Row], times: Sequence[tuple[Any, Any]], marks: Any
) -> None:
    """Converts marks to times; a pass can begin once its device is free."""
    marks.finish()
    free = 0
    for row, (start, end) in zip(rows, times, strict=True):
        row.start_ns, row.end_ns = marks.ns(start), marks.ns(end)
        row.start_ns = max(row.start_ns, free)
        row.end_ns = max(row.end_ns, row.start_ns)
        could = max(free, row.arrived_ns) or row.start_ns
        row.could_ns = min(could, row.end_ns)
        free = row.end_ns


Rows = dict[Pass, Row]


def unpacked(order: Order, device: int, numbers: torch.Tensor) -> Rows:
    """Maps passes to their records."""
    return {
        one: Row(*row)
        for one, row in zip(order.passes[device], numbers.tolist(), strict=True)
    }


def gathered(
    order: Order,
    device: int,
    own: torch.Tensor,
    members: Sequence[int],
    host: HostMessages,
) -> Rows | None:
    """Returns a step's passes of all devices on device 0, and None on others.
    `own`: the packed passes of this device; `members`: the devices' ranks."""
    if device != 0:
        host.send(own, members[0], _TRACE_TAG)
        return None
    rows = unpacked(order, 0, own)
    for other in range(1, len(order.passes)):
        numbers = torch.empty(
            (len(order.passes[other]), COLUMNS),
            dtype=torch.int64,
            device="cpu",
        )
        host.receive(numbers, members[other], _TRACE_TAG)
        rows.update(unpacked(order, other, numbers))
    return rows


def _producer(course: Course, order: Rows, one: Pass) -> Pass:
    """Returns the pass on another device that produces this pass's input."""
    if one.kind == "F":
        return Pass(one.chunk - 1, "F", one.microbatch)
    whole = Pass(one.chunk + 1, "B", one.microbatch)
    return whole if whole in order else Pass(one.chunk + 1, "D", one.microbatch)


def seen_of(course: Course, rows: Rows, step: int) -> Any:
    """Makes the lh_observation of an iteration."""
    links = course.links()
    passes = ffi.new("lh_observed_pass[]", len(rows))
    messages = ffi.new("lh_observed_message[]", len(rows))
    n = 0
    for i, (one, row) in enumerate(rows.items()):
        passes[i].ns = row.end_ns - row.could_ns
        _fill(getattr(passes[i], "pass"), one)
        if not row.arrived_ns:
            continue
        made = _producer(course, rows, one)
        ends = course.places[made.chunk], course.places[one.chunk]
        if ends not in links:
            continue
        _fill_message(messages[n], links[ends].number, row, rows[made])
        n += 1
    if not any(row.entered_ns for row in rows.values()):
        try_call(
            lib.lh_observation_estimate_entry, course.pipeline, n, messages
        )
    return options(
        "lh_observation",
        step=step,
        n_passes=len(rows),
        passes=passes,
        n_messages=n,
        messages=messages,
    )


def _fill(struct: Any, one: Pass) -> None:
    struct.chunk, struct.microbatch = one.chunk, one.microbatch
    struct.kind = "FDWB".index(one.kind)
    struct.part, struct.n_parts = 0, 1


def _fill_message(to: Any, link: int, row: Row, made: Row) -> None:
    to.link = link
    to.produced_ns = made.end_ns
    to.posted_ns = row.posted_ns if row.posted_ns > made.end_ns else 0
    to.entered_ns = max(row.entered_ns, row.posted_ns, made.end_ns)
    to.arrived_ns = max(row.arrived_ns, to.entered_ns)


def trace_text(
    course: Course,
    order: Order,
    rows: Rows,
    transfers: dict[tuple[int, int], int],
    title: str,
) -> str:
    """Returns the measured iteration as a trace, formed like the prediction."""
    predicted = course.predicted(order)
    begin = min(row.start_ns for row in rows.values())
    runs = ffi.new("lh_trace_run[]", predicted.n_runs)
    for i in range(predicted.n_runs):
        runs[i] = predicted.runs[i]
        row = rows[pass_of(getattr(runs[i], "pass"))]
        runs[i].start_ns = row.start_ns - begin
        runs[i].end_ns = runs[i].issued_ns = row.end_ns - begin
        runs[i].memory = runs[i].memory_after = 0
    messages = ffi.new("lh_trace_message[]", predicted.n_messages)
    for i in range(predicted.n_messages):
        messages[i] = predicted.messages[i]
        _date(messages[i], rows, transfers, begin)
    told, source = (
        ffi.new("char[]", encoded(title)),
        ffi.new("char[]", b"measured"),
    )
    made = ffi.new("lh_trace *", predicted[0])
    made.title, made.source = told, source
    made.runs, made.messages = runs, messages
    made.n_collectives = 0
    made.makespan_ns = max(run.end_ns for run in runs)
    whole = owned("lh_trace", lib.lh_trace_free, lib.lh_trace_copy, made)
    return made_text(lib.lh_trace_format, whole)


def _date(
    message: Any,
    rows: Rows,
    transfers: dict[tuple[int, int], int],
    begin: int,
) -> None:
    made = rows[pass_of(message.producer)]
    used = rows[pass_of(message.consumer)]
    transfer = transfers.get((getattr(message, "from"), message.to), 0)
    produced = made.end_ns - begin
    ready = max(produced, used.posted_ns - begin)
    depart = max(ready, used.entered_ns - begin)
    message.produced_ns, message.ready_ns = produced, ready
    message.depart_ns = depart
    message.sent_ns = depart + transfer
    message.arrive_ns = max(message.sent_ns, used.arrived_ns - begin)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file atomically."""
    data = text.encode()
    try_call(
        lib.lh_file_write,
        encoded(path),
        data,
        len(data),
        name=os.fsdecode(path),
    )
