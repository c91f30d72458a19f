# SPDX-License-Identifier: Apache-2.0
"""Runs for the tests of longhaul.torch: a small model in parts, on processes over gloo,
and the same in one process; on CPUs, or on one shared GPU.
"""
import collections
import dataclasses
import functools
import pathlib
import pickle
import tempfile
import threading
import traceback
import types

import longhaul
import torch
from harness import check
from torch import distributed, multiprocessing, nn
from torch.distributed.pipelining import PipelineStage
from torch.utils._python_dispatch import TorchDispatchMode

WIDTH, ROWS = 16, 2  # of a microbatch
RATE = 0.01
SHARDED_STEPS = 2  # the second begins with parameters that the first has changed


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


def _work(rank, ranks, job, arguments, meeting, folder, enter):
    torch.set_num_threads(1)
    if enter:
        enter(rank)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}",
                                   rank=rank, world_size=ranks)
    try:
        made = job(rank, *arguments)
    except Exception:
        traceback.print_exc()
        raise
    pathlib.Path(folder, str(rank)).write_bytes(pickle.dumps(made))
    distributed.destroy_process_group()


def on_ranks(ranks, job, *arguments, enter=None):
    """Runs a function on this many processes; returns its results, None of a process
    that ended within it. `enter`: called with the rank before the ranks connect."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(
            _work, (ranks, job, arguments, f"{folder}/meeting", folder, enter),
            nprocs=ranks, start_method="fork")
        made = [pathlib.Path(folder, str(rank)) for rank in range(ranks)]
        return [pickle.loads(one.read_bytes()) if one.exists() else None
                for one in made]


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
        from longhaul.torch import (_adapting, _clocks, _runtime, _sharding,
                                    _transport)

        self.now_ns, self.rank = 10**9, rank
        self.arrival = threading.local()  # of the message that a thread takes
        self.numbers = collections.Counter()
        store = distributed.distributed_c10d._get_default_store()
        for module in (_clocks, _runtime, _sharding, _transport):
            module.host_ns = self.read
        for module in (_sharding, _transport):
            module.time = types.SimpleNamespace(sleep=self.sleep)
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


@functools.cache
def result_of_one(*arguments):
    """Returns what one process computes. Forked processes cannot use a GPU."""
    return on_ranks(1, one_job, *arguments)[0]


def same_as_one(name, ranks, text, steps, place):
    """Checks that losses and weights of all ranks equal those of one process,
    bit for bit."""
    from longhaul.torch import places

    losses, want = result_of_one(len(places(text)), 8, steps, RATE, 1, place)
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


def elastic(devices, gradients, parameters, enqueue=(4, 4), dequeue=(4, 4),
            transfer=6, chunks=2):
    """Returns the text of an elastic pipeline; times are in milliseconds."""
    buckets = ["scatter: 3"] * (gradients > 0)
    buckets += ["forward: 2, backward: 2"] * (parameters > 0)
    return (
        "longhaul: pipeline/1\ntime_unit: ms\n"
        f"microbatches: {sum(enqueue)}\ndevices: {devices}\n"
        f"backward: joint\nuniform: {{placement: loop, chunks_per_device: {chunks}, "
        f"F: {2 * chunks}, D: {2 * chunks}, W: {2 * chunks}}}\n"
        f"data_parallel:\n  elastic: {{enqueue: {list(enqueue)}, dequeue: "
        f"{list(dequeue)}, transfer: {transfer}, gradients: {gradients}, "
        f"parameters: {parameters}, buckets: {{{', '.join(buckets)}}}}}\n")


class Slept(torch.autograd.Function):
    """Sleeps 4 ms in the backward pass."""

    @staticmethod
    def forward(context, x, sleep):
        context.sleep = sleep
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        context.sleep(0.004)
        return gradient, None


def sharded_job(rank, cases, devices, virtual=False):
    """Runs pipelines, each of several replicas that share its chunks. In virtual
    time a forward takes 2 ms, a backward 4 ms. Returns losses, weights, peak bytes
    of parameters and gradients, and seconds of the last step, with those that it
    waited for collectives, of each case."""
    from longhaul.torch import PipelineRuntime

    ranks = distributed.get_world_size()
    replicas, device, replica = ranks // devices, rank % devices, rank // devices
    lines = [distributed.new_group(list(range(r * devices, (r + 1) * devices)))
             for r in range(replicas)]
    copies = [distributed.new_group(list(range(d, ranks, devices)))
              for d in range(devices)]
    clock = VirtualTime(rank) if virtual else None
    made = []
    halves = ([distributed.new_group(one) for one in ([0, 1], [2, 3], [0, 2], [1, 3])]
              if any(case[2].get("sites") for case in cases) else [])
    for text, schedule, more in cases:
        more = {"replicas": copies[device], **more}
        if more.get("sites"):  # two sites of two replicas of one device
            more |= {"replicas": halves[rank // 2], "sites": halves[2 + rank % 2]}
        stages = stages_of(text, device, lines[replica])
        for stage in stages if virtual else ():
            stage.submod.register_forward_hook(
                lambda _, __, y: (clock.sleep(0.002), Slept.apply(y, clock.sleep))[1])
        runtime = PipelineRuntime(
            text, stages, schedule=schedule, loss_fn=loss_of,
            scale_grads=False, **more)
        shards = runtime.sharding.shards()
        losses = []
        for step in range(SHARDED_STEPS):
            x, y = (t.chunk(replicas)[replica] for t in data(
                runtime._course.n_microbatches, step, replicas))
            parts = []
            first = any(stage.is_first for stage in stages)
            last = any(stage.is_last for stage in stages)
            runtime.step(*([x] if first else []),
                         **({"target": y, "losses": parts} if last else {}))
            losses.append([loss.item() for loss in parts])
            with torch.no_grad():
                for p in shards.values():
                    p -= RATE * p.grad
                    p.grad = None
        runtime.sharding.gather()
        weights = {stage.stage_index: [p.detach().clone() for p in
                                       stage.submod.parameters()]
                   for stage in stages}
        made.append((losses, weights, runtime.sharding.peak_bytes,
                     runtime.step_s, runtime.sharding.exposed_ns * 1e-9))
        runtime.close()
    return made


def means_job(rank, text):
    """Runs a step of two replicas of one device; returns the gradients, as sums and
    as means."""
    from longhaul.torch import PipelineRuntime

    lines = [distributed.new_group([0]), distributed.new_group([1])]
    made = []
    for scale in (False, True):
        runtime = PipelineRuntime(
            text, stages_of(text, 0, lines[rank]), schedule="elastic",
            loss_fn=loss_of, scale_grads=scale, replicas=distributed.group.WORLD)
        x, y = (t.chunk(2)[rank] for t in data(runtime._course.n_microbatches, 0, 2))
        runtime.step(x, target=y)
        made.append([p.grad.clone() for p in runtime.sharding.shards().values()])
        runtime.close()
    return made


def compare_shards(ranks, devices, cases):
    """Runs rows of pipeline, schedule, arguments, and whether sums have the order of
    one process; compares losses with those of one process, each bit or within
    1e-12, and weights with those of the first case; returns what `sharded_job`
    does."""
    got = on_ranks(ranks, sharded_job, [case[:3] for case in cases], devices)
    from longhaul.torch import places

    for i, (text, _, _, same) in enumerate(cases):
        want, _ = result_of_one(len(places(text)), 8, SHARDED_STEPS, RATE,
                                ranks // devices, "cpu")
        losses = [sum((one[i][0][step] for one in got), [])
                  for step in range(SHARDED_STEPS)]
        far = max(abs(a / b - 1) for mine, all_ in zip(losses, want, strict=True)
                  for a, b in zip(mine, all_, strict=True))
        check(losses == want if same else far <= 1e-12,
              f"case {i} of {ranks} ranks: losses differ by {far}")
    return got


class Layer(nn.Module):
    """A layer with a Llama's operations, without heads."""

    def __init__(self):
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.out, self.gate, self.up, self.down = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(7))

    def forward(self, x):
        from longhaul.torch import operation

        y = self.norm(x)
        x = x + self.out(self.q(y) * self.k(y) + self.v(y))
        y = self.norm2(x)
        gate, up = self.gate(y), self.up(y)
        with operation("activation"):
            y = nn.functional.silu(gate) * up
        return x + self.down(y)


NAMES = {"attention norm": "norm", "mlp norm": "norm2", "query": "q", "key": "k",
         "value": "v", "attention output": "out", "gate": "gate", "up": "up"}


class Counted(TorchDispatchMode):
    """Counts executed operations; results that a checkpoint has saved are none."""

    def __init__(self):
        super().__init__()
        self.numbers = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.numbers[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def chunk_of(number, layers):
    torch.manual_seed(number)
    return nn.Sequential(collections.OrderedDict(
        layers=nn.Sequential(*(Layer() for _ in range(layers))))).double()


def activations_job(rank, plan, layers, cases):
    """Runs a plan of two devices and two replicas with the arguments of each case, on
    chunks of some layers. Returns losses, gradients and executed operations."""
    from longhaul.torch import PipelineRuntime, places

    device, replica = rank % 2, rank // 2
    lines = [distributed.new_group([0, 1]), distributed.new_group([2, 3])]
    copies = [distributed.new_group([0, 2]), distributed.new_group([1, 3])]
    where, made = places(plan), []
    for given in cases:
        stages = [PipelineStage(chunk_of(s, layers), s, len(where),
                                torch.device("cpu"), group=lines[replica])
                  for s, at in enumerate(where) if at == device]
        runtime = PipelineRuntime(
            plan, stages, loss_fn=loss_of, replicas=copies[device],
            layers=lambda chunk: chunk.layers, **given)
        x, y = (t.chunk(2)[replica] for t in data(
            runtime._course.n_microbatches, 0, 2))
        losses = []
        first = any(stage.is_first for stage in stages)
        last = any(stage.is_last for stage in stages)
        counted, before = Counted(), runtime.sharding.before

        def first_pass(key, counted=counted, sharding=runtime.sharding,
                       before=before):
            counted.numbers.clear()  # those that find the shapes
            sharding.before = before
            before(key)

        runtime.sharding.before = first_pass
        with counted:
            runtime.step(*([x] if first else []),
                         **({"target": y, "losses": losses} if last else {}))
        gradients = [p.grad.clone() for p in runtime.sharding.shards().values()]
        made.append(([loss.item() for loss in losses], gradients, counted.numbers))
        runtime.close()
    return made


def _raise(text):
    raise ValueError(text)


class Unmovable:
    """A layer's attribute that cannot be packed, or cannot be unpacked."""

    def __init__(self, packs):
        self.packs = packs

    def __reduce__(self):
        if not self.packs:
            _raise("cannot be packed")
        return _raise, ("cannot be unpacked",)


def failed_moves(move, layer):
    """Returns the errors of moves in which a layer, if this rank has it, cannot be
    moved."""
    said = []
    for packs in (False, True):
        if layer is not None:
            layer.unmovable = Unmovable(packs)
        try:
            move()
        except longhaul.Error as error:
            said.append(str(error))
    if layer is not None:
        del layer.unmovable
    return said


def moves_job(rank, text, counts):
    """Trains by AdamW, with other layers per chunk before each step; a move that
    fails for its second layer is tried before. Returns losses, the number of layers
    that moved, and the errors."""
    from longhaul.torch import PipelineRuntime, places

    where = places(text)
    stages = [PipelineStage(chunk_of(s, counts[0][s]), s, len(where),
                            torch.device("cpu"))
              for s, at in enumerate(where) if at == rank]
    for stage in stages:  # alike, wherever a layer begins
        for i, layer in enumerate(stage.submod.layers):
            with torch.no_grad():
                for p in layer.parameters():
                    p.fill_(0.05 if p.dim() > 1 else 1)
                    p.flatten()[:5] += 0.1 * (1 + i + sum(counts[0][:stage.stage_index]))
    runtime = PipelineRuntime(text, stages, loss_fn=loss_of, scale_grads=False,
                              layers=lambda chunk: chunk.layers)
    optimizer = torch.optim.AdamW(
        [p for stage in stages for p in stage.submod.parameters()], lr=RATE)
    first = any(stage.is_first for stage in stages)
    last = any(stage.is_last for stage in stages)
    made, moved, refused = [], [], []
    for step, now in enumerate(counts):
        x, y = data(runtime._course.n_microbatches, step)
        losses = []
        if step == 1 and now != counts[0]:
            refused += failed_moves(lambda now=now: runtime.move_layers(now, optimizer),
                                    stages[0].submod.layers[2] if rank == 0 else None)
        if step:
            moved.append(runtime.move_layers(now, optimizer))
        runtime.step(*([x] if first else []),
                     **({"target": y, "losses": losses} if last else {}))
        optimizer.step()
        optimizer.zero_grad()
        made.append([loss.item() for loss in losses])
    for wrong in ([1] * (len(where) + 1), [0, *counts[0][1:]]):
        try:
            runtime.move_layers(wrong, optimizer)
        except longhaul.Error as error:
            refused.append(str(error))
    if rank == 0:  # its layers alone are in no list
        runtime._features = dataclasses.replace(
            runtime._features, layers=lambda chunk: list(chunk.layers)[:1])
    try:
        runtime.move_layers(counts[0], optimizer)
    except longhaul.Error as error:
        refused.append(str(error))
    runtime.close()
    return made, moved, refused


def hosts_job(rank, text, hosts, given):
    """Trains by AdamW, with the devices on other ranks before each step; an exchange
    that fails on one rank is tried before. Returns losses, for each step this rank's
    device and chunks, and the errors."""
    from longhaul.torch import PipelineRuntime

    runtime = PipelineRuntime(text, stages_of(text, rank), loss_fn=loss_of,
                              scale_grads=False, **given)
    optimizer = torch.optim.AdamW([p for stage in runtime.stages
                                   for p in stage.submod.parameters()], lr=RATE)
    made, seen, said = [], [], []
    for step, now in enumerate(hosts):
        x, y = data(runtime._course.n_microbatches, step)
        losses = []
        if now and step == 1:
            said += failed_moves(lambda now=now: runtime.move_hosts(now, optimizer),
                                 runtime.stages[1].submod if rank == 2 else None)
        if now:
            runtime.move_hosts(now, optimizer)
        runtime.step(*([x] if any(one.is_first for one in runtime.stages) else []),
                     **({"target": y, "losses": losses}
                        if any(one.is_last for one in runtime.stages) else {}))
        optimizer.step()
        optimizer.zero_grad()
        made.append([loss.item() for loss in losses])
        seen.append((runtime.device, [one.stage_index for one in runtime.stages]))
    try:
        runtime.move_hosts([0, 0, 0], optimizer)
    except longhaul.Error as error:
        said.append(str(error))
    runtime.close()
    return made, seen, said


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
