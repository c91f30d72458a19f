#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on the CPU, compared with PyTorch: same model, data and seed.

    test_train_torch.py SPEED_TRAIN NAIVE_GRADIENT ROOT

The losses of 20 steps agree within 1e-4 relative, also with other options of AdamW and
PyTorch's schedulers for warm-up, constant rate and linear decay; the naive reference of the tests, in
doubles, agrees within 1e-9 with PyTorch's gradients; transformers loads the checkpoint.
In bf16 our losses differ from those of PyTorch's autocast in the mean and in the first
steps by at most as much as autocast's differ from fp32's; the wide model takes fewer steps
unless all cases run.
Needs torch and numpy ($LONGHAUL_TORCH names a Python that has them), for the last part
transformers; missing parts are skipped with a message.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from skip_without import SKIP, skip_without

SPEED, NAIVE, ROOT = sys.argv[1:4]
sys.path.insert(0, os.path.join(ROOT, "bench"))
try:
    warnings.filterwarnings("ignore")
    import numpy
    import torch
    import peer_torch_train as peer
except ImportError as error:
    skip_without("torch or numpy", error, "LONGHAUL_TORCH",
            "training agrees with PyTorch's")

STEPS = 20
FIRST = 5
WIDE_STEPS = STEPS if "LONGHAUL_ALL_CASES" in os.environ else FIRST
count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def run(shape, sequence, microbatch, microbatches, text, folder, *kind,
        steps=STEPS):
    """Runs longhaul; returns losses and norms; weights before and after are in
    `folder`."""
    args = [text, *shape[:7], sequence, microbatch, microbatches, shape[7],
            *kind]
    lines = f"save {folder}\n" + "step\n" * steps + f"save {folder}\n"
    done = subprocess.run([SPEED, *map(str, args)], input=lines, text=True,
                          capture_output=True)
    if done.returncode == SKIP:
        print("SKIPPED:", done.stderr, file=sys.stderr)
        sys.exit(SKIP)
    if done.returncode:
        sys.exit(done.stderr)
    return [json.loads(x) for x in done.stdout.splitlines()][1:-1]


def model_of(path, shape, sequence, kind=torch.float32):
    weights = {n: w.to(kind) for n, w in peer.read_safetensors(path).items()}
    return peer.Llama(weights, *shape[4:7], sequence)


def follow_wsd(train):
    """Sets the options that speed_train has with "wsd"."""
    for group in train.optimizer.param_groups:
        group.update(betas=(0.8, 0.99), eps=1e-4,
                     weight_decay=3 * group["weight_decay"])
    schedulers = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD(train.model.parameters(), lr=1e-3)
    rates = schedulers.SequentialLR(optimizer, [
        schedulers.LinearLR(optimizer, 1 / 5, 1, 4),
        schedulers.ConstantLR(optimizer, 1, 1),
        schedulers.LinearLR(optimizer, 1, 0.1, 10)], [5, 10])
    every = []
    for _ in range(STEPS):
        every.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        rates.step()
    train.rate_now = lambda: every[train.done]


def compare(name, shape, sequence, microbatch, microbatches, text, *kind):
    with tempfile.TemporaryDirectory() as folder:
        ours = run(shape, sequence, microbatch, microbatches, text, folder,
                   *kind)
        begin = pathlib.Path(folder, "step-00000000", "model.safetensors")
        after = pathlib.Path(folder, "step-00000020", "model.safetensors")
        tokens = numpy.fromfile(text, "uint8")
        model = model_of(begin, shape, sequence)
        train = peer.Training(model, tokens, sequence, microbatch,
                              microbatches, 1, 1000, 1e-3, 1e-4, 10)
        if kind:
            follow_wsd(train)
        worst = 0
        for got in ours:
            loss, norm = train.step()
            worst = max(worst, abs(got["loss"] - loss) / loss)
            check(abs(got["norm"] - norm) <= 1e-3 * norm,
                  f"{name}: norm {got['norm']}, PyTorch {norm}")
        check(worst <= 1e-4, f"{name}: loss differs by {worst:.2g}")
        check(ours[-1]["loss"] < 0.9 * ours[0]["loss"],
              f"{name}: the loss does not fall")
        print(f"{name}: losses within {worst:.1e} of PyTorch's")
        end = peer.read_safetensors(after)
        for key, ours_ in end.items():
            theirs = model.p[key.replace(".", "/")].detach()
            off = (ours_ - theirs).norm() / theirs.norm()
            check(off < 2e-3, f"{name}: {key} is off by {off:.2g}")
        naive(name, begin, shape, tokens, folder)
        transformers(name, after.parent, end, tokens, shape)


def compare_bf16(name, shape, sequence, microbatch, microbatches, text, steps):
    """Compares losses and gradient norms with autocast's; autocast's distance
    to fp32 is the tolerance. Rounding in bf16 makes the weights of both runs
    diverge from those of fp32. At a later step autocast's loss may be the one
    that is far off, so a later loss of ours has to be near autocast's or
    fp32's."""
    with tempfile.TemporaryDirectory() as folder:
        ours = run(shape, sequence, microbatch, microbatches, text, folder,
                   "bf16", steps=steps)
        begin = pathlib.Path(folder, "step-00000000", "model.safetensors")
        tokens = numpy.fromfile(text, "uint8")
        fp32, autocast = (peer.Training(
            model_of(begin, shape, sequence), tokens, sequence, microbatch,
            microbatches, 1, 1000, 1e-3, 1e-4, 10) for _ in range(2))
        noise, off, far, norms = [], [], [], []
        for got in ours:
            want, _ = fp32.step()
            far.append(abs(got["loss"] - want) / want)
            with torch.autocast("cpu", torch.bfloat16):
                loss, norm = autocast.step()
            noise.append(abs(loss - want) / want)
            off.append(abs(got["loss"] - loss) / loss)
            norms.append(abs(got["norm"] - norm) / norm)
        print(f"{name}, bf16: losses within {max(off):.1e} of autocast's, mean "
              f"{numpy.mean(off):.1e}; autocast's within {max(noise):.1e} of "
              f"fp32's, mean {numpy.mean(noise):.1e}; norms within "
              f"{max(norms):.1e}")
        early, early_noise = max(off[:FIRST]), max(noise[:FIRST])
        check(early <= early_noise, f"{name}, bf16: an early loss is off by "
              f"{early:.2g}; autocast's differs by {early_noise:.2g}")
        nearest = max(map(min, off, far))
        check(nearest <= max(noise), f"{name}, bf16: a loss is {nearest:.2g} "
              "from both autocast's and fp32's; autocast's differs by "
              f"{max(noise):.2g}")
        check(numpy.mean(off) <= numpy.mean(noise),
              f"{name}, bf16: losses are off by {numpy.mean(off):.2g} in the mean")
        check(max(norms) <= 1e-2,
              f"{name}, bf16: a norm is off by {max(norms):.2g}")
        check(max(off) > 1e-7, f"{name}, bf16: the losses are those of fp32")


def naive(name, weights, shape, tokens, folder):
    window = tokens[:25].astype("<i4")
    window.tofile(f"{folder}/tokens")
    subprocess.run([NAIVE, weights, f"{folder}/tokens", f"{folder}/gradient",
                    *map(str, shape)], check=True)
    got = numpy.fromfile(f"{folder}/gradient", "<f8")
    model = model_of(weights, shape, 24, torch.float64)
    t = torch.from_numpy(window.astype("int64"))
    loss = model(t[None, :-1], t[None, 1:])
    loss.backward()
    want = numpy.concatenate([model.p[n.replace(".", "/")].grad.numpy().ravel()
                              for n in model.names])
    check(abs(got[0] - loss.item()) <= 1e-9 * loss.item(),
          f"{name}: the naive loss is {got[0]}, PyTorch's {loss.item()}")
    off = numpy.linalg.norm(got[1:] - want) / numpy.linalg.norm(want)
    check(off <= 1e-9, f"{name}: naive gradients are off by {off:.2g}")
    print(f"{name}: naive gradients within {off:.1e} of PyTorch's")


def transformers(name, folder, weights, tokens, shape):
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        print(f"SKIPPED: no transformers ({error}); that it loads our "
              "checkpoints is not tested", file=sys.stderr)
        return
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    for key, value in theirs.named_parameters():
        check(torch.equal(value, weights[key]), f"{name}: {key} in "
              "transformers is another")
    check(len(list(theirs.named_parameters())) == len(weights),
          f"{name}: transformers has other tensors")
    t = torch.from_numpy(tokens[100:125].astype("int64"))
    with torch.no_grad():
        logits = theirs(t[None, :-1]).logits.double()
    want = model_of(folder / "model.safetensors", shape, 24)(
        t[None, :-1], t[None, 1:]).item()
    got = torch.nn.functional.cross_entropy(
        logits[0], t[1:], reduction="sum").item()
    check(abs(got - want) <= 1e-5 * want,
          f"{name}: transformers' loss is {got}, not {want}")
    print(f"{name}: transformers loads the checkpoint")


torch.manual_seed(0)
torch.set_num_threads(1)
text = os.path.join(ROOT, "LICENSE")
# layers, hidden, ffn, vocab, heads, kv_heads, head_dim, tied
compare("grouped heads", (3, 64, 160, 256, 8, 2, 8, 0), 48, 2, 4, text)
compare("tied", (2, 48, 128, 256, 3, 3, 16, 1), 100, 3, 2, text, "wsd")
compare_bf16("grouped heads", (3, 64, 160, 256, 8, 2, 8, 0), 48, 2, 4, text,
             STEPS)
compare_bf16("wide", (2, 320, 640, 256, 5, 5, 64, 1), 100, 3, 2, text,
             WIDE_STEPS)
print(f"{count[True]} passed, {count[False]} failed")
sys.exit(count[False] > 0)
