# SPDX-License-Identifier: Apache-2.0
"""Verification of schedules."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from . import _errors
from ._inputs import Source
from ._library import encoded, ffi, lib, made_json, owned
from ._problems import Planned, Problem, Scheduled, order_of, sim_options
from ._results import Result, nested, plain, tuple_of


@dataclasses.dataclass(frozen=True)
class Verdict(Result):
    """The verifier's result for a schedule. False if the schedule is invalid.

    Attributes:
        violations: of the rules, as text; at most 100 of `n_violations`.
        makespan_s: computed by the verifier; None if the schedule cannot run.
        certificate: of optimality: "status", "proof" and "claims".
    """

    valid: bool = False
    violations: tuple[str, ...] = nested(tuple_of)
    n_violations: int = 0
    makespan_s: float | None = None
    peak_memory: tuple[int, ...] = nested(tuple_of)
    certificate: Mapping[str, Any] | None = plain()

    def __bool__(self) -> bool:
        return self.valid


def check(
    what: Source | Planned | Scheduled,
    schedule: Any = None,
    *,
    fifo: bool = False,
    certificate: str | os.PathLike[str] | None = None,
) -> Verdict:
    """Verifies a schedule by code that is independent of the schedulers.

    Args:
        what: a pipeline or a plan, or a `Schedule` with its pipeline.
        schedule: a CSV's or plan's path, the text of a CSV, or a `Schedule`.
            None: that of `what`, which a pipeline does not have.
        fifo: ignore the schedule's message orders.
        certificate: also check this optimality certificate.
    """
    problem = Problem(what)
    if schedule is None and isinstance(what, Scheduled):
        schedule = what
    if schedule is None and problem.plan is None:
        raise _errors.InvalidError(
            "schedule: it is missing; a pipeline has none of its own"
        )
    sim = sim_options(None, None, fifo)
    order = order_of(problem, schedule, sim, 1, False).schedule
    if fifo:
        order = owned(
            "lh_schedule",
            lib.lh_schedule_free,
            lib.lh_schedule_copy,
            order,
            False,
        )
    verdict = owned(
        "lh_verdict", lib.lh_verdict_free, lib.lh_check, problem.pipeline, order
    )
    proof, claims = ffi.NULL, ffi.NULL
    if certificate is not None:
        path = os.fsdecode(certificate)
        proof = owned(
            "lh_certificate",
            lib.lh_certificate_free,
            lib.lh_certificate_read,
            encoded(path),
            name=path,
        )
        claims = owned(
            "lh_claims",
            lib.lh_claims_free,
            lib.lh_check_certificate,
            problem.pipeline,
            order,
            proof,
        )
    return Verdict.of(
        made_json(
            lib.lh_verdict_format, verdict, problem.pipeline, proof, claims
        )
    )
