#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports run: PyTorch's pipelining runtime over gloo, Megatron's own parser.

    test_runtime.py PROGRAM SOURCE_ROOT

Two and four processes train a small model for one step by our schedules, with
PyTorch's communication and with ours (of four, both with all cases only); losses and gradients must equal those of the
undivided model. Needs torch (2.15 for the second form) and, for the layout string,
megatron-core; $LONGHAUL_TORCH names a Python that has them. Without torch the test is
skipped with a message.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(sys.argv[2]).resolve()
warnings.filterwarnings("ignore")
try:
    import torch
    from torch import distributed, multiprocessing, nn
    from torch.distributed.pipelining import PipelineStage, schedules
except ImportError as error:
    skip_without("torch", error, "LONGHAUL_TORCH", "exports run in PyTorch")

WIDTH, ROWS = 16, 2  # of a microbatch
ALL = "LONGHAUL_ALL_CASES" in os.environ


def block(stage):
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def loss_of(output, target):
    return ((output - target) ** 2).sum()


def data(n):
    torch.manual_seed(99)
    return torch.randn(n * ROWS, WIDTH), torch.randn(n * ROWS, WIDTH)


def reference(stages, n):
    model = nn.Sequential(*(block(s) for s in range(stages)))
    x, y = data(n)
    loss = loss_of(model(x), y)
    loss.backward()
    return loss.item(), [[p.grad.clone() for p in part.parameters()]
                         for part in model]


def work(rank, ranks, cases, meeting, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}",
                                   rank=rank, world_size=ranks)
    lines = []
    for name, path, form, stages, n, places in cases:
        parts = [PipelineStage(block(s), s, stages, torch.device("cpu"))
                 for s in range(stages) if places[s] == rank]
        run = schedules._PipelineScheduleRuntime(
            parts, n, loss_fn=loss_of, scale_grads=False)
        run._load_csv(path, format=form)
        x, y = data(n)
        losses = []
        has_last = places[stages - 1] == rank
        run.step(*([x] if places[0] == rank else []),
                 **({"target": y, "losses": losses} if has_last else {}))
        loss, gradients = reference(stages, n)
        bad = [s.stage_index for s in parts
               for mine, want in zip(s.submod.parameters(),
                                     gradients[s.stage_index])
               if not torch.allclose(mine.grad, want, rtol=1e-4, atol=1e-5)]
        got = sum(item.item() for item in losses)
        if bad or (has_last and abs(got - loss) > 1e-4 * abs(loss)):
            lines.append(f"{name}: rank {rank}: gradients of {bad}, "
                         f"loss {got} for {loss}")
    pathlib.Path(folder, f"rank{rank}").write_text("\n".join(lines))
    distributed.destroy_process_group()


def export(folder, placement, devices, n, method, form):
    stages = devices * (1 if placement == "ud" else 2)
    pipeline = folder / f"{placement}{devices}.yaml"
    pipeline.write_text(
        "longhaul: pipeline/1\ntime_unit: ms\n"
        f"microbatches: {n}\ndevices: {devices}\n"
        f"uniform: {{placement: {placement}, F: 38, D: 48, W: 20, "
        "memory: {F: 1, W: -1}}\n"
        "datacenters: {count: 2, latency: 20, transfer: 3}\n")
    name = f"{method}-{placement}-{devices}x{n}-{form}"
    path = folder / f"{name}.csv"
    subprocess.run([PROGRAM, "export", pipeline, "-s", method, "--form", form,
                    "-q", "-o", path], check=True, stdout=subprocess.DEVNULL)
    place = {"ud": lambda s: s, "loop": lambda s: s % devices,
             "wave": lambda s: min(s, 2 * devices - 1 - s)}[placement]
    return (name, str(path), form, stages, n, [place(s) for s in range(stages)])


passed = failed = skipped = 0
forms = ["compute_only"]
if "WAIT_SEND_F" in schedules._ComputationType.__members__:
    forms.append("compute_comms")
with tempfile.TemporaryDirectory(prefix="longhaul-runtime-") as temp:
    folder = pathlib.Path(temp)
    for devices in (2, 4):
        cases = [export(folder, placement, devices, 8, method, form)
                 for method, placement in
                 (("1f1b", "ud"), ("zb-h1", "ud"), ("greedy", "ud"),
                  ("interleaved-1f1b", "loop"), ("dorapp", "loop"),
                  ("flexible", "loop"), ("zb-v", "wave"),
                  ("zbv-phases", "wave"), ("interleaved-zbv", "wave"),
                  ("greedy", "wave"), ("dualpipev", "wave"))
                 for form in (forms[-1:] if devices == 4 and not ALL
                              else forms)]
        multiprocessing.start_processes(
            work, (devices, cases, f"{temp}/meeting{devices}", temp),
            nprocs=devices, start_method="fork")
        wrong = [line for rank in range(devices)
                 for line in (folder / f"rank{rank}").read_text().splitlines()]
        for line in wrong:
            print("FAILED:", line, file=sys.stderr)
        failed += len({line.split(":")[0] for line in wrong})
        passed += len(cases) - len({line.split(":")[0] for line in wrong})

    try:
        from megatron.core.transformer.pipeline_parallel_layer_layout import (
            PipelineParallelLayerLayout)
    except ImportError as error:
        PipelineParallelLayerLayout = None
        skipped += 1
        print(f"SKIPPED: no megatron-core ({error})", file=sys.stderr)
    for method in ("1f1b", "interleaved-1f1b"):
        if not PipelineParallelLayerLayout:
            break
        job = (ROOT / "examples/llama3-70b-two-sites.yaml").read_text()
        job += (f"\nlayout: {{schedule: {method}, pipeline: 4, tensor: 8, "
                f"chunks_per_device: {1 if method == '1f1b' else 2}}}\n")
        (folder / "job.yaml").write_text(job)
        subprocess.run([PROGRAM, "plan", folder / "job.yaml", "-q", "-o",
                        folder / "plan.json", "--for", "megatron"], check=True,
                       stdout=subprocess.DEVNULL)
        text = subprocess.run(
            [PROGRAM, "export", folder / "plan.json", "--to", "megatron"],
            check=True, capture_output=True, text=True).stdout
        string = re.search(r"-layout (\S+)", text)[1]
        plan = json.loads((folder / "plan.json").read_text())
        try:
            layout = PipelineParallelLayerLayout.from_str(string, 4)
            layout.validate_layer_layout(80, 0)
            chunks = plan["layout"]["chunks_per_device"]
            ok = layout.virtual_pipeline_model_parallel_size == chunks
        except Exception as error:  # any exception of Megatron-LM
            ok = False
            print(f"FAILED: {string}: {error}", file=sys.stderr)
        passed, failed = passed + ok, failed + (not ok)

print(f"torch {torch.__version__}: {passed} passed, {failed} failed, "
      f"{skipped} skipped")
sys.exit(1 if failed else 0)
