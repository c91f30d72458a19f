#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul import --from torchtitan: options and TOML of torchtitan as a
job."""
import json
import random
import re

from harness import (ANY, case, check, finish, has_few_cases, json_case,
                     read, run, test, write)
from random_jobs import torchtitan_job
from round_trips import model_of, shuffled_cluster

TWO_NODES = ["--nodes", "2"]
TOML = """# of 0.2
[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 1
seq_len = 8192

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2

[activation_checkpoint]
mode = "full"

[compile]
enable = true
"""
OPTIONS = "--module llama3 --config llama3_70b "


def imported(text, *options, name="conf"):
    """Returns the job of this configuration as JSON."""
    write(name, text)
    return json_case("import", ["import", "--from", "torchtitan", name,
                                *(options or TWO_NODES), "-q"])


def refused(text, why, *options):
    write("conf", text)
    case(f"refused: {text[-60:]!r}", ["import", "--from", "torchtitan", "conf",
                                      *(options or TWO_NODES)], 1, err=why)


def has(text, *lines):
    for line in lines:
        check(re.search(f"^ *{line}( |$)", text["job"], re.M),
              f"{line} in\n{text['job']}")


def noted(text, *notes):
    for note in notes:
        check(any(note in one for one in text["noted"]),
              f"{note!r} in {text['noted']}")


def as_toml(options):
    """Converts options to the TOML of version 0.2; None if it lacks one."""
    tables, remarks = {}, ""
    for line in options.splitlines():
        if line.startswith("#"):
            remarks += line + "\n"
            continue
        if line.split()[0] in ("--module", "--config"):
            continue
        if line.startswith("activation-checkpoint:"):
            tables.setdefault("activation_checkpoint", []).append(
                f'mode = "{line.split(":")[1]}"')
            continue
        name, *values = line[2:].replace("-", "_", line[2:].count("-")
                                         if " " not in line else 0).split()
        section, key = name.split(".")
        if key in ("disable_cuda_graphs", "no_enable_sequence_parallel"):
            if key != "disable_cuda_graphs":
                return None
            continue
        if key == "enable_async_tensor_parallel":
            section = "parallelism"
        if key == "module_fqns_per_model_part":
            value = json.dumps([part.replace("lm_head", "output").split(",")
                                for part in values])
        elif not values:
            value = "true"
        else:
            value = (values[0] if re.fullmatch(r"-?\d+", values[0])
                     else json.dumps(values[0]))
        tables.setdefault(section, []).append(f"{key} = {value}")
    return remarks + "".join(
        f"[{section}]\n" + "\n".join(lines) + "\n\n"
        for section, lines in tables.items())


def comes_back(seed, plan, file):
    """Checks that options and TOML give the same job; 0: the job is
    infeasible."""
    schedule = (["--schedule", plan["layout"]["schedule"]]
                if "schedule_csv" in read(file) else [])
    case(f"seed {seed}: import", ["import", "--from", "torchtitan", file,
                                  "--cluster", "cluster.yaml", "--model",
                                  "job.yaml", *schedule, "-o", "again.yaml",
                                  "--force", "-q"], out=ANY)
    case(f"seed {seed}: plan", ["plan", "again.yaml", "-q", "-o", "again.json",
                                "--no-optimal"], out=ANY)
    again = json.loads(read("again.json"))
    check(again["iteration_s"] == plan["iteration_s"],
          f"seed {seed}: {plan['iteration_s']} s was planned, "
          f"{again['iteration_s']} s comes back from {file}")
    for key in ("tensor", "context", "pipeline", "data", "expert",
                "micro_batch", "chunks_per_device", "schedule"):
        check(plan["layout"].get(key) == again["layout"].get(key),
              f"seed {seed}: {key}")
    for key in ("global_batch", "sequence", "precision"):
        check(plan["job"]["training"][key] == again["job"]["training"][key],
              f"seed {seed}: {key}")
    check(model_of(plan) == model_of(again), f"seed {seed}: model")


@test
def exported_plans_are_imported_with_the_same_cost():
    """Counts seeds whose plans are imported again; infeasible jobs are
    skipped."""
    back = tomls = 0
    seeds = 6 if has_few_cases() else 30
    for seed in range(seeds):
        write("job.yaml", torchtitan_job(random.Random(seed)))
        done = run("plan", "job.yaml", "-q", "-o", "plan.json", "--no-optimal",
                   "--effort", "2000")
        if done.returncode:
            check(done.stderr.count("\n") == 1, done.stderr)
            continue
        case("export", ["export", "plan.json", "--to", "torchtitan",
                        "--allow-inexact", "-o", "args.txt"], out=ANY,
             err=r"\A(longhaul: not the model's: [^\n]*\n)*\Z")
        plan = json.loads(read("plan.json"))
        write("cluster.yaml", json.dumps(
            shuffled_cluster(plan, random.Random(seed))))
        comes_back(seed, plan, "args.txt")
        back += 1
        toml = as_toml(read("args.txt"))
        if toml and seed % 3 == 0:
            write("conf.toml", toml)
            comes_back(seed, plan, "conf.toml")
            tomls += 1
    check(back >= seeds / 3 and tomls, f"{back} plans came back, {tomls}")


@test
def defaults_are_torchtitans():
    text = imported(TOML)
    has(text, "model: llama3-8b", "global_batch: 8", "sequence: 8192",
        "zero: 3", "recompute: full", "tensor: 2", "data: 8", "micro_batch: 1",
        "chunks_per_device: 1", "framework: torchtitan",
        "preset: torchtitan", "precision: bf16")
    check(text["noted"] == [], text["noted"])
    text = imported(OPTIONS)
    has(text, "model: llama3-70b", "sequence: 8192", "global_batch: 16",
        "tensor: 8", "data: 2", "recompute: full", "micro_batch: 8")
    text = imported(OPTIONS + "--parallelism.tensor-parallel-degree 4 "
                    "--parallelism.tensor_parallel_degree=2 "
                    "--training.local-batch-size 2 "
                    "--parallelism.no-enable-sequence-parallel "
                    "activation-checkpoint:none")
    has(text, "tensor: 2", "data: 8", "global_batch: 16", "recompute: none",
        "sequence_parallel: false", "micro_batch: 2")
    text = imported("[training]\nlocal_batch_size = 2\n")
    has(text, "layers: 6", "vocab: 2048", "sequence: 2048", "data: 16",
        "recompute: selective")
    check("framework: torchtitan" not in text["job"], text["job"])
    noted(text, "activation_checkpoint.mode: is modelled as recomputation of "
          "every second product, not of every 2. layer as a whole")


@test
def compiled_parts_have_fused_kernels():
    """Kernels of a compiled configuration: 0.2 has FlashAttention-2 and one
    cross entropy, 0.3 has cuDNN's attention and chunks of the loss."""
    text = imported(TOML)
    has(text, "attention: flash-attention-2")
    check("kernels:" not in text["job"] and "loss:" not in text["job"],
          text["job"])
    has(imported(TOML.replace("enable = true", "enable = false")),
        "kernels: eager", "loss: eager")
    has(imported(TOML.replace("enable = true",
                              "enable = true\ncomponents = ['model']")),
        "loss: eager")
    text = imported(OPTIONS)
    has(text, "kernels: eager", "loss: chunked")
    check("attention:" not in text["job"], text["job"])
    text = imported(OPTIONS + "--compile.enable "
                    "--compile.enable-async-tensor-parallel")
    check("kernels:" not in text["job"], text["job"])
    has(text, "overlap: {tensor: 0.1, expert: 0}")
    noted(text, "compile.enable_async_tensor_parallel: modelled as in "
          "published runs")


@test
def published_memory_is_that_of_the_run():
    """Qwen3-32B on 32 H100 of 94.99 GiB without a compiler: with 16 and 32
    sequences per replica it took 43.45 and 70.79 GiB, with 64 it ran out of
    memory (message of torchtitan's commit d66b72a6a)."""
    write("cluster.yaml", """longhaul: job/1
model: llama3-8b
training: {global_batch: 8, sequence: 4096}
cluster:
  gpu: {tflops: 989.5, memory_gib: 94.99, memory_gbps: 2400}
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: west, nodes: 4}]
""")
    for sequences, gib in ((16, 43.45), (32, 70.79), (64, None)):
        write("run.toml", f"""[model]
name = "qwen3"
flavor = "32B"
[training]
local_batch_size = {sequences}
seq_len = 4096
[parallelism]
data_parallel_shard_degree = 4
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
""")
        case("import", ["import", "--from", "torchtitan", "run.toml",
                        "--cluster", "cluster.yaml", "-o", "run.yaml",
                        "--force", "-q"], out=ANY)
        if gib is None:
            case("out of memory", ["plan", "run.yaml"], 1,
                 err="no layout fits in memory")
            continue
        case("fits", ["plan", "run.yaml", "-o", "run.json"],
             out=r"\naccuracy +\+-\d+ % \(worst \d+ %\) in \d+ published")
        plan = json.loads(read("run.json"))
        check(plan["accuracy"]["kind"] == "dense models under torchtitan",
              plan["accuracy"])
        peak = plan["peak_memory_bytes"] / 2 ** 30
        check(abs(peak / gib - 1) < 0.08, f"{peak} GiB; {gib} were measured")


@test
def rounds_of_microbatches_are_those_of_pytorch():
    """Follows PyTorch's ScheduleInterleaved1F1B: 10 microbatches in two rounds
    of 5."""
    named = "--module llama3 --config llama3_8b " \
            "--parallelism.pipeline_parallel_degree 4 " \
            "--parallelism.pipeline_parallel_schedule Interleaved1F1B " \
            "--parallelism.pipeline_parallel_layers_per_stage 5 " \
            "--parallelism.pipeline_parallel_first_stage_less_layers 4 " \
            "--parallelism.pipeline_parallel_last_stage_less_layers 4 " \
            "--training.local_batch_size "
    text = imported(named + "10")
    has(text, "schedule: interleaved-1f1b", "chunks_per_device: 2")
    write("ten.yaml", text["job"])
    case("ten on four", ["plan", "ten.yaml", "--no-optimal", "-q", "-o",
                         "ten.json"], out=ANY)
    rows = json.loads(read("ten.json"))["schedule"]["rows"]
    check(rows[3].startswith("3F0,3F1,3F2,3F3,3F4,7F0,7B0,"), rows[3])
    refused(named + "11", "local_batch_size: gives 11 microbatches, which "
            "PyTorch's interleaved schedules cannot divide over 4 ranks into "
            "2 equal rounds; use 10 or 12")


@test
def replicas_follow_from_the_number_of_gpus():
    for more, lines in (
            ("data_parallel_replicate_degree = 2", ("data: 8", "zero: 3")),
            ("data_parallel_replicate_degree = 8\n"
             "data_parallel_shard_degree = 1", ("data: 8", "zero: 0")),
            ("data_parallel_shard_degree = 8\n"
             "fsdp_reshard_after_forward = 'never'", ("data: 8", "zero: 2")),
            ("data_parallel_shard_degree = 1\ncontext_parallel_degree = 8",
             ("data: 1", "zero: 3", "context: 8"))):
        text = imported(TOML.replace("data_parallel_shard_degree = -1", more))
        has(text, *lines)
    noted(imported(TOML.replace("data_parallel_shard_degree = -1",
                                "data_parallel_replicate_degree = 2")),
          "parallelism.data_parallel_replicate_degree: optimizer state is "
          "modelled as sharded")
    text = imported(TOML.replace("data_parallel_shard_degree = -1",
                                 "data_parallel_replicate_degree = 2"),
                    "--sites", "2", "--nodes", "1")
    has(text, "sharding: hybrid")
    check(text["noted"] == [], text["noted"])
    refused(TOML.replace("= -1", "= 3"), "16 GPUs do not match the degrees")
    refused(TOML, "does not give the number of GPUs; give", "--gpu", "h100")
    has(imported("torchrun --nnodes 2 --nproc_per_node=8 -m torchtitan.train " +
                 OPTIONS, "--gpu", "h100"), "data: 2",
        "- {name: west, nodes: 2}")
    has(imported("torchrun --nproc-per-node 8 -m torchtitan.train " +
                 "--module llama3 --config llama3_8b", "--gpu", "h100"),
        "data: 8")
    refused("torchrun --nnodes 1:4 --nproc-per-node 8 -m torchtitan.train " +
            "--module llama3 --config llama3_8b",
            "does not give the number of GPUs", "--gpu", "h100")
    has(imported("NGPU=8 MODULE=llama3 CONFIG=\"llama3_8b\" ./run_train.sh",
                 "--gpu", "h100"), "model: llama3-8b", "data: 8")
    has(imported(TOML.replace("= -1", "= 4"), "--gpu", "h100"), "data: 4")


@test
def stages_are_those_of_torchtitan():
    """Follows _generate_llm_fqn_per_model_part for 32 layers, embedding and
    head."""
    batch = "--module llama3 --config llama3_8b --training.local_batch_size " \
            "16 --parallelism.pipeline_parallel_degree "
    several = "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
    for more, lines in (
            ("4", ("layers: [8, 9, 8, 7]", "receives: late", "zero: 2",
                   "schedule: 1f1b", "data: 4")),
            ("2 " + several, ("layers: [8, 9, 8, 7]", "chunks_per_device: 2",
                              "schedule: interleaved-1f1b")),
            ("4 --parallelism.pipeline_parallel_first_stage_less_layers 3 "
             "--parallelism.pipeline_parallel_last_stage_less_layers 0",
             ("layers: [6, 9, 9, 8]",)),
            ("2 --parallelism.pipeline_parallel_layers_per_stage 9 " + several,
             ("layers: [8, 9, 8, 7]",)),
            ("2 --parallelism.pipeline_parallel_schedule zbvzerobubble",
             ("schedule: zb-v", "chunks_per_device: 2")),
            ("2 --parallelism.pipeline_parallel_schedule GPipe "
             "--parallelism.fsdp_reshard_after_forward always",
             ("schedule: gpipe", "receives: late", "zero: 3"))):
        has(imported(batch + more), *map(re.escape, lines))
    for more, why in (
            ("3", r"16 GPUs do not match the degrees"),
            ("16 " + several + "--parallelism.pipeline_parallel_first_stage_"
             "less_layers 2", "32 layers, plus 2 for .* too few for 32 stages"),
            ("4 --parallelism.pipeline_parallel_layers_per_stage 7",
             "gives 5 stages, not a multiple"),
            ("2 --parallelism.pipeline_parallel_layers_per_stage 9",
             "gives 2 stages per rank; 1F1B requires one"),
            ("2 --parallelism.pipeline_parallel_schedule zbx", "not one of 1F1B"),
            ("2 --parallelism.pipeline_parallel_microbatch_size 3",
             "3 does not divide local_batch_size 16"),
            ("2 --parallelism.pipeline_parallel_schedule_csv s.csv",
             "give the method that generated it by --schedule"),
            ("2 --parallelism.module_fqns_per_model_part tok_embeddings,"
             "layers.0 layers.2,lm_head",
             "stage 1 of 2 has layers missing or out of"),
            ("2 --parallelism.module_fqns_per_model_part layers.0 lm_head",
             "stage 0 of 2 must have tok_embeddings if and only if"),
            ("2 --parallelism.module_fqns_per_model_part tok_embeddings x",
             "stage 1 of 2 has a module other"),
            ("2 --parallelism.module_fqns_per_model_part tok_embeddings "
             "layers.0,lm_head", "has 1 layers; the model has 32")):
        refused(batch + more, why)
    noted(imported(batch + "2 --training.global_batch_size 256 "
                   "--parallelism.pipeline_parallel_schedule DualPipeV"),
          "modelled in its pass order, without overlap of passes",
          "--training.global_batch_size: modelled as one pipeline of all "
          "microbatches")


@test
def products_in_8_bits_are_for_any_program():
    text = imported(TOML.replace("[model]", "[model]\n"
                                 "converters = ['quantize.linear.float8']") +
                    "[quantize.linear.float8]\nfilter_fqns = ['output']\n")
    has(text, "fp8: matmul")
    check("framework: torchtitan" not in text["job"], text["job"])
    noted(text, "model.converters: all matrix products are modelled in 8 bits",
          "quantize.linear.float8.filter_fqns: all matrix products")
    text = imported(TOML + "[quantize.linear.float8]\nfilter_fqns = ['x']\n")
    check("quantize.linear.float8.filter_fqns" in text["ignored"], text)
    has(imported("--module llama3 --config llama3_405b", "--nodes", "16"),
        "fp8: matmul", "model: llama3-405b")
    text = imported("[model]\nname = 'deepseek_v3'\nflavor = '16B'\n"
                    "[parallelism]\nexpert_parallel_degree = 8\n"
                    "expert_parallel_comm_backend = 'deepep'\n")
    has(text, "dispatcher: deepep", "experts: 64", "expert: 8",
        "expert_tensor: 1")


@test
def errors_give_the_position_in_the_file_that_the_user_wrote():
    refused(TOML.replace("seq_len", "mixed_precision_param = 'float32'\n"
                         "seq_len"),
            "conf:8: training.mixed_precision_param: h100-sxm has no preset")


@test
def omitted_arguments_are_reported():
    text = imported(TOML + "[debug]\nseed = 7\n[optimizer]\nlr = 1e-4\n"
                    "[lr_scheduler]\nwarmup_steps = 2_000\n")
    check(text["ignored"] == ["debug.seed", "optimizer.lr",
                              "lr_scheduler.warmup_steps"], text["ignored"])
    check("# Ignored, no effect on time and memory: debug.seed, "
          "optimizer.lr" in text["job"], text["job"])
    noted(imported(TOML.replace("seq_len", "dtype = 'bfloat16'\nseq_len")),
          "training.dtype: weights, gradients and optimizer state")
    for text, why in (
            ("[training]\n\nseq_lenn = 4",
             "conf:3: torchtitan 0.2 has no key training.seq_lenn; did you "
             "mean training.seq_len"),
            ("[training]\nseq_len = '4'",
             "conf:2: training.seq_len: must be a number without quotes"),
            ("[training]\nseq_len = 4.5", "'4.5' is not a whole number"),
            ("[compile]\nenable = 1", "must be true or false without"),
            ("[model]\nflavor = 8", "must be a quoted string"),
            ("[model]\nconverters = 'float8'", "must be a list of strings"),
            ("[model]\nflavor = '8b'", "unknown flavor '8b' of llama3; known: "
             "debugmodel, 8B.*give another model by --model"),
            ("[model]\nname = 'flux'", "has no sizes of 'flux'"),
            ("[model]\nconverters = ['lora']", "'lora' is not supported"),
            ("[model]\nname = 1979-05-27", "dates and times are not supported"),
            ("[warp]\nspeed = 9", "has no key warp.speed, so its effect on "
             "time and memory is unknown"),
            ("[profiler]\nprofile_freq = 9", "only torchtitan 0.3 has"),
            ("[fault_tolerance]\nenable = true", "conf:2: "
             "fault_tolerance.enable trains with a varying number of replica "
             "groups"),
            ("[optimizer]\nname = 'Muon'", "'Muon' is not one of AdamW, Adam"),
            ("[parallelism]\nexpert_parallel_degree = 0", "'0' is not a whole"),
            ("[parallelism]\npipeline_parallel_schedule = '1F1B'\n"
             "pipeline_parallel_schedule = '1F1B'", "conf:3: .*"
             "is already defined on line 2"),
            ("[training]\nglobal_batch_size = 12", "12 is not a multiple of"),
            ("# nothing", "has no options")):
        refused(text, why)
    for text, why in (
            (OPTIONS + "--training.seq-lenn 4", "did you mean --training.seq_"),
            (OPTIONS + "--model.flavor 8B", "only torchtitan 0.2 TOML"),
            (OPTIONS + "--training.seq_len", "--training.seq_len requires a value"),
            (OPTIONS + "--compile.enable=1", "--compile.enable takes no value"),
            (OPTIONS + "8B", "'8B' is neither an option"),
            (OPTIONS + "--activation_checkpoint.mode full", "has no key"),
            (OPTIONS + "activation-checkpoint:some", "'some' is not one of none"),
            (OPTIONS + "--job.config_file x.toml", "import that file"),
            ("CONFIG_FILE=x.toml NGPU=8 ./run_train.sh", "import that file"),
            (OPTIONS + "--optimizer.param-groups.0.optimizer-name Muon",
             "'Muon' is not one of AdamW"),
            ("--module llama3", "--config: is required with --module"),
            ("--module llama3 --config llama3_9b",
             "unknown configuration 'llama3_9b'; known: "),
            ("--module flux --config x", "no configurations of 'flux'"),
            ("--training.seq_len 4096", "has no --module and --config")):
        refused(text, why)
    has(imported(OPTIONS + "--optimizer.param-groups.0.optimizer-kwargs.lr 1"),
        "model: llama3-70b")


@test
def other_models_are_named():
    text = imported(TOML, "--model", "qwen2.5-32b", *TWO_NODES)
    has(text, "model: qwen2.5-32b")
    noted(text, "model.flavor: is replaced by the model that --model names")
    write("other.yaml", run("init", "-m", "mixtral-8x7b", "-n", "1").stdout)
    has(imported("--training.seq_len 4096 activation-checkpoint:full",
                 "--model", "other.yaml", *TWO_NODES), "model: mixtral-8x7b",
        "global_batch: 128")
    write("conf", TOML)
    take = ["import", "--from", "torchtitan", "conf", *TWO_NODES]
    case("no such model", [*take, "--model", "llama3-9b"], 2,
         err="did you mean 'llama3-8b'|llama3-8b")
    case("no order to name", [*take, "--schedule", "zb-h1"], 1,
         err="so --schedule has no effect")
    case("no such method", [*take, "--schedule", "zb-h9"], 2, err="zb-h1")
    case("says it itself", ["import", "--from", "megatron", "conf", "--model",
                            "llama3-8b", *TWO_NODES], 2,
         err="--model has no effect with --from megatron")
    case("requires --from; set it in the job instead", ["plan", "other.yaml", "--model", "llama3-8b"], 2,
         err="--model requires --from")


@test
def the_current_layout_is_costed_beside_the_plan():
    write("conf", TOML.replace("tensor_parallel_degree = 2",
                               "pipeline_parallel_degree = 2").replace(
                                   "local_batch_size = 1",
                                   "local_batch_size = 8"))
    two = ["--from", "torchtitan", "conf", *TWO_NODES]
    run("import", *two, "-o", "today.yaml")
    run("plan", "today.yaml", "-q", "-o", "today.json", "--no-optimal")
    both = json_case("beside", ["plan", *two, "-q", "--no-optimal",
                                "--effort", "2000"])
    today = json.loads(read("today.json"))
    check(both["today"]["iteration_s"] == today["iteration_s"], "as imported")
    check(both["plan"]["iteration_s"] < today["iteration_s"], "faster")
    check(today["job"]["framework"]["receives"] == "late", "1F1B without CSV")
    case("what is planned is exported", ["plan", *two, "-q", "--no-optimal",
                                         "--effort", "2000", "-o", "p.json"],
         out=ANY)
    case("for torchtitan", ["export", "p.json", "--to", "torchtitan"], out=ANY)


finish()
