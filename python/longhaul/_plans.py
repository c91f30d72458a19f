# SPDX-License-Identifier: Apache-2.0
"""Plans: the fastest layout and schedule for a job."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _errors
from ._comparisons import Comparison, compare
from ._inputs import Source, Text, job_of, plan_of
from ._library import (
    encoded,
    ffi,
    lib,
    made_json,
    made_text,
    numbered,
    options,
    owned,
    text_of,
    try_call,
)
from ._problems import Jitter, Planned, Problem, order_of, sim_options
from ._results import (
    Answer,
    Choice,
    Layout,
    RankMemory,
    Result,
    frame_of,
    nested,
    plain,
    several,
)
from ._schedules import Schedule, schedule
from ._search import Search
from ._simulations import Simulation, simulate
from ._verdicts import Verdict, check


@dataclasses.dataclass(frozen=True)
class Plan(Result, Planned):
    """The fastest layout and schedule that the search found for a job.

    Attributes:
        iteration_s: iteration time in seconds.
        layout: degrees of parallelism, sites, the schedule's method.
        memory: GPU memory of each pipeline rank, in bytes.
        alternatives: the best result for each other layout, the fastest first.
        methods: every schedule on the best layout, the fastest first.
        runners_up: the best alternative per dimension.
        account: breakdown of an iteration, in seconds.
        search: statistics of the search; "lower_bound_s" and "gap" limit the
            distance from the optimum, where known.
        why: the reason for this choice.
    """

    name: str = ""
    iteration_s: float = 0.0
    layout: Layout = nested(Layout.of)
    schedule_method: str = ""
    placement: str = ""
    recompute: str = ""
    zero: int = 0
    microbatches: int = 0
    bubble_ratio: float = 0.0
    peak_memory_bytes: int = 0
    memory_limit_bytes: int = 0
    tokens_per_s: float = 0.0
    mfu: float = 0.0
    why: str = ""
    memory: tuple[RankMemory, ...] = several(RankMemory.of)
    methods: tuple[Choice, ...] = several(Choice.of)
    alternatives: tuple[Choice, ...] = several(Choice.of)
    runners_up: tuple[Mapping[str, Any], ...] = several(dict)
    account: Mapping[str, float] | None = plain()
    search: Mapping[str, Any] | None = plain()
    network: tuple[Mapping[str, Any], ...] = several(dict)
    answers: tuple[Answer, ...] = ()
    _plan: Any = dataclasses.field(default=None, repr=False, compare=False)
    _asked: Any = dataclasses.field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        """Returns a few lines; `json()` and `to_dict()` have everything."""
        at = self.layout
        degrees = ", ".join(
            f"{name} {getattr(at, name)}"
            for name in ("tensor", "context", "expert", "pipeline", "data")
        )
        return (
            f"<Plan {self.name}: {self.iteration_s:.6g} s per iteration\n"
            f"  layout    {degrees}, micro_batch {at.micro_batch}, "
            f"{self.microbatches} microbatches\n"
            f"  schedule  {self.schedule_method} on {self.placement}, zero "
            f"{self.zero}, recompute {self.recompute}\n"
            f"  memory    {self.peak_memory_bytes / 2**30:.4g} of "
            f"{self.memory_limit_bytes / 2**30:.4g} GiB>"
        )

    def json(self) -> str:
        """Returns the text of plan.json."""
        return made_text(lib.lh_plan_format, self._plan)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes plan.json atomically."""
        text = self.json().encode()
        try_call(
            lib.lh_file_write,
            encoded(path),
            text,
            len(text),
            name=os.fsdecode(path),
        )

    def simulate(self, schedule: Any = None, **given: Any) -> Simulation:
        """Runs `longhaul.simulate` on its pipeline; None: with its own
        schedule."""
        return simulate(self, schedule, **given)

    def schedule(self, method: str = "auto", **given: Any) -> Schedule:
        """Runs `longhaul.schedule` on its pipeline."""
        return schedule(self, method, **given)

    def check(self) -> Verdict:
        """Runs `longhaul.check` on its own schedule."""
        return check(self)

    def compare(self, **given: Any) -> Comparison:
        """Runs `longhaul.compare` on the placements that its layout allows."""
        return compare(self, **given)

    def what_if(
        self,
        *,
        latency_ms: float | None = None,
        bandwidth_gbps: float | None = None,
        loss: float | None = None,
        oversubscription: float | None = None,
        link: tuple[str, str] | None = None,
        progress: bool | None = None,
    ) -> Answer:
        """Predicts the plan, and the best plan, under other link values.

        Plans the job again under these values, with this plan's options.

        Args:
            latency_ms: one way.
            bandwidth_gbps: all traffic of one direction, in 10^9 bits per
                second.
            loss: share of lost packets.
            oversubscription: demand on the same capacity by others, at least 1.
            link: two datacenters, both directions; None: all links.
            progress: show a tqdm bar; None: on a terminal and in notebooks.
        """
        values = {
            lib.LH_LINK_LATENCY: latency_ms,
            lib.LH_LINK_BANDWIDTH: bandwidth_gbps,
            lib.LH_LINK_LOSS: loss,
            lib.LH_LINK_OVERSUBSCRIPTION: oversubscription,
        }
        given = {k: v for k, v in values.items() if v is not None}
        if not given:
            raise _errors.InvalidError("what_if: say what links would have")
        question = _Question(self._plan.job, given, link)
        made = _made(
            self._plan.job,
            progress,
            n_questions=1,
            questions=question.struct,
            **(self._asked or {}),
        )
        answers = made_json(lib.lh_plan_format, made)["what_if"]
        return Answer.of(answers[0])

    def export(
        self,
        to: str,
        *,
        schedule: Any = None,
        form: str = "compute_only",
        sub_blocks: int = 1,
        allow_inexact: bool = False,
    ) -> str:
        """Exports the plan for another program.

        Args:
            to: "pytorch", "torchtitan", "torchtitan-model", "megatron",
                "megatron-bridge" or "chrome".
            schedule: for "pytorch" and "chrome": in place of its own, as for
                `simulate`.
            form: for "pytorch": "compute_only" or "compute_comms".
            sub_blocks: as for `simulate`.
            allow_inexact: export a model that the program cannot be given
                exactly; the file lists the differences in comments.

        Raises:
            UnsupportedError: the program cannot run the plan as costed; use
                `longhaul.plan` with `target` for one that it supports. Or it
                cannot be given the model exactly.
        """
        return export(
            self,
            to,
            schedule=schedule,
            form=form,
            sub_blocks=sub_blocks,
            allow_inexact=allow_inexact,
        )

    def export_stages(self) -> str:
        """Returns the modules of each stage, by torchtitan's names, as JSON."""
        return made_text(lib.lh_export_stages, self._plan)

    def export_bundle(
        self,
        to: str,
        folder: str | os.PathLike[str],
        *,
        form: str = "compute_only",
        allow_inexact: bool = False,
    ) -> None:
        """Writes a folder with all files to start the job with that program."""
        how = options(
            "lh_bundle_options", form=_form(form), allow_inexact=allow_inexact
        )
        try_call(
            lib.lh_export_bundle,
            self._plan,
            _target(to),
            encoded(folder),
            how,
            name=os.fsdecode(folder),
        )

    def frame(self) -> Any:
        """The plan and its alternatives as a pandas.DataFrame; needs pandas."""
        best = {k: v for k, v in self._json.items() if k in _CHOICE_KEYS}
        rows = [best, *self._json.get("alternatives", ())]
        return frame_of([{**row, **row["layout"]} for row in rows])

    def _repr_html_(self) -> str:
        return self.simulate().svg()


_CHOICE_KEYS = frozenset(field.name for field in dataclasses.fields(Choice))


class _Question:
    """lh_plan_whatif_question and the objects that it points to."""

    def __init__(
        self,
        job: Any,
        values: Mapping[int, float],
        link: tuple[str, str] | None,
    ) -> None:
        ways = [(lib.LH_ALL_LINKS, lib.LH_ALL_LINKS)]
        prefix = ""
        if link is not None:
            a, b = (_datacenter(job, name) for name in link)
            ways = [(a, b), (b, a)]
            prefix = f"{link[0]}-{link[1]}."
        self._changes = ffi.new("lh_link_change[]", len(values) * len(ways))
        texts: list[str] = []
        i = 0
        for quantity, value in values.items():
            word = text_of(lib.lh_link_quantity_name(quantity))
            texts.append(f"{prefix}{word}={value:.12g}")
            for a, b in ways:
                change = self._changes[i]
                change.quantity, change.value = quantity, value
                setattr(change, "from", a)
                change.to = b
                i += 1
        self._text = ffi.new("char[]", ",".join(texts).encode())
        self.struct = ffi.new("lh_plan_whatif_question *")
        self.struct.text = self._text
        self.struct.n_changes = i
        self.struct.changes = self._changes


def _datacenter(job: Any, name: str) -> int:
    names = [text_of(job.datacenters[i].name) for i in range(job.n_datacenters)]
    if name not in names:
        raise _errors.InvalidError(
            f"link: there is no datacenter {name!r}; there are "
            + ", ".join(names)
        )
    return names.index(name)


def _made(job: Any, progress: bool | None, **fields: Any) -> Any:
    """Makes an lh_plan for a job."""
    search = Search("planning", progress)
    how = options(
        "lh_plan_options",
        progress=lib.longhaul_on_layouts,
        layout_progress=lib.longhaul_on_plan,
        context=search.context,
        **fields,
    )
    return search.run(
        lambda: owned("lh_plan", lib.lh_plan_free, lib.lh_plan_make, job, how)
    )


def _plan(made: Any, asked: Mapping[str, Any]) -> Plan:
    told = made_json(lib.lh_plan_format, made)
    return Plan.of(
        told,
        schedule_method=told["layout"]["schedule"],
        answers=tuple(Answer.of(one) for one in told.get("what_if", ())),
        _plan=made,
        _asked=asked,
    )


_GOALS = ("time", "cost")
_SEARCHES = ("climb", "exact", "monte-carlo", "even")
_ELASTIC = ("searched", "published")


def _among(what: str, value: str, names: Sequence[str]) -> int:
    if value not in names:
        raise _errors.InvalidError(
            f"{what}: {value!r} is none of {', '.join(names)}"
        )
    return names.index(value)


def plan(
    job: Source,
    *,
    target: str | None = None,
    top: int | None = None,
    effort: int | None = None,
    time_s: float | None = None,
    threads: int | None = None,
    optimal: bool = True,
    quick: bool = False,
    search: str = "climb",
    elastic: str = "searched",
    max_chunk_ratio: float | None = None,
    sub_blocks: int = 1,
    jitter: Jitter | None = None,
    by: str = "mean",
    objective: str = "time",
    gpu_hour_usd: float | None = None,
    per_gb_usd: float | None = None,
    pareto: bool = False,
    sensitivity: bool = False,
    curves: bool = False,
    progress: bool | None = None,
) -> Plan:
    """Searches layouts and schedules; returns the fastest plan that fits.

    Ctrl-C ends the search with KeyboardInterrupt.

    Args:
        job: a path, a text (with a line end in it, or a map in JSON), or a map.
        target: search only layouts that this program supports: "longhaul",
            "megatron", "torchtitan" or "pytorch"; None: as in the job.
        top: number of alternatives to keep; None: 10.
        effort: work for optimal schedules of the best layouts, in units of
            about a microsecond, and 75 times that for the search over layouts;
            None: 400000. The plan is the same on every machine.
        time_s: seconds of processor time in place of that work for layouts;
            the plan then depends on the machine.
        threads: maximum number; None: one per processor. Without `time_s` the
            plan does not depend on it.
        optimal: also search for optimal schedules.
        quick: for many plans of similar jobs: even chunks, methods alone.
        search: search over layer partitions: "climb", "exact", "monte-carlo"
            or "even".
        elastic: source of elastic plans: "searched", or "published" for
            PipeMesh's own planner, whose plan is then the only one.
        max_chunk_ratio: maximum ratio of layers between the largest and the
            smallest chunk; None: 3, times the ratio between the peak rates of
            the fastest and the slowest GPU type.
        sub_blocks: number of parts into which "greedy" cuts weight-gradient
            passes.
        jitter, by: choose by the "mean" or the "p95" under random delays.
        objective: "time" or "cost" of an iteration. For cost, prices are in the
            job, or `gpu_hour_usd` and `per_gb_usd` (per 10^9 bytes between
            datacenters) give them.
        pareto, sensitivity, curves: also compute these, for `to_dict()`.
        progress: show a tqdm bar; None: on a terminal and in notebooks.

    Raises:
        InputError: the job is invalid; with its file, line and key.
        InfeasibleError: no layout works; the text names the cause.
    """
    number = None
    if target is not None:
        found = ffi.new("lh_target *")
        try_call(lib.lh_target_find, target.encode(), found)
        number = found[0]
    asked = {
        "target": number,
        "top": top,
        "effort": effort,
        "seconds": time_s,
        "threads": threads,
        "no_optimal": not optimal,
        "quick": quick,
        "partition": _among("search", search, _SEARCHES),
        "elastic_as_published": bool(_among("elastic", elastic, _ELASTIC)),
        "max_chunk_ratio": max_chunk_ratio,
        "sub_blocks": sub_blocks,
        "jitter": jitter.struct() if jitter else None,
        "statistic": numbered(lib.lh_plan_statistic_name, "by", by, 2),
        "objective": _among("objective", objective, _GOALS),
        "usd_per_gpu_hour": gpu_hour_usd,
        "usd_per_gb": per_gb_usd,
        "pareto_front": pareto,
        "sensitivity": sensitivity,
        "curves": curves,
    }
    return _plan(_made(job_of(job), progress, **asked), asked)


def read_plan(source: Source) -> Plan:
    """Reads a plan: the path of a plan.json, its text, or a map."""
    text = Text(source)
    if text.is_other("plan"):
        raise text.refuse("a plan")
    return _plan(plan_of(text), {})


def _form(name: str) -> int:
    return numbered(
        lib.lh_pytorch_form_name, "form", name, lib.lh_n_pytorch_forms()
    )


def _target(name: str) -> int:
    return numbered(
        lib.lh_export_target_name, "to", name, lib.lh_n_export_targets()
    )


def export(
    what: Source | Planned | Schedule,
    to: str,
    *,
    schedule: Any = None,
    form: str = "compute_only",
    sub_blocks: int = 1,
    allow_inexact: bool = False,
) -> str:
    """Exports a plan, or a pipeline with a schedule, for another program.

    A pipeline, or a `Schedule`, has only the exports "pytorch" and "chrome".
    The arguments are those of `Plan.export`.
    """
    problem, target = Problem(what), _target(to)
    of_plans = {
        lib.LH_EXPORT_TORCHTITAN: lib.lh_export_torchtitan,
        lib.LH_EXPORT_TORCHTITAN_MODEL: lib.lh_export_torchtitan_model,
        lib.LH_EXPORT_MEGATRON: lib.lh_export_megatron,
        lib.LH_EXPORT_MEGATRON_BRIDGE: lib.lh_export_megatron_bridge,
    }
    if target in of_plans:
        if problem.plan is None:
            raise _errors.InvalidError(
                f"to: {to!r} takes a plan; this is a pipeline"
            )
        how = options("lh_export_options", allow_inexact=allow_inexact)
        return made_text(of_plans[target], problem.plan, how)
    if schedule is None and isinstance(what, Schedule):
        schedule = what
    sim = sim_options(None, None, False)
    order = order_of(problem, schedule, sim, sub_blocks, None).schedule
    if target == lib.LH_EXPORT_CHROME:
        title = os.fsencode(problem.name)
        return made_text(lib.lh_export_chrome, problem.pipeline, order, title)
    text, size = ffi.new("char **"), ffi.new("size_t *")
    try_call(
        lib.lh_export_pytorch,
        problem.pipeline,
        order,
        _form(form),
        text,
        size,
        ffi.NULL,
    )
    try:
        return bytes(ffi.buffer(text[0], size[0])).decode()
    finally:
        lib.lh_text_free(text[0])
