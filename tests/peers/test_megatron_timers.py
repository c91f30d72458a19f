#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul diagnose on a log that Megatron-LM's timers write.

    test_megatron_timers.py PROGRAM

Two processes over gloo run megatron.core.timers on the CPU, with sleeps as passes: the
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
import time
import warnings

from skip_without import skip_without

PROGRAM = os.path.abspath(sys.argv[1])
warnings.filterwarnings("ignore")
try:
    import torch
    from megatron.core.timers import Timers
    from torch import distributed, multiprocessing
except ImportError as error:
    skip_without("megatron-core", error, "LONGHAUL_TORCH",
            "a log of Megatron's timers is diagnosed")

RANKS, ITERATIONS, INTERVAL = 2, 4, 2
# Seconds of each rank; 3 times as long on the second.
FORWARD_S, BACKWARD_S, SEND_S = (0.02, 0.06), (0.03, 0.09), (0.01, 0.01)
# The log has a resolution of 0.01 ms; NTP may slow down or speed up its clock
# relative to the test's.
PRECISION_S = 2e-4


def train(rank, meeting, log):
    distributed.init_process_group("gloo", init_method=meeting,
                                   rank=rank, world_size=RANKS)
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    logging.basicConfig(level=logging.INFO, stream=open(log, "a"))
    timers, names = Timers(log_level=2, log_option="all"), (
        "forward-backward", "forward-compute", "backward-compute",
        "backward-send", "optimizer")
    # the sleeps, and the sleeps including the timers' calls
    shortest = longest = 0
    for i in range(ITERATIONS):
        timers("forward-backward", log_level=1).start(barrier=True)
        for name, seconds in (("forward-compute", FORWARD_S),
                              ("backward-compute", BACKWARD_S),
                              ("backward-send", SEND_S)):
            before = time.perf_counter()
            timers(name, log_level=2).start()
            begin = time.perf_counter()
            time.sleep(seconds[rank])
            end = time.perf_counter()
            timers(name).stop()
            if name != "backward-send":
                shortest += end - begin
                longest += time.perf_counter() - before
        timers("forward-backward").stop(barrier=True)
        if (i + 1) % INTERVAL == 0:
            timers.log(names, normalizer=INTERVAL)
    pathlib.Path(f"{log}.rank{rank}").write_text(json.dumps(
        [shortest / ITERATIONS, longest / ITERATIONS]))
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
        least, most = json.loads((folder / f"train.log.rank{rank}").read_text())
        if (one["rank"], one["n_steps"]) != (rank, ITERATIONS // INTERVAL):
            wrong.append(f"rank or steps: {one}")
        # Other load lengthens both the sleeps and the timers.
        if not least - PRECISION_S <= one["compute_s"] <= most + PRECISION_S or \
                not one["communication_s"] >= SEND_S[rank] or \
                one["span_s"] + 1e-4 < sum(
                    one[key] for key in ("compute_s", "communication_s")):
            wrong.append(f"times: {one}")
    if len(ranks) != RANKS or [one["slow"] for one in ranks] != [False, True]:
        wrong.append(f"the slow rank: {ranks}")
    print(*wrong or ["equal"], sep="\n")
    return 1 if wrong else 0


with tempfile.TemporaryDirectory(prefix="longhaul-timers-") as temp:
    sys.exit(main(pathlib.Path(temp)))
