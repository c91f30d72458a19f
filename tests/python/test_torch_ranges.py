#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul.torch.name_passes and pass_range: traces with named passes, diagnosed.
longhaul.torch.write_dcp: checkpoints of the cpu device in PyTorch's format.

Needs torch ($LONGHAUL_TORCH names a Python that has it) and longhaul installed by
pip, for the same Python or for that which $LONGHAUL_PYTHON names.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli"), str(HERE.parent / "peers")]
from import_torch import longhaul, torch  # noqa: E402

import harness  # noqa: E402
import longhaul.torch  # noqa: E402
from harness import ROOT, WORK, check, json_case, test  # noqa: E402
from longhaul.torch import name_passes, pass_range  # noqa: E402
from retimed import retime  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.distributed import checkpoint  # noqa: E402
from torch.distributed.pipelining import (  # noqa: E402
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
)
from torch.profiler import profile, schedule  # noqa: E402
from torch_runs import on_ranks  # noqa: E402

MICROBATCHES, STEPS = 4, 2
PASS_US, MESSAGE_US = (10000, 30000), 1000  # passes of each rank


def recorded(rank, folder, step):
    """Runs a step several times; writes a trace with STEPS of them."""
    with profile(
        schedule=schedule(wait=1, warmup=0, active=STEPS, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(
            f"{folder}/rank{rank}.json"),
    ) as profiler:
        for _ in range(STEPS + 1):
            step()
            profiler.step()


def named_job(rank, folder):
    stage = PipelineStage(nn.Linear(16, 16), rank, 2, torch.device("cpu"))
    pipeline = name_passes(Schedule1F1B(
        stage, MICROBATCHES,
        loss_fn=lambda out, target: ((out - target) ** 2).mean()))
    x = torch.randn(2 * MICROBATCHES, 16)

    def step():
        pipeline.step(*([] if rank else [x]),
                      **({"target": x} if rank else {}))
    recorded(rank, folder, step)


def loop_job(rank, folder):
    """A custom loop: all forward passes, then the backward passes in
    reverse."""
    part = nn.Linear(16, 16)

    def step():
        kept = []
        for i in range(MICROBATCHES):
            x = torch.zeros(2, 16)
            if rank:
                distributed.recv(x, 0)
            x.requires_grad_()
            with pass_range("F", rank, i):
                y = part(x)
            kept.append((x, y))
            if not rank:
                distributed.send(y.detach(), 1)
        for i in reversed(range(MICROBATCHES)):
            x, y = kept[i]
            gradient = torch.ones(2, 16)
            if not rank:
                distributed.recv(gradient, 1)
            with pass_range("B", rank, i):
                y.backward(gradient)
            if rank:
                distributed.send(x.grad, 0)
    recorded(rank, folder, step)


def check_diagnosis(job):
    on_ranks(2, job, str(WORK))
    retime([WORK / f"rank{i}.json" for i in range(2)], 2,
           lambda rank, _: PASS_US[rank], lambda *_: MESSAGE_US)
    result = json_case("diagnosed", ["diagnose", "rank0.json", "rank1.json"], 0)
    check((result["n_steps"], result["stages"], result["microbatches"]) ==
          (STEPS, 2, MICROBATCHES), result)
    check(result["remarks"] == [], result["remarks"])
    check([(s["what"], s.get("stage"), s["steps"]) for s in result["slow"]] ==
          [("stage", 1, STEPS)] and abs(result["slow"][0]["ratio"] - 3) < 0.1,
          result["slow"])
    check(result["by_operation"].get("forward-pp-comm", 0) > 0 and
          result["by_operation"].get("backward-pp-comm", 0) > 0,
          result["by_operation"])


@test
def checkpoints_are_pytorchs():
    """PyTorch loads the model's and the optimizer's state, bit for bit."""
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    harness.write("job.yaml", job.replace(
        "layers: 4, hidden: 128, ffn: 384", "layers: 4, hidden: 32, ffn: 64")
        .replace("head_dim: 32", "head_dim: 8"))
    harness.run("plan", "job.yaml", "-o", "plan.json")
    json_case("training", ["train", "plan.json", "--device", "cpu", "--data",
                           str(ROOT / "README.md"), "--steps", "2",
                           "--checkpoint", "run"])
    longhaul.torch.write_dcp(WORK / "run", WORK / "dcp")
    names = longhaul._checkpoints.read_header(
        WORK / "run/step-00000002/model.safetensors")[0]
    model = {name: torch.zeros(one["shape"]) for name, one in names.items()}
    moments = {name: {"exp_avg": torch.zeros_like(value),
                      "exp_avg_sq": torch.zeros_like(value),
                      "step": torch.zeros(())}
               for name, value in model.items()}
    checkpoint.load(
        {"model": model, "optimizer": {"state": moments}},
        checkpoint_id=str(WORK / "dcp"), no_dist=True)
    written = dict(longhaul.torch._checkpoints._tensors(
        WORK / "run/step-00000002/optimizer.safetensors"))
    check(all(one["step"] == 2 and
              torch.equal(one["exp_avg"], written[f"{name}.exp_avg"]) and
              torch.equal(one["exp_avg_sq"], written[f"{name}.exp_avg_sq"])
              for name, one in moments.items()), "the optimizer's state")
    weights = dict(longhaul.torch._checkpoints._tensors(
        WORK / "run/step-00000002/model.safetensors"))
    check(all(torch.equal(weights[name], value) and value.abs().sum() > 0
              for name, value in model.items()), "the weights")


@test
def passes_of_a_schedule_are_named():
    check_diagnosis(named_job)


@test
def passes_of_a_loop_are_named_and_their_messages_derived():
    check_diagnosis(loop_job)


@test
def schedules_with_named_passes_are_unchanged():
    on_ranks(1, gpipe_job)


def gpipe_job(rank):
    stage = PipelineStage(nn.Linear(16, 16), 0, 1, torch.device("cpu"))
    before = stage.forward_one_chunk
    assert name_passes(ScheduleGPipe(stage, 2))._stage is stage
    assert stage.forward_one_chunk == before
    name_passes(Schedule1F1B(stage, 2))
    once = stage.forward_one_chunk, stage.backward_one_chunk
    assert once[0] != before
    name_passes(Schedule1F1B(stage, 2))
    assert (stage.forward_one_chunk, stage.backward_one_chunk) == once
    for call in (lambda: name_passes(nn.Linear(1, 1)),
                 lambda: pass_range("X", 0, 0)):
        try:
            call()
        except longhaul.Error:
            continue
        raise AssertionError("accepted")


harness.finish()
