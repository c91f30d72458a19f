# SPDX-License-Identifier: Apache-2.0
"""Policies for pipelines over an optical network."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ._inputs import Source, Text
from ._library import ffi, lib, made_json, made_text, options, owned
from ._results import Policy, Result, frame_of, nested
from ._search import Search


def _policies(given: Mapping[str, Any]) -> Mapping[str, Policy]:
    return {name: Policy.of(policy) for name, policy in given.items()}


@dataclasses.dataclass(frozen=True)
class Optical(Result):
    """Policies in a scenario by name, each over all seeds. Times in seconds."""

    topology: str = ""
    policies: Mapping[str, Policy] = nested(_policies)
    _scenario: Any = dataclasses.field(default=None, repr=False, compare=False)
    _optical: Any = dataclasses.field(default=None, repr=False, compare=False)

    def html(self) -> str:
        """Returns one HTML page: policies, topology, spectrum, an iteration."""
        return made_text(lib.lh_optical_html, self._scenario, self._optical)

    def frame(self) -> Any:
        """Returns the policies as a pandas.DataFrame; needs pandas."""
        rows = [
            {"name": name, **{k: v for k, v in one.items() if k != "seeds"}}
            for name, one in self._json["policies"].items()
        ]
        return frame_of(rows)


def optical(
    scenario: Source,
    *,
    seeds: Sequence[int] | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Optical:
    """Simulates every policy of a scenario with every seed.

    Args:
        scenario: a path, a text or a map.
        seeds: in place of the scenario's.
        threads: maximum number; None: one per processor. The result does not
            depend on it.
        progress: show a tqdm bar; None: on a terminal and in notebooks.
    """
    text = Text(scenario)
    if text.path is not None:
        made = owned(
            "lh_scenario",
            lib.lh_scenario_free,
            lib.lh_scenario_read,
            os.fsencode(text.path),
            name=text.path,
        )
    else:
        made = text.parsed(
            "lh_scenario", lib.lh_scenario_free, lib.lh_scenario_parse
        )
    search = Search("optical", progress)
    numbers = None if seeds is None else ffi.new("uint64_t[]", list(seeds))
    how = options(
        "lh_optical_options",
        threads=threads,
        n_seeds=None if seeds is None else len(seeds),
        seeds=numbers,
        progress=lib.longhaul_on_point,
        context=search.context,
    )
    found = search.run(
        lambda: owned(
            "lh_optical", lib.lh_optical_free, lib.lh_optical_run_all, made, how
        )
    )
    return Optical.of(
        made_json(lib.lh_optical_format, made, found),
        _scenario=made,
        _optical=found,
    )
