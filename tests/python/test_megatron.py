#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul.megatron: plans run as megatron-core's forward-backward function, over gloo
with small models on CPUs. Losses and gradients equal those of megatron-core's own
schedules, bit for bit.

Needs torch and megatron-core ($LONGHAUL_TORCH names a Python that has them) and
longhaul installed by pip, for the same Python or for that which $LONGHAUL_PYTHON names.
"""
import dataclasses
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import types
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli"), str(HERE.parent / "peers")]
from import_torch import longhaul, torch  # noqa: E402
from skip_without import skip_without  # noqa: E402

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
try:
    import megatron.core  # noqa: F401
except ImportError as error:
    skip_without("megatron-core", error, "", "longhaul.megatron")

import engine_layers  # noqa: E402
import harness  # noqa: E402
import megatron_runs  # noqa: E402
import torch_runs  # noqa: E402
from harness import ROOT, WORK, check, long_test, test  # noqa: E402

EXPERTS = {"num_moe_experts": 4, "moe_router_topk": 2, "add_bias_linear": False,
           "moe_token_dispatcher_type": "allgather", "moe_aux_loss_coeff": 0.01,
           "moe_router_load_balancing_type": "aux_loss"}
RECOMPUTED = {"calculate_per_token_loss": True, "recompute_granularity": "full",
              "recompute_method": "uniform", "recompute_num_layers": 1}
SHARDED = {"use_distributed_optimizer": True, "overlap_grad_reduce": True,
           "overlap_param_gather": True}
ALIGNED = SHARDED | {"align_param_gather": True}
IN_FP32 = {"grad_reduce_in_fp32": True}


def elastic(gradients, parameters, groups=2, **options):
    """Returns a case of an elastic pipeline. Groups that are scattered early
    have another order of sums than Megatron's optimizer."""
    return ("elastic", "joint", "elastic", {"elastic": {
        "gradients": gradients, "parameters": parameters, "groups": groups},
        "steps": 2, **options})


# The weight gradient of microbatch 1 is computed first.
LATE_FIRST = "".join(
    f"{','.join(f'{chunk}{one}' for one in row.split())}\n" for chunk, row in enumerate((
        "F0 F1 I0 F2 I1 W1 W0 F3 I2 W2 I3 W3", "F0 I0 F1 I1 W1 W0 F2 I2 W2 F3 I3 W3")))
EARLY = {"clip": 0.4, "tolerance": 1e-6}


def compare(ranks, groups):
    wrong, count = megatron_runs.run_groups(ranks, groups)
    check(count == sum(len(group[3]) for group in groups), f"{count} cases")
    check(not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20]))


@test
def two_ranks_equal_megatron():
    compare(2, [
        ({"pipeline": 2}, {}, None, [
            ("ud", "split", "look-ahead", {"path": "delegated"}),
            ("loop", "joint", "interleaved-1f1b", {}),
            ("wave", "split", "zb-v", {"inject": "dc0-dc1=latency:1ms"}),
            ("wave", "split", "zb-v", {"forward_only": True}),
            ("ud", "split", "1f1b", {"steps": 3, "schedule_at":
                                     {1: "zb-h1", 2: "gpipe"}})]),
        ({"pipeline": 2}, EXPERTS | RECOMPUTED, None, [
            ("wave", "split", "zb-v", {})]),
        ({"pipeline": 2}, {"engine": "fused"}, SHARDED, [
            ("ud", "split", LATE_FIRST, {}), ("wave", "split", "zb-v", {})]),
    ])


@long_test
def every_layer_of_transformer_engine_defers_weight_gradients():
    cases = [("ud", "split", "zb-h1", {"steps": 2}),
             ("ud", "split", LATE_FIRST, {"steps": 2}),
             ("wave", "split", "zb-v", {"steps": 2})]
    compare(4, [({"pipeline": 2, **layout}, {"engine": engine, **settings}, sharding,
                 cases)
                for layout, settings in (({}, {}), ({}, RECOMPUTED),
                                         ({"expert": 2}, EXPERTS))
                for engine in ("plain", "fused")
                for sharding in (None, SHARDED)])


@test
def four_ranks_equal_megatron():
    compare(4, [
        ({"pipeline": 2, "tensor": 2}, {"sequence_parallel": True}, None, [
            ("ud", "split", "zb-h1", {})]),
        ({"pipeline": 2, "expert": 2}, EXPERTS, SHARDED, [
            ("wave", "split", "zb-v", {"steps": 2})]),
        ({"pipeline": 2}, {}, IN_FP32, [elastic(0.75, 0.5, **EARLY)]),
    ])


@long_test
def elastic_plans_on_four_ranks_equal_megatron():
    compare(4, [
        ({"pipeline": 2}, {}, IN_FP32, [
            elastic(0, 0), elastic(1, 1, groups=1),
            elastic(1, 1, **EARLY), elastic(0.75, 0, inject="", **EARLY)]),
        ({"pipeline": 2, "tensor": 2}, {"sequence_parallel": True}, IN_FP32, [
            elastic(0.75, 0.5, **EARLY)]),
        ({"pipeline": 2}, EXPERTS | RECOMPUTED, IN_FP32, [
            elastic(0.75, 0.5, **EARLY)]),
        ({"pipeline": 2, "expert": 2}, EXPERTS, IN_FP32, [
            elastic(1, 1, groups=1), elastic(0.75, 0.5, **EARLY)]),
        ({"pipeline": 1, "expert": 2}, EXPERTS | {"microbatches": 4}, IN_FP32, [
            elastic(0, 0, tolerance=1e-6), elastic(0.75, 0.5, **EARLY)]),
    ])


@long_test
def elastic_plans_on_eight_ranks_equal_megatron():
    compare(8, [
        ({"pipeline": 4}, {}, IN_FP32, [elastic(0.75, 0.5, **EARLY)]),
        ({"pipeline": 2, "tensor": 2}, {"sequence_parallel": True}, IN_FP32, [
            elastic(0.75, 0.5, **EARLY)])])


OFFLOADED = """longhaul: job/1
model: {name: small, layers: 8, hidden: 4096, heads: 32, ffn: 14336, vocab: 32000}
training: {global_batch: 16, sequence: 16384, zero: 1, offload: 0.5, recompute: none}
cluster:
  gpu: h100-sxm
  gpus_per_node: 1
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2}]
  links: [{between: [west, east], latency_ms: 1, gbps: 100}]
layout: {tensor: 1, pipeline: 2, data: 2, micro_batch: 1, outermost: data,
         schedule: 1f1b}
"""


@long_test
def offloaded_activations_change_no_bit():
    text = json.dumps(longhaul.plan(OFFLOADED, optimal=False, threads=1,
                                    progress=False).to_dict())
    compare(4, [({"pipeline": 2}, {}, SHARDED, [
        ("plan", "joint", None, {"text": text, "steps": 2, "offloads": []})])])


def methods_of(placement):
    """Yields the methods that schedule a placement, with the kind of their
    backward passes."""
    for backward in ("joint", "split"):
        text = torch_runs.pipeline(2, placement, backward=backward)
        for name in [*longhaul.methods(), "optimal"]:
            if name == "elastic":
                continue
            try:
                longhaul.schedule(text, name)
            except longhaul.Error:
                continue
            yield backward, name


def every_method(ranks):
    groups = []
    for placement in ("ud", "loop", "wave"):
        groups.append(({"pipeline": ranks}, {}, None, [
            (placement, backward, name, {})
            for backward, name in methods_of(placement)]))
    return groups


@long_test
def every_method_on_two_ranks_equals_megatron():
    compare(2, every_method(2))


@long_test
def every_method_on_four_ranks_equals_megatron():
    compare(4, every_method(4))


@long_test
def every_layout_on_four_ranks_equals_megatron():
    cases = [(*case, {"steps": 2}) for case in (
        ("ud", "split", "look-ahead"), ("ud", "split", "zb-h1"),
        ("loop", "joint", "interleaved-1f1b"), ("loop", "split", "greedy"),
        ("wave", "split", "zb-v"))]
    compare(4, [(layout, settings, sharding, cases)
                for layout, settings in (
                    ({"pipeline": 2, "tensor": 2}, {}),
                    ({"pipeline": 2, "tensor": 2}, {"sequence_parallel": True}),
                    ({"pipeline": 2, "expert": 2}, EXPERTS),
                    ({"pipeline": 2}, RECOMPUTED))
                for sharding in (None, SHARDED, ALIGNED)])


@long_test
def eight_ranks_equal_megatron():
    compare(8, [
        ({"pipeline": 8}, {}, None, [
            ("loop", "joint", "megatron", {}),
            ("ud", "split", "look-ahead", {"path": "delegated"}),
            ("wave", "split", "zb-v", {})]),
        ({"pipeline": 4, "tensor": 2}, {"sequence_parallel": True}, SHARDED, [
            ("ud", "split", "zb-h1", {"steps": 2})]),
        ({"pipeline": 2, "tensor": 2}, {"sequence_parallel": True}, SHARDED, [
            ("wave", "split", "zb-v", {"steps": 2})]),
        ({"pipeline": 2, "expert": 4}, EXPERTS | {"microbatches": 8}, SHARDED, [
            ("loop", "split", "greedy", {"steps": 2, "tolerance": 1e-6})]),
    ])


def adapting_job(rank):
    """Slows a link down, with passes of some milliseconds, in virtual time."""
    from longhaul.megatron import ForwardBackward
    from longhaul.torch import Adapt, places

    megatron_runs.use_cpu()
    clock = torch_runs.VirtualTime(rank)
    text = torch_runs.pipeline(2, times=(4, 4, 4), latency=1)
    with megatron_runs.OnCpu():
        megatron_runs.start({"pipeline": 2})
        model = megatron_runs.Model(places(text))
        for chunk in model.chunks:
            chunk.register_forward_hook(lambda *_: clock.sleep(0.003))
        run = ForwardBackward(
            text, schedule="1f1b", inject="",
            adapt=Adapt(warm_up=4, least_steps=1, effort=20000))
        losses = []
        for step in range(14):
            if step == 6:
                run.runtime.inject("dc0-dc1=latency:60ms")
            losses += megatron_runs.train(run, model, 1)[0]
        run.close()
    return losses, [(one.to, one.refused) for one in run.runtime.switches]


@long_test
def a_slower_link_switches_the_schedule():
    got = torch_runs.on_ranks(2, adapting_job)
    check(got[0][1] == got[1][1] == [("slack", None)] * 2,
          f"switches {got[0][1]}")
    losses = got[1][0]
    check(all(one == losses[0] for one in losses),
          "a switch changes the losses of the same batches")


def errors_job(rank):
    """Collects the messages of wrong uses."""
    from longhaul.megatron import ForwardBackward, Layout
    from longhaul.megatron._engine_layers import check_engine_layer
    from longhaul.megatron._runtime import check_demands
    from longhaul.torch import places
    from longhaul.torch._orders import Demands

    megatron_runs.use_cpu()
    text = torch_runs.pipeline(2)
    made = []

    def collect(call):
        try:
            call()
            made.append("no error")
        except longhaul.Error as error:
            made.append(str(error))

    class FusedLinear(torch.nn.Linear):
        """Stands for a layer of Transformer Engine 2.2."""

    class Quantized(torch.Tensor):
        pass

    class FusedMLP(torch.nn.Module):
        """Stands for Megatron-core's MLP with Transformer Engine's operation fuser."""

        def _make_fused_impl(self):
            pass

    FusedLinear.__module__ = "transformer_engine.pytorch"
    with megatron_runs.OnCpu():
        megatron_runs.start({"pipeline": 2})
        model = megatron_runs.Model(places(text))
        given = {"forward_step_func": None, "data_iterator": None,
                 "seq_length": 8, "micro_batch_size": 2,
                 "model": model.chunks}
        run = ForwardBackward(text, schedule="1f1b")
        collect(lambda: run(num_microbatches=7, **given))
        run.close()
        collect(lambda: ForwardBackward(
            torch_runs.pipeline(2, "wave"), schedule="zb-v")(
                num_microbatches=8, **given))
        model.config.variable_seq_lengths = True
        collect(lambda: run(num_microbatches=8, **given))
        model.config.variable_seq_lengths = False
        model.config.cuda_graph_impl = "local"
        collect(lambda: run(num_microbatches=8, **given))
        model.config.cuda_graph_impl = "none"
        for part in ({"tp_comm_overlap": True}, {}):
            layer = engine_layers.Linear(2, 2, bias=False, skip_bias_add=False,
                                         config=types.SimpleNamespace(
                disable_parameter_transpose_cache=False, **part))
            if not part:
                layer.weight = torch.nn.Parameter(layer.weight.as_subclass(Quantized))
            collect(lambda: check_engine_layer("layer", layer))
        model.chunks[0].module.fused = FusedMLP()
        collect(lambda: ForwardBackward(text, schedule="zb-h1")(
            num_microbatches=8, **given))
        del model.chunks[0].module.fused
        model.chunks[0].module.extra = FusedLinear(2, 2)
        collect(lambda: ForwardBackward(text, schedule="zb-h1")(
            num_microbatches=8, **given))
        collect(lambda: ForwardBackward(
            text, schedule="1f1b", schedule_at={1: "zb-h1"})(
                num_microbatches=7, **given))
        collect(lambda: ForwardBackward(
            text, schedule="1f1b", adapt=True, schedule_at={1: "zb-h1"})(
                num_microbatches=8, **given))
        collect(lambda: ForwardBackward(torch_runs.elastic(2, 0.5, 0, chunks=1))(
            num_microbatches=8, **given))
    collect(lambda: Layout("Et|tL", (0, 1, 1, 0)))
    plain = types.SimpleNamespace(recompute_granularity=None,
                                  use_distributed_optimizer=False)
    full = types.SimpleNamespace(recompute_granularity="full",
                                 use_distributed_optimizer=True)
    demands = Demands(2, 1, "none", {}, 0.0, 1, False)
    check_demands("p", dataclasses.replace(demands, recompute="full"), full, full)
    for changes in ({}, {"recompute": "full"}, {"recompute": "modules"}, {"zero": 3},
                    {"offload": 0.5}):
        wanted = dataclasses.replace(demands, **changes)
        ddp = full if changes else plain
        config = full if "offload" in changes else plain
        collect(lambda: check_demands("p", wanted, config, ddp))
    return made


@test
def wrong_uses_are_reported():
    got = torch_runs.on_ranks(2, errors_job)
    check(len(got[0]) == len(got[1]), f"ranks report {got}")
    for line, part in zip(got[0], (
            "num_microbatches: 7; the plan has 8",
            "model: has 1 chunks on pipeline rank",
            "--variable-seq-lengths", "--cuda-graph-impl",
            "layer: the schedule has separate weight gradients, and Transformer "
            "Engine does not defer them with --tp-comm-overlap",
            "layer: the schedule has separate weight gradients, and the layer's "
            "parameters are quantized; leave out --fp8-param-gather",
            "fused: the schedule has separate weight gradients, and FusedMLP fuses "
            "its layers; leave out --use-transformer-engine-op-fuser",
            "extra: the schedule has separate weight gradients, and Transformer "
            "Engine's FusedLinear cannot defer them; install",
            "extra: the schedule has separate weight gradients, and Transformer",
            "schedule_at: a run with adapt chooses",
            "shards its parameters; wrap the chunks in the class `data_parallel`",
            "layout: has 2 chunks; the plan has 4",
            "zero is 1, but the job lacks --use-distributed-optimizer",
            "recompute is 'full', but the job lacks --recompute-granularity full",
            "recompute is 'modules', but the job lacks --recompute-granularity sel",
            "zero is 3; longhaul.megatron", "offload: the activations of layers"),
            strict=True):
        check(part in line, f"{line!r} lacks {part!r}")


@test
def sharded_models_are_saved_and_recompute_norms():
    for errors, right in torch_runs.on_ranks(2, megatron_runs.sharded_job):
        check(len(right) == 7 and all(right.values()), f"{right}")
        for line, part in zip(errors, (
                "model: its parameters are sharded; call gather()",
                "model: its parameters are sharded; call gather()", "found NaN",
                "optimizer: one replica has a part of the optimizer's state",
                "--use-distributed-optimizer", "--use-distributed-optimizer",
                "--context-parallel-size: an elastic plan shards no parameters over con",
                "embedding.word_embeddings.weight: an elastic plan shards no embed",
                "p: elastic.recomputed: 'latent'", "'mlp norm': megatron-core's recomp",
                "'mlp norm': the layers have no separate one"), strict=True):
            check(part in line, f"{line!r} lacks {part!r}")


def check_checkpoints(ranks, kind, layout, settings):
    folder = WORK / f"{kind} {layout}"
    folder.mkdir()
    for same, shares, own, without in torch_runs.on_ranks(
            ranks, megatron_runs.checkpoint_job, str(folder), kind, layout, settings):
        # With other shares the gradients have another order of sums.
        check(same == 0 and max(shares, own) <= 1e-6 and without > 1e-2,
              f"{kind} {layout}: {same}, {shares}, {own}, {without}")


@test
def checkpoints_have_the_optimizer_of_elastic_plans():
    check_checkpoints(2, torch.float32, {}, {})


@long_test
def checkpoints_have_the_optimizer_in_16_bits_and_of_experts():
    check_checkpoints(2, torch.bfloat16, {}, {})
    check_checkpoints(4, torch.float32, {"expert": 2}, EXPERTS)


SEPARATE = {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu,
            "add_bias_linear": False, "num_query_groups": 2, "positions": "rope"}
PRODUCTS = "query", "key", "value", "gate", "up"
NORMS = "attention norm", "mlp norm"


def recomputed_job(rank, cases):
    """Recomputes operations in the first of two layers. Returns, for each case,
    whether losses and gradients are the same, the calls of each layer's products, and
    how many inputs of the attention and of the second product a layer keeps."""
    from longhaul.megatron._recomputation import recompute_operations
    from longhaul.torch._orders import Demands
    from megatron.core.pipeline_parallel import get_forward_backward_func

    megatron_runs.use_cpu()
    made = []
    with megatron_runs.OnCpu():
        megatron_runs.start({"pipeline": 1})
        for settings, operations in cases:
            model = megatron_runs.Model(
                (0,), megatron_runs.DistributedDataParallelConfig(), **settings)
            chunk, = model.chunks
            run = get_forward_backward_func()
            want = megatron_runs.train(run, model, 1)
            recompute_operations(chunk, Demands(
                1, None, "operations", {n: (1,) for n in operations}, 0.0, 1, False), 0)
            calls, kept = [], []
            for i, layer in enumerate(chunk.module.decoder.layers):
                attention, mlp, inputs = layer.self_attention, layer.mlp, []
                for name, part in (
                        ("qkv", attention.linear_qkv), ("proj", attention.linear_proj),
                        ("fc1", mlp.linear_fc1), ("fc2", mlp.linear_fc2)):
                    part.register_forward_hook(
                        lambda *_, key=(i, name): calls.append(key))
                for part in (attention.core_attention, mlp.linear_fc2):
                    part.register_forward_hook(
                        lambda _, given, __, inputs=inputs: inputs.extend(given[:3]))
                layer.register_forward_hook(lambda *_, inputs=inputs: kept.append(
                    sum(x.untyped_storage().size() > 0 for x in inputs[-4:])))
            got = megatron_runs.train(run, model, 1)
            n = megatron_runs.MICROBATCHES
            made.append((
                got[0] == want[0] and all(
                    torch.equal(x, got[1][name]) for name, x in want[1].items()),
                {key: calls.count(key) // n for key in calls if key[0] == 0},
                {calls.count(key) // n for key in calls if key[0] == 1},
                kept[:2]))
    return made


@test
def products_and_activations_are_recomputed():
    def calls(qkv, fc1):
        return {(0, "qkv"): qkv, (0, "proj"): 1, (0, "fc1"): fc1, (0, "fc2"): 1}

    cases = [
        ({}, ("activation",), calls(1, 1), [3, 4]),
        ({}, (*NORMS, *PRODUCTS, "attention", "activation"), calls(2, 2), [0, 4]),
        (SEPARATE, ("gate", "up"), calls(1, 2), [4, 4]),
        (SEPARATE, (*NORMS, "query", "key", "value", "activation"), calls(2, 1),
         [0, 4]),
        (SEPARATE, (*PRODUCTS, "activation"), calls(2, 2), [0, 4])]
    got, = torch_runs.on_ranks(1, recomputed_job, [case[:2] for case in cases])
    for case, (same, first, second, kept) in zip(cases, got, strict=True):
        check(same and first == case[2] and second == {1} and kept == case[3],
              f"{case}: {same}, {first}, {second}, {kept}")


def timed_job(rank, texts):
    """Runs elastic pipelines of one device with two replicas, over emulated links in
    virtual time: a forward takes 2 ms, a backward 4 ms. Returns the seconds of a
    step, and those that it waited for collectives, of each pipeline."""
    from longhaul.megatron import ForwardBackward

    megatron_runs.use_cpu()
    clock = torch_runs.VirtualTime(rank)
    times = []
    with megatron_runs.OnCpu():
        megatron_runs.start({"pipeline": 1})
        for text in texts:
            run = ForwardBackward(text, schedule="elastic", inject="")
            model = megatron_runs.Model(
                (0,), megatron_runs.DistributedDataParallelConfig(),
                run.data_parallel)
            for chunk in model.chunks:
                chunk.register_forward_hook(
                    lambda _, __, y: (clock.sleep(0.002),
                                      torch_runs.Slept.apply(y, clock.sleep))[1])
            megatron_runs.train(run, model, 2)
            times.append((run.runtime.step_s,
                          run.runtime.sharding.exposed_ns * 1e-9))
            run.close()
    return times


@long_test
def collectives_take_the_predicted_time():
    texts = [torch_runs.elastic(1, gradients, parameters, transfer=transfer, chunks=1)
             for gradients, parameters, transfer in
             ((0.5, 0, 6), (1, 1, 18), (0.75, 0.5, 30))]
    for text, (step_s, exposed_s) in zip(
            texts, torch_runs.on_ranks(2, timed_job, texts)[0], strict=True):
        whole = longhaul.simulate(text, "elastic").makespan_s
        passes = 8 * 0.006
        check(whole > passes and abs(step_s - whole) < 1e-4 and
              abs(exposed_s - (whole - passes)) < 1e-4,
              f"{step_s} s, {exposed_s} s exposed; predicted: {whole} s, "
              f"{whole - passes} s")


def ends_job(rank):
    """Returns whether each forward step of a wave's chunks was at the model's first
    and last chunk, by the chunk and by Megatron's functions; and what the functions
    return for the rank's chunks, and for the rank, between steps."""
    from longhaul.megatron import ForwardBackward, install
    from megatron.core import parallel_state

    def ends(*given):
        return (parallel_state.is_pipeline_first_stage(*given),
                parallel_state.is_pipeline_last_stage(*given))

    megatron_runs.use_cpu()
    seen, forward_step = [], megatron_runs.forward_step

    def noted_step(iterator, model):
        module = model.module
        seen.append(((module.pre_process, module.post_process), ends()))
        return forward_step(iterator, model)

    megatron_runs.forward_step = noted_step
    with megatron_runs.OnCpu():
        megatron_runs.start({"pipeline": 2})
        run = ForwardBackward(torch_runs.pipeline(2, "wave", 2), schedule="zb-v")
        install(run)
        model = megatron_runs.Model(run.places, microbatches=2)
        megatron_runs.train(run, model, 1, forward_only=True)
        run.close()
    return seen, [ends(False, 0), ends(False, 1)], ends()


@test
def ends_of_a_wave_are_those_of_the_running_chunk():
    """pretrain_gpt.py distributes labels over tensor parallelism where the last stage
    is: in a wave on the first rank, which has the first chunk, too."""
    (first, chunks, ends), (other, none, reports) = torch_runs.on_ranks(2, ends_job)
    check(len(first) == len(other) == 4 and all(
        by_chunk == by_function for by_chunk, by_function in first + other) and
        ((False, True), (False, True)) in first, f"{first} {other}")
    check(chunks == [(True, False), (False, True)] and none == [(False, False)] * 2,
          f"{chunks} {none}")
    check((ends, reports) == ((True, False), (False, True)), f"{ends} {reports}")


def program_job(rank, folder):
    from longhaul.megatron._program import main

    return main(["--plan", torch_runs.pipeline(2), f"{folder}/main.py", "--word",
                 "x"])


@test
def a_program_imports_modules_of_its_folder():
    folder = WORK / "program"
    folder.mkdir()
    (folder / "beside.py").write_text("NAME = 'beside'\n")
    (folder / "main.py").write_text(
        "import sys\nimport beside\n"
        "assert [beside.NAME, *sys.argv[1:]] == ['beside', '--word', 'x']\n")
    got = torch_runs.on_ranks(1, program_job, str(folder))
    check(got == [0], f"{got}")


def section(page, title):
    """Returns the commands of a section, which begin with four spaces."""
    text = re.search(rf"{title}\n(.*?)(\n#|\Z)", page, re.S)[1]
    block = re.search(r"((?:^    .*\n)+)", text, re.M)[1]
    return "".join(line[4:] + "\n" for line in block.splitlines())


@test
def the_readme_has_the_commands_of_the_page():
    page = section((ROOT / "docs/megatron.md").read_text(), "## From a plan to a job")
    readme = (ROOT / "README.md").read_text()
    check(page in readme.replace("\n    ", "\n"), page)


def launched(script):
    """Runs commands that train by a bundle; returns the lines with losses."""
    if not (WORK / "bin").exists():
        (WORK / "bin").mkdir()
        (WORK / "bin/longhaul").symlink_to(harness.PROGRAM)
    with harness.reserved_port() as port:
        done = subprocess.run(
            ["sh", "-ec", script + "wait\n"], cwd=WORK, text=True, check=False,
            capture_output=True, timeout=harness.HANGS, env={
                **os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
                # losses in bf16 depend on the instructions
                "ONEDNN_MAX_CPU_ISA": "AVX2",
                "PATH": f"{WORK}/bin:{pathlib.Path(sys.executable).parent}:"
                        + os.environ["PATH"], "MASTER_PORT": str(port)})
    check(done.returncode == 0, f"{script}{done.stdout}{done.stderr[-3000:]}")
    return re.findall(r"^iteration \d: loss .*", done.stdout, re.M)


EXPERTS_JOB = {
    "vocab: 256}": "vocab: 256, experts: 4, experts_per_token: 2, expert_ffn: 64}",
    "layout: {pipeline: 4, micro_batch: 1,": "layout: {tensor: 2, expert: 2, "
    "pipeline: 2, chunks_per_device: 2, micro_batch: 1,"}


@long_test
def the_readme_s_commands_train():
    """Runs them, and Megatron-LM's own schedule: losses are the page's. Then the same
    with experts, tensor parallelism and two chunks per device."""
    text = (ROOT / "docs/megatron.md").read_text()
    commands = section(text, "## From a plan to a job").replace(
        "examples/", f"{ROOT}/examples/")
    losses = re.findall(r"^    (iteration \d: loss .*)", text, re.M)
    check(len(losses) == 3, losses)
    example = f"{ROOT}/examples/megatron/two-sites.yaml"
    job = pathlib.Path(example).read_text()
    for name, changes in ("dense", {}), ("experts", EXPERTS_JOB):
        for old, new in changes.items():
            check(old in job, f"{job} lacks {old}")
            job = job.replace(old, new)
        (WORK / f"{name}.yaml").write_text(job)
        (WORK / f"own-{name}.yaml").write_text(
            job.replace(", schedule: look-ahead", ""))
        script = commands.replace("two-sites/", f"{name}/").replace(
            "--bundle two-sites", f"--bundle {name}")
        got = launched(script.replace(example, f"{name}.yaml"))
        own = launched(
            script.replace(f"{example} -o", f"own-{name}.yaml --for megatron -o")
            .replace(f"{name}/", f"own-{name}/")
            .replace(f"--bundle {name}", f"--bundle own-{name}"))
        check(got == own == (losses if name == "dense" else got) and len(got) == 3,
              f"{name}: {got}, and by Megatron's schedule {own}")


ELASTIC_JOB = {
    "layout: {pipeline: 4, micro_batch: 1, schedule: look-ahead}":
    "layout: {pipeline: 2, data: 2, chunks_per_device: 2, micro_batch: 1, "
    "schedule: elastic}",
    "sequence: 32": "sequence: 128",
    "gpu: h100-sxm": "gpu: {name: small, tflops: 0.02, memory_gib: 0.0036, "
                     "memory_gbps: 10, efficiency: 0.5}"}
INTERLEAVED_JOB = {
    "micro_batch: 1, schedule: elastic": "micro_batch: 1, outermost: data",
    "sequence: 128": "sequence: 128, zero: 1, recompute: none",
    "memory_gib: 0.0036": "memory_gib: 1"}


@long_test
def a_bundle_of_an_elastic_plan_trains():
    """An elastic plan recomputes projections and activations, from the job to a
    running bundle; losses are those of Megatron-LM's interleaved 1F1B."""
    job = (ROOT / "examples/megatron/two-sites.yaml").read_text()
    got = []
    for name, changes, more in (("elastic", ELASTIC_JOB, ""),
                                ("interleaved", INTERLEAVED_JOB, "--for megatron ")):
        for old, new in changes.items():
            check(old in job, f"{job} lacks {old}")
            job = job.replace(old, new)
        (WORK / f"{name}.yaml").write_text(job)
        start = f"{name}/launch.sh --train-iters 3"
        got.append(launched(
            f"longhaul plan {name}.yaml {more}-o {name}.json\n"
            f"longhaul export {name}.json --to megatron --bundle {name}\n"
            f"export MASTER_ADDR=127.0.0.1 PROGRAM={ROOT}/examples/megatron/train.py\n"
            f"NODE_RANK=1 {start} & NODE_RANK=0 {start}\n"))
    recomputed = {one["operation"]: one["layers"] for one in json.loads(
        (WORK / "elastic.json").read_text())["elastic"]["recomputed"]}
    check({"query", "up", "activation"} <= set(recomputed) and
          recomputed["query"] != recomputed["activation"], recomputed)
    check(got[0] == got[1] and len(got[0]) == 3, f"{got}")


if __name__ == "__main__":
    harness.finish()
