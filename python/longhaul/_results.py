# SPDX-License-Identifier: Apache-2.0
"""Results: the program's --json output, with types.

Names that end in `_s` are times in seconds, in `_ns` in nanoseconds. Memory is
in bytes if the name ends in `_bytes`, else in the pipeline's unit.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

R = TypeVar("R", bound="Result")


def nested(of: Callable[[Any], Any]) -> Any:
    """A field whose JSON value is converted by `of`; None if absent."""
    return dataclasses.field(default=None, metadata={"of": of})


def several(of: Callable[[Any], Any], shown: bool = True) -> Any:
    """A JSON list with each value converted by `of`; empty if absent. `shown`:
    it is part of the repr."""
    return dataclasses.field(default=(), repr=shown, metadata={"of": each(of)})


def plain() -> Any:
    """A field with an unconverted JSON map."""
    return dataclasses.field(default=None)


@dataclasses.dataclass(frozen=True)
class Result:
    """A map of the library's JSON whose keys are attributes.

    `to_dict()` also has the values without an attribute. None: the value is
    absent from the JSON, or null there.
    """

    _json: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls: type[R], given: Mapping[str, Any], **more: Any) -> R:
        """Makes the result from a map."""
        values: dict[str, Any] = {"_json": given}
        for field in dataclasses.fields(cls):
            key = field.name.rstrip("_")  # "pass_" stands for "pass"
            if not field.name.startswith("_") and key in given:
                value = given[key]
                of = field.metadata.get("of")
                values[field.name] = (
                    of(value) if of and value is not None else value
                )
        return cls(**values, **more)

    def to_dict(self) -> dict[str, Any]:
        """Returns a copy of all values, as in the program's --json output."""
        return json.loads(json.dumps(self._json))


def each(
    of: Callable[[Any], Any],
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Converts each value of a list by `of`."""

    def convert(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(of(value) for value in values)

    return convert


def tuple_of(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values)


@dataclasses.dataclass(frozen=True)
class SiteStages(Result):
    """Consecutive stages of a pipeline in one datacenter."""

    datacenter: str = ""
    stages: int = 0


@dataclasses.dataclass(frozen=True)
class SiteGroup(Result):
    """Replicas whose stages are in the same datacenters."""

    replicas: int = 0
    pipeline: tuple[SiteStages, ...] = several(SiteStages.of)


@dataclasses.dataclass(frozen=True)
class Layout(Result):
    """Degrees of parallelism: tensor x context x pipeline x data GPUs."""

    tensor: int = 0
    context: int = 0
    expert: int = 0
    pipeline: int = 0
    data: int = 0
    micro_batch: int = 0
    chunks_per_device: int = 0
    outermost: str | None = None
    rank_order: str | None = None
    packing: str | None = None
    sharding: str | None = None
    schedule: str | None = None
    expert_tensor: int | None = None
    sites: tuple[SiteGroup, ...] | None = nested(each(SiteGroup.of))
    chunk_layers: tuple[int, ...] | None = nested(tuple_of)


@dataclasses.dataclass(frozen=True)
class Choice(Result):
    """One layout with one schedule, and its results.

    `iteration_s` is None if the layout does not fit or was not simulated. Then
    `lower_bound_ns` is a lower bound, and `why` the reason.
    """

    status: str = ""
    layout: Layout = nested(Layout.of)
    placement: str | None = None
    recompute: str | None = None
    zero: int = 0
    microbatches: int = 0
    iteration_s: float | None = None
    iteration_ns: int | None = None
    makespan_ns: int | None = None
    lower_bound_ns: int | None = None
    bubble_ratio: float | None = None
    peak_memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    why: str | None = None


@dataclasses.dataclass(frozen=True)
class RankMemory(Result):
    """Peak memory of one GPU of a pipeline rank, by kind, in bytes."""

    rank: int = 0
    parameters_bytes: int = 0
    gradients_bytes: int = 0
    optimizer_bytes: int = 0
    activations_bytes: int = 0
    buffers_bytes: int = 0
    temporary_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """The sum: the peak."""
        return (
            self.parameters_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.buffers_bytes
            + self.temporary_bytes
        )


@dataclasses.dataclass(frozen=True)
class Answer(Result):
    """The plan under other links: its iteration time, and the best plan."""

    links: str = ""
    keeping_costs: float | None = None
    kept: Choice = nested(Choice.of)
    best: Choice = nested(Choice.of)


@dataclasses.dataclass(frozen=True)
class Segment(Result):
    """A segment of the critical path, from `start_s` to `end_s`.

    `kind` is "pass", "transfer", "latency", "head_of_line" or "collective".
    """

    kind: str = ""
    start_s: float = 0.0
    end_s: float = 0.0
    device: int = 0
    pass_: str | None = None
    chunk: int | None = None
    link: str | None = None


@dataclasses.dataclass(frozen=True)
class LinkUse(Result):
    """Use of a link in an iteration."""

    name: str = ""
    messages: int = 0
    busy_s: float = 0.0
    utilisation: float = 0.0
    queued_s: float = 0.0
    max_queue: int = 0


@dataclasses.dataclass(frozen=True)
class Spread(Result):
    """Iterations under random delays, in seconds: for a plan including the
    communication after the pipeline, else makespans.
    """

    samples: int = 0
    mean_s: float = 0.0
    least_s: float = 0.0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    most_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Engine(Result):
    """Work and results of one engine in the search for an optimal schedule."""

    name: str = ""
    on: bool = False
    effort: int = 0
    calls: int = 0
    improved: int = 0
    gained_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Row(Result):
    """A method on a pipeline, at one latency and transfer time of the links.

    `status` is "ok", "over memory", or the reason why there is no schedule.
    """

    method: str = ""
    pipeline: str = ""
    status: str = ""
    makespan_s: float | None = None
    lower_bound_s: float = 0.0
    latency_s: float | None = None
    transfer_s: float | None = None
    why: str | None = None
    objective_s: float | None = None
    iteration_s: float | None = None
    bubble_ratio: float | None = None
    peak_memory: tuple[int, ...] | None = nested(tuple_of)
    jitter: Spread | None = nested(Spread.of)


@dataclasses.dataclass(frozen=True)
class Policy(Result):
    """A policy on an optical network: means over its jobs and seeds."""

    policy: str = ""
    iteration_s: float = 0.0
    iteration_s_sd: float = 0.0
    bubble_ratio: float = 0.0
    bubble_ratio_sd: float = 0.0
    blocking_probability: float = 0.0
    blocking_probability_sd: float = 0.0
    slots_held: float = 0.0
    collateral: float = 0.0
    lower_bound_s: float = 0.0


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Makes a pandas.DataFrame; needs pandas."""
    pandas: Any = importlib.import_module("pandas")
    return pandas.DataFrame(list(rows))
