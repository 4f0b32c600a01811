"""Greedy search and sampling: one token per row and step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.errors import HeadwayError
from headway.generation.filters import Filter, FilterRow, History, apply
from headway.generation.outputs import Event, FinishedBy, Hypothesis
from headway.generation.request import Request
from headway.generation.sampling_filters import draw

SAMPLE_STRIDE = 0x9E3779B1  # odd and large: the samples of neighbouring seeds do not share a seed
BLOCK = 64  # random numbers made at once


class UniformStream:
    """The random numbers of one answer, in [0, 1): they depend on its seed alone."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator()
        self._generator.manual_seed(seed % 2**63)
        self._numbers: list[float] = []  # the next one last

    def next(self) -> float:
        if not self._numbers:
            self._numbers = torch.rand(BLOCK, generator=self._generator, dtype=torch.float64).tolist()[::-1]
        return self._numbers.pop()


class Ids:
    """A growing array of ids."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._length = len(ids)
        self._buffer = np.empty(self._length + BLOCK, dtype=np.int64)
        self._buffer[: self._length] = ids

    def __len__(self) -> int:
        return self._length

    def append(self, token: int) -> None:
        if self._length == len(self._buffer):
            self._buffer = np.concatenate([self._buffer, np.empty_like(self._buffer)])
        self._buffer[self._length] = token
        self._length += 1

    @property
    def array(self) -> np.ndarray:
        return self._buffer[: self._length]


class SampledAnswer:
    """A greedy or sampled answer: one row of the running batch."""

    rows = 1
    parents = (0,)  # for the batch: the row that each of the next rows continues, see BeamSearch

    def __init__(self, request: Request, sample: int) -> None:
        self.request, self.sample = request, sample
        self.ids = Ids(request.ids)  # prompt, forced prefix and answer
        self.tokens = [request.ids[-1]]  # for the batch: the last token of each row
        self.logprobs: list[float] = []
        self.stream = request.criteria.stream()
        self.states = request.new_states()
        self.random = None if request.sampling is None else UniformStream(request.seed + SAMPLE_STRIDE * sample)
        self.finished_by: FinishedBy | None = None
        self._texts: list[str] = []

    @property
    def finished(self) -> bool:
        return self.finished_by is not None

    @property
    def length(self) -> int:
        """Tokens of prompt, forced prefix and answer."""
        return len(self.ids)

    def row_ids(self) -> list[list[int]]:
        """Prompt, forced prefix and answer of each row."""
        return [self.ids.array.tolist()]

    def cached_ids(self) -> list[int]:
        """The ids in the cache when the answer is finished: the token that ended it is not."""
        ids = self.ids.array.tolist()
        return ids if self.finished_by == "exhausted" else ids[:-1]

    def accept(self, token: int, logprob: float, top: tuple[tuple[int, float], ...] = ()) -> Event:
        """Appends a chosen token. `top`: the most probable ones at its place."""
        criteria, stream = self.request.criteria, self.stream
        self.ids.append(token)
        self.tokens = [token]
        self.logprobs.append(logprob)
        by, text = criteria.ends.get(token), ""
        if by is None and stream is not None:
            text = stream.push(token)
            by = "stop" if stream.stopped else None
        if by is None:
            by = criteria.finished_by_state(token, len(self.logprobs), self.states.values())
        return self._event(token, logprob, text, by, top)

    def give_up(self) -> Event:
        """Ends the answer because no token is left to choose."""
        return self._event(None, None, "", "exhausted")

    def _event(
        self,
        token: int | None,
        logprob: float | None,
        text: str,
        by: FinishedBy | None,
        top: tuple[tuple[int, float], ...] = (),
    ) -> Event:
        if by is not None and self.stream is not None:
            text += self.stream.finish()
        self.finished_by = by
        self._texts.append(text)
        hypothesis = None if by is None else self._hypothesis(by)
        return Event(self.request.id, self.sample, token, logprob, text, by, hypothesis, top=top)

    def _hypothesis(self, by: FinishedBy) -> Hypothesis:
        request, settings = self.request, self.request.settings
        text = None if self.stream is None else "".join(self._texts)
        forced = [0.0] * len(settings.prefix)
        return Hypothesis(
            ids=self.ids.array[request.prompt :].tolist(),
            score=sum(self.logprobs) / max(len(self.logprobs), 1) ** settings.length_penalty,
            finished_by=by,
            logprobs=forced + self.logprobs if settings.logprobs else None,
            text=text,
            fits=request.fits(text),
        )

    def history(self) -> FilterRow:
        return FilterRow(self.ids.array, self.request.prompt, len(self.logprobs), self.states)


# ---------------------------------------------------------------------------------------- choosing


@dataclass(frozen=True)
class FilterGroup:
    """Answers with equal filters, which are applied in one call."""

    filters: tuple[Filter, ...]
    sampling: tuple[Filter, ...] | None
    renormalize: bool  # log-probabilities are those after the filters
    top: int  # most probable tokens that an event names
    answers: list[SampledAnswer]
    index: Tensor | None  # their rows; None: all rows


class Sampler:
    """Chooses the next token of each of `answers`. It serves as long as the set of answers is the same."""

    def __init__(self, answers: Sequence[SampledAnswer], device: torch.device) -> None:
        self.answers, self.device = answers, device
        rows: dict[tuple[object, ...], list[int]] = {}
        for row, answer in enumerate(answers):
            request = answer.request
            settings = request.settings
            key = (request.filters, request.sampling, settings.renormalize, settings.top_logprobs)
            rows.setdefault(key, []).append(row)
        self.groups = [
            FilterGroup(
                answers[where[0]].request.filters,
                answers[where[0]].request.sampling,
                answers[where[0]].request.settings.renormalize,
                answers[where[0]].request.settings.top_logprobs,
                [answers[row] for row in where],
                None if len(rows) == 1 else torch.tensor(where, device=device),
            )
            for where in rows.values()
        ]

    def step(self, logits: Tensor) -> list[Event]:
        """Appends one token to each answer, chosen from logits (row, vocab)."""
        errors: dict[SampledAnswer, Exception] = {}
        tops: dict[SampledAnswer, tuple[tuple[int, float], ...]] = {}
        if len(self.groups) == 1:
            table = self._choose(self.groups[0], logits, errors, tops)
        else:
            table = torch.empty(len(logits), 3, dtype=torch.double, device=self.device)
            for group in self.groups:
                table[group.index] = self._choose(group, logits[group.index], errors, tops)
        events = []
        for answer, (token, logprob, score) in zip(self.answers, table.tolist(), strict=True):  # the only transfer
            if errors and answer in errors:
                events.append(failed(answer.request, errors[answer]))
            elif math.isnan(logprob):
                events.append(failed(answer.request, nan_error(len(answer.logprobs))))
            elif score == -math.inf:
                events.append(answer.give_up())
            else:
                events.append(answer.accept(int(token), logprob, tops.get(answer, ())))
        return events

    def _choose(
        self,
        group: FilterGroup,
        logits: Tensor,
        errors: dict[SampledAnswer, Exception],
        tops: dict[SampledAnswer, tuple[tuple[int, float], ...]],
    ) -> Tensor:
        """(row, 3): the chosen tokens, their log-probabilities, and their scores after the filters. An exception raised
        by a filter is the fault of the requests that have this filter: it is stored for each of their answers."""
        try:
            scores = logits
            if group.filters:
                history = History([answer.history() for answer in group.answers], self.device)
                scores = apply(group.filters, logits, history)
            if group.sampling is None:
                tokens = scores.argmax(-1)
            else:
                numbers = [answer.random.next() for answer in group.answers if answer.random is not None]
                uniform = torch.tensor(numbers, dtype=torch.float64, device=self.device)
                tokens = draw(apply(group.sampling, scores, History([], self.device)), uniform)
        except Exception as error:
            errors |= dict.fromkeys(group.answers, error)
            tokens = torch.zeros(len(logits), dtype=torch.long, device=self.device)
            scores = logits
        own = scores if group.renormalize else logits
        total = own.logsumexp(-1)
        logprobs = own.gather(1, tokens[:, None]).squeeze(1) - total.masked_fill(total == -math.inf, 0.0)
        if group.top:
            tops |= zip(group.answers, most_probable(own, total, group.top), strict=True)
        chosen = logprobs if scores is logits else scores.gather(1, tokens[:, None]).squeeze(1)
        return torch.stack([tokens.double(), logprobs.double(), chosen.double()], 1)


def most_probable(scores: Tensor, total: Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """For each row of scores (row, vocab) the tokens with the highest log-probabilities; `total` is their logsumexp."""
    best = scores.topk(min(count, scores.shape[-1]), dim=-1)
    logprobs = (best.values - total[:, None]).tolist()
    return [tuple(zip(ids, row, strict=True)) for ids, row in zip(best.indices.tolist(), logprobs, strict=True)]


def failed(request: Request, error: Exception) -> Event:
    return Event(request.id, 0, None, None, "", "error", error=error)


def nan_error(token: int) -> HeadwayError:
    return HeadwayError(f"token {token}: the model's logits are NaN")
