#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as other programs read and write them.

    test_checkpoint_files.py PROGRAM ROOT

safetensors reads both files, with the names, shapes and types that
docs/formats/checkpoint.md says; transformers' LlamaForCausalLM loads a
checkpoint as it is and has our validation loss within 1e-5 relative; what
transformers saves, training begins with. Needs torch, safetensors and
transformers ($LONGHAUL_TORCH names a Python that has them).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from lacking import SKIP, lacking

PROGRAM, ROOT = os.path.abspath(sys.argv[1]), sys.argv[2]
try:
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from safetensors import safe_open
    from transformers import LlamaForCausalLM
    from transformers.utils import logging
except ImportError as error:
    lacking("torch, safetensors or transformers", error, "LONGHAUL_TORCH",
            "other programs read our checkpoints")

logging.set_verbosity_error()
logging.disable_progress_bar()
STEPS, SEQUENCE, BATCH = 6, 32, 8
count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def longhaul(folder, *args):
    done = subprocess.run([PROGRAM, *args], cwd=folder, text=True,
                          capture_output=True)
    if "OpenBLAS" in done.stderr:
        print("SKIPPED:", done.stderr, file=sys.stderr)
        sys.exit(SKIP)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr}")
    return done.stdout


def train(folder, steps, *more):
    return json.loads(longhaul(
        folder, "train", "plan.json", "--device", "cpu", "--data", "text",
        "--rate", "1e-2", "--steps", str(steps), "--validation", "0.25",
        "--json", *more))["iterations"]


def plan(folder, tied, replicas):
    """A small job: grouped heads whose width is not hidden / heads."""
    job = pathlib.Path(ROOT, "examples/tiny-llama-cpu.yaml").read_text()
    for old, new in [
            ("hidden: 128, ffn: 384", "hidden: 40, ffn: 56"),
            ("head_dim: 32", "head_dim: 12"),
            ("sequence: 128", f"sequence: {SEQUENCE}"),
            ("tied_embeddings: true", f"tied_embeddings: {str(tied).lower()}"),
            ("pipeline: 4, data: 1", f"pipeline: {4 // replicas}, "
                                     f"data: {replicas}")]:
        check(old in job, f"{old} is in the example")
        job = job.replace(old, new)
    pathlib.Path(folder, "job.yaml").write_text(job)
    longhaul(folder, "plan", "job.yaml", "-o", "plan.json")
    pathlib.Path(folder, "text").write_bytes(
        pathlib.Path(ROOT, "LICENSE").read_bytes())


def documented(tied):
    """Names and shapes, by docs/formats/checkpoint.md."""
    hidden, ffn, vocab, q, kv = 40, 56, 256, 4 * 12, 2 * 12
    shapes = {"model.embed_tokens.weight": [vocab, hidden]}
    for layer in range(4):
        for name, shape in [
                ("input_layernorm", [hidden]), ("self_attn.q_proj", [q, hidden]),
                ("self_attn.k_proj", [kv, hidden]),
                ("self_attn.v_proj", [kv, hidden]),
                ("self_attn.o_proj", [hidden, q]),
                ("post_attention_layernorm", [hidden]),
                ("mlp.gate_proj", [ffn, hidden]), ("mlp.up_proj", [ffn, hidden]),
                ("mlp.down_proj", [hidden, ffn])]:
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes["model.norm.weight"] = [hidden]
    if not tied:
        shapes["lm_head.weight"] = [vocab, hidden]
    return shapes


def read_file(name, path, shapes):
    """All tensors, as safetensors has them."""
    with safe_open(path, framework="pt") as file:
        check(file.metadata() == {"format": "pt"}, f"{name}: metadata")
        check(set(file.keys()) == set(shapes),
              f"{name}: {set(file.keys()) ^ set(shapes)}")
        tensors = {key: file.get_tensor(key) for key in file.keys()}
    for key, tensor in tensors.items():
        check(list(tensor.shape) == shapes.get(key) and
              tensor.dtype == torch.float32 and
              bool(torch.isfinite(tensor).all()),
              f"{name}: {key} is {tensor.dtype} {list(tensor.shape)}")
    return tensors


def safetensors(name, folder, tied):
    shapes = documented(tied)
    weights = read_file(name, folder / "model.safetensors", shapes)
    moments = read_file(name, folder / "optimizer.safetensors", {
        key + suffix: shape for key, shape in shapes.items()
        for suffix in (".exp_avg", ".exp_avg_sq")})
    check(all(bool((m >= 0).all()) and bool((m > 0).any())
              for key, m in moments.items() if key.endswith("_sq")),
          f"{name}: means of squares")
    return weights


def their_loss(model):
    """Over the first windows of the last quarter of the text, as our
    validation."""
    text = pathlib.Path(ROOT, "LICENSE").read_bytes()
    first = len(text) - int(len(text) * 0.25)
    rows = [list(text[first + i * SEQUENCE:][:SEQUENCE + 1])
            for i in range(BATCH)]
    tokens = torch.tensor(rows)
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits.double()
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1)).item()


def transformers(name, folder, weights, loss):
    model, found = LlamaForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32)
    wrong = {key: value for key, value in found.items() if value}
    check(not wrong, f"{name}: {wrong}")
    theirs = dict(model.named_parameters())
    check(set(theirs) == set(weights), f"{name}: parameters of transformers")
    check(all(torch.equal(theirs[key], weights[key]) for key in weights),
          f"{name}: values in transformers")
    got = their_loss(model)
    check(abs(got - loss) <= 1e-5 * loss,
          f"{name}: transformers' loss is {got}, ours {loss}")
    print(f"{name}: transformers' loss is {got:.7f}, ours {loss:.7f}")
    return model


def back(name, folder, model):
    """Training begins with what transformers has saved, here and there."""
    ours = train(folder, 1, "--weights", f"run/step-{STEPS:08}")
    model.save_pretrained(folder / "theirs")
    theirs = train(folder, 1, "--weights", "theirs")
    check(ours[0]["loss"] == theirs[0]["loss"],
          f"{name}: {ours[0]} from ours, {theirs[0]} from transformers'")
    model.to(torch.bfloat16).save_pretrained(folder / "halves")
    halves = train(folder, 1, "--weights", "halves")
    check(0 < abs(halves[0]["loss"] - ours[0]["loss"]) < 0.01,
          f"{name}: {halves[0]} from bfloat16, {ours[0]} from ours")


for tied, replicas in [(True, 1), (False, 2)]:
    name = f"{'tied' if tied else 'untied'}, {replicas} replicas"
    with tempfile.TemporaryDirectory() as at:
        plan(at, tied, replicas)
        loss = train(at, STEPS, "--checkpoint", "run")[-1]["validation_loss"]
        folder = pathlib.Path(at, "run", f"step-{STEPS:08}")
        weights = safetensors(name, folder, tied)
        back(name, pathlib.Path(at),
             transformers(name, folder, weights, loss))
print(f"{count[True]} passed, {count[False]} failed")
sys.exit(count[False] > 0)
