# SPDX-License-Identifier: Apache-2.0
"""Construction of schedules."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

from . import _errors
from ._inputs import Source
from ._library import (
    encoded,
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
    Planned,
    Problem,
    Scheduled,
    best_of,
    objective_number,
    sim_options,
    taken,
)
from ._results import Engine, Result, each, nested, tuple_of
from ._search import Search
from ._simulations import Simulation, simulate
from ._verdicts import Verdict, check


@dataclasses.dataclass(frozen=True)
class Schedule(Result, Scheduled):
    """A pass order for every device, and its origin.

    Attributes:
        method: its method; for "auto" the best one.
        makespan_s: in seconds, under the options of its construction.
        lower_bound_s: no schedule is faster (proven).
        gap: (makespan - lower bound) / lower bound.
        status: "optimal" if both are equal, else "feasible".
        peak_memory: of each device, in `memory_unit`.
        seconds: duration of its construction.
        fifo_makespan_s: makespan with first-in-first-out links, if the schedule
            has explicit message orders.
        whole_cost_s: increase of the makespan by merging the parts of
            weight-gradient passes.
    """

    method: str = ""
    requested: str = ""
    makespan_s: float = 0.0
    lower_bound_s: float = 0.0
    gap: float = 0.0
    limited_by: str = ""
    status: str = ""
    bubble_ratio: float = 0.0
    peak_memory: tuple[int, ...] = nested(tuple_of)
    memory_unit: str = ""
    seconds: float = 0.0
    fifo_makespan_s: float | None = None
    whole_cost_s: float | None = None
    engines: tuple[Engine, ...] | None = nested(each(Engine.of))
    _problem: Any = dataclasses.field(default=None, repr=False, compare=False)
    _schedule: Any = dataclasses.field(default=None, repr=False, compare=False)

    def csv(self) -> str:
        """Returns a row per device, a cell per pass, in PyTorch's CSV format.

        Message orders of links are not included: see `write()`.
        """
        return made_text(lib.lh_schedule_format, self._schedule)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the CSV, and beside it the message orders of links, if any."""
        try_call(
            lib.lh_schedule_write,
            self._schedule,
            encoded(path),
            name=os.fsdecode(path),
        )

    def simulate(self, **given: Any) -> Simulation:
        """Runs `longhaul.simulate` on it and its pipeline."""
        return simulate(self, **given)

    def check(self) -> Verdict:
        """Runs `longhaul.check` on it and its pipeline."""
        return check(self)

    def _repr_html_(self) -> str:
        return self.simulate().svg()


def schedule(
    what: Source | Planned,
    method: str = "auto",
    *,
    receives: str | None = None,
    coupled: int | None = None,
    fifo: bool = False,
    objective: str = "makespan",
    sub_blocks: int = 1,
    whole: bool = False,
    group: int | None = None,
    enqueue: Sequence[int] | None = None,
    dequeue: Sequence[int] | None = None,
    warmup: Sequence[int] | None = None,
    effort: int | None = None,
    time_limit_s: float | None = None,
    gap: float | None = None,
    threads: int | None = None,
    seed: int = 0,
    without: str | None = None,
    progress: bool | None = None,
) -> Schedule:
    """Makes a schedule of a pipeline, or of a plan's, by a named method.

    Args:
        what: a pipeline or a plan: a path, a text, a map, a `Plan`.
        method: one of `longhaul.methods()`; "auto" selects the best one,
            "optimal" searches for an optimal schedule and its proof.
        receives, coupled, fifo, objective, sub_blocks: as for `simulate`;
            `objective` is for "optimal".
        whole: merge the parts of weight-gradient passes.
        group: "flexible", "dorapp": microbatches per round.
        enqueue, dequeue: "elastic": microbatches per forward and per backward
            group.
        warmup: "slack" and related methods: warm-up forwards of each device.
        effort: "optimal", "auto": units of work, about a million per second;
            the result is then the same on every machine.
        time_limit_s, gap, threads, seed: "optimal": seconds; sufficient gap to
            the bound, as a share; threads (None: one per processor).
        without: engines to disable, separated by commas.
        progress: show a tqdm bar; None: on a terminal and in notebooks.

    Raises:
        InfeasibleError: no schedule exists (proven), or none was found.
        UnsupportedError: the method does not apply to the pipeline.
    """
    problem = Problem(what)
    sim = sim_options(receives, coupled, fifo)
    try_call(lib.lh_scheduler_check_name, method.encode())
    search = Search(method, progress)
    told: dict[str, Any]
    if lib.lh_scheduler_is_search(method.encode()):
        found = _solved(
            problem,
            search,
            fifo=fifo,
            sub_blocks=sub_blocks,
            objective=objective_number(objective),
            effort=effort,
            time_limit_s=time_limit_s,
            gap=gap,
            threads=threads or os.cpu_count() or 1,
            seed=seed,
            without=without,
        )
        made = taken(found)
        told = {
            "method": ffi.new("char[]", method.encode()),
            "bound_ns": found.bound_ns,
            "limited_by": found.why,
            "seconds": found.seconds,
            "n_engines": found.n_engines,
            "engines": found.engines,
        }
    else:
        if objective_number(objective) != lib.LH_SOLVE_OBJECTIVE_MAKESPAN:
            raise _errors.InvalidError(
                "objective: it is for method 'optimal'; others make the order "
                "that is theirs"
            )
        made, told = _ordered(
            problem,
            method,
            sim,
            search,
            effort=effort,
            without=without,
            sub_blocks=sub_blocks,
            round_size=group,
            n_enqueue=None if enqueue is None else len(enqueue),
            enqueue=_numbers(enqueue),
            n_dequeue=None if dequeue is None else len(dequeue),
            dequeue=_numbers(dequeue),
            n_warmup=None if warmup is None else len(warmup),
            warmup=_numbers(warmup),
        )
    return _told_schedule(
        problem, method, objective_number(objective), sim, made, told, whole
    )


def _numbers(values: Sequence[int] | None) -> Any:
    return None if values is None else ffi.new("uint32_t[]", list(values))


def _ordered(
    problem: Problem, name: str, sim: Any, search: Search, **method: Any
) -> tuple[Any, dict[str, Any]]:
    begin = time.monotonic()
    best = best_of(problem, name, sim, search, **method)
    return taken(best), {
        "method": best.method,
        "bound_ns": best.bound_ns,
        "limited_by": best.why,
        "seconds": time.monotonic() - begin,
        "keeps": best,
    }


def _solved(problem: Problem, search: Search, **fields: Any) -> Any:
    """lh_solution with a schedule."""
    without = fields.pop("without")
    kept = None if without is None else ffi.new("char[]", without.encode())
    given = options(
        "lh_solve_options",
        memory=1 << 30,
        progress=lib.longhaul_on_solve,
        context=search.context,
        disabled_engines=kept,
        **fields,
    )
    found = ffi.gc(ffi.new("lh_solution *"), lib.lh_solution_fini)
    search.run(lambda: try_call(lib.lh_solve, problem.pipeline, given, found))
    if found.status == lib.LH_SOLVE_INFEASIBLE:
        raise _errors.InfeasibleError(f"infeasible: {text_of(found.why)}")
    if found.schedule == ffi.NULL:
        raise _errors.InfeasibleError(
            "no schedule was found before the search ended; give it more time"
        )
    return found


def _told_schedule(
    problem: Problem,
    requested: str,
    objective: int,
    sim: Any,
    made: Any,
    told: dict[str, Any],
    whole: bool,
) -> Schedule:
    """Completes a schedule: merged passes, message orders, results."""
    keeps = told.pop("keeps", None)
    parts_ns = None
    if whole:
        parts_ns = _makespan(problem, made, sim)
        made = owned(
            "lh_schedule",
            lib.lh_schedule_free,
            lib.lh_schedule_merge_parts,
            problem.pipeline,
            made,
        )
    plain, fifo_ns = ffi.new("lh_schedule **"), ffi.new("int64_t *")
    try_call(
        lib.lh_schedule_drop_useless_link_orders,
        problem.pipeline,
        made,
        sim,
        plain,
        fifo_ns,
    )
    if plain[0] != ffi.NULL:
        made = ffi.gc(plain[0], lib.lh_schedule_free)
    timeline = owned(
        "lh_timeline",
        lib.lh_timeline_free,
        lib.lh_simulate,
        problem.pipeline,
        made,
        sim,
    )
    asked = ffi.new("char[]", requested.encode())
    all_of_it = options(
        "lh_scheduled",
        requested=asked,
        pipeline=problem.pipeline,
        timeline=timeline,
        objective=objective,
        fifo_ns=fifo_ns[0],
        split_ns=parts_ns,
        **told,
    )
    result = Schedule.of(
        made_json(lib.lh_scheduled_format, all_of_it),
        _problem=problem,
        _schedule=made,
    )
    del keeps  # `told` points into this
    return result


def _makespan(problem: Problem, order: Any, sim: Any) -> int:
    timeline = owned(
        "lh_timeline",
        lib.lh_timeline_free,
        lib.lh_simulate,
        problem.pipeline,
        order,
        sim,
    )
    return lib.lh_timeline_makespan(timeline)


def methods() -> tuple[str, ...]:
    """Returns the names of all methods, including "auto" and "optimal"."""
    return tuple(
        text_of(lib.lh_scheduler_name(i)) for i in range(lib.lh_n_schedulers())
    )
