#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul import: arguments of Megatron-LM as a job."""
import json
import random
import re

from harness import (ANY, ROOT, case, check, finish, has_few_cases, json_case,
                     read, run, test, write)
from input_files import MEGATRON as SMALL
from megatron_rules import complaints
from random_jobs import job
from round_trips import model_of, shuffled_cluster

TWO_NODES = ["--nodes", "2"]


def imported(text, *options):
    """Returns the job of these arguments as JSON."""
    write("args.txt", text)
    return json_case("import", ["import", "--from", "megatron", "args.txt",
                                *(options or TWO_NODES), "-q"])


def refused(text, why, *options):
    write("args.txt", text)
    case(f"refused: {text[-60:]!r}", ["import", "--from", "megatron",
                                      "args.txt", *(options or TWO_NODES)], 1,
         err=why)


def has(text, *lines):
    for line in lines:
        check(re.search(f"^ *{line}( |$)", text["job"], re.M),
              f"{line} in\n{text['job']}")


@test
def exported_plans_are_imported_with_the_same_cost():
    """Counts seeds whose plans are imported again; infeasible jobs are
    skipped."""
    back = 0
    seeds = 6 if has_few_cases() else 24
    for seed in range(seeds):
        write("job.yaml", job(random.Random(seed)))
        done = run("plan", "job.yaml", "-q", "-o", "plan.json", "--no-optimal",
                   "--effort", "2000")
        if done.returncode:
            continue
        case("export", ["export", "plan.json", "--to", "megatron", "-o",
                        "args.txt", "--allow-inexact"], out=ANY, err=ANY)
        plan = json.loads(read("plan.json"))
        write("cluster.yaml", json.dumps(
            shuffled_cluster(plan, random.Random(seed))))
        case(f"seed {seed}: import", ["import", "--from", "megatron",
                                      "args.txt", "--cluster", "cluster.yaml",
                                      "-o", "again.yaml", "--force", "-q"],
             out=ANY)
        case(f"seed {seed}: plan", ["plan", "again.yaml", "-q", "-o",
                                    "again.json", "--no-optimal"], out=ANY)
        again = json.loads(read("again.json"))
        back += 1
        check(again["iteration_s"] == plan["iteration_s"],
              f"seed {seed}: {plan['iteration_s']} s was planned, "
              f"{again['iteration_s']} s comes back")
        for key in ("tensor", "context", "pipeline", "data", "expert",
                    "micro_batch", "chunks_per_device"):
            check(plan["layout"].get(key) == again["layout"].get(key),
                  f"seed {seed}: {key}")
        for key in ("global_batch", "sequence", "precision"):
            check(plan["job"]["training"][key] == again["job"]["training"][key],
                  f"seed {seed}: {key}")
        was, now = model_of(plan), model_of(again)
        if "dense_layers" not in was:
            check(was == now, f"seed {seed}: {was} comes back as {now}")
    check(back >= seeds / 2, f"{back} plans came back")


def training_jobs():
    """Yields model and training of each example and of Hugging Face
    configurations, with one layout on four GPUs of unlimited memory."""
    machines = ("cluster: {gpu: {tflops: 900, memory_gib: 100000, memory_gbps: "
                "3350}, gpus_per_node: 4, node_link: {gbps: 3600, latency_us: "
                "3}, datacenters: [{name: a, nodes: 1}]}\n"
                "layout: {framework: megatron, tensor: 1, context: 1, "
                "pipeline: 2, data: 2, micro_batch: 1, schedule: 1f1b, "
                "chunks_per_device: 1}\n")
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        found = re.findall(r"^(?:model|training):.*\n(?:(?:[ #].*)?\n)*",
                           path.read_text(), re.M)
        if len(found) == 2:
            yield path.stem, "longhaul: job/1\n" + "".join(found) + machines
    for path in sorted((ROOT / "tests/data/configs").glob("*/config.json")):
        yield path.parent.name, (
            f"longhaul: job/1\nmodel: {path}\ntraining: {{global_batch: 16, "
            f"sequence: 2048, zero: 1, recompute: none}}\n{machines}")


def exported_arguments(name, job_file):
    """Plans the job and exports it; returns the arguments without comments."""
    run("plan", job_file, "-q", "-o", "p.json", "--no-optimal", "--effort",
        "50")
    case(f"{name}: export", ["export", "p.json", "--to", "megatron",
                             "--allow-inexact", "-o", "args.txt"],
         out=ANY, err=ANY)
    return [line for line in read("args.txt").splitlines()
            if not line.startswith("#")]


@test
def exported_models_are_imported_with_the_same_arguments():
    """Covers models of examples and of Hugging Face, whose constants differ."""
    back, names = 0, set()
    for name, text in training_jobs():
        write("job.yaml", text)
        first = exported_arguments(name, "job.yaml")
        write("cluster.yaml", text)
        case(f"{name}: import", ["import", "--from", "megatron", "args.txt",
                                 "--cluster", "cluster.yaml", "-o",
                                 "again.yaml", "--force", "-q"], out=ANY)
        again = exported_arguments(name, "again.yaml")
        check(first == again, f"{name}: {sorted(set(first) ^ set(again))}")
        names.update(line.split()[0] for line in first)
        back += 1
    check(back >= 30, f"{back} jobs came back")
    missing = {"--norm-epsilon", "--rotary-percent", "--rotary-base",
               "--use-rope-scaling", "--rope-scaling-factor", "--rope-type",
               "--rotary-scaling-factor", "--mscale", "--mscale-all-dim",
               "--squared-relu", "--quick-geglu", "--apply-layernorm-1p",
               "--qk-l2-norm", "--no-rope-freq", "--moe-aux-loss-coeff",
               "--glu-linear-offset", "--activation-func-clamp-value",
               "--no-bias-gelu-fusion"} - names
    check(not missing, f"no job has {missing}")


@test
def constants_are_those_of_the_arguments():
    """Absent arguments have Megatron-LM's defaults."""
    rotary = "--position-embedding-type rope "
    experts = rotary + "--num-experts 8 --moe-grouped-gemm "
    latent = rotary + "--multi-latent-attention --qk-layernorm "
    for more, *lines in (
            ("--norm-epsilon 1e-6", "norm_epsilon: 1e-6"),
            ("--norm-epsilon 1e-5", "!norm_epsilon"),
            ("--init-method-std 0.006", "initializer_range: 0.006"),
            ("--init-method-std 0.02", "!initializer_range"),
            ("--squared-relu", 'activation: "relu2"', "gated: false"),
            ("--no-bias-gelu-fusion", 'activation: "gelu"'),
            ("--quick-geglu --glu-linear-offset 1 "
             "--activation-func-clamp-value 7", 'activation: "quick_gelu"',
             "glu_linear_offset: 1", "swiglu_limit: 7"),
            ("--apply-layernorm-1p", "norm_zero_centered: true"),
            ("--qk-l2-norm", "qk_l2_norm: true"),
            (rotary + "--rotary-percent 0.5", "partial_rotary_factor: 0.5"),
            (rotary + "--rotary-percent 1", "!partial_rotary_factor"),
            ("--rotary-percent 0.5", "!partial_rotary_factor: "),
            (rotary + "--no-rope-freq 4", "no_rope_interval: 4"),
            (rotary + "--no-rope-freq ([0]+[1])*4", "no_rope_interval: 2"),
            (rotary + "--use-rope-scaling",
             '.*"rope_type":"llama3","factor":8.*'),
            (rotary + "--use-rope-scaling --rope-scaling-factor 32",
             '.*"rope_type":"llama3","factor":32.*'),
            (rotary + "--rope-scaling-factor 32", "!rope_scaling: "),
            (latent, "!rope_scaling: "),
            (latent + "--rotary-scaling-factor 40",
             '.*"rope_type":"yarn","factor":40.*'),
            (latent + "--rotary-scaling-factor 40 --mscale 0.707 "
             "--mscale-all-dim 0.5", '.*"mscale":0.707,"mscale_all_dim":0.5.*'),
            (latent + "--rotary-scaling-factor 40 --mscale 2",
             '.*"attention_factor":1.737.*'),
            (latent + "--rope-type rope --rotary-scaling-factor 40",
             "!rope_scaling: "),
            (experts + "--expert-model-parallel-size 4 "
             "--moe-shared-expert-intermediate-size 64 "
             "--moe-shared-expert-overlap",
             ".*tensor: 0, shared_experts: 1.*"),
            (experts + "--moe-shared-expert-overlap", "!overlap"),
            (experts, "balance_loss: 0"),
            (experts + "--moe-aux-loss-coeff 0.01", "!balance_loss"),
            (experts + "--moe-aux-loss-coeff 0.02 "
             "--moe-router-load-balancing-type none", "balance_loss: 0"),
            (experts + "--moe-aux-loss-coeff 0.02", "balance_loss: 0.02"),
            (experts + "--moe-router-score-function sigmoid "
             "--moe-router-enable-expert-bias", "!balance_bias"),
            (experts + "--moe-router-score-function sigmoid",
             "balance_bias: 0")):
        text = imported(SMALL + more)
        for line in lines:
            if line[0] == "!":
                check(line[1:] not in text["job"], f"{more}: {text['job']}")
            else:
                has(text, line)
    for more, why in (
            ("--norm-epsilon 0", "--norm-epsilon: is out of range"),
            ("--init-method-std x", "--init-method-std: 'x' is not a number"),
            ("--squared-relu --swiglu", "--squared-relu: cannot be combined "
             "with --swiglu"),
            (rotary + "--no-rope-freq [1]*5",
             r"--no-rope-freq: '\[1\]\*5' is neither"),
            (rotary + "--no-rope-freq [1]+[0]*7", "only at equal intervals"),
            (experts + "--moe-aux-loss-coeff", "-coeff: needs a value"),
            (latent + "--rotary-scaling-factor 2 --mscale 0 --mscale-all-dim 1",
             "--mscale: longhaul does not support 0")):
        refused(SMALL + more, why)


@test
def published_models_are_known_by_their_shape():
    for model in ("deepseek-v3", "gpt-oss-120b")[has_few_cases():]:
        write("big.yaml", run("init", "-m", model, "-n", "64").stdout +
              "layout: {framework: megatron, pipeline: 8, tensor: 1, "
              "context: 1, micro_batch: 1, expert: 64, schedule: 1f1b}\n")
        case("plan", ["plan", "big.yaml", "--no-optimal", "-q", "-o", "b.json"],
             out=ANY)
        args = case("export", ["export", "b.json", "--to", "megatron",
                               "--allow-inexact"], out=ANY, err=ANY).stdout
        has(imported(args, "--nodes", "64"), f"model: {model}")


def deepseek():
    """Returns arguments of DeepSeek-V3 in 32 stages on 16 ranks, except for
    these."""
    write("big.yaml", run("init", "-m", "deepseek-v3", "-n", "128").stdout +
          "layout: {framework: megatron, pipeline: 16, tensor: 1, context: 1, "
          "micro_batch: 1, expert: 64, chunks_per_device: 2, "
          f"layers: {[*[2] * 30, 1, 0]}}}\n")
    case("plan", ["plan", "big.yaml", "--no-optimal", "-q", "-o", "b.json"],
         out=ANY)
    args = case("export", ["export", "b.json", "--to", "megatron"],
                out=ANY).stdout
    own, count = re.subn("(pipeline-model-parallel-layout ).*", "\\g<1>%s", args)
    check(count == 1, args)
    return own


def stages_of(args):
    """Returns the stages of an imported layout, written out."""
    text = re.search("parallel-layout (.*)", args)[1]
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda m: m[1] * int(m[2]), text)
    return text


@test
def deepseeks_stages_come_back_wherever_its_module_is():
    """61 layers; the published layout has the prediction module m in a stage of
    its own."""
    own, seconds = deepseek(), {}
    for split, layers, mtp in (
            ("Et*2|(tt|)*29t|mL", [*[2] * 30, 1, 0], None),
            ("Ett|(tt|)*28t|tt|mL", [*[2] * 29, 1, 2, 0], None),
            ("Et*3|(tt|)*29m|L", [3, *[2] * 29, 0, 0], 30),
            ("Et*3|(tt|)*28t|tm|L", [3, *[2] * 28, 1, 1, 0], 30),
            ("Et*3|(tt|)*28|ttm|L", [3, *[2] * 28, 0, 2, 0], 30),
            ("Et*3|(tt|)*29|mL", [3, *[2] * 29, 0, 0], None)):
        if has_few_cases() and split != "Et*3|(tt|)*29m|L":
            continue
        text = imported(own % split, "--nodes", "128", "-o", "d.yaml",
                        "--force")["job"]
        check(" ".join(str(layers).split()) in " ".join(text.split()),
              f"{split}: {text}")
        check(re.findall(r"^ *mtp_chunk: (\d+)", text, re.M) ==
              ([str(mtp)] if mtp else []), f"{split}: {text}")
        case("plan", ["plan", "d.yaml", "-q", "-o", "d.json"], out=ANY)
        seconds[split] = json.loads(read("d.json"))["iteration_s"]
        back = case("export", ["export", "d.json", "--to", "megatron"],
                    out=ANY).stdout
        check(stages_of(back) == stages_of(own % split), back)
        check(not complaints(back, 1024), str(complaints(back, 1024)))
    if not has_few_cases():
        check(seconds["Et*3|(tt|)*29m|L"] < seconds["Et*3|(tt|)*29|mL"],
              f"the head's stage is the slower one with the module: {seconds}")
    for split, why in (
            ("Et*3|(tt|)*28tm|(|)*2L", "has 60 t and 1 m"),
            ("Et*61(|)*14m|(|)*16L", "has m in stage 14 of 32; Megatron-LM "
             "allows it only in the last 16 stages, the last one of each "
             "rank")):
        refused(own % split, f"-model-parallel-layout: {why}", "--nodes", "128")


@test
def modules_of_multi_token_prediction_are_in_one_stage():
    own = deepseek().replace("--mtp-num-layers 1", "--mtp-num-layers 2")
    refused(own % "Et*3|(tt|)*29m|mL", "has m in more than one stage",
            "--nodes", "128")


@test
def the_base_of_rotary_positions_is_kept():
    own = deepseek() % "Et*2|(tt|)*29t|mL"
    check("--rotary-base 10000\n" in own, own)
    for base, model in ("10000", "model: deepseek-v3"), ("70000", None):
        text = imported(own.replace("base 10000", f"base {base}"), "--nodes",
                        "128", "-o", "d.yaml", "--force")
        has(text, model or f"rope_theta: {base}")
        case("plan", ["plan", "d.yaml", "-q", "--no-optimal", "-o", "d.json"],
             out=ANY)
        for target, line in (("megatron", f"--rotary-base {base}\n"),
                             ("megatron-bridge", f"rotary_base={base},")):
            out = case("export", ["export", "d.json", "--to", target],
                       out=ANY).stdout
            check(line in out, out)
    llama = ("--num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
             "--group-query-attention --num-query-groups 8 "
             "--ffn-hidden-size 14336 --swiglu --normalization RMSNorm "
             "--disable-bias-linear --untie-embeddings-and-output-weights "
             "--position-embedding-type rope --vocab-size 128256 "
             "--seq-length 4096 --max-position-embeddings 4096 "
             "--micro-batch-size 1 --global-batch-size 64 --bf16")
    case("what Megatron-LM takes without", ["import", "--from", "megatron",
                                            llama, *TWO_NODES], out=ANY,
         err="--rotary-base: is not set and defaults to 10000 in Megatron-LM; "
         "exports write the value of llama3-8b, 500000")
    refused(llama + " --rotary-base 0", "--rotary-base: ")
    text = imported(llama.replace("type rope", "type learned_absolute") +
                    " --rotary-base 5")
    check("rope_theta" not in text["job"] and "--rotary-base" in text["job"],
          text["job"])


@test
def megatrons_defaults_are_used():
    text = imported(SMALL)
    has(text, "ffn: 4096", "gated: false", "tied_embeddings: true",
        "norm: \"layer\"", "mlp_bias: true", "qkv_bias: true",
        "positions: 2048", "zero: 0", "recompute: none", "data: 16",
        "schedule: 1f1b")
    text = imported(SMALL + "--swiglu --disable-bias-linear "
                            "--normalization=RMSNorm --hidden-dropout 0 "
                            "--attention-dropout 0")
    has(text, "ffn: 2688")
    check("bias" not in text["job"] and "dropout" not in text["job"],
          text["job"])


@test
def stages_are_those_of_megatron():
    four = SMALL + "--pipeline-model-parallel-size 4 "
    for more, layers in (
            ("", [2, 2, 2, 2]),
            ("--num-layers-per-virtual-pipeline-stage 1", [1] * 8),
            ("--num-virtual-stages-per-pipeline-rank 2", [1] * 8),
            ("--decoder-first-pipeline-num-layers 1 "
             "--decoder-last-pipeline-num-layers 3", [1, 2, 2, 3]),
            ("--pipeline-model-parallel-layout 'Et|(tt|)*2,t|tt|'L --num-layers"
             " 8", None),
            ("--pipeline-model-parallel-layout=Et|(tt|)*2,t*3L", [1, 2, 2, 3]),
            ("--pipeline-model-parallel-layout E|(t|)*6t*2|L",
             [0, 1, 1, 1, 1, 1, 1, 2, 0])):
        write("args.txt", four + more)
        if layers is None or len(layers) % 4:
            refused(four + more, r"layout: has \d+ stages, not a multiple of")
        else:
            has(imported(four + more), re.escape(f"layers: {layers}"))
    text = imported(SMALL.replace("layers 8", "layers 10") +
                    "--pipeline-model-parallel-size 4 "
                    "--account-for-embedding-in-pipeline-split "
                    "--account-for-loss-in-pipeline-split")
    has(text, re.escape("layers: [2, 3, 3, 2]"))
    refused(SMALL + "--pipeline-model-parallel-size 3",
            r"args\.txt:4: --pipeline-model-parallel-size: 8 layers are not "
            r"divisible into 3", "--nodes", "3")
    for text, why in (("Ett|tt|tt|tt", "has no L"), ("tt|tt|tt|ttL", "begin"),
                      ("Ett|tt|tx|ttL", "letters other than"),
                      ("Ett|tt|tt|tL", "has 7 t"),
                      ("E(tt|tt|tt|ttL", r"\( without"),
                      ("E(tt|)tt|tt|ttL", r"without a following \*N"),
                      ("Et*99999|tt|tt|ttL", "more layers|7 t|has")):
        refused(four + f"--pipeline-model-parallel-layout '{text}'", why)


@test
def expert_layers_are_those_of_the_pattern():
    sparse = SMALL + "--num-experts 16 --moe-grouped-gemm --moe-layer-freq "
    has(imported(sparse + "2"), "moe_interval: 2")
    has(imported(sparse + "([0]*3+[1]*5)"), "dense_layers: 3")
    has(imported(sparse + "'([1]+[0])*4'"), "moe_interval: 2")
    has(imported(sparse + "[1,1,0,1,1,1,0,1]"), r"dense_list: \[2,6\]")
    for pattern in ("[1]*9", "[1]*7", "x", "0", "([1]*8", "[2]*8", "[1]*1e9",
                    "(((([1]*2)*2)*2)*2)"):
        refused(sparse + f"'{pattern}'", r"--moe-layer-freq: '.*' is neither")
    refused(sparse + "[0]*8", "no layer has experts")


@test
def words_are_cut_as_a_shell_cuts_them():
    text = imported("# a remark\ntorchrun --nproc_per_node=8 --nnodes 2 \\\n"
                    "  pretrain_gpt.py \\\n" +
                    SMALL.replace("\n", " \\\n", 2).replace(
                        "32000", "\"32\"'0'00") + "--save 'a b' # gone\n",
                    "--gpu", "h100")
    has(text, "data: 16", "vocab: 32000")
    check(text["ignored"] == ["pretrain_gpt.py", "save"], text["ignored"])
    for given in ("--save $DIR/x", '--save "`pwd | tail`"', "--save=$(cat a b)",
                  '--save "a ${B}"'):
        text = imported(SMALL + given + " --seed 7")
        check(text["ignored"] == ["save", "seed"], text["ignored"])
    for given, words in (("--lr-x $LR $ARGS --num-layers ${N}", r"\$\{N\}"),
                         ("--num-layers=$N", r"\$N"),
                         ('--num-layers "`cat n`"', "`cat n`"),
                         ("--lr 1 $MORE", r"\$MORE")):
        refused(SMALL + given, rf"args\.txt:4: '{words}' needs shell expansion")
    refused(SMALL + "--save 'x\n\ny", "args.txt:4: missing closing '")
    refused("# nothing\n", "args.txt: has no arguments")
    refused("num-layers 8", "'num-layers' is neither an argument")
    check("data: 16" in case("in one word", ["import", "--from", "megatron",
                                             SMALL, *TWO_NODES],
                             out=ANY, err=ANY).stdout, "arguments as a word")
    check("data: 16" in case("standard input", ["import", "--from", "megatron",
                                                "-", *TWO_NODES], out=ANY,
                             err=ANY, stdin=SMALL).stdout, "standard input")


@test
def omitted_arguments_are_reported():
    text = imported(SMALL + "--lr 1e-4 --seed=7 --fp32-residual-connection "
                            "--lr 2e-4")
    check(text["ignored"] == ["lr", "seed", "lr"], text["ignored"])
    check(any("fp32-residual-connection: residuals" in note
              for note in text["noted"]), text["noted"])
    check("# --fp32-residual-connection: residuals" in text["job"] and
          "# Ignored, no effect on time and memory: lr, seed, lr" in text["job"],
          text["job"])
    case("said", ["import", "--from", "megatron", SMALL + "--qk-clip",
                  *TWO_NODES], out=ANY, err="--qk-clip: QK clipping is not")
    refused(SMALL + "--tensor-model-paralel-size 2",
            "did you mean --tensor-model-parallel-size")
    text = imported(SMALL + "--warp-speed 9 9 --seed 7 --warp")
    check(text["ignored"] == ["seed"] and
          text["noted"] == ["not among Megatron-LM's arguments (core 0.20), "
                            "taken as without effect on time and memory: "
                            "--warp-speed, --warp"], text)
    for argument, why in (("--yaml-cfg x", "file with further arguments"),
                          ("--optimizer soap", "soap keeps for each param"),
                          ("--optimizer adamm", "not one of adam, sgd"),
                          ("--export-kd-teacher-load t", "runs a second model"),
                          ("--model-provider bert",
                           "only gpt, mamba and hybrid, not 'bert'"),
                          ("--step-batch-size-schedule 0:3",
                           "cannot be combined with --global-batch-size"),
                          ("--bf16=1", "takes no value"),
                          ("--lr", "--lr needs a value"),
                          ("--rampup-batch-size 1 2", "three values"),
                          ("--recompute-granularity all", "not one of full, sel"),
                          ("--recompute-granularity full",
                           "method: is required with"),
                          ("--fp16", "cannot be combined with --bf16"),
                          ("--overlap-grad-reduce --overlap-param-gather",
                           "gather: requires --use-distributed-optimizer"),
                          ("--use-distributed-optimizer --overlap-param-gather",
                           "--overlap-param-gather: needs --overlap-grad-red"),
                          ("--pipeline-model-parallel-size 2 --num-virtual-"
                           "stages-per-pipeline-rank 2 --no-overlap-p2p-commun"
                           "ication", "ication: with several stages per rank"),
                          ("--num-layers 0", "not a whole number from 1"),
                          ("--hidden-dropout x", "'x' is not a number"),
                          ("--expert-model-parallel-size 2", "--num-experts"),
                          ("--global-batch-size 257", "is not a multiple of")):
        refused(SMALL + argument, why)


# A layout from https://github.com/NVIDIA/Megatron-LM/issues/756.
MIXTRAL = """\
--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
--num-attention-heads 32 --group-query-attention --num-query-groups 8
--seq-length 4096 --max-position-embeddings 32768 --vocab-size 32000
--position-embedding-type rope --swiglu --normalization RMSNorm
--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 14336
--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --bf16
--expert-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128
"""


@test
def errors_give_the_position_in_the_file_that_the_user_wrote():
    refused(MIXTRAL, r"args.txt:7: --expert-model-parallel-size: expert x "
                     r"expert_tensor is 8, above the 4 GPUs")
    refused(MIXTRAL.replace("14336\n--tensor", "14335\n"
                            "--expert-tensor-parallel-size 2 --tensor"),
            r"args.txt:6: --expert-tensor-parallel-size: the expert width")
    case("one word", ["import", "--from", "megatron", MIXTRAL, *TWO_NODES], 1,
         err=r"longhaul: the arguments:7: --expert-model-parallel-size: ")
    draw, numbers = random.Random(5), 0
    for i in range(120):
        text = re.sub(r"(?<= )\d+", lambda found: draw.choice(
            [found[0]] * 6 + ["1", "2", "3", "5", "7", "16", "100", "4096"]),
                      MIXTRAL)
        write("args.txt", text)
        said = run("import", "--from", "megatron", "args.txt", *TWO_NODES)
        for line, name in re.findall(r"args.txt:(\d+):(?: (--[a-z-]+):)?",
                                     said.stderr):
            lines = text.split("\n")
            check(int(line) <= len(lines) and
                  name + " " in lines[int(line) - 1],
                  f"{i}: {said.stderr}{text}")
            numbers += 1
    check(numbers > 40, numbers)


@test
def the_number_of_gpus_has_to_be_known():
    refused(SMALL, "does not give the number of GPUs", "--gpu", "h100")
    refused(SMALL + "--tensor-model-parallel-size 16 "
                    "--pipeline-model-parallel-size 2",
            r"16 GPUs are not a multiple of tensor x context x pipeline")
    refused("torchrun --nnodes 4 --nproc-per-node 8 p.py " + SMALL,
            "starts 32 processes, but there are 16 GPUs")
    case("links of one site", ["import", "--from", "megatron", SMALL,
                               "--nodes", "2", "--latency-ms", "2"], 2,
         err="--latency-ms has no effect with one site")
    write("c.yaml", run("init", "-m", "llama3-8b", "-n", "2").stdout)
    case("two clusters", ["import", "--from", "megatron", SMALL, "--cluster",
                          "c.yaml", "--nodes", "2"], 2,
         err="--nodes cannot be combined with --cluster")
    case("whose", ["import", SMALL], 2, err="--from megatron")


@test
def the_current_layout_is_costed_beside_the_plan():
    """The current configuration has the time of the imported job, and no longer
    time than necessary."""
    naive = SMALL + "--pipeline-model-parallel-size 8 --use-distributed-" \
                    "optimizer --overlap-grad-reduce --overlap-param-gather"
    machines = ["--sites", "2", "--nodes", "1"]
    run("import", "--from", "megatron", naive, *machines, "-o", "today.yaml")
    run("plan", "today.yaml", "-q", "-o", "today.json", "--no-optimal")
    today = json.loads(read("today.json"))
    both = json_case("beside", ["plan", "--from", "megatron", naive, *machines,
                                "-q"])
    check(both["today"]["iteration_s"] == today["iteration_s"], "as imported")
    check(both["plan"]["iteration_s"] < today["iteration_s"], "faster")
    check(both["plan"]["job"]["layout"] == {"framework": "megatron"} or
          "pipeline" not in both["plan"]["job"]["layout"], "all is open")
    for change in both["changes"]:
        was = today["layout"].get(change["dimension"])
        check(was is None or isinstance(was, (list, dict)) or
              str(was) == change["today"], f"{change} is not {was}")
        check(change["today"] != change["plan"], change)
        check(change.get("keeping_s", 9e9) >=
              both["plan"]["iteration_s"] * 0.999, change)
    check("pipeline" in [one["dimension"] for one in both["changes"]], "pipe")
    shown = case("shown", ["plan", "--from", "megatron", naive, *machines, "-q",
                           "-o", "p.json"], out=ANY).stdout
    check(re.search(r"\Atoday +[\d.]+ m?s: 1f1b on TP 1 PP 8x1.*\nplan +[\d.]+ "
                    r"m?s: -\d+\.\d %\nchanges +if unchanged  what  +today", shown),
          shown[:400])
    check(all(len(line) <= 80 for line in shown.splitlines()), shown)
    best = json.loads(read("p.json"))
    check(best["iteration_s"] == both["plan"]["iteration_s"], "a plan's file")


@test
def cost_model_differences_are_noted():
    """A note is printed only if the cost model differs from the arguments."""
    sharded = SMALL + "--use-distributed-optimizer --overlap-grad-reduce "
    whole = sharded + "--overlap-param-gather "
    for text, more, why, *machines in (
            (sharded, "--overlap-param-gather --ddp-num-buckets 2",
             "--overlap-param-gather: is not set"),
            (SMALL + "--use-distributed-optimizer ", "--overlap-grad-reduce "
             "--overlap-param-gather --ddp-num-buckets 2",
             "--overlap-grad-reduce: is not set"),
            (whole, "--ddp-num-buckets 2",
             "--overlap-grad-reduce: gradients are modelled in 3 buckets"),
            (whole + "--ddp-num-buckets 9 ", "--ddp-num-buckets 8",
             "--ddp-num-buckets: gradients are modelled in whole-layer "
             "buckets"),
            (whole + "--num-distributed-optimizer-instances 4 "
             "--ddp-num-buckets 2 ", "--num-distributed-optimizer-instances 2",
             "--num-distributed-optimizer-instances: optimizer state",
             "--sites", "2", "--nodes", "1"),
            (whole + "--num-distributed-optimizer-instances 2 "
             "--ddp-num-buckets 2 ", "--num-distributed-optimizer-instances 1",
             "--num-distributed-optimizer-instances: optimizer state"),
            (SMALL + "--squared-relu", None, "--squared-relu: activation functions"),
            (SMALL + "--openai-gelu", None, "--openai-gelu: activation functions"),
            (SMALL + "--timing-log-level 2", None, "timer barriers"),
            (SMALL + "--pipeline-model-parallel-size 2 --ddp-num-buckets 4",
             None, "--ddp-num-buckets: in a pipeline")):
        notes = imported(text, *machines)["noted"]
        check(any(why in note for note in notes), f"{why!r} in {notes}")
        if more:
            notes = imported(text + more, *machines)["noted"]
            check(not any(note.split(":")[0] == why.split(":")[0]
                          for note in notes), f"{why!r} in {notes}")


@test
def buckets_count_replicas_of_context_parallelism_and_own_experts():
    """The bucket size is 40 million parameters, or a million per replica if
    that is more. Dense layers have 12.6 million parameters here, the embedding
    32.8 million."""
    reduces = SMALL + "--overlap-grad-reduce "
    has(imported(reduces), "chunks_per_device: 3")
    has(imported(reduces, "--nodes", "8"), "chunks_per_device: 2")
    has(imported(reduces + "--context-parallel-size 2", "--nodes", "8"),
        "chunks_per_device: 2")
    # ZeRO 3 communicates layer by layer, for any number of chunks.
    has(imported(reduces + "--use-megatron-fsdp --data-parallel-sharding-"
                 "strategy optim_grads_params --ckpt-format fsdp_dtensor "
                 "--init-model-with-meta-device"),
        "zero: 3", "chunks_per_device: 1")
    sparse = reduces + "--num-experts 16 --moe-grouped-gemm "
    has(imported(sparse), "chunks_per_device: 8")
    has(imported(sparse + "--expert-model-parallel-size 16"),
        "chunks_per_device: 3")
    # 1,074 million in experts, which tensor parallelism does not divide here
    has(imported(sparse + "--tensor-model-parallel-size 4 --sequence-parallel "
                 "--expert-model-parallel-size 4 "
                 "--expert-tensor-parallel-size 1"), "chunks_per_device: 7")


@test
def groups_of_microbatches_are_those_of_megatron():
    """Groups follow schedules.py of core 0.16; 8 replicas."""
    text = SMALL.replace("global-batch-size 256", "global-batch-size %d") + \
        "--pipeline-model-parallel-size 4 " \
        "--num-virtual-stages-per-pipeline-rank 2 "
    group = "--microbatch-group-size-per-virtual-pipeline-stage "
    machines = ("--nodes", "4")
    for n, size in ((8, ""), (8, "4"), (10, "5"), (6, "6")):
        more = group + size if size else ""
        check(not any("group-size" in note for note in
                      imported(text % (8 * n) + more, *machines)["noted"]),
              f"{n} in groups of {size} are costed")
    check(any("modelled with groups of 4 microbatches" in note
              for note in imported(text % 64 + group + "8",
                                   *machines)["noted"]), "others are noted")
    for n, size, why in ((10, "", "10 microbatches on 4 ranks in groups of 4; "
                                  "use groups of 5"),
                         (8, "3", "in groups of 3; use groups of 4"),
                         (8, "9", "in groups of 9; use groups of 4"),
                         (3, "", "gives 3 microbatches per replica; .*at least "
                                 "4")):
        refused(text % (8 * n) + (group + size if size else ""), why, *machines)
    write("args.txt", text % 80 + group + "5")
    run("import", "--from", "megatron", "args.txt", *machines, "-o", "ten.yaml")
    case("plan", ["plan", "ten.yaml", "--no-optimal", "-q", "-o", "ten.json"],
         out=ANY)
    case("export", ["export", "ten.json", "--to", "megatron"],
         out=f"\n{group}5\n")
    case("Bridge", ["export", "ten.json", "--to", "megatron-bridge"],
         out="microbatch_group_size_per_vp_stage=5,")


@test
def one_rank_has_no_stages_to_cut():
    for more in ("--num-layers-per-virtual-pipeline-stage 2",
                 "--num-virtual-stages-per-pipeline-rank 2",
                 "--decoder-first-pipeline-num-layers 2",
                 "--decoder-last-pipeline-num-layers 2",
                 "--pipeline-model-parallel-layout 'Et*4|t*4L'"):
        refused(SMALL + more, more.split()[0] + ": requires "
                "--pipeline-model-parallel-size above 1")
    refused(SMALL + "--overlap-grad-reduce --ddp-num-buckets 2 "
                    "--ddp-bucket-size 1000000",
            "--ddp-bucket-size: cannot be combined with --ddp-num-buckets")


@test
def sites_may_have_any_name():
    two = run("init", "-m", "llama3-8b", "-n", "1", "--sites", "2").stdout
    for name in ("a}b", "a: b", "x #y", "[q", "true", "a\\b", "é & *"):
        write("named.yaml", re.sub(r"(?<!\w)west(?!\w)", lambda _: f"'{name}'",
                                   re.sub(" *#.*", "", two)))
        write("args.txt", SMALL + "--pipeline-model-parallel-size 2")
        done = case(f"named {name}", ["import", "--from", "megatron",
                                      "args.txt", "--cluster", "named.yaml",
                                      "-q"], out=ANY, err=ANY).stdout
        check(f"datacenter: '{name}', stages: 1" in done, done)


@test
def plans_report_why_the_current_layout_cannot_be_costed():
    big = SMALL.replace("-layers 8", "-layers 80").replace(
        "-size 1024", "-size 8192").replace("-heads 16", "-heads 64")
    case("too large", ["plan", "--from", "megatron", big, "--nodes", "2", "-q"],
         out=r"today +cannot be costed: .*use GPUs\s+with at least "
             r"[\d.]+ GiB")
    case("a job has machines", ["plan", "job.yaml", "--sites", "2"], 2,
         err="--sites requires --from")
    case("no file", ["plan", "--from", "megatron", "nowhere.txt"], 1,
         err="nowhere.txt: No such file")


@test
def ranks_lie_in_the_sites_in_order():
    four = SMALL + "--pipeline-model-parallel-size 4 "
    text = imported(four, "--sites", "2", "--nodes", "1,3")
    has(text, re.escape("- {replicas: 8, pipeline: [{datacenter: west, "
                        "stages: 1}, {datacenter: east, stages: 3}]}"))
    text = imported(four + "--use-tp-pp-dp-mapping --use-distributed-optimizer "
                           "--num-distributed-optimizer-instances 2",
                    "--sites", "2", "--nodes", "2")
    has(text, re.escape("- {replicas: 4, pipeline: [{datacenter: east, "
                        "stages: 4}]}"), "sharding: hybrid")
    refused(SMALL + "--tensor-model-parallel-size 16 --num-attention-heads 16",
            r"ranks 0 to 15 belong to one stage but span two datacenters",
            "--sites", "2", "--nodes", "1")


@test
def ranks_are_imported_as_exported():
    """Ranks are in runs, of which a datacenter may have several, in any
    order."""
    four = SMALL + "--pipeline-model-parallel-size 4 "
    ends = ((3, "west"), (7, "east"), (11, "west"), (19, "east"), (23, "west"),
            (27, "east"), (31, "west"))
    runs = "".join(f"# Ranks {before + 1} to {end}: {site}\n" for
                   (before, _), (end, site) in zip(((-1, ""), *ends), ends))
    crossing = "- {replicas: 4, pipeline: [{datacenter: %s, stages: 2}, " \
               "{datacenter: %s, stages: 2}]}"
    for machines in (["--nodes", "2"], ["--gpu", "h100"]):
        text = imported(runs + four, "--sites", "2", *machines)
        has(text, "data: 8", re.escape(crossing % ("west", "east")),
            re.escape(crossing % ("east", "west")))
        check(text["noted"] == [] and text["job"].count("nodes: 2}") == 2, text)
    # Replicas are the outermost dimension: two in the east, then two in the
    # west.
    text = imported("# Ranks 0 to 7: east\r\n# Ranks 8 to 15: west\r\n" + four +
                    "--use-tp-pp-dp-mapping", "--sites", "2", "--nodes", "2")
    has(text, "data: 4", *(re.escape(
        "- {replicas: 2, pipeline: [{datacenter: %s, stages: 4}]}" % site)
        for site in ("east", "west")))
    check(text["noted"] == ["# Ranks: these comments place 16 ranks, which use "
                            "only as many of the 32 GPUs"], text["noted"])
    refused("# Ranks 0 to 15: west\ntorchrun --nnodes 4 --nproc-per-node 8 "
            "p.py " + four, "starts 32 processes, but its comments place 16",
            "--sites", "2", "--nodes", "2")
    refused("# Ranks 0 to 7: west\n# Ranks 8 to 23: east\n"
            "# Ranks 24 to 31: west\n" + four, "a pipeline uses each "
            "datacenter once", "--sites", "2", "--nodes", "2")
    refused("# Ranks 0 to 3: west\n# Ranks 4 to 31: east\n" + four +
            "--tensor-model-parallel-size 8 ",
            "ranks 0 to 7 belong to one stage but span two datacenters",
            "--sites", "2", "--nodes", "1,4")


@test
def remarks_on_other_machines_are_noted():
    four = SMALL + "--pipeline-model-parallel-size 4 "
    plain = imported(four, "--sites", "2", "--nodes", "2")["job"]
    for remarks, why in (
            ("# Ranks 0 to 31: b\n", "b: is not a datacenter"),
            ("# Ranks 0 to 31: east\n", "east: has fewer GPUs"),
            ("# Ranks 16 to 31: east\n", "ranks do not continue from"),
            ("# Ranks 0 to 15: east\n# Ranks 15 to 30: west\n",
             "do not continue from"),
            ("# Ranks are in\n", "are in: is not \"FIRST to LAST: DATA"),
            ("# Ranks -1 to 7: east\n", "is not \"FIRST to LAST"),
            ("# Ranks 8 to 7: east\n", "is not \"FIRST to LAST")):
        text = imported(remarks + four, "--sites", "2", "--nodes", "2")
        check(len(text["noted"]) == 1 and why in text["noted"][0] and
              "ranks fill the datacenters in the order of the cluster"
              in text["noted"][0],
              f"{remarks}: {text['noted']}")
        check(text["job"].endswith(plain[plain.index("model:"):]),
              f"{remarks}: as without them")
    check(imported("# Ranks 0 to 31: b\n" + four, "--nodes", "4")["noted"] == [],
          "one site has all ranks")


@test
def a_plan_that_leaves_gpus_out_comes_back():
    """The job uses two of three nodes, in one datacenter."""
    write("three.yaml", run("init", "-m", "llama3-8b", "-n", "3").stdout +
          "layout: {framework: megatron, tensor: 8, pipeline: 1, data: 2, "
          "context: 1, micro_batch: 1, chunks_per_device: 1}\n")
    case("plan", ["plan", "three.yaml", "--no-optimal", "-q", "-o", "t.json"],
         out=ANY)
    args = case("export", ["export", "t.json", "--to", "megatron"],
                out="^# Ranks 0 to 15: \\S+\n").stdout
    has(imported(args, "--cluster", "three.yaml"), "data: 2", "tensor: 8")


finish()
