# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Exchange of shapes between stages before the first step, over host memory.

PyTorch's stages send the shapes of their outputs as tensors of their device.
Gloo rejects GPU tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only


def tell_by_host(stage: Any, group: Any, members: Sequence[int]) -> None:
    """Sends the shapes of a stage's outputs over a gloo group of all ranks;
    `members` are the pipeline's."""

    def rank_of(other: int) -> int:
        return members[stage.stage_index_to_group_rank[other]]

    def receive(source: int) -> Any:
        told: list[Any] = [None]
        dist.recv_object_list(
            told, rank_of(source), group=group, device=torch.device("cpu")
        )
        return told[0]

    def send(what: Any, to: int) -> None:
        dist.send_object_list(
            [what], rank_of(to), group=group, device=torch.device("cpu")
        )

    if hasattr(stage, "_recv_meta"):
        stage._recv_meta, stage._send_meta = receive, send
        return

    def is_here(other: int) -> bool:
        return stage.stage_index_to_group_rank[other] == stage.group_rank

    def infer(args: Any, kwargs: Any = None) -> Any:
        """Follows PyTorch before 2.12, by the same attributes."""
        if stage.is_first or is_here(stage.stage_index - 1):
            args = tree_map_only(torch.Tensor, lambda x: x.to("meta"), args)
        else:
            args = receive(stage.stage_index - 1)
        stage.inputs_meta = args
        with torch.no_grad():
            made = stage.submod(
                *tree_map_only(
                    torch.Tensor,
                    lambda x: torch.zeros_like(x, device=stage.device),
                    args,
                ),
                **(kwargs or {}),
            )
        made = [made] if isinstance(made, torch.Tensor) else made
        outputs = tuple(
            tree_map_only(torch.Tensor, lambda x: x.to("meta"), made)
        )
        stage._configure_outputs_meta(outputs)
        if stage.is_last or is_here(stage.stage_index + 1):
            return outputs
        send(outputs, stage.stage_index + 1)
        return ()

    stage._shape_inference = infer
