#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul.torch continues after faults: rails of which one fails in a step, and ranks
that are killed. Losses and weights equal those of an undisturbed run, bit for bit.

Needs torch ($LONGHAUL_TORCH names a Python that has it) and longhaul installed by
pip, for the same Python or for that which $LONGHAUL_PYTHON names. The test with two
hosts, which are network namespaces, needs root and the program ip.
"""
import ctypes
import datetime
import errno
import logging
import os
import pathlib
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli"), str(HERE.parent / "peers")]
from import_torch import longhaul, torch  # noqa: E402

import harness  # noqa: E402
import longhaul.torch  # noqa: E402
import torch_runs  # noqa: E402
from harness import WORK, check, long_test, test  # noqa: E402
from longhaul.torch import Adapt, MemoryCheckpoint, PipelineRuntime  # noqa: E402
from longhaul.torch._host import messages_over  # noqa: E402
from torch import distributed  # noqa: E402

logging.disable(logging.WARNING)
ADDRESSES = "127.0.0.1", "127.0.0.2"
LIMIT = datetime.timedelta(minutes=10)
torch_runs.ROWS = 512  # messages of 64 KiB over rails


# --- rails -------------------------------------------------------------------


def cut(address):
    """Ends this process's connections over an address; returns their number."""
    n = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            made = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # no socket, or closed meanwhile
            continue
        with made:
            try:
                if made.family == socket.AF_INET and made.getpeername() and \
                        made.getsockname()[0] == address:
                    made.shutdown(socket.SHUT_RDWR)
                    n += 1
            except OSError:  # not connected
                continue
    return n


def in_pass(stage, step, microbatch, act):
    """Calls a function in a forward pass of a step."""
    passes = iter(range(10**6))

    def hook(*_):
        if next(passes) == step * 8 + microbatch:
            act()

    stage.submod.register_forward_hook(hook)


def rails_job(rank, cases, act):
    """Runs the cases, each with `act` during the second step on rank 0. Returns as
    `pipeline_job`, and the runtime's notices."""
    made = []
    for text, schedule, given in cases:
        stages = torch_runs.stages_of(text, rank)
        runtime = PipelineRuntime(text, stages, schedule=schedule,
                                  loss_fn=torch_runs.loss_of, scale_grads=False, **given)
        if rank == 0:
            # PyTorch runs a pass without a step to find the shapes.
            in_pass(stages[0], 1, 3 + (not runtime._posts_early), act)
        losses = torch_runs.trains(runtime, 3, 8)
        weights = {stage.stage_index: [p.detach() for p in stage.submod.parameters()]
                   for stage in stages}
        made.append((losses, weights, runtime.path, runtime.notices))
        runtime.close()
        runtime.close()  # does nothing
    return made


def cut_second():
    check(cut(ADDRESSES[1]) > 0, "there is a rail to cut")


@test
def messages_continue_on_another_rail():
    adapting = {"adapt": Adapt(warm_up=4, least_steps=1, effort=20000)}
    cases = [(torch_runs.pipeline(2, placement), schedule, {"rails": rails, **given})
             for placement, schedule, rails, given in (
                 ("ud", "zb-h1", ",".join(ADDRESSES), adapting),
                 ("wave", "zb-v", ADDRESSES, {"path": ["dc0>dc1"]}))]
    got = torch_runs.on_ranks(2, rails_job, cases, cut_second)
    for i, (text, schedule, _) in enumerate(cases):
        torch_runs.same_as_one(schedule, [ranks[i] for ranks in got], text, 3, "cpu")
        check(got[0][i][2] == ("mixed" if i == 1 else "delegated"), f"{got[0][i][2]}")
        said = got[1][i][3]
        check(said and re.match(r"rail 1 of ranks 1 and 0 \(127.0.0.2:\d+ to "
                                r"127.0.0.2:\d+\) is lost", said[0]), f"{said}")


def ip(*words):
    return subprocess.run(["ip", *words], stderr=subprocess.PIPE, text=True,
                          check=False)


def link_down():
    subprocess.run(["ip", "link", "set", "rail0", "down"], check=True)


@test
def messages_continue_when_a_network_interface_goes_down():
    # Two hosts with two links. PyTorch's own connections use the one that fails.
    if os.getuid() != 0 or not shutil.which("ip"):
        print("SKIPPED: network namespaces need root and the program ip")
        return
    hosts = [f"lhf{os.getpid()}{letter}" for letter in "ab"]
    try:
        for host in hosts:
            if ip("netns", "add", host).returncode != 0:
                print("SKIPPED: network namespaces are not permitted here")
                return
            ip("-n", host, "link", "set", "lo", "up")
        for i in range(2):
            ip("-n", hosts[0], "link", "add", f"rail{i}", "type", "veth", "peer",
               "name", f"rail{i}", "netns", hosts[1])
            for k, host in enumerate(hosts):
                ip("-n", host, "addr", "add", f"10.79.{i}.{k + 1}/24", "dev", f"rail{i}")
                ip("-n", host, "link", "set", f"rail{i}", "up")

        def enter(rank):
            with open(f"/var/run/netns/{hosts[rank]}") as host:
                check(ctypes.CDLL(None).setns(host.fileno(), 0) == 0, "setns()")
            os.environ |= {"MASTER_ADDR": "10.79.0.1", "GLOO_SOCKET_IFNAME": "rail0"}

        text = torch_runs.pipeline(2)
        cases = [(text, "zb-h1", {"rails": "rail0,rail1"})]
        got = torch_runs.on_ranks(2, rails_job, cases, link_down, enter=enter)
        torch_runs.same_as_one("zb-h1", [ranks[0] for ranks in got], text, 3, "cpu")
        check(len(got[1][0][3]) == 1 and "rail 0 of ranks 1 and 0 (10.79.0.2:"
              in got[1][0][3][0], f"{got[1][0][3]}")
    finally:
        for host in hosts:
            ip("netns", "del", host)


def broken_job(rank, text):
    """A pass raises on rank 1; returns the cause of the step's error."""
    def raises():
        raise ValueError("broken here")

    stages = torch_runs.stages_of(text, rank)
    runtime = PipelineRuntime(text, stages, schedule="1f1b", loss_fn=torch_runs.loss_of,
                              scale_grads=False, rails=ADDRESSES)
    if rank == 1:
        in_pass(stages[0], 0, 4, raises)
    try:
        torch_runs.trains(runtime, 1, 8)
    except longhaul.Error as error:
        runtime.close()
        return str(error)
    except RuntimeError as error:
        runtime.close()
        return str(error.__cause__)
    return "nothing was raised"


@test
def a_step_that_raises_ends_the_steps_of_all_ranks():
    got = torch_runs.on_ranks(2, broken_job, torch_runs.pipeline(2))
    check(got == ["receive from rank 1 over link dc1>dc0: rank 1: a step has failed",
                  "broken here"], f"{got}")


def refused_job(rank, text):
    """Returns the error for each wrong argument, and the number of connections that
    remain over rails."""
    told = []
    for given in ({"rails": ""}, {"rails": [ADDRESSES[1], "no such thing"]},
                  {"rails": ADDRESSES[rank:]}, {"rails": ADDRESSES, "path": "direct"},
                  {"rails": ADDRESSES, "adapt": Adapt(staging_s=0.001)},
                  {"rails": ADDRESSES, "adapt": Adapt(candidates="none such")}):
        try:
            PipelineRuntime(text, torch_runs.stages_of(text, rank), **given).close()
            told.append("nothing")
        except longhaul.Error as error:
            told.append(f"{error}, {cut(ADDRESSES[1])} remain")
    # One rank alone rejects its argument, which the other has to know.
    try:
        runtime = PipelineRuntime(text, torch_runs.stages_of(text, rank), rails=ADDRESSES,
                                  path=["dc0>dc1"] if rank else ["no link"])
        runtime._host.receive_object(0)
    except longhaul.Error as error:
        told.append(str(error))
        if rank:
            runtime.close()
    threads = [one.name for one in threading.enumerate() if "longhaul" in one.name]
    return told, threads


@test
def rails_that_no_message_can_use_are_rejected():
    got = torch_runs.on_ranks(2, refused_job, torch_runs.pipeline(2))
    for said, wanted in zip(
            got[0][0],
            ("rails: '' must be names", "rail 1: 'no such thing' is neither",
             "rails: must be equally many on all ranks; they have 2, 1",
             "rails: only delegated messages", "staging_s: with rails",
             "unknown candidate", "path: 'no link' is neither"), strict=True):
        check(wanted in said and ("remain" not in said or ", 0 remain" in said),
              f"{said!r} has no {wanted!r}")
    check(got[1][0][-1].startswith("rank 0: its runtime was not made: path: 'no link'"),
          got[1][0][-1])
    check(not got[0][1] and not got[1][1], f"threads {got[0][1]}, {got[1][1]}")


def taken_job(rank):
    """Returns whether another program could take rank 0's port just before the ranks
    join, and the error if rank 0 has no such address."""
    from longhaul.torch import _host

    def join(function, options, *more):
        if rank == 0 and function == _host.lib.lh_transport_join:
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    other.bind(("127.0.0.1", options.port))
                    other.listen()
                    taken.append(0)
                except OSError as error:
                    taken.append(error.errno)
        call(function, options, *more)

    taken, group = [], distributed.new_group(backend="gloo")
    call, _host.try_call = _host.try_call, join
    messages_over(ADDRESSES, group, LIMIT).close()
    os.environ["MASTER_ADDR"] = "192.0.2.1"  # of no host: RFC 5737
    try:
        messages_over(ADDRESSES, group, LIMIT)
    except longhaul.Error as error:
        return taken, str(error)
    return taken, "nothing"


@test
def no_other_program_takes_the_port_of_rank_0():
    got = torch_runs.on_ranks(2, taken_job)
    check(got[0][0] == [errno.EADDRINUSE], f"{got[0][0]}")
    for _, said in got:
        check("rank 0 cannot listen at 192.0.2.1: " in said, said)


def at_first_poll(act):
    """Calls a function when a wait of this process first looks for signals."""
    from longhaul.torch import _host

    actions = [act]

    def longhaul_on_wait(context):
        if actions:
            actions.pop()()
        return _host.longhaul_on_wait(context)

    _host.ffi.def_extern(error=True, onerror=_host._keep)(longhaul_on_wait)


def waiting_job(rank, how):
    """Both ranks wait for messages that none sends: until the time limit, or until
    rank 0 interrupts rank 1's wait. Returns the error."""
    store = distributed.distributed_c10d._get_default_store()
    limit = datetime.timedelta(milliseconds=1) if how == "limit" else LIMIT
    messages = messages_over(ADDRESSES, distributed.new_group(backend="gloo"), limit)
    if how == "interrupt" and rank == 1:
        at_first_poll(lambda: store.set("waits", str(os.getpid())))
    elif how == "interrupt":
        os.kill(int(store.get("waits")), signal.SIGINT)
    try:
        messages.receive_object(1 - rank)
    except (longhaul.Error, KeyboardInterrupt) as error:
        messages.close()
        return f"{type(error).__name__}: {error}"
    return "nothing"


@test
def waits_end_by_their_limit_or_a_signal():
    got = torch_runs.on_ranks(2, waiting_job, "limit")
    check(all(re.fullmatch(
        "MessageError: rank (0: rank 1|1: rank 0) has not sent the message with tag 6 "
        r"within 0\.001 s", said) for said in got), f"{got}")
    got = torch_runs.on_ranks(2, waiting_job, "interrupt")
    check(got == ["MessageError: rank 1: interrupted", "KeyboardInterrupt: "], f"{got}")


def lost_job(rank, text, how):
    """In the second step rank 0 ends, or interrupts rank 1, which waits for its first
    message. Returns the step's error."""
    def act(*_):
        if runtime._steps == 1 and how == "end":
            os._exit(0)
        elif runtime._steps == 1 and not interrupted:
            interrupted.append(True)
            os.kill(int(store.get("waits")), signal.SIGINT)

    def before(_, step):
        if step == 1 and rank == 1:
            at_first_poll(lambda: store.set("waits", str(os.getpid())))

    store, interrupted = distributed.distributed_c10d._get_default_store(), []
    stages = torch_runs.stages_of(text, rank)
    runtime = PipelineRuntime(text, stages, schedule="gpipe", loss_fn=torch_runs.loss_of,
                              scale_grads=False, rails=ADDRESSES)
    if rank == 0:
        stages[0].submod.register_forward_hook(act)
    try:
        torch_runs.trains(runtime, 2, 8, before)
    except (longhaul.Error, KeyboardInterrupt) as error:
        runtime.close()
        return f"{type(error).__name__}: {error}"
    return "nothing"


@test
def a_lost_rank_or_a_signal_ends_a_step_that_waits():
    text = torch_runs.pipeline(2)
    got = torch_runs.on_ranks(2, lost_job, text, "end")
    check(got == [None, "MessageError: receive from rank 0 over link dc0>dc1: rank 0: it "
                  "has ended without a shutdown: it refuses the rails of rank 1"], f"{got}")
    got = torch_runs.on_ranks(2, lost_job, text, "interrupt")
    check(got[1] == "KeyboardInterrupt: " and got[0].endswith(
        "rank 1 over link dc0>dc1: rank 1: interrupted"), f"{got}")


# --- restarts ----------------------------------------------------------------


def train_job(rank, text, sharded, deaths, steps=4):
    """Trains two devices in two replicas by AdamW, from the states that earlier
    attempts have kept. `deaths`: a map from ranks to the steps in which their
    process is killed. Returns the first step, losses, random numbers, and weights."""
    torch_runs.ROWS = 2
    device, replica = rank % 2, rank // 2
    lines = [distributed.new_group([0, 1]), distributed.new_group([2, 3])]
    copies = [distributed.new_group([0, 2]), distributed.new_group([1, 3])]
    stages = torch_runs.stages_of(text, device, lines[replica])
    runtime = PipelineRuntime(
        text, stages, schedule="zb-h1", loss_fn=torch_runs.loss_of, scale_grads=False,
        replicas=copies[device] if sharded else None, schedule_at={2: "gpipe"})
    parameters = list(stages[0].submod.parameters())
    if sharded:
        parameters = list(runtime.sharding.shards().values())
    optimizer = torch.optim.AdamW(parameters, lr=torch_runs.RATE)
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    kept = MemoryCheckpoint(runtime, optimizer, rates)
    begin = kept.restore()
    if rank in deaths:
        in_pass(stages[0], deaths[rank] - (begin or 0), 4,
                lambda: os.kill(os.getpid(), signal.SIGKILL))
    losses, noise = [], []
    for step in range(begin or 0, steps):
        x, y = (t.chunk(2)[replica] for t in torch_runs.data(8, step, 2))
        parts = []
        runtime.step(*([] if device else [x]),
                     **({"target": y, "losses": parts} if device else {}))
        if not sharded:
            for p in parameters:
                distributed.all_reduce(p.grad, group=copies[device])
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
        losses.append([loss.item() for loss in parts])
        noise.append(torch.rand(1).item())
        kept.store(step + 1)
    if sharded:
        runtime.sharding.gather()
    kept.close()
    runtime.close()
    return begin, losses, noise, [p.detach().clone() for p in stages[0].submod.parameters()]


def killed(*arguments):
    """Runs an attempt whose processes are killed, as torchrun's agent does."""
    try:
        torch_runs.on_ranks(4, train_job, *arguments)
    except (torch.multiprocessing.ProcessExitedException,
            torch.multiprocessing.ProcessRaisedException):  # of another
        return
    check(False, "no process was killed")


def files_of(rank):
    """Returns the files with the states of a rank, which this process started."""
    pattern = f"longhaul-{os.getuid()}-*-{os.getpid()}-*-{rank}-*-*"
    return list(pathlib.Path("/dev/shm").glob(pattern))


def lose_host(rank):
    found = files_of(rank)
    check(len(found) == 2, f"{found}")
    for path in found:
        path.unlink()


def compare_attempts(text, sharded, want, begin, lost=()):
    """Runs the last attempt and compares it with an undisturbed run. Hosts with
    `lost` ranks are new, which have other random numbers."""
    for rank in lost:
        lose_host(rank)
    got = torch_runs.on_ranks(4, train_job, text, sharded, {})
    for rank, (one, other) in enumerate(zip(got, want)):
        same = rank in lost or one[2] == other[2][begin or 0:]
        check(one[0] == begin and one[1] == other[1][begin or 0:] and same and
              all(map(torch.equal, one[3], other[3])),
              f"rank {rank} begins with {one[0]}: {one[1]} is not {other[1]}")
    check(not files_of("*"), f"{files_of('*')}")


@test
def lost_ranks_change_no_bit():
    text = torch_runs.pipeline(2)
    want = torch_runs.on_ranks(4, train_job, text, False, {})
    killed(text, False, {2: 2})
    compare_attempts(text, False, want, 2, [2])  # rank 0 has the state of rank 2


def two_jobs_job(rank, texts):
    """Stores states of several pipelines and names of a job, each after another
    number of steps; returns the steps that each one restores, before and after."""
    def checkpoint(number):
        text, os.environ["TORCHELASTIC_RUN_ID"] = texts[number % 2], str(number // 2)
        runtime = PipelineRuntime(text, torch_runs.stages_of(text, 0), schedule="1f1b")
        return MemoryCheckpoint(runtime)

    restored = []
    for number in range(4):
        kept = checkpoint(number)
        restored.append(kept.restore())
        kept.store(number)
    kept = [checkpoint(number) for number in range(4)]
    restored += [one.restore() for one in kept]
    for one in kept:
        one.close()
    return restored


@test
def jobs_of_one_agent_have_separate_states():
    got = torch_runs.on_ranks(1, two_jobs_job, [
        torch_runs.pipeline(1, microbatches=n).replace("count: 2", "count: 1")
        for n in (2, 4)])
    check(got == [[None] * 4 + list(range(4))], f"{got}")
    check(not files_of("*"), f"{files_of('*')}")


@long_test
def lost_ranks_with_sharded_optimizers_change_no_bit():
    text = torch_runs.pipeline(2)
    want = torch_runs.on_ranks(4, train_job, text, False, {})
    killed(text, True, {1: 1})
    killed(text, True, {0: 2, 2: 2})
    compare_attempts(text, True, want, 2)
    # No rank has the part of a lost host: all begin again.
    killed(text, True, {1: 3})
    compare_attempts(text, True, want, None, [2])


@long_test
def torchrun_restarts_a_job():
    # torchrun starts four ranks again after one of them has killed itself.
    program = WORK / "restarts.py"
    program.write_text(f"""
import os, pickle, sys
sys.path[:0] = {sys.path!r}
sys.argv = {sys.argv!r}
import test_torch_faults as tests
tests.torch.set_num_threads(1)
tests.torch_runs.distributed.init_process_group("gloo")
rank, again = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
made = tests.train_job(rank, tests.torch_runs.pipeline(2), False,
                       {{1: 2}} if again == "0" else {{}})
with open(f"{WORK}/rank{{rank}}", "wb") as file:
    pickle.dump(made, file)
""")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", "4", "--max-restarts", "1", program],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
        # PyTorch's issue 135712: gloo connects to addresses of the first attempt.
        env=os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    check(done.returncode == 0, done.stderr[-3000:])
    want = torch_runs.on_ranks(4, train_job, torch_runs.pipeline(2), False, {})
    for rank, other in enumerate(want):
        one = pickle.loads((WORK / f"rank{rank}").read_bytes())
        check(one[0] == 2 and one[1] == other[1][2:] and one[2] == other[2][2:] and
              all(map(torch.equal, one[3], other[3])), f"rank {rank}: {one[:2]}")


if __name__ == "__main__":
    harness.finish()
