"""Spans of question answering: from characters to tokens of a window and back, and the best spans by start and end
scores, computed for all spans at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.tasks.task import Example, ids_array

NOWHERE = (0, 0)  # [CLS] as start and end: the answer is not in this window


@dataclass(frozen=True)
class QuestionWindow:
    """A question with one window of its context."""

    ids: list[int]
    segments: list[int]
    context: tuple[int, int]  # [first, end) of its tokens
    offsets: list[tuple[int, int]]  # [start, end) of each context token in characters

    def span(self, start: int, end: int) -> tuple[int, int]:
        """First and last token of the characters [start, end); NOWHERE unless all of them are in this window."""
        touched = [i for i, (first, last) in enumerate(self.offsets) if first < end and last > start]
        if not touched or start < self.offsets[0][0] or end > self.offsets[-1][1]:
            return NOWHERE
        return self.context[0] + touched[0], self.context[0] + touched[-1]

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """The inverse of `span`: [start, end) in characters of the tokens from first to last."""
        return self.offsets[first - self.context[0]][0], self.offsets[last - self.context[0]][1]

    def example(self, span: tuple[int, int] = NOWHERE) -> Example:
        parts = {"ids": self.ids, "segments": self.segments, "context": self.context, "span": span}
        return {name: ids_array(value) for name, value in parts.items()}


class Spans(NamedTuple):
    score: Tensor  # (row, n), best first; −∞ where a row has fewer
    first: Tensor  # (row, n), tokens
    last: Tensor  # (row, n)
    null: Tensor  # (row,), score of token 0 as start and end
    total: Tensor  # (row,), log Σ exp over every span and `null`

    def row(self, index: int) -> Spans:
        return Spans(*(part[index] for part in self))

    def cpu(self) -> Spans:
        return Spans(*(part.cpu() for part in self))


def best_spans(logits: Tensor, *, longest: int, n: int) -> Spans:
    """`logits` is (row, length, start or end), −∞ where no span may start or end. Token 0 means no span."""
    start, end = logits[:, 1:].unbind(-1)  # (row, length - 1)
    ends = F.pad(end, (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)  # (row, start, length - 1)
    scores = (start[:, :, None] + ends).flatten(1)
    found = scores.topk(min(n, scores.shape[1]), dim=1)
    first, null = found.indices // longest + 1, logits[:, 0].sum(-1)
    total = torch.logaddexp(scores.logsumexp(1), null)
    return Spans(found.values, first, first + found.indices % longest, null, total)


class Scored(NamedTuple):
    score: float
    probability: float  # among all spans of the window, and "no answer"


NOTHING = Scored(math.inf, 1.0)


@dataclass
class SpanReading:
    """The spans found in the windows of one context: for the same characters, the best score counts."""

    context: str
    spans: dict[tuple[int, int], Scored] = field(default_factory=dict)
    null: Scored = NOTHING  # "no answer": the lowest score of any window counts

    def add(self, window: QuestionWindow, found: Spans) -> None:
        def scored(score: float) -> Scored:
            return Scored(score, math.exp(score - float(found.total)))

        self.null = min(self.null, scored(float(found.null)))
        for score, first, last in zip(found.score.tolist(), found.first.tolist(), found.last.tolist(), strict=True):
            if score > -math.inf:
                place = window.characters(first, last)
                self.spans[place] = max(scored(score), self.spans.get(place, scored(-math.inf)))

    def answers(self, *, null_threshold: float) -> list[dict[str, Any]]:
        """Best first, "no answer" before the spans that it beats by more than the threshold."""
        ranked = sorted(self.spans.items(), key=lambda item: item[1], reverse=True)
        place = sum(each.score >= self.null.score - null_threshold for _, each in ranked)
        return [
            {"answer": self.context[start:end], "score": each.probability, "start": start, "end": end}
            for (start, end), each in [*ranked[:place], (NOWHERE, self.null), *ranked[place:]]
        ]
