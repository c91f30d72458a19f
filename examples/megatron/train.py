#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT model of megatron-core, trained on random tokens.

    PROGRAM=examples/megatron/train.py job/launch.sh --train-iters 3

Takes the arguments of Megatron-LM's pretrain_gpt.py that a plan has, and asks
megatron-core for its forward-backward function as pretrain_gpt.py does. The
rank of the last stage prints the loss of each iteration.

Runs on GPUs with NCCL, and on CPUs with gloo if there is no GPU. megatron-core
expects a GPU: without one, `cuda` stands for the CPU in this program. The
model's layers are those of megatron-core itself, not Transformer Engine's.
"""

import argparse
import contextlib
import os
import types
import zlib

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe import moe_utils
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

NUMBERS = (
    "num-layers", "hidden-size", "num-attention-heads", "kv-channels",
    "ffn-hidden-size", "vocab-size", "seq-length", "max-position-embeddings",
    "tensor-model-parallel-size", "context-parallel-size",
    "pipeline-model-parallel-size", "micro-batch-size", "global-batch-size",
    "num-query-groups", "train-iters", "num-experts", "moe-router-topk",
    "moe-ffn-hidden-size", "expert-model-parallel-size",
    "expert-tensor-parallel-size", "recompute-num-layers",
)  # fmt: skip
FLAGS = (
    "swiglu", "disable-bias-linear", "untie-embeddings-and-output-weights",
    "bf16", "use-distributed-optimizer", "overlap-grad-reduce",
    "overlap-param-gather", "sequence-parallel", "group-query-attention",
    "use-tp-pp-dp-mapping", "moe-grouped-gemm",
    "accumulate-allreduce-grads-in-fp32", "no-overlap-p2p-communication",
)  # fmt: skip
WORDS = (
    "pipeline-model-parallel-layout", "moe-layer-freq",
    "moe-token-dispatcher-type", "recompute-granularity", "recompute-method",
)  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in NUMBERS:
        parser.add_argument(f"--{name}", type=int)
    for name in FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--normalization", default="LayerNorm")
    parser.add_argument("--position-embedding-type", default="rope")
    for name in WORDS:
        parser.add_argument(f"--{name}")
    parser.set_defaults(moe_layer_freq="1")
    parser.add_argument("--recompute-modules", nargs="+")
    for name in ("norm-epsilon", "hidden-dropout", "attention-dropout",
                 "moe-aux-loss-coeff"):  # fmt: skip
        parser.add_argument(f"--{name}", type=float, default=0.0)
    return parser.parse_args()


class OnCpu(TorchFunctionMode):
    """Creates tensors on the CPU in place of a GPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        made = function(*args, **kwargs)
        if function is torch.Tensor.type and isinstance(made, str):
            # the optimizer checks the name
            return made.replace("torch.", "torch.cuda.")
        return made


class NoTracker:
    """Replaces dropout's random generator, which needs a GPU."""

    def fork(self, *_):
        return contextlib.nullcontext()

    def is_initialized(self):
        return False


class Norm:
    """Makes PyTorch's norm of a configuration. megatron-core's function for CPUs
    rejects sequence parallelism."""

    def __new__(cls, config, hidden_size, eps=1e-5, **_):
        kind = {"LayerNorm": nn.LayerNorm, "RMSNorm": nn.RMSNorm}
        made = kind[config.normalization](hidden_size, eps=eps)
        for p in made.parameters():
            p.sequence_parallel = config.sequence_parallel
        return made


def use_cpu():
    """Replaces functions of megatron-core that need a GPU or Transformer
    Engine."""
    random = tensor_parallel.random
    random._CUDA_RNG_STATE_TRACKER = NoTracker()
    random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True
    random._get_all_rng_states = lambda: ()
    random._set_all_rng_states = lambda *_: None
    random.FP8GlobalStateManager = types.SimpleNamespace(
        is_fp8_enabled=lambda: False
    )
    random.activation_recompute_forward = random.fp8_autocast = (
        lambda **_: contextlib.nullcontext()
    )
    moe_utils.te_general_gemm = None
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None


def start(given):
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        use_cpu()
        torch.set_num_threads(1)
    torch.distributed.init_process_group("nccl" if has_gpu else "gloo")
    stages = given.pipeline_model_parallel_layout.count("|") + 1
    virtual = stages // given.pipeline_model_parallel_size
    given.virtual = virtual if virtual > 1 else None
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=given.tensor_model_parallel_size,
        pipeline_model_parallel_size=given.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=given.virtual,
        context_parallel_size=given.context_parallel_size,
        expert_model_parallel_size=given.expert_model_parallel_size or 1,
        expert_tensor_parallel_size=given.expert_tensor_parallel_size,
        order="tp-cp-ep-pp-dp" if given.use_tp_pp_dp_mapping
        else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=False,
    )  # fmt: skip
    if has_gpu:
        tensor_parallel.model_parallel_cuda_manual_seed(1)


def model_of(given):
    """Builds the chunks of this rank."""
    kind = torch.bfloat16 if given.bf16 else torch.float32
    # as Megatron-LM derives it
    overlaps = bool(given.virtual) and not given.no_overlap_p2p_communication
    config = TransformerConfig(
        num_layers=given.num_layers,
        hidden_size=given.hidden_size,
        num_attention_heads=given.num_attention_heads,
        num_query_groups=given.num_query_groups,
        kv_channels=given.kv_channels,
        ffn_hidden_size=given.ffn_hidden_size,
        gated_linear_unit=given.swiglu,
        activation_func=functional.silu if given.swiglu else functional.gelu,
        normalization=given.normalization,
        layernorm_epsilon=given.norm_epsilon,
        add_bias_linear=not given.disable_bias_linear,
        hidden_dropout=given.hidden_dropout,
        attention_dropout=given.attention_dropout,
        bf16=given.bf16,
        params_dtype=kind,
        pipeline_dtype=kind,
        # not while gloo sends them
        deallocate_pipeline_outputs=torch.cuda.is_available(),
        overlap_p2p_comm=overlaps,
        batch_p2p_comm=not overlaps,
        gradient_accumulation_fusion=False,
        use_cpu_initialization=not torch.cuda.is_available(),
        sequence_parallel=given.sequence_parallel,
        tensor_model_parallel_size=given.tensor_model_parallel_size,
        pipeline_model_parallel_size=given.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=given.virtual,
        context_parallel_size=given.context_parallel_size,
        pipeline_model_parallel_layout=given.pipeline_model_parallel_layout,
        recompute_granularity=given.recompute_granularity,
        recompute_method=given.recompute_method,
        recompute_num_layers=given.recompute_num_layers,
        recompute_modules=given.recompute_modules,
        **experts_of(given),
    )
    ddp = DistributedDataParallelConfig(
        use_distributed_optimizer=given.use_distributed_optimizer,
        overlap_grad_reduce=given.overlap_grad_reduce,
        overlap_param_gather=given.overlap_param_gather,
        grad_reduce_in_fp32=given.accumulate_allreduce_grads_in_fp32,
    )
    chunks = []
    for v in range(given.virtual or 1):
        module = GPTModel(
            config,
            block_of(config, v if given.virtual else None),
            given.vocab_size,
            given.max_position_embeddings,
            pre_process=parallel_state.is_pipeline_first_stage(
                ignore_virtual=False, vp_stage=v),
            post_process=parallel_state.is_pipeline_last_stage(
                ignore_virtual=False, vp_stage=v),
            share_embeddings_and_output_weights=not
            given.untie_embeddings_and_output_weights,
            position_embedding_type=given.position_embedding_type,
            vp_stage=v if given.virtual else None,
        )  # fmt: skip
        fill(module)
        if torch.cuda.is_available():
            module.cuda()
        if given.bf16:
            module = Float16Module(config, module)
        module = DistributedDataParallel(config, ddp, module)
        chunks.append(module)
    config.finalize_model_grads_func = finalize_model_grads
    if given.overlap_grad_reduce:
        config.no_sync_func = [chunk.no_sync for chunk in chunks]
        if len(chunks) == 1:
            config.no_sync_func = config.no_sync_func[0]
    return chunks


def block_of(config, virtual):
    """Describes the layers of a chunk."""
    block = get_gpt_decoder_block_spec(
        config, False, normalization=config.normalization, vp_stage=virtual
    )
    for layer in block.layer_specs:
        layer.submodules.input_layernorm = Norm
        layer.submodules.pre_mlp_layernorm = Norm
    block.layer_norm = Norm
    return block


def experts_of(given):
    """Returns the configuration of experts. Without a GPU tokens are dispatched
    by all-gathers, and experts run one after another."""
    if not given.num_experts:
        return {}
    has_gpu = torch.cuda.is_available()
    return {
        "num_moe_experts": given.num_experts,
        # an expression, as Megatron-LM takes it
        "moe_layer_freq": eval(given.moe_layer_freq, {"__builtins__": {}}),
        "moe_router_topk": given.moe_router_topk,
        "moe_ffn_hidden_size": given.moe_ffn_hidden_size,
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": given.moe_aux_loss_coeff,
        "moe_grouped_gemm": given.moe_grouped_gemm and has_gpu,
        "moe_token_dispatcher_type": given.moe_token_dispatcher_type
        if has_gpu
        else "allgather",
        "expert_model_parallel_size": given.expert_model_parallel_size or 1,
        "expert_tensor_parallel_size": given.expert_tensor_parallel_size,
    }


def fill(module):
    """Sets initial weights that no placement changes, except across ranks of
    tensor and expert parallelism."""
    layers = module.decoder.layers
    first = layers[0].layer_number if layers else 0
    for name, p in module.named_parameters():
        words = name.split(".")
        if words[:2] == ["decoder", "layers"]:
            words[2] = str(int(words[2]) + first)
        if getattr(p, "tensor_model_parallel", False):
            words.append(str(parallel_state.get_tensor_model_parallel_rank()))
        if not getattr(p, "allreduce", True):
            words.append(str(parallel_state.get_expert_model_parallel_rank()))
        seed = zlib.crc32(".".join(words).encode())
        generator = torch.Generator("cpu").manual_seed(seed)
        if p.dim() > 1:
            with torch.no_grad():
                p.normal_(std=0.02, generator=generator)


def batches(given, n):
    """Yields this replica's microbatches, the same ones in each iteration."""
    replica = parallel_state.get_data_parallel_rank()
    generator = torch.Generator("cpu").manual_seed(replica)
    shape = given.micro_batch_size, given.seq_length + 1
    for _ in range(n):
        tokens = torch.randint(
            given.vocab_size, shape, generator=generator, device="cpu"
        )
        yield tokens.to(torch.cuda.current_device())


def loss_of(losses):
    loss = losses.float().mean()
    # megatron-core divides the loss in place
    return loss, {"lm loss": loss.detach().clone()}


def forward_step(iterator, model):
    tokens = next(iterator)
    length = tokens.shape[1] - 1
    places = torch.arange(length, device=tokens.device).expand(len(tokens), -1)
    mask = torch.ones(
        1, 1, length, length, dtype=torch.bool, device=tokens.device
    ).triu(1)
    # as pretrain_gpt.py distributes them over tensor parallelism
    inputs = tokens[:, :-1] if parallel_state.is_pipeline_first_stage() else None
    labels = tokens[:, 1:] if parallel_state.is_pipeline_last_stage() else None
    return model(inputs, places, mask, labels=labels), loss_of


def main():
    given = arguments()
    start(given)
    with contextlib.nullcontext() if torch.cuda.is_available() else OnCpu():
        train(given)
    torch.distributed.destroy_process_group()


def train(given):
    chunks = model_of(given)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=0.01,
            bf16=given.bf16,
            params_dtype=chunks[0].config.params_dtype,
            use_distributed_optimizer=given.use_distributed_optimizer,
            clip_grad=0.0,
        ),
        chunks,
        use_gloo_process_groups=False,
    )
    forward_backward = get_forward_backward_func()
    n = given.global_batch_size // (
        given.micro_batch_size * parallel_state.get_data_parallel_world_size()
    )
    several = len(chunks) > 1
    for iteration in range(given.train_iters):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        data = [batches(given, n) for _ in chunks]
        losses = forward_backward(
            forward_step_func=forward_step,
            data_iterator=data if several else data[0],
            model=chunks if several else chunks[0],
            num_microbatches=n,
            seq_length=given.seq_length,
            micro_batch_size=given.micro_batch_size,
        )
        optimizer.step()
        if losses and torch.distributed.get_rank() == (
            torch.distributed.get_world_size() - 1
        ):
            loss = sum(one["lm loss"].item() for one in losses) / n
            print(f"iteration {iteration}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
