#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`framework` of a job: each key changes the plan, and all commands use the same
values as the plan.
"""
import json
import re

from harness import (ANY, ROOT, case, check, finish, json_case, read, run,
                     test, write)

JOB = """
    longhaul: job/1
    model: {{name: gpt, layers: 8, hidden: 2048, ffn: 8192, heads: 16,
            vocab: 50304, norm: layer, positions: 2048, gated: false}}
    training: {{global_batch: 32, sequence: 2048, precision: {precision},
               zero: {zero}, recompute: none}}
    {framework}
    cluster:
      gpu: a100-80g
      gpus_per_node: 4
      node_link: {{gbps: 2400, latency_us: 3}}
      fabric: {{gbps: 100, latency_us: 8}}
      datacenters: [{{name: west, nodes: 1}}, {{name: east, nodes: 1}}]
      links: [{{between: [west, east], latency_ms: 5, gbps: 100}}]
    layout: {{tensor: 2, context: 1, pipeline: 2, data: 2, micro_batch: 1,
             chunks_per_device: 1, outermost: {outermost}, schedule: 1f1b}}
"""


def plan(framework, name="plan.json", precision="bf16", zero=1,
         outermost="pipeline", change=lambda text: text):
    if framework is not None:
        framework = f"framework: {{{framework}}}"
    write("job.yaml", change(JOB.format(framework=framework or "", zero=zero,
                                        precision=precision,
                                        outermost=outermost)))
    case("plan", ["plan", "job.yaml", "--no-optimal", "-o", name], out=ANY)
    return json.loads(read(name))


@test
def a_plan_without_framework_does_not_mention_it():
    bare, none = plan(None), plan("preset: none")
    check("framework" not in bare["job"], bare["job"].keys())
    check("receives" not in bare["pipeline"], "receives of a pipeline")
    check(none["job"].pop("framework")["preset"] == "none", "preset")
    for each in bare, none:
        each.pop("input_hash")
    check(bare == none, "preset none plans otherwise than no section")


@test
def each_key_changes_the_plan():
    bare = plan(None)
    for keys in ("attention: unfused", "sequence_parallel: false",
                 "receives: late", "reduce: bf16"):
        best = plan(keys)
        check(best["iteration_s"] != bare["iteration_s"],
              f"{keys}: as without it")
    best = plan("gradients: bf16")
    check(best["peak_memory_bytes"] < bare["peak_memory_bytes"],
          "gradients: bf16 take as much memory as fp32")
    for preset in "megatron", "deepspeed":
        best = plan(f"preset: {preset}")
        check(best["iteration_s"] > bare["iteration_s"],
              f"{preset} is as fast as receives posted early")


def with_experts(text):
    return text.replace("gated: false", "gated: false, experts: 8, "
                        "experts_per_token: 2, expert_ffn: 4096").replace(
        "layout: {", "layout: {expert: 4, ")


def on_h100(text):
    """Returns a job with enough tokens that the CPU is not the bottleneck."""
    return text.replace("a100-80g", "h100-sxm").replace("micro_batch: 1",
                                                        "micro_batch: 8")


@test
def overlap_and_fp8_make_it_faster():
    for keys, change in (("overlap: {tensor: 1}", str),
                         ("overlap: {expert: 1}", with_experts),
                         ("fp8: matmul", on_h100)):
        alone = plan("preset: none", change=change)
        behind = plan(keys, change=change)
        check(behind["iteration_s"] < alone["iteration_s"],
              f"{keys}: {alone['iteration_s']}, then {behind['iteration_s']}")


@test
def a_key_overrides_the_preset():
    with_any = lambda text: text.replace("layout: {", "layout: {framework: any, ")
    early = plan("preset: megatron, receives: early", change=with_any)
    none = plan("preset: none")
    check(early["iteration_ns"] == none["iteration_ns"] and
          early["pipeline"] == none["pipeline"], "megatron, but receives early")


@test
def the_preset_restricts_the_search():
    text = run("init", "-m", "llama3-8b", "-s", "2", "-n", "2").stdout
    write("job.yaml", text.replace("# framework: {preset", "framework: {preset"))
    case("plan of init's job", ["plan", "job.yaml", "--no-optimal", "--effort",
                                "2000", "-o", "plan.json"],
         out=r"\nfor +Megatron-LM \(core 0\.16\) [\d.]+ m?s; [^\n]*\n.*"
             r"runs any.*\niteration ", err=ANY)
    check(json.loads(read("plan.json"))["job"]["layout"]["framework"] ==
          "megatron", "in the plan's job")
    case("its export", ["export", "plan.json", "--to", "megatron"],
         out="--tensor-model-parallel-size|--num-layers")
    for preset, key, runs in (("megatron", "", "Megatron-LM"),
                              ("torchtitan", "", "torchtitan"),
                              ("deepspeed", "", None), ("none", "", None),
                              ("megatron", "framework: any, ", None),
                              ("megatron", "framework: pytorch, ", "PyTorch")):
        text = JOB.format(framework=f"framework: {{preset: {preset}}}", zero=3,
                          precision="bf16", outermost="pipeline")
        text = text.replace("layout: {tensor: 2, ", f"layout: {{{key}tensor: 2, ")
        text = re.sub(r", pipeline: 2.*\n.*", "}", text)
        text = text.replace("recompute: none", "recompute: none, dropout: false")
        write("job.yaml", text)
        case(f"{preset} {key}", ["plan", "job.yaml", "--no-optimal", "--effort",
                                 "1000", "-o", "plan.json"],
             out=rf"\n{f'for +{runs}' if runs else 'iteration'} ", err=ANY)
        again = json.loads(read("plan.json"))
        case("it reads back", ["explain", "plan.json"], out=ANY, err=ANY)
        check(again["job"]["layout"].get("framework") ==
              {"Megatron-LM": "megatron", "torchtitan": "torchtitan",
               "PyTorch": "pytorch"}.get(runs, "any" if key else None),
              again["job"]["layout"])
    text = JOB.format(framework="framework: {preset: megatron}", zero=1,
                      precision="bf16", outermost="pipeline")
    write("job.yaml", text.replace("schedule: 1f1b", "schedule: zb-h1"))
    case("refused", ["plan", "job.yaml"], 1,
         err=r"job\.yaml: framework\.preset: .*; or set layout\.framework: any")


@test
def all_commands_see_late_receives():
    early, late = plan("receives: early", "early.json"), plan("receives: late")
    check(late["pipeline"]["receives"] == "late", "not in the pipeline")
    check("receives" not in early["pipeline"], "the default is written")

    def seconds(*args):
        done = case(" ".join(args), [*args, "--json"], out=ANY)
        found = json.loads(done.stdout)
        return next(
            round(found[key] * 1e9) for key in ("makespan_s", "predicted_s")
            if key in found)

    makespan = late["makespan_ns"]
    check(makespan > early["makespan_ns"], "late costs nothing")
    check(seconds("simulate", "plan.json") == makespan, "simulate")
    check(seconds("explain", "plan.json") == makespan, "explain")
    # An explicit value overrides the default.
    check(seconds("simulate", "plan.json", "--receives", "early") ==
          early["makespan_ns"], "--receives early")
    check(seconds("simulate", "early.json", "--receives", "late") == makespan,
          "--receives late")
    rows = json.loads(case("compare", ["compare", "job.yaml", "--json"],
                           out=ANY).stdout)["rows"]
    row = [row for row in rows if row["method"] == "1f1b"]
    check(row and round(row[0]["makespan_s"] * 1e9) == makespan, f"compare: {rows}")


@test
def an_optical_network_waits_for_late_receives():
    took = {}
    for when in "early", "late", "late-fd":
        plan(f"receives: {when}")
        write("scenario.yaml", f"""
            longhaul: optical/1
            topology: {ROOT}/data/topologies/nsfnet.yaml
            job: {{plan: plan.json, sites: {{west: 1, east: 9}}}}
            iterations: 3
            seeds: [1]
            policies: {{ksp-ff: {{}}}}
            """)
        done = case(when, ["optical", "scenario.yaml", "--json"], out=ANY)
        took[when] = json.loads(done.stdout)["policies"]["ksp-ff"][
            "iteration_s"]
    check(took["early"] < took["late"], f"{took}")
    # 1f1b has no separate W passes.
    check(took["late"] == took["late-fd"], f"{took}")


MOE = """
    longhaul: job/1
    model: {{name: moe, layers: 4, hidden: 1024, ffn: 0, heads: 16, vocab: 32000,
            experts: 8, experts_per_token: 2, expert_ffn: 1024}}
    training: {{global_batch: 16, sequence: 2048, zero: {zero}, recompute: none}}
    framework: {{{framework}}}
    cluster:
      gpu: {{preset: h100, tflops: 989.5}}
      gpus_per_node: 8
      node_link: {{gbps: 3600, latency_us: 3}}
      datacenters: [{{name: west, nodes: 1}}]
    layout: {{tensor: 2, context: 1, expert: 4, pipeline: 1, data: 4, micro_batch: 1,
             chunks_per_device: 1, schedule: 1f1b}}
"""


@test
def options_of_another_layout_are_shown():
    """With more options, experts over all GPUs become faster
    (tests/unit/test_plan_flags.c)."""
    write("open.yaml", """\
        longhaul: job/1
        cluster:
          gpu: {tflops: 989, memory_gib: 8, memory_gbps: 3350}
          gpus_per_node: 4
          node_link: {gbps: 400, latency_us: 3}
          fabric: {gbps: 400, latency_us: 8}
          datacenters: [{name: west, nodes: 2}]
        model: {layers: 4, hidden: 2048, ffn: 4096, heads: 16, vocab: 32000,
                experts: 16, experts_per_token: 4, expert_ffn: 1024,
                shared_expert_ffn: 1024, dense_layers: 1}
        training: {global_batch: 32, sequence: 4096, zero: 1}
        framework: {preset: megatron}
        """)
    text = case("plan", ["plan", "open.yaml", "--for", "megatron", "-q",
                         "--show", "flags", "-o", "open.json"], out=ANY).stdout
    made = json.loads(read("open.json"))
    other = made["flags_layout"]
    before, best = other["before_s"], other["best"]["iteration_s"]
    change = 100 * (best / made["iteration_s"] - 1)
    check("Options of Megatron-LM on TP 1 EP 8 PP 1x4 DP 8 " in text, text)
    check(f" {1000 * before:.3f} ms without, {1000 * best:.3f} ms with all "
          f"{len(other['flags'])} ({change:+.1f} % against the plan)" in text,
          f"{before}, {best}, {change}: {text}")


@test
def words_that_megatron_adds_are_costed():
    """50257 words on 2 GPUs become 50432 there (128 x 2 x 197). 50264 words are
    8 x 6283 and remain unchanged on 1 GPU."""
    def costs(words, how, tensor=2, tied="false"):
        text = MOE.format(framework=how, zero=1).replace("vocab: 32000", (
            f"tied_embeddings: {tied}, vocab: {words}"))
        if tensor == 1:
            text = text.replace("tensor: 2", "tensor: 1").replace(
                "data: 4", "data: 8")
        write("job.yaml", text)
        plan = json_case(f"{words} words", ["plan", "job.yaml"])
        return plan["iteration_s"], plan["peak_memory_bytes"]
    for tied in "false", "true":
        given = costs(50257, "preset: megatron", 2, tied)
        check(given == costs(50432, "preset: megatron", 2, tied), "padded")
        check(given == costs(50432, "preset: none, attention: cudnn", 2, tied),
              "what there is")
        check(given > costs(50257, "preset: none, attention: cudnn", 2, tied),
              "not all do")
    check(costs(50264, "preset: megatron", 1) == costs(
        50264, "preset: none, attention: cudnn", 1), "words that divide")


@test
def megatron_gets_the_costed_settings():
    def flags(framework, old="", new=""):
        write("job.yaml", MOE.format(framework=framework, zero=1)
              .replace(old, new))
        case("plan", ["plan", "job.yaml", "--for", "megatron", "-o",
                      "plan.json"], out=ANY)
        return case("export", ["export", "plan.json", "--to", "megatron"],
                    out=ANY).stdout.splitlines()

    rows = (
        ("gradients: bf16, reduce: bf16", ["--grad-reduce-in-bf16"]),
        ("fp8: matmul", ["--fp8-format hybrid", "--fp8-param-gather"]),
        ("attention: unfused", ["--attention-backend unfused"]),
        ("overlap: {tensor: 0.5}", ["--tp-comm-overlap"]),
        ("overlap: {expert: 0.5}", ["--overlap-moe-expert-parallel-comm"]),
    )
    bare = flags("preset: megatron")
    for keys, expected in rows:
        got = flags(f"preset: megatron, {keys}")
        for flag in expected:
            check(flag not in bare, f"{flag} without {keys}")
            check(flag in got, f"{flag} with {keys}: {got}")
    for flag in "--hidden-dropout 0", "--attention-dropout 0":
        check(flag in bare, f"a tenth is dropped: {bare}")
        check(flag not in flags("preset: megatron", "zero: 1",
                                "zero: 1, dropout: true"), flag)
    check("--hidden-dropout 0.25" in flags("preset: megatron", "zero: 1",
                                           "zero: 1, dropout: 0.25"),
          "a share of its own")
    kept = flags("preset: megatron", "zero: 1", "zero: 1, balance_loss: 0.002, "
                 "expert_capacity: 1.5")
    for flag in ("--moe-aux-loss-coeff 0.002", "--moe-token-drop-policy position",
                 "--moe-expert-capacity-factor 1.5"):
        check(flag in kept and flag not in bare, f"{flag}: {kept}")
    chosen = flags("preset: megatron", "experts:", "router: sigmoid, "
                   "routed_scale: 1.5, expert_groups: 4, groups_per_token: 1, "
                   "experts:")
    for flag in ("--moe-router-score-function sigmoid",
                 "--moe-router-enable-expert-bias",
                 "--moe-router-num-groups 4", "--moe-router-group-topk 1",
                 "--moe-router-topk-scaling-factor 1.5"):
        check(flag in chosen and flag not in bare, f"{flag}: {chosen}")
    latent = flags("preset: megatron", "vocab:", "q_lora_rank: 256, kv_lora_rank: 128, "
                   "qk_nope_head_dim: 64, qk_rope_head_dim: 64, "
                   "v_head_dim: 128, vocab:")
    check("--qk-layernorm" in latent and "--qk-layernorm" not in bare,
          "norms of what is compressed, which parameters were counted with")
    shared = flags("preset: megatron, overlap: {shared_experts: 1}", "vocab:",
                   "shared_expert_ffn: 1024, vocab:")
    check("--moe-shared-expert-overlap" in shared, f"{shared}")
    cut = flags("preset: megatron", "expert: 4", "expert: 1, expert_tensor: 1")
    check("--moe-token-dispatcher-type alltoall" in cut,
          f"tokens go where they were costed: {cut}")


@test
def features_that_megatron_lacks_are_rejected_before_the_search():
    for keys, old, new, why in (
            ("reduce: bf16", "", "", "one value for framework.gradients"),
            ("fp8: dispatch", "", "", "use framework.fp8: matmul"),
            ("fp8: head", "", "", "has no 8-bit head"),
            ("fp8: matmul", "zero: 1", "zero: 0", "use training.zero: 1"),
            ("fp8: matmul", "recompute: none", "recompute: [layernorm]",
             "does not recompute norms and activation functions with delayed "
             "scaling"),
            ("fp8: matmul", "recompute: none", "recompute: selective",
             "does not recompute norms and activation functions with delayed "
             "scaling"),
            ("experts: fused", "", "", "use framework.experts: grouped"),
            ("overlap: {expert: 0.5}", "zero: 1", "zero: 1, precision: fp32",
             "only in 16-bit precision"),
            ("overlap: {expert: 0.5}", "vocab:", "mtp_layers: 1, vocab:",
             "only in a pipeline"),
            ("overlap: {expert: 0.5}", "vocab:", "mtp_layers: 2, vocab:",
             "at most one multi-token prediction layer"),
            ("overlap: {shared_experts: 1}",
             "1024}\n    training: {",
             "1024, shared_expert_ffn: 64}\n    training: {dispatcher: deepep, ",
             "with training.dispatcher: alltoall"),
            ("overlap: {shared_experts: 1}",
             "1024}\n    training: {global_batch: 16, sequence: 2048, zero: 1, "
             "recompute: none",
             "1024, shared_expert_ffn: 64}\n    training: {global_batch: 16, "
             "sequence: 2048, zero: 1, recompute: [shared_experts]",
             "does not list shared_experts"),
            ("sequence_parallel: false", "", "",
             "use framework.sequence_parallel: true")):
        text = MOE.format(framework=keys, zero=1).replace(old, new)
        write("job.yaml", text)
        case(f"{keys}, {new}", ["plan", "job.yaml", "--for", "megatron"], 1,
             err=why)


@test
def others_have_no_parallel_blocks():
    text = (ROOT / "examples/tiny-falcon-cpu.yaml").read_text()
    text = text.replace("precision: fp32", "precision: bf16")
    write("job.yaml", text.replace("zero: 1", "zero: 0"))
    for target in "megatron", "torchtitan":
        case(target, ["plan", "job.yaml", "--for", target], 1,
             err="use a model with parallel_block: false")


@test
def torchtitan_has_no_hybrid_models():
    config = ROOT / "tests/data/configs/Nemotron-H-8B-Base-8K/config.json"
    for options, preset in (["--for", "torchtitan"], ""), ([], "torchtitan"):
        text = run("init", "-m", config, "-n", "2").stdout
        if preset:
            text = text.replace("# framework: {preset: megatron",
                                f"framework: {{preset: {preset}")
        write("job.yaml", text)
        case(f"hybrid {options}", ["plan", "job.yaml", *options], 1,
             err="torchtitan has no layers of one block, such as Mamba-2; use "
                 "a model without layer_pattern")


@test
def the_preset_of_who_runs_the_plan_holds_where_a_section_names_none():
    def ways(key, *options, named="framework: megatron, "):
        framework = "" if key is None else f"framework: {{{key}}}"
        write("job.yaml", JOB.format(framework=framework, precision="fp16",
                                     zero=1, outermost="pipeline")
              .replace("layout: {", f"layout: {{{named}"))
        case("plan", ["plan", "job.yaml", "--no-optimal", "-o", "plan.json",
                      *options], out=ANY)
        got = json.loads(read("plan.json"))
        given = dict(item.split(": ") for item in key.split(", ")) if key else {}
        check(got["job"]["framework"] == given, "the plan's job has its keys")
        return got["iteration_ns"]

    usual = ways(None)
    check(ways("attention: cudnn, gradients: fp16, reduce: fp16") == usual,
          "the preset's values")
    for key in "attention: cudnn", "preset: megatron":
        for options in (), ("--for", "megatron"):
            check(ways(key, *options) == usual, f"{key} {options}")
        check(ways(key, "--for", "megatron", named="") == usual,
              f"{key}, named by the option alone")
    check(ways("gradients: fp32, reduce: fp32") > usual, "its own values")
    check(ways("attention: fused", "--for", "pytorch") ==
          ways("preset: none, attention: fused", "--for", "pytorch"),
          "of the program that --for names")


@test
def the_playground_offers_all_words_of_a_key():
    """The error for another word lists them."""
    page = (ROOT / "wasm/playground/playground.js").read_text()
    words = re.search(r"const WORDS = \{(.*?)\n\};", page, re.S)[1]
    for part, names in {
            "training": "precision optimizer dispatcher rings",
            "framework": "attention kernels loss gradients reduce receives fp8 "
                         "experts",
            "layout": "outermost sharding framework"}.items():
        for name in names.split():
            job = {"training": "global_batch: 8, sequence: 2048"}
            job[part] = f"{job.get(part, '')}, {name}: other".lstrip(", ")
            write("job.yaml", "longhaul: job/1\nmodel: llama3-8b\ncluster:\n"
                  "  gpu: h100-sxm\n  gpus_per_node: 8\n"
                  "  node_link: {gbps: 3600, latency_us: 3}\n"
                  "  datacenters: [{name: a, nodes: 1}]\n" +
                  "".join(f"{key}: {{{value}}}\n" for key, value in job.items()))
            listed = re.search(r"must be (.*), not 'other'",
                               run("plan", "job.yaml").stderr)
            offered = re.search(rf"\b{name}: \[([^]]*)\]", words)
            check(listed and offered and
                  re.split(", | or ", listed[1]) ==
                  re.findall("'([^']*)'", offered[1]), f"{part}.{name}")


finish()
