"""Head importance for one score. By ablation: the model runs once without each head. By gradient: one backward pass
estimates the same change to first order, Σ z · ∂score/∂z (Michel, Levy & Neubig 2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.inspect.intervene import ablate, replace
from headway.inspect.parts import Names, attentions_of, eval_mode, match_names, unique
from headway.models.outputs import Output

Score = Callable[[Output], Tensor]  # returns a scalar
AXES = ("row", "position", "token")


@dataclass(frozen=True)
class HeadImportance:
    part: str  # the attention layer, e.g. `decoder.stack.blocks.0.cross`
    head: int
    change: float  # the score minus the score without the head


def logit(token: int, *, position: int = -1, row: int = 0) -> Score:
    """A score: the logit of one token at one position, or of one label with a classification head."""

    def score(output: Output) -> Tensor:
        if output.logits is None:
            raise InputError("the model has no head that gives logits")
        labels = output.logits.ndim == 2  # (batch, labels); else (batch, length, vocab or labels)
        index = (row, token) if labels else (row, position, token)
        for at, size, name in zip(index, output.logits.shape, ("row", "token") if labels else AXES, strict=True):
            if not -size <= at < size:
                raise InputError(f"{name} {at} is out of range: the logits have shape {tuple(output.logits.shape)}")
        return output.logits[index]

    return score


def head_importance(
    model: nn.Module,
    inputs: Mapping[str, Any],  # keyword arguments of the model's forward
    score: Score,
    *,
    method: Literal["ablation", "gradient"] = "gradient",
    parts: Names = "*",  # names or patterns of attention layers
) -> list[HeadImportance]:
    """The heads, largest change of the score first. Ablation takes one forward pass a head, gradient one in all."""
    attentions = attentions_of(model)
    if not attentions:
        raise InputError(f"{type(model).__name__} has no attention heads")
    names = unique(match_names(parts, attentions, kind="attention"))
    with eval_mode(model):
        measure = _by_ablation if method == "ablation" else _by_gradient
        changes = measure(model, inputs, score, {part: attentions[part].heads for part in names})
    rows = [HeadImportance(part, head, change) for (part, head), change in changes.items()]
    return sorted(rows, key=lambda row: -abs(row.change))


@torch.no_grad()
def _by_ablation(
    model: nn.Module, inputs: Mapping[str, Any], score: Score, heads: dict[str, int]
) -> dict[tuple[str, int], float]:
    full = score(model(**inputs)).item()
    changes = {}
    for part, count in heads.items():
        for head in range(count):
            with ablate(model, part, heads=[head]):
                changes[part, head] = full - score(model(**inputs)).item()
    return changes


@torch.enable_grad()
def _by_gradient(
    model: nn.Module, inputs: Mapping[str, Any], score: Score, heads: dict[str, int]
) -> dict[tuple[str, int], float]:
    values: dict[str, Tensor] = {}

    def keep(part: str) -> Callable[[Tensor], Tensor]:
        def change(z: Tensor) -> Tensor:
            values[part] = z if z.requires_grad else z.requires_grad_()
            return values[part]

        return change

    with ExitStack() as hooks:
        for part in heads:
            hooks.enter_context(replace(model, f"{part}.z", keep(part)))
        result = score(model(**inputs))
    gradients = torch.autograd.grad(result, list(values.values()), allow_unused=True)
    changes = {}
    for part, z, gradient in zip(values, values.values(), gradients, strict=True):
        product = torch.zeros_like(z) if gradient is None else z.detach() * gradient  # (batch, head, query, head_size)
        for head, change in enumerate(product.sum((0, 2, 3)).tolist()):
            changes[part, head] = change
    return changes
