#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plan --for longhaul` and the cpu device agree: the device trains every such plan,
and both reject the same fixed layouts.
"""
import json
import random

from harness import ROOT, check, finish, run, test, write

FEW, MANY = range(30), range(100, 1000)
COMMON = {"layers": 4, "hidden": 64, "heads": 4, "vocab": 256}
LLAMA = {**COMMON, "ffn": 192, "kv_heads": 2, "head_dim": 16}
NORMED = {**COMMON, "ffn": 256, "gated": False, "norm": "layer",
          "tied_embeddings": True}
LATENT = {**COMMON, "ffn": 192, "heads": 3, "q_lora_rank": 24,
          "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
          "v_head_dim": 10}
MODELS = {
    "llama": LLAMA,
    "qwen3": {**LLAMA, "qk_norm": True},
    "tied": {**LLAMA, "tied_embeddings": True},
    "falcon": {**NORMED, "kv_heads": 1, "parallel_block": True},
    "gpt2": {**NORMED, "positions": 64, "qkv_bias": True, "output_bias": True,
             "mlp_bias": True},
    "latent": LATENT,
    "deepseek": {**LATENT, "dense_layers": 1, "experts": 8,
                 "experts_per_token": 2, "expert_ffn": 32,
                 "shared_expert_ffn": 32, "router": "sigmoid",
                 "routed_scale": 2.5, "expert_groups": 4,
                 "groups_per_token": 2},
    "experts": {**COMMON, "kv_heads": 2, "head_dim": 16, "qk_norm": True,
                "experts": 6, "experts_per_token": 3, "expert_ffn": 40},
    "ahead": {**LLAMA, "mtp_layers": 1},
    "window": {**LLAMA, "sliding_window": 32},
    "wide window": {**LLAMA, "sliding_window": 64},
    "odd": {**LLAMA, "head_dim": 15},
}


def cluster(sites, nodes):
    names = ("north", "south", "west")[:sites]
    return {"gpu": {"tflops": 0.1, "memory_gib": 4, "memory_gbps": 20},
            "gpus_per_node": 8 if sites == 1 else 1,
            "node_link": {"gbps": 80, "latency_us": 10},
            "fabric": {"gbps": 10, "latency_us": 50},
            "datacenters": [{"name": name, "nodes": 1 if sites == 1 else nodes}
                            for name in names],
            "links": [{"between": [a, b], "gbps": 1, "latency_ms": 1}
                      for i, a in enumerate(names) for b in names[:i]]}


def job(r, is_fixed):
    model = dict(MODELS[r.choice(list(MODELS))])
    sites = r.choice((1, 1, 2, 3))
    training = {"global_batch": 12, "sequence": 64, "precision": "fp32",
                "optimizer": "adamw"}
    if is_fixed or r.random() < 0.7:
        training["recompute"] = r.choice(("none", "none", "full"))
    if is_fixed or r.random() < 0.7:
        training["zero"] = r.randrange(4)
    if "experts" in model and r.random() < 0.2:
        training["expert_capacity"] = 1.5
    if "experts" in model and r.random() < 0.2:
        training["dispatcher"] = "deepep"
    layout = {"tensor": r.choice((1, 1, 2)), "context": r.choice((1, 1, 2)),
              "pipeline": r.choice((1, 1, 2)), "data": r.choice((1, 2, 2, 4)),
              "micro_batch": 1, "chunks_per_device": 1}
    if "experts" in model:
        layout["expert"] = r.choice((1, 2))
        if r.random() < 0.2:
            layout["expert_tensor"] = 2
    if is_fixed:
        layout["schedule"] = "1f1b"
        if sites > 1 and r.random() < 0.5:
            layout.update(outermost="data", sharding="hybrid")
    else:
        for key in list(layout):
            if r.random() < 0.6:
                del layout[key]
    return {"longhaul": "job/1", "model": model, "training": training,
            "cluster": cluster(sites, r.choice((1, 2))), "layout": layout,
            "framework": {"sequence_parallel": r.random() < 0.7}}


def planned(seed, *more):
    return run("plan", f"{seed}.yaml", "-o", f"{seed}.json", "--no-optimal",
               *more)


def trained(seed):
    """Trains the plan; returns None if this build cannot train."""
    done = run("train", f"{seed}.json", "--device", "cpu", "--data",
               str(ROOT / "README.md"), "--steps", "1")
    return None if "OpenBLAS" in done.stderr else done


def try_seed(seed, tally):
    r = random.Random(seed)
    is_fixed = r.random() < 0.6
    given = job(r, is_fixed)
    write(f"{seed}.yaml", json.dumps(given))
    done = planned(seed, "--for", "longhaul")
    if done.returncode == 0:
        ran = trained(seed)
        check(ran is None or ran.returncode == 0,
              f"seed {seed}: {ran and ran.stderr}\n{json.dumps(given)}")
        tally["trained"] += 1
    elif is_fixed and planned(seed).returncode == 0:
        ran = trained(seed)
        check(ran is None or ran.returncode != 0,
              f"seed {seed}: trained, but {done.stderr}\n{json.dumps(given)}")
        tally["refused"] += 1


def try_seeds(seeds):
    tally = {"trained": 0, "refused": 0}
    for seed in seeds:
        try_seed(seed, tally)
    check(min(tally.values()) > 1, f"{tally} of {len(seeds)}")


@test
def features_that_the_engine_lacks_are_named_if_memory_excludes_the_rest():
    """The error also names a remedy that works."""
    given = {"longhaul": "job/1", "model": MODELS["experts"],
             "training": {"global_batch": 12, "sequence": 64, "zero": 1,
                          "precision": "fp32", "optimizer": "adamw"},
             "cluster": cluster(2, 2),
             "layout": {"sharding": "hybrid", "sites": [
                 {"replicas": 2, "pipeline": ["north"]},
                 {"replicas": 1, "pipeline": ["south"]}]}}
    given["cluster"]["gpu"]["memory_gib"] = 0.003
    write("rule.yaml", json.dumps(given))
    done = planned("rule", "--for", "longhaul", "--effort", "1")
    check(done.returncode != 0 and
          "no layout that fits in memory is supported by longhaul's engine"
          in done.stderr and "use layout.sharding: full"
          in done.stderr, done.stderr)
    given["layout"]["sharding"] = "full"
    write("rule.yaml", json.dumps(given))
    done = planned("rule", "--for", "longhaul", "--effort", "1")
    check(done.returncode == 0, done.stderr)


@test
def modules_are_with_the_head():
    """Plans with prediction modules elsewhere are for other programs; the
    device does not train them."""
    given = {"longhaul": "job/1", "model": MODELS["ahead"],
             "training": {"global_batch": 4, "sequence": 64, "zero": 1,
                          "precision": "fp32", "optimizer": "adamw"},
             "cluster": cluster(1, 1),
             "layout": {"tensor": 1, "context": 1, "pipeline": 2, "data": 1,
                        "micro_batch": 1, "chunks_per_device": 2,
                        "layers": [2, 2, 0, 0], "mtp_chunk": 2}}
    write("apart.yaml", json.dumps(given))
    done = planned("apart", "--for", "longhaul")
    check(done.returncode != 0 and "remove layout.mtp_chunk" in done.stderr,
          done.stderr)
    check(planned("apart").returncode == 0, "no plan")
    done = trained("apart")
    check(done is None or (done.returncode != 0 and
                           "plan without mtp_chunk" in done.stderr),
          done and done.stderr)
    del given["layout"]["mtp_chunk"]
    write("apart.yaml", json.dumps(given))
    check(planned("apart", "--for", "longhaul").returncode == 0, "no plan")
    done = trained("apart")
    check(done is None or done.returncode == 0, done and done.stderr)


@test
def tokens_are_not_gathered():
    given = {"longhaul": "job/1", "model": MODELS["experts"],
             "training": {"global_batch": 4, "sequence": 64,
                          "dispatcher": "allgather"},
             "cluster": cluster(1, 1)}
    write("gathered.yaml", json.dumps(given))
    done = planned("gathered", "--for", "longhaul")
    check(done.returncode != 0 and "has no all-gather of tokens" in done.stderr,
          done.stderr)


@test
def a_few_jobs():
    try_seeds(FEW)


@test
def many_jobs():
    try_seeds(MANY)


finish()
