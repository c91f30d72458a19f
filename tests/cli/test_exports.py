#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports of plans and schedules for other programs."""
import json
import re

from harness import (ANY, ROOT, WORK, case, check, finish, makes, read, run,
                     test, write)
from input_files import SITES, loaded, pipeline, plan

ELASTIC = (ROOT / "examples/llama3-70b-elastic.yaml").read_text().replace(
    "outermost: data", "outermost: data, schedule: elastic, chunks_per_device: 2")
# Plan quality does not matter here, so the effort is low.
SOON = ["--no-optimal", "--search", "even"]


@makes("elastic.json")
def elastic():
    write("elastic.yaml", ELASTIC)
    case("an elastic plan", ["plan", "elastic.yaml", *SOON, "-o",
                             "elastic.json", "--show", "schedules"],
         out=r"schedule +elastic, .*Schedules on this layout", err=ANY)


# --- export ----------------------------------------------------------------------
@test
def pytorch_gets_whole_passes():
    plan()
    case("PyTorch", ["export", "plan.json", "--to", "pytorch", "-o", "x.csv"],
         out=r"written +x\.csv", err=ANY)
    check(":" not in read("x.csv"), "no parts for PyTorch")


@test
def pytorch_gets_sends():
    pipeline()
    case("with sends", ["export", "p.yaml", "-s", "1f1b", "--form",
                        "compute_comms"],
         out=r"\A0UNSHARD,0F0,.*0SEND_F0,.*0WAIT_REDUCE_GRAD\n")


@test
def unsupported_schedules_are_not_exported():
    """Only the plan's own schedule is exported; it is not replaced."""
    plan()
    case("a searched order", ["export", "plan.json", "--to", "megatron-bridge"], 1,
         err=r"Megatron-LM does not support schedule '.*'; .*interleaved-1f1b; "
             r"use longhaul plan --for megatron to search only supported plans")
    case("recomputation", ["export", "plan.json", "--to", "megatron"], 1,
         err=r"Megatron-LM cannot recompute only .*; use longhaul plan --for "
             r"megatron to search only supported plans")
    elastic()
    for target in ("megatron-bridge", "torchtitan"):
        case(f"groups in {target}", ["export", "elastic.json", "--to", target],
             1, err=r"does not support schedule 'elastic'")


@test
def megatron_gets_elastic_plans_without_its_own_sharding():
    elastic()
    text = case("groups in Megatron", ["export", "elastic.json", "--to",
                                       "megatron"], out=ANY).stdout
    check("\n# Passes: run by python -m longhaul.megatron --plan" in text and
          "\n# Sharding: by longhaul.megatron" in text and
          "--use-distributed-optimizer" not in text, text)
    llama = "model: llama3-70b"
    small = {"gpu: h100-sxm": "gpu: {name: lab, tflops: 990, memory_gib: 64, "
             "memory_gbps: 3350, efficiency: 0.5}"}
    for name, changes, why in (
            ("tied", {llama: "model: {name: tied, layers: 80, hidden: "
                      "8192, heads: 64, kv_heads: 8, ffn: 28672, vocab: 128256, "
                      "tied_embeddings: true}"}, "shards no tied embedding"),
            ("context", {"tensor: 8": "tensor: 4, context: 2"},
             "elastic plan over context parallelism"),
            ("experts", {**small, "tensor: 8": "tensor: 8, expert_tensor: 8",
                         llama: "model: {name: moe, layers: 80, hidden: 8192, "
                         "heads: 64, kv_heads: 8, vocab: 128256, experts: 2, "
                         "experts_per_token: 2, expert_ffn: 14336}"},
             "recomputes no operation 'activation' of single layers"),
            ("expert ranks", {"tensor: 8": "tensor: 8, expert: 2, expert_tensor: 8, "
                              "rank_order: pipeline",
                              llama: "model: {name: moe, layers: 40, hidden: 8192, "
                              "heads: 64, kv_heads: 8, vocab: 128256, experts: 2, "
                              "experts_per_token: 2, expert_ffn: 14336}"}, None),
            ("operations", small, None)):
        job = ELASTIC
        for old, new in changes.items():
            job = job.replace(old, new)
        write(f"{name}.yaml", job)
        case(f"a plan, {name}", ["plan", f"{name}.yaml", *SOON, "-o",
                                 f"{name}.json"], out=r"schedule +elastic", err=ANY)
        case(name, ["export", f"{name}.json", "--to", "megatron"], 1 if why else 0,
             **({"err": why} if why else {"out": ANY}))
    check("activation" in [one["operation"] for one in loaded(
        "operations.json")["elastic"]["recomputed"]], "an activation is recomputed")


@test
def torchtitan_gets_stages():
    write("titan.yaml", SITES.replace("zero: 1", "zero: 2") +
          "\nlayout: {tensor: 8, context: 1, pipeline: 4, micro_batch: 1, "
          "chunks_per_device: 2, schedule: zb-v}\n")
    case("a plan", ["plan", "titan.yaml", *SOON, "--for", "torchtitan", "-o",
                    "titan.json"], out=r"for +torchtitan \(0\.3\)", err=ANY)
    text = case("torchtitan", ["export", "titan.json", "--to", "torchtitan",
                               "--stages", "stages.json"],
                out=r"--parallelism.tensor_parallel_degree 8\n.*"
                    r"--training.global_batch_size 512\n.*"
                    r"activation-checkpoint:(none|full)\n\Z").stdout
    stages = loaded("stages.json")
    parts = stages["module_fqns_per_model_part"]
    check(sum(parts, []) ==
          ["tok_embeddings", *(f"layers.{i}" for i in range(80)), "norm",
           "lm_head"], "stages hold the model in order")
    check("module_fqns_per_model_part " +
          " ".join(",".join(part) for part in parts) + "\n" in text,
          "the option has the same")
    model = json.loads(re.search("for PYTHONPATH: (.*)", text)[1])
    check(model["name"] == loaded("titan.json")["job"]["model"] and
          model["layers"] == 80 and model["rope_theta"] == 500000, model)
    there = list(range(4))
    wave = "ZBVZeroBubble" in text
    check(stages["stage_ranks"] == there + (there[::-1] if wave else there),
          f"stages lie on a V or a loop: {stages['stage_ranks']}")


@test
def dualpipev_keeps_its_class():
    """PyTorch has the schedule: torchtitan gets its name, the CSV its pairs."""
    write("dual.yaml", SITES.replace("zero: 1", "zero: 2") +
          "\nlayout: {pipeline: 4, tensor: 8, context: 1, micro_batch: 1, "
          "chunks_per_device: 2, schedule: dualpipev}\n")
    case("a plan", ["plan", "dual.yaml", *SOON, "--for", "torchtitan", "-o",
                    "dual.json"], out="schedule +dualpipev, placement wave",
         err=ANY)
    case("torchtitan", ["export", "dual.json", "--to", "torchtitan"],
         out="--parallelism.pipeline_parallel_schedule DualPipeV\n")
    case("rows", ["export", "dual.json", "--to", "pytorch", "-o", "dual.csv"],
         out="written")
    check(")OVERLAP_F_B" in read("dual.csv"), "pairs are cells")


@test
def two_directions_are_planned_and_not_exported():
    """Two directions suit no other program."""
    write("two.yaml", SITES + "\nlayout: {pipeline: 4, schedule: dualpipe}\n")
    case("a plan", ["plan", "two.yaml", *SOON, "-o", "two.json"],
         out="schedule +dualpipe, placement bd", err=ANY)
    case("simulated", ["simulate", "two.json"], out="schedule +dualpipe")
    for program, why in (("megatron", "does not support two directions"),
                         ("torchtitan", "torchtitan"),
                         ("pytorch", "do not support two directions"),
                         ("chakra", "do not support plans with two")):
        case(program, ["export", "two.json", "--to", program, "-o", "out"], 1,
             err=why)
    for options in (["--for", "longhaul"], ["--pareto"]):
        case(f"{options}", ["plan", "two.yaml", *options], 1,
             err=r"two\.yaml: layout\.schedule: 'dualpipe' requires two "
                 r"directions \(placement bd\), which plans support only with "
                 r"layout\.framework: any")


@test
def options_without_effect_are_refused():
    write("none.json", "{}")
    for args, said in ((["--to", "megatron", "--form", "compute_comms"], "form"),
                       (["--to", "chrome", "--form", "compute_only"], "form"),
                       (["--to", "megatron", "-s", "a.csv"], "schedule"),
                       (["--to", "torchtitan", "--sub-blocks", "2"],
                        "sub-blocks"),
                       (["--bundle", "b", "--sub-blocks", "2"], "sub-blocks"),
                       (["--bundle", "b", "-s", "a.csv"], "schedule")):
        case(f"{said} for {args[1]}", ["export", "none.json", *args], 2,
             err=rf"--{said} has no effect with --to ")


@test
def a_pipeline_has_no_stages():
    pipeline()
    case("stages", ["export", "p.yaml", "--stages", "x.json"], 1,
         err=r"p\.yaml: a pipeline lacks the layers.*a plan is required")


@test
def megatron_gets_its_arguments():
    write("mega.yaml", SITES + "\nlayout: {pipeline: 4, tensor: 8, context: 1, "
                               "micro_batch: 1, framework: megatron}\n")
    case("a plan", ["plan", "mega.yaml", *SOON, "-o", "mega.json"],
         out=r"for +Megatron-LM \(core 0\.16\)", err=ANY)
    case("Megatron-LM", ["export", "mega.json", "--to", "megatron"],
         out=r"--num-layers 80\n--hidden-size 8192\n.*--num-query-groups 8\n.*"
             r"--tensor-model-parallel-size 8\n.*"
             r"--pipeline-model-parallel-layout Et\*\d+[^\n]*L\n")
    check(loaded("mega.json")["layout"]["schedule"] in
          ("1f1b", "interleaved-1f1b"), "a schedule of Megatron-LM's")


@test
def megatron_routes_tokens_as_the_model_does():
    """The vocabulary is not padded if it can be divided."""
    for model, tensor, found in (
            ("deepseek-v3", 2, r"\n--moe-router-score-function sigmoid\n"
             r"--moe-router-enable-expert-bias\n--moe-router-num-groups 8\n"
             r"--moe-router-group-topk 4\n--moe-router-topk-scaling-factor 2\.5"
             r"\n.*--vocab-size 129280\n(?!--make)"),
            ("qwen3-30b-a3b", 4, r"--moe-grouped-gemm\n--normalization.*"
             r"\n--vocab-size 151936\n--make-vocab-size-divisible-by 32\n"),
            ("gpt3-175b", 8, r"# Megatron-LM pads the vocabulary to 51200 "
             r"tokens, as the plan assumes\n--vocab-size 50257\n(?!--make)")):
        write("model.yaml", run("init", "-m", model, "-n", "64", "--sequence",
                                "2048").stdout +
              f"layout: {{framework: megatron, tensor: {tensor}, pipeline: 4, "
              "micro_batch: 1, context: 1, chunks_per_device: 1}\n")
        case(model, ["plan", "model.yaml", *SOON, "-q", "-o",
                     "model.json"], out=ANY)
        case(f"{model} exported", ["export", "model.json", "--to", "megatron"],
             out=found)


TINY = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": 1024, "intermediate_size": 512,
        "head_dim": 64, "rms_norm_eps": 1e-6}
MOE = {"moe_intermediate_size": 128, "num_experts_per_tok": 2}
MLA = {"model_type": "deepseek_v3", **TINY, **MOE, "q_lora_rank": 64,
       "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
       "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1,
       "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
YARN = {"rope_type": "yarn", "factor": 40, "mscale": 1, "mscale_all_dim": 0.7,
        "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": 4096}
LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
          "high_freq_factor": 4, "original_max_position_embeddings": 8192}


def exported(config, target="megatron", *more, training="", err=None):
    """Returns the export of a small model, or the error."""
    write("small/config.json", json.dumps(config))
    write("small.yaml", f"""
longhaul: job/1
model: small/config.json
training: {{global_batch: 8, sequence: 512{training}}}
cluster: {{gpu: h100-sxm, gpus_per_node: 8, datacenters: [{{name: a, nodes: 1}}],
  node_link: {{gbps: 3600, latency_us: 3}}, fabric: {{gbps: 400, latency_us: 8}}}}
layout: {{pipeline: 1, tensor: 1, context: 1, expert: 1, micro_batch: 1}}
""")
    case("a plan", ["plan", "small.yaml", *SOON, "--for",
                    target.split("-")[0], "-q", "-o", "small.json"], out=ANY)
    said = "not the model's" if "--allow-inexact" in more else None
    done = case(str(config), ["export", "small.json", "--to", target, *more],
                1 if err else 0, None if err else ANY, err or said)
    return done.stdout


@test
def megatron_is_given_the_whole_model():
    """Tests each key of a config.json that Megatron-LM's arguments can
    express."""
    (WORK / "small").mkdir(exist_ok=True)
    llama, moe = {"model_type": "llama", **TINY}, {**TINY, **MOE}
    for config, training, lines in (
            (llama, "", "--norm-epsilon 1e-06"),
            (llama | {"initializer_range": 0.006}, "",
             "--init-method-std 0.006"),
            ({**llama, "model_type": "nemotron", "norm_eps": 1e-6}, "",
             "--squared-relu\n--normalization LayerNorm\n"
             "--norm-epsilon 1e-06\n--apply-layernorm-1p"),
            ({**llama, "model_type": "nemotron"}, "", "--rotary-percent 0.5"),
            (llama | {"rope_theta": 5e5, "rope_scaling": LLAMA3}, "",
             "--rotary-base 500000\n--use-rope-scaling\n"
             "--rope-scaling-factor 8"),
            ({"model_type": "glm4_moe", **moe, "n_routed_experts": 4}, "",
             "--rotary-percent 0.5"),
            ({"model_type": "qwen3_moe", **moe, "num_experts": 4,
              "router_aux_loss_coef": 0.001}, "",
             "--moe-aux-loss-coeff 0.001"),
            ({"model_type": "qwen3_moe", **moe, "num_experts": 4,
              "router_aux_loss_coef": 0.001}, ", balance_loss: 0",
             "--moe-aux-loss-coeff 0"),
            ({"model_type": "mixtral", **moe, "num_local_experts": 4}, "",
             "--moe-aux-loss-coeff 0.01"),
            (MLA, "", "--rope-type yarn\n--rotary-scaling-factor 1\n"
             "--mscale 1\n--mscale-all-dim 0"),
            (MLA, "", "--moe-aux-loss-coeff 0.0001\n"
             "--moe-router-bias-update-rate 0.001"),
            (MLA | {"rope_scaling": YARN}, "", "--rope-type yarn\n"
             "--rotary-scaling-factor 40\n--mscale 1\n--mscale-all-dim 0.7")):
        text = exported(config, training=training)
        check(f"\n{lines}\n" in text, f"{lines} in {text}")


@test
def torchtitan_is_given_the_whole_model():
    """tests/peers/test_torchtitan_models.py runs these models. 2.5 is the scale
    of a config.json without one."""
    (WORK / "small").mkdir(exist_ok=True)
    yarn = YARN | {"mscale_all_dim": 1}
    gpt_oss = {"model_type": "gpt_oss", **TINY, "num_local_experts": 4,
               "num_experts_per_tok": 2, "sliding_window": 100,
               "layer_types": 2 * ["sliding_attention", "full_attention"],
               "rope_scaling": {"rope_type": "yarn", "factor": 32,
                                "beta_fast": 32, "beta_slow": 1,
                                "original_max_position_embeddings": 4096,
                                "truncate": False}}
    for config, lines in (
            (MLA | {"rope_scaling": yarn},
             ("Q_RANK = 64", "KV_RANK = 64", "NOPE_DIM = 32", "ROPE_DIM = 16",
              "VALUE_DIM = 32", "MSCALE = 1", "EXPERT_LAYERS = [*range(1, 4)]",
              "EXPERTS = 8", "EXPERT_FFN = 128", "SHARED_FFN = 128",
              '    "route_scale": 2.5, "num_expert_groups": 2, '
              '"num_limited_groups": 1,', "BALANCE_RATE = 0.001",
              "    rope_factor=40, beta_fast=32, beta_slow=1,",
              "    original_seq_len=4096, truncate=True,")),
            (gpt_oss,
             ("KV_HEADS = 4", "HEAD_DIM = 64", "WINDOW = 100",
              "WINDOW_LAYERS = [*range(0, 1), *range(2, 3)]",
              "EXPERT_LAYERS = [*range(0, 4)]", "EXPERT_FFN = 512",
              '    "top_k": 2, "score_func": "softmax", "route_norm": True,',
              "BALANCE_RATE = None", "SWIGLU_LIMIT = 7",
              "    original_seq_len=4096, truncate=False,"))):
        text = exported(config, "torchtitan-model")
        for line in lines:
            check(f"\n{line}\n" in text, f"{line} in {text}")


@test
def bridge_gets_uncompressed_queries():
    """Bridge's default differs from Megatron-LM's."""
    (WORK / "small").mkdir(exist_ok=True)
    text = exported(MLA | {"q_lora_rank": None}, "megatron-bridge")
    check("            q_lora_rank=None,\n" in text, text)


# Public reports of conversions that built another model: the report, the
# settings of config.json, the target, and the expected export or error.
REPORTS = (
    ("github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5097",
     {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 8.0}},
     (("megatron-bridge", "seq_len_interpolation_factor=8,"),
      ("megatron", None, "cannot be given the model's rope_scaling"))),
    ("github.com/swiss-ai/Megatron-LM/pull/85",
     {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3},
     (("megatron", "--use-rope-scaling\n--rope-scaling-factor 8\n"),
      ("megatron-bridge", "rope_scaling=True,"),
      ("torchtitan-model", 'theta=500000, scaling="llama",'))),
    ("github.com/THUDM/slime/issues/345",
     {"model_type": "qwen2", "tie_word_embeddings": True},
     (("megatron", "--add-qkv-bias\n--vocab-size"),)),
    ("github.com/alibaba/Pai-Megatron-Patch/issues/605",
     {"model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_theta": 1e6},
     (("megatron", "--norm-epsilon 1e-06\n"),
      ("megatron", "--rotary-base 1000000\n"),
      ("megatron", "--add-qkv-bias\n--untie-embeddings-and-output-weights\n"))),
    ("github.com/epfLLM/Megatron-LLM/issues/50",
     {"model_type": "llama", "vocab_size": 32016},
     (("megatron", "--vocab-size 32016\n"
       "--make-vocab-size-divisible-by 16\n"),)),
    ("github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5712",
     {"model_type": "gemma3_text", "head_dim": 16},
     (("megatron-bridge", None, "cannot be given the model's"),
      ("torchtitan-model", None, "cannot be given the model's"))),
)


@test
def conversions_that_were_reported_build_the_model():
    (WORK / "small").mkdir(exist_ok=True)
    for report, settings, results in REPORTS:
        for target, text, *error in results:
            done = exported({**TINY, **settings}, target,
                            err=error[0] if error else None)
            check(error or text in done, f"{report}: {text!r} in {done}")


@test
def settings_that_megatron_lacks_are_rejected():
    (WORK / "small").mkdir(exist_ok=True)
    llama = {"model_type": "llama", **TINY}
    linear = {"rope_type": "linear", "factor": 2}
    for config, bridge, key in (
            (llama | {"rope_scaling": linear}, True, "rope_scaling"),
            (MLA | {"rope_scaling": linear}, False, "rope_scaling"),
            (llama | {"rope_scaling": YARN}, False, "rope_scaling"),
            (llama | {"rope_scaling": LLAMA3 | {"factor": 32}}, True,
             "rope_scaling.factor"),
            (llama | {"rope_scaling": LLAMA3 | {"low_freq_factor": 2}}, False,
             "rope_scaling"),
            (llama | {"hidden_act": "gelu"}, False, "activation"),
            (llama | {"hidden_act": "relu"}, False,
             "small/config.json: hidden_act"),
            (llama | {"partial_rotary_factor": 0.5}, False,
             "small/config.json: partial_rotary_factor"),
            ({**llama, "model_type": "olmo2"}, False, "qk_norm_all_heads"),
            (MLA | {"rope_scaling": LLAMA3}, False, "rope_scaling"),
            (MLA | {"rope_scaling": YARN | {"beta_fast": 1}}, True,
             "rope_scaling"),
            (MLA | {"rope_scaling": YARN | {"attention_factor": 1}}, False,
             "rope_scaling"),
            (MLA | {"rms_norm_eps": 1e-5}, False, "norm_epsilon"),
            (MLA | {"norm_topk_prob": False}, False, "raw_shares"),
            (MLA | {"topk_group": 2}, False, "groups_per_token")):
        exported(config, err=rf"Megatron-LM cannot be given the model's {key}: "
                             r"[^\n]*; --allow-inexact exports")
        exported(config, "megatron-bridge", err=None if bridge else
                 rf"Megatron-Bridge cannot be given the model's {key}: ")
        told = json.loads(exported(config, "megatron", "--allow-inexact",
                                   "--json"))
        check(told["inexact"][0]["key"] == key, told)
        check(f"\n# Not the model's: {key} (" in told["text"], told)
    case("a bundle", ["export", "small.json", "--to", "megatron", "--bundle",
                      "inexact"], 1, err="cannot be given the model's")
    case("allowed", ["export", "small.json", "--to", "megatron", "--bundle",
                     "inexact", "--allow-inexact"], out="written", err=ANY)
    case("no effect", ["export", "small.json", "--allow-inexact"], 2,
         err="--allow-inexact has no effect with --to pytorch; omit it")


@test
def an_export_with_sites_has_the_ranks_of_each_site():
    """The job fixes the datacenter of each stage and replica."""
    (WORK / "sited.yaml").write_text(SITES + """
layout:
  schedule: interleaved-1f1b
  tensor: 8
  sites:
    - replicas: 8
      pipeline: [{datacenter: east, stages: 2}, {datacenter: west, stages: 2}]
""")
    case("a plan with sites", ["plan", "sited.yaml", "-o", "sited.json",
                               "--html", "sited.html", "--for", "megatron"],
         out=r"datacenters +pipeline east>west \(2, 2 stages\)\n", err=ANY)
    check("pipeline east>west (2, 2 stages)" in
          read("sited.html").replace("&gt;", ">").replace("\\u003e", ">"),
          "the report says where stages are")
    case("where ranks are", ["export", "sited.json", "--to", "megatron"],
         out=r"# Ranks 0 to 127: east\n# Ranks 128 to 255: west\n")


# --- PipeMesh's plans ------------------------------------------------------------
@test
def elastic_plans_that_contradict_themselves_are_refused():
    elastic()
    for key, value, why in (
            ("enqueue", [60, 5], r"elastic\.enqueue: the groups have 65 micro"
                                 r"batches, but the plan has 64"),
            ("dequeue", [], r"elastic\.dequeue: has 0 entries; at least 1"),
            ("parameters", 1.5, r"1\.5 is out of range"),
            ("parameters", 1, r"a share of 1 is .* above 'gradients'")):
        broken = loaded("elastic.json")
        broken["elastic"][key] = value
        write("broken.json", json.dumps(broken))
        case(f"{key} {value}", ["simulate", "broken.json"], 1, err=why)


@test
def torchtitan_numbers_ranks_another_way():
    write("outer.yaml", SITES.replace("zero: 1", "zero: 2") +
          "\nlayout: {pipeline: 4, data: 8, tensor: 8, outermost: data}\n")
    case("torchtitan cannot", ["plan", "outer.yaml", "--for", "torchtitan"], 1,
         err=r"use layout\.rank_order: pipeline")
    write("inner.yaml", SITES.replace("zero: 1", "zero: 2") +
          "\nlayout: {pipeline: 4, data: 8, tensor: 8, outermost: data, "
          "rank_order: pipeline}\n")
    case("it can with replicas in different datacenters",
         ["plan", "inner.yaml", "--for", "torchtitan", "--no-optimal",
          "--search", "even", "-o", "inner.json"], 0,
         out="for           torchtitan")
    case("torchtitan gets them",
         ["export", "inner.json", "--to", "torchtitan", "-o", "inner"], 0,
         out="written       inner")


@test
def the_order_of_ranks_inside_datacenters_returns():
    """A pipeline over two datacenters; replicas are the outermost dimension in
    each."""
    def text(layout):
        return f"""
            longhaul: job/1
            model: {{layers: 8, hidden: 2048, ffn: 8192, heads: 16, vocab: 32000}}
            training: {{global_batch: 32, sequence: 1024, zero: 1,
                        recompute: none}}
            cluster:
              gpu: a100-80g
              gpus_per_node: 4
              node_link: {{gbps: 2400, latency_us: 3}}
              fabric: {{gbps: 100, latency_us: 8}}
              datacenters: [{{name: a, nodes: 2}}, {{name: b, nodes: 2}}]
              links: [{{between: [a, b], latency_ms: 1, gbps: 800}}]
            layout: {{tensor: 1, pipeline: 4, data: 4, micro_batch: 1,
                      chunks_per_device: 1, schedule: 1f1b{layout}}}
            """
    sites = ", sites: [{pipeline: [a, b]}]"
    times = {}
    for order in ("pipeline", "data"):
        write("order.yaml", text(f"{sites}, rank_order: {order}"))
        first = json.loads(run("plan", "order.yaml", *SOON, "--for",
                               "megatron", "-o", "order.json",
                               "--json").stdout)["iteration_s"]
        case(f"{order} for Megatron-LM",
             ["export", "order.json", "--to", "megatron", "-o", "order.args"],
             out=r"written +order\.args")
        args = read("order.args")
        check(("--use-tp-pp-dp-mapping" in args) == (order == "data"), args)
        check(("Ranks 0 to 7: a" in args) == (order == "pipeline"), args)
        case(f"{order} back",
             ["import", "--from", "megatron", "order.args", "-c", "order.yaml",
              "-o", "again.yaml", "-f"], out="again.yaml")
        second = json.loads(run("plan", "again.yaml", *SOON, "-o",
                                "again.json", "--json").stdout)["iteration_s"]
        check(first == second, f"{first}, {second} after import")
        times[order] = first
    check(times["pipeline"] != times["data"], times)


@test
def hybrid_sharding_is_expressed_where_it_can_be():
    """Each datacenter holds a complete copy of the sharded state."""
    def job(kind, zero):
        return write("hybrid.yaml", f"""
            longhaul: job/1
            model: llama3-8b
            training: {{global_batch: 64, sequence: 4096, zero: {zero}}}
            cluster:
              gpu: h100-sxm
              gpus_per_node: 8
              node_link: {{gbps: 3600, latency_us: 3}}
              fabric: {{gbps: 400, latency_us: 8}}
              datacenters: [{{name: a, nodes: 2}}, {{name: b, nodes: 2}}]
              links: [{{between: [a, b], latency_ms: 1, gbps: 800}}]
            layout: {{tensor: 4, pipeline: 1, data: 8, micro_batch: 1,
                     chunks_per_device: 1, outermost: data, sharding: {kind}}}
            """)

    for target, zero, out in (
            ("megatron", 1, r"--num-distributed-optimizer-instances 2\n"),
            ("torchtitan", 2, r"data_parallel_replicate_degree 2\n.*"
                              r"data_parallel_shard_degree 4\n")):
        job("hybrid", zero)
        case(f"for {target}", ["plan", "hybrid.yaml", "--for", target, "-o",
                               "hybrid.json"], out=r"DP-out.* shards hybrid",
             err=ANY)
        case(target, ["export", "hybrid.json", "--to", target], out=out)
        job("hybrid-leaders", zero)
        case(f"leaders in {target}", ["plan", "hybrid.yaml", "--for", target],
             1, err=r"use layout\.sharding: hybrid")


finish()
