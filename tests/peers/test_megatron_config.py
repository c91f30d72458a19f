#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random plans for Megatron-LM pass the checks of megatron-core.

    test_megatron_config.py PROGRAM JOBS

Exports arguments and recipe of the examples, and of each of JOBS seeded jobs that has
a plan. The configuration that the arguments mean (tests/cli/bridge_recipes.py) goes to
megatron-core's own TransformerConfig, DistributedDataParallelConfig and
OptimizerConfig, which raise on inconsistent values as at the start of training. The
resulting stages are the plan's. Recipe and arguments must agree, and satisfy the rules
outside megatron-core's package (tests/cli/megatron_rules.py). Needs torch and
megatron-core; $LONGHAUL_TORCH names a Python that has them.
"""
import dataclasses
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import warnings

from skip_without import skip_without

PROGRAM, JOBS = os.path.abspath(sys.argv[1]), int(sys.argv[2])
warnings.filterwarnings("ignore")
try:
    import torch
    from torch.nn import functional
    from megatron.core import utils
    from megatron.core.activations import squared_relu
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.fusions.fused_bias_geglu import quick_gelu
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer import (MLATransformerConfig,
                                           TransformerConfig)
    from megatron.core.transformer.enums import AttnBackend, LayerType
except ImportError as error:
    skip_without("megatron-core", error, "LONGHAUL_TORCH",
            "its configurations take what is exported")

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
# pylint: disable=wrong-import-position
from bridge_recipes import differences, meant
from example_jobs import example_jobs, plan_example
from megatron_rules import complaints
from random_jobs import job

OBJECTS = {"torch": torch, "F": functional, "AttnBackend": AttnBackend}
FUNCTIONS = {"squared_relu": squared_relu, "quick_gelu": quick_gelu}
# Transformer Engine needs a GPU; code that queries its version gets one.
utils._te_version = utils.PkgVersion("2.11.0")
passed = failed = 0
unfit = []


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def options(text):
    return {words[0][2:]: words[1:] for line in text.splitlines()
            if line.startswith("--") for words in [line.split()]}


def real(value):
    """Returns the object that an attribute of the recipe names."""
    module, _, name = str(value).partition(".")
    if isinstance(value, str) and name and module in OBJECTS:
        return getattr(OBJECTS[module], name)
    return FUNCTIONS.get(value, value) if isinstance(value, str) else value


def made(kind, fields, part):
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: real(value) for where, name, value in
                   ((*key.split(".", 1), value) for key, value in
                    fields.items()) if where == part and name in known})


def configured(given):
    """Returns the model's configuration after all three are made; each may
    raise."""
    # These kernels are looked up in Transformer Engine itself.
    fields = {**meant(given), "model.apply_rope_fusion": False}
    made(DistributedDataParallelConfig, fields, "ddp")
    made(OptimizerConfig, fields, "optimizer")
    return made(MLATransformerConfig if "multi-latent-attention" in given
                else TransformerConfig, fields, "model")


def check_stages(seed, plan, config):
    """Checks that stage k is on rank k mod PP, as its part k div PP."""
    split, layout = config.pipeline_model_parallel_layout, plan["layout"]
    if layout["pipeline"] == 1:
        check(split is None, f"job {seed}: stages of one rank")
        return
    n = layout["pipeline"] * layout["chunks_per_device"]
    built = [split.layout[i % layout["pipeline"]][i // layout["pipeline"]]
             .count(LayerType.decoder) for i in range(n)]
    layers = plan.get("chunk_layers")
    check(sum(built) == config.num_layers and len(built) == n,
          f"job {seed}: {built}")
    check(layers is None or built == layers,
          f"job {seed}: {built} layers, planned {layers}")
    check(split.flatten_layout.count(LayerType.mtp) ==
          (config.mtp_num_layers or 0), f"job {seed}: {split}")


def longhaul(folder, *args):
    return subprocess.run([PROGRAM, *args], cwd=folder, text=True,
                          capture_output=True, check=False)


def check_example(path, text, folder):
    done = plan_example(PROGRAM, path, text, "megatron", folder)
    check(done.returncode == 0, f"a plan of {path}: {done.stderr}")
    if done.returncode == 0:
        check_plan(path.stem, folder)


def check_random(seed, folder):
    """Checks a random job; None: it has no plan."""
    (folder / "job.yaml").write_text(job(random.Random(seed)))
    planned = longhaul(folder, "plan", "job.yaml", "-q", "--for", "megatron",
                       "--no-optimal", "--effort", "300", "-o", "plan.json")
    if planned.returncode:
        # Rejected by Megatron-LM's rules; otherwise the job has no plan for any
        # program.
        if "Megatron-LM" not in planned.stderr:
            alone = longhaul(folder, "plan", "job.yaml", "-q", "--no-optimal",
                             "--effort", "300", "-o", "plan.json")
            check(alone.returncode or
                  re.search("learned .* positions|chunks, but", planned.stderr),
                  f"job {seed}: {planned.stderr}")
            unfit.append(seed)
        return None
    return check_plan(seed, folder)


def check_plan(seed, folder):
    """Checks plan.json; returns Megatron-LM's arguments."""
    plan = json.loads((folder / "plan.json").read_text())
    told, recipe = (longhaul(folder, "export", "plan.json", "--to", target,
                             "--allow-inexact")
                    for target in ("megatron", "megatron-bridge"))
    check(told.returncode == 0, f"job {seed}: {told.stderr}")
    given = options(told.stdout)
    try:
        check_stages(seed, plan, configured(given))
    except (AssertionError, ValueError, TypeError, NotImplementedError) as no:
        check(False, f"job {seed}: megatron-core says {no} of\n{told.stdout}")
    wrong = complaints(told.stdout, plan["search"]["gpus_used"])
    if recipe.returncode == 0:
        wrong += differences(recipe.stdout, given)
    else:
        check("learns one position per token" in recipe.stderr, recipe.stderr)
    check(not wrong, f"job {seed}: {wrong} with\n{told.stdout}")
    return given


def check_faults(given):
    """Checks that inconsistent values are detected."""
    for change in ({"num-attention-heads": ["7"]},
                   {"fp16": [], "bf16": []},
                   {"pipeline-model-parallel-size": ["2"],
                    "pipeline-model-parallel-layout": ["Et|tL"],
                    "num-layers": ["3"]},
                   {"recompute-granularity": ["full"],
                    "recompute-modules": ["core_attn"]}):
        try:
            configured({**given, "tensor-model-parallel-size": ["2"],
                        **change})
            check(False, f"{change} is taken")
        except (AssertionError, ValueError):
            check(True, "refused")


with tempfile.TemporaryDirectory(prefix="longhaul-configured-") as temp:
    for path, text in example_jobs(ROOT, "megatron"):
        check_example(path, text, pathlib.Path(temp))
    found = [given for given in (check_random(seed, pathlib.Path(temp))
                                 for seed in range(JOBS)) if given]
check_faults(next(given for given in found if "num-experts" not in given and
                  given["num-attention-heads"] == ["16"]))
check(len(found) > (JOBS - len(unfit)) / 2,
      f"{len(found)} plans of {JOBS} jobs, {len(unfit)} fit nowhere")
print(f"{len(found)} plans of {JOBS} jobs: {passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
