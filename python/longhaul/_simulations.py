# SPDX-License-Identifier: Apache-2.0
"""Simulation of iterations."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from ._inputs import Source
from ._library import (
    ffi,
    lib,
    made_json,
    made_text,
    options,
    owned,
    text_of,
    try_call,
)
from ._problems import (
    Jitter,
    Order,
    Planned,
    Problem,
    Scheduled,
    objective_number,
    order_of,
    sim_options,
)
from ._results import (
    LinkUse,
    Result,
    Segment,
    Spread,
    frame_of,
    nested,
    plain,
    several,
    tuple_of,
)


@dataclasses.dataclass(frozen=True)
class Simulation(Result):
    """The prediction of one iteration.

    Attributes:
        schedule: the method of the pass order, or its file.
        makespan_s: of the pipeline, in seconds.
        iteration_s: for a plan, including communication after the pipeline;
            else None.
        lower_bound_s: no schedule of the pipeline is faster.
        gap: (makespan - lower bound) / lower bound; None if memory is
            insufficient.
        bubble_ratio: idle time / makespan over all devices, 0 to 1.
        bubble_s: idle seconds of all devices by cause.
        peak_memory: of each device, in `memory_unit`.
        fits: whether it is within the limits.
        critical_path: consecutive segments from 0 to the makespan.
        jitter: iterations under random delays, if requested.
    """

    schedule: str = ""
    makespan_s: float = 0.0
    first_device_s: float = 0.0
    objective: str = ""
    objective_s: float = 0.0
    lower_bound_s: float = 0.0
    bubble_ratio: float = 0.0
    peak_memory: tuple[int, ...] = nested(tuple_of)
    memory_unit: str = ""
    fits: bool = True
    gap: float | None = None
    limited_by: str | None = None
    iteration_s: float | None = None
    bubble_s: Mapping[str, float] = plain()
    links: tuple[LinkUse, ...] = several(LinkUse.of)
    critical_path: tuple[Segment, ...] = several(Segment.of)
    jitter: Spread | None = nested(Spread.of)
    _trace: Any = dataclasses.field(default=None, repr=False, compare=False)
    _shown: Any = dataclasses.field(default=None, repr=False, compare=False)

    def svg(self, width: int = 1200) -> str:
        """Returns the timeline as SVG, `width` pixels wide."""
        how = options("lh_svg_options", width=width, analysis=self._shown)
        return made_text(lib.lh_report_svg, self._trace, how)

    def text(self, width: int = 80) -> str:
        """Returns the timeline as text for `width` columns."""
        how = options("lh_terminal_options", width=width)
        return made_text(lib.lh_report_terminal, self._trace, how)

    def trace(self) -> str:
        """Returns the timeline as Chrome trace events, for Perfetto."""
        return made_text(lib.lh_trace_format, self._trace)

    def passes(self) -> list[dict[str, Any]]:
        """Returns every pass: device, pass, kind, chunk, microbatch, times in
        s."""
        name = ffi.new(f"char[{lib.LH_PASS_TEXT_SIZE}]")
        rows: list[dict[str, Any]] = []
        for i in range(self._trace.n_runs):
            run = self._trace.runs[i]
            text = text_of(lib.lh_pass_format(ffi.addressof(run, "pass"), name))
            rows.append(
                {
                    "device": run.device,
                    "pass": text,
                    "chunk": getattr(run, "pass").chunk,
                    "microbatch": getattr(run, "pass").microbatch,
                    "start_s": run.start_ns / 1e9,
                    "end_s": run.end_ns / 1e9,
                }
            )
        return rows

    def frame(self) -> Any:
        """Returns `passes()` as a pandas.DataFrame; needs pandas."""
        return frame_of(self.passes())

    def _repr_html_(self) -> str:
        return self.svg()


def simulated(
    problem: Problem,
    order: Order,
    sim: Any,
    objective: str,
    jitter: Jitter | None,
) -> Simulation:
    timeline = owned(
        "lh_timeline",
        lib.lh_timeline_free,
        lib.lh_simulate,
        problem.pipeline,
        order.schedule,
        sim,
    )
    analysis = owned(
        "lh_analysis",
        lib.lh_analysis_free,
        lib.lh_analysis_make,
        problem.pipeline,
        order.schedule,
        timeline,
    )
    trace = owned(
        "lh_trace",
        lib.lh_trace_free,
        lib.lh_trace_make,
        problem.pipeline,
        timeline,
        os.fsencode(problem.name),
    )
    shown = owned(
        "lh_report_analysis",
        lib.lh_report_analysis_free,
        lib.lh_report_analysis_make,
        trace,
        analysis,
    )
    name = ffi.new("char[]", order.name.encode(errors="replace"))
    told = options(
        "lh_simulated",
        name=name,
        pipeline=problem.pipeline,
        schedule=order.schedule,
        timeline=timeline,
        analysis=analysis,
        plan=problem.plan,
        jitter=_drawn(problem, order, sim, jitter),
        objective=objective_number(objective),
    )
    return Simulation.of(
        made_json(lib.lh_simulated_format, told), _trace=trace, _shown=shown
    )


def _drawn(
    problem: Problem, order: Order, sim: Any, jitter: Jitter | None
) -> Any:
    """lh_jitter_result."""
    if jitter is None:
        return None
    given, out = jitter.struct(), ffi.new("lh_jitter_result *")
    if problem.plan is not None:
        plan = problem.plan
        best = ffi.addressof(plan, "best")
        try_call(lib.lh_plan_jitter, plan.job, best, given, given)
    try_call(
        lib.lh_jitter_run,
        problem.pipeline,
        order.schedule,
        sim,
        given,
        out,
    )
    return out


def simulate(
    what: Source | Planned | Scheduled,
    schedule: Any = None,
    *,
    receives: str | None = None,
    coupled: int | None = None,
    fifo: bool = False,
    objective: str = "makespan",
    sub_blocks: int = 1,
    jitter: Jitter | None = None,
    progress: bool | None = None,
) -> Simulation:
    """Predicts and explains the duration of one iteration.

    Args:
        what: a pipeline or a plan: a path, a text, a map, a `Plan`; or a
            `Schedule`, with its pipeline.
        schedule: a method's name, a CSV's or plan's path, the text of a CSV, a
            `Schedule`. None: a plan's own; for a pipeline the best method's.
        receives: when receives are posted: "early", "late" or "late-fd"; None:
            as in the pipeline.
        coupled: capacity, in messages, of the shared send queue of a device;
            None: sends never block.
        fifo: use first-in-first-out links, and ignore the schedule's message
            orders.
        objective: "makespan" or "first-device".
        sub_blocks: number of parts into which "greedy" and related methods cut
            weight-gradient passes.
        jitter: also simulate iterations under random delays.
        progress: show a tqdm bar; None: on a terminal and in notebooks.

    Raises:
        InputError: a file is invalid; with its file, line and key.
        InfeasibleError, DeadlockError: the schedule cannot run.
        UnsupportedError: the method does not apply to the pipeline.
    """
    problem = Problem(what)
    sim = sim_options(receives, coupled, fifo)
    if schedule is None and isinstance(what, Scheduled):
        schedule = what
    order = order_of(problem, schedule, sim, sub_blocks, progress)
    return simulated(problem, order, sim, objective, jitter)
