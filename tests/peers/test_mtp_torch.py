#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2), compared with
PyTorch: same weights, data and rates.

    test_mtp_torch.py LONGHAUL ROOT

The losses of the model and of the modules in ten steps agree within 1e-5 (relative),
the gradients of the first step and the weights after the last within 1e-3 of each
tensor's norm; on two stages, and tied with layers on three ranks. Needs torch and
numpy ($LONGHAUL_TORCH names a Python that has them).
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from skip_without import SKIP, skip_without

PROGRAM, ROOT = sys.argv[1:3]
sys.path.insert(0, os.path.join(ROOT, "bench"))
try:
    import numpy
    import torch
    import torch.nn.functional as F
    import peer_torch_train as peer
except ImportError as error:
    skip_without("torch or numpy", error, "LONGHAUL_TORCH",
            "modules of mtp_layers are trained as PyTorch's")

STEPS, SEQUENCE, BATCH, WEIGHT = 10, 32, 4, 0.1
LAYERS, HIDDEN, FFN, VOCAB, HEADS, KV_HEADS, HEAD_DIM = 2, 48, 96, 256, 3, 1, 16
TEXT = os.path.join(ROOT, "LICENSE")
count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


class Model(peer.Llama):
    """Equations 21 to 25. The input of a module's projection is the head's
    input of the previous module or of the model. DeepSeek-V3's eh_proj has the
    columns for the embedding first."""

    def __init__(self, weights, modules):
        super().__init__(weights, HEADS, KV_HEADS, HEAD_DIM, SEQUENCE)
        self.layers, self.modules_ = LAYERS, modules
        self.lost = [0.0, 0.0]

    def forward(self, tokens, _):
        def after(k):
            return tokens[:, k:k + SEQUENCE]

        state = self.states(after(0))
        main, further = self.loss(state, after(1)), 0
        for k in range(1, self.modules_ + 1):
            at = f"model.layers.{LAYERS + k - 1}"
            embedded = F.embedding(after(k), self.w("model.embed_tokens"))
            both = torch.cat((self.norm(embedded, at + ".enorm"),
                              self.norm(state, at + ".hnorm")), -1)
            x = self.layer(F.linear(both, self.w(at + ".eh_proj")), at)
            state = self.norm(x, at + ".shared_head.norm")
            further = further + self.loss(state, after(k + 1))
        further = further / self.modules_
        self.lost[0] += main.item()
        self.lost[1] += further.item()
        return main + WEIGHT * further


class Training(peer.Training):
    def batch(self, microbatch):
        """Returns whole windows, with the next tokens."""
        more = 1 + self.model.modules_
        n = (len(self.tokens) - more) // SEQUENCE
        rows = []
        for i in range(self.microbatch):
            sample = (self.done * self.microbatches + microbatch) * \
                self.microbatch + i
            key = peer.mix((self.seed + peer.mix(sample // n + 1)) & peer.MASK)
            at = peer.shuffle(sample % n, n, key) * SEQUENCE
            rows.append(self.tokens[at:at + SEQUENCE + more])
        return torch.from_numpy(numpy.stack(rows).astype("int64")), None


def draw(modules, tied):
    """Returns random weights under the names of checkpoints."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {"model.embed_tokens": (VOCAB, HIDDEN), "model.norm": (HIDDEN,)}
    if not tied:
        shapes["lm_head"] = (VOCAB, HIDDEN)
    for i in range(LAYERS + modules):
        of_layer = {"input_layernorm": (HIDDEN,),
                    "self_attn.q_proj": (q, HIDDEN),
                    "self_attn.k_proj": (kv, HIDDEN),
                    "self_attn.v_proj": (kv, HIDDEN),
                    "self_attn.o_proj": (HIDDEN, q),
                    "post_attention_layernorm": (HIDDEN,),
                    "mlp.gate_proj": (FFN, HIDDEN),
                    "mlp.up_proj": (FFN, HIDDEN),
                    "mlp.down_proj": (HIDDEN, FFN)}
        if i >= LAYERS:
            of_layer |= {"enorm": (HIDDEN,), "hnorm": (HIDDEN,),
                         "eh_proj": (HIDDEN, 2 * HIDDEN),
                         "shared_head.norm": (HIDDEN,)}
        shapes |= {f"model.layers.{i}.{name}": shape
                   for name, shape in of_layer.items()}
    return {f"{name}.weight": torch.randn(shape) * 0.05 + (len(shape) == 1)
            for name, shape in shapes.items()}


def write_safetensors(path, weights):
    header, at = {}, 0
    for name, w in weights.items():
        header[name] = {"dtype": "F32", "shape": list(w.shape),
                        "data_offsets": [at, at + 4 * w.numel()]}
        at += 4 * w.numel()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(
        w.numpy().astype("<f4").tobytes() for w in weights.values()))


def longhaul(*args):
    done = subprocess.run([PROGRAM, *map(str, args)], text=True,
                          capture_output=True)
    if "OpenBLAS" in done.stderr:
        print("SKIPPED:", done.stderr, file=sys.stderr)
        sys.exit(SKIP)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def run(folder, modules, tied, layout):
    """Runs longhaul; returns losses; weights and moments remain in the
    folder."""
    ranks = 1
    for degree in layout.values():
        ranks *= degree
    one = {"tensor": 1, "context": 1, "expert": 1, "pipeline": 1, "data": 1,
           "micro_batch": 1, "chunks_per_device": 1}
    job = {"longhaul": "job/1",
           "model": {"layers": LAYERS, "hidden": HIDDEN, "ffn": FFN,
                     "heads": HEADS, "kv_heads": KV_HEADS,
                     "head_dim": HEAD_DIM, "vocab": VOCAB,
                     "tied_embeddings": tied, "mtp_layers": modules},
           "training": {"global_batch": BATCH, "sequence": SEQUENCE,
                        "precision": "fp32", "optimizer": "adamw", "zero": 1,
                        "recompute": "none"},
           "cluster": {"gpu": {"tflops": 0.1, "memory_gib": 4,
                               "memory_gbps": 20},
                       "gpus_per_node": ranks,
                       "node_link": {"gbps": 80, "latency_us": 10},
                       "fabric": {"gbps": 10, "latency_us": 50},
                       "datacenters": [{"name": "here", "nodes": 1}]},
           "layout": one | layout}
    (folder / "job.yaml").write_text(json.dumps(job))
    longhaul("plan", folder / "job.yaml", "--for", "longhaul", "--no-optimal",
             "-o", folder / "plan.json")
    out = longhaul("train", folder / "plan.json", "--device", "cpu", "--data",
                   TEXT, "--steps", STEPS, "--rate", 1e-3, "--warmup", 3,
                   "--seed", 1, "--weights", folder / "first.safetensors",
                   "--checkpoint", folder / "run", "--checkpoint-every", 1,
                   "--keep", STEPS, "--json")
    return json.loads(out)["iterations"]


def off(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


def compare(name, modules, tied, layout):
    first = draw(modules, tied)
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        write_safetensors(folder / "first.safetensors", first)
        ours = run(folder, modules, tied, layout)
        model = Model(first, modules)
        peers = Training(model, numpy.fromfile(TEXT, "uint8"), SEQUENCE, 1,
                         BATCH, 1, STEPS, 1e-3, 1e-4, 3)
        worst = worst_gradient = 0
        for step in range(STEPS):
            model.lost = [0.0, 0.0]
            peers.step()
            theirs = [x / (BATCH * SEQUENCE) for x in model.lost]
            for a, b in zip((ours[step]["loss"], ours[step]["mtp_loss"]),
                            theirs):
                worst = max(worst, abs(a / b - 1))
            if step == 0:
                moments = peer.read_safetensors(
                    folder / "run/step-00000001/optimizer.safetensors")
                for key in first:
                    mean = peers.optimizer.state[
                        model.p[key.replace(".", "/")]]["exp_avg"]
                    worst_gradient = max(
                        worst_gradient, off(moments[key + ".exp_avg"], mean))
        last = peer.read_safetensors(
            folder / f"run/step-{STEPS:08}/model.safetensors")
        check(set(last) == set(first), f"{name}: tensors {sorted(last)}")
        worst_weight = max(off(w, model.p[key.replace(".", "/")].detach())
                           for key, w in last.items())
    print(f"{name}: losses within {worst:.1e}, gradients {worst_gradient:.1e}, "
          f"weights {worst_weight:.1e} of PyTorch's")
    check(worst < 1e-5, f"{name}: losses differ by {worst:.2g}")
    check(worst_gradient < 1e-3, f"{name}: gradients are off by "
          f"{worst_gradient:.2g}")
    check(worst_weight < 1e-3, f"{name}: weights are off by {worst_weight:.2g}")


torch.manual_seed(0)
torch.set_num_threads(1)
compare("two stages", 2, False, {"pipeline": 2})
compare("tied, layers on three ranks", 1, True, {"tensor": 3})
print(f"{count[True]} passed, {count[False]} failed")
sys.exit(count[False] > 0)
