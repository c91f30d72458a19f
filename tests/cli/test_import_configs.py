#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul import: Megatron-LM's model_config.yaml as a job.

$LONGHAUL_MEGATRON names a checkout of Megatron-LM: then every model_config.yaml
of its functional tests is imported too, and the count printed.
"""
import collections
import json
import os
import pathlib
import re

from harness import (ROOT, case, check, finish, json_case, run, test, write)

CONFIGS = ROOT / "tests/data/megatron"
CHECKOUT = os.environ.get("LONGHAUL_MEGATRON")

# Keys that errors may name: each changes the model or the training.
REASONS = {
    "another kind of model":
        "--(decoder-num-layers|model-provider: longhaul supports only|img-h|"
        "flextron)",
    "sizes only in a checkpoint": "--use-checkpoint-args reads it from the",
    "another kind of training": "--export-kd-teacher-load",
    "the GPU lacks the precision": "--bf16: h100-sxm has no preset tflops",
    "not Megatron-LM's arguments": "(is not an argument|must be a map)",
    "YAML anchors": "anchors .* are not supported",
}


def imported(name, *options):
    return json_case(name, ["import", "--from", "megatron",
                            str(CONFIGS / f"{name}.yaml"), "-q",
                            *(options or ["--nodes", "2"])])


def has(job, *lines):
    for line in lines:
        check(re.search(f"^ *{line}( |$)", job["job"], re.M),
              f"{line} in\n{job['job']}")


def noted(job, *notes):
    for note in notes:
        check(any(re.search(note, found) for found in job["noted"]),
              f"{note} in {job['noted']}")


@test
def configurations_become_jobs():
    job = imported("dense")
    has(job, "layers: 16", "hidden: 512", "vocab: 50257", "tensor: 2",
        "pipeline: 2", "data: 4", "micro_batch: 2", "global_batch: 64",
        "precision: bf16", "positions: 1024")
    noted(job, "^--vocab-size: is not given; 50257 tokens .* from --vocab-file")
    check(job["ignored"][:3] == ["ENV_VARS", "TEST_TYPE", "METRICS"] and
          job["ignored"].count("log-interval") == 2 and
          "verify-integrity" in job["ignored"] and
          "data-cache-path" not in job["ignored"], job["ignored"])

    job = imported("experts")
    has(job, "layers: 6", "vocab: 32000", "experts: 16", "dense_layers: 2",
        "expert: 4", "expert_tensor: 1", "chunks_per_device: 2",
        r"recompute: \[layernorm, moe_act\]", r"layers: \[1, 2, 2, 1\]")
    noted(job, "^MODEL_ARGS_2: is not imported", "^--cuda-graph-modules: ")

    job = imported("inference")
    has(job, "layers: 24", "vocab: 131072", "data: 16")
    noted(job, "^MODE: is inference; training is modelled",
          "^--use-checkpoint-args: reads arguments from a checkpoint",
          "^--vocab-size: .* 131072 .* from --tokenizer-model",
          "^not among Megatron-LM's arguments .*: --temperature, --top_k, "
          "--prompts, --incoming-requests-per-sec$")

    job = imported("schedule", "--nodes", "32")
    has(job, "vocab: 256000", "global_batch: 1152", "data: 32")
    noted(job, "^--optimizer: muon is modelled as adam",
          "^--step-batch-size-schedule: the batch is modelled at its final")


@test
def hybrid_layers_become_a_pattern():
    job = imported("hybrid", "--nodes", "1")
    has(job, "layers: 8", 'layer_pattern: "M-M.-M-M/.-"', "mtp_layers: 2",
        "mamba_heads: 32", "mamba_head_dim: 32", "mamba_groups: 4",
        "mamba_state_dim: 64", "no_rope_interval: 1", r"layers: \[5, 3\]",
        "tensor: 2")
    check("--num-layers" in job["ignored"], job["ignored"])
    base = ("--hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
            "--micro-batch-size 1 --bf16 --position-embedding-type rope "
            "--num-layers 8 --transformer-impl transformer_engine ")
    for given, lines in (
            ("--experimental-attention-variant gdn --linear-attention-freq 4 "
             "--attention-output-gate --linear-num-value-heads 16",
             ("full_interval: 4", "linear_key_heads: 16", "attention_gate: true",
              "linear_value_heads: 16", "linear_conv_kernel: 4")),
            ("--multi-latent-attention --experimental-attention-variant dsa "
             "--dsa-indexer-n-heads 8 --dsa-indexer-head-dim 64 "
             "--dsa-indexer-topk 512",
             ("index_heads: 8", "index_head_dim: 64", "index_topk: 512")),
            ("--hybrid-override-pattern G*GEGEGE --num-experts 8 "
             "--moe-latent-size 256 --moe-ffn-hidden-size 512",
             ('layer_pattern: "G.GEGEGE"', "expert_latent: 256",
              "linear_value_heads: 32")),
            ("--hybrid-layer-pattern MM-MM-M*", ("mamba_heads: 32",))):
        write("args.txt", base + given)
        has(json_case(given, ["import", "--from", "megatron", "args.txt",
                              "--nodes", "1", "-q"]), *lines)
    write("args.txt", base + "--perform-rl-step")
    noted(json_case("rl", ["import", "--from", "megatron", "args.txt",
                           "--nodes", "1", "-q"]),
          "^--perform-rl-step: .* modelled from its samples on")
    for given, says in (
            ("--experimental-attention-variant gdn", "requires --linear-att"),
            ("--experimental-attention-variant gdn2", "does not support gdn2"),
            ("--experimental-attention-variant dsa", "requires --multi-latent"),
            ("--experimental-attention-variant gdn --linear-attention-freq "
             "([1]*4+[0]*4)", "only at equal intervals"),
            ("--hybrid-mlp-ratio 0.5", "give it as --hybrid-layer-pattern")):
        write("args.txt", base + given)
        case(given, ["import", "--from", "megatron", "args.txt", "--nodes", "1"],
             1, err=rf"args\.txt:1: .*{says}")


@test
def hybrid_models_are_planned_but_not_exported():
    for name in "dense", "hybrid":
        job = imported(name)
        write(f"{name}.yaml", job["job"])
        plan = json_case(name, ["plan", f"{name}.yaml", "--no-optimal",
                                "--effort", "20", "-q"])
        check(plan["accuracy"]["kind"].startswith(name), plan["accuracy"])
    write("plan.json", json.dumps(plan))
    for target in "megatron", "torchtitan-model":
        case(target, ["export", "plan.json", "--to", target], 1,
             err="cannot be given the model's .*layer_pattern")


@test
def arguments_on_a_line_mean_the_same():
    """Tests the arguments that Megatron-LM's script makes from the file."""
    yaml = (CONFIGS / "dense.yaml").read_text()
    lines = re.findall(r"^  (--[a-z0-9-]+): (.*)$", yaml, re.M)
    write("args.txt", "\n".join(name if value == "true" else f"{name} {value}"
                                for name, value in lines))
    words = json_case("words", ["import", "--from", "megatron", "args.txt",
                                "--nodes", "2", "-q"])
    config = imported("dense")
    for job in (words, config):
        job["job"] = job["job"].partition("longhaul: job/1")[2]
    check(words["job"] == config["job"] and words["noted"] == config["noted"],
          f"{words}{config}")


@test
def refusals_name_the_line_of_the_file():
    hybrid = (CONFIGS / "hybrid.yaml").read_text()
    for old, new, says in (
            ("M-M*-|M-M", "M-D*-|M-M", "latent and sparse attention \\('D'\\)"),
            ("M-M*-|M-M", "M-m*-|M-M", "'m' is no layer"),
            ("M-M*-|M-M", "M-|M*-|M-M", "has 3 stages, not a multiple of"),
            ("/*-/*-", "/*-/*", "modules after / must have the same"),
            ("/*-/*-", "", "--mtp-num-layers: requires the layers"),
            ("num-heads: 32", "num-heads: 30", "the 30 heads of Mamba layers"),
            ("num-groups: 4", "num-groups: 1", "the 1 groups of Mamba"),
            ("  --hybrid-layer", "  --num-virtual-stages-per-pipeline-rank: 2\n"
             "  --hybrid-layer", "its stages cannot be combined")):
        check(old in hybrid, old)
        write("h.yaml", hybrid.replace(old, new))
        case(new, ["import", "--from", "megatron", "h.yaml", "--nodes", "1"], 1,
             err=rf"h\.yaml:\d+: .*{says}")
    text = (CONFIGS / "dense.yaml").read_text()
    for old, new, says in (
            ("hidden-size: 512", "hidden-size: ${SIZE}",
             r"c\.yaml:6: '\$\{SIZE\}' needs shell expansion"),
            ("hidden-size: 512", "hidden-size: 500",
             r"c\.yaml:7: --num-attention-heads: 8 does not divide"),
            ("hidden-size: 512", "hidden-sise: 512",
             r"c\.yaml:6: .* did you mean --hidden-size"),
            ("hidden-size: 512", "hidden-size: {a: 1}",
             r"c\.yaml:6: MODEL_ARGS.--hidden-size: must be a value or a list"),
            ("true\n  --log", "maybe\n  --log", r"c\.yaml:13: 'maybe' is neither"),
            ("provider: gpt", "provider: mamba",
             r"c\.yaml:25: --model-provider: 'mamba' requires --hybrid-layer"),
            ("provider: gpt", "provider: bert",
             r"c\.yaml:25: --model-provider: longhaul supports only gpt"),
            ("--num-layers: 16\n", "--use-checkpoint-args: true\n",
             "--num-layers: is missing; --use-checkpoint-args reads it from the"),
            ("MODEL_ARGS:", "ARGS:", "key 'MODEL_ARGS' is missing"),
            ("  --bf16", "  bf16", r"c\.yaml:27: .*is not an argument of")):
        check(old in text, old)
        write("c.yaml", text.replace(old, new))
        case(new, ["import", "--from", "megatron", "c.yaml", "--nodes", "2"], 1,
             err=says)


@test
def vocabularies_follow_from_the_tokenizer():
    small = ("--num-layers 8 --hidden-size 1024 --num-attention-heads 16 "
             "--seq-length 2048 --micro-batch-size 1 --bf16 "
             "--position-embedding-type rope ")
    for given, size, why in (
            ("--tokenizer-model meta-llama/Llama-3.1-8B", 128256, "-model"),
            ("--tokenizer-model ${DIR}/Qwen3-8B", 151936, "-model"),
            ("--tokenizer-type Llama2Tokenizer --tokenizer-model $A/t.model",
             32000, "-type"),
            ("--tokenizer-type GPT2BPETokenizer", 50257, "-type"),
            ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model x/y",
             131072, "tokenizer is unknown"),
            ("", 131072, "tokenizer is unknown"),
            ("--vocab-size 1000 --tokenizer-model Qwen3", 1000, None)):
        write("args.txt", small + given)
        job = json_case(given, ["import", "--from", "megatron", "args.txt",
                                "--nodes", "1", "-q"])
        has(job, f"vocab: {size}")
        if why:
            noted(job, f"^--vocab-size: is not given; {size} tokens.*{why}")
        else:
            check(not any("is not given" in note for note in job["noted"]),
                  job["noted"])


def import_on_some_nodes(path):
    """The smallest number of nodes that fits; several do not divide."""
    for nodes in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        done = run("import", "--from", "megatron", path, "--nodes", str(nodes))
        if done.returncode == 0 or not re.search("GPUs|multiple|divisible",
                                                 done.stderr):
            break
    return done


@test
def megatrons_own_configurations_are_imported_or_rejected_with_a_reason():
    if not CHECKOUT:
        print("not counted: LONGHAUL_MEGATRON names no checkout of Megatron-LM")
        return
    folder = pathlib.Path(CHECKOUT) / "tests/functional_tests/test_cases"
    paths = sorted(folder.glob("**/model_config.yaml"))
    check(len(paths) > 100, f"{len(paths)} files in {folder}")
    families, good = collections.Counter(), collections.Counter()
    why = collections.Counter()
    for path in paths:
        family = path.relative_to(folder).parts[0]
        families[family] += 1
        done = import_on_some_nodes(str(path))
        if done.returncode == 0:
            good[family] += 1
            continue
        said = done.stderr.strip().split("\n")[-1]
        reason = next((reason for reason, pattern in REASONS.items()
                       if re.search(pattern, said)), None)
        check(reason, f"{path}: {said}")
        why[reason] += 1
    print(f"{sum(good.values())} of {len(paths)} model_config.yaml imported")
    for family, count in sorted(families.items()):
        print(f"  {family}: {good[family]} of {count}")
    for reason, count in why.most_common():
        print(f"  refused, {reason}: {count}")


finish()
