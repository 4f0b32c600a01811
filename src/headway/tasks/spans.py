"""Room: tasks. Questions read through windows: where an answer's characters are among tokens, and from start and end
scores the best spans. All spans at once: no loop over tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.tasks.task import Example, ids_array

NOWHERE = (0, 0)  # [CLS] as start and end: not in this window


@dataclass(frozen=True)
class Window:
    """One reading of a question and a stretch of its context."""

    ids: list[int]
    segments: list[int]
    context: tuple[int, int]  # its tokens, from … to before
    offsets: list[tuple[int, int]]  # characters of each context token

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The characters [start, end) as first and last token; NOWHERE unless all of them are in this window."""
        touched = [i for i, (first, last) in enumerate(self.offsets) if first < end and last > start]
        if not touched or start < self.offsets[0][0] or end > self.offsets[-1][1]:
            return NOWHERE
        return self.context[0] + touched[0], self.context[0] + touched[-1]

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """The inverse: tokens from first to last as characters [start, end)."""
        return self.offsets[first - self.context[0]][0], self.offsets[last - self.context[0]][1]

    def example(self, span: tuple[int, int] = NOWHERE) -> Example:
        parts = {"ids": self.ids, "segments": self.segments, "context": self.context, "span": span}
        return {name: ids_array(value) for name, value in parts.items()}


class Spans(NamedTuple):
    score: Tensor  # (row, n), best first; −∞ where a row has fewer
    first: Tensor  # (row, n), tokens
    last: Tensor  # (row, n)
    null: Tensor  # (row,), of token 0 as start and end
    total: Tensor  # (row,), log Σ exp over every span

    def row(self, index: int) -> Spans:
        return Spans(*(part[index] for part in self))


def best_spans(logits: Tensor, *, longest: int, n: int) -> Spans:
    """`logits` is (row, length, start or end), −∞ where no span may begin or end. Token 0 stands for no span at all."""
    start, end = logits[:, 1:].unbind(-1)  # (row, length - 1)
    ends = F.pad(end, (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)  # (row, start, tokens further on)
    scores = (start[:, :, None] + ends).flatten(1)
    found = scores.topk(min(n, scores.shape[1]), dim=1)
    first = found.indices // longest + 1
    return Spans(found.values, first, first + found.indices % longest, logits[:, 0].sum(-1), scores.logsumexp(1))


@dataclass
class Reading:
    """What the windows over one context have said so far."""

    context: str
    spans: dict[tuple[int, int], float] = field(default_factory=dict)  # characters → score; two windows may find one
    null: float = math.inf  # the answer may be in any window, so the least "not here" counts
    total: float = -math.inf  # log Σ exp over every span of every window

    def add(self, window: Window, found: Spans) -> None:
        self.null = min(self.null, float(found.null))
        self.total = float(np.logaddexp(self.total, float(found.total)))
        for score, first, last in zip(found.score.tolist(), found.first.tolist(), found.last.tolist(), strict=True):
            if score > -math.inf:
                place = window.characters(first, last)
                self.spans[place] = max(score, self.spans.get(place, -math.inf))

    def answers(self, *, null_threshold: float) -> list[dict[str, Any]]:
        """Best first, "no answer" before the spans that it beats by more than the threshold."""
        ranked = sorted(self.spans.items(), key=lambda item: -item[1])
        place = sum(score >= self.null - null_threshold for _, score in ranked)
        whole = np.logaddexp(self.total, self.null)
        return [
            {"answer": self.context[start:end], "score": math.exp(score - whole), "start": start, "end": end}
            for (start, end), score in [*ranked[:place], (NOWHERE, self.null), *ranked[place:]]
        ]
