# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Weight gradients of Megatron's linear layers, separate from input gradients.

Megatron-core defers the weight gradient of an output layer if its linear
function gets a buffer for output gradients (`grad_output_buffer`). The same
function here runs each linear layer of a chunk that way, with a detached
weight: its backward computes the input gradient, with the communication of
tensor and sequence parallelism, and keeps the output gradient. A W pass then
computes the weight gradient, and passes it to the parameter through autograd,
so that the hooks of data parallelism run as after any backward pass. The module
_engine_layers.py has linear layers of Transformer Engine.

Other parameters (norms, embeddings, routers) get their gradients in D.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import layers
from megatron.core.utils import prepare_input_tensors_for_wgrad_compute

from ._engine_layers import (
    EngineCall,
    EngineLayer,
    check_engine_layer,
    check_not_fused,
    is_engine_linear,
)

_LINEAR = (layers.ColumnParallelLinear, layers.RowParallelLinear)


@dataclasses.dataclass
class _Call:
    """A call of a linear layer. `grads` receives its output gradient in D."""

    input: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    is_fused: bool
    is_sequence_parallel: bool
    group: Any
    grads: list[torch.Tensor]

    @property
    def is_ready(self) -> bool:
        return len(self.grads) > 0

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Returns the parameters whose gradients `gradients()` yields."""
        if self.bias is None or not self.bias.requires_grad:
            return [self.weight]
        return [self.weight, self.bias]

    def end_pass(self) -> None:
        """Does nothing: D has put its output gradient into `grads`."""

    def gradients(self) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
        """Computes the gradients of the call's parameters."""
        gradients = _gradients(self)
        for i, p in enumerate(self.parameters):
            yield p, gradients[i]


class WeightGradients:
    """The deferred weight gradients of a chunk of the model."""

    def __init__(self, chunk: torch.nn.Module) -> None:
        """Redirects the linear layers of a chunk, which `check_layers` has
        accepted."""
        self._calls: dict[int, list[_Call | EngineCall]] = {}
        self._current: list[_Call | EngineCall] | None = None
        # A weight that is an embedding as well gets its gradient in D.
        self._joint: set[int] = set()
        for module in chunk.modules():
            if isinstance(module, _LINEAR):
                module._forward_impl = partial(self._run, module._forward_impl)
            elif is_engine_linear(module):
                module.forward = partial(
                    self._run_engine, EngineLayer(module), module.forward
                )
            else:
                for parameter in module.parameters(recurse=False):
                    self._joint.add(id(parameter))

    @contextlib.contextmanager
    def of(self, microbatch: int) -> Iterator[None]:
        """Defers weight gradients in this context: in the microbatch's F, and
        in its D, where recomputation runs the layers again."""
        self._current = self._calls.setdefault(microbatch, [])
        try:
            yield
            for call in self._current:
                call.end_pass()
        finally:
            self._current = None

    def clear(self) -> None:
        self._calls.clear()

    def _run(
        self,
        direct: Any,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        **more: Any,
    ) -> torch.Tensor:
        """Runs a linear layer, in place of its `_forward_impl`."""
        if (
            self._current is None
            or not torch.is_grad_enabled()
            or not (input.requires_grad and weight.requires_grad)
            or not weight.is_leaf
            or id(weight) in self._joint
        ):
            return direct(input=input, weight=weight, bias=bias, **more)
        group = more["tp_group"]
        if group is None:
            group = parallel_state.get_tensor_model_parallel_group()
        call = _Call(
            input.detach(),
            weight,
            bias,
            more["gradient_accumulation_fusion"],
            more["sequence_parallel"],
            group,
            [],
        )
        self._current.append(call)
        # The function only looks at its buffer if gradients are fused; no
        # fused kernel runs for a gradient that is deferred.
        more |= {
            "gradient_accumulation_fusion": True,
            "grad_output_buffer": call.grads,
            "wgrad_deferral_limit": 0,
        }
        output = layers.linear_with_grad_accumulation_and_async_allreduce(
            input, weight.detach(), None, **more
        )
        return output if bias is None else output + bias.detach()

    def _run_engine(
        self, layer: EngineLayer, forward: Any, *args: Any, **more: Any
    ) -> Any:
        """Runs a linear layer of Transformer Engine, in place of `forward`."""
        if (
            self._current is None
            or not torch.is_grad_enabled()
            or not layer.is_trained
        ):
            return forward(*args, **more)
        return layer.run(forward, self._current, *args, **more)

    def compute(self, microbatch: int) -> None:
        """Runs W of a microbatch, from the last layer to the first."""
        calls = [c for c in self._calls.pop(microbatch) if c.is_ready]
        left = Counter(id(p) for call in calls for p in call.parameters)
        sums: dict[int, torch.Tensor] = {}
        while calls:
            for p, grad in calls.pop().gradients():
                key = id(p)
                if key in sums:
                    before = sums.pop(key)
                    grad = before if grad is None else before.add_(grad)
                left[key] -= 1
                if grad is None:
                    continue
                if left[key]:
                    sums[key] = grad
                else:  # its hooks run once
                    torch.autograd.backward(p, grad)


def check_layers(chunk: torch.nn.Module) -> None:
    """Checks that the weight gradients of a chunk can be deferred.

    Raises:
        UnsupportedError: the chunk has linear layers of Transformer Engine
            whose weight gradients cannot be deferred.
    """
    for name, module in chunk.named_modules():
        check_not_fused(name, module)
        if is_engine_linear(module):
            check_engine_layer(name, module)


def allow_overwriting(chunk: torch.nn.Module, is_allowed: bool) -> None:
    """Lets Transformer Engine's layers overwrite `main_grad` with the weight
    gradient of the first microbatch, as Megatron's configuration says, or makes
    them add all weight gradients."""
    for module in chunk.modules():
        if is_engine_linear(module) and hasattr(
            module, "disable_parameter_transpose_cache"
        ):
            module.disable_parameter_transpose_cache = (
                not is_allowed
                or module.config.disable_parameter_transpose_cache
            )


def _gradients(call: _Call) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Computes the gradients of a call's weight and bias, like the backward of
    Megatron's linear function."""
    (grad,), total = call.grads, call.input
    if call.is_sequence_parallel:
        shape = list(total.shape)
        shape[0] *= call.group.size()
        total = total.new_empty(shape)
        layers.dist_all_gather_func(total, call.input, group=call.group)
    grad, total = prepare_input_tensors_for_wgrad_compute(grad, total)
    of_bias = None if call.bias is None else grad.sum(dim=0)
    weight = call.weight
    if not call.is_fused:
        return grad.t().matmul(total), of_bias
    kernels = layers.fused_weight_gradient_mlp_cuda
    accumulate = (
        kernels.wgrad_gemm_accum_fp32
        if weight.main_grad.dtype == torch.float32
        else kernels.wgrad_gemm_accum_fp16
    )
    accumulate(total, grad, weight.main_grad)
    weight.grad_added_to_main_grad = True  # hooks do not add this one
    return torch.zeros_like(weight), of_bias
