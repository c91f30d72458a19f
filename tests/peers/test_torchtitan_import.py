#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of longhaul import agree with torchtitan.

    test_torchtitan_import.py PROGRAM ROOT

Every option of torchtitan 0.3 is known, and no other; the import's defaults equal those
of its configurations; its models have as many parameters as the import's. Needs torch
and torchtitan ($LONGHAUL_TORCH names a Python that has them).
"""
import dataclasses
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import stand_ins
from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(sys.argv[2]).resolve()
stand_ins.put_in()
try:
    import torch
    from torchtitan.distributed import activation_checkpoint as ac
    from torchtitan.config.manager import ConfigManager  # noqa: F401
except ImportError as error:
    skip_without("torchtitan", error, "LONGHAUL_TORCH",
            "imported configurations are torchtitan's")

MODULES = {"llama3": "llama3", "deepseek_v3": "deepseekv3", "qwen3": "qwen3",
           "gpt_oss": "gptoss"}
KINDS = {ac.FullAC.Config: "full", ac.SelectiveAC.Config: "selective",
         type(None): "none"}
count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def imported(text, *options):
    """Returns the job's text, or None and the error."""
    done = subprocess.run([PROGRAM, "import", "--from", "torchtitan", "-",
                           "--nodes", "16", "-q", *options], input=text,
                          text=True, capture_output=True)
    return (done.stdout if done.returncode == 0 else None), done.stderr


def value(job, key):
    found = re.search(rf"^ *{key}: +([^#\n]*?) *(#.*)?$", job, re.M)
    return found and found[1]


def configurations():
    """Returns (module, name, configuration) of those that can be created
    here."""
    for module in MODULES:
        registry = importlib.import_module(
            f"torchtitan.models.{module}.config_registry")
        for name, function in vars(registry).items():
            if (getattr(function, "__module__", None) != registry.__name__ or
                    not callable(function) or name.startswith("_") or
                    name[0].isupper()):
                continue
            try:  # some need torchao, or a GPU
                made = function()
            except (ImportError, TypeError, ValueError):
                continue
            if made is not None:
                yield module, name, made


# --- options ----------------------------------------------------------------

def walk(config, before, out):
    for field in dataclasses.fields(config):
        it = getattr(config, field.name)
        if "Suppress" in str(field.type) or field.name == "model_spec":
            continue
        if dataclasses.is_dataclass(it):
            walk(it, f"{before}{field.name}.", out)
        else:
            out[f"{before}{field.name}"] = it


def as_option(name, it):
    if isinstance(it, bool):
        head, _, last = name.rpartition(".")
        return f"--{head + '.' if head else ''}{'' if it else 'no-'}{last}"
    if isinstance(it, (list, dict)):
        return f"--{name} {'x' if 'components' in name else ''}"
    return f"--{name} '{it}'"


def options_are_known(made):
    known = {}
    for config in made:
        walk(config, "", known)
    for kind in (ac.SelectiveAC, ac.FullAC, ac.MemoryBudgetAC):
        walk(kind.Config(), "activation_checkpoint.", known)
    # Options that are lists of maps, and an option with an alias.
    for name in ("optimizer.param_groups", "activation_checkpoint",
                 "optimizer.optimizer_factory_kwargs_by_name"):
        known.pop(name, None)
    for name, it in known.items():
        if name.startswith(("checkpoint.exclude", "activation_checkpoint.force",
                            "override.imports")):
            it = "x"
        if name.endswith("module_fqns_per_model_part") or it is None:
            it = "1"
        if name.endswith("optimizer_name"):
            it = "AdamW"
        text = f"--training.seq_len 4096 {as_option(name, it)}"
        job, said = imported(text + " activation-checkpoint:full", "--model",
                             "llama3-8b")
        check("has no key" not in said, f"{text}: {said}")
    return known


def options_are_theirs(known):
    """Checks that the tables' option names exist."""
    source = "".join((ROOT / "src/interop/import" / name).read_text() for name in
                     ("torchtitan_internal.h", "torchtitan_unmapped.c"))
    flat = " ".join(source.replace("\\\n", " ").split())
    names = (re.findall(r'X\(\w+, "([^"]+)", \w+, (\w+)\)', flat) +
             re.findall(r'(?:FREE|NOTED|REFUSED)\( ?"([^"]+)", (\w+),', flat))
    check(len(names) > 150, f"{len(names)} names")
    for name, form in names:
        if form in ("OPTIONS", "BOTH") and "*" not in name and name not in (
                "module", "config", "job.config_file",
                "activation_checkpoint.mode"):
            check(name in known, f"torchtitan has no {name}")


# --- configurations ---------------------------------------------------------

def configurations_are_theirs(made):
    same = 0
    for module, name, config in made:
        job, said = imported(f"--module {module} --config {name}")
        if job is None:
            check(re.search(f"unknown configuration '{name}'; known: ", said),
                  said)
            continue
        same += 1
        p, t = config.parallelism, config.training
        check((value(job, "sequence"), value(job, "micro_batch"),
               value(job, "tensor"), value(job, "expert") or "1") ==
              tuple(map(str, (t.seq_len, t.local_batch_size,
                              p.tensor_parallel_degree,
                              p.expert_parallel_degree))), f"{name}: {job}")
        check(value(job, "recompute") ==
              KINDS[type(config.activation_checkpoint)], f"{name}: {job}")
        compiled = config.compile.enable and "model" in config.compile.components
        check((value(job, "kernels") == "eager") != compiled, name)
        piped, _ = imported(f"--module {module} --config {name} --parallelism."
                            "pipeline_parallel_degree 2 --training.local_batch_"
                            "size 4 --parallelism.expert-parallel-degree 1")
        check(value(piped, "schedule") ==
              {"1F1B": "1f1b", "Interleaved1F1B": "interleaved-1f1b"}[
                  p.pipeline_parallel_schedule], f"{name}: {piped}")
    check(same >= 10, f"{same} configurations are known")


# --- models -----------------------------------------------------------------

def parameters(job):
    """Counts the parameters of a job's model from its sizes."""
    preset = value(job, "model")
    if preset:
        done = subprocess.run([PROGRAM, "init", "-m", preset, "--json"],
                              text=True, capture_output=True, check=True)
        return json.loads(done.stdout)["parameters"]
    m = {k: json.loads(v) for k, v in re.findall(
        r"^  (\w+): (.*)$", job.partition("model:\n")[2].partition(
            "\ntraining:")[0], re.M)}
    width, heads, head = m["hidden"], m["heads"], m.get("head_dim", 0)
    if m.get("kv_lora_rank"):
        rank, rope = m["kv_lora_rank"], m["qk_rope_head_dim"]
        nope, v, q = m["qk_nope_head_dim"], m["v_head_dim"], m.get(
            "q_lora_rank", 0)
        head = nope + rope
        attention = (width * q + q + q * heads * head if q
                     else width * heads * head)
        attention += (width * (rank + rope) + rank + rank * heads * (nope + v) +
                      heads * v * width)
    else:
        kv = m.get("kv_heads", heads)
        attention = width * head * (heads + 2 * kv) + heads * head * width
        if m.get("qkv_bias"):
            attention += head * (heads + 2 * kv) + width
        attention += 2 * head * m.get("qk_norm", False)
        attention += heads * m.get("attention_sinks", False)
    experts, bias = m.get("experts", 0), m.get("mlp_bias", False)
    each = m.get("expert_ffn", 0)
    sparse = experts * (3 * width * each + bias * (2 * each + width) + width +
                        m.get("router_bias", False))
    sparse += 3 * width * m.get("shared_expert_ffn", 0)
    dense = 3 * width * m.get("ffn", 0)
    n_dense = m.get("dense_layers", 0) if experts else m["layers"]
    words = m["vocab"] * width * (1 if m.get("tied_embeddings") else 2)
    return (words + width + m["layers"] * (attention + 2 * width) +
            n_dense * dense + (m["layers"] - n_dense) * sparse)


def models_are_theirs():
    known = 0
    for module, name in MODULES.items():
        models = importlib.import_module(f"torchtitan.models.{module}")
        for flavor in getattr(models, f"{name}_configs"):
            job, _ = imported(f"[model]\nname = '{module}'\n"
                              f"flavor = '{flavor}'\n")
            if job is None:
                continue
            with torch.device("meta"):
                model = models.model_registry(flavor).model.build()
            theirs = sum(p.numel() for p in model.parameters())
            known += 1
            check(parameters(job) == theirs,
                  f"{module} {flavor}: {parameters(job)}, not {theirs}")
    check(known >= 17, f"{known} models are known")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    all_made = list(configurations())
    options_are_theirs(options_are_known([made for *_, made in all_made]))
    configurations_are_theirs(all_made)
    models_are_theirs()
print(f"{count[True]} passed, {count[False]} failed")
sys.exit(1 if count[False] or not count[True] else 0)
