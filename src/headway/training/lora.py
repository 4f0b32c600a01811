"""Low-rank adapters for frozen linear layers (LoRA, Hu et al. 2022), and freezing of parameters.

An adapter adds B·A·x · alpha/rank to the output of a layer. B is initialised to zero, so the adapted model initially
computes the same function.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import ConfigError, did_you_mean
from headway.layers.dropout import drop
from headway.training.optim import embedding_weights, heads

ATTENTION_AND_FEEDFORWARD = ("*attention.*", "*cross.*", "*feedforward.*")


class LoRALinear(nn.Module):
    """A frozen linear layer with a trainable low-rank adapter."""

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float, dropout: float = 0.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        options: dict[str, Any] = {"bias": False, "device": base.weight.device, "dtype": base.weight.dtype}
        self.lora_A = nn.Linear(base.in_features, rank, **options)
        self.lora_B = nn.Linear(rank, base.out_features, **options)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)
        self.rank, self.alpha, self.dropout = rank, alpha, dropout
        self.train(base.training)

    def forward(self, x: Tensor) -> Tensor:
        dropped = drop(x, self.dropout) if self.training and self.dropout else x
        low = self.lora_A(dropped) * (self.alpha / self.rank)
        return self.base(x).add_(self.lora_B(low))  # in place: a temporary output of each layer fragments the heap

    @torch.no_grad()
    def merge(self) -> nn.Linear:
        """Add the adapter to the weight of the linear layer, and return that layer."""
        self.base.weight.add_(self.lora_B.weight @ self.lora_A.weight, alpha=self.alpha / self.rank)
        return self.base


@dataclass(frozen=True)
class Trainable:
    """Trainable and total parameters of a model."""

    trainable: int
    total: int

    def __str__(self) -> str:
        return f"{self.trainable:,} of {self.total:,} parameters train ({self.trainable / max(1, self.total):.2%})"


def count_trainable(model: nn.Module) -> Trainable:
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return Trainable(
        trainable=sum(size for size, trainable in sizes if trainable), total=sum(size for size, _ in sizes)
    )


def freeze(model: nn.Module, patterns: Sequence[str]) -> Trainable:
    """Freeze the parameters that match a pattern, by their own name or that of a module they belong to."""
    parameters = dict(model.named_parameters())
    for name in _matching_names(parameters, patterns, what="parameter"):
        parameters[name].requires_grad_(False)
    return count_trainable(model)


def prepare_parameters(model: nn.Module, *, lora: int, frozen: Sequence[str]) -> Trainable:
    """Add adapters of the rank `lora` unless it is 0, and freeze the parameters that match a pattern."""
    if lora:
        add_lora(model, rank=lora, alpha=2.0 * lora, train_heads=True)
    return freeze(model, frozen) if frozen else count_trainable(model)


def add_lora(
    model: nn.Module,
    *,
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
    targets: Sequence[str] = (),
    also_train: Sequence[str] = (),
    train_heads: bool = False,
) -> list[str]:
    """Add adapters, in place, to the linear layers that match `targets` (by default all of attention and feed-forward).

    All other parameters are frozen, except those that match `also_train` and, with `train_heads`, those of heads that
    have a matrix of their own (a tied head has none). Returns the names of the adapted layers.
    """
    if rank < 1 or alpha <= 0 or not 0 <= dropout < 1:
        raise ConfigError(f"LoRA needs rank ≥ 1, alpha > 0, 0 ≤ dropout < 1; got {rank}, {alpha}, {dropout}")
    if adapters(model):
        raise ConfigError("the model already has LoRA adapters; merge them first")
    tables = embedding_weights(model)  # merging the adapter of a tied output layer would change the embedding
    layers = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.Linear) and module.weight not in tables
    }
    names = _matching_names(layers, targets, what="linear layer") if targets else _default_targets(layers)
    trained = _matching_names(dict(model.named_parameters()), also_train, what="parameter")
    new_heads = _own_head_parameters(model) if train_heads else set()
    trained += [name for name, parameter in model.named_parameters() if parameter in new_heads]
    shared: dict[nn.Linear, LoRALinear] = {}  # a layer used twice has one adapter
    for name in names:
        if layers[name] not in shared:
            shared[layers[name]] = LoRALinear(layers[name], rank=rank, alpha=alpha, dropout=dropout)
    insert_adapters(model, {name: shared[layers[name]] for name in names}, trained=trained)
    return names


def insert_adapters(model: nn.Module, new: Mapping[str, LoRALinear], *, trained: Iterable[str]) -> None:
    """Put adapters in place of the layers they wrap, and freeze all other parameters but those named in `trained`."""
    kept = set(trained)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in kept)
    adapter_of = {adapter.base: adapter for adapter in new.values()}
    for name, module in list(model.named_modules(remove_duplicate=False)):  # a layer used twice has two names
        if isinstance(module, nn.Linear) and module in adapter_of:
            model.set_submodule(name, adapter_of[module])


def adapters(model: nn.Module) -> dict[str, LoRALinear]:
    modules = model.named_modules(remove_duplicate=False)
    return {name: module for name, module in modules if isinstance(module, LoRALinear)}


def merge_lora(model: nn.Module) -> list[str]:
    """Merge every adapter into its layer and remove it. The outputs stay the same; all parameters become trainable."""
    found = adapters(model)
    merged = {adapter: adapter.merge() for adapter in set(found.values())}
    for name, adapter in found.items():
        model.set_submodule(name, merged[adapter])
    model.requires_grad_(True)
    return list(found)


def _own_head_parameters(model: nn.Module) -> set[Tensor]:
    """The parameters of heads with a weight matrix that is not an embedding table, except those that are in no module
    of the head: the bias of a tied vocabulary belongs to the table, which PEFT would save with it."""
    tables, own = embedding_weights(model), set[Tensor]()
    for head in heads(model):
        parameters = set(head.parameters()) - tables - set(head.parameters(recurse=False))
        if any(parameter.ndim > 1 for parameter in parameters):
            own |= parameters
    return own


def _default_targets(layers: Mapping[str, nn.Module]) -> list[str]:
    names = [name for name in layers if any(fnmatchcase(name, pattern) for pattern in ATTENTION_AND_FEEDFORWARD)]
    if not names:
        known = ", ".join(_name_patterns(layers)) or "none at all"
        raise ConfigError(f"the model has no attention or feed-forward layers; name targets among {known}")
    return names


def _matching_names(names: Iterable[str], patterns: Sequence[str], *, what: str) -> list[str]:
    """The names that match a pattern as a whole, after some dot, or by a module that contains them."""
    names = list(names)
    chosen: set[str] = set()
    for pattern in patterns:
        forms = (pattern, f"*.{pattern}", f"{pattern}.*", f"*.{pattern}.*")
        found = {name for name in names if any(fnmatchcase(name, form) for form in forms)}
        if not found:
            raise ConfigError(_no_match(names, pattern, what))
        chosen |= found
    return [name for name in names if name in chosen]


def _no_match(names: list[str], pattern: str, what: str) -> str:
    patterns = _name_patterns(names)
    pieces = {piece for name in patterns for piece in (*name.split("."), name)} - {"*"}
    plain = pattern.replace("*", "").strip(".")
    known = f"there are: {', '.join(patterns[:12])}"
    hint = did_you_mean(plain, sorted(pieces), otherwise=known, n=3, cutoff=0.5)
    return f"no {what} matches {pattern!r}; {hint}"


def _name_patterns(names: Iterable[str]) -> list[str]:
    """Distinct names with their indices replaced by stars: blocks.0.attention.query → blocks.*.attention.query."""
    return list(dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names))
