"""Filters of speech models whose answers contain timestamps (Whisper, Radford et al. 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from headway.generation.filters import History


@dataclass(frozen=True)
class TimestampRules:
    """An answer is segments, each between two timestamps: `<0.00> text <2.40> <2.40> text <5.00>`.

    The first token is a timestamp, of at most `latest_start`. Timestamps come in pairs, except before the end. None is
    below the one before it, and a segment is not of length zero. Where timestamps together are more probable than
    every other token, one of them is chosen. The ids from `first` on are timestamps, and those below `end` are text.
    The first `forced` tokens of an answer are not its own.
    """

    first: int
    end: int
    latest_start: int | None = None  # counted from `first`
    forced: int = 0

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        scores = scores.clone()
        for row, seen in enumerate(history.rows):
            if seen.new >= self.forced:
                self._forbid(scores[row], seen.ids[seen.prompt + self.forced :])
        free = torch.tensor([seen.new >= self.forced for seen in history.rows], device=scores.device)
        stamps, others = scores[:, self.first :].logsumexp(-1), scores[:, : self.first].amax(-1)
        only = free & (stamps > others)  # (row)
        scores[:, : self.first] += torch.zeros_like(stamps).masked_fill_(only, -math.inf)[:, None]  # no mask of all
        return scores

    def _forbid(self, scores: Tensor, answer: np.ndarray) -> None:
        """Sets the scores (vocab) of tokens that may not follow `answer` to -inf."""
        if not len(answer):
            scores[: self.first] = -math.inf
            if self.latest_start is not None:
                scores[self.first + self.latest_start + 1 :] = -math.inf
            return
        stamped = answer >= self.first
        closes = bool(stamped[-1]) and len(answer) > 1 and not stamped[-2]  # the last one ended a segment
        if closes:
            scores[: self.end] = -math.inf
        elif stamped[-1]:
            scores[self.first :] = -math.inf
        if stamped.any():
            last = int(answer[stamped][-1])
            scores[self.first : last if closes else last + 1] = -math.inf


class Recorded:
    """The probability of a token at the first choice of one answer."""

    complete = False

    def __init__(self) -> None:
        self.probability: Tensor | None = None

    def push(self, token: int) -> None:
        pass

    def copy(self) -> Recorded:
        return self


@dataclass(frozen=True)
class RecordProbability:
    """Changes nothing: records the probability of `token` at the first choice, as the filters before it leave it. Equal
    ones record in one call, each for its own request."""

    token: int
    state: Recorded = field(default_factory=Recorded, compare=False)

    def new_state(self) -> Recorded:
        return self.state

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        first = [row for row, new in enumerate(history.new) if new == 0]
        if first:
            found = scores[first].softmax(-1)[:, self.token]
            states = history.states(self)
            for row, probability in zip(first, found, strict=True):
                states[row].probability = probability  # type: ignore[attr-defined]
        return scores

    @property
    def probability(self) -> float:
        return math.nan if self.state.probability is None else float(self.state.probability)
