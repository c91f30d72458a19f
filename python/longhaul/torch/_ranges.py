# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Names passes in traces of torch.profiler for `longhaul diagnose`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from torch.distributed.pipelining import schedules
from torch.profiler import record_function

from .._errors import InvalidError

Schedule = TypeVar("Schedule")
# Classes whose schedules name their passes themselves.
_NAMED = (schedules._PipelineScheduleRuntime, schedules.ScheduleGPipe)


def pass_range(
    kind: str, chunk: int, microbatch: int
) -> AbstractContextManager[Any]:
    """Names a pass in the profiler's trace, as a context manager.

        with pass_range("F", chunk, microbatch):
            output = module(input)

    Receive the input before the range, and send the output after it.

    Args:
        kind: "F" forward, "B" backward, or its halves "I" (gradients of the
            inputs) and "W" (gradients of the weights).
        chunk: number of the chunk in the model, from 0.
        microbatch: number of the microbatch in the step, from 0.
    """
    if kind not in ("F", "B", "I", "W"):
        raise InvalidError(f"kind: {kind!r} must be 'F', 'B', 'I' or 'W'")
    return record_function(f"PP:{chunk}{kind}{microbatch}")


def name_passes(schedule: Schedule) -> Schedule:
    """Names the passes of a schedule of torch.distributed.pipelining.

    `longhaul diagnose` derives the passes of Schedule1F1B from its operators.
    A schedule class with another order of messages may need names. Schedules
    of PyTorch that name their passes remain as they are, and so do stages that
    another schedule shares and whose passes are named already.

    Args:
        schedule: a schedule with its stages; changed in place.

    Returns:
        The schedule.
    """
    if isinstance(schedule, _NAMED):
        return schedule
    stages: list[Any] = getattr(schedule, "_stages", None) or [
        getattr(schedule, "_stage", None)
    ]
    for stage in stages:
        if not hasattr(stage, "forward_one_chunk"):
            raise InvalidError(
                "schedule: must be one of torch.distributed.pipelining"
            )
        for kind, name in (
            ("F", "forward_one_chunk"),
            ("B", "backward_one_chunk"),
        ):
            method = getattr(stage, name)
            if getattr(method, "func", None) is not _call_named:
                named = partial(_call_named, method, kind, stage.stage_index)
                setattr(stage, name, named)
    return schedule


def _call_named(
    method: Any,
    kind: str,
    chunk: int,
    microbatch: int,
    /,
    *args: Any,
    **more: Any,
) -> Any:
    with pass_range(kind, chunk, microbatch):
        return method(microbatch, *args, **more)
