# SPDX-License-Identifier: Apache-2.0
"""A transformer of a few thousand parameters in double precision, with experts that may
be distributed over ranks: the model for runs of plans.

Modules are named as in longhaul export --stages and torchtitan. Initial parameters
of a module depend on its name alone, not on its rank. An expert's results do not
depend on its rank: it processes the tokens of each rank separately, as one process
with all experts does.
"""
import zlib

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, VOCABULARY, FFN = 16, 2, 32, 32


class Exchange(torch.autograd.Function):
    """Sends rows to the ranks of a group, and their gradients back."""

    @staticmethod
    def forward(ctx, rows, sent, received, group):
        ctx.told = sent, received, group
        out = rows.new_empty((sum(received), rows.shape[1]))
        distributed.all_to_all_single(out, rows.contiguous(), received, sent,
                                      group=group)
        return out

    @staticmethod
    def backward(ctx, gradient):
        sent, received, group = ctx.told
        return Exchange.apply(gradient, received, sent, group), None, None, None


def mlp(name):
    layer = nn.Sequential(nn.Linear(WIDTH, FFN, bias=False), nn.SiLU(),
                          nn.Linear(FFN, WIDTH, bias=False)).double()
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.2, generator=generator)
    return layer


class Bank(nn.Module):
    """Consecutive experts."""

    def __init__(self, name, numbers):
        super().__init__()
        self.mlps = nn.ModuleList(mlp(f"{name}.{e}") for e in numbers)

    def forward(self, rows, counts):
        """Processes the rows of each expert separately for every sending
        rank."""
        return torch.cat([self.mlps[i % len(self.mlps)](part)
                          for i, part in enumerate(rows.split(counts))])


class Experts(nn.Module):
    """A layer's experts; those of this rank are a block of consecutive ones."""

    def __init__(self, name, experts, per_token, group):
        super().__init__()
        self.n, self.per_token, self.group = experts, per_token, group
        self.ranks = distributed.get_world_size(group) if group else 1
        here = distributed.get_rank(group) if group else 0
        self.each = experts // self.ranks
        self.router = nn.Linear(WIDTH, experts, bias=False).double()
        nn.init.normal_(self.router.weight, generator=torch.Generator(
            ).manual_seed(zlib.crc32(f"{name}.router".encode())))
        self.first = here * self.each
        self.bank = Bank(name, range(self.first, self.first + self.each))

    def exchange(self, rows, sent, received):
        return (Exchange.apply(rows, sent, received, self.group)
                if self.group else rows)

    def forward(self, x):
        if x.is_meta:  # the shape is needed, not the values
            return x
        tokens = x.reshape(-1, WIDTH)
        share, chosen = self.router(tokens).softmax(-1).topk(self.per_token)
        order = chosen.flatten().argsort(stable=True)
        mine = torch.bincount(chosen.flatten(), minlength=self.n)
        theirs = torch.empty_like(mine)
        if self.group:
            distributed.all_to_all_single(theirs, mine, group=self.group)
        else:
            theirs = mine
        sent, received = (t.view(self.ranks, self.each).sum(1).tolist()
                          for t in (mine, theirs))
        rows = self.exchange(tokens[order // self.per_token], sent, received)
        rows = self.bank(rows, theirs.tolist())
        rows = self.exchange(rows, received, sent)
        unsorted = torch.empty_like(rows).index_copy(0, order, rows)
        unsorted = unsorted.view(-1, self.per_token, WIDTH)
        return (unsorted * share.unsqueeze(-1)).sum(1).view_as(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        heads = self.qkv(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3)
        q, k, v = heads.unbind(2)
        mixed = functional.scaled_dot_product_attention(q, k, v,
                                                        is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, name, experts, per_token, group, again):
        super().__init__()
        self.again = again
        self.norm, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention()
        start(self, name)
        self.mlp = (Experts(name, experts, per_token, group) if experts
                    else mlp(name))

    def once(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.norm2(x))

    def forward(self, x):
        if self.again and torch.is_grad_enabled():
            return checkpoint(self.once, x, use_reentrant=False)
        return self.once(x)


def start(module, name):
    module.double()
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    for weight in module.parameters():
        nn.init.normal_(weight, mean=float(weight.dim() == 1), std=0.2,
                        generator=generator)


class Model(nn.Module):
    """The model: all modules, or the named ones."""

    def __init__(self, layers, experts=0, per_token=1, group=None,
                 again=False, names=None):
        super().__init__()
        wanted = names or ["tok_embeddings", "norm", "lm_head",
                           *(f"layers.{i}" for i in range(layers))]
        self.tok_embeddings = self.norm = self.lm_head = None
        if "tok_embeddings" in wanted:
            self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
            start(self.tok_embeddings, "tok_embeddings")
        self.layers = nn.ModuleDict({
            str(i): Layer(f"layers.{i}", experts, per_token, group, again)
            for i in range(layers) if f"layers.{i}" in wanted})
        if "norm" in wanted:
            self.norm = nn.RMSNorm(WIDTH)
            start(self.norm, "norm")
        if "lm_head" in wanted:
            self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            start(self.lm_head, "lm_head")

    def forward(self, x):
        if self.tok_embeddings is not None:
            x = self.tok_embeddings(x)
        for layer in self.layers.values():
            x = layer(x)
        if self.norm is not None:
            x = self.norm(x)
        return x if self.lm_head is None else self.lm_head(x)


def data(batch, sequence, step):
    """Returns tokens and their successors."""
    generator = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(VOCABULARY, (batch, sequence + 1),
                           generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss_of(tokens):
    """Returns a microbatch's share of the mean loss over this many tokens."""
    def loss(output, target):
        return functional.cross_entropy(output.flatten(0, 1), target.flatten(),
                                        reduction="sum") / tokens
    return loss


def train(model, replicas, batch, micro_batch, sequence, steps, pace):
    """Trains in one process, a microbatch at a time; returns each step's losses
    of all microbatches, and the gradients by name. Sums each replica's
    microbatches before the sum over replicas, like ranks."""
    loss = loss_of(batch * sequence)
    losses, gradients = [], []
    for step in range(steps):
        x, y = data(batch, sequence, step)
        parts, sums = [], {}
        for mine in zip(x.chunk(replicas), y.chunk(replicas)):
            model.zero_grad()
            for a, b in zip(*(t.split(micro_batch) for t in mine)):
                parts.append(loss(model(a), b))
                parts[-1].backward()
            for name, weight in model.named_parameters():
                if name in sums:
                    sums[name] += weight.grad
                else:
                    sums[name] = weight.grad.clone()
        losses.append([part.item() for part in parts])
        gradients.append(sums)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight -= pace * sums[name]
    return losses, gradients
