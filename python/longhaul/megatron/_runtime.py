# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""A plan's schedule as the forward-backward function of megatron-core."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import get_megatron_optimizer
from megatron.core.pipeline_parallel import schedules
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.utils import get_attr_wrapped_model, get_model_config
from torch.utils import _pytree

from .._errors import InvalidError, UnsupportedError
from ..torch import PipelineRuntime
from ..torch._orders import Course, Demands, Order
from ._recomputation import (
    check_operations,
    layers_of,
    recompute_operations,
)
from ._sharding import get_sharded_optimizer, sharded_class
from ._stages import Iteration, Stage
from ._weights import check_layers

# Settings of a model's configuration that change the order of passes.
_UNSUPPORTED = (
    ("overlap_moe_expert_parallel_comm", "--overlap-moe-expert-parallel-comm"),
    ("defer_embedding_wgrad_compute", "--defer-embedding-wgrad-compute"),
    ("variable_seq_lengths", "--variable-seq-lengths"),
    (
        "num_microbatches_with_partial_activation_checkpoints",
        "num_microbatches_with_partial_activation_checkpoints",
    ),
    ("fine_grained_activation_offloading", "--fine-grained-activation-offload"),
    ("hybrid_context_parallel", "--hybrid-context-parallel"),
)


class _Runtime(PipelineRuntime):
    """PyTorch's runtime, with chunks of a Megatron model as stages."""

    _stages: list[Stage]

    def __init__(self, what: Any, stages: list[Stage], **options: Any) -> None:
        super().__init__(
            what, stages, scale_grads=False, layers=layers_of, **options
        )

    def _shard(self) -> None:
        super()._shard()
        if self.sharding is None:
            return
        demands = self._course.demands
        for stage in self._stages:
            self.sharding.scale = stage.submod.scale
            if demands is not None:
                recompute_operations(stage.submod, demands, stage.stage_index)

    def _check(self, order: Order) -> None:
        row = order.passes[self.device]
        split = self._split_chunks(order)
        for stage in self._stages:
            chunk = stage.stage_index
            if chunk in split:
                check_layers(stage.submod)
            forward = [
                one.microbatch
                for one in row
                if one.kind == "F" and one.chunk == chunk
            ]
            if forward != sorted(forward):
                raise UnsupportedError(
                    f"{order.name}: chunk {chunk} runs microbatches in another "
                    "order than Megatron's data iterator gives them"
                )
        super()._check(order)

    def _follow(self, order: Order) -> None:
        super()._follow(order)
        split = self._split_chunks(order)
        first: dict[int, int] = {}
        for one in order.passes[self.device]:
            if one.kind in "WB":
                first.setdefault(one.chunk, one.microbatch)
        for stage in self._stages:
            chunk = stage.stage_index
            stage.defer(chunk in split, first.get(chunk, 0))

    def _split_chunks(self, order: Order) -> set[int]:
        """Returns this rank's chunks that have W passes."""
        row = order.passes[self.device]
        return {one.chunk for one in row if one.kind == "W"}

    def _initialize_stages(self, *_: Any, **__: Any) -> None:
        """Does nothing: Megatron's configuration has the shapes."""

    def _merge_outputs(self, *_: Any) -> None:
        """Does nothing: Megatron collects what the loss function returns."""

    def run(self, iteration: Iteration) -> None:
        self._has_backward = not iteration.forward_only
        self.step()
        for stage in self._stages if self.sharding is not None else ():
            # The optimizer changes the parts next.
            stage.submod.is_gathered = iteration.forward_only


def _groups() -> ProcessGroupCollection:
    """Returns the process groups of Megatron's global state."""
    made = ProcessGroupCollection()
    made.tp = parallel_state.get_tensor_model_parallel_group()
    made.pp = parallel_state.get_pipeline_model_parallel_group()
    made.cp = parallel_state.get_context_parallel_group()
    made.embd = parallel_state.get_embedding_group(check_initialized=False)
    made.pos_embd = parallel_state.get_position_embedding_group(
        check_initialized=False
    )
    made.dp_cp = parallel_state.get_data_parallel_group(
        with_context_parallel=True, partial_data_parallel=False
    )
    return made


class ForwardBackward:
    """Runs a plan's schedule as megatron-core's forward-backward function.

        run = longhaul.megatron.ForwardBackward("plan.json")
        losses = run(forward_step_func=..., data_iterator=..., model=..., ...)

    Has the arguments and results of the functions that
    `megatron.core.pipeline_parallel.get_forward_backward_func()` returns.
    Collective: all ranks of the job make one, and call it equally often.

    Attributes:
        runtime: the `longhaul.torch.PipelineRuntime` that runs the passes, from
            the first call on.
        data_parallel: the class that wraps chunks: Megatron's
            DistributedDataParallel; for elastic plans another one, with the
            same arguments, which shards them.
        get_megatron_optimizer: Megatron's function, or for elastic plans
            another one with the same arguments.
    """

    def __init__(self, what: Any, **options: Any) -> None:
        """Makes a forward-backward function.

        Args:
            what: a plan or a pipeline, as `longhaul.simulate` takes them.
            options: those of `longhaul.torch.PipelineRuntime`: schedule, path,
                rails, inject, adapt, schedule_at.

        Raises:
            longhaul.Error: the plan cannot be read.
        """
        course = Course(what)
        self.is_elastic = course.has_operations or course.is_elastic
        self.data_parallel: type = DistributedDataParallel
        self.get_megatron_optimizer: Any = get_megatron_optimizer
        if self.is_elastic:
            check_operations(course)
            self.data_parallel = sharded_class(course)
            self.get_megatron_optimizer = get_sharded_optimizer
        self.places = course.places
        self._name, self._demands = course.name, course.demands
        self._what, self._options = what, options
        self.runtime: _Runtime | None = None
        self._models: list[Any] = []

    def __call__(
        self,
        *,
        forward_step_func: Any,
        data_iterator: Any,
        model: Any,
        num_microbatches: int,
        seq_length: int,
        micro_batch_size: int,
        decoder_seq_length: int | None = None,
        forward_only: bool = False,
        collect_non_loss_data: bool = False,
        first_val_step: bool | None = None,
        adjust_tensor_shapes_fn: Any = None,
        p2p_communicator: Any = None,
        pg_collection: Any = None,
        force_all_reduce: bool | None = False,
    ) -> list[Any]:
        """Runs the passes of an iteration.

        Returns:
            What the loss function returned for each microbatch, on the rank of
            the last chunk and on the last rank of the pipeline; else nothing.

        Raises:
            longhaul.Error: the model's configuration or the arguments ask for
                what the runtime does not do; with the reason.
        """
        models = model if isinstance(model, list) else [model]
        data = (
            data_iterator
            if isinstance(data_iterator, list)
            else [data_iterator] * len(models)
        )
        config = get_model_config(models[0])
        groups = _groups() if pg_collection is None else pg_collection
        _check_settings(config, adjust_tensor_shapes_fn)
        if self.runtime is None:
            if self._demands is not None:
                check_demands(
                    self._name,
                    self._demands,
                    config,
                    getattr(models[0], "ddp_config", None),
                )
            self.runtime = self._made(models, groups.pp)
        runtime = self.runtime
        planned = runtime._course.n_microbatches
        if num_microbatches != planned:
            raise InvalidError(
                f"num_microbatches: {num_microbatches}; the plan has {planned} "
                "microbatches for each replica, in training and evaluation: "
                "global batch / (microbatch size x data parallelism)"
            )
        if config.timers is not None:
            config.timers("forward-backward", log_level=1).start(
                barrier=config.barrier_with_L1_time
            )
        (shape,) = schedules.get_tensor_shapes(
            seq_length=seq_length,
            micro_batch_size=micro_batch_size,
            decoder_seq_length=decoder_seq_length,
            config=config,
            tp_group=groups.tp,
            cp_group=groups.cp,
        )
        iteration = Iteration(
            forward_step_func,
            config,
            tuple(shape),
            num_microbatches,
            groups.cp.size(),
            collect_non_loss_data,
            first_val_step,
            forward_only,
            torch.zeros([], dtype=torch.int, device=runtime._place),
        )
        self._run(runtime, iteration, data)
        self._share(runtime, iteration, groups)
        if config.finalize_model_grads_func is not None and not forward_only:
            config.finalize_model_grads_func(
                models,
                iteration.tokens if config.calculate_per_token_loss else None,
                pg_collection=groups,
                force_all_reduce=force_all_reduce,
            )
        if config.timers is not None:
            config.timers("forward-backward").stop()
        return iteration.stored

    def _made(self, models: list[Any], group: Any) -> _Runtime:
        """Makes the runtime, with this rank's chunks."""
        rank = dist.get_rank(group)
        own = [k for k, at in enumerate(self.places) if at == rank]
        if len(models) != len(own):
            raise InvalidError(
                f"model: has {len(models)} chunks on pipeline rank {rank}; the "
                f"plan places {len(own)} there"
            )
        if self.places[-1] == self.places[0] and len(self.places) > 1:
            for module in models:
                _reject_tied_embedding(module)
        virtual = len(own) > 1
        # Megatron recomputes activations itself, and offloads none.
        offloads = self._demands is not None and self._demands.offload > 0
        options = self._options | {"own_activations": not offloads}
        if self.is_elastic:
            if not all(isinstance(one, self.data_parallel) for one in models):
                raise InvalidError(
                    f"model: {self._name} shards its parameters; wrap the "
                    "chunks in the class `data_parallel` of the "
                    "longhaul.megatron.ForwardBackward, in place of Megatron's "
                    "DistributedDataParallel"
                )
            options = options | {"replicas": models[0].group}
        inner = getattr(models[0], "module", models[0])
        device = next(inner.parameters()).device
        stages = [
            Stage(module, k, v if virtual else None, self.places, device, group)
            for v, (k, module) in enumerate(zip(own, models, strict=True))
        ]
        self._models = models
        return _Runtime(self._what, stages, **options)

    def gather(self) -> None:
        """Gathers the parameters of this rank's chunks, if the plan shards
        them, before a program reads them. Collective; between iterations."""
        for module in self._models if self.is_elastic else ():
            module.gather()

    def _run(
        self, runtime: _Runtime, iteration: Iteration, data: list[Any]
    ) -> None:
        config, n = iteration.config, len(runtime._stages)
        trains = not iteration.forward_only
        no_sync = _for_chunks(config.no_sync_func, n, "no_sync_func")
        grad_sync = _for_chunks(config.grad_sync_func, n, "grad_sync_func")
        param_sync = _for_chunks(config.param_sync_func, n, "param_sync_func")
        for v, stage in enumerate(runtime._stages):
            stage.begin(
                iteration,
                data[v],
                no_sync[v],
                grad_sync[v] if trains else None,
                param_sync[v] if trains else None,
            )
        try:
            runtime.run(iteration)
        finally:
            for stage in runtime._stages:
                stage.end()

    def _share(
        self, runtime: _Runtime, iteration: Iteration, groups: Any
    ) -> None:
        """Sends losses and token counts to the last rank, where Megatron-LM
        expects them, if another rank has the last chunk."""
        source, last = self.places[-1], max(self.places)
        if source == last:
            return
        members, rank = runtime._members, runtime.device
        if iteration.config.calculate_per_token_loss:
            dist.broadcast(iteration.tokens, members[source], group=groups.pp)
        if rank == source:
            kept = _pytree.tree_map_only(
                torch.Tensor, lambda t: t.detach().cpu(), iteration.stored
            )
            runtime._host.send_object(kept, members[last])
        elif rank == last:
            received = runtime._host.receive_object(members[source])
            iteration.stored = _pytree.tree_map_only(
                torch.Tensor, lambda t: t.to(runtime._place), received
            )

    def close(self) -> None:
        """Ends this rank's threads; call before destroying process groups."""
        if self.runtime is not None:
            self.runtime.close()


def _check_settings(config: Any, adjust_tensor_shapes_fn: Any) -> None:
    if adjust_tensor_shapes_fn is not None:
        raise UnsupportedError(
            "adjust_tensor_shapes_fn: all messages of a plan have one shape"
        )
    for name, shown in _UNSUPPORTED:
        if getattr(config, name, None):
            raise UnsupportedError(
                f"{shown}: changes the order of passes, which the plan "
                "defines; leave it out"
            )
    if getattr(config, "cuda_graph_impl", "none") != "none":
        raise UnsupportedError(
            "--cuda-graph-impl: Megatron's graphs contain the passes in the "
            "order of Megatron's schedules; leave it out"
        )


def check_demands(
    name: str, demands: Demands, config: Any, ddp_config: Any
) -> None:
    """Raises if a plan asks for something that Megatron's configuration does
    not do."""
    missing = None
    if demands.zero in (2, 3):
        raise UnsupportedError(
            f"{name}: zero is {demands.zero}; longhaul.megatron runs the "
            "distributed optimizer (ZeRO-1) alone: plan with training.zero: 1"
        )
    if (
        demands.zero == 1
        and demands.replicas > 1
        and not getattr(ddp_config, "use_distributed_optimizer", False)
    ):
        missing = "zero is 1", "--use-distributed-optimizer"
    granularity = getattr(config, "recompute_granularity", None)
    if demands.offload > 0 and granularity is not None:
        raise InvalidError(
            f"{name}: offload: the activations of layers that Megatron "
            "recomputes are not kept; leave out --recompute-granularity"
        )
    wanted = demands.recompute
    if wanted not in ("none", "operations"):
        wanted = "full" if wanted == "full" else "selective"
        if granularity != wanted:
            option = f"--recompute-granularity {wanted}"
            missing = f"recompute is {demands.recompute!r}", option
    if missing is not None:
        raise InvalidError(
            f"{name}: {missing[0]}, but the job lacks {missing[1]}; use the "
            "arguments of the bundle (longhaul export --to megatron)"
        )


def _for_chunks(given: Any, n: int, name: str) -> list[Any]:
    """Returns a function of the configuration for each chunk, or None."""
    if given is None:
        return [None] * n
    made = given if isinstance(given, list) else [given]
    if len(made) != n:
        raise InvalidError(
            f"{name}: {len(made)} functions for {n} chunks; give one for each"
        )
    return made


def _reject_tied_embedding(module: Any) -> None:
    """Raises if both ends of the model, which are on one rank, share an
    embedding, since Megatron adds its gradients over two ranks."""
    try:
        tied = get_attr_wrapped_model(
            module, "share_embeddings_and_output_weights"
        )
    except RuntimeError:
        return
    if tied:
        raise UnsupportedError(
            "model: the first and the last chunk are on one rank and share an "
            "embedding, which Megatron adds up over two ranks; add "
            "--untie-embeddings-and-output-weights, or use another placement"
        )
