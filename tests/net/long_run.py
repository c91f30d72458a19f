#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A long run, shortened: 20,000 steps of a tiny model over tcp, with two stages of
two replicas and a checkpoint every 50 steps. From step 2,000 to the end each rank's
memory, open files and threads are constant.

    long_run.py PROGRAM SOURCE_ROOT
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAM, ROOT = (os.path.abspath(sys.argv[1]),
                 pathlib.Path(sys.argv[2]).resolve())
STEPS, SETTLED, EVERY, RANKS = 20000, 2000, 50, 4
# Bytes that may be added: pages of the heap that a later step uses first.
MORE_BYTES = 256 << 10
# Rank 0 stores iteration times for the final report, in an array that is
# doubled when it is full.
ITERATION_BYTES = 2 * 72
HANGS_S = 1800

JOB = """longhaul: job/1
model: {layers: 2, hidden: 16, ffn: 32, heads: 2, kv_heads: 1, head_dim: 8,
        vocab: 256, gated: true, tied_embeddings: true}
training: {global_batch: 4, sequence: 8, precision: fp32, optimizer: adamw,
           zero: 1, recompute: none}
cluster:
  gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}
  gpus_per_node: 4
  node_link: {gbps: 80, latency_us: 10}
  fabric: {gbps: 10, latency_us: 50}
  datacenters:
    - {name: here, nodes: 1}
layout: {tensor: 1, context: 1, expert: 1, pipeline: 2, data: 2,
         micro_batch: 1, chunks_per_device: 1}
"""


def skip(why):
    print("SKIPPED:", why)
    sys.exit(77)


def ranks_of(launcher):
    """Returns the process of each rank, by its number."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if (folder / "stat").read_text().rsplit(")", 1)[1].split()[1] != str(
                    launcher):
                continue
            said = (folder / "environ").read_bytes()
        except OSError:
            continue
        number = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", said)
        if number:
            found[int(number[1])] = int(folder.name)
    return found


def sample(pid):
    """Returns bytes of memory, open files and threads; None: the process has
    ended."""
    of = pathlib.Path("/proc", str(pid))
    try:
        status = (of / "status").read_text()
        return (int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10,
                len(os.listdir(of / "fd")), len(os.listdir(of / "task")))
    except (OSError, TypeError):
        return None


def watch(run, log):
    """Returns samples of all ranks: (steps done, {rank: sample})."""
    samples, steps, at = [], 0, 0
    begin = time.monotonic()
    while run.poll() is None:
        if time.monotonic() - begin > HANGS_S:
            run.kill()
            sys.exit("FAILED: it hangs")
        time.sleep(0.05)
        if not log.exists():
            continue
        with open(log, "rb") as lines:
            lines.seek(at)
            new = lines.read()
        at += len(new)
        steps += new.count(b"\n")
        now = {rank: sample(pid) for rank, pid in ranks_of(run.pid).items()}
        if len(now) == RANKS and all(now.values()):
            samples.append((steps, now))
    return samples


def judge(samples):
    settled = [one for one in samples if SETTLED <= one[0] < STEPS]
    wrong = []
    (first, before), (last, after) = settled[0], settled[-1]
    if first > 2 * SETTLED or last < STEPS * 9 // 10:
        wrong.append(f"samples from step {first} to {last} alone")
    for rank in range(RANKS):
        memory, files, threads = before[rank]
        now = after[rank]
        print(f"rank {rank}: at step {first} {memory >> 10} KiB, {files} files,"
              f" {threads} threads; at step {last} {now[0] >> 10} KiB, {now[1]}"
              f" files, {now[2]} threads")
        may = MORE_BYTES + (0 if rank else ITERATION_BYTES * (last - first))
        if now[0] > memory + may:
            wrong.append(f"rank {rank} has {now[0] - memory} bytes more")
        # A checkpoint that is being written is an open file.
        seen = [one[rank] for step, one in settled]
        least = min(one[1] for one in seen), min(one[2] for one in seen)
        late = [one[rank] for step, one in settled if step > STEPS * 8 // 10]
        if min(one[1] for one in late) > least[0]:
            wrong.append(f"rank {rank} has more files open")
        if min(one[2] for one in late) > least[1]:
            wrong.append(f"rank {rank} has more threads")
    return wrong


def main():
    if not shutil.which("mpirun"):
        skip("mpirun is not installed")
    with tempfile.TemporaryDirectory(prefix="longhaul-long-") as folder:
        work = pathlib.Path(folder)
        (work / "job.yaml").write_text(JOB)
        subprocess.run([PROGRAM, "plan", "job.yaml", "-o", "plan.json"],
                       cwd=work, check=True, stdout=subprocess.DEVNULL)
        with open(work / "said", "w+") as said:
            # Open MPI releases memory only at exit; other tests find leaks.
            options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
            run = subprocess.Popen(
                ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                 str(RANKS), PROGRAM, "train", "plan.json", "--transport",
                 "tcp", "--device", "cpu", "--data",
                 str(ROOT / "README.md"), "--rate", "1e-3", "--steps",
                 str(STEPS), "--checkpoint", "run", "--checkpoint-every",
                 str(EVERY), "--log", "run.jsonl"], cwd=work, stdout=said,
                stderr=said,
                env={**os.environ, "ASAN_OPTIONS": options.lstrip(":")})
            samples = watch(run, work / "run.jsonl")
            said.seek(0)
            text = said.read()
        if run.returncode:
            if "OpenBLAS" in text or "this build" in text:
                skip(text.strip().splitlines()[-1])
            sys.exit(f"FAILED: {text}")
        losses = [json.loads(line)["loss"]
                  for line in (work / "run.jsonl").read_text().splitlines()]
        wrong = judge(samples)
        kept = sorted(os.listdir(work / "run"))
        print(f"{len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}; "
              f"{len(samples)} samples; kept {' '.join(kept)}")
        if len(losses) != STEPS or f"step-{STEPS:08}" not in kept:
            wrong.append("steps or checkpoints are missing")
    for one in wrong:
        print("FAILED:", one)
    sys.exit(1 if wrong else 0)


main()
