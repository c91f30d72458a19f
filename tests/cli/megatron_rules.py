# SPDX-License-Identifier: Apache-2.0
"""Checks whether Megatron-LM would start with these arguments.

The rules are those of its arguments.py, transformer_config.py,
model_parallel_config.py, parallel_state.py, pipeline_parallel_layer_layout.py and
mcore_fsdp_adapter.py (core 0.16.1), reimplemented. Shares no code with longhaul.

complaints(text, world) returns a line for each violated rule. Environment variables
are parsed from comments in the form of longhaul's export.
"""
import re
import shlex

MODULES = {"core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe",
           "shared_experts"}


class Arguments:
    """Parses like argparse: the last one counts."""

    def __init__(self, text):
        self.given, name = {}, None
        words = shlex.split(text.replace("(", "'('").replace(")", "')'"),
                            comments=True)
        for word in words:
            if word.startswith("--"):
                name, _, value = word[2:].partition("=")
                self.given[name] = [value] if value else []
            else:
                self.given[name].append(word)

    def __contains__(self, name):
        return name in self.given

    def whole(self, name, absent=None):
        return int(self.given[name][0]) if name in self.given else absent

    def word(self, name, absent=None):
        return self.given[name][0] if name in self.given else absent


def stages_of(layout):
    """Unrolls it like Megatron-LM."""
    layout = layout.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        layout = re.sub(pattern, lambda m: m[1] * int(m[2]), layout)
    return layout.split("|")


def layout_rules(a, pp):
    stages = stages_of(a.word("pipeline-model-parallel-layout"))
    flat = "".join(stages)
    mtp = a.whole("mtp-num-layers", 0)
    if set(flat) - set("EtmL"):
        yield "layout: unknown letters"
        return
    if len(stages) % pp:
        yield "layout: stages are no multiple of the ranks"
        return
    if not flat or flat[0] != "E" or flat.count("E") != 1:
        yield "layout: E once, first"
    if not flat or flat[-1] != "L" or flat.count("L") != 1:
        yield "layout: L once, last"
    if flat.count("t") != a.whole("num-layers"):
        yield "layout: as many t as layers"
    if flat.count("m") != mtp:
        yield "layout: as many m as layers of multi-token prediction"
    if "m" in flat and "t" in flat[flat.index("m"):]:
        yield "layout: t before m"
    last = stages[len(stages) - pp:]
    if any("m" in stage for stage in stages[:len(stages) - pp]):
        yield "layout: m on the last stage of a rank"
    if any(0 < stage.count("m") != mtp for stage in last):
        yield "layout: all m in one stage"


def virtual_stages(a, pp):
    """Returns None if not interleaved; and the violations."""
    ways = [name for name in ("num-layers-per-virtual-pipeline-stage",
                              "num-virtual-stages-per-pipeline-rank",
                              "pipeline-model-parallel-layout") if name in a]
    wrong = []
    if len(ways) > 1:
        wrong.append("more than one of " + ", ".join(ways))
    layers = (a.whole("num-layers") +
              ("account-for-embedding-in-pipeline-split" in a) +
              ("account-for-loss-in-pipeline-split" in a))
    if "pipeline-model-parallel-layout" in a and layers > a.whole("num-layers"):
        wrong.append("a layout beside embedding or loss that count")
    uneven = ("decoder-first-pipeline-num-layers" in a or
              "decoder-last-pipeline-num-layers" in a)
    n = 1
    if "pipeline-model-parallel-layout" in a:
        wrong += layout_rules(a, pp)
        n = len(stages_of(a.word("pipeline-model-parallel-layout"))) // pp
    elif "num-virtual-stages-per-pipeline-rank" in a:
        n = a.whole("num-virtual-stages-per-pipeline-rank")
    elif "num-layers-per-virtual-pipeline-stage" in a:
        each = a.whole("num-layers-per-virtual-pipeline-stage")
        if uneven or layers % pp or layers // pp % each:
            wrong.append("virtual stages of unequal layers")
        n = layers // pp // each
    elif not uneven and layers % pp:
        wrong.append("layers are no multiple of the ranks")
    if n > 1 and pp < (3 if "no-overlap-p2p-communication" in a else 2):
        wrong.append("too few ranks for interleaved stages")
    return (n if n > 1 else None), wrong


def parallel_rules(a, world, tp, cp, pp):
    """Checks the divisibility rules of parallel_state.py."""
    ep = a.whole("expert-model-parallel-size", 1)
    etp = a.whole("expert-tensor-parallel-size", tp)
    instances = a.whole("num-distributed-optimizer-instances", 1)
    if world % (tp * cp * pp):
        yield "world is no multiple of tensor x context x pipeline"
        return
    if world % (ep * etp * pp):
        yield "world is no multiple of expert x expert tensor x pipeline"
        return
    dp, edp = world // (tp * cp * pp), world // (ep * etp * pp)
    if "use-tp-pp-dp-mapping" in a and pp > 1 and dp != edp:
        yield "experts have another data-parallel size"
    if dp * cp % instances:
        yield "replicas are no multiple of the optimizer's instances"
    if edp % instances:
        yield "experts' replicas are no multiple of the instances"


def batch_rules(a, world, tp, cp, pp, virtual):
    """Checks the rules of num_microbatches_calculator.py and schedules.py."""
    if world % (tp * cp * pp):
        return
    share = a.whole("micro-batch-size") * (world // (tp * cp * pp))
    batch = a.whole("global-batch-size", share)
    if batch % share:
        yield "the batch is no multiple of microbatch x replicas"
    elif virtual:
        n = batch // share
        group = a.whole("microbatch-group-size-per-virtual-pipeline-stage", pp)
        if not pp <= group <= n or 0 < n % group < pp:
            yield f"{n} microbatches in groups of {group}"


def fsdp_rules(a, tp, pp):
    """Checks _get_dp_tp_mesh() of the FSDP adapter, and
    FSDPDistributedIndex."""
    if "use-megatron-fsdp" not in a:
        return
    if pp > 1:
        yield "FSDP has no pipeline"
    if a.whole("num-distributed-optimizer-instances", 1) > 1 and (
            a.whole("expert-model-parallel-size", 1) > 1 or
            "num-experts" in a and
            a.whole("expert-tensor-parallel-size", tp) != tp):
        yield "instances of FSDP know no groups of experts"


def state_rules(a):
    fsdp = "use-megatron-fsdp" in a
    distributed = "use-distributed-optimizer" in a
    if "overlap-param-gather" in a and not (distributed or fsdp):
        yield "gathers overlap with the distributed optimizer alone"
    if "overlap-param-gather" in a and "overlap-grad-reduce" not in a:
        yield "gathers overlap where reductions do"
    if fsdp and a.word("ckpt-format", "torch_dist") != "fsdp_dtensor":
        yield "FSDP has a checkpoint format of its own"
    if not fsdp and a.word("ckpt-format", "torch_dist") == "fsdp_dtensor":
        yield "the checkpoint format is FSDP's"
    if "fp8-param-gather" in a and not (distributed or fsdp):
        yield "weights in 8 bits want the distributed optimizer"
    if "fp8-param-gather" in a and "fp8-format" not in a:
        yield "weights in 8 bits without products in them"
    if "ddp-num-buckets" in a and ("ddp-bucket-size" in a or
                                   a.whole("ddp-num-buckets") < 1):
        yield "buckets"


def environment_rules(a, text, tp, cp):
    one = "CUDA_DEVICE_MAX_CONNECTIONS=1" in text
    fsdp = "use-megatron-fsdp" in a
    if fsdp and one:
        yield "FSDP wants several connections"
    if ((tp > 1 or cp > 1) and not fsdp and not one and
            "overlap-moe-expert-parallel-comm" not in a):
        yield "tensor and context parallelism want one connection"


def attention_rules(a, tp, cp):
    heads = a.whole("num-attention-heads")
    groups = (a.whole("num-query-groups", 1) if "group-query-attention" in a
              else heads)
    sequence = a.whole("seq-length")
    if heads % tp:
        yield "heads are no multiple of tensor"
    if groups % tp and tp % groups:
        yield "query groups neither divide tensor nor are a multiple of it"
    if "kv-channels" not in a and a.whole("hidden-size") % heads:
        yield "hidden is no multiple of heads"
    if "multi-latent-attention" in a and "group-query-attention" in a:
        yield "latent attention has no query groups"
    if cp > 1 and sequence % (2 * cp):
        yield "the sequence is no multiple of 2 x context"
    if a.whole("max-position-embeddings") < sequence:
        yield "the sequence is longer than the positions"
    if a.whole("mtp-num-layers", 0) and "use-rotary-position-embeddings" not in (
            a) and a.word("position-embedding-type", "learned_absolute") not in (
                "rope", "none"):
        yield "multi-token prediction wants rotary positions"
    if "tp-comm-overlap" in a and (tp == 1 or "sequence-parallel" not in a):
        yield "tensor overlap wants sequence parallelism"


def recompute_rules(a):
    kind = a.word("recompute-granularity")
    if "recompute-activations" in a:
        kind = "selective"
    names = set(a.given.get("recompute-modules", ["core_attn"]))
    if kind == "full" and ("recompute-method" not in a or
                           "recompute-num-layers" not in a):
        yield "full wants a method and a number of layers"
    if kind == "selective":
        if "recompute-method" in a or "recompute-num-layers" in a:
            yield "selective has no method"
        if names - MODULES:
            yield "unknown modules"
        if "moe_act" in names and "moe-grouped-gemm" not in a:
            yield "moe_act wants grouped products"
        if "mla_up_proj" in names and "multi-latent-attention" not in a:
            yield "mla_up_proj wants latent attention"
        if "fp8-format" in a and names & {"moe_act", "layernorm"} and (
                a.word("fp8-recipe", "delayed") == "delayed"):
            yield "delayed scaling makes no norms again"
    if "overlap-moe-expert-parallel-comm" in a:
        if kind == "full" or "recompute-method" in a or (
                "recompute-num-layers" in a):
            yield "expert overlap without full recomputation"


def expert_rules(a, tp, pp, virtual):
    experts = a.whole("num-experts", 0)
    ep = a.whole("expert-model-parallel-size", 1)
    etp = a.whole("expert-tensor-parallel-size", tp)
    topk = a.whole("moe-router-topk", 2)
    score = a.word("moe-router-score-function", "softmax")
    sender = a.word("moe-token-dispatcher-type", "allgather")
    if ep > 1 and (not experts or experts % ep):
        yield "experts are no multiple of their ranks"
    if "overlap-moe-expert-parallel-comm" in a:
        if ep == 1 or sender == "allgather":
            yield "expert overlap wants several ranks and all-to-alls"
        if pp > 1 and not virtual:
            yield "expert overlap wants interleaved stages"
        if not {"bf16", "fp16"} & a.given.keys():
            yield "expert overlap wants 16 bits"
        if a.whole("mtp-num-layers", 0) > 1 or (
                a.whole("mtp-num-layers", 0) == 1 and pp == 1):
            yield "expert overlap beside multi-token prediction"
    if "moe-router-enable-expert-bias" in a and score != "sigmoid":
        yield "biases of experts' scores want sigmoid"
    if topk == 1 and score == "softmax" and "moe-router-pre-softmax" not in a:
        yield "one expert wants softmax before"
    groups = a.whole("moe-router-num-groups")
    if "moe-router-group-topk" in a and (
            not groups or experts % groups or
            a.whole("moe-router-group-topk") > groups):
        yield "groups of experts"
    if not experts:
        if "moe-ffn-hidden-size" in a:
            yield "a width of experts without experts"
        return
    if "disable-bias-linear" not in a and etp != 1:
        yield "biases of experts want expert tensor 1"
    if "moe-enable-deepep" in a and sender != "flex":
        yield "DeepEP wants the flex dispatcher"
    if tp > 1 and "sequence-parallel" not in a:
        yield "experts beside tensor parallelism want sequence parallelism"


def complaints(text, world):
    a = Arguments(text)
    tp = a.whole("tensor-model-parallel-size", 1)
    cp = a.whole("context-parallel-size", 1)
    pp = a.whole("pipeline-model-parallel-size", 1)
    wrong = []
    if {"fp16", "bf16"} <= a.given.keys():
        wrong.append("two precisions")
    virtual, found = virtual_stages(a, pp)
    wrong += found
    wrong += parallel_rules(a, world, tp, cp, pp)
    wrong += batch_rules(a, world, tp, cp, pp, virtual)
    wrong += state_rules(a)
    wrong += fsdp_rules(a, tp, pp)
    wrong += environment_rules(a, text, tp, cp)
    wrong += attention_rules(a, tp, cp)
    wrong += recompute_rules(a)
    wrong += expert_rules(a, tp, pp, virtual)
    return wrong
