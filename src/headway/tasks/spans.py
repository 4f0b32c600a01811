"""Questions read through windows: where an answer's characters are among tokens, and from start and end
scores the best spans. All spans at once: no loop over tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    total: Tensor  # (row,), log Σ exp over every span and `null`

    def row(self, index: int) -> Spans:
        return Spans(*(part[index] for part in self))

    def cpu(self) -> Spans:
        return Spans(*(part.cpu() for part in self))


def best_spans(logits: Tensor, *, longest: int, n: int) -> Spans:
    """`logits` is (row, length, start or end), −∞ where no span may begin or end. Token 0 stands for no span at all."""
    start, end = logits[:, 1:].unbind(-1)  # (row, length - 1)
    ends = F.pad(end, (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)  # (row, start, tokens further on)
    scores = (start[:, :, None] + ends).flatten(1)
    found = scores.topk(min(n, scores.shape[1]), dim=1)
    first, null = found.indices // longest + 1, logits[:, 0].sum(-1)
    total = torch.logaddexp(scores.logsumexp(1), null)
    return Spans(found.values, first, first + found.indices % longest, null, total)


class Said(NamedTuple):
    score: float
    probability: float  # among all spans of the window that said so, and "no answer"


NOTHING = Said(math.inf, 1.0)


@dataclass
class Reading:
    """What the windows over one context have said so far: the best of what was said of the same characters."""

    context: str
    spans: dict[tuple[int, int], Said] = field(default_factory=dict)
    null: Said = NOTHING  # the answer may be in any window, so the least "not here" counts

    def add(self, window: Window, found: Spans) -> None:
        def said(score: float) -> Said:
            return Said(score, math.exp(score - float(found.total)))

        self.null = min(self.null, said(float(found.null)))
        for score, first, last in zip(found.score.tolist(), found.first.tolist(), found.last.tolist(), strict=True):
            if score > -math.inf:
                place = window.characters(first, last)
                self.spans[place] = max(said(score), self.spans.get(place, said(-math.inf)))

    def answers(self, *, null_threshold: float) -> list[dict[str, Any]]:
        """Best first, "no answer" before the spans that it beats by more than the threshold."""
        ranked = sorted(self.spans.items(), key=lambda item: item[1], reverse=True)
        place = sum(said.score >= self.null.score - null_threshold for _, said in ranked)
        return [
            {"answer": self.context[start:end], "score": said.probability, "start": start, "end": end}
            for (start, end), said in [*ranked[:place], (NOWHERE, self.null), *ranked[place:]]
        ]
