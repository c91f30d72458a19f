#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchtitan's configuration manager reads what plans for it are exported as.

    test_torchtitan.py PROGRAM

Jobs with a pipeline, experts, sharding inside datacenters, fp32 and what the
framework section says: torchtitan 0.3's ConfigManager takes the options, and
what it reads is what the plan says. Needs torch and torchtitan ($LONGHAUL_TORCH
names a Python that has them).
"""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import stand_ins
from lacking import lacking

PROGRAM = os.path.abspath(sys.argv[1])
stand_ins.put_in()
try:
    from torchtitan.config.manager import ConfigManager
except ImportError as error:
    lacking("torchtitan", error, "LONGHAUL_TORCH",
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


def parsed(text):
    words = [word for line in text.splitlines() if not line.startswith("#")
             for word in line.split()]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return ConfigManager().parse_args(
                ["--module", "llama3", "--config", "llama3_debugmodel",
                 *words])
    except (SystemExit, ValueError) as error:
        check(False, f"refused: {error} {said.getvalue()}\n{text}")
        return None


def compare(config, plan, job):
    p, t, layout = config.parallelism, config.training, plan["layout"]
    check((p.tensor_parallel_degree, p.context_parallel_degree,
           p.expert_parallel_degree, p.pipeline_parallel_degree) ==
          tuple(layout[key] for key in ("tensor", "context", "expert",
                                        "pipeline")), f"degrees: {p}")
    check(p.data_parallel_replicate_degree * p.data_parallel_shard_degree ==
          layout["data"], f"data: {p}")
    check(p.enable_sequence_parallel ==
          ("sequence_parallel: false" not in job[2]), f"sequence: {p}")
    check((t.global_batch_size, t.seq_len) == (64, 4096), f"batch: {t}")
    check(t.mixed_precision_param ==
          ("float32" if "fp32" in job[1] else "bfloat16"), f"precision: {t}")
    check((config.activation_checkpoint is None) ==
          ("recompute: full" not in job[1]) or "recompute" not in job[1],
          config.activation_checkpoint)
    if layout["pipeline"] > 1:
        check(len(p.module_fqns_per_model_part) ==
              layout["pipeline"] * layout["chunks_per_device"], "stages")
        check(p.pipeline_parallel_microbatch_size == layout["micro_batch"],
              "microbatches")


with tempfile.TemporaryDirectory() as folder:
    job_file, plan_file = (pathlib.Path(folder, name)
                           for name in ("job.yaml", "plan.json"))
    for job in JOBS:
        job_file.write_text(JOB.format(model=job[0], training=job[1],
                                       framework=job[2], layout=job[3]))
        longhaul("plan", str(job_file), "--for", "torchtitan", "--no-optimal",
                 "--effort", "2000", "-q", "-o", str(plan_file))
        config = parsed(longhaul("export", str(plan_file), "--to",
                                 "torchtitan"))
        if config:
            compare(config, json.loads(plan_file.read_text()), job)
print(f"{count[True]} passed, {count[False]} failed")
sys.exit(1 if count[False] or not count[True] else 0)
