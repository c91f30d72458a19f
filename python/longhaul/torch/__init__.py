# SPDX-License-Identifier: Apache-2.0
"""Runs longhaul's plans with PyTorch.

    from longhaul.torch import PipelineRuntime

    runtime = PipelineRuntime("plan.json", stages, loss_fn=loss)
    runtime.step(x, target=y, losses=losses)

Needs torch 2.9 to 2.15. Importing `longhaul` alone does not import torch.
"""

from ._versions import check as _check

_check()

from ._activations import operation  # noqa: E402
from ._checkpoints import write_dcp  # noqa: E402
from ._profile import profile  # noqa: E402
from ._ranges import name_passes, pass_range  # noqa: E402
from ._restarts import MemoryCheckpoint  # noqa: E402
from ._runtime import Adapt, PipelineRuntime, Switch, places  # noqa: E402

__all__ = [
    "Adapt",
    "MemoryCheckpoint",
    "PipelineRuntime",
    "Switch",
    "name_passes",
    "operation",
    "pass_range",
    "places",
    "profile",
    "write_dcp",
]
