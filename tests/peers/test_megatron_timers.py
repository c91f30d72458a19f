#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul diagnose on a log that Megatron-LM's timers write.

    test_megatron_timers.py PROGRAM

Two processes over gloo run megatron.core.timers on the CPU. The timers read a clock
that advances by the durations of passes and stands still otherwise, so that other load
on the machine does not matter: the log's times are exact to its resolution. The
second process is slow. Needs torch and megatron-core; $LONGHAUL_TORCH names a Python
that has them.
"""
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
warnings.filterwarnings("ignore")
try:
    import torch
    from megatron.core import timers as megatron_timers
    from torch import distributed, multiprocessing
except ImportError as error:
    skip_without("megatron-core", error, "LONGHAUL_TORCH",
            "a log of Megatron's timers is diagnosed")

RANKS, ITERATIONS, INTERVAL = 2, 4, 2
# Seconds of each rank; 3 times as long on the second.
FORWARD_S, BACKWARD_S, SEND_S = (0.02, 0.06), (0.03, 0.09), (0.01, 0.01)
RESOLUTION_S = 1e-5  # of the log


class Clock:
    """Stands for the module `time`. A barrier sets all ranks' clocks to the latest."""

    def __init__(self):
        self.now_s = 1e6

    def time(self):
        return self.now_s

    def barrier(self, *_, **__):
        now_s = torch.tensor(self.now_s, dtype=torch.float64)
        distributed.all_reduce(now_s, distributed.ReduceOp.MAX)
        self.now_s = now_s.item()


def train(rank, meeting, log):
    distributed.init_process_group("gloo", init_method=meeting,
                                   rank=rank, world_size=RANKS)
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    logging.basicConfig(level=logging.INFO, stream=open(log, "a"))
    clock = megatron_timers.time = Clock()
    distributed.barrier = clock.barrier
    timers, names = megatron_timers.Timers(log_level=2, log_option="all"), (
        "forward-backward", "forward-compute", "backward-compute",
        "backward-send", "optimizer")
    for i in range(ITERATIONS):
        timers("forward-backward", log_level=1).start(barrier=True)
        for name, seconds in (("forward-compute", FORWARD_S),
                              ("backward-compute", BACKWARD_S),
                              ("backward-send", SEND_S)):
            timers(name, log_level=2).start()
            clock.now_s += seconds[rank]
            timers(name).stop()
        timers("forward-backward").stop(barrier=True)
        if (i + 1) % INTERVAL == 0:
            timers.log(names, normalizer=INTERVAL)
    distributed.destroy_process_group()


def main(folder):
    log = folder / "train.log"
    meeting = (folder / "meeting").absolute().as_uri()
    multiprocessing.start_processes(train, (meeting, str(log)), nprocs=RANKS,
                                    start_method="fork")
    print(log.read_text())
    done = subprocess.run([PROGRAM, "diagnose", str(log), "--json"], text=True,
                          capture_output=True, check=True)
    ranks = json.loads(done.stdout)["ranks"]
    print(ranks)
    wrong = []
    for rank, one in enumerate(ranks):
        if (one["rank"], one["n_steps"]) != (rank, ITERATIONS // INTERVAL):
            wrong.append(f"rank or steps: {one}")
        want = {"compute_s": FORWARD_S[rank] + BACKWARD_S[rank],
                "communication_s": SEND_S[rank],
                "span_s": FORWARD_S[1] + BACKWARD_S[1] + SEND_S[1]}
        if any(abs(one[key] - want[key]) > 2 * RESOLUTION_S for key in want):
            wrong.append(f"times: {one}")
    if len(ranks) != RANKS or [one["slow"] for one in ranks] != [False, True]:
        wrong.append(f"the slow rank: {ranks}")
    print(*wrong or ["equal"], sep="\n")
    return 1 if wrong else 0


with tempfile.TemporaryDirectory(prefix="longhaul-timers-") as temp:
    sys.exit(main(pathlib.Path(temp)))
