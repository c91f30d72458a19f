# SPDX-License-Identifier: Apache-2.0
"""Scheduling problems: a pipeline or plan, a pass order, and options."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from . import _errors
from ._inputs import Text, pipeline_of, plan_of, schedule_of_file
from ._library import (
    encoded,
    ffi,
    lib,
    numbered,
    options,
    owned,
    text_of,
    try_call,
)
from ._search import Search

_OBJECTIVES = ("makespan", "first-device")


def objective_number(name: str) -> int:
    if name not in _OBJECTIVES:
        raise _errors.InvalidError(
            f"objective: {name!r} is none of {', '.join(_OBJECTIVES)}"
        )
    return _OBJECTIVES.index(name)


@dataclasses.dataclass(frozen=True)
class Jitter:
    """Random delays that differ between iterations.

    `latency` and `transfer` slow down links by that share on average
    (exponentially distributed). `degraded` is a probability and a factor by
    which a link is then slower; `straggler` the same for a device (in a plan:
    for each of its GPUs).
    """

    latency: float = 0.0
    transfer: float = 0.0
    degraded: tuple[float, float] = (0.0, 0.0)
    straggler: tuple[float, float] = (0.0, 0.0)
    samples: int = 1000
    seed: int = 0

    def struct(self) -> Any:
        """lh_jitter."""
        made = options(
            "lh_jitter",
            latency=self.latency,
            transfer=self.transfer,
            degraded_probability=self.degraded[0],
            degraded_factor=self.degraded[1],
            straggler_probability=self.straggler[0],
            straggler_factor=self.straggler[1],
            samples=self.samples,
            seed=self.seed,
        )
        try_call(lib.lh_jitter_check, made)
        return made


def sim_options(receives: str | None, coupled: int | None, fifo: bool) -> Any:
    number = (
        None
        if receives is None
        else numbered(lib.lh_receives_name, "receives", receives, 3)
    )
    return options(
        "lh_sim_options",
        receives=number,
        override_receives=receives is not None,
        coupled_queue=coupled,
        fifo=fifo,
    )


class Problem:
    """A pipeline from a file, a text, a map or a plan, and that plan."""

    def __init__(self, what: Any) -> None:
        self.plan: Any = None
        self.name = "pipeline"
        if isinstance(what, Planned):
            self.plan = what._plan
            self.name = what.name
        elif isinstance(what, Scheduled):
            self.pipeline: Any = what._problem.pipeline
            self.plan = what._problem.plan
            self.name = what._problem.name
            return
        else:
            text = Text(what)
            self.name = text.name
            if text.kind == "plan":
                self.plan = plan_of(text)
            elif text.is_other("pipeline"):
                raise text.refuse("a pipeline or a plan")
            else:
                self.pipeline = pipeline_of(text)
        if self.plan is not None:
            self.pipeline = self.plan.pipeline


class Planned:
    """An object with a plan: longhaul.Plan."""

    name: str
    _plan: Any


class Scheduled:
    """An object with a schedule for a problem: longhaul.Schedule."""

    method: str
    _problem: Problem
    _schedule: Any


@dataclasses.dataclass(frozen=True)
class Order:
    """lh_schedule and its name."""

    schedule: Any
    name: str


def is_method(name: str) -> bool:
    return lib.lh_scheduler_check_name(encoded(name), ffi.NULL) == lib.LH_OK


def best_of(
    problem: Problem,
    name: str,
    sim: Any,
    search: Search,
    *,
    effort: int | None = None,
    without: str | None = None,
    **method: Any,
) -> Any:
    """Returns the lh_scheduler_result of a method."""
    how = options("lh_method_options", sim=sim, **method)
    kept = None if without is None else ffi.new("char[]", without.encode())
    given = options(
        "lh_scheduler_options",
        method=how,
        effort=effort,
        progress=lib.longhaul_on_solve,
        context=search.context,
        disabled_engines=kept,
    )
    best = ffi.gc(
        ffi.new("lh_scheduler_result *"), lib.lh_scheduler_result_fini
    )
    search.run(
        lambda: try_call(
            lib.lh_scheduler_run,
            name.encode(),
            problem.pipeline,
            given,
            best,
        )
    )
    return best


def taken(found: Any) -> Any:
    """Takes the schedule out of an lh_scheduler_result or lh_solution."""
    schedule = ffi.gc(found.schedule, lib.lh_schedule_free)
    found.schedule = ffi.NULL
    return schedule


def order_of(
    problem: Problem,
    schedule: Any,
    sim: Any,
    sub_blocks: int,
    progress: bool | None,
) -> Order:
    """Resolves a schedule: a method's, a file's, a text's or its own."""
    if schedule is None and problem.plan is not None:
        method = text_of(problem.plan.best.layout.schedule)
        return Order(problem.plan.schedule, method)
    if isinstance(schedule, Scheduled):
        return Order(schedule._schedule, schedule.method)
    if isinstance(schedule, Planned):
        method = text_of(schedule._plan.best.layout.schedule)
        return Order(schedule._plan.schedule, method)
    name = "auto" if schedule is None else os.fsdecode(schedule)
    if "\n" in name:
        text = name.encode()
        return Order(
            owned(
                "lh_schedule",
                lib.lh_schedule_free,
                lib.lh_schedule_parse,
                text,
                len(text),
                b"schedule",
                name="schedule",
            ),
            "schedule",
        )
    if is_method(name):
        best = best_of(
            problem, name, sim, Search(name, progress), sub_blocks=sub_blocks
        )
        return Order(taken(best), text_of(best.method))
    if "." not in name and "/" not in name:  # it was meant as a method name
        try_call(lib.lh_scheduler_check_name, name.encode())
    return Order(schedule_of_file(name, sim.fifo), name)
