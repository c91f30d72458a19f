# SPDX-License-Identifier: Apache-2.0
"""A plan's placement, links and schedules, read from the library."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._errors import InvalidError
from .._library import encoded, ffi, lib, options, owned, text_of, try_call
from .._problems import Problem, order_of, sim_options


class Pass(NamedTuple):
    """A pass; its kind is "F", "D", "W" or "B"."""

    chunk: int
    kind: str
    microbatch: int


class Link(NamedTuple):
    """Messages from one device to another."""

    number: int  # index for lh_pipeline_link()
    name: str
    latency_ns: int
    transfer_ns: int


def links_of(path: str | Iterable[str], names: set[str]) -> set[str]:
    """Returns the delegated ones of the links with these names: "direct": none;
    "delegated": all.

    Raises:
        InvalidError: the path names another link.
    """
    wanted = {path} if isinstance(path, str) else set(path)
    if wanted == {"delegated"}:
        return names
    if wanted == {"direct"}:
        return set()
    if wanted - names:
        raise InvalidError(
            f"path: {sorted(wanted - names)[0]!r} is neither 'direct' nor "
            f"'delegated' nor one of the links {', '.join(sorted(names))}"
        )
    return wanted


_KINDS = "FDWB"


def pass_of(struct: Any) -> Pass:
    """Converts an lh_pass."""
    return Pass(struct.chunk, _KINDS[struct.kind], struct.microbatch)


@dataclasses.dataclass(frozen=True)
class Order:
    """A schedule for PyTorch, with whole weight-gradient passes.

    Attributes:
        schedule: lh_schedule.
        name: its name.
        rows: PyTorch actions of each device.
        passes: passes of each device, in order.
    """

    schedule: Any
    name: str
    rows: tuple[tuple[str, ...], ...]
    passes: tuple[tuple[Pass, ...], ...]

    def adds_alike(self, other: Order) -> bool:
        """Tests whether each chunk's gradients are added in the same order."""
        return _sums(self.passes) == _sums(other.passes)

    def sent_to(
        self, to: int, places: Sequence[int]
    ) -> list[tuple[bool, int, int]]:
        """Returns the messages that other devices send to one, in their order:
        whether forward, the stage, the microbatch. `places`: each chunk's
        device."""
        found: list[tuple[bool, int, int]] = []
        for device, row in enumerate(self.rows):
            for cell in row if device != to else ():
                sent = re.fullmatch(r"(\d+)SEND_([FB])(\d+)", cell)
                if sent is None:
                    continue
                forward = sent[2] == "F"
                stage = int(sent[1]) + (1 if forward else -1)
                if places[stage] == to:
                    found.append((forward, stage, int(sent[3])))
        return found


def _sums(passes: tuple[tuple[Pass, ...], ...]) -> dict[int, list[int]]:
    sums: dict[int, list[int]] = {}
    for row in passes:
        for one in row:
            if one.kind in "WB":
                sums.setdefault(one.chunk, []).append(one.microbatch)
    return sums


@dataclasses.dataclass(frozen=True)
class Demands:
    """A plan's data parallelism, recomputation and offloading.

    Attributes:
        replicas: data-parallel degree.
        zero: ZeRO stage of a plan that is not elastic; None: elastic.
        recompute: "none", "full", "operations", or another name.
        operations: recomputed operations, and for each chunk the number of its
            first layers in which they are.
        offload: share of layers whose activations are offloaded.
        expert: expert-parallel degree.
        is_hybrid: state is sharded within datacenters.
        has_leaders: one rank of each datacenter reduces the whole gradient.
        context: context-parallel degree.
    """

    replicas: int
    zero: int | None
    recompute: str
    operations: Mapping[str, tuple[int, ...]]
    offload: float
    expert: int
    is_hybrid: bool
    has_leaders: bool = False
    context: int = 1


def _demands(plan: Any) -> Demands:
    best, elastic = plan.best, plan.best.elastic
    operations: dict[str, tuple[int, ...]] = {}
    for i in range(0 if elastic == ffi.NULL else elastic.n_recomputed):
        one = elastic.recomputed[i]
        operations[text_of(one.operation)] = tuple(
            one.layers[c] for c in range(one.n_chunks)
        )
    return Demands(
        best.layout.data,
        best.zero if elastic == ffi.NULL else None,
        text_of(lib.lh_recompute_name(best.recompute)),
        operations,
        plan.job.training.offload_share,
        best.layout.expert,
        best.layout.sharding
        in (lib.LH_SHARDING_HYBRID, lib.LH_SHARDING_HYBRID_LEADERS),
        best.layout.sharding == lib.LH_SHARDING_HYBRID_LEADERS,
        best.layout.context,
    )


def described(pipeline: Any) -> Any:
    """Returns the lh_pipeline_desc of a pipeline, which owns its arrays."""
    desc = options("lh_pipeline_desc")
    try_call(lib.lh_pipeline_describe, pipeline, desc)
    return desc


class Course:
    """A pipeline, and the schedules that run on it."""

    def __init__(self, what: Any) -> None:
        self.problem = Problem(what)
        self.pipeline = self.problem.pipeline
        self.name = self.problem.name
        plan = self.problem.plan
        self.demands = None if plan is None else _demands(plan)
        self.has_operations = described(self.pipeline).n_dp_ops > 0
        self.n_devices: int = lib.lh_pipeline_n_devices(self.pipeline)
        self.n_chunks: int = lib.lh_pipeline_n_chunks(self.pipeline)
        self.n_microbatches: int = lib.lh_pipeline_n_microbatches(self.pipeline)
        self.places: tuple[int, ...] = tuple(
            lib.lh_pipeline_chunk(self.pipeline, c).device
            for c in range(self.n_chunks)
        )

    @property
    def is_elastic(self) -> bool:
        """Tests for an elastic plan."""
        return self.demands is not None and self.demands.zero is None

    def links(self, pipeline: Any = None) -> dict[tuple[int, int], Link]:
        """Finds links by their end devices, also for another pipeline."""
        pipeline = self.pipeline if pipeline is None else pipeline
        found: dict[tuple[int, int], Link] = {}
        for i in range(lib.lh_pipeline_n_links(pipeline)):
            link = lib.lh_pipeline_link(pipeline, i)
            found[getattr(link, "from"), link.to] = Link(
                i, text_of(link.name), link.latency_ns, link.transfer_ns
            )
        return found

    def chosen(self, schedule: Any) -> Order:
        """Resolves a schedule as `longhaul.simulate` does; None: the plan's
        own."""
        sim = sim_options(None, None, False)
        made = order_of(self.problem, schedule, sim, 1, False)
        return self.lowered(made.schedule, made.name, self.pipeline)

    def parsed(self, text: str, name: str, rows: list[list[str]]) -> Order:
        """Parses another rank's schedule: passes alone, and all actions."""
        data = text.encode()
        made = owned(
            "lh_schedule",
            lib.lh_schedule_free,
            lib.lh_schedule_parse,
            data,
            len(data),
            encoded(name),
        )
        return Order(made, name, tuple(map(tuple, rows)), self._passes(made))

    def _passes(self, schedule: Any) -> tuple[tuple[Pass, ...], ...]:
        return tuple(
            tuple(_row(schedule, device)) for device in range(self.n_devices)
        )

    def lowered(self, schedule: Any, name: str, pipeline: Any) -> Order:
        """Makes an order; receives are posted as in the simulation of
        `pipeline`."""
        whole = owned(
            "lh_schedule",
            lib.lh_schedule_free,
            lib.lh_schedule_merge_parts,
            pipeline,
            schedule,
        )
        text = _exported(pipeline, whole, lib.LH_PYTORCH_COMPUTE_COMMS)
        rows = tuple(
            tuple(cell for cell in row.split(",") if cell)
            for row in text.splitlines()
        )
        return Order(whole, name, rows, self._passes(whole))

    def text(self, order: Order) -> str:
        """Returns the CSV of passes alone."""
        return _exported(
            self.pipeline, order.schedule, lib.LH_PYTORCH_COMPUTE_ONLY
        )

    def predicted(self, order: Order) -> Any:
        """Returns the lh_trace of a simulated iteration."""
        sim = options("lh_sim_options", fifo=True)
        timeline = owned(
            "lh_timeline",
            lib.lh_timeline_free,
            lib.lh_simulate,
            self.pipeline,
            order.schedule,
            sim,
        )
        return owned(
            "lh_trace",
            lib.lh_trace_free,
            lib.lh_trace_make,
            self.pipeline,
            timeline,
            ffi.NULL,
        )

    def check_replicas(self, n: int) -> None:
        """Raises if a job's `n` pipelines are no replicas of the plan's; each
        may be one of several by tensor or context parallelism."""
        wanted = 1 if self.demands is None else self.demands.replicas
        if n % wanted != 0:
            raise InvalidError(
                f"{self.name}: layout.data is {wanted}; of its pipelines of "
                f"{self.n_devices} ranks the job has {n}: start {wanted}, or "
                "after the loss of a host without a spare one plan for the "
                "hosts that are left"
            )

    def check_rank(
        self, device: int, n_devices: int, chunks: list[int]
    ) -> None:
        """Raises if a rank's chunks differ from the pipeline's."""
        if n_devices != self.n_devices:
            raise InvalidError(
                f"{self.name}: has {self.n_devices} devices; the stages' "
                f"process group has {n_devices} ranks"
            )
        own = [c for c, d in enumerate(self.places) if d == device]
        if sorted(chunks) != own:
            raise InvalidError(
                f"{self.name}: device {device} has chunks {own}; rank {device} "
                f"of the pipeline was given stages {sorted(chunks)}"
            )


def _row(schedule: Any, device: int) -> Iterator[Pass]:
    n = ffi.new("uint32_t *")
    row = lib.lh_schedule_order(schedule, device, n)
    for i in range(n[0]):
        yield pass_of(row[i])


def _without_offload(pipeline: Any) -> Any:
    """Returns the pipeline with passes that offload nothing: exports reject
    offloading, which changes no order of passes and messages."""
    if not lib.lh_pipeline_offloads(pipeline):
        return pipeline
    desc = described(pipeline)
    chunks = ffi.new("lh_chunk[]", desc.n_chunks)
    for i in range(desc.n_chunks):
        chunks[i] = desc.chunks[i]
        chunks[i].offload_ns = 0
    desc.chunks = chunks
    return owned(
        "lh_pipeline", lib.lh_pipeline_free, lib.lh_pipeline_make, desc
    )


def _exported(pipeline: Any, schedule: Any, form: int) -> str:
    pipeline = _without_offload(pipeline)
    text, size = ffi.new("char **"), ffi.new("size_t *")
    try_call(
        lib.lh_export_pytorch, pipeline, schedule, form, text, size, ffi.NULL
    )
    try:
        return bytes(ffi.buffer(text[0], size[0])).decode()
    finally:
        lib.lh_text_free(text[0])
