# SPDX-License-Identifier: Apache-2.0
"""Sizes: GPUs that train a number of tokens before a deadline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from . import _errors
from ._inputs import Source, job_of
from ._library import ffi, lib, made_json, options, owned
from ._results import Layout, Result, frame_of, nested, several
from ._search import Search


@dataclasses.dataclass(frozen=True)
class Size(Result):
    """Nodes of each datacenter, and the predicted training on them.

    Attributes:
        gpus, spare_gpus: GPUs in use, and those of the spare nodes.
        spot: on spot capacity.
        datacenters: "datacenter", "gpu", "nodes" and "gpus_per_node" of each
            datacenter in use.
        layout: degrees of parallelism.
        iteration_s, tokens_per_s: without failures.
        goodput: "fraction" of the time that makes progress, with its causes.
        train_s: training time with failures, in seconds; None: endless.
        usd, gpus_usd, between_usd: cost in all, of the nodes, and of traffic
            between datacenters; None: no prices.
        accuracy: errors of modelled times in published runs of this kind; None:
            there are none.
        losses: training without some nodes of a datacenter.
    """

    gpus: int = 0
    spare_gpus: int = 0
    spot: bool = False
    datacenters: tuple[Mapping[str, Any], ...] = several(dict)
    layout: Layout = nested(Layout.of)
    iteration_s: float = 0.0
    tokens_per_s: float = 0.0
    goodput: Mapping[str, float] = nested(dict)
    train_s: float | None = None
    usd: float | None = None
    gpus_usd: float | None = None
    between_usd: float | None = None
    accuracy: Mapping[str, Any] | None = nested(dict)
    losses: tuple[Mapping[str, Any], ...] = several(dict)


@dataclasses.dataclass(frozen=True)
class Sizes(Result):
    """The best sizes for a deadline and a budget, and bounds on all others.

    Attributes:
        found: some size meets the requirements.
        fewest, cheapest: the best sizes; None: none was found.
        fastest: with a budget the fastest size that meets the requirements;
            if none does, the fastest one; None: not searched.
        knee: the planned size with the least product of time and cost; None:
            no prices, or the product is not a tenth below the others'.
        gpus_bound, usd_bound, train_bound_s: no size with fewer GPUs, at less
            cost or, with a budget, in less time meets the requirements; None:
            unknown or, for GPUs, no size meets them.
        sizes, planned, all_planned: sizes in the ranges, planned ones, and
            whether each was planned or excluded by a bound.
        interrupted: the search was stopped; there are no bounds.
    """

    tokens: float = 0.0
    deadline_s: float | None = None
    budget_usd: float | None = None
    found: bool = False
    fewest: Size | None = nested(Size.of)
    cheapest: Size | None = nested(Size.of)
    fastest: Size | None = nested(Size.of)
    knee: Size | None = nested(Size.of)
    sizes: float = 0.0
    planned: int = 0
    all_planned: bool = False
    interrupted: bool = False
    gpus_bound: int | None = None
    usd_bound: float | None = None
    train_bound_s: float | None = None

    def frame(self) -> Any:
        """Returns the sizes as a pandas.DataFrame; needs pandas."""
        names = ("fewest", "cheapest", "fastest", "knee")
        rows = [
            {"name": name, **self._json[name]}
            for name in names
            if self._json.get(name)
        ]
        return frame_of(rows)


def _ranges(given: Sequence[tuple[int, int]] | None, sites: int) -> Any:
    if given is None:
        return None
    if len(given) not in (1, sites):
        raise _errors.InvalidError(
            f"nodes: {len(given)} ranges for {sites} datacenters; give one, "
            "or one for each"
        )
    ranges = list(given) * (sites if len(given) == 1 else 1)
    return ffi.new("lh_size_range[]", [tuple(x) for x in ranges])


def size(
    job: Source,
    *,
    tokens: float,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    nodes: Sequence[tuple[int, int]] | None = None,
    gpu_mtbf_s: float = 50000 * 3600.0,
    link_mtbf_s: float | None = None,
    checkpoint_s: float = 30.0,
    restart_s: float = 300.0,
    repair_s: float = 24 * 3600.0,
    link_repair_s: float = 3600.0,
    spares: int = 0,
    lose: int | None = None,
    spot: tuple[float, float] | None = None,
    gpu_hour_usd: float | None = None,
    per_gb_usd: float | None = None,
    effort: int | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Sizes:
    """Searches the fewest, cheapest and fastest GPUs that train the tokens.

    Ctrl-C ends the search with KeyboardInterrupt.

    Args:
        job: a path, a text (with a line end in it, or a map in JSON), or a map.
        tokens: number of tokens to train.
        deadline_s, budget_usd: longest training time, and highest cost; one of
            them is required.
        nodes: the least and most nodes to consider, one pair for all
            datacenters or one for each; None: up to the job's nodes.
        gpu_mtbf_s, link_mtbf_s: mean time between failures of a GPU, and of
            the link between two datacenters; None: no such failures.
        checkpoint_s, restart_s: time for which a checkpoint stops training,
            and from a failure until training continues.
        repair_s, link_repair_s: time until a failed node or link returns.
        spares: spare nodes in each datacenter in use.
        lose: also plan the loss of so many nodes of a datacenter; None: 2.
        spot: also consider spot capacity: its share of the price, and the mean
            time in seconds until a node is taken away.
        gpu_hour_usd, per_gb_usd: prices in place of the job's.
        effort: number of sizes to plan; None: 24.
        threads: maximum number; None: one per processor. The result does not
            depend on it.
        progress: show a tqdm bar; None: on a terminal and in notebooks.

    Raises:
        InputError: the job is invalid, or has no prices for a budget.
        InfeasibleError: no size in the ranges fits in memory.
    """
    if deadline_s is None and budget_usd is None:
        raise _errors.InvalidError("deadline_s or budget_usd is required")
    if lose is not None and lose < 1:
        raise _errors.InvalidError(f"lose is {lose}; expected 1 node or more")
    made = job_of(job)
    search = Search("sizes", progress)
    failures = options(
        "lh_failures",
        gpu_mtbf_s=gpu_mtbf_s,
        link_mtbf_s=link_mtbf_s,
        checkpoint_s=checkpoint_s,
        restart_s=restart_s,
        repair_s=repair_s,
        link_repair_s=link_repair_s,
        spares=spares,
    )
    how = options(
        "lh_size_options",
        tokens=tokens,
        deadline_s=deadline_s,
        budget_usd=budget_usd,
        ranges=_ranges(nodes, made.n_datacenters),
        failures=failures,
        spot_price=spot[0] if spot else None,
        spot_mtbf_s=spot[1] if spot else None,
        lost_nodes=lose,
        usd_per_gpu_hour=gpu_hour_usd,
        usd_per_gb=per_gb_usd,
        effort=effort,
        threads=threads,
        progress=lib.longhaul_on_point,
        context=search.context,
    )
    found = search.run(
        lambda: owned(
            "lh_size_result",
            lib.lh_size_result_free,
            lib.lh_size_find,
            made,
            how,
        )
    )
    return Sizes.of(made_json(lib.lh_size_result_format, made, how, found))
