# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Runs a program of Megatron-LM with a plan's schedule, and its files as they
are: the function that the program asks for is replaced in this process."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from typing import Any

import megatron.core.distributed
import megatron.core.optimizer
import megatron.core.pipeline_parallel
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer import (
    pipeline_parallel_layer_layout as layer_layout,
)

from .._errors import Error, InvalidError
from ._layout import Layout
from ._runtime import ForwardBackward
from ._stages import Stage


def install(run: ForwardBackward) -> None:
    """Makes `get_forward_backward_func()` return `run` in this process, and
    places the layers as in its plan. Call it before other modules import that
    function, and before a model is built."""

    def get_forward_backward_func(*_: Any, **__: Any) -> ForwardBackward:
        return run

    for module in (schedules, megatron.core.pipeline_parallel):
        module.get_forward_backward_func = get_forward_backward_func
    if run.is_elastic:
        megatron.core.distributed.DistributedDataParallel = run.data_parallel
        megatron.core.optimizer.get_megatron_optimizer = (
            run.get_megatron_optimizer
        )
    ranks = max(run.places) + 1
    if run.places != tuple(k % ranks for k in range(len(run.places))):
        _place(run.places)


def _place(places: tuple[int, ...]) -> None:
    """Replaces Megatron's placement of chunks."""
    layer_layout.PipelineParallelLayerLayout.from_str = staticmethod(
        lambda layout, *_, **__: Layout(layout, places)
    )
    ranks = max(places) + 1
    own = [[k for k, p in enumerate(places) if p == r] for r in range(ranks)]
    last = len(places) - 1

    def chunk(vp_stage: int | None) -> int:
        rank = parallel_state.get_pipeline_model_parallel_rank()
        return own[rank][vp_stage or 0]

    def is_at(end: int, rank: int) -> Any:
        """Makes a function that tests for the chunk at an end of the model, or
        outside of forward steps for the rank that Megatron-LM has there."""

        def is_pipeline_stage(
            ignore_virtual: bool = True, vp_stage: int | None = None
        ) -> bool:
            if not ignore_virtual:
                return chunk(vp_stage) == end
            if Stage.running is not None:
                return Stage.running == end
            return parallel_state.get_pipeline_model_parallel_rank() == rank

        return is_pipeline_stage

    # A program distributes inputs and labels over tensor parallelism by them,
    # and reports the loss on the last rank.
    parallel_state.is_pipeline_first_stage = is_at(0, 0)
    parallel_state.is_pipeline_last_stage = is_at(last, ranks - 1)
    # Programs derive both ends of the model from the rank, in several ways.
    make = GPTModel.__init__

    def make_chunk(self: GPTModel, *given: Any, **named: Any) -> None:
        at = chunk(named.get("vp_stage"))
        named |= {"pre_process": at == 0, "post_process": at == last}
        make(self, *given, **named)

    GPTModel.__init__ = make_chunk


def _schedule_at(text: str) -> tuple[int, str]:
    step, sign, schedule = text.partition("=")
    if not sign or not step.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be N=SCHEDULE")
    return int(step), schedule


def main(words: list[str] | None = None) -> int:
    """The program. Its options come first, then those of Megatron's."""
    parser = argparse.ArgumentParser(
        prog="longhaul.megatron",
        description="Runs a program of Megatron-LM with a plan's schedule.",
    )
    parser.add_argument("--plan", required=True, help="a plan or a pipeline")
    parser.add_argument(
        "--schedule", help="a method or a CSV; default: the plan's own"
    )
    parser.add_argument(
        "--schedule-at",
        metavar="N=SCHEDULE",
        action="append",
        type=_schedule_at,
        default=[],
        help="change the schedule before iteration N, counted from 0",
    )
    parser.add_argument("--path", help="direct, delegated, or links' names")
    parser.add_argument(
        "--rails", help="send messages over these network interfaces"
    )
    parser.add_argument("--inject", help="emulate the links, with these delays")
    parser.add_argument(
        "--adapt",
        action="store_true",
        help="switch schedules when links and devices change",
    )
    parser.add_argument(
        "-m",
        dest="is_module",
        action="store_true",
        help="PROGRAM is a module",
    )
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    at = dict(given.schedule_at)
    try:
        if len(at) != len(given.schedule_at):
            raise InvalidError("--schedule-at: two schedules for an iteration")
        run = ForwardBackward(
            given.plan,
            schedule=given.schedule,
            schedule_at=at,
            path=given.path,
            rails=given.rails,
            inject=given.inject,
            adapt=given.adapt,
        )
    except Error as error:
        print(f"longhaul.megatron: {error}", file=sys.stderr)
        return 1
    install(run)
    sys.argv = [given.program, *given.arguments]
    try:
        if given.is_module:
            runpy.run_module(given.program, run_name="__main__", alter_sys=True)
        else:  # imports modules of the program's folder, as python does
            sys.path.insert(0, os.path.dirname(os.path.abspath(given.program)))
            runpy.run_path(given.program, run_name="__main__")
    finally:
        run.close()
    return 0
