#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul import --from deepspeed and --from nemo: DeepSpeed's JSON, YAML of
NeMo and Megatron-Bridge as jobs."""
import json
import re

from harness import ROOT, case, check, finish, json_case, read, test, write

DEEPSPEED = str(ROOT / "tests/data/deepspeed/ds_config.json")
NEMO = str(ROOT / "tests/data/nemo/gpt.yaml")
BRIDGE = str(ROOT / "tests/data/nemo/bridge_run_config.yaml")
SMALL = ["--model", "llama3-8b", "--sequence", "4096"]
# One node of eight GPUs.
NODE = ["--nodes", "1"]


def imported(program, file, *options):
    """Returns the job of a file, or of a value that is written as JSON."""
    if not isinstance(file, str):
        write("conf", json.dumps(file, indent=1))
        file = "conf"
    return json_case("import", ["import", "--from", program, file, "-q",
                                *options])


def refused(program, file, why, *options):
    if not isinstance(file, str):
        write("conf", json.dumps(file, indent=1))
    elif "\n" in file:
        write("conf", file)
    else:
        write("conf", read(file))
    case(f"refused: {why}", ["import", "--from", program, "conf", *options], 1,
         err=why)


def has(job, *lines):
    for line in lines:
        check(re.search(f"^ *{line}( |$)", job["job"], re.M),
              f"{line} in\n{job['job']}")


def lacks(job, *lines):
    for line in lines:
        check(not re.search(f"^ *{line}( |$)", job["job"], re.M),
              f"no {line} in\n{job['job']}")


def noted(job, *notes):
    for note in notes:
        check(any(re.search(note, found) for found in job["noted"]),
              f"{note} in {job['noted']}")


@test
def deepspeed_becomes_a_job():
    job = imported("deepspeed", DEEPSPEED, *SMALL, "--nodes", "2")
    has(job, "model: llama3-8b", "global_batch: 256", "sequence: 4096",
        "precision: bf16", "zero: 1", "recompute: full", "preset: deepspeed",
        "gradients: fp32", "reduce: bf16", "pipeline: 4", "tensor: 1",
        "data: 4", "micro_batch: 2", r"layers: \[8, 8, 8, 8\]",
        "schedule: 1f1b", "outermost: pipeline")
    noted(job, "^zero_optimization.reduce_bucket_size, "
               "zero_optimization.allgather_bucket_size: ZeRO 2 and 3",
          "^not among DeepSpeed's keys, .*: pipeline.pipe_width$",
          "^optimizer.type: Lion is modelled as adam",
          "^pipeline.partition: layers are modelled as evenly divided")
    check(job["ignored"][:3] == ["steps_per_print", "gradient_clipping",
                                 "optimizer.params"], job["ignored"])
    job = imported("deepspeed", DEEPSPEED, "--model", "llama3-70b",
                   "--sequence", "4096", "--nodes", "2")
    has(job, "model: llama3-70b", r"layers: \[20, 20, 20, 20\]")


@test
def batch_sizes_follow_from_each_other():
    # Follows _set_batch_related_parameters() of deepspeed/runtime/config.py.
    for keys, micro, batch in (
            ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2},
             2, 64),
            ({"train_batch_size": 64, "gradient_accumulation_steps": 2}, 4, 64),
            ({"train_micro_batch_size_per_gpu": 2,
              "gradient_accumulation_steps": 3}, 2, 48),
            ({"train_batch_size": 32}, 4, 32),
            ({"train_micro_batch_size_per_gpu": 4}, 4, 32)):
        job = imported("deepspeed", {**keys, "bf16": {"enabled": True}},
                       *SMALL, *NODE)
        has(job, f"micro_batch: {micro}", f"global_batch: {batch}", "data: 8")
    # All three give the number of GPUs.
    job = imported("deepspeed", {"train_batch_size": 64,
                                 "train_micro_batch_size_per_gpu": 2,
                                 "gradient_accumulation_steps": 2,
                                 "fp16": {"enabled": True}}, *SMALL)
    has(job, "data: 16", "precision: fp16", "- {name: west, nodes: 2}")
    job = imported("deepspeed", {"train_batch_size": "auto",
                                 "train_micro_batch_size_per_gpu": "auto",
                                 "bf16": {"enabled": "auto"}}, *SMALL, *NODE)
    has(job, "micro_batch: 8", "global_batch: 64", "precision: bf16")
    noted(job, "^train_batch_size, train_micro_batch_size_per_gpu, "
               "bf16.enabled: auto, set by the training script",
          "^bf16.enabled: the training script selects the precision",
          "^train_micro_batch_size_per_gpu: is not given; 8 sequences")
    job = imported("deepspeed", {"train_batch_size": 64,
                                 "bf16": {"enabled": False},
                                 "fp16": {"enabled": "auto"}}, *SMALL, *NODE)
    has(job, "precision: fp16")
    noted(job, "^fp16.enabled: the training script selects .*; fp16 is ")


@test
def deepspeed_is_refused_with_line_and_key():
    plain = {"train_batch_size": 64, "bf16": {"enabled": True}}
    zero = "zero_optimization"
    for keys, why in (
            ({zero: {"offload_optimizer": {"device": "cpu"}}},
             f"^longhaul: conf:8: {zero}.offload_optimizer.device: longhaul "
             "does not model .* host memory"),
            ({zero: {"stage": 4}},
             f"^longhaul: conf:7: {zero}.stage: '4' is not a whole number"),
            ({zero: {"zero_quantized_gradients": True}},
             f"^longhaul: conf:7: {zero}.zero_quantized_gradients: longhaul "
             "does not model compressed"),
            ({"optimizer": {"type": "OneBitAdam"}},
             "^longhaul: conf:7: optimizer.type: .* compressed gradients"),
            ({zero: {"stage": 2}, "pipeline": {"stages": 4}},
             f"^longhaul: conf:7: {zero}.stage: DeepSpeed does not run"),
            ({"fp16": {"enabled": True}},
             "^longhaul: conf:7: fp16.enabled: cannot be combined"),
            ({"pipeline": {"stages": 3}},
             "^longhaul: conf: 8 GPUs are not a multiple"),
            ({"train_batch_size": 12},
             "^longhaul: conf:2: train_batch_size: 12 is not a multiple of "
             "gradient_accumulation_steps 1 x data parallelism 8"),
            ({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2},
             "^longhaul: conf:2: train_batch_size: 12 is not a multiple of "
             "train_micro_batch_size_per_gpu 2 x data parallelism 8"),
            ({"tensor_parallel": {"autotp_size": 3}},
             "^longhaul: conf:7: tensor_parallel.autotp_size: the 32 heads"),
            ({"elasticity": {"enabled": True}},
             "^longhaul: conf:7: elasticity.enabled: the batch depends")):
        refused("deepspeed", {**plain, **keys}, why, *SMALL, *NODE)
    # A value without effect does not cause an error.
    job = imported("deepspeed", {**plain, zero: {
        "stage": 3, "offload_optimizer": {"device": "none"},
        "zero_quantized_gradients": False}}, *SMALL, *NODE)
    has(job, "zero: 3")
    # A section without keys has DeepSpeed's defaults.
    job = imported("deepspeed", {**plain, zero: {}}, *SMALL, *NODE)
    has(job, "zero: 0")
    write("conf", json.dumps(plain))
    for options, why in ((SMALL[:2], "requires --sequence"),
                         (SMALL[2:], "requires --model"),
                         ([*SMALL, "--schedule", "zb-h1"],
                          "--schedule has no effect with --from deepspeed")):
        case(why, ["import", "--from", "deepspeed", "conf", *NODE, *options], 2,
             err=why)


@test
def nemo_becomes_a_job():
    job = imported("nemo", NEMO)
    has(job, "layers: 16", "hidden: 2048", "ffn: 8192", "heads: 16",
        "kv_heads: 4", "vocab: 50257", "sequence: 2048", "global_batch: 64",
        "precision: bf16", "zero: 1", "recompute: full", "gradients: bf16",
        "tensor: 2", "pipeline: 2", "data: 4", "micro_batch: 2",
        "chunks_per_device: 4", "rope_theta: 500000", "norm_epsilon: 1e-6",
        "- {name: west, nodes: 2}", "framework: megatron")
    noted(job, "^model.override_vocab_size: is not given; 50257 tokens are "
               "modelled, from model.tokenizer.type",
          "^model.activations_checkpoint_num_layers: each layer is modelled",
          "^not among NeMo's or Megatron-Bridge's keys, .*: model.own_key$",
          "^model.optim.overlap_param_sync: is not set")
    check("model.seed" in job["ignored"] and "exp_manager" in job["ignored"]
          and job["ignored"].count("trainer") == 1, job["ignored"])
    # Given machines replace those of the file.
    job = imported("nemo", NEMO, "--nodes", "4")
    has(job, "data: 8")
    noted(job, "^trainer.num_nodes: 16 GPUs are replaced by the 32 of the ")
    job = imported("nemo", NEMO, "--model", "llama3-8b")
    has(job, "model: llama3-8b", "tensor: 2")
    noted(job, "^model.num_layers: is replaced by the model that --model names")


@test
def nemo_keys_are_converted():
    text, fused = read(NEMO), "activation functions are modelled as fused GELU"
    quick = "is imported as quick GELU, which has the same cost"
    for key, lines, found, note in (
            ("activation", "activation: squared-relu",
             ('activation: "relu2"', "gated: false"), f"activation: {fused}"),
            ("activation", "activation: fast-geglu",
             ('activation: "quick_gelu"',), f"activation: fast-geglu {quick}"),
            ("activation", "activation_func: {_target_: a.squared_relu}",
             ('activation: "relu2"', "gated: false"),
             f"activation_func._target_: {fused}"),
            ("activation", "gated_linear_unit: true\n"
             "  activation_func: {_target_: a.gelu}",
             ('activation: "quick_gelu"',),
             f"activation_func._target_: gelu {quick}"),
            ("normalization", "normalization: layernorm1p",
             ('norm: "layer"', "norm_zero_centered: true"), None),
            ("position_embedding_type", "position_embedding_type: alibi", (),
             "position_embedding_type: attention is modelled without position "
             "biases"),
            ("transformer_engine", "transformer_engine: False",
             ("attention: unfused",), None),
            ("fp8", "fp8: True\n  fp8_dot_product_attention: True",
             ("fp8: matmul",), "fp8_dot_product_attention: attention is "
             "modelled in the compute precision"),
            ("fp8", "fp8: True", ("fp8: matmul",),
             "fp8: weights are modelled as stored in 8 bits"),
            ("mcore_gpt", "fsdp: True\n  fsdp_sharding_strategy: grad",
             ("zero: 2",), None),
            ("mcore_gpt", "fsdp: True", ("zero: 3",), None)):
        changed = re.sub(rf"^  {key}: .*$", f"  {lines}", text, flags=re.M)
        write("conf", changed)
        job = imported("nemo", "conf")
        has(job, *found)
        noted(job, *([f"^model.{note}"] if note else []))
    for old, new, line in (
            ("precision: bf16", "precision: 16-mixed", "precision: fp16"),
            ("name: mcore_distributed_optim", "name: adamw", "zero: 0")):
        write("conf", text.replace(old, new))
        has(imported("nemo", "conf"), line)


@test
def nemo_is_refused_with_line_and_key():
    text = read(NEMO)
    lines = text.splitlines()

    def line_of(key):
        return 1 + next(i for i, line in enumerate(lines)
                        if line.strip().startswith(key + ":"))

    for key, value, why in (
            ("micro_batch_size", "x", "'x' is not a whole number"),
            ("hidden_size", "${base.width}", "'${base.width}' refers to a "
             "value that is not in this file"),
            ("num_layers", "${.num_layers}", "'${.num_layers}' refers to a "
             "value that is not in this file"),
            ("num_layers", "${negate:16}", "'${negate:16}' refers to a "
             "value that is not in this file"),
            ("activation", "reglu", "'reglu' is not one of gelu"),
            ("normalization", "batchnorm", "'batchnorm' is not one of layernorm"),
            ("num_query_groups", "3", "the 16 heads are not divisible by 3"),
            ("sequence_parallel", "maybe", "must be true or false"),
            ("global_batch_size", "6", "6 is not a multiple of "
             "model.micro_batch_size 2 x data parallelism 4")):
        changed = re.sub(rf"^  {key}: .*$", f"  {key}: {value}", text,
                         flags=re.M)
        check(changed != text, key)
        refused("nemo", changed,
                f"^longhaul: conf:{line_of(key)}: model.{key}: "
                + why.replace("${", r"\$\{").replace("}'", r"\}'"))
    refused("nemo", text.replace("  micro_batch_size: 2\n", ""),
            "^longhaul: conf: model.micro_batch_size: is missing")
    refused("nemo", text + "  name: megatron_falcon_gpt\n  mcore_customization_"
            "config: {parallel_attention: True}\n",
            f"^longhaul: conf:{len(lines) + 1}: model.name: 'megatron_falcon_gpt"
            "' has attention and MLP in parallel")
    refused("nemo", text + "  encoder: {num_layers: 2}\n",
            f"^longhaul: conf:{len(lines) + 1}: model.encoder.num_layers: "
            "longhaul imports decoders only")
    refused("nemo", text + "  _target_: megatron.bridge.T5Provider\n",
            f"^longhaul: conf:{len(lines) + 1}: model._target_: 'megatron."
            "bridge.T5Provider' is another kind of model; longhaul imports ")
    refused("nemo", text + "  pipeline_model_parallel_layout: [[a], b]\n",
            f"^longhaul: conf:{len(lines) + 1}: model.pipeline_model_parallel_"
            r"layout\[0\]: must be a value")
    refused("nemo", text + "  fsdp: True\n  fsdp_sharding_strategy: [grad]\n",
            f"^longhaul: conf:{len(lines) + 2}: model.fsdp_sharding_strategy: "
            "must be a value")
    refused("nemo", text.replace("precision: bf16", "precision: 32"),
            "^longhaul: conf: trainer.precision: h100-sxm has no preset")


@test
def bridge_becomes_a_job():
    job = imported("nemo", BRIDGE, "--nodes", "2")
    has(job, "model: mixtral-8x7b", "global_batch: 128", "sequence: 4096",
        "precision: bf16", "zero: 1", "expert: 8", "pipeline: 2", "data: 8",
        "micro_batch: 1", "balance_loss: 0.03", r"recompute: \[moe_act\]",
        "reduce: bf16")
    lacks(job, "attention: unfused", "sequence_parallel: false")
    check(not any("not among" in note for note in job["noted"]), job["noted"])
    # Overrides of a recipe have no model.
    overrides = ("model: {seq_length: 4096, tensor_model_parallel_size: 2}\n"
                 "train: {global_batch_size: 64, micro_batch_size: 1}\n")
    refused("nemo", overrides, "^longhaul: conf: model.num_layers: is missing",
            *NODE)
    write("conf", overrides)
    job = imported("nemo", "conf", "--model", "llama3-8b", *NODE)
    has(job, "model: llama3-8b", "tensor: 2", "global_batch: 64",
        "precision: bf16")
    noted(job, "^mixed_precision: is not given; bf16 is modelled")
    refused("nemo", overrides.replace("micro_batch_size: 1", "train_iters: 1"),
            "^longhaul: conf: train.micro_batch_size: is missing", *NODE,
            "--model", "llama3-8b")
    refused("nemo", overrides + "peft: {dim: 8}\n",
            "^longhaul: conf:3: peft.dim: longhaul does not model adapters",
            *NODE, "--model", "llama3-8b")


@test
def plans_start_from_these_files():
    output = json_case("plan", ["plan", "--from", "nemo", NEMO, "--effort", "1",
                                "-q"])
    check(output["today"]["iteration_s"] > 0, output["today"])


finish()
