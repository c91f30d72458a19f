# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""A chunk of a Megatron model as a stage of PyTorch's pipelining runtime.

Its passes are the `forward_step` and `backward_step` of megatron-core's own
schedules. The runtime calls them in the order of the plan, and sends and
receives between them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from megatron.core.pipeline_parallel import schedules
from megatron.core.utils import get_model_type

from ._sharding import ShardedDataParallel
from ._weights import WeightGradients, allow_overwriting


class Message(NamedTuple):
    """A tensor to send or receive, as the runtime's links take it."""

    tensor: torch.Tensor
    peer: int  # rank in the job
    group: Any


@dataclasses.dataclass
class Iteration:
    """Arguments and results of one call of Megatron's forward-backward
    function, for all chunks of this rank."""

    forward_step_func: Callable[..., Any]
    config: Any
    shape: tuple[int, ...]  # of a message
    microbatches: int
    context_size: int
    collect_non_loss_data: bool
    first_val_step: bool | None
    forward_only: bool
    tokens: torch.Tensor
    stored: list[Any] = dataclasses.field(default_factory=list)


class Stage:
    """A chunk with the interface that PyTorch's runtime calls.

    Attributes:
        running: the chunk whose forward step runs in this process, if any.
    """

    running: int | None = None

    def __init__(
        self,
        module: torch.nn.Module,
        chunk: int,
        virtual: int | None,
        places: tuple[int, ...],
        device: torch.device,
        group: Any,
    ) -> None:
        self.submod = module
        self.stage_index, self.num_stages = chunk, len(places)
        self.device, self.group = device, group
        self.group_rank = dist.get_rank(group)
        self.group_size = dist.get_world_size(group)
        self.is_first = chunk == 0
        self.is_last = chunk == len(places) - 1
        self.stage_index_to_group_rank = dict(enumerate(places))
        self.has_backward = False
        self.splits = False  # the schedule has W passes for this chunk
        self._virtual = virtual
        self._peers = {
            other: dist.get_global_rank(group, places[other])
            for other in (chunk - 1, chunk + 1)
            if 0 <= other < len(places) and places[other] != self.group_rank
        }
        if isinstance(module, ShardedDataParallel):
            self.parts = module.parts
        self._weights: WeightGradients | None = None
        self._iteration: Iteration | None = None
        self._data: Any = None
        self._no_sync: Any = None
        self._grad_sync: Any = None
        self._quiet: Any = None  # the open context without reduction
        self.clear_runtime_states()

    def defer(self, splits: bool, first: int) -> None:
        """Separates weight gradients from the next iteration on, or not; the
        weight gradient of microbatch `first` is computed first."""
        self.splits = splits
        allow_overwriting(self.submod, first == 0)
        if splits and self._weights is None:
            self._weights = WeightGradients(self.submod)

    # --- one iteration ------------------------------------------------------

    def begin(
        self,
        iteration: Iteration,
        data: Any,
        no_sync: Any,
        grad_sync: Any,
        param_sync: Any,
    ) -> None:
        """Prepares an iteration; gradients are reduced with its last passes."""
        self._iteration, self._data = iteration, data
        self._no_sync, self._grad_sync = no_sync, grad_sync
        if param_sync is not None:
            param_sync(self.submod.parameters())
        self._be_quiet()

    def end(self) -> None:
        """Allows reductions again, and drops all references."""
        self._speak()
        self._iteration = self._data = None
        self.clear_runtime_states()

    def _be_quiet(self) -> None:
        if self._quiet is None and self._no_sync is not None:
            self._quiet = self._no_sync()
            self._quiet.__enter__()

    def _speak(self) -> None:
        if self._quiet is not None:
            self._quiet.__exit__(None, None, None)
            self._quiet = None

    @contextlib.contextmanager
    def _reducing(self, is_last: bool) -> Iterator[None]:
        """Lets gradients of the last pass be reduced as they are computed; with
        a grad_sync_func Megatron reduces the chunk's at once instead."""
        if not is_last or self._grad_sync is not None:
            yield
            return
        self._speak()
        yield
        self._be_quiet()

    def _finish_gradients(self) -> None:
        if self._grad_sync is not None:
            self._speak()
            self._grad_sync(self.submod.parameters())

    def clear_runtime_states(self) -> None:
        self.output_chunks: list[Any] = []
        self._inputs: dict[int, torch.Tensor] = {}
        self._outputs: dict[int, torch.Tensor] = {}
        self._sent: dict[int, torch.Tensor] = {}
        self._output_grads: dict[int, torch.Tensor] = {}
        self._input_grads: dict[int, torch.Tensor] = {}
        self._n_inputs = self._n_weights = 0
        if self._weights is not None:
            self._weights.clear()

    # --- passes -------------------------------------------------------------

    @contextlib.contextmanager
    def _as_running(self) -> Iterator[None]:
        Stage.running = self.stage_index
        try:
            yield
        finally:
            Stage.running = None

    def _deferring(self, microbatch: int) -> Any:
        if not (self.splits and self.has_backward):
            return contextlib.nullcontext()
        assert self._weights is not None
        return self._weights.of(microbatch)

    def forward_one_chunk(
        self, microbatch: int, *_: Any, **__: Any
    ) -> torch.Tensor:
        now = self._iteration
        assert now is not None
        taken = self._inputs.get(microbatch)
        if taken is not None and self.has_backward:
            taken.requires_grad_()
        with self._deferring(microbatch), self._as_running():
            output, tokens = schedules.forward_step(
                now.forward_step_func,
                self._data,
                self.submod,
                now.microbatches,
                taken,
                now.stored,
                now.config,
                cp_group_size=now.context_size,
                collect_non_loss_data=now.collect_non_loss_data,
                is_first_microbatch=schedules.check_first_val_step(
                    now.first_val_step, now.forward_only, microbatch == 0
                ),
                current_microbatch=microbatch,
                vp_stage=self._virtual,
                is_last_stage=self.is_last,
            )
        now.tokens += tokens
        if not self.is_last:
            # Megatron's Float16Module returns the output of its last rank's
            # last chunk in fp32, which need not be the last of the model.
            output = output.to(now.config.pipeline_dtype)
        if self.has_backward:
            self._outputs[microbatch] = output
        else:
            self._inputs.pop(microbatch, None)
        if self.is_last:
            return output
        sent = output.detach()
        if self.stage_index + 1 in self._peers:
            self._sent[microbatch] = sent
        if self.has_backward:
            schedules.deallocate_output_tensor(
                output, now.config.deallocate_pipeline_outputs
            )
        return sent

    def backward_one_chunk(
        self, microbatch: int, *_: Any, full_backward: bool = True, **__: Any
    ) -> None:
        if not self.has_backward:
            return
        now = self._iteration
        assert now is not None
        self._n_inputs += 1
        is_last = self._n_inputs == now.microbatches
        with self._reducing(is_last), self._deferring(microbatch):
            grad = schedules.backward_step(
                self._inputs.pop(microbatch, None),
                self._outputs.pop(microbatch),
                self._output_grads.pop(microbatch, None),
                get_model_type(self.submod),
                now.config,
            )
        if grad is not None:
            self._input_grads[microbatch] = grad
        if full_backward and self.splits:
            self._compute_weights(microbatch)
        elif full_backward and is_last:
            self._finish_gradients()

    def backward_weight_one_chunk(
        self, microbatch: int, *_: Any, **__: Any
    ) -> None:
        if self.has_backward:
            self._compute_weights(microbatch)

    def _compute_weights(self, microbatch: int) -> None:
        """Computes W of a microbatch: in its own pass, or as a part of B, which
        the runtime times as one pass."""
        assert self._weights is not None and self._iteration is not None
        self._n_weights += 1
        is_last = self._n_weights == self._iteration.microbatches
        with self._reducing(is_last):
            self._weights.compute(microbatch)
        if is_last:
            self._finish_gradients()

    def perform_reduce_grad(self, *_: Any) -> None:
        """Does nothing: Megatron reduces gradients."""

    # --- messages -----------------------------------------------------------

    def _buffer(self) -> torch.Tensor:
        now = self._iteration
        assert now is not None
        return torch.empty(
            now.shape, dtype=now.config.pipeline_dtype, device=self.device
        )

    def _received(
        self, kept: dict[int, torch.Tensor], peer: int, microbatch: int
    ) -> list[Message]:
        kept[microbatch] = self._buffer()
        return [Message(kept[microbatch], self._peers[peer], self.group)]

    def get_fwd_recv_ops(self, microbatch: int) -> list[Message]:
        peer = self.stage_index - 1
        if peer not in self._peers:
            return []
        return self._received(self._inputs, peer, microbatch)

    def get_bwd_recv_ops(self, microbatch: int) -> list[Message]:
        peer = self.stage_index + 1
        if peer not in self._peers or not self.has_backward:
            return []
        return self._received(self._output_grads, peer, microbatch)

    def get_fwd_send_ops(self, microbatch: int) -> list[Message]:
        peer = self.stage_index + 1
        if peer not in self._peers:
            return []
        sent = self._sent.pop(microbatch)
        return [Message(sent, self._peers[peer], self.group)]

    def get_bwd_send_ops(self, microbatch: int) -> list[Message]:
        peer = self.stage_index - 1
        if peer not in self._peers or not self.has_backward:
            return []
        sent = self._input_grads.pop(microbatch)
        return [Message(sent, self._peers[peer], self.group)]

    def release_fwd_send_outputs(self, microbatch: int) -> None:
        """Does nothing: a sent output is kept by its send alone."""

    def set_local_fwd_input(
        self, output: torch.Tensor, microbatch: int
    ) -> None:
        self._inputs[microbatch] = output.detach()

    def get_local_bwd_output(self, microbatch: int) -> torch.Tensor | None:
        return self._input_grads.pop(microbatch, None)

    def set_local_bwd_input(
        self, grad: torch.Tensor | None, microbatch: int
    ) -> None:
        if grad is not None:
            self._output_grads[microbatch] = grad
