# SPDX-License-Identifier: Apache-2.0
"""Plans and schedules for training across datacenters.

    import longhaul

    plan = longhaul.plan("job.yaml")
    print(plan.iteration_s, plan.layout)
    plan.simulate()  # in Jupyter: its timeline

The C library computes all results. They equal the --json output of the program
`longhaul`, as frozen dataclasses. Calls into the library release the
interpreter's lock, results are immutable, and all functions are thread-safe.
Names that end in `_s` are times in seconds.
"""

from ._comparisons import Comparison, Delays, compare
from ._errors import (
    DeadlockError,
    Error,
    FileError,
    InfeasibleError,
    InputError,
    InvalidError,
    UnsupportedError,
)
from ._library import lib as _lib
from ._library import text_of as _text_of
from ._optical import Optical, optical
from ._plans import Plan, export, plan, read_plan
from ._problems import Jitter
from ._program import run
from ._results import (
    Answer,
    Choice,
    Engine,
    Layout,
    LinkUse,
    Policy,
    RankMemory,
    Result,
    Row,
    Segment,
    SiteGroup,
    SiteStages,
    Spread,
)
from ._schedules import Schedule, methods, schedule
from ._simulations import Simulation, simulate
from ._verdicts import Verdict, check

__version__: str = _text_of(_lib.lh_version())

__all__ = [
    "Answer",
    "Choice",
    "Comparison",
    "DeadlockError",
    "Delays",
    "Engine",
    "Error",
    "FileError",
    "InfeasibleError",
    "InputError",
    "InvalidError",
    "Jitter",
    "Layout",
    "LinkUse",
    "Optical",
    "Plan",
    "Policy",
    "RankMemory",
    "Result",
    "Row",
    "Schedule",
    "Segment",
    "Simulation",
    "SiteGroup",
    "SiteStages",
    "Spread",
    "UnsupportedError",
    "Verdict",
    "check",
    "compare",
    "export",
    "methods",
    "optical",
    "plan",
    "read_plan",
    "run",
    "schedule",
    "simulate",
]
