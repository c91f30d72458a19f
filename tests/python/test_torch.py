#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul.torch: PyTorch's pipelining runs plans over gloo, compared with one process;
over emulated links and staged through host memory; with measurements, and with
schedule switches when links change.

Needs torch ($LONGHAUL_TORCH names a Python that has it) and longhaul installed by
pip, for the same Python or for that which $LONGHAUL_PYTHON names.
"""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli"), str(HERE.parent / "peers")]
from import_torch import longhaul, torch  # noqa: E402

import harness  # noqa: E402
import longhaul.torch  # noqa: E402
import torch_runs  # noqa: E402
from harness import (ROOT, WORK, check, has_few_cases, long_test,  # noqa: E402
                     run, test)
from longhaul.torch import Adapt, PipelineRuntime  # noqa: E402
from torch import distributed  # noqa: E402
from torch_runs import RATE, run_cases, trains  # noqa: E402

# --- against one process -----------------------------------------------------


@test
def two_processes_equal_one():
    got = run_cases(2, [
        ("ud", "joint", "1f1b", {}),
        ("ud", "split", "zb-h1", {}),
        ("ud", "split", "greedy", {"path": "delegated"}),
        ("loop", "joint", "interleaved-1f1b", {}),
        ("wave", "split", "zb-v", {"path": ["dc0>dc1"]}),
        ("wave", "split", "greedy", {"inject": "dc0-dc1=latency:1ms"}),
    ])
    check([case[2] for case in got[0]] ==
          ["direct", "direct", "delegated", "direct", "mixed", "direct"],
          f"paths {[case[2] for case in got[0]]}")
    # Passes wait themselves for messages of real links on the direct path.
    check([[case[3] for case in rank] for rank in got] ==
          [[0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 1]],
          f"threads {[[case[3] for case in rank] for rank in got]}")


@test
def four_processes_equal_one():
    run_cases(4, [
        ("ud", "split", "zb-h1", {}),
        ("loop", "split", "interleaved-1f1b", {"path": "delegated"}),
        ("wave", "split", "zb-v", {}),
    ])


def by_host_job(rank, cases):
    """The job of stages on a GPU whose group is gloo, which cannot send GPU
    memory."""
    from longhaul.torch import _runtime, _transport

    def only_staged(send):
        def checked(end, ops, tag, staged):
            if not staged:
                raise RuntimeError("gloo has a GPU's memory to send")
            return send(end, ops, tag, staged)

        return checked

    _runtime._needs_host = lambda *_: True
    _transport.Inlet.post = only_staged(_transport.Inlet.post)
    _transport.Outlet.send = only_staged(_transport.Outlet.send)
    return torch_runs.pipeline_job(rank, cases, "cpu")


@test
def tensors_that_gloo_rejects_use_host_memory():
    cases = [(torch_runs.pipeline(4, placement), schedule, 2, {})
             for placement, schedule in (("ud", "zb-h1"), ("wave", "zb-v"))]
    got = torch_runs.on_ranks(4, by_host_job, cases)
    for i, (text, schedule, steps, _) in enumerate(cases):
        ranks = [of_rank[i] for of_rank in got]
        torch_runs.same_as_one(schedule, ranks, text, steps, "cpu")
        check({one[2] for one in ranks} == {"delegated"}, f"{ranks}")


@test
def replicas_equal_one_process():
    want, _ = torch_runs.one_process(2, 8, 2, RATE, 2)
    cases = [("ddp", "joint", "1f1b"), ("fsdp", "split", "zb-h1"),
             ("fsdp", "joint", "1f1b")]
    for kind, backward, schedule in cases[:2] if has_few_cases() else cases:
        text = torch_runs.pipeline(2, backward=backward)
        got = torch_runs.on_ranks(4, torch_runs.replicas_job, text, schedule, kind,
                                  "cpu")
        for step, losses in enumerate(want):
            mine = got[1][step] + got[3][step]
            check(all(abs(a - b) <= 1e-12 * abs(b)
                      for a, b in zip(mine, losses, strict=True)),
                  f"{kind} {schedule}: step {step}: {mine} is not {losses}")


# --- sharded parameters ------------------------------------------------------


@test
def elastic_plans_equal_zero_1_on_two_processes():
    # One device with four chunks, and two replicas of it. Groups of gradients that
    # are scattered early have another order of sums.
    def case(gradients, parameters, dequeue, same):
        return (torch_runs.elastic(1, gradients, parameters, dequeue=dequeue,
                                   chunks=4), "elastic", {}, same)

    got = torch_runs.compare_shards(2, 1, [
        case(0, 0, (4, 4), True), case(0.75, 0, (4, 4), False),
        case(0.75, 0.5, (4, 4), False), case(1, 1, (4, 4), False),
        case(0, 0, (8,), True), case(1, 1, (8,), True)])[0]
    for one, other in ((1, 2), (0, 4), (4, 5)):
        for chunk, weights in got[one][1].items():
            check(all(map(torch.equal, weights, got[other][1][chunk])),
                  f"chunk {chunk} of cases {one} and {other}")
    peaks = [case[2] for case in got[:4]]
    chunk = 2 * (torch_runs.WIDTH + 1) * torch_runs.WIDTH * 8
    check(peaks[0] == 8 * chunk, f"4 chunks, and gradients of all: {peaks}")
    check(peaks[0] > peaks[1] > peaks[2] > peaks[3] and
          peaks[3] == 5 * chunk, f"{peaks}, chunks of {chunk} bytes")


@test
def elastic_plans_equal_zero_1_on_four_processes():
    torch_runs.compare_shards(4, 2, [
        (torch_runs.elastic(2, 0.75, 0.5), "elastic", {}, False),
        (torch_runs.elastic(2, 1, 1, dequeue=(8,)), "elastic", {}, True),
        (torch_runs.pipeline(2, "loop"), "greedy", {}, True),
        (torch_runs.pipeline(2, "wave"), "zb-v", {"inject": ""}, True)])


@test
def hybrid_sharding_equals_zero_1():
    # Two sites of two replicas: each shards over its own, and adds the other's sums.
    torch_runs.compare_shards(4, 1, [(torch_runs.elastic(1, 0.75, 0.5, chunks=4),
                                      "elastic", {"sites": True}, False)])


@test
def scaled_gradients_are_means_over_microbatches_and_replicas():
    for n in (1, 4):
        text = torch_runs.elastic(1, 0, 0, enqueue=(n,), dequeue=(n,), chunks=4)
        for sums, means in torch_runs.on_ranks(2, torch_runs.means_job, text):
            check(sums and all(torch.equal(a, 2 * n * b)
                               for a, b in zip(sums, means, strict=True)),
                  f"{n} microbatches: {sums} are not {2 * n} x {means}")


@test
def collectives_take_the_predicted_time():
    # Exposed: transfers of a chunk at both ends, and some of each group.
    texts = [torch_runs.elastic(1, gradients, parameters, transfer=transfer,
                                chunks=4)
             for gradients, parameters, transfer in
             ((0, 0, 6), (1, 1, 6), (1, 1, 18), (0.75, 0.5, 30))]
    for text, measured in zip(texts, torch_runs.on_ranks(
            2, torch_runs.sharded_job, [(text, "elastic", {"inject": ""})
                                        for text in texts], 1, True)[0]):
        step_s, exposed_s = measured[3:]
        whole = longhaul.simulate(text, "elastic").makespan_s
        passes = 8 * 4 * 0.006
        check(abs(step_s - whole) < 1e-4 and
              abs(exposed_s - (whole - passes)) < 1e-4,
              f"{step_s} s, {exposed_s} s exposed; predicted: {whole} s, "
              f"{whole - passes} s")


SMALL = """longhaul: job/1
model: {name: small, layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336,
        vocab: 32000}
training: {global_batch: 4, sequence: 16384, precision: bf16, optimizer: adamw}
cluster:
  gpu: h100-sxm
  gpus_per_node: 1
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2}]
  links: [{between: [west, east], latency_ms: 1, gbps: 100}]
layout: {tensor: 1, pipeline: 2, data: 2, micro_batch: 1, outermost: data,
         chunks_per_device: 2, schedule: elastic}
"""


def planned(job):
    return longhaul.plan(job, optimal=False, threads=1, progress=False)


def refused(plan, **changes):
    """Returns the error of a plan with other demands."""
    from longhaul.torch._features import Features
    from longhaul.torch._orders import Course

    course = Course(plan)
    given = {key: changes.pop(key) for key in ("replicas", "own_activations", "sites",
                                               "has_parts") if key in changes}
    course.demands = dataclasses.replace(course.demands, **changes)
    try:
        Features(**given).check(course)
    except longhaul.Error as error:
        return str(error)
    return "nothing"


def demands_job(rank, plan):
    group = distributed.group.WORLD
    return [refused(plan, replicas=group, **changes) for changes in (
        {}, {"zero": 3}, {"expert": 2}, {"context": 2}, {"is_hybrid": True}, {"sites": group},
        {"is_hybrid": True, "has_parts": True},
        {"is_hybrid": True, "has_leaders": True}, {"recompute": "selective"},
        {"offload": 0.5})] + [error_of(lambda: PipelineRuntime(
            plan, torch_runs.stages_of(plan, rank), replicas=group,
            own_activations=True))]


def error_of(call):
    """Returns the error that a function raises."""
    try:
        call()
    except longhaul.Error as error:
        return str(error)
    return "nothing"


@test
def recomputed_and_offloaded_activations_change_no_bit():
    # Chunks have fewer layers than the plan's: its first ones.
    what = planned(SMALL).to_dict()
    text = json.dumps(what)
    operations = {one["operation"]: one["layers"]
                  for one in what["elastic"]["recomputed"]}
    check("up" in operations and operations["up"][0] > operations["up"][1] > 0,
          f"some layers recompute more: {operations}")
    got = torch_runs.on_ranks(
        4, torch_runs.activations_job, text, 3,
        [{"operations": torch_runs.NAMES}, {"own_activations": True}])
    for rank, (one, other) in enumerate(got):
        check(one[0] == other[0] and all(map(torch.equal, one[1], other[1])),
              f"rank {rank}: {one[0]} is not {other[0]}")
        again = one[2]
        again.subtract(other[2])
        chunks = rank % 2, rank % 2 + 2
        for name, executed in (("silu", "activation"), ("mm", None)):
            layers = sum(min(n[c], 3) for c in chunks for op, n in operations.items()
                         if op == executed or executed is None and
                         op not in ("activation", "attention norm", "mlp norm",
                                    "attention"))
            check(again[name] == 2 * layers,  # microbatches of a replica
                  f"rank {rank}: {name}: {again[name]} for {layers} layers")
    offloads = json.dumps(planned(SMALL.replace("elastic}", "1f1b}").replace(
        "chunks_per_device: 2", "chunks_per_device: 1").replace(
        "adamw}", "adamw, zero: 1, offload: 0.5, recompute: none}")
        .replace("layers: 32", "layers: 8")).to_dict())
    for one, other in torch_runs.on_ranks(4, torch_runs.activations_job, offloads,
                                          2, [{}, {"own_activations": True}]):
        check(one[0] == other[0] and all(map(torch.equal, one[1], other[1])) and
              one[2]["clone"] > other[2]["clone"], f"{one} is not {other}")
    check("elastic: parameters and gradients are sharded" in refused(text),
          refused(text))
    for said, wanted in zip(torch_runs.on_ranks(2, demands_job, text)[0], (
            "nothing", "zero is 3", "layout.expert", "plan with layout.context: 1",
            "each datacenter, as `sites`", "leave `sites` out",
            "plan with layout.sharding: full", "plan with layout.sharding: hybrid",
            "recompute: the runtime", "offload: the runtime",
            "layout.data is 2; of its pipelines of 2 ranks the job has 1: start 2, or "
            "after the loss of a host without a spare one plan"), strict=True):
        check(wanted in said, f"{said!r} has no {wanted!r}")


def evaluation_job(rank):
    """Returns whether a layer that recomputes an operation has the same output
    without and with gradients, and the error of a layer that lacks the operation."""
    from longhaul.torch._activations import recompute

    layer, other = torch_runs.Layer(), torch_runs.Layer()
    x = torch.ones(2, torch_runs.WIDTH)
    want = layer(x)
    recompute(layer, frozenset({"up"}), torch_runs.NAMES)
    recompute(other, frozenset({"router"}), torch_runs.NAMES)
    with torch.no_grad():
        without = layer(x)
    try:
        other(x)
    except longhaul.Error as error:
        said = str(error)
    else:
        said = "nothing"
    return torch.equal(without, want), torch.equal(layer(x), want), said


@test
def layers_that_recompute_operations_run_without_gradients():
    without, same, said = torch_runs.on_ranks(1, evaluation_job)[0]
    check(without and same, f"without gradients: {without}, with: {same}")
    check("ran no operation 'router'" in said, said)


@test
def layers_that_move_change_no_bit():
    counts = [[3, 1, 2, 2], [1, 2, 3, 2], [1, 1, 1, 5], [4, 2, 1, 1]]
    text = torch_runs.pipeline(2, "wave", 3)
    got = torch_runs.on_ranks(2, torch_runs.moves_job, text, counts)
    stays = torch_runs.on_ranks(2, torch_runs.moves_job, text, counts[:1] * 4)
    check([one[0] for one in got] == [one[0] for one in stays],
          f"losses {got[0][0]} are not {stays[0][0]}")
    check(got[0][1] == [3, 4, 6] and stays[0][1] == [0] * 3, f"{got[0][1]} moved")
    for one in got:  # no rank waits for one that fails alone
        for said, wanted in zip(one[2], (
                "move_layers: rank 0: cannot be packed; no layer has moved",
                "move_layers: rank 1: cannot be unpacked; no layer has moved",
                "8 together", "8 together", "in no nn.ModuleList"), strict=True):
            check(wanted in said, f"{said!r} has no {wanted!r}")


@test
def exchanged_hosts_change_no_bit():
    hosts = [None, [1, 2, 0], [2, 0, 1]]
    text = torch_runs.pipeline(3, "wave", 3).replace("count: 2", "count: 3")
    stays = torch_runs.on_ranks(3, torch_runs.hosts_job, text, [None] * 3, {})
    got = torch_runs.on_ranks(3, torch_runs.hosts_job, text, hosts,
                              {"schedule": "zb-v", "path": "delegated"})
    losses, want = ([sum((one[0][step] for one in ranks), []) for step in range(3)]
                    for ranks in (got, stays))
    check(losses == want, f"losses {losses} are not {want}")
    devices = [[one[1][step][0] for one in got] for step in range(3)]
    check(devices == [[0, 1, 2], [2, 0, 1], [1, 2, 0]], f"{devices}")
    check(all(chunks == [device, 5 - device] for one in got for device, chunks in one[1]),
          f"{got}")
    for one in got:
        for said, wanted in zip(one[2], (
                "move_hosts: rank 2: cannot be packed; no layer has moved",
                "move_hosts: rank 0: cannot be unpacked; no layer has moved",
                "hosts: [0, 0, 0] must have each"), strict=True):
            check(wanted in said, f"{said!r} has no {wanted!r}")


# --- emulated links, and measurements ------------------------------------


def measured_job(rank, text, path):
    runtime = PipelineRuntime(
        text, torch_runs.stages_of(text, rank), schedule="1f1b",
        loss_fn=torch_runs.loss_of, scale_grads=False,
        inject="dc0-dc1=latency:30ms")
    trains(runtime, 2, 8)
    runtime.write_trace(path)
    fast = runtime.step_s
    runtime.inject("dc0>dc1=latency:60ms,transfer:10ms")
    trains(runtime, 1, 8)
    runtime.close()
    return fast, runtime.step_s


@test
def runs_are_compared_with_their_prediction():
    text = torch_runs.pipeline(2, latency=30)
    (WORK / "p.yaml").write_text(text)
    measured = WORK / "measured.json"
    (fast, slow), _ = torch_runs.on_ranks(2, measured_job, text, str(measured))
    # The messages of the last microbatches, sequentially, in both directions.
    check(fast > 0.06, f"two messages of 30 ms in {fast} s")
    check(slow > 0.15, f"8 transfers of 10 ms and 60 ms in {slow} s")
    trace = json.loads(measured.read_text())
    messages = [e["args"] for e in trace["traceEvents"]
                if e.get("cat") == "message"]
    check(trace["source"] == "measured" and len(messages) == 16 and
          all(m["arrive_ns"] - m["produced_ns"] >= 30_000_000
              for m in messages), f"{messages}")
    predicted = WORK / "predicted.json"
    run("simulate", WORK / "p.yaml", "-s", "1f1b", "--trace", predicted)
    done = run("report", "--predicted", predicted, "--measured", measured,
               "-o", WORK / "r.html")
    check(done.returncode == 0 and "messages" in done.stdout and
          "only" not in done.stdout, f"{done.stdout}{done.stderr}")


def far_job(rank, text, path):
    torch_runs.VirtualTime(rank)
    runtime = PipelineRuntime(
        text, torch_runs.stages_of(text, rank), schedule="gpipe",
        loss_fn=torch_runs.loss_of, scale_grads=False,
        inject="dc0>dc1=latency:500ms")
    trains(runtime, 2, 8)
    runtime.write_trace(path)
    runtime.close()


@test
def messages_of_a_link_slower_than_planned_overlap():
    trace = WORK / "far.json"
    torch_runs.on_ranks(2, far_job, torch_runs.pipeline(2), str(trace))
    messages = {e["name"]: e["args"] for e in json.loads(
        trace.read_text())["traceEvents"] if e.get("cat") == "message"}
    queued = [name for name, m in messages.items()
              if m["depart_ns"] != m["ready_ns"]]
    check(messages and not queued, f"no link has transfers: {queued}")
    late = [name for name, m in messages.items()
            if m["ready_ns"] - m["produced_ns"] > 400_000_000]
    check(not late, f"no receive waits while others are under way: {late}")


# --- schedule switches during a run -------------------------------------------


@test
def a_slow_link_brings_another_schedule_and_no_other_bits():
    text = torch_runs.pipeline(2, times=(3, 1, 1))
    got = torch_runs.on_ranks(2, torch_runs.slow_job, text, 16, "cpu")
    switches = [one[1] for one in got]
    check(switches[0] and switches[0] == switches[1],
          f"all ranks switch together: {switches}")
    check([(one.step, one.to, one.refused) for one in switches[0]] ==
          [(11, "slack", None)], f"{switches[0]}")
    for switch in switches[0]:
        check(switch.why and abs(switch.before_s - 0.507) < 1e-4 and
              abs(switch.predicted_s - 0.147) < 1e-4, f"{switch}")
    check(got[0][2] == "slack", f"{got[0][2]} runs")
    want, _ = torch_runs.one_process(2, 8, 16, RATE)
    check(got[1][0] == want, "losses are those of one process, each bit")


def refusing_job(rank, text):
    """One rank rejects the leader's proposal."""
    torch_runs.VirtualTime(rank)
    runtime = PipelineRuntime(
        text, torch_runs.stages_of(text, rank), schedule="1f1b",
        loss_fn=torch_runs.loss_of, scale_grads=False,
        inject="dc0-dc1=latency:60ms",
        adapt=Adapt(warm_up=4, least_steps=1, effort=20000))

    def check_order(order):
        raise longhaul.UnsupportedError("not here")

    if rank == 1:
        runtime._check = check_order
    trains(runtime, 14, 8)
    runtime.close()
    return runtime.switches, runtime.order


@test
def a_rejection_by_one_rank_applies_to_all():
    text = torch_runs.pipeline(2, times=(3, 1, 1))
    got = torch_runs.on_ranks(2, refusing_job, text)
    check(got[0] == got[1] and got[0][1] == "1f1b", f"{got}")
    check(got[0][0] and {one.refused for one in got[0][0]} ==
          {"rank 1: not here"}, f"{got[0][0]}")


def broken_job(rank, text):
    """The leader's step raises during a vote, while the others wait for it."""
    from longhaul.torch._adapting import PROPOSE

    torch_runs.VirtualTime(rank)
    stages = torch_runs.stages_of(text, rank)
    runtime = PipelineRuntime(
        text, stages, schedule="1f1b", loss_fn=torch_runs.loss_of,
        scale_grads=False, inject="dc0-dc1=latency:60ms",
        adapt=Adapt(warm_up=4, least_steps=1, effort=20000))

    def raises(*_):
        if runtime._control._word.kind == PROPOSE:
            raise ValueError("broken here")

    if rank == 0:
        stages[0].submod.register_forward_hook(raises)
    try:
        trains(runtime, 40, 8)
    except RuntimeError as error:  # PyTorch reports all of them
        runtime.close()
        return f"{error.__cause__}"
    return "nothing was raised"


@test
def a_step_that_raises_ends_the_job():
    text = torch_runs.pipeline(2, times=(3, 1, 1))
    got = torch_runs.on_ranks(2, broken_job, text)
    check(got[0] == "broken here" and got[1] != "nothing was raised", f"{got}")


@long_test
def the_example_of_adapting_runs():
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4",
         ROOT / "examples/torch/adapting.py", "--pass-ms", "2", "--latency",
         "2", "--slower", "10", "--steps", "9", "--begin", "4", "--end", "7"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(
            pathlib.Path(longhaul.__file__).parents[1])})
    check(done.returncode == 0 and
          done.stdout.count("are the bits of one process") == 2,
          f"{done.stdout}{done.stderr[-2000:]}")


# --- rejected arguments
# ---------------------------------------------------------


def refused_job(rank, text):
    """Returns the error for each wrong argument."""
    told = []
    stages = torch_runs.stages_of(text, rank)
    for given in ({"inject": "0-7=latency:1ms"}, {"inject": "0-1=latency:1"},
                  {"inject": "0-1"}, {"path": "underground"},
                  {"stages": []}, {"stages": [torch_runs.PipelineStage(
                      torch_runs.block(1 - rank), 1 - rank, 2,
                      torch.device("cpu"))]}):
        given = {"stages": stages, **given}
        told.append(error_of(lambda given=given: PipelineRuntime(
            text, given.pop("stages"), **given)))
    plain = PipelineRuntime(text, stages, loss_fn=torch_runs.loss_of,
                            scale_grads=False)
    told.append(error_of(lambda: plain.inject("dc0-dc1=latency:1ms")))
    told.append(error_of(lambda: plain.write_trace("t.json")))
    plain._control = torch_runs.types.SimpleNamespace(close=lambda _: None)
    told.append(error_of(lambda: plain.move_hosts([1, 0])))
    plain._features = torch_runs.types.SimpleNamespace(changes=lambda _: True)
    told.append(error_of(lambda: plain.move_hosts([1, 0])))
    plain.sharding = "sharded"
    told.append(error_of(lambda: plain.move_layers([1, 1])))
    plain._stages = [object()]  # Megatron's
    told.append(error_of(lambda: plain.move_layers([1, 1])))
    plain.close()
    return told


@test
def unsupported_schedules_are_rejected():
    text = torch_runs.pipeline(2)
    told = torch_runs.on_ranks(2, refused_job, text)[0]
    for said, wanted in zip(told, (
            "inject: '0-7' is neither a link", "inject: '0-1=latency:1' must be LINK=",
            "inject: '0-1' must be LINK=", "path: 'underground' is neither",
            "stages: none", "device 0 has chunks [0]",
            "inject: the links of this runtime are real",
            "write_trace: no step was taken", "move_hosts: the runtime adapts to",
            "move_hosts: the runtime recomputes or offloads activations",
            "move_layers: the runtime shards the parameters",
            "move_layers: the stages are those of another program"), strict=True):
        check(wanted in said, f"{said!r} has no {wanted!r}")


@test
def other_versions_of_torch_are_refused():
    from longhaul.torch._versions import refusal

    for version in ("2.8.0", "2.16.0a0", "3.0", "1.13.1+cu117", "x"):
        check("2.9 to 2.15" in (refusal(version) or ""), version)
    for version in ("2.9.0", "2.10.0+cpu", "2.15.0+cu132"):
        check(refusal(version) is None, version)


@test
def longhaul_alone_is_without_torch():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.path.append(sys.argv[1]);"
         "import longhaul; print('torch' in sys.modules)",
         str(pathlib.Path(longhaul.__file__).parents[1])],
        text=True, stdout=subprocess.PIPE, check=True)
    check(done.stdout.strip() == "False", done.stdout)


if __name__ == "__main__":
    harness.finish()
