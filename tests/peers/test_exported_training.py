#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exported plans train: PyTorch over gloo, compared with one process.

    test_exported_training.py PROGRAM

A dense model and one with experts are planned for PyTorch and for torchtitan on 2, 4
and 8 GPUs. The same number of processes trains by the exported schedule, in one of
its two forms (with all cases in both, and on 8 GPUs with experts for PyTorch too), with the plan's stages, replicas, sharding and
recomputation, and with experts distributed over the plan's ranks by all-to-all. Each
microbatch's loss and the gradients, over several steps, must equal those of one
process, bit for bit if both add in the same order. Needs torch 2.15; $LONGHAUL_TORCH names a Python that has it.
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

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
# pylint: disable=wrong-import-position
from example_jobs import by_replicas

PROGRAM = os.path.abspath(sys.argv[1])
warnings.filterwarnings("ignore")
try:
    import torch
    from torch import distributed, multiprocessing
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage, schedules
    import small_model
    if "WAIT_SEND_F" not in schedules._ComputationType.__members__:
        raise ImportError(f"torch {torch.__version__} is older than 2.15")
except ImportError as error:
    skip_without("torch", error, "LONGHAUL_TORCH", "exported plans train")

LAYERS, EXPERTS, PER_TOKEN, SEQUENCE, STEPS, PACE = 8, 4, 2, 8, 3, 0.5
ALL_CASES = "LONGHAUL_ALL_CASES" in os.environ
JOB = """
longhaul: job/1
model: {{name: m, layers: {layers}, hidden: 64, heads: 4, vocab: 256,
  {ffn}}}
training: {{global_batch: 16, sequence: {sequence}{training}}}
cluster:
  gpu: h100-sxm
  gpus_per_node: 2
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{sites}]
{links}
layout: {{tensor: 1, context: 1, {layout}}}
"""
# Target, GPUs of each datacenter, whether with experts, training, layout.
PLANS = (
    ("pytorch", (2,), False, "", "pipeline: 2"),
    ("torchtitan", (2,), True, "zero: 2", "pipeline: 1, expert: 2"),
    ("pytorch", (2, 2), True, "zero: 0",
     "pipeline: 2, data: 2, expert: 2, schedule: zb-v, outermost: pipeline"),
    ("pytorch", (2, 2), False, "recompute: full",
     "pipeline: 2, data: 2, outermost: data, schedule: 1f1b"),
    ("torchtitan", (4,), False, "zero: 2",
     "pipeline: 2, data: 2, chunks_per_device: 2"),
    ("torchtitan", (4,), False, "zero: 3",
     "pipeline: 2, data: 2, chunks_per_device: 2, outermost: pipeline"),
    ("pytorch", (4, 4), True, "",
     "pipeline: 2, data: 4, expert: 2, schedule: interleaved-1f1b, "
     "outermost: data"),
    ("torchtitan", (4, 4), True, "zero: 2",
     "pipeline: 2, data: 4, expert: 4"),
    ("pytorch", (2, 6), False, "", "pipeline: 4, data: 2"),
)


def longhaul(*args):
    done = subprocess.run([PROGRAM, *args], text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr}")


class Case:
    """A plan and its export."""

    def __init__(self, folder, number, asked):
        target, sites, experts, training, layout = asked
        names = "ab"[:len(sites)]
        job, plan, stages = (folder / f"{number}.{end}"
                             for end in ("yaml", "plan", "stages"))
        job.write_text(JOB.format(
            layers=LAYERS, sequence=SEQUENCE, layout=layout,
            ffn=f"experts: {EXPERTS}, experts_per_token: {PER_TOKEN}, "
            "expert_ffn: 64" if experts else "ffn: 128",
            training=f", {training}" if training else "",
            links="  links: [{between: [a, b], latency_ms: 1, gbps: 100}]"
            if len(sites) > 1 else "",
            sites=", ".join(f"{{name: {name}, nodes: {gpus // 2}}}"
                            for name, gpus in zip(names, sites))))
        longhaul("plan", str(job), "--for", target, "--no-optimal", "--effort",
                 "2000", "-q", "-o", str(plan))
        self.csv = {form: str(folder / f"{number}.{form}") for form in
                    ("compute_only", "compute_comms")}
        for form, path in self.csv.items():
            longhaul("export", str(plan), "--to", "pytorch", "--form", form,
                     "--stages", str(stages), "-o", path)
        # Unless all cases run, a plan trains in one form, the next in the other.
        self.trained = (list(self.csv) if ALL_CASES else
                        [list(self.csv)[number % 2]])
        self.plan = json.loads(plan.read_text())
        split = json.loads(stages.read_text())
        self.names = split["module_fqns_per_model_part"]
        self.places = split["stage_ranks"]
        self.world, self.experts = sum(sites), EXPERTS if experts else 0
        layout = self.plan["layout"]
        self.devices, self.replicas = layout["pipeline"], layout["data"]
        self.together = layout["expert"]  # ranks with one layer's experts
        self.again = self.plan["recompute"] == "full"
        self.sharded = self.plan["zero"] >= 2
        self.wanted = str(folder / f"{number}.wanted")
        self.name = (f"{number}, {target}: {layout['schedule']} on "
                     f"{self.plan['placement']}, {self.devices} x "
                     f"{self.replicas}, {self.together} with experts, ZeRO "
                     f"{self.plan['zero']}")

    def rank(self, device, replica):
        if by_replicas(self.plan["layout"]):
            return replica * self.devices + device
        return device * self.replicas + replica

    def where(self, rank):
        if by_replicas(self.plan["layout"]):
            return rank % self.devices, rank // self.devices
        return rank // self.replicas, rank % self.replicas

    def model(self, group=None, names=None):
        return small_model.Model(LAYERS, self.experts, PER_TOKEN, group,
                                 self.again and names is not None, names)

    def in_order(self, chunk):
        """Tests whether a chunk's gradients are added in the order of
        microbatches."""
        row = self.plan["schedule"]["rows"][self.places[chunk]].split(",")
        numbers = [int(cell.split(kind)[1]) for cell in row for kind in "BW"
                   if cell.startswith(f"{chunk}{kind}")]
        return numbers == sorted(numbers)


def of_one_process(_, cases):
    """Returns the expected result, computed in one process."""
    torch.set_num_threads(1)
    for case in cases:
        torch.save(small_model.train(
            case.model(), case.replicas, 16,
            case.plan["layout"]["micro_batch"], SEQUENCE, STEPS, PACE),
            case.wanted)


class Groups:
    """A rank's process groups: pipeline, replicas of its stage, experts. Every
    rank creates all groups of the job."""

    def __init__(self, case, rank):
        self.device, self.replica = case.where(rank)
        every, block = range(case.replicas), case.together
        lines = [[case.rank(d, r) for d in range(case.devices)] for r in every]
        stages = [[case.rank(d, r) for r in every]
                  for d in range(case.devices)]
        self.pipeline, self.replicas, self.experts, self.copies = (
            self.mine(rank, lists) for lists in (
                lines, stages,
                [s[i:i + block] for s in stages
                 for i in range(0, case.replicas, block)],
                [s[i::block] for s in stages for i in range(block)]))

    @staticmethod
    def mine(rank, lists):
        groups = [(ranks, distributed.new_group(ranks)) for ranks in lists]
        return next(group for ranks, group in groups if rank in ranks)


def shard(case, model, groups):
    """Applies ZeRO 2 or 3 layer by layer, like torchtitan. Experts are sharded
    over the ranks that hold the same ones."""
    def over(module, group):
        mesh = distributed.DeviceMesh.from_group(group, "cpu")
        fully_shard(module, mesh=mesh, reshard_after_forward=
                    case.plan["zero"] == 3).set_gradient_divide_factor(1.0)
    for layer in model.layers.values():
        if case.together > 1:
            over(layer.mlp.bank, groups.copies)
        over(layer, groups.replicas)
    over(model, groups.replicas)


def whole(case, model, groups):
    """Returns complete gradients, summed over replicas."""
    for name, weight in model.named_parameters():
        spread = ".bank." in name and case.together > 1
        if spread:  # numbered from the first one on this rank
            layer = model.layers[name.split(".")[1]]
            name = re.sub(r"mlps\.(\d+)", lambda at: "mlps."
                          f"{int(at[1]) + layer.mlp.first}", name)
        if case.sharded:
            yield name, weight, weight.grad.full_tensor()
            continue
        total = weight.grad.clone()
        distributed.all_reduce(
            total, group=groups.copies if spread else groups.replicas)
        yield name, weight, total


def differ(got, want, exact):
    """Tests for differences beyond the rounding of another summation order."""
    got, want = (torch.as_tensor(t, dtype=torch.float64) for t in (got, want))
    return ((got - want).abs() >
            (0 if exact else 1e-12) * (1 + want.abs().max())).any()


def compare(case, parts, groups, step, losses, wanted):
    """Returns the differences, and whether the loss decreases."""
    want_losses, want = wanted[0][step], wanted[1][step]
    wrong, n = [], case.plan["microbatches"]
    exact = (case.replicas <= 2 and case.together == 1 and
             all(case.in_order(chunk) for chunk in range(len(case.names))))
    if losses and differ([loss.item() for loss in losses],
                         want_losses[n * groups.replica:][:n],
                         exact or step == 0):
        wrong.append("losses")
    for part in parts:
        for name, weight, total in whole(case, part.submod, groups):
            if differ(total, want[name], exact):
                wrong.append(f"gradient of {name}")
            with torch.no_grad():
                local = weight.grad if case.sharded else total
                weight -= PACE * local
            weight.grad = None
    return wrong


def train(rank, case, form):
    groups = Groups(case, rank)
    parts = []
    for s, names in enumerate(case.names):
        if case.places[s] == groups.device:
            model = case.model(groups.experts if case.together > 1 else None,
                               names)
            if case.sharded:
                shard(case, model, groups)
            parts.append(PipelineStage(model, s, len(case.names),
                                       torch.device("cpu"),
                                       group=groups.pipeline))
    n = case.plan["microbatches"]
    run = schedules._PipelineScheduleRuntime(
        parts, n, loss_fn=small_model.loss_of(16 * SEQUENCE),
        scale_grads=False)
    run._load_csv(case.csv[form], format=form)
    wanted = torch.load(case.wanted)
    wrong = []
    for step in range(STEPS):
        x, y = (t.chunk(case.replicas)[groups.replica]
                for t in small_model.data(16, SEQUENCE, step))
        losses = []
        last = case.places[-1] == groups.device
        run.step(*([x] if case.places[0] == groups.device else []),
                 **({"target": y, "losses": losses} if last else {}))
        wrong += [f"step {step}: {what}" for what in
                  compare(case, parts, groups, step, losses, wanted)]
    return wrong


def work(rank, world, cases, meeting, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}",
                                   rank=rank, world_size=world)
    lines = [f"{case.name}, {form}, rank {rank}: {', '.join(wrong[:3])}"
             for case in cases for form in case.trained
             for wrong in [train(rank, case, form)] if wrong]
    pathlib.Path(folder, f"rank{rank}").write_text("\n".join(lines))
    distributed.destroy_process_group()


with tempfile.TemporaryDirectory(prefix="longhaul-training-") as temp:
    every = [Case(pathlib.Path(temp), i, asked)
             for i, asked in enumerate(PLANS)
             if ALL_CASES or asked[:3] != ("pytorch", (4, 4), True)]
    multiprocessing.start_processes(of_one_process, (every,), nprocs=1,
                                    start_method="fork")
    failed = []
    for world in (2, 4, 8):
        cases = [case for case in every if case.world == world]
        multiprocessing.start_processes(
            work, (world, cases, f"{temp}/meeting{world}", temp),
            nprocs=world, start_method="fork")
        for rank in range(world):
            failed += pathlib.Path(temp, f"rank{rank}").read_text().splitlines()
for line in failed:
    print("FAILED:", line, file=sys.stderr)
for case in every:
    print(case.name)
runs = sum(len(case.trained) for case in every)
print(f"torch {torch.__version__}: {len(every)} plans, {runs} runs, "
      f"{len(failed)} differ")
sys.exit(1 if failed else 0)
