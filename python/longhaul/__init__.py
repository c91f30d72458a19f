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

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

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
from ._sizes import Size, Sizes, size
from ._verdicts import Verdict, check

if _TYPE_CHECKING:
    from ._checkpoints import write_shards
    from ._metrics import TensorBoard, WandB
    from ._program import run
    from ._runs import (
        Cause,
        Diagnosis,
        MeasuredMemory,
        Profile,
        ProfileEntry,
        Remedy,
        Step,
        Training,
        TrainResult,
        diagnose,
        profile,
        train,
    )

# Imported at first use: they import modules that the other functions do not
# need.
_LATER = {
    "_checkpoints": ("write_shards",),
    "_metrics": ("TensorBoard", "WandB"),
    "_program": ("run",),
    "_runs": (
        "Cause",
        "Diagnosis",
        "MeasuredMemory",
        "Profile",
        "ProfileEntry",
        "Remedy",
        "Step",
        "TrainResult",
        "Training",
        "diagnose",
        "profile",
        "train",
    ),
}


def __getattr__(name: str) -> _Any:
    for module, names in _LATER.items():
        if name in names:
            found = getattr(
                _importlib.import_module(f".{module}", __name__), name
            )
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__: str = _text_of(_lib.lh_version())

__all__ = [
    "Answer",
    "Cause",
    "Choice",
    "Comparison",
    "DeadlockError",
    "Delays",
    "Diagnosis",
    "Engine",
    "Error",
    "FileError",
    "InfeasibleError",
    "InputError",
    "InvalidError",
    "Jitter",
    "Layout",
    "LinkUse",
    "MeasuredMemory",
    "Optical",
    "Plan",
    "Policy",
    "Profile",
    "ProfileEntry",
    "RankMemory",
    "Remedy",
    "Result",
    "Row",
    "Schedule",
    "Segment",
    "Simulation",
    "SiteGroup",
    "SiteStages",
    "Size",
    "Sizes",
    "Spread",
    "Step",
    "TensorBoard",
    "TrainResult",
    "Training",
    "UnsupportedError",
    "Verdict",
    "WandB",
    "check",
    "compare",
    "diagnose",
    "export",
    "methods",
    "optical",
    "plan",
    "profile",
    "read_plan",
    "run",
    "schedule",
    "simulate",
    "size",
    "train",
    "write_shards",
]
