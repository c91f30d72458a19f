# SPDX-License-Identifier: Apache-2.0
"""Linear layers for CPUs with the interface of Transformer Engine's, which needs a GPU:
deferred weight gradients by a `wgrad_store`, fused accumulation into `main_grad` with
placeholders as gradients, and a first microbatch that overwrites `main_grad`.

Megatron-core's classes for these layers are derived from Transformer Engine's; here
each class has Megatron-core's arguments itself. Without tensor parallelism.
"""
import torch
from torch import nn


class WeightGradStore:
    """Defers nothing, as a layer's store without delayed weight gradients."""

    def delay_wgrad_compute(self):
        return False


def _weight_gradient(weights, biased, fuses, accumulates):
    """Returns a function of inputs, output gradients and weight gradients, which
    computes weight and bias gradients of each product."""

    def compute(inputs, gradients, made):
        biases = []
        for i, (x, g) in enumerate(zip(inputs, gradients, strict=True)):
            x, g = x.flatten(0, -2), g.flatten(0, -2)
            product = g.t() @ x
            biases.append(g.sum(0) if biased else None)
            if not fuses:
                made[i] = product
            elif accumulates:
                weights[i].main_grad.add_(product)
            else:
                weights[i].main_grad.copy_(product)
        return None, biases, None

    return compute


class _Products(torch.autograd.Function):
    """Multiplies each input with a weight, and adds a bias."""

    @staticmethod
    def forward(context, module, is_first, n, *tensors):
        inputs, weights, biases = (tensors[i * n:(i + 1) * n] for i in range(3))
        context.n, context.weights = n, weights
        context.store, context.fuses = module.wgrad_store, module.fuse_wgrad_accumulation
        context.grouped = hasattr(module, "num_gemms")
        context.accumulates, context.biased = not is_first, biases[0] is not None
        context.save_for_backward(*inputs)
        return tuple(x @ w.t() if b is None else x @ w.t() + b
                     for x, w, b in zip(inputs, weights, biases, strict=True))

    @staticmethod
    def backward(context, *gradients):
        n, weights, inputs = context.n, context.weights, context.saved_tensors
        into_inputs = [g @ w for g, w in zip(gradients, weights, strict=True)]
        of_weights, of_biases = [None] * n, [None] * n
        compute = _weight_gradient(weights, context.biased, context.fuses,
                                   context.accumulates)
        if context.store.delay_wgrad_compute():
            if context.grouped:
                context.store.put([inputs, gradients, of_weights], compute)
            else:
                def one(x, g):
                    made = [None]
                    _, biases, _ = compute([x], [g], made)
                    return made[0], biases[0]

                context.store.put([inputs[0], gradients[0]], one)
        else:
            _, of_biases, _ = compute(inputs, gradients, of_weights)
        if context.fuses:
            of_weights = [torch.full_like(w, torch.nan) for w in weights]
            for w in weights:
                w.grad_added_to_main_grad = True
        return (None, None, None, *into_inputs, *of_weights, *of_biases)


class Linear(nn.Module):
    """A layer of a model of megatron-core, in place of a TELinear."""

    fuses = False

    def __init__(self, n_in, n_out, *, config, bias, skip_bias_add, **_):
        super().__init__()
        self.config, self.fuse_wgrad_accumulation = config, self.fuses
        self.wgrad_store, self.use_bias = WeightGradStore(), bias
        self.weight_names, self.bias_names = ["weight"], ["bias"]
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.zeros(n_out)) if bias else torch.empty(0)
        self.skips, self.is_first_microbatch = skip_bias_add and bias, True
        self.disable_parameter_transpose_cache = (
            config.disable_parameter_transpose_cache)

    def forward(self, x):
        first = (self.is_first_microbatch
                 and not self.disable_parameter_transpose_cache)
        self.is_first_microbatch = False
        adds = self.use_bias and not self.skips
        y, = _Products.apply(self, first, 1, x, self.weight,
                             self.bias if adds else None)
        return y, self.bias if self.skips else None


class FusedLinear(Linear):
    fuses = True


class GroupedLinear(nn.Module):
    """The experts' layers, in place of a TEGroupedLinear."""

    fuses = True

    def __init__(self, n, n_in, n_out, *, config, **_):
        super().__init__()
        self.config, self.fuse_wgrad_accumulation = config, self.fuses
        self.wgrad_store, self.num_gemms = WeightGradStore(), n
        for i in range(n):
            weight = nn.Parameter(torch.empty(n_out, n_in))
            weight.allreduce = config.expert_model_parallel_size == 1
            setattr(self, f"weight{i}", weight)
        self.is_first_microbatch = True
        self.disable_parameter_transpose_cache = (
            config.disable_parameter_transpose_cache)

    def forward(self, x, counts):
        first = (self.is_first_microbatch
                 and not self.disable_parameter_transpose_cache)
        self.is_first_microbatch = False
        n = self.num_gemms
        made = _Products.apply(
            self, first, n, *x.split(counts),
            *(getattr(self, f"weight{i}") for i in range(n)), *[None] * n)
        return torch.cat(made), None


for one in (Linear, FusedLinear, GroupedLinear):
    one.__module__ = "transformer_engine.pytorch"
