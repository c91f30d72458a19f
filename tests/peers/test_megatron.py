#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans for Megatron-LM, compared with megatron-core.

    test_megatron.py PROGRAM

Seeded jobs and examples are planned with --for megatron. megatron-core builds the
process groups of the exported arguments, with torch's fake process group and no GPU.
Every rank's pipeline, data and expert groups must be those of the costed plan, in its
datacenters. Each device's pass order must equal megatron-core's own schedule, and an
iteration in that order must have the exported duration. Needs torch and
megatron-core; $LONGHAUL_TORCH names a Python that has them.
"""
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

PROGRAM = os.path.abspath(sys.argv[1])
warnings.filterwarnings("ignore")
try:
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from megatron.core import parallel_state
    from megatron.core.distributed.fsdp import mcore_fsdp_adapter as fsdp
    from megatron.core.pipeline_parallel import schedules
except ImportError as error:
    skip_without("megatron-core", error, "LONGHAUL_TORCH",
            "Megatron-LM runs what was planned for it")

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
# pylint: disable=wrong-import-position
from example_jobs import by_replicas, example_jobs, plan_example

ALL_CASES = "LONGHAUL_ALL_CASES" in os.environ
JOBS, WORLDS = 10 if ALL_CASES else 4, 32
# maximum number of GPUs of an example: every rank creates all groups
LARGEST = 256
FIXED, RANKS = 80, 3  # jobs with given layouts; number of tested ranks of each
passed = failed = 0
count = dict.fromkeys(("plans", "context", "experts", "hybrid", "fsdp"), 0)


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAILED:", what, file=sys.stderr)
    return ok


def layout_keys(r, experts):
    """Returns part of a layout; the rest is searched."""
    keys = [r.choice(("pipeline: 2", "pipeline: 4", "pipeline: 4", "")),
            r.choice(("tensor: 2", "tensor: 4", "context: 2", "")),
            r.choice(("outermost: data", "outermost: pipeline", "")),
            r.choice(("chunks_per_device: 2", "chunks_per_device: 1", ""))]
    if experts:
        keys.append(r.choice(("expert: 4", "expert: 8", "")))
    return keys


def whole_layout(r, experts):
    """Returns a complete layout of 32 GPUs."""
    size = {name: r.choice(values) for name, values in (
        ("pipeline", (1, 2, 4)), ("tensor", (1, 2, 4)),
        ("context", (1, 1, 2, 4)))}
    if size["pipeline"] * size["tensor"] * size["context"] == 64:
        size["context"] = 2
    data = 32 // (size["pipeline"] * size["tensor"] * size["context"])
    size |= {"data": data, "micro_batch": 1,
             "chunks_per_device": r.choice((1, 2)),
             "expert": r.choice((1, 2, 4, 8)) if experts else 1}
    return [*(f"{name}: {n}" for name, n in size.items()),
            "outermost: " + r.choice(("data", "pipeline")),
            "sharding: " + r.choice(("full", "hybrid"))]


def job(r, keys_of=layout_keys):
    model = r.choice((
        "{name: d, layers: 16, hidden: 2048, heads: 16, vocab: 32000, "
        "ffn: 8192, kv_heads: 4, gated: true}",
        "{name: e, layers: 12, hidden: 1024, heads: 16, vocab: 32000, "
        "experts: 16, experts_per_token: 2, expert_ffn: 2048}"))
    nodes = r.choice(((2, 2), (1, 3), (4,), (1, 1, 2)))
    sites = list(zip("abc", nodes))
    links = ", ".join(f"{{between: [{x}, {y}], latency_ms: 5, gbps: 100}}"
                      for x, _ in sites for y, _ in sites if x < y)
    keys = keys_of(r, "experts" in model)
    zero = r.choice((", zero: 2", ", zero: 3", "")) if "pipeline: 1" in keys \
        else ""
    return f"""
longhaul: job/1
model: {model}
training: {{global_batch: {r.choice((32, 64, 80, 96))}, sequence: 4096{zero}}}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{", ".join(f"{{name: {x}, nodes: {n}}}" for x, n in sites)}]
{f"  links: [{links}]" if links else ""}
layout: {{{", ".join(key for key in keys if key)}}}
"""


def options(text):
    return {words[0][2:]: words[1:] for line in text.splitlines()
            if line.startswith("--") for words in [line.split()]}


def order_of(passes):
    """Parses "0F0,4F0" to kinds, chunks and microbatches."""
    return [(kind, int(chunk), int(batch)) for chunk, kind, batch in
            re.findall(r"(\d+)([FB])(\d+)", passes)]


def megatron_order(rank, pipeline, chunks, n, group):
    """Returns the passes of megatron-core's schedule on a rank, from its own
    tables."""
    if chunks == 1:
        warm_up = min(pipeline - rank - 1, n)
        forward = backward = [(m, 0) for m in range(n)]
    else:
        _, _, warm_up, _ = schedules.get_pp_rank_microbatches(
            n, chunks, group)
        forward = schedules.get_schedule_table(n, chunks, group)
        backward = [(m, chunks - 1 - c) for m, c in forward]
    passes = [("F", *forward[i]) for i in range(warm_up)]
    for i in range(len(forward)):
        if warm_up + i < len(forward):
            passes.append(("F", *forward[warm_up + i]))
        passes.append(("B", *backward[i]))
    return [(kind, c * pipeline + rank, m) for kind, m, c in passes]


def datacenters(text, world):
    """Returns the datacenter of each rank; without remarks there is one."""
    where = [None] * world
    for first, last, name in re.findall(r"# Ranks (\d+) to (\d+): (\S+)",
                                        text):
        where[int(first):int(last) + 1] = [name] * (int(last) - int(first) + 1)
    return where


def site_of(sites, replica, stage):
    for group in sites:
        if replica < group["replicas"]:
            for part in group["pipeline"]:
                if stage < part["stages"]:
                    return part["datacenter"]
                stage -= part["stages"]
        replica -= group["replicas"]


def check_groups(rank, layout, world, where, instances):
    """Checks that ranks of tensor and context groups are consecutive, that a
    stage's replicas follow the outermost dimension, and that hybrid sharding
    stays within a datacenter."""
    tensor, block = layout["tensor"], layout["tensor"] * layout["context"]
    first = rank - rank % block
    step = block * (layout["pipeline"] if by_replicas(layout) else 1)
    start = rank % step if by_replicas(layout) else (
        rank - rank % (world // layout["pipeline"]) + rank % block)
    replicas = [start + step * i for i in range(layout["data"])]
    for what, group, planned in (
            ("tensor", parallel_state.get_tensor_model_parallel_group(),
             [rank - rank % tensor + i for i in range(tensor)]),
            ("context", parallel_state.get_context_parallel_group(),
             [first + rank % tensor + i * tensor
              for i in range(layout["context"])]),
            ("data", parallel_state.get_data_parallel_group(), replicas)):
        ranks = distributed.get_process_group_ranks(group)
        check(ranks == planned, f"rank {rank}: {what} group {ranks}, planned "
              f"{planned}")
    if instances > 1:
        ranks = distributed.get_process_group_ranks(
            parallel_state.get_data_parallel_group(
                with_context_parallel=True, partial_data_parallel=True))
        count["hybrid"] += 1
        check(len({where[r] for r in ranks}) == 1 and len(ranks) * instances ==
              layout["data"] * layout["context"],
              f"rank {rank}: {ranks} share state, in {where}")


def check_fsdp(instances):
    """Creates FSDP's rank layout, which raises if it contradicts the groups."""
    whole = parallel_state.get_data_parallel_group(
        with_context_parallel=True, partial_data_parallel=instances > 1)
    tensor = parallel_state.get_tensor_model_parallel_group()
    count["fsdp"] += 1
    if instances > 1:
        fsdp._get_hsdp_tp_mesh(
            parallel_state.get_inter_distributed_optimizer_instance_group(),
            whole, tensor)
        return
    fsdp._get_dp_tp_mesh(whole, tensor)
    fsdp._get_dp_tp_mesh(
        parallel_state.get_expert_data_parallel_group(),
        parallel_state.get_expert_tensor_parallel_group(),
        ep_size=parallel_state.get_expert_model_parallel_world_size())


def check_rank(rank, plan, given, where, orders):
    """Creates megatron-core's state from the arguments on one rank; adds its
    stage's passes to `orders`."""
    layout = plan["layout"]
    world = plan["search"]["gpus_used"]
    distributed.init_process_group("fake", store=FakeStore(), rank=rank,
                                   world_size=world)
    chunks = layout["chunks_per_device"]

    def size(name):
        return int(given.get(name, ["1"])[0])

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=size("tensor-model-parallel-size"),
        pipeline_model_parallel_size=size("pipeline-model-parallel-size"),
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 and
        layout["pipeline"] > 1 else None,
        context_parallel_size=size("context-parallel-size"),
        expert_model_parallel_size=size("expert-model-parallel-size"),
        expert_tensor_parallel_size=size("expert-tensor-parallel-size") if
        "expert-tensor-parallel-size" in given else None,
        order="tp-cp-ep-pp-dp" if "use-tp-pp-dp-mapping" in given
        else "tp-cp-ep-dp-pp", create_gloo_process_groups=False,
        num_distributed_optimizer_instances=size(
            "num-distributed-optimizer-instances"))
    stage = parallel_state.get_pipeline_model_parallel_rank()
    replica = parallel_state.get_data_parallel_rank()
    check(parallel_state.get_data_parallel_world_size() == layout["data"],
          f"rank {rank}: replicas")
    if "sites" in layout and where[rank]:
        here = site_of(layout["sites"], replica, stage)
        check(here == where[rank], f"rank {rank}, stage {stage} of replica "
              f"{replica}: is told to be in {where[rank]}, planned in {here}")
    if "num-experts" in given:
        block = layout["expert"] * layout.get(
            "expert_tensor", layout["tensor"] if layout["expert"] == 1 else 1)
        ranks = distributed.get_process_group_ranks(
            parallel_state.get_expert_tensor_and_model_parallel_group())
        group = layout["tensor"] * layout["context"]
        pipeline = layout["pipeline"]
        of_stage = [r for r in range(world)
                    if (r // group % pipeline if by_replicas(layout)
                        else r // (world // pipeline)) == stage]
        first = of_stage.index(rank) // block * block
        check(ranks == of_stage[first:first + block],
              f"rank {rank}: {ranks} share a layer's experts, planned "
              f"{of_stage[first:first + block]}")
    instances = size("num-distributed-optimizer-instances")
    check_groups(rank, layout, world, where, instances)
    if "use-megatron-fsdp" in given:
        check_fsdp(instances)
    if rank % (layout["tensor"] * layout["context"]) == 0:
        n = plan["microbatches"]
        mine = order_of(plan["schedule"]["rows"][stage])
        if layout["pipeline"] > 1:
            orders[stage] = megatron_order(
                stage, layout["pipeline"], chunks, n,
                int(given.get("microbatch-group-size-per-virtual-pipeline-stage",
                              [layout["pipeline"]])[0]))
            check(mine == orders[stage], f"rank {rank}: order of stage {stage}")
    parallel_state.destroy_model_parallel()
    distributed.destroy_process_group()


def check_time(seed, plan, orders, folder):
    """Checks the time of an iteration in which each device runs megatron-core's
    order."""
    if plan["layout"]["pipeline"] == 1:
        return
    rows = [orders[stage] for stage in range(plan["layout"]["pipeline"])]
    (folder / "order.csv").write_text("".join(
        ",".join(f"{chunk}{kind}{batch}" for kind, chunk, batch in row) + "\n"
        for row in rows))
    told = json.loads(subprocess.run(
        [PROGRAM, "simulate", folder / "plan.json", "-s", folder / "order.csv",
         "--json"], check=True, capture_output=True, text=True).stdout)
    took = round(told["iteration_s"] * 1e9)
    check(took == plan["iteration_ns"], f"job {seed}: {took} ns in "
          f"megatron-core's order, planned {plan['iteration_ns']}")


def check_job(seed, folder, keys_of=layout_keys, effort="4000", most=WORLDS):
    """Checks a seeded job with such a layout. Returns whether it is a
    pipeline."""
    r = random.Random(seed)
    (folder / "job.yaml").write_text(job(r, keys_of))
    done = subprocess.run(
        [PROGRAM, "plan", folder / "job.yaml", "--for", "megatron", "-q",
         "--no-optimal", "--effort", effort, "-o", folder / "plan.json"],
        capture_output=True, text=True)
    if done.returncode:
        if keys_of == layout_keys:
            print(f"job {seed}: {done.stderr.strip()}", file=sys.stderr)
        return False
    return check_plan(seed, folder, r, most)


def check_example(path, text, folder):
    done = plan_example(PROGRAM, path, text, "megatron", folder)
    if check(done.returncode == 0, f"{path.stem} has no plan: {done.stderr}"):
        check_plan(path.stem, folder, random.Random(path.stem), RANKS, LARGEST)


def check_plan(seed, folder, r, most, largest=None):
    """Checks plan.json on this many ranks; skips plans of more than `largest`
    GPUs."""
    plan = json.loads((folder / "plan.json").read_text())
    told = subprocess.run(
        [PROGRAM, "export", folder / "plan.json", "--to", "megatron"],
        check=True, capture_output=True, text=True).stdout
    world = plan["search"]["gpus_used"]
    if largest and world > largest:
        return False
    check(f"{plan['iteration_ns'] / 1e9:.3f} s per iteration" in told,
          f"job {seed}: the time of the header")
    where = datacenters(told, world)
    given = options(told)
    orders = {}
    ranks = (r.sample(range(world), most) if most < world
             else range(0, world, max(1, world // most)))
    for rank in ranks:
        check_rank(rank, plan, given, where, orders)
    if len(orders) == plan["layout"]["pipeline"]:
        check_time(seed, plan, orders, folder)
    count["context"] += plan["layout"]["context"] > 1
    count["experts"] += plan["layout"]["expert"] > 1
    count["plans"] += 1
    return plan["layout"]["pipeline"] > 1


with tempfile.TemporaryDirectory(prefix="longhaul-megatron-") as temp:
    pipelines = sum(check_job(seed, pathlib.Path(temp))
                    for seed in range(JOBS))
    for seed in range(1000, 1000 + FIXED):
        check_job(seed, pathlib.Path(temp), whole_layout, "300", RANKS)
    for path, text in example_jobs(ROOT, "megatron"):
        check_example(path, text, pathlib.Path(temp))
check(pipelines >= JOBS // 3, f"{pipelines} plans with pipelines")
check(count["plans"] > FIXED // 3 and min(count.values()) > 4,
      f"what was looked at: {count}")
print(count)
print(f"megatron-core: {passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
