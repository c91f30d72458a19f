# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Weight gradients of Transformer Engine's linear layers, separate from input
gradients.

Transformer Engine 2.3 and later can defer the weight gradient of a linear
layer: the layer's backward passes a function and its tensors to `put()` of the
layer's `wgrad_store`. Here each call of a layer has a `wgrad_store` of its own,
so W passes may run in any order of microbatches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._errors import UnsupportedError


def is_engine_linear(module: torch.nn.Module) -> bool:
    """Tests for a layer of Transformer Engine that has linear weights."""
    return any(
        base.__module__.startswith("transformer_engine")
        and ("Linear" in base.__name__ or "MLP" in base.__name__)
        for base in type(module).__mro__
    )


def _names(module: torch.nn.Module) -> tuple[list[str], list[str]] | None:
    """Returns the names of a layer's weights and biases; None: the layer has
    another interface."""
    grouped = getattr(module, "num_gemms", None)
    if grouped is None:
        weights = getattr(module, "weight_names", [])
        if len(weights) != 1:
            return None
        biases = module.bias_names
    else:
        weights = [f"weight{i}" for i in range(grouped)]
        biases = [f"bias{i}" for i in range(grouped)]
    own = module._parameters
    if not all(isinstance(own.get(name), torch.Tensor) for name in weights):
        return None
    return list(weights), [n for n in biases if own.get(n) is not None]


def check_not_fused(name: str, module: torch.nn.Module) -> None:
    """Raises if a module runs its linear layers as one fused operation, so that
    their own weight gradients do not exist."""
    if hasattr(module, "_make_fused_impl"):
        raise UnsupportedError(
            f"{name}: the schedule has separate weight gradients, and "
            f"{type(module).__name__} fuses its layers; leave out "
            "--use-transformer-engine-op-fuser, or use a schedule with joint "
            "backward passes"
        )


def check_engine_layer(name: str, module: torch.nn.Module) -> None:
    """Raises if the weight gradients of a layer of Transformer Engine cannot be
    deferred."""
    reason = None
    if not hasattr(module, "wgrad_store") or _names(module) is None:
        reason = (
            f"Transformer Engine's {type(module).__name__} cannot defer them"
        )
        if not hasattr(module, "wgrad_store"):
            reason += "; install Transformer Engine 2.3 or later"
    elif getattr(getattr(module, "config", None), "tp_comm_overlap", False):
        reason = (
            "Transformer Engine does not defer them with --tp-comm-overlap; "
            "leave it out"
        )
    elif any(
        type(p.data) is not torch.Tensor
        for p in module.parameters(recurse=False)
    ):
        reason = (
            "the layer's parameters are quantized; leave out --fp8-param-gather"
        )
    if reason is not None:
        raise UnsupportedError(
            f"{name}: the schedule has separate weight gradients, and "
            f"{reason}, or use a schedule with joint backward passes"
        )


class EngineCall:
    """A call of a layer, which is the layer's `wgrad_store` in that call."""

    def __init__(
        self,
        layer: EngineLayer,
        weights: list[torch.nn.Parameter],
        biases: list[torch.nn.Parameter],
    ) -> None:
        self._layer, self._weights, self._biases = layer, weights, biases
        self._tensors: list[Any] = []
        self._function: Callable[..., Any] | None = None
        self._in_d: list[torch.Tensor | None] = [None] * len(biases)

    # --- the interface of Transformer Engine's WeightGradStore --------------

    def delay_wgrad_compute(self) -> bool:
        return True

    def put(self, tensors: list[Any], function: Callable[..., Any]) -> None:
        self._tensors, self._function = tensors, function

    # --- the interface of deferred calls ------------------------------------

    @property
    def is_ready(self) -> bool:
        return self._function is not None

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [*self._weights, *self._biases]

    def end_pass(self) -> None:
        """Takes the biases' gradients that a D has computed."""
        for i, gradient in enumerate(self._layer.take_bias_gradients()):
            if gradient is not None:
                self._in_d[i] = gradient

    def gradients(
        self,
    ) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor | None]]:
        """Computes the gradients of the call's parameters."""
        assert self._function is not None
        with torch.no_grad():
            made = self._function(*self._tensors)
        if self._layer.is_grouped:  # the function fills its third argument
            of_weights, of_biases = self._tensors[2], made[1]
        else:
            of_weights, of_biases = made[:1], made[1:2]
        self._function, self._tensors = None, []
        for p, gradient in zip(self._weights, of_weights, strict=True):
            if self._layer.is_fused:  # it has been added to main_grad
                p.grad_added_to_main_grad = True
                yield p, torch.zeros_like(p)
            else:
                yield p, gradient.to(p.dtype)
        for i, p in enumerate(self._biases):
            gradient = self._in_d[i]
            if gradient is None:
                gradient = of_biases[i]
            if gradient is None or gradient.numel() == 0:
                yield p, None
            else:
                yield p, gradient.to(p.dtype)


class EngineLayer:
    """A linear layer of Transformer Engine that defers weight gradients.

    In a call with deferred gradients the layer has aliases of its parameters,
    with the same memory. The layer's D gives the aliases gradients of biases,
    and placeholders for gradients that are added to `main_grad` in W: hooks of
    data parallelism on the parameters must run in W alone.
    """

    def __init__(self, module: Any) -> None:
        names = _names(module)
        assert names is not None, "check_engine_layer() has accepted it"
        self._module = module
        self._weight_names, self._bias_names = names
        self._aliases: dict[str, torch.nn.Parameter] = {}
        self.is_grouped = hasattr(module, "num_gemms")

    @property
    def is_fused(self) -> bool:
        return self._module.fuse_wgrad_accumulation

    @property
    def is_trained(self) -> bool:
        return all(
            self._module._parameters[name].requires_grad
            for name in self._weight_names
        )

    def run(
        self,
        forward: Callable[..., Any],
        calls: list[Any],
        *args: Any,
        **more: Any,
    ) -> Any:
        """Runs the layer's `forward`, and appends the call to `calls`."""
        module = self._module
        own = {
            name: module._parameters[name]
            for name in (*self._weight_names, *self._bias_names)
        }
        call = EngineCall(
            self,
            [own[name] for name in self._weight_names],
            [own[name] for name in self._bias_names],
        )
        calls.append(call)
        store = module.wgrad_store
        for name, p in own.items():
            module._parameters[name] = self._alias(name, p)
        module.wgrad_store = call
        try:
            return forward(*args, **more)
        finally:
            module._parameters.update(own)
            module.wgrad_store = store

    def _alias(self, name: str, p: torch.nn.Parameter) -> torch.nn.Parameter:
        alias = self._aliases.get(name)
        if alias is None or alias.data_ptr() != p.data_ptr():
            alias = torch.nn.Parameter(p.detach(), p.requires_grad)
            self._aliases[name] = alias
        vars(alias).update(vars(p))  # main_grad, and Megatron's marks
        return alias

    def take_bias_gradients(self) -> Iterator[torch.Tensor | None]:
        """Takes the gradients that the aliases have, and yields those of
        biases."""
        for name in self._weight_names:
            self._aliases[name].grad = None  # placeholders
        for name in self._bias_names:
            alias = self._aliases[name]
            yield alias.grad
            alias.grad = None
