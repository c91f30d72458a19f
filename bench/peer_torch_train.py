#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same training in PyTorch: model, data order, optimizer.

Imported by bench/train.py and bench/sharded.py, which measure it beside longhaul,
and by tests/peers/test_train_torch.py, which compares the numbers.
"""
import json
import math
import struct

import numpy
import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def shuffle(i, n, key):
    """docs/training.md, "The order of windows"."""
    half = 1
    while half < 31 and 1 << (2 * half) < n:
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = i >> half, i & mask
        for turn in range(4):
            left, right = right, left ^ (
                mix((right + mix((key + turn) & MASK)) & MASK) & mask)
        i = left << half | right
        if i < n:
            return i


def window(tokens, sequence, seed, sample):
    n = (len(tokens) - 1) // sequence
    at = shuffle(sample % n, n, mix((seed + mix(sample // n + 1)) & MASK))
    return tokens[at * sequence:(at + 1) * sequence + 1]


def read_safetensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        values = file.read()
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(
        numpy.frombuffer(values[slice(*t["data_offsets"])], "<f4")
        .reshape(t["shape"]).copy()) for name, t in header.items()}


class Llama(torch.nn.Module):
    """Loads weights by Hugging Face's names."""

    def __init__(self, weights, heads, kv_heads, head_dim, sequence,
                 theta=10000.0, epsilon=1e-5):
        super().__init__()
        self.names = list(weights)
        self.p = torch.nn.ParameterDict(
            {n.replace(".", "/"): torch.nn.Parameter(w)
             for n, w in weights.items()})
        self.layers = sum(n.endswith("q_proj.weight") for n in weights)
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.epsilon = epsilon
        power = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        angle = torch.outer(torch.arange(sequence, dtype=torch.float64),
                            theta ** -power)
        kind = next(iter(weights.values())).dtype
        self.cos, self.sin = angle.cos().to(kind), angle.sin().to(kind)

    def w(self, name):
        return self.p[name.replace(".", "/") + "/weight"]

    def norm(self, x, name):
        return F.rms_norm(x, (x.shape[-1],), self.w(name), self.epsilon)

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat((a * self.cos - b * self.sin,
                          b * self.cos + a * self.sin), -1)

    def attention(self, x, name):
        b, s, _ = x.shape

        def split(part, n):
            y = F.linear(x, self.w(f"{name}.{part}_proj"))
            return y.view(b, s, n, self.head_dim).transpose(1, 2)

        y = F.scaled_dot_product_attention(
            self.rotate(split("q", self.heads)),
            self.rotate(split("k", self.kv_heads)),
            split("v", self.kv_heads), is_causal=True,
            enable_gqa=self.heads != self.kv_heads)
        return F.linear(y.transpose(1, 2).reshape(b, s, -1),
                        self.w(f"{name}.o_proj"))

    def layer(self, x, at):
        x = x + self.attention(self.norm(x, at + ".input_layernorm"),
                               at + ".self_attn")
        y = self.norm(x, at + ".post_attention_layernorm")
        y = F.silu(F.linear(y, self.w(at + ".mlp.gate_proj"))) * \
            F.linear(y, self.w(at + ".mlp.up_proj"))
        return x + F.linear(y, self.w(at + ".mlp.down_proj"))

    def loss(self, x, targets):
        """Returns the summed loss of the head's predictions from x."""
        head = ("lm_head" if "lm_head.weight" in self.names
                else "model.embed_tokens")
        logits = F.linear(x, self.w(head))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                               reduction="sum")

    def states(self, tokens):
        x = F.embedding(tokens, self.w("model.embed_tokens"))
        for i in range(self.layers):
            x = self.layer(x, f"model.layers.{i}")
        return self.norm(x, "model.norm")

    def forward(self, tokens, targets):
        return self.loss(self.states(tokens), targets)


class Training:
    """Trains in one process; accumulates microbatches."""

    def __init__(self, model, tokens, sequence, microbatch, microbatches, seed,
                 steps, rate, min_rate, warmup, clip=1.0, fused=None):
        self.model, self.tokens, self.seed = model, tokens, seed
        self.sequence, self.microbatch = sequence, microbatch
        self.microbatches, self.clip = microbatches, clip
        self.steps, self.rate = steps, rate
        self.min_rate, self.warmup, self.done = min_rate, warmup, 0
        self.replica, self.replicas = 0, 1
        groups = [{"params": [p for p in model.parameters() if p.dim() == 2],
                   "weight_decay": 0.1},
                  {"params": [p for p in model.parameters() if p.dim() == 1],
                   "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95),
                                           eps=1e-8, fused=fused)

    def batch(self, microbatch):
        first = ((self.done * self.replicas + self.replica) *
                 self.microbatches + microbatch) * self.microbatch
        rows = [window(self.tokens, self.sequence, self.seed, first + i)
                for i in range(self.microbatch)]
        all_ = torch.from_numpy(numpy.stack(rows).astype("int64"))
        return all_[:, :-1], all_[:, 1:]

    def rate_now(self):
        if self.done < self.warmup:
            return self.rate * (self.done + 1) / self.warmup
        done = (self.done - self.warmup) / (self.steps - self.warmup)
        return self.min_rate + (self.rate - self.min_rate) * (
            1 + math.cos(math.pi * done)) / 2

    def step(self):
        total = self.microbatches * self.microbatch * self.sequence
        loss = 0.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate_now()
        self.optimizer.zero_grad(set_to_none=True)
        for m in range(self.microbatches):
            part = self.model(*self.batch(m)) / total
            part.backward()
            loss += part.item()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(),
                                              self.clip)
        self.optimizer.step()
        self.done += 1
        return loss, norm.item()
