# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Megatron models whose parameters, gradients and optimizer state an elastic
plan shards (ZeRO-1 to 3 by share).

`ShardedDataParallel` takes the place of Megatron's DistributedDataParallel. Its
parameters are this replica's parts of the chunk's parameters, so Megatron's
optimizers and its reduction over tensor parallelism apply to the parts.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed.data_parallel_base import _BaseDataParallel
from megatron.core.distributed.param_and_grad_buffer import (
    _ParamAndGradBucketGroup,
)
from megatron.core.optimizer import get_megatron_optimizer

from .._errors import InvalidError, UnsupportedError
from ..torch._orders import Course
from ..torch._sharding import Part, parts_of
from ._optimizer_state import store_whole_state


class MainGradPart(Part):
    """A part whose gradients are in `main_grad`, as Megatron-LM expects, in
    another data type than the parameters if Megatron's settings say so."""

    def __init__(
        self,
        level: int,
        named: list[tuple[str, torch.nn.Parameter]],
        group: Any,
        grad_type: torch.dtype | None,
    ) -> None:
        super().__init__(level, named, group, grad_type)
        for name, p in named:
            p.grad_added_to_main_grad = False
            p.register_post_accumulate_grad_hook(_add)
            piece = self.shards.get(name)
            if piece is not None:  # marks of tensor and sequence parallelism
                for key, value in vars(p).items():
                    if not key.startswith("_") and key != "main_grad":
                        setattr(piece, key, value)

    def _set_gradient(
        self, p: torch.nn.Parameter, gradient: torch.Tensor | None
    ) -> None:
        p.main_grad = gradient


def _add(p: torch.nn.Parameter) -> None:
    """Adds a pass's gradient, unless Megatron's kernel has added it."""
    if p.grad is not None and not p.grad_added_to_main_grad:
        p.main_grad.add_(p.grad)
    p.grad = None
    p.grad_added_to_main_grad = False


class ShardedDataParallel(_BaseDataParallel):
    """A chunk of a model, sharded as an elastic plan says.

    Takes the arguments of Megatron's DistributedDataParallel. Subclasses have
    the plan.
    """

    course: Course

    def __init__(
        self,
        config: Any,
        ddp_config: Any,
        module: torch.nn.Module,
        disable_bucketing: bool = False,
        pg_collection: Any = None,
    ) -> None:
        """Shards the parameters of a chunk over the data-parallel replicas.
        The plan sets the buckets, so `disable_bucketing` has no effect.

        Raises:
            longhaul.Error: Megatron's settings or the model exclude it.
        """
        super().__init__(config=config, module=module)
        self.ddp_config = ddp_config
        if ddp_config.use_distributed_optimizer:
            raise InvalidError(
                "--use-distributed-optimizer: longhaul.megatron shards the "
                "optimizer's state of an elastic plan; leave it out"
            )
        for name, p in module.named_parameters():
            if getattr(p, "shared_embedding", False):
                raise UnsupportedError(
                    f"{name}: an elastic plan shards no embedding that two "
                    "ranks share; add --untie-embeddings-and-output-weights"
                )
        if parallel_state.get_context_parallel_world_size() > 1:
            raise UnsupportedError(
                "--context-parallel-size: an elastic plan shards no parameters "
                "over context parallelism; plan with layout.context: 1"
            )
        if pg_collection is None:
            self.group = parallel_state.get_data_parallel_group(
                with_context_parallel=True
            )
            self._experts = parallel_state.get_expert_data_parallel_group()
        else:
            self.group = pg_collection.dp_cp
            self._experts = pg_collection.expt_dp
        kind = torch.float32 if ddp_config.grad_reduce_in_fp32 else None
        self.parts = parts_of(
            self.course.pipeline,
            module,
            self._group_of,
            lambda level, named, group: MainGradPart(level, named, group, kind),
        )
        # Of the gradients' sums over replicas; Megatron divides by tokens.
        self.scale = (
            1.0
            if config.calculate_per_token_loss
            else 1.0 / dist.get_world_size(self.group)
        )
        self.is_gathered = True  # the module's parameters are the newest ones
        self._gather_to_save(module)
        for submodule in module.modules():
            submodule.register_state_dict_pre_hook(self._check_gathered)

    def _group_of(self, p: torch.nn.Parameter) -> Any:
        """Returns the replicas that have a parameter: of experts on several
        ranks fewer ones."""
        return self.group if getattr(p, "allreduce", True) else self._experts

    def _gather_to_save(self, module: Any) -> None:
        """Gathers all parameters when the model describes its shards for a
        checkpoint, as Megatron-LM asks all ranks for in its distributed
        formats."""
        while hasattr(module, "module"):  # a Float16Module
            module = module.module
        describe = module.sharded_state_dict

        def sharded_state_dict(*given: Any, **named: Any) -> Any:
            if not self.is_gathered:
                self.gather()
            return describe(*given, **named)

        module.sharded_state_dict = sharded_state_dict

    def _check_gathered(self, *_: Any) -> None:
        if not self.is_gathered:
            raise InvalidError(
                "model: its parameters are sharded; call gather() of the "
                "longhaul.megatron.ForwardBackward on all ranks before they "
                "are saved, loaded or broadcast"
            )

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, *_: Any, **__: Any
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yields this replica's parts of the parameters."""
        for part in self.parts if recurse else ():
            for name, piece in part.shards.items():
                yield f"{prefix}{'.' if prefix else ''}module.{name}", piece

    def gather(self) -> None:
        """Gathers all parameters. Collective over the replicas."""
        for part in self.parts:
            part.gather(0, 1)()
        self.is_gathered = True

    def scale_gradients(self, scaling_factor: float) -> None:
        for part in self.parts:
            part.gradient *= scaling_factor

    def start_param_sync(
        self, *_: Any, force_sync: bool = False, **__: Any
    ) -> None:
        """Gathers all parameters if they are needed at once; the plan's passes
        gather them otherwise."""
        if force_sync:
            self.gather()

    def enable_forward_pre_hook(self) -> None:
        """Does nothing: passes gather parameters."""

    def disable_forward_pre_hook(self, param_sync: bool = True) -> None:
        if param_sync:
            self.gather()

    def finish_grad_sync(self, force_all_reduce: bool | None = False) -> None:
        """Checks the gradients, which the plan's passes have reduced, as
        Megatron's settings say: for NaN, Inf and large values."""
        finds_nan = self.ddp_config.check_for_nan_in_grad
        finds_large = self.ddp_config.check_for_large_grads
        if finds_nan or finds_large:
            buckets = [
                types.SimpleNamespace(grad_data=part.gradient)
                for part in self.parts
            ]
            _ParamAndGradBucketGroup.check_grads(
                types.SimpleNamespace(buckets=buckets), finds_nan, finds_large
            )

    def broadcast_params(self) -> None:
        """Copies the first replica's parameters to the others."""
        self._check_gathered()
        for p in self.module.parameters():
            group = self._group_of(p)
            dist.broadcast(p.data, dist.get_global_rank(group, 0), group=group)
        self._take()

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:
        # No gather here: the state may be the module's own tensors, loaded in
        # place. Parameters that are not loaded remain.
        self._check_gathered()
        super().load_state_dict(state_dict, strict=strict)
        self._take()

    def _take(self) -> None:
        with torch.no_grad():
            for part in self.parts:
                part.take()


def sharded_class(course: Course) -> type[ShardedDataParallel]:
    """Makes the class of the chunks of an elastic plan."""
    return type(
        "ShardedDataParallel", (ShardedDataParallel,), {"course": course}
    )


def get_sharded_optimizer(
    config: Any, model_chunks: list[Any], *given: Any, **more: Any
) -> Any:
    """Makes Megatron's optimizer for sharded chunks; its arguments are those of
    megatron-core's get_megatron_optimizer."""
    if config.use_distributed_optimizer:
        raise InvalidError(
            "--use-distributed-optimizer: longhaul.megatron shards the "
            "optimizer's state of an elastic plan; leave it out"
        )
    made = get_megatron_optimizer(config, model_chunks, *given, **more)
    for one in getattr(made, "chained_optimizers", [made]):
        # The norm of gradients adds the parts of all replicas.
        one.grad_stats_parallel_group = (
            parallel_state.get_intra_distributed_optimizer_instance_group()
        )
        store_whole_state(one, model_chunks)
    return made
