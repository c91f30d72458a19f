# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Supported torch versions; its pipelining is not a stable interface."""

from __future__ import annotations

import re

from .._errors import UnsupportedError

OLDEST, NEWEST = (2, 9), (2, 15)


def refusal(version: str) -> str | None:
    """Returns the reason why a torch version is unsupported, or None."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        return None
    return (
        f"torch {version}: longhaul.torch works with torch "
        f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}; install one of "
        "these"
    )


def check() -> None:
    """Raises UnsupportedError if torch is missing or unsupported."""
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError(
            f"longhaul.torch needs torch {OLDEST[0]}.{OLDEST[1]} to "
            f"{NEWEST[0]}.{NEWEST[1]}: {error}"
        ) from error
    why = refusal(torch.__version__)
    if why:
        raise UnsupportedError(why)
