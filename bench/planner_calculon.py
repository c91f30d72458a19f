#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares longhaul's planner with Calculon's search, over one space in one run.

    git clone https://github.com/calculon-ai/calculon
    pip install pandas psutil
    bench/planner_calculon.py CALCULON BENCH_SPACE LONGHAUL [--batch N]
                              [--repeats N] > planner-calculon.json

CALCULON is the checkout, BENCH_SPACE and LONGHAUL the programs
build/bench/bench-space and build/cli/longhaul. The job: a model of Llama 70B's
size (80 layers, hidden 8192) on 64 H100 as described by Calculon's
systems/h100_80g_nvl8.json, without its second memory, thus without offloading.
The space: tensor, pipeline and data degrees, interleaving, microbatch,
recomputation and optimizer sharding, each with every value of Calculon's own
functions. Calculon also chooses the network of each degree, which longhaul derives
from the placement. In both, tensor parallelism uses sequence parallelism without
overlap, and data parallelism overlaps.

To compare the searches and not the cost models, longhaul gets Calculon's own layer
times and bytes as profiles. Each program then evaluates the other's choice. A second
run uses longhaul's own cost model. All times are processor time. The exit status is
1 if longhaul's choice is slower in Calculon's own model by more than 0.5 %; the
terms of both choices explain the difference.
"""
import argparse
import json
import logging
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

GPUS = 64
LAYERS, HIDDEN, FFN, HEADS, SEQUENCE = 80, 8192, 28672, 64, 4096
RECOMPUTE = {"none": "none", "attn_only": "selective", "full": "full"}
WITHIN = 0.005  # of Calculon's choice, in Calculon's own model


class Calculon:
    def __init__(self, checkout, batch):
        sys.path.insert(0, str(checkout))
        import calculon
        self.calculon, self.llm, self.batch = calculon, calculon.llm.Llm, batch
        self.log = logging.Logger("calculon")
        self.app = self.llm.Application(
            {"hidden": HIDDEN, "feedforward": FFN, "seq_size": SEQUENCE,
             "attn_heads": HEADS, "attn_size": HIDDEN // HEADS,
             "num_blocks": LAYERS})
        path = checkout / "systems" / "h100_80g_nvl8.json"
        self.system_json = json.loads(path.read_text())
        self.system_json["mem2"]["GiB"] = 0
        self.system = calculon.System(self.system_json)

    def degrees(self):
        for t in self.llm.get_all_tensor_parallelisms(GPUS, HIDDEN, HEADS):
            for p in self.llm.get_all_pipeline_parallelisms(GPUS, t, LAYERS):
                yield t, p, self.llm.get_data_parallelism(GPUS, t, p)

    def micro_batches(self, t, p, d):
        return list(self.llm.get_valid_microbatch_sizes(
            SEQUENCE, t, d, self.batch // d * d, p))

    def interleavings(self, p):
        return list(self.llm.get_valid_pipeline_interleavings(LAYERS, p))

    def layouts(self):
        for t, p, d in self.degrees():
            for chunks in self.interleavings(p):
                for micro in self.micro_batches(t, p, d):
                    for recompute in RECOMPUTE:
                        for sharded in [True, False] if d > 1 else [False]:
                            yield {"tensor": t, "pipeline": p, "data": d,
                                   "chunks": chunks, "micro_batch": micro,
                                   "recompute": recompute, "sharded": sharded}

    def networks(self, x):
        n = range(self.system.num_networks)
        for t in n if x["tensor"] > 1 else [0]:
            for p in n if x["pipeline"] > 1 else [0]:
                for d in n if x["data"] > 1 else [0]:
                    yield t, p, d

    def run(self, x, networks):
        """Runs the model; returns it, and whether the layout is feasible."""
        d = x["data"]
        execution = {
            "num_procs": GPUS, "tensor_par": x["tensor"],
            "pipeline_par": x["pipeline"], "data_par": d,
            "tensor_par_net": networks[0], "pipeline_par_net": networks[1],
            "data_par_net": networks[2], "batch_size": self.batch // d * d,
            "microbatch_size": x["micro_batch"], "datatype": "float16",
            "fused_activation": True, "attention_type": "multihead",
            "activation_recompute": x["recompute"],
            "pipeline_interleaving": x["chunks"],
            "optimizer_sharding": x["sharded"],
            "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none",
            "seq_par_ag_redo": False, "data_par_overlap": d > 1,
            "weight_offload": False, "activations_offload": False,
            "optimizer_offload": False, "training": True}
        model = self.llm(self.app, self.log)
        try:
            model.compile(self.system, self.llm.Execution.from_json(execution))
            model.run(self.system)
        except self.llm.Error:
            return model, False
        return model, True

    def best_of(self, x):
        """Returns the model of a layout on its best networks, or None."""
        found = [m for n in self.networks(x)
                 for m, ok in [self.run(x, n)] if ok]
        return min(found, key=lambda m: m.get_total_time(), default=None)

    @staticmethod
    def terms(model):
        """Returns the breakdown of an iteration, in seconds."""
        return {
            "passes": model.get_fw_time() + model.get_bw_time(),
            "recomputation": model.get_recompute_time() +
            model.get_recomm_exposed_time(),
            "optimizer": model.get_optim_step_time(),
            "bubble": model.get_bubble_time(),
            "tensor": model.get_tp_comm_exposed_time(),
            "pipeline": model.get_pp_comm_exposed_time(),
            "data": model.get_dp_comm_exposed_time()}

    def search(self):
        begin = time.process_time()
        count = possible = 0
        best, best_s = None, None
        for x in self.layouts():
            for networks in self.networks(x):
                count += 1
                model, ok = self.run(x, networks)
                possible += ok
                if ok and (best is None or model.get_total_time() < best_s):
                    best, best_s = x, model.get_total_time()
        seconds = time.process_time() - begin
        return {"configurations": count, "possible": possible,
                "cpu_seconds": round(seconds, 3),
                "per_second": round(count / seconds, 1),
                "best": best, "iteration_s": best_s}

    def entry(self, x):
        """Returns a layer by Calculon's costs. Costs that it counts once per
        GPU (working space, gradients before sharding) are spread over the
        layers."""
        near = 0 if x["tensor"] <= self.system.get_network(0).size else 1
        m, _ = self.run(dict(x, chunks=1), (near, 1, 1))
        layers = LAYERS // x["pipeline"]
        once = (m._block_act_working_space + m.get_act_grad_space() +
                m.get_weight_space() + m.get_weight_grad_space() +
                m.get_optimizer_space())
        kept = m._block_act_checkpoint_size
        if x["recompute"] != "full":
            kept = m._block_act_storage_space
            once -= kept
        back = (m._block_re_time + m._baseblock_recomm_time_exposed +
                m._block_agrad_time + m._baseblock_agrad_tp_time_exposed)
        forward = m._block_fw_time + m._baseblock_fw_tp_time_exposed
        return {"kind": "layer", "tensor": x["tensor"],
                "micro_batch": x["micro_batch"], "sequence": SEQUENCE,
                "recompute": RECOMPUTE[x["recompute"]], "communication": True,
                "F_us": round(forward * 1e6, 3), "D_us": round(back * 1e6, 3),
                "W_us": round(m._block_wgrad_time * 1e6, 3),
                "activation_bytes": round(kept),
                "static_bytes": round(once / layers)}


def job_of(calculon, own_costs):
    s = calculon.system_json
    near, far = s["networks"][:2]

    def network(n):
        return {"gbps": n["bandwidth"] * 8 * n["efficiency"],
                "latency_us": n["latency"] * 1e6}
    return {
        "longhaul": "job/1",
        "model": {"name": "70b", "layers": LAYERS, "hidden": HIDDEN,
                  "ffn": FFN, "heads": HEADS, "vocab": 8, "gated": False,
                  "tied_embeddings": True, "norm": "layer", "qkv_bias": True,
                  "output_bias": True, "mlp_bias": True},
        "training": {"global_batch": calculon.batch, "sequence": SEQUENCE,
                     "precision": "fp16"},
        "cluster": {
            "gpu": {"name": "h100",
                    "tflops": s["matrix"]["float16"]["tflops"],
                    "memory_gib": s["mem1"]["GiB"],
                    "memory_gbps": s["mem1"]["GBps"]},
            # Calculon reserves no memory.
            **({} if own_costs else {"memory_reserve": 0}),
            "gpus_per_node": near["size"], "node_link": network(near),
            "fabric": network(far),
            "datacenters": [{"name": "one", "nodes": GPUS // near["size"]}]}}


def profiled_jobs(calculon, folder):
    """Makes a job for every tensor, pipeline, data and sharding: a profile's
    static bytes apply to one combination."""
    paths = {}
    for t, p, d in calculon.degrees():
        for sharded in [True, False] if d > 1 else [False]:
            job = job_of(calculon, False)
            job["training"]["zero"] = int(sharded)
            job["layout"] = {"tensor": t, "pipeline": p, "data": d}
            job["profile"] = {"longhaul": "profile/1", "entries": [
                calculon.entry({"tensor": t, "pipeline": p, "data": d,
                                "micro_batch": m, "recompute": r,
                                "sharded": sharded})
                for m in calculon.micro_batches(t, p, d) for r in RECOMPUTE]}
            path = folder / f"t{t}p{p}d{d}z{int(sharded)}.json"
            path.write_text(json.dumps(job))
            paths[t, p, d, sharded] = path
    return paths


def run(*command):
    done = subprocess.run([str(x) for x in command], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"planner_calculon: {' '.join(map(str, command[:3]))}: "
                 f"{done.stderr}")
    return json.loads(done.stdout)


def children_s():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def as_layout(best):
    names = {v: k for k, v in RECOMPUTE.items()}
    return {"tensor": best["tensor"], "pipeline": best["pipeline"],
            "data": best["data"], "chunks": best["chunks"],
            "micro_batch": best["micro_batch"],
            "recompute": names[best["recompute"]],
            "sharded": best["zero"] > 0}


def grid(calculon):
    # 0: the planner's own 1, 2, 4 and 8 in one call.
    micro = {0 if m in (1, 2, 4, 8) else m for x in calculon.degrees()
             for m in calculon.micro_batches(*x)}
    chunks = {c for _, p, _ in calculon.degrees()
              for c in calculon.interleavings(p)}

    def key(name, values):
        return f"{name}={','.join(map(str, sorted(values)))}"
    return [key("micro_batch", micro), key("chunks", chunks)]


def with_profiles(o, calculon, folder):
    jobs = profiled_jobs(calculon, folder)
    return jobs, run(o.bench_space, o.repeats, *grid(calculon), *jobs.values())


def with_own_costs(o, calculon, folder):
    path = folder / "own.json"
    path.write_text(json.dumps(job_of(calculon, True)))
    tensors = sorted({t for t, _, _ in calculon.degrees()})
    found = run(o.bench_space, o.repeats, "zero=0,1", *grid(calculon),
                f"tensor={','.join(map(str, tensors))}", path)
    begin = children_s()
    plan = run(o.longhaul, "plan", path, "--json", "--quiet")
    return found, {"cpu_seconds": round(children_s() - begin, 3),
                   "iteration_s": plan["iteration_s"],
                   "layout": plan["layout"]}


def in_longhaul(o, jobs, x):
    """Evaluates a layout by longhaul, with Calculon's costs of a layer."""
    path = jobs[x["tensor"], x["pipeline"], x["data"], x["sharded"]]
    job = json.loads(path.read_text())
    job["training"]["recompute"] = RECOMPUTE[x["recompute"]]
    one = path.with_name("one.json")
    one.write_text(json.dumps(job))
    found = run(o.bench_space, 1, f"micro_batch={x['micro_batch']}",
                f"chunks={x['chunks']}", one)
    return found["best"]["iteration_s"]


def describe(calculon, found, peer_s):
    chosen = as_layout(found["best"])
    model = calculon.best_of(chosen)
    told = {"cpu_seconds": found["cpu_seconds"], "best": chosen,
            "left": found["left"],
            "iteration_s": found["best"]["iteration_s"],
            "possible_in_calculon": model is not None}
    if model:
        told["in_calculon_s"] = model.get_total_time()
        told["slower_in_calculon"] = model.get_total_time() / peer_s - 1
        told["terms_in_calculon"] = calculon.terms(model)
    return told


def compare(o, folder):
    calculon = Calculon(o.calculon.resolve(), o.batch)
    jobs, before = with_profiles(o, calculon, folder)
    peer = calculon.search()
    _, after = with_profiles(o, calculon, folder)
    own, plan = with_own_costs(o, calculon, folder)
    distinct = sum(1 for _ in calculon.layouts())
    ours = describe(calculon, before, peer["iteration_s"])
    ours["cpu_seconds"] = max(before["cpu_seconds"], after["cpu_seconds"])
    ours["per_second"] = round(peer["configurations"] / ours["cpu_seconds"], 1)
    peer["terms"] = calculon.terms(calculon.best_of(peer["best"]))
    peer["in_longhaul_s"] = in_longhaul(o, jobs, peer["best"])
    return {"benchmark": "planner-calculon", "machine": before["machine"],
            "version": before["version"], "gpus": GPUS, "batch": o.batch,
            "layouts": distinct, "calculon": peer, "longhaul": ours,
            "times_faster": round(peer["cpu_seconds"] / ours["cpu_seconds"], 1),
            "longhaul_own_costs": describe(calculon, own, peer["iteration_s"]),
            "longhaul_plan": plan}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("calculon", type=pathlib.Path)
    a.add_argument("bench_space", type=pathlib.Path)
    a.add_argument("longhaul", type=pathlib.Path)
    a.add_argument("--batch", type=int, default=512)
    a.add_argument("--repeats", type=int, default=5)
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = compare(o, pathlib.Path(folder))
    print(json.dumps(result, indent=1))
    return result["longhaul"].get("slower_in_calculon", 1) > WITHIN


if __name__ == "__main__":
    sys.exit(main())
