#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares longhaul's planner with Sailor's, on one job in one run.

    git clone https://github.com/eth-easl/sailor
    apt install libjsoncpp-dev; pip install numpy pandas pybind11
    bench/planner_sailor.py SAILOR BENCH_SPACE LONGHAUL [--batch N] [--gpus N]
                            [--repeats N] [--built FOLDER] > planner-sailor.json

SAILOR is the checkout, BENCH_SPACE and LONGHAUL the programs
build/bench/bench-space and build/cli/longhaul. The job: OPT 30B in fp32 on 128
A100 of 40 GB in one zone, four per node, with the layer times, bytes and
bandwidths in Sailor's repository. Sailor's planner is compiled from the checkout
into FOLDER, which later runs reuse. It runs twice: with the quotas of several zones
and two kinds of GPU from its own scripts, and with those of this job alone, for
which it makes smaller tables.

longhaul gets the same layer times and bytes as a profile, and plans the same space
as Sailor: 1F1B, one chunk per device, any profiled tensor, pipeline and data degrees
and microbatch, any layer partition. Then each program evaluates the other's plan. A
second run permits all of longhaul's schedules. All times are processor time. The exit
status is 1 if longhaul's plan is slower in Sailor's own simulator.
"""
import argparse
import contextlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import types

MODEL, GPU, ZONE = "OPT-30", "A100-40", "us-central1-a"
GPUS_PER_NODE, LAYERS, HIDDEN, HEADS, SEQUENCE = 4, 48, 7168, 56, 2048
STATIC = 24  # bytes per parameter: Sailor's weights, gradients, Adam, copies
# Sailor reserves 3e9 bytes for libraries (2e9 without tensor parallelism).
MEMORY_GIB, RESERVED_GIB = 40, 3e9 / 2**30


@contextlib.contextmanager
def silent():
    """Sailor reports every step on stdout, partly from C++."""
    sys.stdout.flush()
    keep, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(keep, 1)
        os.close(keep)
        os.close(null)


def read(path):
    return json.loads(path.read_text())


class Sailor:
    def __init__(self, checkout, folder, o):
        self.root, self.folder, self.o = checkout, folder, o
        self.planner_dir = checkout / "sailor/Planner/sailor_planner"
        profiles = self.planner_dir / "profiles" / MODEL
        self.profile = read(profiles / GPU / "profile.json")
        self.info = read(checkout / "sailor/Planner/llm_info.json")[MODEL]
        self.network = read(
            checkout / "sailor/providers/multizone_bandwidths_het.json")
        self.training = {
            "global_batch_size": o.batch, "type": "gpt2",
            "hidden_size": HIDDEN, "sequence_length": SEQUENCE,
            "num_layers": LAYERS, "vocab_size": 50272, "model": MODEL,
            "optimizer": "Adam", "heads": HEADS, "head_dim": HIDDEN // HEADS,
            "max_position_embeddings": SEQUENCE, "num_all_layers": LAYERS + 2}

    def build(self):
        name = "libplanner" + sysconfig.get_config_var("EXT_SUFFIX")
        out = (self.o.built or self.folder) / name
        if not out.exists():
            source = self.planner_dir / "cpp_src"
            include = subprocess.run(
                [sys.executable, "-m", "pybind11", "--includes"], check=True,
                capture_output=True, text=True).stdout.split()
            files = ["planner", "utils/read_json", "training", "planner_utils",
                     "utils/network_utils"]
            subprocess.run(
                ["g++", "-O3", "-std=c++17", "-fPIC", "-shared", *include,
                 *(str(source / f"{f}.cpp") for f in files), "-ljsoncpp",
                 "-o", str(out)], check=True, cwd=source, stdout=sys.stderr)
        sys.path.insert(0, str(out.parent))

    def plan(self, quotas):
        """Returns Sailor's plans, best first, and their processor time."""
        self.build()
        import libplanner
        training = self.folder / "training"
        training.write_text(json.dumps(self.training))
        root = self.root / "sailor"
        with silent():
            begin = time.process_time()
            planner = libplanner.SailorPlanner(
                str(self.planner_dir / "profiles" / MODEL) + "/",
                str(root / "providers/multizone_bandwidths_het.json"),
                str(training), str(root / "Planner/llm_info.json"),
                str(root / "providers/gcp/communication_cost.json"),
                False, False, str(quotas), "throughput")
            found = planner.get_sorted_plans({ZONE: {GPU: self.o.gpus}}, 0, 0)
            seconds = time.process_time() - begin
        gpus = sorted(read(quotas))
        plans = []
        for c in found:
            stages = [list(s) for s in c.get_stages()]
            per_stage = c.get_config_per_stage()
            assert all(gpus[x[0]] == GPU for s in per_stage for x in s)
            plans.append({"micro_batch": c.get_mbs(), "stages": stages,
                          "tensor": [s[0][1] for s in per_stage],
                          "data": len(per_stage[0]),
                          "by_planner_s": c.get_Tpp()})
        return plans, seconds

    def simulator(self):
        # Sailor's measurement hooks import PyTorch; its simulator does not use
        # them.
        sys.modules.setdefault("torch", types.ModuleType("torch"))
        sys.path.insert(0, str(self.root))
        from sailor.Planner.simulations.runtime_simulator import Simulator
        parent = self.folder / "parent"
        parent.mkdir()
        (parent / "sailor").symlink_to(self.root)
        tensors = {t for by in self.profile.values() for t in by}
        # It requires a microbatch of every tensor degree's size.
        profiles = {m: self.profile.get(m, {})
                    for m in set(self.profile) | tensors}
        return Simulator(str(parent), self.training, {MODEL: self.info}, False,
                         {MODEL: {GPU: profiles}}, ZONE)

    @staticmethod
    def in_its_words(plan):
        configs = [[([(GPU, t, ZONE)], t)] * plan["data"]
                   for t in plan["tensor"]]
        return {"mbs": plan["micro_batch"], "used_gpus": {},
                "pipeline_list": [{
                    "num_stages": len(plan["stages"]),
                    "layers_per_stage": plan["stages"],
                    "tmp_per_stage": configs,
                    "dp": [plan["data"]] * len(plan["stages"])}]}

    def judge(self, simulator, plan):
        """Seconds per iteration in Sailor's simulator; None: too large."""
        plan = self.in_its_words(plan)
        with silent():
            if not simulator.check_config_fits(plan):
                return None
            return simulator.simulate_iteration_time(plan)[0]

    def link(self, gpus):
        """Fits latency and time per byte to Sailor's times for a pipeline's
        message and for one sixteenth of it."""
        from sailor.providers.gcp.model_networking import get_time_on_config
        curve = self.network[ZONE][GPU][str(gpus)][ZONE][GPU][str(gpus)][0]
        small, large = 4e6 * HIDDEN * SEQUENCE / 16e6, HIDDEN * SEQUENCE * 4.0
        a, b = (get_time_on_config(x, curve) for x in (small, large))
        per_byte = (b - a) / (large - small)
        return {"path": "fabric",
                "alpha_us": max(0.0, (a - small * per_byte) * 1e6),
                "beta_ns_per_byte": per_byte * 1e9}

    def entry(self, kind, layer, micro, tensor):
        forward, back, _ = self.profile[micro][tensor][layer]
        held = self.info[tensor][layer]
        return {"kind": kind, "tensor": int(tensor), "micro_batch": int(micro),
                "sequence": SEQUENCE, "communication": True,
                "F_us": forward * 1e6, "D_us": back / 2 * 1e6,
                "W_us": back / 2 * 1e6,
                "activation_bytes": round(
                    held["act_mem_floats"] * 4 * int(micro)),
                "static_bytes": round(held["params_floats"] * STATIC)}

    def job(self, tensor, micro, schedule):
        """Profiles have links for one number of active GPUs per node, so a job
        has one tensor degree."""
        ends = {"embedding": "0", "layer": "1", "head": str(LAYERS + 1)}
        entries = [self.entry(kind, layer, micro, tensor)
                   for kind, layer in ends.items()]
        job = {"longhaul": "job/1",
               "model": {"name": "opt-30b", "layers": LAYERS, "hidden": HIDDEN,
                         "ffn": 4 * HIDDEN, "heads": HEADS, "vocab": 50272,
                         "gated": False, "norm": "layer", "qkv_bias": True,
                         "output_bias": True, "mlp_bias": True,
                         "positions": SEQUENCE},
               "training": {"global_batch": self.o.batch, "zero": 0,
                            "sequence": SEQUENCE, "precision": "fp32",
                            "recompute": "none"},
               "cluster": {
                   "gpu": {"name": GPU, "tflops": 156,
                           "memory_gib": MEMORY_GIB, "memory_gbps": 1555},
                   "gpus_per_node": GPUS_PER_NODE,
                   "node_link": {"gbps": 2400, "latency_us": 5},
                   "fabric": {"gbps": 50, "latency_us": 50},
                   "memory_reserve": RESERVED_GIB,
                   "datacenters": [{"name": ZONE, "nodes":
                                    self.o.gpus // GPUS_PER_NODE}]},
               "layout": {"tensor": int(tensor), "micro_batch": int(micro)},
               "profile": {"longhaul": "profile/1", "entries": entries,
                           "links": [self.link(int(tensor))]}}
        if schedule:
            job["layout"].update(schedule=schedule, chunks_per_device=1)
        return job

    def jobs(self, schedule):
        for micro, by in self.profile.items():
            for tensor in by:
                if int(tensor) <= GPUS_PER_NODE:
                    yield self.job(tensor, micro, schedule)


def written(jobs, folder):
    paths = []
    for job in jobs:
        paths.append(folder / f"job{len(paths)}.json")
        paths[-1].write_text(json.dumps(job))
    return paths


def plan_same_space(o, jobs, folder):
    done = subprocess.run(
        [o.bench_space, str(o.repeats), *written(jobs, folder)],
        capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"planner_sailor: {done.stderr}")
    return json.loads(done.stdout)


def plan_all(o, jobs, folder):
    """Returns the best plan of several jobs, by `longhaul plan`."""
    best, seconds = None, 0.0
    for path in written(jobs, folder):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(
            [o.longhaul, "plan", path, "--json", "--quiet"],
            capture_output=True, text=True)
        seconds += (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime -
                    before)
        if done.returncode:
            continue  # no plan fits
        plan = json.loads(done.stdout)
        if best is None or plan["iteration_s"] < best["iteration_s"]:
            best = plan
    return best and {"cpu_seconds": round(seconds, 3),
                     "iteration_s": best["iteration_s"],
                     "layout": best["layout"],
                     "chunk_layers": best.get("chunk_layers")}


def as_sailor(best):
    """Returns an even partition, with the remainder in the middle or at either
    end."""
    p, at, stages = best["pipeline"], 0, []
    n, more = divmod(LAYERS, p)
    first = (p - more) // 2
    for i in range(p):
        here = n + (first <= i < first + more)
        stages.append(list(range(at + 1, at + here + 1)))
        at += here
    stages[0].insert(0, 0)
    stages[-1].append(LAYERS + 1)
    return {"micro_batch": best["micro_batch"], "stages": stages,
            "tensor": [best["tensor"]] * p, "data": best["data"]}


def in_longhaul(o, sailor, plan, folder):
    """Evaluates Sailor's degrees by longhaul, with the best layer partition.
    Sailor rounds a replica's microbatches up, so the batch is rounded up here.
    """
    if len(set(plan["tensor"])) > 1:
        return None
    job = sailor.job(str(plan["tensor"][0]), str(plan["micro_batch"]), "1f1b")
    job["layout"].update(pipeline=len(plan["stages"]), data=plan["data"])
    step = plan["data"] * plan["micro_batch"]
    job["training"]["global_batch"] = -(-o.batch // step) * step
    return plan_all(o, [job], folder)


def describe(plan):
    return {"pipeline": len(plan["stages"]), "data": plan["data"],
            "tensor": plan["tensor"], "micro_batch": plan["micro_batch"],
            "layers": [len(s) for s in plan["stages"]],
            "by_its_planner_s": plan["by_planner_s"]}


def compare(o, folder):
    sailor = Sailor(o.sailor.resolve(), folder, o)
    simulator = sailor.simulator()
    own = folder / "quotas.json"
    own.write_text(json.dumps({GPU: {ZONE: o.gpus}}))
    shipped = sailor.planner_dir / "dummy_quotas_dict.json"
    same = plan_same_space(o, sailor.jobs("1f1b"), folder)
    _, shipped_s = sailor.plan(shipped)
    runs = [sailor.plan(own) for _ in range(o.repeats)]
    plans, seconds = runs[0][0], statistics.median(s for _, s in runs)
    again = plan_same_space(o, sailor.jobs("1f1b"), folder)
    fits = ((p, sailor.judge(simulator, p)) for p in plans)
    choice, choice_s = next((x for x in fits if x[1] is not None),
                            (None, None))
    if not choice:
        sys.exit("planner_sailor: no plan of Sailor's fits")
    ours_s = max(same["cpu_seconds"], again["cpu_seconds"])
    judged = sailor.judge(simulator, as_sailor(same["best"]))
    return {"benchmark": "planner-sailor", "machine": same["machine"],
            "version": same["version"], "gpus": o.gpus, "batch": o.batch,
            "sailor": {"cpu_seconds": round(seconds, 3),
                       "cpu_seconds_shipped_quotas": round(shipped_s, 3),
                       "plans": len(plans), "best": describe(choice),
                       "iteration_s": choice_s,
                       "in_longhaul":
                       in_longhaul(o, sailor, choice, folder)},
            "longhaul": {"cpu_seconds": ours_s, "layouts": same["layouts"],
                         "left": same["left"],
                         "best": same["best"], "in_sailor_s": judged},
            "slower_in_sailor":
            (judged if judged is not None else float("inf")) / choice_s - 1,
            "times_faster": round(seconds / ours_s, 1),
            "times_faster_shipped_quotas": round(shipped_s / ours_s, 1),
            "longhaul_all_schedules": plan_all(o, sailor.jobs(None), folder)}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("sailor", type=pathlib.Path)
    a.add_argument("bench_space", type=pathlib.Path)
    a.add_argument("longhaul", type=pathlib.Path)
    a.add_argument("--batch", type=int, default=1024)
    a.add_argument("--gpus", type=int, default=128)
    a.add_argument("--repeats", type=int, default=5)
    a.add_argument("--built", type=pathlib.Path)
    o = a.parse_args()
    o.bench_space, o.longhaul = o.bench_space.resolve(), o.longhaul.resolve()
    with tempfile.TemporaryDirectory() as folder:
        result = compare(o, pathlib.Path(folder))
    print(json.dumps(result, indent=1))
    return int(result["slower_in_sailor"] > 1e-9)  # may be a numpy type


if __name__ == "__main__":
    sys.exit(main())
