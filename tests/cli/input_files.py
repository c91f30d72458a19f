# SPDX-License-Identifier: Apache-2.0
"""Input files that several test files share."""
import json
import os

from harness import ROOT, WORK, case, makes, read, run, uniform, write

# Builds without WebAssembly tools report it: tests/browser/test_playground.py.
HAS_PLAYGROUND = run("playground").returncode == 0

SITES = (ROOT / "examples/llama3-70b-two-sites.yaml").read_text()


def names():
    return sorted(os.listdir(WORK))


def loaded(name):
    return json.loads(read(name))


def pipeline():
    """Writes p.yaml, on which zb-h1 takes 458 ms."""
    uniform("p.yaml", latency=8, transfer=1, limit=4)


@makes("p.yaml", "s.csv")
def schedule():
    """Writes p.yaml and its schedule s.csv."""
    pipeline()
    run("schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv")


def job():
    """Writes Llama 3 70B on two sites."""
    write("job.yaml", SITES +
          "layout: {tensor: 8, context: 1, chunks_per_device: 2}\n")


@makes("job.yaml", "plan.json", "plan.html", "told")
def plan():
    """Writes its plan, a report and the program's output."""
    job()
    told = case("plan", ["plan", "job.yaml", "--html", "plan.html",
                         "--show", "all,network"],
                out=r"iteration .*layout .*Other layouts.*"
                    r"Schedules on this layout.*plan +plan\.json\n"
                    r"report +plan\.html\n\Z").stdout
    write("told", told)


# Two stages that train on processors, with this number of replicas.
TRAINED = """
    longhaul: job/1
    model: {layers: 4, hidden: 32, ffn: 48, heads: 2, vocab: 256}
    training: {global_batch: 8, sequence: 16, precision: fp32, zero: 1,
               recompute: none}
    cluster:
      gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}
      gpus_per_node: 8
      node_link: {gbps: 80, latency_us: 10}
      datacenters: [{name: here, nodes: 1}]
    layout: {tensor: 1, context: 1, expert: 1, pipeline: 2, data: %d,
             micro_batch: 1, chunks_per_device: 1, schedule: 1f1b}
    """

# The same with a link between the stages, for batches of this size.
TWO_SITES = """
    longhaul: job/1
    model: {layers: 4, hidden: 32, ffn: 48, heads: 2, vocab: 256}
    training: {global_batch: %d, sequence: 16, precision: fp32, zero: 1,
               recompute: none}
    cluster:
      gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}
      gpus_per_node: 2
      node_link: {gbps: 80, latency_us: 10}
      fabric: {gbps: 10, latency_us: 50}
      datacenters: [{name: west, nodes: 1}, {name: east, nodes: 1}]
      links: [{between: [west, east], latency_ms: 1, gbps: 1}]
    layout: {tensor: 1, context: 1, expert: 1, pipeline: 2, data: 2,
             micro_batch: 1, chunks_per_device: 1, schedule: 1f1b,
             outermost: pipeline}
    """

# A small configuration of torchtitan 0.2.
TORCHTITAN = """\
[model]
name = "llama3"
flavor = "debugmodel"

[training]
local_batch_size = 8
seq_len = 2048

[parallelism]
data_parallel_shard_degree = -1

[activation_checkpoint]
mode = "full"
"""

# Megatron-LM arguments of a small model.
MEGATRON = """\
--num-layers 8 --hidden-size 1024 --num-attention-heads 16
--seq-length 2048 --max-position-embeddings 2048 --vocab-size 32000
--micro-batch-size 1 --global-batch-size 256 --bf16
"""
