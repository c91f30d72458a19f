# SPDX-License-Identifier: Apache-2.0
"""Callbacks that write a run's metrics by other libraries."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ._errors import UnsupportedError

if TYPE_CHECKING:
    from ._runs import Step, Training


def _imported(module: str, package: str, user: str) -> Any:
    """Imports a library that the package does not depend on."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        found = None
    # A folder of that name, as wandb makes one, is no installed package.
    if found is None or found.__file__ is None:
        raise UnsupportedError(
            f"{user}: needs the package {package}; install it by "
            f"'pip install {package}'"
        )
    return found


class TensorBoard:
    """Writes each step's numbers as scalars for TensorBoard.

        longhaul.train("plan.json", callbacks=[longhaul.TensorBoard("logs")])

    Needs the package tensorboard.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Creates an event file in `folder`.

        Raises:
            UnsupportedError: tensorboard is not installed.
        """
        summary = _imported("tensorboard.summary", "tensorboard", "TensorBoard")
        self._writer = summary.Writer(os.fspath(folder))

    def __call__(self, step: Step, training: Training) -> None:
        for name, value in step.metrics().items():
            self._writer.add_scalar(name, value, step.step)
        self._writer.flush()

    def close(self) -> None:
        """Completes the event file; called at the run's end."""
        self._writer.close()


class WandB:
    """Logs each step's numbers to a run of Weights & Biases.

        longhaul.train("plan.json", callbacks=[longhaul.WandB(project="x")])

    Needs the package wandb.
    """

    def __init__(self, **given: Any) -> None:
        """Begins a run by `wandb.init(**given)`.

        Raises:
            UnsupportedError: wandb is not installed.
        """
        self._run = _imported("wandb", "wandb", "WandB").init(**given)

    def __call__(self, step: Step, training: Training) -> None:
        self._run.log(step.metrics(), step=step.step)

    def close(self) -> None:
        """Completes the run; called at the training's end."""
        self._run.finish()
