"""Which heads matter for this output? By ablation: each head is taken out and the score asked again. By
gradient: one backward pass estimates the same change to first order, Σ z · ∂score/∂z (Michel, Levy & Neubig 2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.inspect.intervene import ablate, replace
from headway.inspect.parts import Names, attentions_of, choose, evaluating, unique
from headway.models.outputs import Output

Score = Callable[[Output], Tensor]  # what the question is about, as one number
NAMES = ("row", "position", "token")


@dataclass(frozen=True)
class HeadImportance:
    part: str  # the attention, e.g. `decoder.stack.blocks.0.cross`
    head: int
    change: float  # what the head adds to the score: the score minus the score without the head


def logit(token: int, *, position: int = -1, row: int = 0) -> Score:
    """The logit of one token at one position; of one label, where the head labels the whole example."""

    def score(output: Output) -> Tensor:
        if output.logits is None:
            raise InputError("the model has no head that gives logits")
        labels = output.logits.ndim == 2  # (batch, labels); else (batch, length, vocab or labels)
        index = (row, token) if labels else (row, position, token)
        for at, size, name in zip(index, output.logits.shape, ("row", "token") if labels else NAMES, strict=True):
            if not -size <= at < size:
                raise InputError(f"{name} {at} is not there: the logits are {tuple(output.logits.shape)}")
        return output.logits[index]

    return score


def head_importance(
    model: nn.Module,
    inputs: Mapping[str, Any],  # what the model is called with, by name
    score: Score,
    *,
    method: Literal["ablation", "gradient"] = "gradient",
    parts: Names = "*",  # of which attentions
) -> list[HeadImportance]:
    """The heads, the one that changes the score most first. Ablation takes a pass a head, gradient one in all."""
    attentions = attentions_of(model)
    if not attentions:
        raise InputError(f"{type(model).__name__} has no attention heads")
    chosen = unique(choose(parts, attentions, kind="attention"))
    with evaluating(model):
        find = _by_ablation if method == "ablation" else _by_gradient
        changes = find(model, inputs, score, {part: attentions[part].heads for part in chosen})
    rows = [HeadImportance(part, head, change) for (part, head), change in changes.items()]
    return sorted(rows, key=lambda row: -abs(row.change))


@torch.no_grad()
def _by_ablation(
    model: nn.Module, inputs: Mapping[str, Any], score: Score, heads: dict[str, int]
) -> dict[tuple[str, int], float]:
    whole = score(model(**inputs)).item()
    changes = {}
    for part, count in heads.items():
        for head in range(count):
            with ablate(model, part, heads=[head]):
                changes[part, head] = whole - score(model(**inputs)).item()
    return changes


@torch.enable_grad()
def _by_gradient(
    model: nn.Module, inputs: Mapping[str, Any], score: Score, heads: dict[str, int]
) -> dict[tuple[str, int], float]:
    seen: dict[str, Tensor] = {}

    def follow(part: str) -> Callable[[Tensor], Tensor]:
        def change(z: Tensor) -> Tensor:
            seen[part] = z if z.requires_grad else z.requires_grad_()
            return seen[part]

        return change

    with ExitStack() as hooks:
        for part in heads:
            hooks.enter_context(replace(model, f"{part}.z", follow(part)))
        asked = score(model(**inputs))
    gradients = torch.autograd.grad(asked, list(seen.values()), allow_unused=True)
    changes = {}
    for part, z, gradient in zip(seen, seen.values(), gradients, strict=True):
        product = torch.zeros_like(z) if gradient is None else z.detach() * gradient  # (batch, head, query, head_size)
        for head, change in enumerate(product.sum((0, 2, 3)).tolist()):
            changes[part, head] = change
    return changes
