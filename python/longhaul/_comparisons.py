# SPDX-License-Identifier: Apache-2.0
"""Comparison of schedule methods."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from . import _errors
from ._inputs import Source, Text
from ._library import ffi, lib, made_json, numbered, options, owned
from ._problems import (
    Jitter,
    Planned,
    Problem,
    Scheduled,
    objective_number,
    sim_options,
)
from ._results import Result, Row, frame_of, several
from ._search import Search


@dataclasses.dataclass(frozen=True)
class Comparison(Result):
    """Compared methods, the fastest first, at each point of a sweep."""

    rows: tuple[Row, ...] = several(Row.of)

    @property
    def best(self) -> Row:
        """The first row."""
        return self.rows[0]

    def frame(self) -> Any:
        """The rows as a pandas.DataFrame; needs pandas."""
        return frame_of(self._json["rows"])


@dataclasses.dataclass(frozen=True)
class Delays:
    """Latencies or transfer times of links, one way. Give exactly one of both.

    `ms`: milliseconds; `forwards`: multiples of a device's forward time for one
    microbatch.
    """

    ms: Sequence[float] | None = None
    forwards: Sequence[float] | None = None

    def struct(self) -> tuple[Any, Any]:
        """lh_compare_delays and the array that it points to; keep both."""
        if (self.ms is None) == (self.forwards is None):
            raise _errors.InvalidError("Delays: give either ms or forwards")
        if self.forwards is not None:
            given = [float(x) for x in self.forwards]
        else:
            given = [float(x) * 1e6 for x in self.ms or ()]
        values = ffi.new("double[]", given)
        made = ffi.new("lh_compare_delays *")
        made.n_values = len(given)
        made.values = values
        made.relative = self.forwards is not None
        return made, values


def compare(
    *what: Source | Planned,
    methods: Sequence[str] | None = None,
    latency: Delays | None = None,
    transfer: Delays | None = None,
    replay: bool = False,
    receives: str | None = None,
    coupled: int | None = None,
    fifo: bool = False,
    objective: str = "makespan",
    sub_blocks: int = 1,
    jitter: Jitter | None = None,
    by: str = "predicted",
    progress: bool | None = None,
) -> Comparison:
    """Runs every method on one or several pipelines, the fastest first.

    Args:
        what: pipelines or plans (for a single plan, the placements that its
            layout allows), or one job, which is planned first.
        methods: names; None: all applicable ones.
        latency, transfer: other delays of the links between sites; every
            combination is a point.
        replay: keep the schedules of the unchanged pipeline.
        jitter, by: rank by the "mean" or "p95" of iterations under random
            delays, in place of the "predicted" iteration.
        receives, coupled, fifo, objective, sub_blocks: as for `simulate`.
        progress: show a tqdm bar; None: on a terminal and in notebooks.
    """
    problems = [_compared(given, progress) for given in what]
    search = Search("comparing", progress)
    names = [ffi.new("char[]", m.encode()) for m in methods or ()]
    kept = [d.struct() if d else (None, None) for d in (latency, transfer)]
    name_list = ffi.new("char *[]", names)
    how = options(
        "lh_compare_options",
        n_methods=len(names),
        methods=name_list,
        latency=kept[0][0],
        transfer=kept[1][0],
        fixed_schedules=replay,
        sub_blocks=sub_blocks,
        sim=sim_options(receives, coupled, fifo),
        objective=objective_number(objective),
        jitter=jitter.struct() if jitter else None,
        by=numbered(
            lib.lh_compare_criterion_name, "by", by, lib.lh_n_compare_criteria()
        ),
        progress=lib.longhaul_on_point,
        context=search.context,
    )
    made = search.run(lambda: _compare(problems, how))
    return Comparison.of(made_json(lib.lh_comparison_format, made))


def _compared(what: Any, progress: bool | None) -> Problem:
    if not isinstance(what, (Planned, Scheduled)) and Text(what).kind == "job":
        from ._plans import plan

        return Problem(plan(what, progress=progress))
    return Problem(what)


def _compare(problems: list[Problem], how: Any) -> Any:
    if len(problems) == 1 and problems[0].plan is not None:
        return owned(
            "lh_comparison",
            lib.lh_comparison_free,
            lib.lh_compare_plan,
            problems[0].plan,
            how,
        )
    bases = ffi.new("lh_compare_base[]", len(problems))
    names = [ffi.new("char[]", _stem(p.name).encode()) for p in problems]
    for base, problem, name in zip(bases, problems, names, strict=True):
        base.name = name
        base.pipeline = problem.pipeline
    return owned(
        "lh_comparison",
        lib.lh_comparison_free,
        lib.lh_compare,
        len(problems),
        bases,
        how,
    )


def _stem(path: str) -> str:
    name = os.path.basename(path)
    return os.path.splitext(name)[0] or name
