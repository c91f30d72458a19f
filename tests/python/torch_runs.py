# SPDX-License-Identifier: Apache-2.0
"""Runs for the tests of longhaul.torch: a small model in parts, on processes over gloo,
and the same in one process; on CPUs, or on one shared GPU.
"""
import collections
import pathlib
import pickle
import tempfile
import threading
import traceback
import types

import torch
from harness import check
from torch import distributed, multiprocessing, nn
from torch.distributed.pipelining import PipelineStage

WIDTH, ROWS = 16, 2  # of a microbatch
RATE = 0.01


def pipeline(devices, placement="ud", microbatches=8, backward="split",
             latency=0, times=(2, 2, 2)):
    """Returns the text of a pipeline, with a link between any two devices that
    exchange messages; times and the delay are in milliseconds."""
    f, d, w = times
    return (
        "longhaul: pipeline/1\ntime_unit: ms\n"
        f"microbatches: {microbatches}\ndevices: {devices}\n"
        f"backward: {backward}\n"
        f"uniform: {{placement: {placement}, F: {f}, D: {d}, W: {w}, "
        "memory: {F: 1, W: -1}}\n"
        f"datacenters: {{count: 2, latency: {latency}, transfer: 0}}\n")


def block(stage):
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(),
                         nn.Linear(WIDTH, WIDTH)).double()


def loss_of(output, target):
    return ((output - target) ** 2).sum()


def data(microbatches, step, replicas=1):
    generator = torch.Generator().manual_seed(1000 + step)
    return (torch.randn(replicas * microbatches * ROWS, WIDTH, device="cpu",
                        generator=generator, dtype=torch.double)
            for _ in range(2))


def one_process(chunks, microbatches, steps, rate, replicas=1, place="cpu"):
    """Trains in one process; returns the losses of each step, and the final
    weights."""
    model = nn.Sequential(*(block(s) for s in range(chunks))).to(place)
    losses = []
    for step in range(steps):
        x, y = (t.to(place) for t in data(microbatches, step, replicas))
        sums = [torch.zeros_like(p) for p in model.parameters()]
        parts = []
        for mine in zip(x.chunk(replicas), y.chunk(replicas)):
            model.zero_grad()
            for a, b in zip(*(t.split(ROWS) for t in mine)):
                parts.append(loss_of(model(a), b))
                parts[-1].backward()
            for total, p in zip(sums, model.parameters()):
                total += p.grad
        with torch.no_grad():
            for p, total in zip(model.parameters(), sums):
                p -= rate * total
        losses.append([loss.item() for loss in parts])
    return losses, [[p.detach().cpu() for p in part.parameters()]
                    for part in model]


def _work(rank, ranks, job, arguments, meeting, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}",
                                   rank=rank, world_size=ranks)
    try:
        made = job(rank, *arguments)
    except Exception:
        traceback.print_exc()
        raise
    pathlib.Path(folder, str(rank)).write_bytes(pickle.dumps(made))
    distributed.destroy_process_group()


def on_ranks(ranks, job, *arguments):
    """Runs a function on this many processes; returns its results."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(
            _work, (ranks, job, arguments, f"{folder}/meeting", folder),
            nprocs=ranks, start_method="fork")
        return [pickle.loads(pathlib.Path(folder, str(rank)).read_bytes())
                for rank in range(ranks)]


def _step_worker(worker):
    """Makes a class of workers that run the tasks of a step during the next step:
    neither before it begins, nor after it ends."""

    class StepWorker(worker):
        def __init__(self, name):
            self.held = []
            super().__init__(name)

        def add(self, job):
            self.held.append(job)

        def release(self):
            while self.held:
                super().add(self.held.pop(0))

        def finish(self):
            done = threading.Event()
            super().add(done.set)
            while not done.wait(0.1) and self._thread.is_alive():
                pass

        def close(self, waits):
            self.release()
            super().close(waits)

    return StepWorker


class VirtualTime:
    """Replaces the clock of longhaul.torch on CPUs, before a runtime is made. A
    rank's clock advances by sleep() alone, and by a little with each reading. A
    message arrives when its sender's clock sent it, with the emulated link's delays,
    so that other load changes no measured time. The leader decides on a step during
    the next one, however long that takes."""

    READING_NS = 100

    def __init__(self, rank):
        from longhaul.torch import _adapting, _clocks, _runtime, _transport

        self.now_ns, self.rank = 10**9, rank
        self.arrival = threading.local()  # of the message that a thread takes
        self.numbers = collections.Counter()
        store = distributed.distributed_c10d._get_default_store()
        for module in (_clocks, _runtime, _transport):
            module.host_ns = self.read
        _transport.time = types.SimpleNamespace(sleep=self.sleep)
        send, post = _transport.Outlet.send, _transport.Inlet.post
        take = _transport.Inlet._hold

        def number(sender, receiver, tag):
            link = sender, receiver, tag
            self.numbers[link] += 1
            return "/".join(map(str, (*link, self.numbers[link])))

        def noted_send(end, ops, tag, staged):
            store.set(number(rank, ops[0].peer, tag), str(self.read()))
            return send(end, ops, tag, staged)

        def noted_post(end, ops, tag, staged):
            # The thread that waits for the message may finish first.
            end.names = getattr(end, "names", {})
            end.names[id(ops)] = number(ops[0].peer, rank, tag)
            return post(end, ops, tag, staged)

        def hold(end, message):
            name = end.names.pop(id(message.ops))
            self.arrival.ns = int(store.get(name))
            take(end, message)

        _transport.Outlet.send = noted_send
        _transport.Inlet.post = noted_post
        _transport.Inlet._hold = hold
        begin = _adapting.Leader.begin

        def begin_after_decisions(leader, step):
            leader._worker.finish()
            begin(leader, step)
            leader._worker.release()

        _adapting.Worker = _step_worker(_transport.Worker)
        _adapting.Leader.begin = begin_after_decisions

    def read(self):
        if hasattr(self.arrival, "ns"):
            return self.arrival.ns
        self.now_ns += self.READING_NS
        return self.now_ns

    def sleep(self, seconds):
        self.now_ns += round(seconds * 1e9)


def stages_of(what, device, group=None, wrap=lambda part: part, place="cpu"):
    from longhaul.torch import places

    where = places(what)
    return [PipelineStage(wrap(block(s).to(place)), s, len(where),
                          torch.device(place), group=group)
            for s, at in enumerate(where) if at == device]


def trains(runtime, steps, microbatches, before=None):
    """Trains; returns the losses of each step. The loss decreases as in one
    process."""
    place = runtime._stages[0].device
    last = any(stage.is_last for stage in runtime._stages)
    first = any(stage.is_first for stage in runtime._stages)
    made = []
    for step in range(steps):
        if before:
            before(runtime, step)
        x, y = (t.to(place) for t in data(microbatches, step))
        losses = []
        runtime.step(*([x] if first else []),
                     **({"target": y, "losses": losses} if last else {}))
        made.append([loss.item() for loss in losses])
        with torch.no_grad():
            for stage in runtime._stages:
                for p in stage.submod.parameters():
                    p -= RATE * p.grad
                    p.grad = None
    return made


def pipeline_job(rank, cases, place):
    """Runs the cases in sequence; returns losses, weights, path and number of
    threads that wait for messages of each."""
    from longhaul.torch import PipelineRuntime

    made = []
    for text, schedule, steps, given in cases:
        runtime = PipelineRuntime(
            text, stages_of(text, rank, place=place), schedule=schedule,
            loss_fn=loss_of, scale_grads=False, **given)
        losses = trains(runtime, steps, runtime._course.n_microbatches)
        weights = {stage.stage_index: [p.detach().cpu() for p in
                                       stage.submod.parameters()]
                   for stage in runtime._stages}
        waiting = sum(thread.name.startswith("longhaul from")
                      for thread in threading.enumerate())
        made.append((losses, weights, runtime.path, waiting))
        runtime.close()
    return made


def one_job(rank, *arguments):
    return one_process(*arguments)


def same_as_one(name, ranks, text, steps, place):
    """Checks that losses and weights of all ranks equal those of one process,
    bit for bit."""
    from longhaul.torch import places

    chunks, n = len(places(text)), 8
    # Forked processes cannot use a GPU.
    losses, want = on_ranks(1, one_job, chunks, n, steps, RATE, 1, place)[0]
    got = [one[0] for one in ranks if one[0][0]]
    check(got == [losses], f"{name}: losses {got} are not {losses}")
    for _, of_rank, *_ in ranks:
        for chunk, tensors in of_rank.items():
            check(all(map(torch.equal, tensors, want[chunk])),
                  f"{name}: weights of chunk {chunk} differ")


def run_cases(devices, cases, place="cpu"):
    """Runs rows of placement, backward, schedule and arguments, each compared
    with one process; returns the results of `pipeline_job` of each rank and
    case."""
    texts = [(pipeline(devices, placement, backward=backward),
              schedule, 2, given)
             for placement, backward, schedule, given in cases]
    got = on_ranks(devices, pipeline_job, texts, place)
    for i, (case, (text, _, steps, _)) in enumerate(zip(cases, texts)):
        same_as_one(f"{devices}, {case}", [ranks[i] for ranks in got], text,
                    steps, place)
    return got


def replicas_job(rank, text, schedule, kind, place):
    """Runs two pipelines of two devices; gradients are summed over both."""
    from longhaul.torch import PipelineRuntime

    device, replica = rank % 2, rank // 2
    lines = [distributed.new_group([0, 1]), distributed.new_group([2, 3])]
    copies = [distributed.new_group([0, 2]), distributed.new_group([1, 3])]

    def wrap(part):
        if kind == "ddp":
            return torch.nn.parallel.DistributedDataParallel(
                part, process_group=copies[device])
        mesh = distributed.DeviceMesh.from_group(copies[device], place)
        from torch.distributed.fsdp import fully_shard
        fully_shard(part, mesh=mesh).set_gradient_divide_factor(1.0)
        return part

    stages = stages_of(text, device, lines[replica], wrap, place)
    runtime = PipelineRuntime(text, stages, schedule=schedule,
                              loss_fn=loss_of, scale_grads=False)
    losses = []
    for step in range(2):
        x, y = (t.to(place).chunk(2)[replica] for t in data(8, step, 2))
        parts = []
        runtime.step(*([] if device else [x]),
                     **({"target": y, "losses": parts} if device else {}))
        losses.append([loss.item() for loss in parts])
        factor = RATE * (2 if kind == "ddp" else 1)  # the gradients are means
        with torch.no_grad():
            for stage in stages:
                for p in stage.submod.parameters():
                    p -= factor * p.grad
                    p.grad = None
    runtime.close()
    return losses


def slow_job(rank, text, steps, place):
    """Slows down a link, with passes of some milliseconds; in virtual time on
    CPUs."""
    import time

    from longhaul.torch import Adapt, PipelineRuntime

    clock = VirtualTime(rank) if place == "cpu" else time
    stages = stages_of(text, rank, place=place)
    for stage in stages:
        stage.submod.register_forward_hook(lambda *_: clock.sleep(0.003))
    runtime = PipelineRuntime(
        text, stages, schedule="1f1b", loss_fn=loss_of,
        scale_grads=False, inject="",
        adapt=Adapt(warm_up=4, least_steps=1, effort=20000))

    def before(runtime, step):
        if step == 6:
            runtime.inject("dc0-dc1=latency:60ms")

    losses = trains(runtime, steps, 8, before=before)
    runtime.close()
    return losses, runtime.switches, runtime.order
