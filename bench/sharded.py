#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares fully sharded training with PyTorch's FSDP2 over gloo.

    bench/sharded.py LONGHAUL [--replicas N] [--steps N] [--data FILE] >sharded.json

N processes each, one program after the other: longhaul with an elastic plan of
one stage (zero: 3, four chunks, --transport local), and
torch.distributed.fsdp.fully_shard (all parameters in one group, gathered before
each forward and backward) on the model of peer_torch_train.py. Both use the same
initial weights, windows, optimizer and rates, with one thread per process. Prints
the difference of the losses and the duration of a step: medians of real time
without the first step. Needs torch and numpy ($LONGHAUL_TORCH names a Python that
has them).
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time

from running import run

HERE = pathlib.Path(__file__).resolve().parent
try:
    import numpy
    import torch
    import peer_torch_train as peer
except ImportError:
    other = os.environ.get("LONGHAUL_TORCH")
    if other:  # once only
        environment = {k: v for k, v in os.environ.items()
                       if k != "LONGHAUL_TORCH"}
        os.execve(other, [other, *sys.argv], environment)
    raise

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 8, 4, 2, 32
SEQUENCE, MICROBATCH, MICROBATCHES, SEED = 128, 2, 4, 1
RATE, MIN_RATE, WARMUP = 1e-3, 1e-4, 2

JOB = """longhaul: job/1
model: {{layers: {layers}, hidden: 128, ffn: 344, heads: {heads}, kv_heads: {kv_heads},
        head_dim: {head_dim}, vocab: 256, gated: true, tied_embeddings: false}}
training: {{global_batch: {batch}, sequence: {sequence}, precision: fp32,
           optimizer: adamw, zero: {zero}, recompute: none}}
cluster:
  gpu: {{tflops: 0.1, memory_gib: 4, memory_gbps: 20}}
  gpus_per_node: 1
  node_link: {{gbps: 80, latency_us: 10}}
  fabric: {{gbps: 10, latency_us: 50}}
  datacenters: [{{name: here, nodes: {replicas}}}]
layout: {{tensor: 1, context: 1, expert: 1, pipeline: 1, data: {replicas},
         micro_batch: {microbatch}, chunks_per_device: 4, schedule: elastic}}
"""


def ours(program, replicas, steps, data, folder, zero):
    """Runs longhaul: returns losses, step times, and the maximum memory of a
    rank without activations, which differ between plans of other levels."""
    job, plan = folder / "job.yaml", folder / "plan.json"
    job.write_text(JOB.format(
        layers=LAYERS, heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM,
        sequence=SEQUENCE, microbatch=MICROBATCH, replicas=replicas, zero=zero,
        batch=replicas * MICROBATCH * MICROBATCHES))
    run(program, "plan", job, "-q", "-o", plan)
    train = [program, "train", plan, "--device", "cpu", "--transport", "local",
             "--data", data, "--seed", SEED]
    weights = folder / "step-00000001/model.safetensors"
    if not weights.exists():
        run(*train, "--steps", 1, "--checkpoint", folder)
    done = json.loads(run(
        *train, "--steps", steps, "--rate", RATE, "--min-rate", MIN_RATE,
        "--warmup", WARMUP, "--weights", weights, "--json"))
    return ([one["loss"] for one in done["iterations"]],
            [one["seconds"] for one in done["iterations"]],
            max(one["measured_bytes"] - one["by_kind"]["activations"]
                for one in done["memory"]))


def worker(replicas, rank, meeting, steps, data, weights):
    """Trains in one PyTorch process; returns [loss, seconds] of each step."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank,
                            world_size=replicas)
    mesh = dist.device_mesh.init_device_mesh("cpu", (replicas,))
    model = peer.Llama(peer.read_safetensors(weights), HEADS, KV_HEADS,
                       HEAD_DIM, SEQUENCE)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    train = peer.Training(model, numpy.fromfile(data, "uint8"), SEQUENCE,
                          MICROBATCH, MICROBATCHES, SEED, steps, RATE,
                          MIN_RATE, WARMUP)
    train.replica, train.replicas = rank, replicas
    rows = []
    for _ in range(steps):
        dist.barrier()
        begin = time.monotonic()
        loss = torch.tensor([train.step()[0]])
        seconds = time.monotonic() - begin
        dist.all_reduce(loss)
        # gradients, and so partial losses, are means over replicas
        rows.append([loss.item() / replicas, seconds])
    dist.destroy_process_group()
    return rows


def theirs(replicas, steps, data, weights, worker):
    """Returns losses and step times of one worker per replica. The processes are
    forked, so that only this one imports torch; rank 0 writes its rows."""
    def work(rank, folder):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        rows = worker(replicas, rank, f"file://{folder}/meeting", steps, data,
                      weights)
        if rank == 0:
            pathlib.Path(folder, "rows").write_text(json.dumps(rows))

    with tempfile.TemporaryDirectory() as folder:
        all_ = [multiprocessing.get_context("fork").Process(
            target=work, args=(rank, folder)) for rank in range(replicas)]
        for one in all_:
            one.start()
        for one in all_:
            one.join()
        if any(one.exitcode for one in all_):
            sys.exit("PyTorch's processes failed")
        rows = json.loads(pathlib.Path(folder, "rows").read_text())
    return [row[0] for row in rows], [row[1] for row in rows]


def compare(program, replicas, steps, data, levels=(3, 1)):
    data = os.path.abspath(data)
    row = {"replicas": replicas, "steps": steps,
           "tokens_per_step": replicas * MICROBATCH * MICROBATCHES * SEQUENCE}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for zero in levels:
            losses, seconds, held = ours(program, replicas, steps, data,
                                         folder, zero)
            row[f"zero{zero}_s"] = statistics.median(seconds[1:])
            row[f"zero{zero}_bytes_without_activations"] = held
            if zero == 3:
                want = losses
        got, seconds = theirs(replicas, steps, data,
                              folder / "step-00000001/model.safetensors",
                              worker)
    row["torch_s"] = statistics.median(seconds[1:])
    row["losses"], row["torch_losses"] = want, got
    row["worst_loss"] = max(abs(a / b - 1) for a, b in zip(want, got))
    row["torch_over_ours"] = row["torch_s"] / row["zero3_s"]
    return row


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("program")
    arguments.add_argument("--replicas", type=int, default=2)
    arguments.add_argument("--steps", type=int, default=8)
    arguments.add_argument("--data", default=str(HERE.parent / "LICENSE"))
    o = arguments.parse_args()
    json.dump(compare(o.program, o.replicas, o.steps, o.data), sys.stdout,
              indent=1)
    print()


if __name__ == "__main__":
    main()
