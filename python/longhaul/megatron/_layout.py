# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Layers of each rank for placements that Megatron-LM does not have."""

from __future__ import annotations

from typing import Any

from megatron.core import parallel_state
from megatron.core.transformer.enums import LayerType
from megatron.core.transformer.pipeline_parallel_layer_layout import (
    PipelineParallelLayerLayout,
)

from .._errors import InvalidError


class Layout(PipelineParallelLayerLayout):
    """The `pipeline_model_parallel_layout` of a plan's placement.

    Megatron-LM places chunk k on rank k mod P. Here the plan places it (Wave:
    down the ranks and back). Chunks of a rank are numbered in the order of the
    model: their numbers are Megatron's `vp_stage`.
    """

    def __init__(self, layers: Any, places: tuple[int, ...]) -> None:
        """Makes a layout.

        Args:
            layers: layers of each chunk, as Megatron-LM takes them:
                "Et|tt|t|tL", or a list.
            places: the device of each chunk (`longhaul.torch.places`).
        """
        ranks = max(places) + 1
        rows = layers
        if isinstance(layers, str):
            rows = PipelineParallelLayerLayout.parse_str_to_list(layers)
        if len(rows) != len(places):
            raise InvalidError(
                f"layout: has {len(rows)} chunks; the plan has {len(places)}"
            )
        self.chunks = [
            [k for k, at in enumerate(places) if at == rank]
            for rank in range(ranks)
        ]
        each = len(places) // ranks
        if any(len(own) != each for own in self.chunks):
            raise InvalidError("layout: ranks have different numbers of chunks")
        # Megatron's numbering: chunk v of rank p is entry v * P + p.
        super().__init__(
            [rows[own[v]] for v in range(each) for own in self.chunks], ranks
        )
        self.input_data = layers
        self._rows = [
            self.layout[places[k]][self.chunks[places[k]].index(k)]
            for k in range(len(places))
        ]
        self.flatten_layout = [layer for row in self._rows for layer in row]

    def chunk(self, vp_stage: int | None, pp_rank: int | None = None) -> int:
        """Returns the chunk of the model that a rank has as `vp_stage`."""
        rank: int = (
            parallel_state.get_pipeline_model_parallel_rank()
            if pp_rank is None
            else pp_rank
        )
        return self.chunks[rank][vp_stage or 0]

    def get_layer_offset(
        self,
        layer_type: LayerType = LayerType.decoder,
        vp_stage: int | None = None,
        pp_rank: int | None = None,
    ) -> int:
        """Counts the layers of a type in front of a rank's chunk."""
        chunk = self.chunk(vp_stage, pp_rank)
        return sum(row.count(layer_type) for row in self._rows[:chunk])
