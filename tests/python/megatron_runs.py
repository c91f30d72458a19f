# SPDX-License-Identifier: Apache-2.0
"""Runs for the tests of longhaul.megatron: small models of megatron-core on processes
over gloo and CPUs, by megatron-core's own functions and by plans.

megatron-core expects a GPU: examples/megatron/train.py has the replacements on CPUs;
everything else is megatron-core as installed.
"""
import math
import re
import sys
import types
import zlib
from functools import partial

import engine_layers
import longhaul
import torch
import torch_runs
from harness import ROOT
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.distributed import (
    DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.experts import TEGroupedMLP
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules)
from megatron.core.utils import get_model_config

sys.path.append(str(ROOT / "examples/megatron"))
from train import Norm, OnCpu, use_cpu  # noqa: E402

HIDDEN, HEADS, SEQUENCE, VOCABULARY, ROWS = 16, 4, 8, 32, 2
MICROBATCHES = 8
LAYERS = 2  # of a pipeline rank


class Model:
    """The chunks of a model on this rank, with the same weights in any
    placement."""

    def __init__(self, places, ddp=None, wrap=DistributedDataParallel,
                 engine=None, positions="learned_absolute",
                 microbatches=MICROBATCHES, **settings):
        from longhaul.megatron import Layout

        self.places, self.microbatches = places, microbatches
        ranks = max(places) + 1
        rank = parallel_state.get_pipeline_model_parallel_rank()
        own = [k for k, at in enumerate(places) if at == rank]
        parallel_state.set_virtual_pipeline_model_parallel_world_size(
            len(own) if len(own) > 1 else None)
        self.layers = LAYERS * ranks // len(places)  # of a chunk
        chunks = ["t" * self.layers for _ in places]
        chunks[0] = "E" + chunks[0]
        chunks[-1] += "L"
        self.config = TransformerConfig(**{
            "num_layers": LAYERS * ranks, "hidden_size": HIDDEN,
            "num_attention_heads": HEADS, "ffn_hidden_size": 2 * HIDDEN,
            "use_cpu_initialization": True, "hidden_dropout": 0.0,
            "attention_dropout": 0.0, "pipeline_dtype": torch.float32,
            "tensor_model_parallel_size":
                parallel_state.get_tensor_model_parallel_world_size(),
            "expert_model_parallel_size":
                parallel_state.get_expert_model_parallel_world_size(),
            "pipeline_model_parallel_size": ranks,
            "virtual_pipeline_model_parallel_size":
                len(own) if len(own) > 1 else None,
            "microbatch_group_size_per_vp_stage": ranks,
            "pipeline_model_parallel_layout": Layout("|".join(chunks), places),
            "deallocate_pipeline_outputs": True,
            "gradient_accumulation_fusion": False,
            **settings})
        spec = get_gpt_layer_local_spec(num_experts=self.config.num_moe_experts)
        spec.submodules.input_layernorm = Norm
        spec.submodules.pre_mlp_layernorm = Norm
        if engine:
            use_engine_layers(spec, engine)
        block = TransformerBlockSubmodules([spec] * self.layers, Norm)
        overlaps = ddp is not None and ddp.overlap_grad_reduce
        self.chunks = []
        for v, k in enumerate(own):
            module = GPTModel(
                self.config, block, VOCABULARY, SEQUENCE,
                pre_process=k == 0, post_process=k == len(places) - 1,
                share_embeddings_and_output_weights=False,
                position_embedding_type=positions, vp_stage=v if len(own) > 1 else None)
            fill(module, k * self.layers)
            module.to(self.config.params_dtype)
            self.chunks.append(wrap(
                self.config, ddp or DistributedDataParallelConfig(), module))
        self.config.finalize_model_grads_func = finalize_model_grads
        if overlaps:
            self.call_each("no_sync_func", "no_sync")
        if overlaps and ddp.align_param_gather:
            self.call_each("grad_sync_func", "start_grad_sync")
            self.call_each("param_sync_func", "start_param_sync")

    def call_each(self, setting, method):
        """Sets a function of the configuration to the chunks' methods."""
        calls = [getattr(chunk, method) for chunk in self.chunks]
        setattr(self.config, setting, calls if len(calls) > 1 else calls[0])

    def tensors(self, of):
        """Returns a tensor of each parameter, by names that no placement
        changes."""
        rank = parallel_state.get_pipeline_model_parallel_rank()
        own = [k for k, at in enumerate(self.places) if at == rank]
        return {named(name, k * self.layers): of(p).detach().clone()
                for k, chunk in zip(own, self.chunks)
                for name, p in chunk.module.named_parameters()
                if of(p) is not None}  # sharded gradients are in their parts


def use_engine_layers(spec, kind):
    """Gives a layer linear layers as of Transformer Engine: "plain", or "fused" with
    accumulation into main_grad."""
    linear = engine_layers.FusedLinear if kind == "fused" else engine_layers.Linear
    attention, mlp = spec.submodules.self_attention, spec.submodules.mlp
    attention.submodules.linear_qkv = attention.submodules.linear_proj = linear
    if isinstance(mlp.submodules, MLPSubmodules):
        mlp.submodules.linear_fc1 = mlp.submodules.linear_fc2 = linear
    else:
        grouped = engine_layers.GroupedLinear
        mlp.submodules.experts = ModuleSpec(
            TEGroupedMLP, submodules=MLPSubmodules(
                linear_fc1=grouped, linear_fc2=grouped))


def named(name, first):
    """Returns a parameter's name with the layer's number in the model."""
    return re.sub(r"(?<=layers\.)\d+", lambda m: str(int(m[0]) + first), name,
                  count=1)


def fill(module, first):
    """Sets weights that depend on the parameter and its share alone."""
    for name, p in module.named_parameters():
        share = ""
        if getattr(p, "tensor_model_parallel", False):
            share += f" {parallel_state.get_tensor_model_parallel_rank()}"
        if not getattr(p, "allreduce", True):
            share += f" of {parallel_state.get_expert_model_parallel_rank()}"
        seed = zlib.crc32((named(name, first) + share).encode())
        generator = torch.Generator("cpu").manual_seed(seed)
        with torch.no_grad():
            p.normal_(std=0.3, generator=generator)
            if "norm" in name and name.endswith("weight"):
                p += 1


def batches(step, n):
    """Yields this replica's n microbatches of a step."""
    replica = parallel_state.get_data_parallel_rank()
    generator = torch.Generator("cpu").manual_seed(100 * step + replica)
    for _ in range(n):
        yield torch.randint(VOCABULARY, (ROWS, SEQUENCE + 1),
                            generator=generator, device="cpu")


def forward_step(iterator, model):
    tokens = next(iterator)
    places = torch.arange(SEQUENCE, device="cpu").expand(ROWS, -1)
    mask = torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool,
                      device="cpu").triu(1)
    output = model(tokens[:, :-1], places, mask, labels=tokens[:, 1:])
    return output, partial(loss_of, get_model_config(model))


def loss_of(config, losses):
    total = losses.float().sum()
    count = torch.tensor(losses.numel(), dtype=torch.int, device="cpu")
    if config.calculate_per_token_loss:
        return total, count, {"loss": total.detach().clone()}
    return total / count, {"loss": (total / count).detach().clone()}


def train(run, model, steps, optimizer=None, forward_only=False):
    """Runs iterations; returns their losses and the last gradients, or with an
    optimizer, which shards gradients, the weights."""
    losses = []
    for step in range(steps):
        for chunk in model.chunks:
            chunk.zero_grad_buffer()
        if optimizer:
            optimizer.zero_grad()
        iterators = [batches(step, model.microbatches) for _ in model.chunks]
        several = len(model.chunks) > 1
        stored = run(
            forward_step_func=forward_step,
            data_iterator=iterators if several else iterators[0],
            model=model.chunks if several else model.chunks[0],
            num_microbatches=model.microbatches, seq_length=SEQUENCE,
            micro_batch_size=ROWS, forward_only=forward_only)
        losses.append([one["loss"].item() for one in stored])
        if optimizer:
            _, norm, _ = optimizer.step()
            clip = optimizer.chained_optimizers[0].config.clip_grad
            assert not clip or norm > clip, f"the norm {norm} is not clipped"
    if not optimizer:
        return losses, model.tensors(lambda p: p.main_grad)
    for chunk in model.chunks:
        if chunk.ddp_config.overlap_param_gather:
            chunk.start_param_sync(force_sync=True)
    if hasattr(run, "gather"):
        run.gather()
    tensors = model.tensors(lambda p: p)
    if clip:
        tensors["norm of gradients"] = torch.tensor(norm)
    return losses, tensors


def start(layout):
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.get("tensor", 1),
        pipeline_model_parallel_size=layout["pipeline"],
        virtual_pipeline_model_parallel_size=layout.get("virtual"),
        expert_model_parallel_size=layout.get("expert", 1),
        expert_tensor_parallel_size=1 if "expert" in layout else None,
        create_gloo_process_groups=False)


def loop(ranks, chunks):
    return tuple(k % ranks for k in range(chunks))


def _merged(mine):
    """Gathers the tensors of all pipeline ranks, for the placements of the
    plans."""
    group = parallel_state.get_pipeline_model_parallel_group()
    parts = [None] * group.size()
    torch.distributed.all_gather_object(parts, mine, group=group)
    return {name: value for part in parts for name, value in part.items()}


def compare(name, got, want, tolerance=0.0):
    """Returns the differences between two runs: losses where this rank has
    some, and gradients or weights."""
    wrong = []
    (losses, tensors), (known, all_known) = got, want
    if any(losses) and any(known) and losses != known:
        off = max(abs(a / b - 1) for x, y in zip(losses, known)
                  for a, b in zip(x, y))
        if not off <= tolerance:
            wrong.append(f"{name}: losses differ by {off:g}")
    for key, one in tensors.items():
        off = (one - all_known[key]).abs().max().item()
        scale = all_known[key].abs().max().item()
        if not off <= tolerance * max(scale, 1e-3):
            wrong.append(f"{name}: {key} differs by {off:g} "
                         f"of {scale:g}")
        if scale == 0:
            wrong.append(f"{name}: {key} is 0")
    return wrong


def job(rank, groups):
    """Runs groups of cases: each has a layout, a model, and plans that are
    compared with megatron-core's own function."""
    use_cpu()
    wrong, count, started = [], 0, None
    with OnCpu():
        for layout, settings, ddp, cases in groups:
            if layout != started:
                if started is not None:
                    parallel_state.destroy_model_parallel()
                start(layout)
                started = layout
            wants = {}
            for case in cases:
                count += 1
                wrong += run_case(layout, settings, ddp, case, wants)
    return wrong, count


def run_case(layout, settings, ddp, case, wants):
    from longhaul.megatron import ForwardBackward
    from longhaul.torch import places

    placement, backward, schedule, options = case
    options = dict(options)
    steps = options.pop("steps", 1)
    reads = options.pop("forward_only", False)
    clip = options.pop("clip", 0.0)
    tolerance = options.pop("tolerance", 0.0)
    ranks = layout["pipeline"]
    halves = ranks == 2 and placement != "plan"
    settings = {"microbatches": MICROBATCHES // (2 if halves else 1)} | settings
    n = settings["microbatches"]
    if placement == "elastic":
        shares = dict(options.pop("elastic"))
        groups = shares.pop("groups")
        text = torch_runs.elastic(ranks, enqueue=(n // 2,) * 2,
                                  dequeue=(n // groups,) * groups, **shares)
    elif placement == "plan":
        text = options.pop("text")
    else:
        text = torch_runs.pipeline(ranks, placement, n, backward,
                                   latency=options.pop("latency", 0))
    where = places(text)
    made = (lambda: DistributedDataParallelConfig(**ddp)) if ddp else (
        lambda: None)
    if (steps, clip) not in wants:
        wants[steps, clip] = by_megatron(layout, 1, settings, made, steps, clip)
    want = wants[steps, clip]
    name = f"{layout} {settings} {ddp} {str(case)[:200]}"
    stored = options.pop("offloads", None)
    if stored is not None:
        count_offloads(stored)
    if schedule == "megatron":  # its own interleaved 1F1B
        return compare(name, by_megatron(layout, 2, settings, made, steps), want)
    run = ForwardBackward(text, schedule=schedule, **options)
    model = Model(where, made(), run.data_parallel, **settings)
    got = train(run, model, steps,
                optimizer_of(model, made(), clip, run.get_megatron_optimizer),
                reads)
    if reads:
        got = got[0], {}
    else:
        timed = len(run.runtime._rows)
        passes = len(run.runtime._order.passes[run.runtime.device])
        assert timed == passes, f"{case}: {timed} times of {passes} passes"
    run.close()
    assert stored is None or stored, f"{case}: nothing is offloaded"
    if parallel_state.get_pipeline_model_parallel_rank() == max(where):
        assert all(got[0]), f"{case}: the last rank has no losses"
    return compare(name, got, want, tolerance)


def count_offloads(counts):
    """Appends the bytes of each tensor that is offloaded from now on."""
    from longhaul.torch import _activations

    store = _activations.Offload._store

    def counted(self, x):
        counts.append(x.numel() * x.element_size())
        return store(self, x)

    _activations.Offload._store = counted


def by_megatron(layout, chunks, settings, made, steps, clip=0.0):
    """Runs megatron-core's own function, with this many chunks on a rank."""
    ranks = layout["pipeline"]
    model = Model(loop(ranks, chunks * ranks), made(), **settings)
    losses, tensors = train(get_forward_backward_func(), model, steps,
                              optimizer_of(model, made(), clip))
    return losses, _merged(tensors)


def optimizer_of(model, ddp, clip=0.0, make=get_megatron_optimizer):
    """Makes AdamW, or to clip gradients SGD: AdamW divides rounding errors of
    gradients that are almost 0 by their size."""
    if not ddp:
        return None
    made = make(
        OptimizerConfig(optimizer="sgd" if clip else "adam",
                        lr=1.0 if clip else 0.01, bf16=model.config.bf16,
                        use_distributed_optimizer=ddp.use_distributed_optimizer,
                        params_dtype=model.config.params_dtype, clip_grad=clip),
        model.chunks, use_gloo_process_groups=False)
    for group in made.param_groups:  # as Megatron's scheduler does
        group["weight_decay"] = 0.1 * group["wd_mult"]
    return made


def checkpoint_job(rank, folder, kind, layout, more):
    """Trains a step on replicas of one device, whose optimizer is sharded by
    shares, and saves a checkpoint; then trains another step, also after loading the
    checkpoint into such an optimizer, into one with other shares and into Megatron's
    own. Returns the differences of the weights, and those after loading the model
    alone. `kind`: data type of the parameters; `more`: the model's settings."""
    from longhaul.megatron import ForwardBackward

    settings = {"params_dtype": kind, "pipeline_dtype": kind,
                "bf16": kind == torch.bfloat16, **more}

    def state_of(model, optimizer, is_loading):
        found = {"model": model.chunks[0].module.sharded_state_dict()}
        if optimizer:
            found["optimizer"] = optimizer.sharded_state_dict(found, is_loading)
        return found

    def with_shares(gradients, parameters):
        text = torch_runs.elastic(1, gradients, parameters, (1, 1), (1, 1), chunks=1)
        run = ForwardBackward(text, schedule="elastic")
        ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
        model = Model((0,), ddp, run.data_parallel, microbatches=2, **settings)
        return run, model, optimizer_of(model, ddp, make=run.get_megatron_optimizer)

    def by_megatron():
        ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
        model = Model((0,), ddp, microbatches=2, **settings)
        return get_forward_backward_func(), model, optimizer_of(model, ddp)

    use_cpu()
    # A process that starts by "spawn" would import all modules again.
    filesystem_async._results_queue = (
        torch.multiprocessing.get_context("fork").Manager().Queue())
    differences = []
    with OnCpu():
        start({"pipeline": 1, **layout})
        run, model, optimizer = with_shares(0.75, 0.5)
        for group in optimizer.param_groups:
            group["lr"] = 0.03  # not the one of other optimizers
        train(run, model, 1, optimizer)
        dist_checkpointing.save(state_of(model, optimizer, False), folder)
        want = train(run, model, 1, optimizer)[1]
        run.close()
        for make, has_state in ((lambda: with_shares(0.75, 0.5), True),
                                (lambda: with_shares(1, 1), True),
                                (by_megatron, True), (by_megatron, False)):
            run, model, optimizer = make()
            loaded = dist_checkpointing.load(
                state_of(model, optimizer if has_state else None, True), folder)
            model.chunks[0].load_state_dict(loaded["model"])
            if has_state:
                optimizer.load_state_dict(loaded["optimizer"])
            got = train(run, model, 1, optimizer)[1]
            differences.append(max(float((got[name] - value).abs().max())
                                   for name, value in want.items()))
            if hasattr(run, "close"):
                run.close()
    return differences


def run_groups(ranks, groups):
    """Runs groups on this many processes; returns the differences and the
    number of cases."""
    got = torch_runs.on_ranks(ranks, job, groups)
    return [f"rank {rank}: {one}" for rank, (wrong, _) in enumerate(got)
            for one in wrong], got[0][1]


def sharded_job(rank):
    """Trains two replicas of one device, whose parameters are sharded; returns the
    messages of wrong uses, and the results of checks."""
    from longhaul.megatron import ForwardBackward
    from longhaul.megatron._recomputation import (
        check_operations, recompute_operations)
    from longhaul.torch._orders import Demands

    def reason(call):
        try:
            call()
        except (longhaul.Error, RuntimeError) as error:
            return str(error)
        return "no error"

    def wrap():
        return run.data_parallel(model.config, settings, chunk.module)

    def demands(*operations):
        return Demands(2, None, "operations", {n: (1,) for n in operations}, 0.0, 1,
                       False)

    use_cpu()
    errors, right = [], {}
    with OnCpu():
        start({"pipeline": 1})
        run = ForwardBackward(torch_runs.elastic(1, 0.75, 0.5, chunks=1),
                              schedule="elastic")
        settings = DistributedDataParallelConfig()
        model = Model((0,), settings, run.data_parallel)
        chunk, = model.chunks
        layers = chunk.module.decoder.layers
        losses = train(run, model, 1)[0]
        errors.append(reason(lambda: layers[0].mlp.linear_fc1.state_dict()))
        errors.append(reason(chunk.broadcast_params))
        saved = chunk.module.sharded_state_dict()
        weight = layers[0].mlp.linear_fc1.weight.detach().clone()
        run.gather()
        right["saved"] = torch.equal(
            saved["decoder.layers.0.mlp.linear_fc1.weight"].data,
            layers[0].mlp.linear_fc1.weight) and torch.equal(
            weight, layers[0].mlp.linear_fc1.weight)
        kept = {name: tensor.clone() for name, tensor in chunk.state_dict().items()
                if isinstance(tensor, torch.Tensor)}
        calls = []
        for layer in layers:
            for name in ("input_layernorm", "pre_mlp_layernorm"):
                getattr(layer, name).register_forward_hook(
                    lambda *_, name=name, layer=layer: calls.append(
                        (layer.layer_number, name)))
        before = model.tensors(lambda p: p)
        again = train(run, model, 1)[0]
        n = {key: calls.count(key) for key in calls}
        right["without an optimizer"] = again == losses
        recompute_operations(chunk, demands("mlp norm", "attention"), 0)
        calls.clear()
        again = train(run, model, 1)[0]
        right["recomputed"] = again == losses and all(
            calls.count(key) == (2 if key == (1, "pre_mlp_layernorm") else 1) * k
            for key, k in n.items()) and len(n) == 4
        right["attention"] = [
            layer.self_attention.checkpoint_core_attention for layer in layers
        ] == [True, False]
        run.gather()
        for value in (rank + 1.0, 3.0):  # of this replica; of all
            for p in chunk.module.parameters():
                p.data.fill_(value)
            if value == 3:
                chunk.load_state_dict(dict(chunk.module.state_dict()))
            else:
                chunk.broadcast_params()
            for p in chunk.module.parameters():
                p.data.zero_()
            run.gather()
            right[f"copied {value}"] = all(
                (p == (3 if value == 3 else 1)).all()
                for p in chunk.module.parameters())
        chunk.load_state_dict(kept, strict=False)
        run.gather()
        right["loaded"] = all(torch.equal(p, before[name]) for name, p in
                              model.tensors(lambda p: p).items())
        chunk.finish_grad_sync()
        chunk.parts[-1].gradient[-1] = math.nan
        chunk.finish_grad_sync()
        settings.check_for_nan_in_grad = True
        errors.append(reason(chunk.finish_grad_sync))
        optimizer = optimizer_of(
            model, settings, make=run.get_megatron_optimizer)
        errors.append(reason(optimizer.state_dict))
        settings.use_distributed_optimizer = True
        errors.append(reason(lambda: optimizer_of(
            model, settings, make=run.get_megatron_optimizer)))
        errors.append(reason(wrap))
        settings.use_distributed_optimizer = False
        size, parallel_state.get_context_parallel_world_size = (
            parallel_state.get_context_parallel_world_size, lambda: 2)
        errors.append(reason(wrap))
        parallel_state.get_context_parallel_world_size = size
        next(chunk.module.parameters()).shared_embedding = True
        errors.append(reason(wrap))
        run.close()
        errors.append(reason(lambda: check_operations(types.SimpleNamespace(
            demands=demands("mlp norm", "latent"), name="p"))))
        from megatron.core.tensor_parallel import random
        installed = random.fp8_autocast
        del random.fp8_autocast
        errors.append(reason(lambda: recompute_operations(
            chunk, demands("mlp norm"), 0)))
        random.fp8_autocast = installed
        layers[0].pre_mlp_layernorm = IdentityOp()
        errors.append(reason(lambda: recompute_operations(
            chunk, demands("mlp norm"), 0)))
    return errors, right
