# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Applies a plan's sharding, recomputation and offloading to a rank's stages,
or rejects them with the plan's key."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage

from .._errors import InvalidError, UnsupportedError
from ._activations import Offload, recompute
from ._modules import stack_of
from ._orders import Course, Demands
from ._sharding import Part, Sharding, parts_of


@dataclasses.dataclass(frozen=True)
class Features:
    """Arguments of a runtime for its plan's sharding, recomputation and
    offloading.

    Attributes:
        replicas: process group of the ranks with the same chunks; with `sites`
            those of a datacenter.
        layers: function that returns a chunk's layers; None: the list of
            modules with the most parameters.
        operations: submodules of a layer by the plan's operations.
        own_activations: the stages recompute and offload by themselves.
        has_parts: the stages have split their parameters by themselves.
        sites: process group of the ranks with the same shards, one of each
            datacenter (hybrid sharding).
    """

    replicas: Any = None
    layers: Callable[[nn.Module], Sequence[nn.Module]] | None = None
    operations: Mapping[str, str | Iterable[str]] | None = None
    own_activations: bool = False
    has_parts: bool = False
    sites: Any = None

    def check(self, course: Course) -> None:
        """Raises if the runtime cannot run a plan with these arguments."""
        demands = course.demands
        if self.replicas is None and course.has_operations:
            key = "data_parallel.operations" if demands is None else "elastic"
            raise UnsupportedError(
                f"{course.name}: {key}: parameters and gradients are sharded "
                "group by group; pass the process group of the ranks with the "
                "same chunks as `replicas` to longhaul.torch.PipelineRuntime"
            )
        if self.sites is not None and (self.replicas is None or self.has_parts):
            raise InvalidError(
                "sites: needs `replicas`, the group over which a datacenter "
                "shards parameters; Megatron-LM's chunks have no sites"
            )
        if demands is None:
            return
        if self.replicas is not None:
            self._check_replicas(course.name, demands)
        if not self.own_activations:
            _check_activations(course.name, demands)

    def _check_replicas(self, name: str, demands: Demands) -> None:
        n, wanted = dist.get_world_size(self.replicas), demands.replicas
        if self.sites is not None and not demands.is_hybrid:
            raise InvalidError(
                f"{name}: layout.sharding: parameters are sharded over all "
                "replicas; leave `sites` out"
            )
        sites = 1 if self.sites is None else dist.get_world_size(self.sites)
        if n * sites != wanted:
            raise InvalidError(
                f"{name}: layout.data is {wanted}; the process group "
                f"`replicas` has {n} ranks"
                + (f", and `sites` {sites}: " if sites > 1 else ": ")
                + f"the product must be {wanted}"
            )
        if demands.zero is not None and demands.zero != 1:
            raise UnsupportedError(
                f"{name}: zero is {demands.zero}; `replicas` runs ZeRO-1 and "
                "elastic plans: leave `replicas` out, and wrap the stages in "
                "DistributedDataParallel (0) or fully_shard (2 and 3)"
            )
        if demands.expert > 1 and not self.has_parts:
            raise UnsupportedError(
                f"{name}: layout.expert: `replicas` does not run experts on "
                "several ranks; use 'longhaul train --device cpu', or plan "
                "without it"
            )
        if demands.context > 1 and not self.has_parts:
            raise UnsupportedError(
                f"{name}: layout.context: `replicas` does not shard over ranks "
                "of one sequence; plan with layout.context: 1"
            )
        if demands.has_leaders:
            raise UnsupportedError(
                f"{name}: layout.sharding: with `replicas` every rank reduces "
                "its shard between datacenters; plan with layout.sharding: "
                "hybrid"
            )
        if demands.is_hybrid and self.has_parts:
            raise UnsupportedError(
                f"{name}: layout.sharding: Megatron-LM's chunks are sharded "
                "over all replicas; plan with layout.sharding: full"
            )
        if demands.is_hybrid and self.sites is None:
            raise UnsupportedError(
                f"{name}: layout.sharding: parameters are sharded within "
                "datacenters; pass the process group of the ranks with the "
                "same shards, one of each datacenter, as `sites` to "
                "longhaul.torch.PipelineRuntime"
            )

    def changes(self, course: Course) -> bool:
        """Tests whether the runtime changes a plan's layers."""
        demands = course.demands
        if demands is None or self.own_activations:
            return False
        return demands.recompute != "none" or demands.offload > 0

    def apply(
        self,
        course: Course,
        stages: Sequence[PipelineStage],
        makes_means: bool,
    ) -> Sharding | None:
        """Changes the stages' modules; returns the sharded parameters, if the
        runtime shards them, with gradients that are means over microbatches
        and replicas, or sums."""
        demands = course.demands
        if demands is not None and self.changes(course):
            if demands.recompute != "none":
                for stage in stages:
                    self._recompute(demands, stage)
            if demands.offload > 0:
                offload = Offload(torch.device(stages[0].device))
                for stage in stages:
                    layers = self._layers(stage)
                    # As in the library: 0.28 x 25 layers are 7, but the binary
                    # product is slightly larger.
                    n = math.ceil(demands.offload * (1 - 1e-12) * len(layers))
                    for layer in layers[:n]:
                        offload.wrap(layer)
        if self.replicas is None:
            return None
        for stage in stages:
            if isinstance(
                stage.submod,
                (FSDPModule, nn.parallel.DistributedDataParallel),
            ):
                raise InvalidError(
                    "replicas: a stage's module is wrapped in fully_shard or "
                    "DistributedDataParallel; leave one of both out"
                )
        parts = {
            stage.stage_index: stage.parts
            if self.has_parts
            else parts_of(
                course.pipeline,
                stage.submod,
                lambda _: self.replicas,
                lambda *given: Part(*given, sites=self.sites),
            )
            for stage in stages
        }
        scale = 1.0
        if makes_means:
            n = dist.get_world_size(self.replicas)
            if self.sites is not None:
                n *= dist.get_world_size(self.sites)
            scale /= course.n_microbatches * n
        return Sharding(parts, scale)

    def _layers(self, stage: PipelineStage) -> list[nn.Module]:
        return list((self.layers or stack_of)(stage.submod))

    def _recompute(self, demands: Demands, stage: PipelineStage) -> None:
        for i, layer in enumerate(self._layers(stage)):
            if demands.recompute == "full":
                recompute(layer, frozenset(), {})
                continue
            names = frozenset(
                name
                for name, n in demands.operations.items()
                if i < n[stage.stage_index]
            )
            if names:
                recompute(layer, names, self.operations or {})


def _check_activations(name: str, demands: Demands) -> None:
    own = (
        "; let the stages do it, and pass own_activations=True to "
        "longhaul.torch.PipelineRuntime"
    )
    if demands.recompute not in ("none", "full", "operations"):
        raise UnsupportedError(
            f"{name}: recompute: the runtime recomputes 'full', and operations "
            f"of elastic plans, not {demands.recompute!r}{own}"
        )
    if any(not layers for layers in demands.operations.values()):
        raise UnsupportedError(
            f"{name}: elastic.recomputed: has no `layers`, as files of older "
            "versions; plan again"
        )
    if demands.offload > 0 and demands.recompute != "none":
        raise UnsupportedError(
            f"{name}: offload: the runtime does not offload activations where "
            f"others are recomputed{own}"
        )
