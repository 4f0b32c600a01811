"""What a conversion did to a model, in figures: the same inputs before and after, compared number by
number and choice by choice."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

STRANGE = 500.0  # a perplexity above which figures say little about the texts a model is for


@dataclass(frozen=True)
class Certificate:
    before: str  # the weights' types
    after: str
    bytes_before: int
    bytes_after: int
    measured_on: str
    compared: int  # places at which the model was asked: tokens, texts or images
    largest: float  # difference of a logit (of a vector's entry, where there are no logits)
    mean: float
    agreement: float | None = None  # share of places with the same best token or label
    perplexity_before: float | None = None
    perplexity_after: float | None = None
    cosine_mean: float | None = None  # of vectors before and after
    cosine_least: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def lines(self) -> list[str]:
        sizes = f"{self.bytes_before / 2**20:,.1f} MiB → {self.bytes_after / 2**20:,.1f} MiB"
        what = "vectors" if self.agreement is None else "logits"
        out = [
            f"weights     {self.before} → {self.after}, {sizes}",
            f"measured on {self.measured_on}",
            f"{what:<11} differ by {self.largest:.2e} at most, {self.mean:.2e} on average",
        ]
        if self.agreement is not None:
            out.append(f"choices     {self.agreement:.2%} of {self.compared:,} the same")
        if self.perplexity_before is not None and self.perplexity_after is not None:
            ratio = self.perplexity_after / self.perplexity_before
            out.append(f"perplexity  {self.perplexity_before:.4f} → {self.perplexity_after:.4f} (×{ratio:.5f})")
            if self.perplexity_before > STRANGE:
                out.append("note        the model does not know such text: measure on its own kind, with --text FILE")
        if self.cosine_mean is not None:
            out.append(f"cosine      {self.cosine_mean:.6f} on average, {self.cosine_least:.6f} at least")
        return out


class Tally:
    """Sums over pairs of outputs, in double precision."""

    def __init__(self) -> None:
        self.largest = self.total = 0.0
        self.numbers = self.places = self.same = self.predicted = 0
        self.losses = [0.0, 0.0]
        self.cosines: list[Tensor] = []

    def logits(self, before: Tensor, after: Tensor, *, targets: Tensor | None = None) -> None:
        """Both (place, choice); `targets` (place) are the choices that the text itself makes."""
        self._differ(before, after)
        self.same += int((before.argmax(-1) == after.argmax(-1)).sum())
        if targets is not None:
            for side, scores in enumerate((before, after)):
                self.losses[side] += float(F.cross_entropy(scores.double(), targets, reduction="sum"))
            self.predicted += len(targets)

    def vectors(self, before: Tensor, after: Tensor) -> None:
        """Both (place, width)."""
        self._differ(before, after)
        self.cosines.append(F.cosine_similarity(before.double(), after.double(), dim=-1))

    def _differ(self, before: Tensor, after: Tensor) -> None:
        difference = (before.double() - after.double()).abs()
        self.largest = max(self.largest, float(difference.max()))
        self.total += float(difference.sum())
        self.numbers += difference.numel()
        self.places += len(before)

    def certificate(self, **facts: Any) -> Certificate:
        cosines = torch.cat(self.cosines) if self.cosines else None
        perplexities = [math.exp(loss / self.predicted) for loss in self.losses] if self.predicted else [None, None]
        return Certificate(
            **facts,
            compared=self.places,
            largest=self.largest,
            mean=self.total / max(self.numbers, 1),
            agreement=None if cosines is not None else self.same / max(self.places, 1),
            perplexity_before=perplexities[0],
            perplexity_after=perplexities[1],
            cosine_mean=None if cosines is None else float(cosines.mean()),
            cosine_least=None if cosines is None else float(cosines.min()),
        )
