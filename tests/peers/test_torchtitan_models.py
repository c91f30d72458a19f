#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models exported to torchtitan compute the same logits as transformers.

    test_torchtitan_models.py PROGRAM [NAME...]

A small config.json of each family is planned for torchtitan and exported. torchtitan's
configuration manager reads the options and builds the model of the exported module on
the CPU, in float32. With the weights of transformers' model, which torchtitan's
adapter renames, both must have the same logits, within 1e-4. For a part of the models
one line of the module at a time is changed, which must change the logits. Models that
torchtitan has no class for are refused, with the setting, and exported with
--allow-inexact. Needs torch, torchtitan and transformers; $LONGHAUL_TORCH names a
Python that has them.
"""
import importlib
import logging
import os
import pathlib
import sys
import tempfile
import warnings

import stand_ins
from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
warnings.filterwarnings("ignore")
stand_ins.put_in()
try:
    import torch
    from torch.nn.attention.flex_attention import flex_attention
    from torch.overrides import TorchFunctionMode
    from torchtitan.config.manager import ConfigManager
    from torchtitan.models.common.attention import FlexAttention
    from hf_models import (DEEPSEEK, EXPERTS, GROUPS, LLAMA3, NO_HEAD_DIM,
                           SEQUENCE, SIZES, SPLIT, YARN, longhaul, plan,
                           reference)
except ImportError as error:
    skip_without("torchtitan or transformers", error, "LONGHAUL_TORCH",
            "models exported to torchtitan equal transformers'")

TOLERANCE = 1e-4
GPT_OSS = SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2,
                   "swiglu_limit": 1.5, "sliding_window": 100}
GPT_OSS_YARN = YARN | {"rope_theta": 150000.0, "truncate": False}
EQUAL_MSCALE = YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}
# Texts of each module, and replacements with which the logits differ.
MODELS = (
    ("Llama 3.1", "llama", SIZES | {"rope_parameters": LLAMA3},
     (("EPSILON = 0.003", "EPSILON = 1e-5"), ('scaling="llama"', 'scaling="none"'),
      ("theta=500000", "theta=10000"))),
    ("Llama 3.2", "llama", SIZES | {"tie_word_embeddings": True}, ()),
    ("Mistral", "mistral", SIZES | {"sliding_window": None}, ()),
    ("Qwen3", "qwen3", SIZES | {"tie_word_embeddings": True},
     (("norm(HEAD_DIM)", "None"),)),
    ("Qwen3-MoE", "qwen3_moe", SIZES | EXPERTS | {
        "num_experts": 4, "norm_topk_prob": True, "mlp_only_layers": [0]},
     (('"route_norm": True', '"route_norm": False'),)),
    ("Qwen3-MoE, raw scores", "qwen3_moe", SIZES | EXPERTS | {
        "num_experts": 4, "norm_topk_prob": False}, ()),
    ("DeepSeek-V2-Lite", "deepseek_v2", DEEPSEEK | SPLIT | {
        "q_lora_rank": None, "topk_method": "greedy",
        "rope_parameters": EQUAL_MSCALE},
     (("MSCALE = 0.707", "MSCALE = 1"),)),
    ("DeepSeek-V3", "deepseek_v3", DEEPSEEK | GROUPS | {
        "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}},
     (("rope_factor=40", "rope_factor=1"), ('"num_limited_groups": 2', '"num_limited_groups": 1'),
      ('"route_scale": 2.5', '"route_scale": 1'), ("sigmoid", "softmax"))),
    ("DeepSeek-V3, unscaled", "deepseek_v3",
     DEEPSEEK | GROUPS | {"rms_norm_eps": 0.003},
     (("norm(KV_RANK, 1e-6)", "norm(KV_RANK)"),)),
    ("gpt-oss", "gpt_oss", GPT_OSS | {"rope_parameters": GPT_OSS_YARN},
     (("SWIGLU_LIMIT = 1.5", "SWIGLU_LIMIT = 7"), ("WINDOW = 100", "WINDOW = 101"),
      ("truncate=False", "truncate=True"))),
)
# Models, each with the keys that torchtitan cannot express.
REFUSED = (
    ("Mistral with windows", "mistral", SIZES | {"sliding_window": 100},
     ("sliding_window",)),
    ("Qwen2", "qwen2", NO_HEAD_DIM, ("qkv_bias",)),
    ("Mixtral", "mixtral", SIZES | {
        "num_local_experts": 4, "num_experts_per_tok": 2}, ("qk_norm",)),
    ("Qwen2-MoE", "qwen2_moe", NO_HEAD_DIM | EXPERTS | {
        "num_experts": 4, "shared_expert_intermediate_size": 48},
     ("qkv_bias", "shared_expert_ffn", "shared_expert_gate")),
    ("GLM-4.5", "glm4_moe", SIZES | EXPERTS | {
        "n_routed_experts": 8, "n_shared_experts": 1, "attention_bias": True,
        "first_k_dense_replace": 1, "use_qk_norm": True},
     ("qkv_bias", "partial_rotary_factor", "router", "shared_expert_ffn")),
    ("OLMo 2", "olmo2", NO_HEAD_DIM, ("qk_norm_all_heads", "norm_placement")),
    ("Nemotron", "nemotron", {
        **{k: v for k, v in SIZES.items() if k != "rms_norm_eps"}},
     ("norm_zero_centered", "gated", "partial_rotary_factor")),
    ("Qwen3 with YaRN", "qwen3", SIZES | {"rope_parameters": YARN},
     ("rope_scaling",)),
    ("Llama with positions divided", "llama", SIZES | {"rope_parameters": {
        "rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
     ("rope_scaling",)),
    ("DeepSeek-V3, YaRN alone", "deepseek_v3",
     DEEPSEEK | GROUPS | {"rope_parameters": YARN}, ("rope_scaling.mscale",)),
    ("Qwen3-MoE with a loss", "qwen3_moe", SIZES | EXPERTS | {
        "num_experts": 4, "norm_topk_prob": True,
        "router_aux_loss_coef": 0.001}, ("router_aux_loss_coef",)),
)
passed = failed = 0


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAILED:", what, file=sys.stderr)


class InFloat32(TorchFunctionMode):
    """Computes experts in float32; torchtitan casts them for a kernel."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.bfloat16:
            return args[0]
        return function(*args, **(kwargs or {}))


def built(folder, options, text):
    """Returns the model that ConfigManager creates from --module, and its
    adapter."""
    (folder / "longhaul_model.py").write_text(text)
    sys.modules.pop("longhaul_model", None)
    importlib.invalidate_caches()
    sys.dont_write_bytecode = True
    config = ConfigManager().parse_args(options)
    spec = config.model_spec
    model_config = spec.model
    model_config.update_from_config(config=config)
    model = model_config.build().eval()
    return model, spec.state_dict_adapter(model_config, None)


def forward(model, tokens):
    positions = torch.arange(SEQUENCE)[None]
    with InFloat32():
        return model(tokens, positions=positions,
                     attention_masks=model.get_attention_masks(positions))


def hub_names(theirs):
    """Renames weights like files on the hub, where each expert has its own
    tensors."""
    out = {}
    for name, value in theirs.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            prefix = name.removesuffix("gate_up_proj")
            for i, both in enumerate(value):
                for kind, one in zip(("gate", "up"), both.chunk(2)):
                    out[f"{prefix}{i}.{kind}_proj.weight"] = one
        elif name.endswith("experts.down_proj"):
            prefix = name.removesuffix("down_proj")
            for i, one in enumerate(value):
                out[f"{prefix}{i}.down_proj.weight"] = one
        else:
            out[name] = value
    return out


def gpt_oss_names(theirs, adapter):
    """Renames weights: torchtitan 0.3.0's adapter uses other names for experts
    than its model, and reads quantised files, in which matrices are
    transposed."""
    names = {"mlp1_weight": "mlp1_weight_EGD", "mlp1_bias": "mlp1_bias_EG",
             "mlp2_weight": "mlp2_weight_EDF", "mlp2_bias": "mlp2_bias_ED"}
    weights = adapter.from_hf({
        name + "_blocks" * name.endswith(("gate_up_proj", "down_proj")):
        value.mT if name.endswith(("gate_up_proj", "down_proj")) else value
        for name, value in theirs.state_dict().items()})
    return {".".join([*name.split(".")[:-1], names.get(
        name.split(".")[-1], name.split(".")[-1])]): value
        for name, value in weights.items()}


def logits_of(folder, options, text, theirs, tokens):
    """Returns the logits, or the reason why the model lacks a parameter."""
    model, adapter = built(folder, options, text)
    if theirs.config.model_type == "gpt_oss":
        weights = gpt_oss_names(theirs, adapter)
    else:
        weights = adapter.from_hf(hub_names(theirs))
    try:
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        return str(error)
    return forward(model, tokens)


def exported(folder, *more):
    """Returns the options as words, and the module."""
    text = longhaul(PROGRAM, folder, "export", "plan.json", "--to", "torchtitan",
                    *more)
    options = [word for line in text.splitlines() if not line.startswith("#")
               for word in line.split()]
    return options, longhaul(PROGRAM, folder, "export", "plan.json", "--to",
                             "torchtitan-model", *more)


def distance(got, want):
    return got if isinstance(got, str) else (got - want).abs().max().item()


def check_model(folder, name, kind, config, changes):
    config, theirs, tokens = reference(kind, config)
    want = theirs(tokens).logits
    plan(PROGRAM, folder, config, "torchtitan")
    options, text = exported(folder)
    off = distance(logits_of(folder, options, text, theirs, tokens), want)
    check(not isinstance(off, str) and off < TOLERANCE, f"{name}: {off} off")
    print(f"{name}: {off} off, of {want.abs().max().item():.3g}")
    for old, new in changes:
        check(text.count(old) == 1, f"{name}: no {old}")
        off = distance(logits_of(folder, options, text.replace(old, new), theirs,
                                 tokens), want)
        print(f"  with {new}: {off}")
        check(isinstance(off, str) or off > 10 * TOLERANCE,
              f"{name}: {off} off with {new}")


def check_refused(folder, name, kind, config, keys):
    config, _, tokens = reference(kind, config)
    plan(PROGRAM, folder, config, "torchtitan")
    try:
        exported(folder)
        check(False, f"{name}: is exported")
    except ValueError as error:
        for key in keys:
            check(key in str(error), f"{name}: no {key} in {error}")
        print(f"{name}: {error}", end="")
    options, text = exported(folder, "--allow-inexact")
    for key in keys:
        check(f"# Not the model's: {key}" in text, f"{name}: no {key} in {text}")
    model, _ = built(folder, options, text)
    model.init_states()
    check(forward(model, tokens).isfinite().all(), f"{name}: another runs")


logging.disable(logging.WARNING)
FlexAttention._compiled_flex_attn = staticmethod(flex_attention)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory(prefix="longhaul-titan-") as temp, \
        torch.no_grad():
    sys.path.insert(0, temp)
    for cases, do in ((MODELS, check_model), (REFUSED, check_refused)):
        for case in cases:
            if len(sys.argv) == 2 or case[0] in sys.argv[2:]:
                do(pathlib.Path(temp), *case)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
