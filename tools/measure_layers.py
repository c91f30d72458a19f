#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Llama layers on this machine's GPU and writes a profile/1 file.

    tools/measure_layers.py --model llama3-8b -o h200-llama3-8b.json

For every tensor-parallel degree one GPU's share of a layer runs alone: heads,
key/value heads and MLP divided, norms and residuals on 1/tensor of the tokens,
as with sequence parallelism. Communication is not part of it (the profile says
so, and the cost model adds it). F, D (input gradient) and W (weight gradient,
added to fp32 gradients) are timed apart with CUDA events; a time is the median
of --repeat runs. Kernels are PyTorch's own, one per operation but for attention,
so norms and activation functions take longer than fused ones. Embedding and
head are measured too. Needs PyTorch 2.3 or later; docs/formats/profile.md
describes the file.
"""

import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

MODELS = {  # hidden, heads, kv_heads, head_dim, ffn, vocab
    "llama3-8b": (4096, 32, 8, 128, 14336, 128256),
    "llama3-70b": (8192, 64, 8, 128, 28672, 128256),
    "tiny": (64, 8, 4, 8, 160, 512),  # to try the script
}

GPUS = (  # part of the device's name, preset
    ("H200", "h200"),
    ("GH200", "gh200"),
    ("H100", "h100-sxm"),
    ("B200", "b200"),
    ("A100-SXM4-80GB", "a100-80g"),
    ("A100-SXM4-40GB", "a100-40g"),
    ("V100", "v100-32g"),
)


def gpu_name(device):
    if device.type != "cuda":
        return "cpu"
    name = torch.cuda.get_device_name(device)
    if "GH200" in name:
        return "gh200"
    for part, preset in GPUS:
        if part in name:
            return preset
    return name


class Clock:
    """Times work in ms: CUDA events on a GPU, the wall clock else."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        # Emptied between runs, so that no run finds the last one's operands.
        size = 256 << 20 if self.cuda else 1024
        self.flush = torch.empty(size, dtype=torch.int8, device=device)

    def start(self):
        self.flush.zero_()
        if self.cuda:
            self.begin = torch.cuda.Event(enable_timing=True)
            self.end = torch.cuda.Event(enable_timing=True)
            # The host runs ahead of the GPU, as in training.
            torch.cuda._sleep(2_000_000)
            self.begin.record()
        else:
            self.begin = time.perf_counter()

    def stop(self):
        if self.cuda:
            self.end.record()
            self.end.synchronize()
            return self.begin.elapsed_time(self.end)
        return (time.perf_counter() - self.begin) * 1e3


def allocated(device):
    if device.type == "cuda":
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(device)
    return None


def rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def attention(q, k, v, heads, kv_heads, device):
    if kv_heads != heads:
        k = k.repeat_interleave(heads // kv_heads, dim=1)
        v = v.repeat_interleave(heads // kv_heads, dim=1)
    if device.type != "cuda":
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rms_norm(x, weight):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (x.shape[-1],), weight, 1e-5)
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    return (x.float() * scale).to(x.dtype) * weight


def size_of(*tensors):
    return sum(x.numel() * x.element_size() for x in tensors)


class Parts:
    """One GPU's share of a layer, in pieces that see the same tokens.

    A piece is (function, inputs, weights, bytes of the inputs that stay for
    backward). With sequence parallelism the inputs of matrices stay as shares
    and are gathered again.
    """

    def __init__(self, shape, tensor, micro_batch, sequence, device, dtype):
        hidden, heads, kv_heads, head_dim, ffn, vocab = shape
        self.device, self.dtype, self.tensor = device, dtype, tensor
        self.batch, self.sequence, self.hidden = micro_batch, sequence, hidden
        self.heads = heads // tensor
        self.kv_heads = max(1, kv_heads // tensor)
        self.head_dim = head_dim
        self.ffn = ffn // tensor
        self.vocab = -(-vocab // tensor)
        self.tokens = micro_batch * sequence
        self.few_tokens = -(-self.tokens // tensor)
        angle = torch.outer(
            torch.arange(sequence, device=device).float(),
            500000.0
            ** (-torch.arange(0, head_dim, 2, device=device) / head_dim),
        )
        angle = torch.cat((angle, angle), dim=-1)
        self.cos = angle.cos().to(dtype)
        self.sin = angle.sin().to(dtype)

    def matrix(self, rows, columns):
        data = torch.randn(rows, columns, device=self.device) * rows**-0.5
        return data.to(self.dtype).requires_grad_()

    def vector(self):
        return torch.ones(
            self.hidden, device=self.device, dtype=self.dtype
        ).requires_grad_()

    def values(self, *size):
        return torch.randn(
            *size, device=self.device, dtype=self.dtype
        ).requires_grad_()

    def norms(self):
        """Both norms and both residuals, on a share of the tokens."""
        first, second = self.vector(), self.vector()
        x = self.values(self.few_tokens, self.hidden)
        branches = [self.values(self.few_tokens, self.hidden) for _ in "ab"]

        def run():
            one = rms_norm(x, first)
            x1 = x + branches[0]
            two = rms_norm(x1, second)
            return one, two, x1 + branches[1]

        return run, [x] + branches, [first, second], size_of(x)

    def attend(self):
        q_size = self.heads * self.head_dim
        kv_size = self.kv_heads * self.head_dim
        wqkv = self.matrix(self.hidden, q_size + 2 * kv_size)
        wo = self.matrix(q_size, self.hidden)
        x = self.values(self.batch, self.sequence, self.hidden)

        def run():
            q, k, v = (x @ wqkv).split((q_size, kv_size, kv_size), dim=-1)
            shape = (self.batch, self.sequence, -1, self.head_dim)
            q, k, v = (y.view(shape).transpose(1, 2) for y in (q, k, v))
            q, k = rope(q, self.cos, self.sin), rope(k, self.cos, self.sin)
            y = attention(q, k, v, self.heads, self.kv_heads, self.device)
            y = y.transpose(1, 2).reshape(self.batch, self.sequence, q_size)
            return (y @ wo,)

        return run, [x], [wqkv, wo], size_of(x) // self.tensor

    def mlp(self):
        gate_up = self.matrix(self.hidden, 2 * self.ffn)
        down = self.matrix(self.ffn, self.hidden)
        x = self.values(self.tokens, self.hidden)

        def run():
            gate, up = (x @ gate_up).chunk(2, dim=-1)
            return ((F.silu(gate) * up) @ down,)

        return run, [x], [gate_up, down], size_of(x) // self.tensor

    def embedding(self):
        table = self.matrix(self.vocab, self.hidden)
        ids = torch.randint(self.vocab, (self.tokens,), device=self.device)

        def run():
            return (F.embedding(ids, table),)

        return run, [], [table], 0

    def head(self):
        norm = self.vector()
        table = self.matrix(self.hidden, self.vocab)
        few = self.values(self.few_tokens, self.hidden)
        x = self.values(self.tokens, self.hidden)
        ids = torch.randint(self.vocab, (self.tokens,), device=self.device)

        def run():
            logits = (x @ table).float()
            return F.cross_entropy(logits, ids), rms_norm(few, norm)

        kept = size_of(x) // self.tensor + size_of(few)
        return run, [x, few], [norm, table], kept


def once(piece, clock, device, main_gradients):
    """F, D, W in ms and the bytes that F leaves behind."""
    run, inputs, weights, kept_inputs = piece
    before = allocated(device)
    clock.start()
    outputs = run()
    f = clock.stop()
    after = allocated(device)
    # Outputs belong to the next part's inputs.
    kept = None
    if after is not None:
        kept = after - before - size_of(*outputs) + kept_inputs
    ones = [torch.ones_like(y) for y in outputs]
    d = 0.0
    if inputs:
        clock.start()
        torch.autograd.grad(
            outputs, inputs, ones, retain_graph=True, allow_unused=True
        )
        d = clock.stop()
    clock.start()
    gradients = torch.autograd.grad(
        outputs, inputs + weights, ones, allow_unused=True
    )
    for total, gradient in zip(main_gradients, gradients[len(inputs) :]):
        total.add_(gradient)
    both = clock.stop()
    return f, d, max(both - d, 0.0), kept


def measure(piece, clock, device, repeat):
    weights = piece[2]
    main_gradients = [torch.zeros_like(w, dtype=torch.float) for w in weights]
    runs = [
        once(piece, clock, device, main_gradients) for _ in range(repeat + 3)
    ][3:]  # without the first ones, which choose kernels
    columns = list(zip(*runs))
    times = [statistics.median(c) for c in columns[:3]]
    kept = None if columns[3][0] is None else statistics.median(columns[3])
    return times, kept


def entry(kind, parts, pieces, args, tensor, clock):
    times, kept = [0.0, 0.0, 0.0], 0
    for make in pieces:
        t, k = measure(make(), clock, parts.device, args.repeat)
        times = [a + b for a, b in zip(times, t)]
        kept = None if k is None or kept is None else kept + k
    out = {
        "kind": kind,
        "tensor": tensor,
        "micro_batch": parts.batch,
        "sequence": parts.sequence,
        "communication": False,
    }
    for key, value in zip(("F_us", "D_us", "W_us"), times):
        out[key] = round(value * 1e3, 3)
    if kept is not None:
        out["activation_bytes"] = int(kept)
    return out


def measure_all(args, device, dtype):
    shape = MODELS[args.model]
    clock = Clock(device)
    entries = []
    for sequence in args.sequence:
        for micro_batch in args.micro_batch:
            for tensor in args.tensor:
                p = Parts(shape, tensor, micro_batch, sequence, device, dtype)
                for kind, pieces in (
                    ("layer", (p.norms, p.attend, p.mlp)),
                    ("embedding", (p.embedding,)),
                    ("head", (p.head,)),
                ):
                    e = entry(kind, p, pieces, args, tensor, clock)
                    print(json.dumps(e), file=sys.stderr)
                    entries.append(e)
    return entries


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--tensor", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sequence", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--micro-batch", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("measure_layers.py: no CUDA GPU here; --device cpu tries it")
    torch.manual_seed(1)
    entries = measure_all(args, device, torch.bfloat16)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    profile = {
        "longhaul": "profile/1",
        "gpu": gpu_name(device),
        "source": f"tools/measure_layers.py, PyTorch {torch.__version__}, "
        f"{name}, bf16, flash attention, median of {args.repeat}",
        "entries": entries,
    }
    if args.model != "tiny":
        profile["model"] = args.model
    with open(args.output, "w", encoding="utf-8") as out:
        json.dump(profile, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
