#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchtitan's configuration manager reads the exports of plans for it.

    test_torchtitan.py PROGRAM JOBS

Exports the plans of the examples; of four jobs with a pipeline, experts, sharding
inside datacenters, fp32 and a framework section; and of JOBS seeded jobs. torchtitan
0.3's ConfigManager accepts the options, and its values equal the plan's. Needs torch
and torchtitan ($LONGHAUL_TORCH names a Python that has them).
"""
import contextlib
import importlib
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import stand_ins
from skip_without import skip_without

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
# pylint: disable=wrong-import-position
from example_jobs import example_jobs, plan_example
from random_jobs import torchtitan_job

PROGRAM, RANDOM = os.path.abspath(sys.argv[1]), int(sys.argv[2])
stand_ins.put_in()
sys.dont_write_bytecode = True
try:
    from torchtitan.config.manager import ConfigManager
except ImportError as error:
    skip_without("torchtitan", error, "LONGHAUL_TORCH",
            "torchtitan reads exported options")

JOB = """
longhaul: job/1
model: {model}
training: {{global_batch: 64, sequence: 4096, {training}}}
framework: {{{framework}}}
cluster:
  gpu: {{preset: h100-sxm, tflops: 900}}
  gpus_per_node: 8
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{{name: west, nodes: 2}}, {{name: east, nodes: 2}}]
  links: [{{between: [west, east], latency_ms: 10, gbps: 800}}]
layout: {{{layout}}}
"""
JOBS = (
    ("llama3-8b", "zero: 2", "", "pipeline: 2, tensor: 2"),
    ("llama3-8b", "zero: 0, recompute: full",
     "sequence_parallel: false, overlap: {tensor: 0.5}",
     "pipeline: 2, tensor: 4, chunks_per_device: 2"),
    ("qwen3-30b-a3b", "zero: 3, recompute: full", "",
     "pipeline: 1, expert: 4"),
    ("llama3-8b", "zero: 3, precision: fp32", "",
     "pipeline: 1, outermost: data, sharding: hybrid"),
)
count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def longhaul(*args):
    done = subprocess.run([PROGRAM, *args], text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr}")
    return done.stdout


def parsed(text, folder, own_model):
    """Returns the configuration, with the exported model or torchtitan's small
    one: tyro takes seconds to read a model with many layers."""
    words = [word for line in text.splitlines() if not line.startswith("#")
             for word in line.split()]
    if not own_model:
        words = [*words[:-1], "--module", "llama3", "--config",
                 "llama3_debugmodel", words[-1]]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            sys.modules.pop("longhaul_model", None)
            sys.path.insert(0, str(folder))
            importlib.invalidate_caches()
            config = ConfigManager().parse_args(words)
            sys.path.pop(0)
            if own_model:
                config.model_spec.model.update_from_config(config=config)
            return config
    except (SystemExit, ValueError, NotImplementedError) as error:
        check(False, f"refused: {error} {said.getvalue()}\n{text}")
        return None


def compare(config, plan, text, own_model):
    p, t, layout = config.parallelism, config.training, plan["layout"]
    said = plan["job"]["training"]
    check((p.tensor_parallel_degree, p.context_parallel_degree,
           p.expert_parallel_degree, p.pipeline_parallel_degree) ==
          tuple(layout[key] for key in ("tensor", "context", "expert",
                                        "pipeline")), f"degrees: {p}")
    check(p.data_parallel_replicate_degree * p.data_parallel_shard_degree ==
          layout["data"], f"data: {p}")
    check((p.data_parallel_shard_degree * layout["context"] > 1) ==
          (plan["zero"] > 0 and layout["data"] * layout["context"] > 1),
          f"ZeRO {plan['zero']}: {p}")
    check(p.enable_sequence_parallel ==
          ("sequence_parallel: false" not in text) or layout["tensor"] == 1,
          f"sequence: {p}")
    check((t.global_batch_size, t.seq_len, t.local_batch_size) ==
          (said["global_batch"], said["sequence"],
           said["global_batch"] // layout["data"] if layout["pipeline"] > 1
           else layout["micro_batch"]), f"batch: {t}")
    model, shape = config.model_spec.model, plan["job"]["model"]
    if isinstance(shape, dict) and own_model:
        check((model.dim, len(model.layers), model.vocab_size) ==
              tuple(shape[key] for key in ("hidden", "layers", "vocab")),
              f"model: {shape}")
    check(t.mixed_precision_param ==
          ("float32" if said["precision"] == "fp32" else "bfloat16"),
          f"precision: {t}")
    check((config.activation_checkpoint is None) ==
          (plan["recompute"] == "none"), config.activation_checkpoint)
    if layout["pipeline"] > 1:
        parts = p.module_fqns_per_model_part
        layers = [sum(name.startswith("layers.") for name in part)
                  for part in parts]
        check(layers == plan.get("chunk_layers", layers) and len(layers) ==
              layout["pipeline"] * layout["chunks_per_device"],
              f"stages: {parts}")
        check(p.pipeline_parallel_microbatch_size == layout["micro_batch"],
              "microbatches")


def check_job(folder, text):
    """Checks a job's export; False: the job is infeasible."""
    (folder / "job.yaml").write_text(text)
    done = subprocess.run(
        [PROGRAM, "plan", "job.yaml", "--for", "torchtitan", "--no-optimal",
         "--effort", "500", "-q", "-o", "plan.json"], cwd=folder, text=True,
        capture_output=True, check=False)
    return done.returncode == 0 and check_plan(folder, text, True)


def check_example(path, text, folder):
    done = plan_example(PROGRAM, path, text, "torchtitan", folder)
    return done.returncode == 0 and check_plan(folder, text, False)


def check_plan(folder, text, own_model):
    told = longhaul("export", str(folder / "plan.json"), "--to", "torchtitan",
                    "--allow-inexact")
    (folder / "longhaul_model.py").write_text(longhaul(
        "export", str(folder / "plan.json"), "--to", "torchtitan-model",
        "--allow-inexact"))
    config = parsed(told, folder, own_model)
    if config:
        compare(config, json.loads((folder / "plan.json").read_text()), text,
                own_model)
    return True


with tempfile.TemporaryDirectory() as temp:
    for job in JOBS:
        check(check_job(pathlib.Path(temp), JOB.format(
            model=job[0], training=job[1], framework=job[2], layout=job[3])),
            f"a plan of {job}")
    for path, example in example_jobs(ROOT, "torchtitan"):
        check(check_example(path, example, pathlib.Path(temp)),
              f"a plan of {path}")
    plans = sum(check_job(pathlib.Path(temp),
                          torchtitan_job(random.Random(seed)))
                for seed in range(RANDOM))
check(plans > RANDOM / 3, f"{plans} plans of {RANDOM} jobs")
print(f"{plans} plans of {RANDOM} jobs: {count[True]} passed, "
      f"{count[False]} failed")
sys.exit(1 if count[False] or not count[True] else 0)
