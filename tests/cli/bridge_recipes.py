# SPDX-License-Identifier: Apache-2.0
"""Compares a Megatron-Bridge recipe with the Megatron-LM arguments of the same plan.

differences(recipe, arguments) returns a line for each value that differs.
Bridge's classes are stand-ins with the fields of 0.3.1
(tests/data/megatron_bridge/fields.json); they reject all other fields. The
meaning of arguments is reimplemented from megatron/training/arguments.py and
training.py (core 0.16.1). Shares no code with longhaul.
"""
import json
import math
import pathlib
import sys
import types

FIELDS = json.loads((pathlib.Path(__file__).parent.parent / "data" /
                     "megatron_bridge" / "fields.json").read_text())["classes"]
CORE = FIELDS["TransformerConfig"] + FIELDS["ModelParallelConfig"]
GPT = CORE + FIELDS["GPTModelProvider"]
OBJECTS = {
    "megatron.bridge.models.gpt_provider": {"GPTModelProvider": GPT},
    "megatron.bridge.models.mla_provider": {
        "MLAModelProvider": GPT + FIELDS["MLATransformerConfig"]},
    "megatron.bridge.training.mixed_precision": {
        "MixedPrecisionConfig": FIELDS["MixedPrecisionConfig"]},
    "megatron.bridge.training.config": {
        "GPTDatasetConfig": FIELDS["GPTDatasetConfig"] +
        FIELDS["BlendedMegatronDatasetConfig"] + FIELDS["DataloaderConfig"],
        **{name: FIELDS[name] for name in (
            "CheckpointConfig", "ConfigContainer", "DistributedInitConfig",
            "DistributedDataParallelConfig", "LoggerConfig", "OptimizerConfig",
            "RNGConfig", "SchedulerConfig", "TokenizerConfig",
            "TrainingConfig")}},
}
# Fields of ConfigContainer that a plan determines.
PARTS = ("model", "train", "optimizer", "ddp", "dist", "dataset", "checkpoint")
NOT_PLANNED = {
    "train": {"train_iters", "eval_iters"},
    "optimizer": {"optimizer", "lr", "min_lr", "weight_decay", "adam_beta2",
                  "clip_grad"},
    "dataset": {"random_seed", "reset_attention_mask", "reset_position_ids",
                "eod_mask_loss", "blend", "split", "dataloader_type"}}


class StandIn:
    fields = ()

    def __init__(self, **given):
        wrong = set(given) - set(self.fields)
        if wrong:
            raise TypeError(f"{type(self).__name__} has no {sorted(wrong)}")
        self.given = given


class Named:
    """A value that is passed on: torch.bfloat16, F.silu."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        return f"{self.name}.{name}"


def modules():
    found = {"torch": Named("torch"), "torch.nn": types.ModuleType("torch.nn"),
             "torch.nn.functional": Named("F")}
    found["torch.nn"].functional = found["torch.nn.functional"]
    found["torch"].nn = found["torch.nn"]
    for path, classes in (
            *OBJECTS.items(),
            ("megatron.core.activations", None),
            ("megatron.core.fusions.fused_bias_geglu", None),
            ("megatron.core.models.gpt.gpt_layer_specs", None),
            ("megatron.core.transformer.enums", None)):
        for end in range(1, path.count(".") + 2):
            name = ".".join(path.split(".")[:end])
            found.setdefault(name, types.ModuleType(name))
        for name, fields in (classes or {}).items():
            setattr(found[path], name,
                    type(name, (StandIn,), {"fields": fields}))
    found["megatron.core.activations"].squared_relu = "squared_relu"
    found["megatron.core.fusions.fused_bias_geglu"].quick_gelu = "quick_gelu"
    found["megatron.core.transformer.enums"].AttnBackend = Named("AttnBackend")
    found["megatron.core.models.gpt.gpt_layer_specs"].get_gpt_decoder_block_spec \
        = lambda: None
    return found


def load(text):
    """Returns the ConfigContainer that a recipe makes."""
    space = {"__name__": "recipe"}
    stand_ins = modules()
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        exec(compile(text, "longhaul_recipe.py", "exec"), space)
        return space["pretrain_config"]()
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module:
                sys.modules[name] = module


def said(container):
    """Returns every planned field, after the precision setup of
    MixedPrecisionConfig.setup()."""
    given = {part: dict(container.given[part].given) for part in PARTS}
    for part, fields in NOT_PLANNED.items():
        given[part] = {k: v for k, v in given[part].items() if k not in fields}
    precision = container.given["mixed_precision"].given
    if "fp8_param_gather" in precision:
        precision = {**precision, "fp8_param": precision["fp8_param_gather"]}
    for part in "model", "optimizer", "ddp":
        fields = type(container.given[part]).fields
        given[part] |= {k: v for k, v in precision.items() if k in fields}
    return {f"{part}.{k}": v for part in PARTS for k, v in given[part].items()}


def value(words):
    if not words:
        return True
    if len(words) > 1:
        return list(words)
    word = words[0]
    if word.startswith("("):
        return eval(word)  # pylint: disable=eval-used # "([1]*3+[0]*5)"
    for kind in int, float:
        try:
            return kind(word)
        except ValueError:
            pass
    return word


def meant(a):
    """Returns Megatron-LM's training settings, by Bridge's names."""
    args = {name.replace("-", "_"): value(words) for name, words in a.items()}
    bf16, fp16 = "bf16" in args, "fp16" in args
    # validate_args()
    args["params_dtype"] = ("torch.bfloat16" if bf16 else "torch.float16"
                            if fp16 else "torch.float32")
    args["pipeline_dtype"] = args["params_dtype"]
    args["grad_reduce_in_fp32"] = (
        bf16 and "grad_reduce_in_bf16" not in args or
        "accumulate_allreduce_grads_in_fp32" in args)
    if not bf16 and not fp16:
        args["fp32"] = True
    args["check_for_nan_in_grad"] = not fp16
    pipeline = args["pipeline_model_parallel_size"]
    stages = args.get("pipeline_model_parallel_layout", "").count("|") + 1
    if pipeline > 1 and stages > pipeline:
        args["virtual_pipeline_model_parallel_size"] = stages // pipeline
        if "no_overlap_p2p_communication" not in args:
            args["overlap_p2p_comm"], args["batch_p2p_comm"] = True, False
        if "overlap_param_gather" in args:
            args["align_param_gather"] = True
    # core_transformer_config_from_args(), get_gpt_decoder_block_spec()
    gated, biased = "swiglu" in args, "disable_bias_linear" not in args
    if gated:
        args |= {"activation_func": "F.silu", "gated_linear_unit": True}
    if "squared_relu" in args:
        args["activation_func"] = "squared_relu"
    if "quick_geglu" in args:
        args |= {"activation_func": "quick_gelu", "gated_linear_unit": True}
    if gated or biased and "no_bias_gelu_fusion" not in args:
        args["bias_activation_fusion"] = True
    args |= {"bias_dropout_fusion": True, "persist_layer_norm": True}
    if args["position_embedding_type"] == "rope":
        args["apply_rope_fusion"] = True
    if not biased:
        args["add_bias_linear"] = False
    if "untie_embeddings_and_output_weights" in args:
        args["share_embeddings_and_output_weights"] = False
    if "norm_epsilon" in args:
        args["layernorm_epsilon"] = args["norm_epsilon"]
    if "apply_layernorm_1p" in args:
        args["layernorm_zero_centered_gamma"] = True
    if "use_rope_scaling" in args:
        args["rope_scaling"] = True
    if "num_experts" in args:
        args["num_moe_experts"] = args["num_experts"]
    group = args.get("microbatch_group_size_per_virtual_pipeline_stage")
    if group:
        args["microbatch_group_size_per_vp_stage"] = group
    if "attention_backend" in args:
        args["attention_backend"] = f"AttnBackend.{args['attention_backend']}"
    if "window_size" in args:
        args["window_size"] = tuple(map(int, args["window_size"].split(",")))
    if isinstance(args.get("recompute_modules"), str):
        args["recompute_modules"] = [args["recompute_modules"]]
    if "fp8_format" in args:
        args |= {"fp8": args["fp8_format"], "fp8_recipe": "delayed",
                 "fp8_param": "fp8_param_gather" in args}
    # _vocab_size_with_padding()
    to = (args.get("make_vocab_size_divisible_by", 128) *
          args["tensor_model_parallel_size"])
    args["vocab_size"] = math.ceil(args["vocab_size"] / to) * to
    args.pop("make_vocab_size_divisible_by", None)
    expected = {"dataset.seq_length": args["seq_length"]}
    for part, fields in (
            ("model", GPT + FIELDS["MLATransformerConfig"]),
            ("train", FIELDS["TrainingConfig"]),
            ("optimizer", FIELDS["OptimizerConfig"]),
            ("ddp", FIELDS["DistributedDataParallelConfig"]),
            ("dist", FIELDS["DistributedInitConfig"]),
            ("checkpoint", FIELDS["CheckpointConfig"])):
        expected |= {f"{part}.{k}": v for k, v in args.items() if k in fields}
    return expected


def differences(recipe, arguments):
    container = load(recipe)
    has, wants = said(container), meant(arguments)
    sparse = "num-experts" in arguments or "multi-latent-attention" in arguments
    wrong = []
    if bool(has.pop("model.transformer_layer_spec", None)) != sparse:
        wrong.append("blocks of layers that differ")
    if type(container.given["model"]).__name__ != (
            "MLAModelProvider" if "multi-latent-attention" in arguments
            else "GPTModelProvider"):
        wrong.append("another class of model")
    if "rotary-scaling-factor" in arguments:
        # Fields without an argument of Megatron-LM, which has the defaults.
        for name, usual in (("original_max_position_embeddings", 4096),
                            ("beta_fast", 32), ("beta_slow", 1)):
            if has.pop(f"model.{name}", usual) != usual:
                wrong.append(f"{name} of YaRN")
    size = has.pop("ddp.bucket_size", None)
    if (size is None) != ("ddp-num-buckets" not in arguments):
        wrong.append("buckets")
    # NullTokenizer.vocab_size: "_vocab_size_without_eod + 1", which
    # training/setup.py requires to be at most the model's
    words = container.given["tokenizer"].given["vocab_size"] + 1
    if words != int(arguments["vocab-size"][0]):
        wrong.append(f"{words} words of the tokenizer")
    wrong += [f"{k}: {has.get(k)!r}, and Megatron-LM has {wants.get(k)!r}"
              for k in sorted(has.keys() | wants.keys())
              if has.get(k) != wants.get(k)]
    return wrong
