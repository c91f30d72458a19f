# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Splits a given model into an embedding, layers and a head.

Records one forward pass. The stack of layers is the list of modules with the
most parameters. An nn.Embedding that starts before it is the embedding, modules
that start after it are the head. A layer then runs alone, with its recorded
arguments except for its hidden states.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .._errors import InputError, UnsupportedError
from ._pieces import Piece

Hook = Callable[..., None]


# sources of models


def named(
    text: str, layers: int, device: torch.device, dtype: torch.dtype
) -> nn.Module:
    """Loads the named model with at most the requested number of layers.

    The name is a folder with a config.json, or such a file, for transformers;
    torchtitan:MODEL:FLAVOR; or FILE.py:FUNCTION, which returns a module.
    """
    if text.startswith("torchtitan:"):
        return _of_torchtitan(text, layers, device)
    file, colon, function = text.rpartition(".py:")
    if colon:
        return _of_file(text, f"{file}.py", function)
    # On other devices, making a layer with hundreds of experts would take
    # minutes and much host memory.
    with device:
        return _of_transformers(text, layers, dtype)


def _imported(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedError(f"modules: {what} needs {error}") from error


def _of_transformers(text: str, layers: int, dtype: torch.dtype) -> nn.Module:
    path = pathlib.Path(text)
    folder = path.parent if path.suffix == ".json" else path
    if not (folder / "config.json").is_file():
        raise InputError(
            f"modules: {text} is neither a folder with a config.json, nor such "
            "a file, nor torchtitan:MODEL:FLAVOR, nor FILE.py:FUNCTION"
        )
    transformers = _imported("transformers", "a config.json")
    config = transformers.AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = min(config.num_hidden_layers, layers)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    config.use_cache = False
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


def _of_torchtitan(text: str, layers: int, device: torch.device) -> nn.Module:
    words = text.split(":")
    if len(words) != 3:
        raise InputError(f"modules: {text!r} must be torchtitan:MODEL:FLAVOR")
    module = _imported(f"torchtitan.models.{words[1]}", text)
    try:
        config = module.model_registry(words[2], attn_backend="flex").model
    except (KeyError, ValueError) as error:
        raise InputError(
            f"modules: torchtitan has no {text}: {error}"
        ) from error
    config.layers = config.layers[:layers]
    model = config.build()
    if device.type == "cpu":
        _without_flex(model)
    return model


class _Attention(nn.Module):
    """Causal attention in place of torchtitan's flex attention, which has no
    backward on CPUs."""

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
        score_mod: Any = None,
        out_transform: Any = None,
        **_: Any,
    ) -> torch.Tensor:
        if score_mod is not None or out_transform is not None:
            raise UnsupportedError(
                "modules: this model's attention runs on GPUs alone"
            )
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa
        ).transpose(1, 2)


def _without_flex(model: nn.Module) -> None:
    for module in model.modules():
        for name, child in module.named_children():
            if type(child).__name__ == "FlexAttention":
                setattr(module, name, _Attention())


def _of_file(text: str, path: str, function: str) -> nn.Module:
    spec = importlib.util.spec_from_file_location("longhaul_modules", path)
    if not pathlib.Path(path).is_file() or not spec or not spec.loader:
        raise InputError(f"modules: cannot read {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make = getattr(module, function, None)
    if not callable(make):
        raise InputError(f"modules: {path} has no function {function!r}")
    model = make()
    if not isinstance(model, nn.Module):
        raise InputError(f"modules: {text} returns no torch.nn.Module")
    return model


def settled(
    model: nn.Module, device: torch.device, dtype: torch.dtype
) -> nn.Module:
    """Moves a model to the device, with weights that preserve the scale of
    activations."""
    model = model.to(device)
    for parameter in model.parameters():
        with torch.no_grad():
            if parameter.dim() > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
            else:
                parameter.fill_(1.0)
        parameter.data = parameter.data.to(dtype)
        parameter.requires_grad_()
    return model.train()


# recording a forward pass


@dataclasses.dataclass
class Call:
    """A module's forward call, as recorded."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    begin: int
    end: int = -1


def stack_of(model: nn.Module) -> list[nn.Module]:
    """Returns its layers, in order."""
    best: list[nn.Module] = []
    most = 0
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            members = list(module)
        elif isinstance(module, nn.ModuleDict):
            members = list(module.values())
        else:
            continue
        size = sum(p.numel() for p in module.parameters())
        if size > most:  # the outermost one among equals
            best, most = members, size
    if not best:
        raise UnsupportedError(
            "modules: the model has no nn.ModuleList or nn.ModuleDict of layers"
        )
    return best


def _watched(model: nn.Module, run: Callable[[], Any]) -> list[Call]:
    calls: list[Call] = []
    open_calls: list[Call] = []
    clock = 0

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal clock
        call = Call(module, args, kwargs, clock)
        clock += 1
        calls.append(call)
        open_calls.append(call)

    def after(*_: Any) -> None:
        nonlocal clock
        open_calls.pop().end = clock
        clock += 1

    hooks: list[Any] = []
    for module in model.modules():
        hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(module.register_forward_hook(after))
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for one in value for t in _tensors(one)]
    return []


def _first(value: Any) -> torch.Tensor:
    return _tensors(value)[0]


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_detached(one) for one in value)
    return value


class Cut:
    """A model's parts, for microbatches of one size."""

    def __init__(
        self, model: nn.Module, vocab: int, micro_batch: int, sequence: int
    ) -> None:
        self._model = model
        device = next(model.parameters()).device
        self._ids = torch.randint(vocab, (micro_batch, sequence), device=device)
        self._stack = stack_of(model)
        calls = _watched(model, lambda: model(self._ids, **self._more()))
        of_layers = [
            c for c in calls if any(c.module is m for m in self._stack)
        ]
        if len(of_layers) != len(self._stack):
            raise UnsupportedError(
                f"modules: {len(of_layers)} of {len(self._stack)} layers were "
                "called in a forward pass"
            )
        first, last = of_layers[0].begin, of_layers[-1].end
        self._layers = of_layers
        self._embeddings = [
            c
            for c in calls
            if c.begin < first and isinstance(c.module, nn.Embedding)
        ]
        self._heads: list[Call] = []
        for call in (c for c in calls if c.begin > last):
            if not self._heads or call.begin > self._heads[-1].end:
                self._heads.append(call)

    def _more(self) -> dict[str, Any]:
        """Adds positions and masks, which torchtitan's decoders expect."""
        if not hasattr(self._model, "get_attention_masks"):
            return {}
        places = torch.arange(self._ids.shape[1], device=self._ids.device)
        places = places.expand(self._ids.shape)
        masks = self._model.get_attention_masks(places)
        return {"positions": places, "attention_masks": masks}

    @property
    def n_layers(self) -> int:
        return len(self._layers)

    def check(self, hidden: int, vocab: int) -> None:
        """Raises if it differs from the job's model."""
        state = _hidden(self._layers[0])[1]
        if state.shape[-1] != hidden:
            raise UnsupportedError(
                f"modules: hidden states have {state.shape[-1]} features; "
                f"the job's model has {hidden}"
            )
        if not self._embeddings or not self._heads:
            raise UnsupportedError(
                "modules: no nn.Embedding is called before the layers, or "
                "nothing behind them"
            )
        with torch.no_grad():
            made = self._logits(torch.zeros_like(state[:1, :1]))
        if made.shape[-1] != vocab:
            raise UnsupportedError(
                f"modules: the head makes {made.shape[-1]} logits; the job's "
                f"vocabulary has {vocab}"
            )

    def layer(self, index: int) -> Piece:
        call = self._layers[index]
        key, state = _hidden(call)
        x = torch.randn_like(state).requires_grad_()
        args = tuple(_detached(a) for a in call.args)
        kwargs = {k: _detached(v) for k, v in call.kwargs.items()}
        if isinstance(key, int):
            args = (*args[:key], x, *args[key + 1 :])
        else:
            kwargs[key] = x

        def run() -> list[torch.Tensor]:
            return [_first(call.module(*args, **kwargs))]

        shared = [*_tensors(list(args)), *_tensors(kwargs)]
        return Piece(
            run,
            [x],
            list(call.module.parameters()),
            None,
            [*(t for t in shared if t is not x), *call.module.buffers()],
        )

    def embedding(self) -> Piece:
        calls = self._embeddings

        def run() -> list[torch.Tensor]:
            return [c.module(*c.args, **c.kwargs) for c in calls]

        weights = [p for c in calls for p in c.module.parameters()]
        return Piece(run, [], weights, 0, [_first(c.args) for c in calls])

    def head(self) -> Piece:
        x = torch.randn_like(_hidden(self._layers[0])[1]).requires_grad_()
        targets = self._ids.flatten()

        def run() -> list[torch.Tensor]:
            logits = self._logits(x).float().flatten(0, 1)
            return [functional.cross_entropy(logits, targets)]

        weights = [p for c in self._heads for p in c.module.parameters()]
        return Piece(run, [x], weights, None, [targets])

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        for call in self._heads:
            x = _first(call.module(x))
        return x


def _hidden(call: Call) -> tuple[int | str, torch.Tensor]:
    """Finds a layer's hidden states among its arguments."""
    for key, value in (*enumerate(call.args), *call.kwargs.items()):
        if (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.dim() == 3
        ):
            return key, value
    raise UnsupportedError(
        "modules: a layer is called without hidden states of three dimensions"
    )
