#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul.torch on a GPU that all processes share: messages use host memory over
gloo, since NCCL requires a GPU per process.

Needs a GPU, torch ($LONGHAUL_TORCH names a Python that has it) and longhaul
installed by pip. LONGHAUL_PLACE=cpu runs the tests that work without a GPU.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli"), str(HERE.parent / "peers")]
from import_torch import longhaul, torch  # noqa: E402

import harness  # noqa: E402
import torch_runs  # noqa: E402
from harness import ROOT, WORK, check, run, test  # noqa: E402
from skip_without import SKIP  # noqa: E402
from longhaul.torch import Adapt, PipelineRuntime, profile  # noqa: E402
from torch_runs import RATE, on_ranks, run_cases, trains  # noqa: E402

PLACE = os.environ.get("LONGHAUL_PLACE", "cuda")
IS_GPU = PLACE == "cuda"
if not IS_GPU:
    from longhaul.torch import _runtime, _transport

    def _staged(method):
        def checked(end, ops, tag, staged):
            check(staged, f"message {tag} goes by gloo as it is")
            return method(end, ops, tag, staged)

        return checked

    _runtime._needs_host = lambda *_: True
    _transport.Inlet.post = _staged(_transport.Inlet.post)
    _transport.Outlet.send = _staged(_transport.Outlet.send)


def has_gpu():
    """Tests for a GPU in another process, since CUDA does not survive a
    fork."""
    child = os.fork()
    if child == 0:
        os._exit(not torch.cuda.is_available())
    return os.waitpid(child, 0)[1] == 0


def made(text, rank, schedule="1f1b", **given):
    return PipelineRuntime(
        text, torch_runs.stages_of(text, rank, place=PLACE), schedule=schedule,
        loss_fn=torch_runs.loss_of, scale_grads=False, **given)


def same_losses(got, text, steps):
    want, _ = on_ranks(1, torch_runs.one_job, len(longhaul.torch.places(text)),
                       8, steps, RATE, 1, PLACE)[0]
    check(got == want, f"losses are those of one process, each bit: {got}")


@test
def two_processes_equal_one():
    got = run_cases(2, [
        ("ud", "joint", "1f1b", {}),
        ("ud", "split", "zb-h1", {}),
        ("ud", "split", "greedy", {"path": "delegated"}),
        ("loop", "joint", "interleaved-1f1b", {}),
        ("wave", "split", "zb-v", {}),
        ("wave", "split", "greedy", {"inject": "dc0-dc1=latency:1ms"}),
    ], PLACE)
    check({case[2] for case in got[0]} == {"delegated"},
          f"gloo sends no GPU's memory: {[case[2] for case in got[0]]}")


@test
def four_processes_equal_one():
    run_cases(4, [
        ("ud", "split", "zb-h1", {}),
        ("loop", "split", "interleaved-1f1b", {}),
        ("wave", "split", "zb-v", {}),
        ("wave", "split", "greedy", {"inject": "dc0-dc1=latency:5ms"}),
    ], PLACE)


def refused_job(rank, text):
    told = []
    for given in ({"path": "direct"}, {"path": ["dc0>dc1"]},
                  {"adapt": Adapt(coupled=1, staging_s=1e-3)}):
        try:
            made(text, rank, **given)
            told.append("nothing")
        except longhaul.Error as error:
            told.append(str(error))
    return told


@test
def paths_that_gloo_has_not_are_refused():
    for told in on_ranks(2, refused_job, torch_runs.pipeline(2)):
        check("'dc0>dc1' is to be direct, but" in told[0] and
              "'dc1>dc0' is to be direct, but" in told[1] and
              "staging_s: messages have no other path" in told[2], f"{told}")


SPIN_MS = 20


class Spin(torch.autograd.Function):
    """Keeps the GPU busy; the host continues."""

    @staticmethod
    def forward(ctx, x):
        if IS_GPU:
            torch.cuda._sleep(int(SPIN_MS * 1e-3 * 2.2e9))  # 2.2 GHz at most
        else:
            time.sleep(SPIN_MS * 1e-3)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Spinning(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return Spin.apply(self.part(x))


def measured_job(rank, text, path):
    torch.set_default_device(PLACE)  # control messages remain in host memory
    stages = torch_runs.stages_of(
        text, rank, place=PLACE,
        wrap=lambda part: Spinning(part) if rank == 0 else part)
    runtime = PipelineRuntime(
        text, stages, schedule="1f1b", loss_fn=torch_runs.loss_of,
        scale_grads=False, inject="dc0-dc1=latency:30ms")
    trains(runtime, 2, 8)
    runtime.write_trace(path)
    runtime.inject("dc0>dc1=latency:60ms,transfer:10ms")
    trains(runtime, 1, 8)
    runtime.close()
    return runtime.step_s


@test
def passes_are_timed_where_they_run():
    text = torch_runs.pipeline(2, backward="joint", latency=30)
    (WORK / "p.yaml").write_text(text)
    measured, predicted = WORK / "measured.json", WORK / "predicted.json"
    slow, _ = on_ranks(2, measured_job, text, str(measured))
    check(slow > 0.15, f"8 transfers of 10 ms and 60 ms in {slow} s")
    events = json.loads(measured.read_text())["traceEvents"]
    passes = {e["name"]: (e["args"]["end_ns"] - e["args"]["start_ns"]) * 1e-6
              for e in events if e.get("cat") == "pass"}
    spun = [ms for name, ms in passes.items() if name.startswith("0F")]
    check(len(spun) == 8 and min(spun) >= SPIN_MS - 1, f"{passes}")
    messages = [e["args"] for e in events if e.get("cat") == "message"]
    check(len(messages) == 16 and
          all(m["arrive_ns"] - m["produced_ns"] >= 30_000_000
              for m in messages), f"{messages}")
    run("simulate", WORK / "p.yaml", "-s", "1f1b", "--trace", predicted)
    done = run("report", "--predicted", predicted, "--measured", measured,
               "-o", WORK / "r.html")
    check(done.returncode == 0 and "messages" in done.stdout and
          "only" not in done.stdout, f"{done.stdout}{done.stderr}")
    print(done.stdout)


@test
def a_slow_link_brings_another_schedule_and_no_other_bits():
    for devices in (2, 4):
        text = torch_runs.pipeline(devices, times=(3, 1, 1))
        got = on_ranks(devices, torch_runs.slow_job, text, 16, PLACE)
        switches = [one[1] for one in got]
        check(switches[0] and all(one == switches[0] for one in switches),
              f"all ranks switch together: {switches}")
        check(got[0][2] == switches[0][-1].to != "1f1b", f"{got[0][2]} runs")
        same_losses(got[-1][0], text, 16)
        for switch in switches[0]:
            print(f"step {switch.step}: {switch.to}: {switch.why}")


@test
def replicas_equal_one_process():
    want, _ = on_ranks(1, torch_runs.one_job, 2, 8, 2, RATE, 2, PLACE)[0]
    got = on_ranks(4, torch_runs.replicas_job,
                   torch_runs.pipeline(2, backward="joint"), "1f1b", "ddp",
                   PLACE)
    for step, losses in enumerate(want):
        mine = got[1][step] + got[3][step]
        check(all(abs(a - b) <= 1e-12 * abs(b)
                  for a, b in zip(mine, losses, strict=True)),
              f"step {step}: {mine} is not {losses}")


def example(name, processes, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node",
         str(processes), ROOT / "examples/torch" / name, "--device", PLACE,
         *map(str, arguments)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    check(done.returncode == 0, f"{done.stdout}{done.stderr[-2000:]}")
    return done.stdout


@test
def the_examples_run():
    out = example("adapting.py", 4, "--pass-ms", 2, "--latency", 2, "--slower",
                  10, "--steps", 9, "--begin", 4, "--end", 7)
    check(out.count("are the bits of one process") == 2, out)
    out = example("train.py", 2, "--steps", 18, "--change", 6)
    check("same losses" in out, out)


def profile_job(rank):
    """Measures a layer on the GPU, in a process that then frees it."""
    model = ("{layers: 4, hidden: 1024, ffn: 4096, heads: 16, kv_heads: 4, "
             "head_dim: 64, vocab: 4096, gated: true, qkv_bias: true}")
    made = profile(f"""\
longhaul: job/1
model: {model}
training: {{global_batch: 8, sequence: 1024, precision: bf16}}
cluster:
  gpu: h100-sxm
  gpus_per_node: 2
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{{name: west, nodes: 2}}]
""", tensor=[1, 2], micro_batch=[1, 4], repeats=3, device=PLACE)
    return made


@test
def layers_are_timed_by_events():
    got = on_ranks(1, profile_job)[0]
    times = {(e["kind"], e.get("tensor", 1), e.get("micro_batch", 1)): e["F_us"]
             for e in got["entries"]}
    check(len(times) == 12 and min(times.values()) > 0, f"{times}")
    name = "cuda" if IS_GPU else "CPU"
    check(IS_GPU == ("CPU" not in got["source"]), f"{name}: {got['source']}")


if __name__ == "__main__":
    if IS_GPU and not has_gpu():
        print("SKIPPED: torch sees no GPU; that longhaul.torch runs on one is "
              "not tested", file=sys.stderr)
        sys.exit(SKIP)
    harness.finish()
