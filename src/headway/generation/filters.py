"""Filters: rules that change next-token scores before a token is chosen.

A filter is any callable `filter(scores, history) -> scores`: scores (row, vocab) are the logits, or the
log-probabilities in a beam search; `history` describes the same rows. It returns new scores and leaves its input as
it is; a forbidden token scores -inf. Equal filters (== and hash) of several requests are applied to all their rows in
one call, so a row's result must depend on that row alone. A filter that has to follow an answer token by token makes
a `State` for each answer (`new_state`) and finds them in `history.states`.

Order, the reference library's for the filters it has too:
  before every choice:  repetition, frequency and presence, no-repeat n-gram, bad words, minimum length, forced first
                        and last token, suppressed tokens; then those given to `Session.add`; then the constraint
  before sampling only: temperature, top-k, top-p, min-p, typical (headway.generation.sampling_filters)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from headway.generation.settings import GenerationSettings


class FilterState(Protocol):
    """What a filter has to remember about one answer."""

    @property
    def complete(self) -> bool:
        """Whether the answer is finished because nothing may follow."""

    def push(self, token: int) -> object: ...

    def copy(self) -> FilterState: ...


class Filter(Protocol):
    def __call__(self, scores: Tensor, history: History, /) -> Tensor: ...


@runtime_checkable
class StatefulFilter(Protocol):
    def __call__(self, scores: Tensor, history: History, /) -> Tensor: ...

    def new_state(self) -> FilterState: ...


States = dict[StatefulFilter, FilterState]


class FilterRow(NamedTuple):
    """What filters see of one row."""

    ids: np.ndarray  # prompt, forced prefix and answer
    prompt: int  # how many of the ids are the prompt
    new: int  # how many were chosen (neither prompt nor forced prefix)
    states: States


class History:
    """The rows that a filter is applied to."""

    def __init__(self, rows: Sequence[FilterRow], device: torch.device | None = None) -> None:
        self.rows, self.device = rows, device
        self.new = [row.new for row in rows]

    @cached_property
    def ids(self) -> Tensor:
        """Prompt, forced prefix and answer (row, length), padded with -1 on the left."""
        return self._padded([row.ids for row in self.rows])

    @cached_property
    def answers(self) -> Tensor:
        """Forced prefix and answer (row, length), padded with -1 on the left."""
        return self._padded([row.ids[row.prompt :] for row in self.rows])

    def states(self, owner: StatefulFilter) -> list[FilterState]:
        return [row.states[owner] for row in self.rows]

    def _padded(self, rows: list[np.ndarray]) -> Tensor:
        longest = max(map(len, rows))
        out = np.full((len(rows), longest), -1, dtype=np.int64)
        for into, row in zip(out, rows, strict=True):
            into[longest - len(row) :] = row
        return torch.from_numpy(out).to(self.device)


def score_filters(settings: GenerationSettings) -> tuple[Filter, ...]:
    """The filters applied before every choice, in their order."""
    forced = [at for at, _ in settings.forced_ids] + ([] if settings.forced_bos_id is None else [0])
    first_free = max(forced, default=-1) + 1
    out: list[Filter] = []
    if settings.repetition_penalty != 1:
        out.append(RepetitionPenalty(settings.repetition_penalty))
    if settings.frequency_penalty or settings.presence_penalty:
        out.append(CountPenalty(settings.frequency_penalty, settings.presence_penalty))
    if settings.no_repeat_ngram:
        out.append(NoRepeatNgram(settings.no_repeat_ngram))
    if settings.bad_words:
        out.append(BadWords(settings.bad_words, settings.eos_ids))
    if settings.min_new_tokens and settings.end_ids:
        out.append(Suppress(settings.end_ids, until=settings.min_new_tokens))
    if settings.forced_bos_id is not None:
        out.append(Force((settings.forced_bos_id,), at=0))
    out += [Force((token,), at=at) for at, token in settings.forced_ids]
    if settings.forced_eos_ids:
        out.append(Force(settings.forced_eos_ids, at=settings.max_new_tokens - 1))
    if settings.suppress_ids:
        out.append(Suppress(settings.suppress_ids))
    if settings.begin_suppress_ids:
        out.append(Suppress(settings.begin_suppress_ids, begin=first_free, until=first_free + 1))
    return tuple(out)


def apply(filters: Sequence[Filter], scores: Tensor, history: History) -> Tensor:
    for rule in filters:
        scores = rule(scores, history)
    return scores


# ---------------------------------------------------------------------------------------- penalties


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divides a positive score of a token of prompt or answer, multiplies a negative one (Keskar et al. 2019)."""

    penalty: float

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        penalised = torch.where(scores < 0, scores * self.penalty, scores / self.penalty)
        return torch.where(counts(history.ids, scores.shape[1]) > 0, penalised, scores)


@dataclass(frozen=True)
class CountPenalty:
    """Subtracts `frequency` for each time the answer has a token, and `presence` once if it has it at all."""

    frequency: float
    presence: float

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        seen = counts(history.answers, scores.shape[1])
        return scores - self.frequency * seen - self.presence * (seen > 0)


@dataclass(frozen=True)
class NoRepeatNgram:
    """Forbids the tokens that would complete an n-gram which the row already has (Paulus et al. 2018)."""

    size: int

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        ids, size = history.ids, self.size
        if ids.shape[1] < size:
            return scores
        ngrams = ids.unfold(1, size, 1)  # (row, place, size)
        last = ids[:, ids.shape[1] - size + 1 :]  # the n-gram that the next token completes, without that token
        repeats = (ngrams[..., :-1] == last[:, None]).all(-1)  # (row, place)
        forbidden = counts(ngrams[..., -1].masked_fill(~repeats, -1), scores.shape[1]) > 0
        return scores.masked_fill(forbidden, -math.inf)


def counts(ids: Tensor, vocab: int) -> Tensor:
    """How often each token occurs in each row, (row, vocab); -1 is padding."""
    column = torch.where((ids < 0) | (ids >= vocab), vocab, ids)  # padding is counted in an extra column
    out = torch.zeros(len(ids), vocab + 1, device=ids.device)
    return out.scatter_add_(1, column, torch.ones_like(column, dtype=out.dtype))[:, :vocab]


# ---------------------------------------------------------------------------------------- forbidden and forced tokens


@dataclass(frozen=True)
class BadWords:
    """Forbids the last id of each sequence in `words` whose other ids are the row's last ones. A word that is just an
    end-of-sequence id is skipped, as in the reference library."""

    words: tuple[tuple[int, ...], ...]
    eos_ids: tuple[int, ...] = ()

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        ids = history.ids
        for *first, last in self.words:
            if last >= scores.shape[1] or len(first) > ids.shape[1] or (not first and last in self.eos_ids):
                continue
            matches = (ids[:, ids.shape[1] - len(first) :] == torch.tensor(first, device=ids.device)).all(1)  # (row)
            column = scores[:, last].masked_fill(matches, -math.inf)
            scores = scores.index_copy(1, torch.tensor([last], device=scores.device), column[:, None])
        return scores


@dataclass(frozen=True)
class Suppress:
    """Forbids `ids` while the number of chosen tokens is at least `begin` and less than `until` (None: no limit)."""

    ids: tuple[int, ...]
    begin: int = 0
    until: int | None = None

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        active = [new >= self.begin and (self.until is None or new < self.until) for new in history.new]
        if not any(active):
            return scores
        known = known_ids(self.ids, scores.shape[1], scores.device)
        return choose_rows(active, scores.index_fill(1, known, -math.inf), scores)


@lru_cache(maxsize=64)
def known_ids(ids: tuple[int, ...], vocab: int, device: torch.device) -> Tensor:
    """Those of a vocabulary."""
    return torch.tensor([id for id in ids if id < vocab], dtype=torch.long, device=device)


@dataclass(frozen=True)
class OneChoice(ABC):
    """A rule for the choice number `at` (0: the first token)."""

    ids: tuple[int, ...]
    at: int

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        active = [new == self.at for new in history.new]
        return choose_rows(active, self.changed(scores), scores) if any(active) else scores

    @abstractmethod
    def changed(self, scores: Tensor) -> Tensor: ...


class Force(OneChoice):
    """Allows only `ids`, each with score 0."""

    def changed(self, scores: Tensor) -> Tensor:
        forced = torch.tensor(self.ids, device=scores.device)
        return torch.full_like(scores, -math.inf).index_fill(1, forced, 0.0)


class Allow(OneChoice):
    """Allows only `ids`, with their own scores."""

    def changed(self, scores: Tensor) -> Tensor:
        forbidden = torch.ones(scores.shape[1], dtype=torch.bool, device=scores.device)
        forbidden[list(self.ids)] = False
        return scores.masked_fill(forbidden, -math.inf)


def choose_rows(active: list[bool], changed: Tensor, scores: Tensor) -> Tensor:
    """`changed` in the active rows, `scores` in the others."""
    if all(active):
        return changed
    return torch.where(torch.tensor(active, device=scores.device)[:, None], changed, scores)
