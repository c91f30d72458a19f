#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares blocking and speed of SP-FF and KSP-FF with Optical RL-Gym, in one run.

    git clone https://github.com/carlosnatalino/optical-rl-gym
    git -C optical-rl-gym checkout 20b0be1e    # of 2024-04-02
    pip install gymnasium networkx numpy
    bench/peer_rmsa.py CHECKOUT BENCH_RMSA NSFNET.yaml [--runs 4] [--requests 10000]

Prints JSON: mean and half the 95 % confidence interval of the blocked share, and
requests per second of processor time, for both programs. Optical RL-Gym runs
with its own heuristics and topology file, uniform traffic of 90 Erlang, and the
modulation formats of DeepRMSA. Gymnasium stands in for the old Gym.
"""
import argparse
import contextlib
import io
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
import warnings

HOLDING, GAP, WARM_UP, PATHS = 7.5, 1 / 12, 1000, 5
T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # from 2 runs


def load_peer(folder):
    """Imports the peer and builds its topology with modulations by length."""
    warnings.simplefilter("ignore")  # environments registered twice
    import gymnasium
    sys.modules["gym"] = gymnasium
    sys.path[:0] = [str(folder), str(folder / "examples")]
    import create_topology
    from optical_rl_gym.envs import deeprmsa_env
    from optical_rl_gym.utils import Modulation
    formats = [Modulation("BPSK", 100_000, 1), Modulation("QPSK", 2_500, 2),
               Modulation("8QAM", 1_250, 3), Modulation("16QAM", 625, 4)]
    with contextlib.redirect_stdout(io.StringIO()):
        topology = create_topology.get_topology(
            str(folder / "examples/topologies/nsfnet_chen.txt"), "NSFNET",
            formats, PATHS)
    return deeprmsa_env, topology


def run_peer(module, topology, heuristic, seed, requests):
    """Returns the blocked share and the processor time of one run."""
    env = module.DeepRMSAEnv(
        topology=topology, seed=seed, allow_rejection=True,
        mean_service_holding_time=HOLDING, mean_service_inter_arrival_time=GAP,
        episode_length=WARM_UP + requests + 1)
    env.observation = lambda: None  # for learning agents only
    # Whole rates: new versions of Python draw them from integers only.
    env.bit_rate_function = lambda: env.rng.randint(25, 100)
    env.reset(only_episode_counters=False)
    choose = getattr(module, heuristic)
    blocked = begin = 0
    for i in range(WARM_UP + requests):
        if i == WARM_UP:
            begin = time.process_time()
        before = env.services_accepted
        env.step(choose(env))
        blocked += i >= WARM_UP and env.services_accepted == before
    return blocked / requests, time.process_time() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("bench_rmsa")
    parser.add_argument("topology")
    parser.add_argument("--runs", type=int, default=4, choices=range(2, 11))
    parser.add_argument("--requests", type=int, default=10000)
    given = parser.parse_args()
    module, topology = load_peer(given.checkout.resolve())
    ours = json.loads(subprocess.run(
        [given.bench_rmsa, given.topology, str(given.requests)], check=True,
        stdout=subprocess.PIPE).stdout)
    rows = {}
    for name, heuristic in (("sp-ff", "shortest_path_first_fit"),
                            ("ksp-ff", "shortest_available_path_first_fit")):
        runs = [run_peer(module, topology, heuristic, seed, given.requests)
                for seed in range(1, given.runs + 1)]
        shares = [share for share, _ in runs]
        rows[name] = {
            "longhaul": ours[f"gym-{name}"],
            "optical-rl-gym": {
                "blocking_probability": round(statistics.mean(shares), 5),
                "ci95": round(T975[given.runs - 2] * statistics.stdev(shares) /
                              math.sqrt(given.runs), 5),
                "requests_per_cpu_s": round(
                    given.runs * given.requests / sum(s for _, s in runs))}}
    json.dump(rows, sys.stdout, indent=2)
    print()


main()
