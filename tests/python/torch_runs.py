# SPDX-License-Identifier: Apache-2.0
"""What the tests of longhaul.torch run: a small model in pieces, on processes
over gloo, and the same in one process."""
import os
import pathlib
import pickle
import socket
import tempfile
import traceback

import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.pipelining import PipelineStage

WIDTH, ROWS = 16, 2  # of a microbatch


def pipeline(devices, placement="ud", microbatches=8, backward="split",
             latency=0, times=(2, 2, 2)):
    """The text of a pipeline, with a link between any two devices that
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
    return (torch.randn(replicas * microbatches * ROWS, WIDTH,
                        generator=generator, dtype=torch.double)
            for _ in range(2))


def one_process(chunks, microbatches, steps, rate, replicas=1):
    """Of each step the losses of all microbatches; the weights at the end."""
    model = nn.Sequential(*(block(s) for s in range(chunks)))
    losses = []
    for step in range(steps):
        x, y = data(microbatches, step, replicas)
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
    return losses, [[p.detach().clone() for p in part.parameters()]
                    for part in model]


def _work(rank, ranks, job, arguments, port, folder):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    try:
        made = job(rank, *arguments)
    except Exception:
        traceback.print_exc()
        raise
    pathlib.Path(folder, str(rank)).write_bytes(pickle.dumps(made))
    distributed.destroy_process_group()


def on_ranks(ranks, job, *arguments):
    """What a function returns on each of so many processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(
            _work, (ranks, job, arguments, port, folder), nprocs=ranks,
            start_method="fork")
        return [pickle.loads(pathlib.Path(folder, str(rank)).read_bytes())
                for rank in range(ranks)]


def stages_of(what, device, group=None, wrap=lambda part: part):
    from longhaul.torch import places

    where = places(what)
    return [PipelineStage(wrap(block(s)), s, len(where), torch.device("cpu"),
                          group=group)
            for s, place in enumerate(where) if place == device]
