#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exported models compute the same logits as transformers.

    test_exported_models.py PROGRAM

A small config.json of each family is planned for Megatron-LM and exported.
megatron-core builds the model from the arguments on the CPU, in float32, with its
local layers, since Transformer Engine needs a GPU. With the weights of transformers'
model both must have the same logits, within 1e-4. For a part of the models one
argument at a time is left out, which must change the logits. Needs torch,
megatron-core and transformers; $LONGHAUL_TORCH names a Python that has them.
"""
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
import warnings

from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
warnings.filterwarnings("ignore")
try:
    import torch
    from torch import distributed
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.activations import squared_relu
    from megatron.core.fusions.fused_bias_geglu import quick_gelu
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_decoder_block_spec)
    from megatron.core.transformer import (MLATransformerConfig,
                                           TransformerConfig)
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import (
        DotProductAttention)
    from megatron.core.transformer.moe import moe_utils
    import hf_weights
    from hf_models import (DEEPSEEK, EXPERTS, GROUPS, LLAMA3, NO_HEAD_DIM,
                           SEQUENCE, SIZES, SPLIT, YARN, longhaul,
                           plan, reference)
except ImportError as error:
    skip_without("megatron-core or transformers", error, "LONGHAUL_TORCH",
            "exported models equal transformers'")

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
# pylint: disable=wrong-import-position
from bridge_recipes import meant

TOLERANCE = 1e-4
OBJECTS = {"F.silu": functional.silu, "quick_gelu": quick_gelu,
           "squared_relu": squared_relu, "torch.float32": torch.float32}
# Arguments of each model without which its logits differ.
MODELS = (
    ("Llama 3.1", "llama", SIZES | {"rope_parameters": LLAMA3},
     ("norm-epsilon", "use-rope-scaling", "rotary-base")),
    ("Mistral", "mistral", SIZES | {"sliding_window": 100}, ("window-size",)),
    ("Phi-4", "phi3", NO_HEAD_DIM | {"pad_token_id": 0}, ()),
    ("Nemotron", "nemotron", {
        **{k: v for k, v in SIZES.items() if k != "rms_norm_eps"},
        "norm_eps": 0.003, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5}},
     ("apply-layernorm-1p", "squared-relu", "rotary-percent", "norm-epsilon")),
    ("Qwen2", "qwen2", NO_HEAD_DIM,
     ("add-qkv-bias",)),
    ("Qwen3", "qwen3", SIZES | {"tie_word_embeddings": True}, ()),
    ("Mixtral", "mixtral", SIZES | {
        "num_local_experts": 4, "num_experts_per_tok": 2},
     ("num-experts",)),
    ("Qwen2-MoE", "qwen2_moe",
     NO_HEAD_DIM | EXPERTS |
     {"num_experts": 4, "shared_expert_intermediate_size": 48},
     ("moe-router-pre-softmax", "moe-shared-expert-gate")),
    ("Qwen3-MoE", "qwen3_moe", SIZES | EXPERTS | {
        "num_experts": 4, "norm_topk_prob": True, "mlp_only_layers": [0]}, ()),
    ("GLM-4.5", "glm4_moe", SIZES | EXPERTS | {
        "n_routed_experts": 8, "n_shared_experts": 1, "attention_bias": True,
        "first_k_dense_replace": 1, "use_qk_norm": True,
        "routed_scaling_factor": 1.5},
     ("rotary-percent", "qk-layernorm", "moe-router-topk-scaling-factor")),
    ("DeepSeek-V2-Lite", "deepseek_v2", DEEPSEEK | SPLIT | {
        "q_lora_rank": None, "topk_method": "greedy", "rope_parameters": YARN |
        {"mscale": 0.707, "mscale_all_dim": 0.707}}, ("mscale-all-dim",)),
    ("DeepSeek-V3", "deepseek_v3", DEEPSEEK | GROUPS | {
        "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}},
     ("rotary-scaling-factor", "mscale-all-dim", "moe-router-num-groups", "moe-router-topk-scaling-factor")),
    ("DeepSeek-V3, mscale", "deepseek_v3", DEEPSEEK | GROUPS | {
        "rope_parameters": YARN | {"mscale": 1.2, "mscale_all_dim": 0.8}},
     ("mscale",)),
    ("DeepSeek-V3, unscaled", "deepseek_v3", DEEPSEEK | GROUPS, ()),
    ("DeepSeek-V3, YaRN alone", "deepseek_v3",
     DEEPSEEK | GROUPS | {"rope_parameters": YARN}, ()),
    ("gpt-oss", "gpt_oss", SIZES | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 1.5,
        "sliding_window": 100, "rope_parameters": {
            "rope_type": "default", "rope_theta": 150000.0}},
     ("glu-linear-offset", "activation-func-clamp-value", "window-size",
      "window-attn-skip-freq", "softmax-type", "no-bias-gelu-fusion")),
)
passed = failed = 0


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def exported(folder, config):
    """Returns the exported arguments, by name."""
    plan(PROGRAM, folder, config, "megatron")
    text = longhaul(PROGRAM, folder, "export", "plan.json", "--to", "megatron")
    return {words[0][2:]: words[1:] for line in text.splitlines()
            if line.startswith("--") for words in [line.split()]}


def configured(given):
    """Follows core_transformer_config_from_args(). Replaces kernels that need a
    GPU by equal ones: grouped products by sequential ones, and fused operations
    except for activations with their bias."""
    kind = (MLATransformerConfig if "multi-latent-attention" in given
            else TransformerConfig)
    known = {field.name for field in dataclasses.fields(kind)}
    fields = {"rotary_scaling_factor": 1.0, "q_lora_rank": None} if (
        # like Megatron-LM's arguments
        "multi-latent-attention" in given) else {}
    fields |= {name.removeprefix("model."): value
               for name, value in meant(given).items()}
    fields = {name: OBJECTS.get(value, value) if isinstance(value, str)
              else value for name, value in fields.items() if name in known}
    return kind(**fields | {
        "moe_grouped_gemm": False, "apply_rope_fusion": False,
        "persist_layer_norm": False, "bias_dropout_fusion": False,
        "layernorm_zero_centered_gamma": False,
        "gradient_accumulation_fusion": False, "use_cpu_initialization": True,
        "moe_token_dispatcher_type": "allgather"})


class LatentAttention(DotProductAttention):
    """megatron-core's local attention, with the sizes of latent attention."""

    def __init__(self, *args, k_channels=None, v_channels=None, **named):
        super().__init__(*args, **named)
        if v_channels:
            self.hidden_size_per_partition = (
                v_channels * self.num_attention_heads_per_partition)


def built(given):
    """Builds the model like gpt_builder()."""
    config = configured(given)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False,
                                      normalization=config.normalization)
    if "multi-latent-attention" in given:
        for layer in spec.layer_specs:
            layer.submodules.self_attention.submodules.core_attention = (
                LatentAttention)
    model = GPTModel(
        config=config, transformer_layer_spec=spec,
        vocab_size=int(given["vocab-size"][0]),
        max_sequence_length=int(given["max-position-embeddings"][0]),
        share_embeddings_and_output_weights=
        "untie-embeddings-and-output-weights" not in given,
        position_embedding_type=given["position-embedding-type"][0],
        rotary_percent=float(given.get("rotary-percent", ["1"])[0]),
        rotary_base=int(given.get("rotary-base", ["10000"])[0]),
        rope_scaling="use-rope-scaling" in given)
    return model.eval()


def logits_of(given, weights, tokens):
    """Returns the logits; None if the model lacks a parameter for a weight."""
    model = built(given)
    names = {name: value for name, value in model.state_dict().items()
             if isinstance(value, torch.Tensor)}
    lacking_names = [name for name in names if name not in weights or
                     names[name].shape != weights[name].shape]
    if lacking_names:
        print(f"  no weights: {lacking_names}")
        return None
    # Local norms have weights around 1, unlike Transformer Engine's.
    more = {name: 1 for name in names if "apply-layernorm-1p" in given and
            name.endswith("norm.weight")}
    model.load_state_dict({name: weights[name] + more.get(name, 0)
                           for name in names}, strict=False)
    mask = torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1)
    return model(tokens, torch.arange(SEQUENCE)[None], mask)


def check_model(folder, name, kind, config, needed):
    config, theirs, tokens = reference(kind, config)
    weights = hf_weights.for_megatron(theirs)
    want = theirs(tokens).logits
    given = exported(folder, config)
    got = logits_of(given, weights, tokens)
    off = None if got is None else (got - want).abs().max().item()
    check(off is not None and off < TOLERANCE, f"{name}: {off} off, with {given}")
    print(f"{name}: {off} off, of {want.abs().max().item():.3g}")
    for left_out in needed:
        check(left_out in given, f"{name}: no {left_out}")
        less = {k: v for k, v in given.items() if k != left_out}
        try:
            got = logits_of(less, weights, tokens)
        except (AssertionError, ValueError) as error:
            print(f"  without {left_out}: {error}")
            continue
        off = None if got is None else (got - want).abs().max().item()
        print(f"  without {left_out}: {off}")
        check(off is None or off > 10 * TOLERANCE,
              f"{name}: {off} off without {left_out}")


class OnCpu(TorchFunctionMode):
    """Creates megatron-core's masks on the CPU in place of a GPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


class NoTracker:
    """Replaces dropout's random generator, which needs a GPU."""

    def fork(self, *_):
        return contextlib.nullcontext()

    def is_initialized(self):
        return False


distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
tensor_parallel.random._CUDA_RNG_STATE_TRACKER = NoTracker()
tensor_parallel.random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True
# Names that are undefined without Transformer Engine.
moe_utils.te_general_gemm = None
multi_latent_attention.TELinear = ()
torch.cuda.current_device = lambda: torch.device("cpu")
torch.set_num_threads(1)
with tempfile.TemporaryDirectory(prefix="longhaul-models-") as temp, \
        torch.no_grad(), OnCpu():
    for case in MODELS:
        if len(sys.argv) == 2 or case[0] in sys.argv[2:]:
            check_model(pathlib.Path(temp), *case)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
