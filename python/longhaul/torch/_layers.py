# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""One GPU's share of Llama-style layers, made from a job's shape.

Heads, key/value heads and MLP are divided over the tensor-parallel GPUs. Norms
and residuals run on 1/tensor of the tokens, as with sequence parallelism.
Kernels are PyTorch's own, one per operation except for attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from .._errors import UnsupportedError
from .._library import ffi, lib, text_of
from ._pieces import Piece, size_of


def lacking(model: Any) -> str | None:
    """Returns the feature of a model (lh_model) that these layers lack, or
    None."""
    wanted = (
        (model.experts > 0, "experts"),
        (model.kv_lora_rank > 0, "multi-head latent attention"),
        (model.norm != lib.LH_NORM_RMS, "layer norms"),
        (
            model.norm_placement == lib.LH_NORM_PLACEMENT_BOTH,
            "norms after attention and MLPs",
        ),
        (model.chunked_attention, "chunked attention"),
        (not model.gated, "an MLP that is not gated"),
        (model.parallel_block, "attention and MLP beside each other"),
        (model.sliding_window > 0, "a sliding window"),
        (model.qk_norm, "norms of queries and keys"),
        (model.attention_sinks, "attention sinks"),
        (
            model.output_bias or model.mlp_bias,
            "biases behind attention or in the MLP",
        ),
        (model.positions > 0, "learned positions"),
        (model.mtp_layers > 0, "multi-token prediction"),
    )
    return next((what for has, what in wanted if has), None)


def check(model: Any, tensor: int) -> None:
    """Raises if the layers do not exist for the model or for that degree."""
    name = "the job's model"
    if model.name != ffi.NULL:
        name = text_of(model.name)
    what = lacking(model)
    if what:
        raise UnsupportedError(
            f"{name}: has {what}, which the layers that are made from a job's "
            "shape have not; say whose modules to run: modules"
        )
    for key in ("heads", "ffn"):
        if getattr(model, key) % tensor:
            raise UnsupportedError(
                f"tensor: {tensor} does not divide {name}'s {key}, "
                f"{getattr(model, key)}"
            )


class Share:
    """Parts of a layer on one of `tensor` GPUs."""

    def __init__(
        self,
        model: Any,
        tensor: int,
        micro_batch: int,
        sequence: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._device, self._dtype, self._tensor = device, dtype, tensor
        self._batch, self._sequence = micro_batch, sequence
        self._hidden = int(model.hidden)
        self._qkv_bias = bool(model.qkv_bias)
        self._head_dim = int(model.head_dim)
        self._epsilon = float(lib.lh_model_norm_epsilon(model))
        self._heads = model.heads // tensor
        self._kv_heads = max(1, model.kv_heads // tensor)
        self._ffn = model.ffn // tensor
        self._vocab = -(-model.vocab // tensor)
        self._tokens = micro_batch * sequence
        self._few_tokens = -(-self._tokens // tensor)
        steps = torch.arange(0, self._head_dim, 2, device=device)
        angle = torch.outer(
            torch.arange(sequence, device=device).float(),
            lib.lh_model_rope_theta(model) ** (-steps / self._head_dim),
        )
        angle = torch.cat((angle, angle), dim=-1)
        self._cos = angle.cos().to(dtype)
        self._sin = angle.sin().to(dtype)

    def pieces(self, kind: str) -> list[Piece]:
        """Makes a "layer", an "embedding" or a "head"."""
        if kind == "layer":
            return [self._norms(), self._attention(), self._mlp()]
        return [self._embedding() if kind == "embedding" else self._head()]

    def _matrix(self, rows: int, columns: int) -> torch.Tensor:
        data = torch.randn(rows, columns, device=self._device) * rows**-0.5
        return data.to(self._dtype).requires_grad_()

    def _vector(self) -> torch.Tensor:
        return torch.ones(
            self._hidden, device=self._device, dtype=self._dtype
        ).requires_grad_()

    def _values(self, *size: int) -> torch.Tensor:
        return torch.randn(
            *size, device=self._device, dtype=self._dtype
        ).requires_grad_()

    def _ids(self) -> torch.Tensor:
        return torch.randint(self._vocab, (self._tokens,), device=self._device)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (self._hidden,), weight, self._epsilon)

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * self._cos + torch.cat((-b, a), dim=-1) * self._sin

    def _norms(self) -> Piece:
        """Both norms and both residuals, on a share of the tokens."""
        first, second = self._vector(), self._vector()
        x, one, two = (
            self._values(self._few_tokens, self._hidden) for _ in range(3)
        )

        def run() -> list[torch.Tensor]:
            middle = x + one
            return [
                self._norm(x, first),
                self._norm(middle, second),
                middle + two,
            ]

        return Piece(run, [x, one, two], [first, second], size_of(x))

    def _attention(self) -> Piece:
        q_size = self._heads * self._head_dim
        kv_size = self._kv_heads * self._head_dim
        wqkv = self._matrix(self._hidden, q_size + 2 * kv_size)
        wo = self._matrix(q_size, self._hidden)
        bias = [self._values(q_size + 2 * kv_size)] if self._qkv_bias else []
        x = self._values(self._batch, self._sequence, self._hidden)
        shape = (self._batch, self._sequence, -1, self._head_dim)

        def run() -> list[torch.Tensor]:
            made = x @ wqkv
            for values in bias:
                made = made + values
            parts = made.split((q_size, kv_size, kv_size), dim=-1)
            q, k, v = (y.view(shape).transpose(1, 2) for y in parts)
            y = self._attend(self._rotated(q), self._rotated(k), v)
            y = y.transpose(1, 2).reshape(self._batch, self._sequence, q_size)
            return [y @ wo]

        # Keeps inputs of matrices as shares, and gathers them again.
        kept = size_of(x) // self._tensor
        return Piece(run, [x], [wqkv, wo, *bias], kept, [self._cos, self._sin])

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        if self._kv_heads != self._heads:
            times = self._heads // self._kv_heads
            k = k.repeat_interleave(times, dim=1)
            v = v.repeat_interleave(times, dim=1)
        if self._device.type != "cuda" or self._dtype == torch.float32:
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=True
            )
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=True
            )

    def _mlp(self) -> Piece:
        gate_up = self._matrix(self._hidden, 2 * self._ffn)
        down = self._matrix(self._ffn, self._hidden)
        x = self._values(self._tokens, self._hidden)

        def run() -> list[torch.Tensor]:
            gate, up = (x @ gate_up).chunk(2, dim=-1)
            return [(functional.silu(gate) * up) @ down]

        return Piece(run, [x], [gate_up, down], size_of(x) // self._tensor)

    def _embedding(self) -> Piece:
        table, ids = self._matrix(self._vocab, self._hidden), self._ids()

        def run() -> list[torch.Tensor]:
            return [functional.embedding(ids, table)]

        return Piece(run, [], [table], 0, [ids])

    def _head(self) -> Piece:
        norm = self._vector()
        table = self._matrix(self._hidden, self._vocab)
        few = self._values(self._few_tokens, self._hidden)
        x, ids = self._values(self._tokens, self._hidden), self._ids()

        def run() -> list[torch.Tensor]:
            logits = (x @ table).float()
            return [
                functional.cross_entropy(logits, ids),
                self._norm(few, norm),
            ]

        kept = size_of(x) // self._tensor + size_of(few)
        return Piece(run, [x, few], [norm, table], kept, [ids])
