# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Single operations that an elastic plan recomputes.

Megatron-LM itself recomputes norms and attention in each layer separately.
Here its `CheckpointWithoutOutput` also recomputes queries, keys and values, the
gate and up projections, and the activation of an MLP: it frees the storage of
an operation's output once the next operation has run, and computes the output
again in the backward pass before that operation needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerLayer
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP

from .._errors import UnsupportedError
from ..torch._orders import Course, Demands

# A layer's module, and the path of the switch, by the plan's operation.
_SWITCHES = {
    "attention norm": ("input_layernorm", "recompute_input_layernorm"),
    "attention": ("self_attention", "checkpoint_core_attention"),
    "mlp norm": ("pre_mlp_layernorm", "recompute_pre_mlp_layernorm"),
}
# Operations of the plan that are one matrix product in Megatron-LM.
_PROJECTIONS = ("query", "key", "value")
_PRODUCT = ("gate", "up")
_ACTIVATION = ("activation",)
_OPERATIONS = (*_SWITCHES, *_PROJECTIONS, *_PRODUCT, *_ACTIVATION)


def layers_of(chunk: Any) -> list[Any]:
    """Returns the transformer layers of a chunk of the model, in order."""
    return [m for m in chunk.modules() if isinstance(m, TransformerLayer)]


def check_operations(course: Course) -> None:
    """Raises if a plan recomputes operations that longhaul.megatron does
    not."""
    demands = course.demands
    for operation in demands.operations if demands is not None else ():
        if operation not in _OPERATIONS:
            raise UnsupportedError(
                f"{course.name}: elastic.recomputed: {operation!r}: "
                "longhaul.megatron recomputes the single operations "
                f"{', '.join(_OPERATIONS)} alone; plan for more GPUs or "
                "smaller microbatches, or run the plan by "
                "longhaul.torch.PipelineRuntime"
            )


def recompute_operations(chunk: Any, demands: Demands, number: int) -> None:
    """Recomputes operations in the first layers of a chunk of the model, as
    many as the plan says for the chunk of this number.

    Raises:
        UnsupportedError: the layers have no such separate operation.
    """

    def count(names: tuple[str, ...]) -> int:
        """Counts layers; the operations of a product have the same number."""
        known = demands.operations
        return max((known[n][number] for n in names if n in known), default=0)

    layers = layers_of(chunk)
    for operation, counts in demands.operations.items():
        for layer in layers[: counts[number]]:
            if operation in _SWITCHES:
                _switch_on(layer, operation)
    for layer in layers[: count(_PROJECTIONS)]:
        _recompute_projections(layer.self_attention)
    products, activations = count(_PRODUCT), count(_ACTIVATION)
    for i, layer in enumerate(layers[: max(products, activations)]):
        _recompute_mlp(layer.mlp, i < products, i < activations)


def _switch_on(layer: Any, operation: str) -> None:
    """Enables Megatron-LM's recomputation of an operation of a layer."""
    name, switch = _SWITCHES[operation]
    module = getattr(layer, name)
    owner = layer if hasattr(layer, switch) else module
    if owner is layer and not hasattr(random, "fp8_autocast"):
        raise UnsupportedError(
            f"elastic.recomputed: {operation!r}: megatron-core's recomputation "
            "of norms imports Transformer Engine, which is not installed"
        )
    if isinstance(module, IdentityOp) or not hasattr(owner, switch):
        raise UnsupportedError(
            f"elastic.recomputed: {operation!r}: the layers have no separate "
            "one, as with Transformer Engine; add --transformer-impl local"
        )
    setattr(owner, switch, True)


@contextlib.contextmanager
def _replaced(module: Any, **functions: Any) -> Iterator[None]:
    """Replaces attributes of a module, such as its `forward`, in a context."""
    own = vars(module)
    before = {name: own[name] for name in functions if name in own}
    own.update(functions)
    try:
        yield
    finally:
        for name in functions:
            del own[name]
        own.update(before)


def _checkpoint(config: Any) -> Any:
    return random.CheckpointWithoutOutput(fp8=config.fp8)


def _recompute_mlp(mlp: Any, product: bool, activation: bool) -> None:
    """Recomputes the first product of an MLP, its activation, or both."""
    if type(mlp).forward is not MLP.forward:
        raise UnsupportedError(
            "elastic.recomputed: 'activation', 'gate', 'up': the layers have "
            f"a {type(mlp).__name__} in place of an MLP, whose operations "
            "longhaul.megatron does not recompute; plan with another schedule"
        )
    forward: Callable[..., Any] = mlp.forward
    first, second = mlp.linear_fc1, mlp.linear_fc2

    def activate(values: torch.Tensor, bias: torch.Tensor | None) -> Any:
        """Runs Megatron's code between the two products."""
        with _replaced(
            mlp,
            linear_fc1=lambda _: (values, bias),
            linear_fc2=lambda x: (x, None),
        ):
            return forward(values)[0]

    def run(hidden: torch.Tensor, *given: Any, **more: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(hidden, *given, **more)
        if more.get("per_token_scale") is not None:
            raise UnsupportedError(
                "elastic.recomputed: 'activation', 'gate', 'up': not with "
                "scales per token; plan with another schedule"
            )
        again = _checkpoint(mlp.config)
        if product and activation:
            values = again.checkpoint(lambda h: activate(*first(h)), hidden)
        elif activation:
            values = again.checkpoint(activate, *first(hidden))
        else:
            biases: list[Any] = []

            def multiply(h: torch.Tensor) -> torch.Tensor:
                made, bias = first(h)
                biases.append(bias)
                return made

            made = again.checkpoint(multiply, hidden)
            values = activate(made, biases[0])
            again.discard_output_and_register_recompute(values)
        output, bias = second(values)
        if activation:
            again.discard_output_and_register_recompute(output)
        # The recompute hook of the norm before must precede that of `output`:
        # a view gives it a tensor of its own.
        return output.view_as(output), bias

    mlp.forward = run


def _recompute_projections(attention: Any) -> None:
    """Recomputes queries, keys and values, with their rotary positions."""
    config = attention.config
    if (
        type(attention).forward is not SelfAttention.forward
        or config.attention_output_gate
        or config.fused_single_qkv_rope
    ):
        raise UnsupportedError(
            "elastic.recomputed: 'query', 'key', 'value': the layers have a "
            f"{type(attention).__name__} without separate tensors for them; "
            "plan with another schedule"
        )
    forward: Callable[..., Any] = attention.forward
    core = attention.core_attention

    def run(hidden: torch.Tensor, *given: Any, **more: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(hidden, *given, **more)
        if more.get("packed_seq_params") is not None:
            raise UnsupportedError(
                "elastic.recomputed: 'query', 'key', 'value': not with packed "
                "sequences; plan with another schedule"
            )

        def project(h: torch.Tensor) -> tuple[torch.Tensor, ...]:
            """Runs Megatron's code in front of the attention."""
            made: list[torch.Tensor] = []

            def reach(
                query: Any, key: Any, value: Any, *_: Any, **__: Any
            ) -> Any:
                made.extend((query, key, value))
                return query

            with (
                _replaced(
                    attention,
                    checkpoint_core_attention=False,
                    linear_proj=lambda x: (x, None),
                ),
                _replaced(core, forward=reach),
            ):
                forward(h, *given, **more)
            return tuple(made)

        again = _checkpoint(config)
        projected = again.checkpoint(project, hidden)
        # Megatron calls one of the two, with these queries, keys and values.
        owner, name = core, "forward"
        if attention.checkpoint_core_attention and attention.training:
            owner, name = attention, "_checkpointed_attention_forward"
        attend = getattr(owner, name)

        def attended(*inputs: Any, **named: Any) -> torch.Tensor:
            made = attend(*inputs, **named)
            again.discard_output_and_register_recompute(made)
            return made

        with (
            _replaced(
                attention,
                get_query_key_value_tensors=lambda *_, **__: projected,
            ),
            _replaced(owner, **{name: attended}),
        ):
            return forward(hidden, *given, **(more | {"rotary_pos_emb": None}))

    attention.forward = run
