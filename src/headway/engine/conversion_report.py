"""Measures what a weight conversion changed: the outputs of both models on the same inputs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

HIGH_PERPLEXITY = 500.0  # above it, the text is unlike the training data, and the comparison means little


@dataclass(frozen=True)
class ConversionReport:
    before: str  # weight formats
    after: str
    bytes_before: int
    bytes_after: int
    measured_on: str
    compared: int  # number of tokens, texts or images
    largest: float  # absolute difference of a logit (of a vector entry, without logits)
    mean: float
    agreement: float | None = None  # share with the same argmax
    perplexity_before: float | None = None
    perplexity_after: float | None = None
    cosine_mean: float | None = None  # similarity of the vectors before and after
    cosine_least: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def lines(self) -> list[str]:
        sizes = f"{self.bytes_before / 2**20:,.1f} MiB → {self.bytes_after / 2**20:,.1f} MiB"
        kind = "vectors" if self.agreement is None else "logits"
        out = [
            f"weights     {self.before} → {self.after}, {sizes}",
            f"measured on {self.measured_on}",
            f"{kind:<11} differ by {self.largest:.2e} at most, {self.mean:.2e} on average",
        ]
        if self.agreement is not None:
            out.append(f"choices     {self.agreement:.2%} of {self.compared:,} the same")
        if self.perplexity_before is not None and self.perplexity_after is not None:
            ratio = self.perplexity_after / self.perplexity_before
            out.append(f"perplexity  {self.perplexity_before:.4f} → {self.perplexity_after:.4f} (×{ratio:.5f})")
            if self.perplexity_before > HIGH_PERPLEXITY:
                out.append("note        high perplexity: unlike the training data; give similar text with --text FILE")
        if self.cosine_mean is not None:
            out.append(f"cosine      {self.cosine_mean:.6f} on average, {self.cosine_least:.6f} at least")
        return out


class OutputComparison:
    """Accumulates the differences between the outputs of two models, in double precision."""

    def __init__(self) -> None:
        self.largest = self.total = 0.0
        self.values = self.compared = self.same = self.predicted = 0
        self.losses = [0.0, 0.0]
        self.cosines: list[Tensor] = []

    def add_logits(self, before: Tensor, after: Tensor, *, targets: Tensor | None = None) -> None:
        """Both (n, classes); `targets` (n) are the next tokens of the text."""
        self._add_difference(before, after)
        self.same += int((before.argmax(-1) == after.argmax(-1)).sum())
        if targets is not None:
            for side, scores in enumerate((before, after)):
                self.losses[side] += float(F.cross_entropy(scores.double(), targets, reduction="sum"))
            self.predicted += len(targets)

    def add_vectors(self, before: Tensor, after: Tensor) -> None:
        """Both (n, width)."""
        self._add_difference(before, after)
        self.cosines.append(F.cosine_similarity(before.double(), after.double(), dim=-1))

    def add_boxes(self, before: Tensor, after: Tensor) -> None:
        """Both (n, 4), of the queries whose logits were added."""
        compared = self.compared
        self._add_difference(before, after)
        self.compared = compared

    def _add_difference(self, before: Tensor, after: Tensor) -> None:
        difference = (before.double() - after.double()).abs()
        self.largest = max(self.largest, float(difference.max()))
        self.total += float(difference.sum())
        self.values += difference.numel()
        self.compared += len(before)

    def report(self, **details: Any) -> ConversionReport:
        cosines = torch.cat(self.cosines) if self.cosines else None
        perplexities = [math.exp(loss / self.predicted) for loss in self.losses] if self.predicted else [None, None]
        return ConversionReport(
            **details,
            compared=self.compared,
            largest=self.largest,
            mean=self.total / max(self.values, 1),
            agreement=None if cosines is not None else self.same / max(self.compared, 1),
            perplexity_before=perplexities[0],
            perplexity_after=perplexities[1],
            cosine_mean=None if cosines is None else float(cosines.mean()),
            cosine_least=None if cosines is None else float(cosines.min()),
        )
