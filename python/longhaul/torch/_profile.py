# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Measures a model's passes on the present device, as a profile.

The program `python -m longhaul.torch`, which `longhaul profile --torch` runs,
reads the job from standard input and prints a profile, or an "error".
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._errors import Error, InvalidError, UnsupportedError
from .._inputs import Source, job_of
from .._library import ffi, lib, made_json, owned, text_of
from . import _layers, _modules
from ._pieces import Clock, Piece, Times, timed

_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
}
# Parts of preset names that are not part of the device's name.
_GPUS = (
    ("GH200", "gh200"),
    ("H100 80GB HBM3", "h100-sxm"),
    ("A100-SXM4-80GB", "a100-80g"),
    ("A100-SXM4-40GB", "a100-40g"),
    ("V100", "v100-32g"),
)


def profile(
    job: Source,
    *,
    modules: Any = None,
    tensor: Sequence[int] | None = None,
    micro_batch: Sequence[int] | None = None,
    repeats: int = 9,
    device: Any = None,
) -> dict[str, Any]:
    """Runs a layer of each kind, the embedding and the head; times F, D and W.

    Times are medians of the runs, by CUDA events on a GPU. Bytes saved from F
    to W are those that autograd saves. Communication is excluded.

    Args:
        job: a path, a text or a map, as for `longhaul.plan`.
        modules: source of the layers: an nn.Module that takes tokens; a folder
            with Hugging Face's config.json, or that file;
            "torchtitan:MODEL:FLAVOR"; "FILE.py:FUNCTION", which returns a
            module. None: Llama-style layers of the job's shape, if its model is
            of that kind.
        tensor: degrees of tensor parallelism, whose shares run alone; None: the
            job's layout's, or 1. With `modules` 1 alone.
        micro_batch: sequences per microbatch; None: the job's layout's, or 1.
        repeats: number of measured runs.
        device: torch device; None: the GPU if there is one, else the CPU.

    Returns:
        A map that a job accepts as its `profile`, and `longhaul.plan` too.

    Raises:
        longhaul.Error: the layers cannot be run; with the reason.
    """
    parsed = job_of(job)
    if repeats < 1:
        raise InvalidError(f"repeats: {repeats} must be 1 or more")
    sizes = [int(n) for n in micro_batch or [parsed.layout.micro_batch or 1]]
    degrees = [int(n) for n in tensor or [parsed.layout.tensor or 1]]
    if min(sizes + degrees) < 1:
        raise InvalidError("tensor, micro_batch: must be 1 or more")
    if modules is not None and not tensor:
        degrees = [1]
    if modules is not None and degrees != [1]:
        raise UnsupportedError(
            "tensor: modules are run whole; shares are of layers that are "
            "made from the job's shape"
        )
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    here = _Here.of(parsed, torch.device(device), repeats)
    if modules is None:
        entries = _of_shape(here, degrees, sizes)
    else:
        entries = _of_modules(here, modules, sizes)
    made = {
        "longhaul": "profile/1",
        "gpu": _gpu(parsed, here.device),
        "source": here.source(modules),
        "entries": entries,
    }
    if parsed.model.name != ffi.NULL:
        made["model"] = text_of(parsed.model.name)
    return _canonical(made)


@dataclasses.dataclass(frozen=True)
class _Here:
    """Values common to all measurements."""

    job: Any
    device: torch.device
    dtype: torch.dtype
    clock: Clock
    repeats: int

    @classmethod
    def of(cls, job: Any, device: torch.device, repeats: int) -> _Here:
        name = text_of(lib.lh_precision_name(job.training.precision))
        return cls(job, device, _DTYPES[name], Clock(device), repeats)

    def entry(
        self, kind: str, tensor: int, micro_batch: int, times: Times
    ) -> dict[str, Any]:
        return {
            "kind": kind,
            "tensor": tensor,
            "micro_batch": micro_batch,
            "sequence": int(self.job.training.sequence),
            "communication": False,
            "F_us": round(times.f * 1e3, 3),
            "D_us": round(times.d * 1e3, 3),
            "W_us": round(times.w * 1e3, 3),
            "activation_bytes": times.kept,
        }

    def timed(self, pieces: Sequence[Piece]) -> Times:
        parts = [timed(piece, self.clock, self.repeats) for piece in pieces]
        return sum(parts[1:], parts[0])

    def source(self, modules: Any) -> str:
        name = (
            torch.cuda.get_device_name(self.device)
            if self.device.type == "cuda"
            else f"CPU, {torch.get_num_threads()} threads"
        )
        model = self.job.model
        left_out = (
            [text_of(model.unsupported_keys)]
            if model.unsupported_keys != ffi.NULL
            else []
        )
        if model.rope_scaling != ffi.NULL:
            left_out.append("rope_scaling")
        what = "layers of the job's shape"
        if modules is not None:
            what = (
                modules if isinstance(modules, str) else type(modules).__name__
            )
        elif left_out:
            what += f" without {', '.join(left_out)}"
        return (
            f"{what}, PyTorch {torch.__version__}, {name}, "
            f"{str(self.dtype).removeprefix('torch.')}, "
            f"median of {self.repeats}"
        )


def _of_shape(
    here: _Here, degrees: Sequence[int], sizes: Sequence[int]
) -> list[dict[str, Any]]:
    for degree in degrees:
        _layers.check(here.job.model, degree)
    entries: list[dict[str, Any]] = []
    for size in sizes:
        for degree in degrees:
            share = _layers.Share(
                here.job.model,
                degree,
                size,
                here.job.training.sequence,
                here.device,
                here.dtype,
            )
            for kind in ("layer", "embedding", "head"):
                times = here.timed(share.pieces(kind))
                entries.append(here.entry(kind, degree, size, times))
    return entries


def _kinds_of(model: Any) -> dict[tuple[bool, int], list[int]]:
    """Groups equal layers of a model (lh_model): with or without experts, by
    attention window."""
    kinds: dict[tuple[bool, int], list[int]] = {}
    for i in range(model.layers):
        has_experts = bool(lib.lh_model_layer_is_moe(model, i))
        window = lib.lh_model_layer_window(model, i)
        kinds.setdefault((has_experts, window), []).append(i)
    return kinds


def _of_modules(
    here: _Here, modules: Any, sizes: Sequence[int]
) -> list[dict[str, Any]]:
    model = here.job.model
    kinds = _kinds_of(model)
    needed = 1 + max(layers[0] for layers in kinds.values())
    net = modules
    if isinstance(modules, str):
        net = _modules.named(modules, needed, here.device, here.dtype)
    net = _modules.settled(net, here.device, here.dtype)
    entries: list[dict[str, Any]] = []
    for size in sizes:
        cut = _modules.Cut(net, model.vocab, size, here.job.training.sequence)
        cut.check(model.hidden, model.vocab)
        if cut.n_layers < needed:
            raise UnsupportedError(
                f"modules: {cut.n_layers} layers; the job's model needs "
                f"{needed} to have one of each kind"
            )
        for has_experts in sorted({kind[0] for kind in kinds}):
            layers = [v for k, v in kinds.items() if k[0] == has_experts]
            times = _averaged(here, cut.layer, layers)
            name = "moe_layer" if has_experts else "layer"
            entries.append(here.entry(name, 1, size, times))
        ends = {"embedding": cut.embedding, "head": cut.head}
        if model.mtp_layers > 0:  # a head's times include those of its modules
            del ends["head"]
        for name, piece in ends.items():
            times = here.timed([piece()])
            entries.append(here.entry(name, 1, size, times))
    return entries


def _averaged(
    here: _Here, make: Callable[[int], Piece], groups: list[list[int]]
) -> Times:
    """Multiplies layers that differ only in their window by their number."""
    n = sum(map(len, groups))
    f = d = w = kept = 0.0
    for group in groups:
        times = here.timed([make(group[0])])
        share = len(group) / n
        f, d = f + times.f * share, d + times.d * share
        w, kept = w + times.w * share, kept + times.kept * share
    return Times(f, d, w, round(kept))


def _gpu(job: Any, device: torch.device) -> str:
    """Returns the name of the device's GPU preset if one exists, else the
    job's GPU."""
    own = text_of(job.datacenters[0].gpu.name)
    if device.type != "cuda":
        return own
    name = torch.cuda.get_device_name(device)
    for part, preset in _GPUS:
        if part in name:
            return preset
    presets: list[str] = []
    while (preset := lib.lh_gpu_presets()[len(presets)]) != ffi.NULL:
        presets.append(text_of(preset))
    found = [one for one in presets if one.upper() in name.upper()]
    return max(found, key=len, default=own)


def _canonical(made: dict[str, Any]) -> dict[str, Any]:
    """Formats it as the library does."""
    data = json.dumps(made).encode()
    parsed = owned(
        "lh_profile",
        lib.lh_profile_free,
        lib.lh_profile_parse,
        data,
        len(data),
        b"profile",
    )
    return made_json(lib.lh_profile_format, parsed)


def _counts(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _end_with(parent: int) -> None:
    """Ends when the parent process has ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="longhaul.torch")
    parser.add_argument("--modules")
    parser.add_argument("--tensor", type=_counts)
    parser.add_argument("--micro-batch", type=_counts)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    threading.Thread(
        target=_end_with, args=(os.getppid(),), daemon=True
    ).start()
    out = os.fdopen(os.dup(1), "w")
    # Output printed by a model's code is not part of the profile.
    with contextlib.redirect_stdout(sys.stderr), out:
        try:
            made = profile(
                sys.stdin.read(),
                modules=given.modules,
                tensor=given.tensor,
                micro_batch=given.micro_batch,
                repeats=given.repeats,
            )
        except Error as error:
            made = {"error": str(error)}
        except torch.cuda.OutOfMemoryError as error:
            made = {"error": f"the GPU has too little memory: {error}"}
        out.write(json.dumps(made) + "\n")
    return 0
