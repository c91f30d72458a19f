# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Single operations that an elastic plan recomputes: those that Megatron-LM can
recompute in each layer separately."""

from __future__ import annotations

from typing import Any

from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerLayer
from megatron.core.transformer.identity_op import IdentityOp

from .._errors import UnsupportedError
from ..torch._orders import Course, Demands

# A layer's module, and the path of the switch, by the plan's operation.
_SWITCHES = {
    "attention norm": ("input_layernorm", "recompute_input_layernorm"),
    "attention": ("self_attention", "checkpoint_core_attention"),
    "mlp norm": ("pre_mlp_layernorm", "recompute_pre_mlp_layernorm"),
}


def layers_of(chunk: Any) -> list[Any]:
    """Returns the transformer layers of a chunk of the model, in order."""
    return [m for m in chunk.modules() if isinstance(m, TransformerLayer)]


def check_operations(course: Course) -> None:
    """Raises if a plan recomputes operations that Megatron-LM does not."""
    demands = course.demands
    for operation in demands.operations if demands is not None else ():
        if operation not in _SWITCHES:
            raise UnsupportedError(
                f"{course.name}: elastic.recomputed: {operation!r}: of single "
                f"operations Megatron-LM recomputes {', '.join(_SWITCHES)} "
                "alone; plan for more GPUs or smaller microbatches, or run the "
                "plan by longhaul.torch.PipelineRuntime"
            )


def recompute_operations(chunk: Any, demands: Demands, number: int) -> None:
    """Recomputes operations in the first layers of a chunk of the model, as
    many as the plan says for the chunk of this number.

    Raises:
        UnsupportedError: the layers have no such separate operation.
    """
    layers = layers_of(chunk)
    for operation, counts in demands.operations.items():
        name, switch = _SWITCHES[operation]
        for layer in layers[: counts[number]]:
            module = getattr(layer, name)
            owner = layer if hasattr(layer, switch) else module
            if owner is layer and not hasattr(random, "fp8_autocast"):
                raise UnsupportedError(
                    f"elastic.recomputed: {operation!r}: megatron-core's "
                    "recomputation of norms imports Transformer Engine, which "
                    "is not installed"
                )
            if isinstance(module, IdentityOp) or not hasattr(owner, switch):
                raise UnsupportedError(
                    f"elastic.recomputed: {operation!r}: the layers have no "
                    "separate one, as with Transformer Engine; add "
                    "--transformer-impl local"
                )
            setattr(owner, switch, True)
