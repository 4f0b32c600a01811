"""Beam search with length penalty and n best, and its diverse form (Vijayakumar et al. 2018).

Scoring and stopping follow the reference library: of (ends + 1) · beams candidates per step, those that end count if
they are among the first `beams`; the others continue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor

from headway.errors import HeadwayError
from headway.generation.coverage import Coverage
from headway.generation.filters import Filter, FilterRow, History, States, apply, counts
from headway.generation.forced_terms import ForcedTerms, TermState
from headway.generation.outputs import Event, FinishedBy, Hypothesis
from headway.generation.request import Request
from headway.generation.sample import failed, nan_error


@dataclass(frozen=True)
class Beam:
    """An unfinished sequence. `parent` is the index, in its group, of the beam it continues."""

    score: float
    ids: list[int]
    logprobs: list[float]
    parent: int = 0
    states: States = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    score: float  # with the penalties for length and coverage
    beam: Beam
    by: FinishedBy
    lacks_terms: bool = False  # it was too long for the terms that it must have

    @property
    def rank(self) -> tuple[bool, float]:
        """The lowest is the best."""
        return self.lacks_terms, -self.score


class BeamGroup:
    """Beams that compete with each other: all beams of a request, or an equal part of them in diverse beam search."""

    def __init__(self, width: int, request: Request) -> None:
        self.width, self.request, self.settings = width, request, request.settings
        self.beams = [Beam(0.0, [], [], states=request.new_states())]
        self.finished: list[Finished] = []
        self.newest: list[int] = []  # the tokens that were just appended
        self.done = False

    @property
    def alive(self) -> list[Beam]:
        return [] if self.done else self.beams

    def advance(self, candidates: list[list[float]], *, vocab: int, coverage: list[float]) -> None:
        """`candidates`, best first: score, parent · vocab + token, the model's own log-probability. `coverage` is added
        to the score of a sequence that ends, by its parent."""
        self.newest = []
        if self.done:
            return
        if (terms := self.request.terms) is not None:
            progress = [cast(TermState, beam.states[terms]) for beam in self.beams]
            candidates = terms.allocate(candidates, progress, width=self.width, vocab=vocab)
        running: list[Beam] = []
        for rank, (score, place, logprob) in enumerate(candidates):
            if math.isnan(score):
                raise nan_error(len(self.beams[0].ids))
            if score == -math.inf or (rank >= self.width and len(running) == self.width):
                break
            parent, token = divmod(int(place), vocab)
            old = self.beams[parent]
            states = {rule: state.copy() for rule, state in old.states.items()} if old.states else old.states
            beam = Beam(score, [*old.ids, token], [*old.logprobs, logprob], parent, states)
            by = self.request.criteria.finished(beam.ids, states.values())
            if by is None and len(running) < self.width:
                running.append(beam)
            elif by is not None and rank < self.width:
                self.finished.append(self._finish(beam, by, coverage[parent]))
            else:
                continue
            if by is None or by == "length":
                self.newest.append(token)
        if not running and not self.finished:
            self.finished = [
                self._finish(beam, "exhausted", more) for beam, more in zip(self.beams, coverage, strict=False)
            ]
        self.finished = sorted(self.finished, key=lambda done: done.rank)[: self.width]
        self.beams = running
        self.done = not running or self._no_better_to_come(running[0])

    def _finish(self, beam: Beam, by: FinishedBy, coverage: float) -> Finished:
        score = beam.score / max(len(beam.ids), 1) ** self.settings.length_penalty + coverage
        terms = self.request.terms
        return Finished(score, beam, by, terms is not None and bool(cast(TermState, beam.states[terms]).left))

    def _no_better_to_come(self, best: Beam) -> bool:
        settings = self.settings
        if len(self.finished) < self.width or settings.early_stopping is True:
            return len(self.finished) == self.width
        optimistic = settings.early_stopping == "never" and settings.length_penalty > 0
        length = settings.max_new_tokens if optimistic else len(best.ids)
        return best.score / length**settings.length_penalty <= self.finished[-1].score


class BeamSearch:
    """The beam search of one request: `beams` rows of the running batch. Rows of beams that do not exist (yet, or any
    more) repeat another row and have score -inf."""

    def __init__(self, request: Request) -> None:
        self.request, settings = request, request.settings
        self.rows = settings.beams
        self.width = settings.beams // settings.groups
        self.groups = [BeamGroup(self.width, request) for _ in range(settings.groups)]
        penalty, source = settings.coverage_penalty, request.source
        self.coverage = Coverage(penalty, len(source)) if penalty and source is not None else None
        self._update_rows()

    @property
    def key(self) -> tuple[object, ...]:
        """Searches with equal keys advance together."""
        settings = self.request.settings
        return (
            settings.beams,
            settings.groups,
            len(settings.end_ids),
            settings.diversity_penalty,
            settings.renormalize,
        )

    @property
    def finished(self) -> bool:
        return all(group.done for group in self.groups)

    @property
    def length(self) -> int:
        """Tokens of prompt, forced prefix and unfinished answers."""
        return len(self.request.ids) + max(len(beam.ids) for group in self.groups for beam in group.alive)

    def cached_ids(self) -> list[int]:
        """The ids that are in the cache of every row: the prompt."""
        return self.request.ids

    def row_ids(self) -> list[list[int]]:
        """Prompt, forced prefix and answer of each row."""
        alive = [[[*self.request.ids, *beam.ids] for beam in group.alive] for group in self.groups]
        first = next(ids for group in alive for ids in group)
        return [ids for group in alive for ids in (*group, *[first] * (self.width - len(group)))]

    def history(self) -> dict[int, FilterRow]:
        """What filters see of each row whose beam exists."""
        prompt = np.array(self.request.ids, dtype=np.int64)
        out = {}
        for g, group in enumerate(self.groups):
            for place, beam in enumerate(group.alive):
                ids = np.concatenate([prompt, np.array(beam.ids, dtype=np.int64)])
                out[g * self.width + place] = FilterRow(ids, self.request.prompt, len(beam.ids), beam.states)
        return out

    def advance(self, g: int, candidates: list[list[float]], *, vocab: int, coverage: list[float]) -> None:
        """One step of group number `g`; see `Group.advance`."""
        base = g * self.width
        self.groups[g].advance(candidates, vocab=vocab, coverage=coverage[base : base + self.width])

    def end_step(self) -> list[Event]:
        """After all groups have advanced."""
        self._update_rows()
        return self._events() if self.finished else []

    def _update_rows(self) -> None:
        """For the batch: the row that each of the next rows continues, and its last token."""
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self.scores: list[float] = []
        for g, group in enumerate(self.groups):
            alive, base = group.alive, g * self.width
            missing = self.width - len(alive)
            self.parents += [base + beam.parent for beam in alive] + [base] * missing
            self.tokens += [beam.ids[-1] if beam.ids else 0 for beam in alive] + [0] * missing
            self.scores += [beam.score for beam in alive] + [-math.inf] * missing

    def _events(self) -> list[Event]:
        """The best finished sequences, best first."""
        request, settings = self.request, self.request.settings
        finished = sorted((done for group in self.groups for done in group.finished), key=lambda done: done.rank)
        out = []
        for sample, done in enumerate(finished[: settings.n]):
            text = request.criteria.text(done.beam.ids)
            hypothesis = Hypothesis(
                ids=[*settings.prefix, *done.beam.ids],
                score=done.score,
                finished_by=done.by,
                logprobs=[0.0] * len(settings.prefix) + done.beam.logprobs if settings.logprobs else None,
                text=text,
                fits=request.fits(text),
            )
            out.append(Event(request.id, sample, None, None, text or "", done.by, hypothesis))
        return out


def advance(searches: Sequence[BeamSearch], logits: Tensor) -> list[Event]:
    """One step of searches with equal keys, in the order of their groups. logits: (search · beam, vocab)."""
    failures: dict[BeamSearch, Exception] = {}
    settings, vocab = searches[0].request.settings, logits.shape[1]
    own = logits.log_softmax(-1)
    scores = filtered(searches, own, failures)
    if settings.renormalize:
        scores = scores.log_softmax(-1)
    coverage = [[0.0] * s.rows if s.coverage is None else s.coverage.penalties() for s in searches]
    width = settings.beams // settings.groups
    shape = len(searches), settings.groups, width
    running = torch.tensor([s.scores for s in searches], device=logits.device).view(shape)
    scores, own = scores.view(*shape, vocab), own.view(*shape, vocab)
    candidates = min(max(2, 1 + len(settings.end_ids)) * width, width * vocab)
    each = min(candidates, vocab)  # most candidates that one beam can have among the best of all
    taken = torch.zeros(len(searches), vocab, device=logits.device)  # by the groups before
    for g in range(settings.groups):
        mine = scores[:, g]
        if settings.diversity_penalty:
            mine = mine - settings.diversity_penalty * taken[:, None]
        best, tokens = mine.topk(each)  # (search, beam, candidate)
        values, where = (best + running[:, g, :, None]).flatten(1).topk(candidates)  # (search, candidate)
        places = where // each * vocab + tokens.flatten(1).gather(1, where)
        logprobs = own[:, g].flatten(1).gather(1, places)
        table = torch.stack([values.double(), places.double(), logprobs.double()], -1).tolist()
        for number, (search, rows, extra) in enumerate(zip(searches, table, coverage, strict=True)):
            if search not in failures:
                if search.request.terms is not None:
                    rows = rows + further(search, g, mine[number], own[number, g])
                try:
                    search.advance(g, rows, vocab=vocab, coverage=extra)
                except HeadwayError as error:
                    failures[search] = error
        if settings.diversity_penalty and g + 1 < settings.groups:
            newest = [s.groups[g].newest + [-1] * (width - len(s.groups[g].newest)) for s in searches]
            taken += counts(torch.tensor(newest, device=taken.device), vocab)
    events: list[Event] = []
    for search in searches:
        events += [failed(search.request, failures[search])] if search in failures else search.end_step()
    return events


def further(search: BeamSearch, g: int, scores: Tensor, own: Tensor) -> list[list[float]]:
    """Candidates with which forced terms come further, and the best one of each beam; scores and own: (beam, vocab)."""
    out = []
    for at, beam in enumerate(search.groups[g].alive):
        state = cast(TermState, beam.states[cast(ForcedTerms, search.request.terms)])
        for token in {*state.following(), int(scores[at].argmax())}:
            place = at * scores.shape[1] + token
            out.append([beam.score + float(scores[at, token]), float(place), float(own[at, token])])
    return out


def filtered(searches: Sequence[BeamSearch], scores: Tensor, failures: dict[BeamSearch, Exception]) -> Tensor:
    """Applies each request's filters to the rows of its beams; equal filters in one call. An exception raised by a
    filter is stored for the searches that have it."""
    groups: dict[tuple[Filter, ...], list[tuple[int, BeamSearch]]] = {}
    for place, search in enumerate(searches):
        if search.request.filters:
            groups.setdefault(search.request.filters, []).append((place * search.rows, search))
    for filters, members in groups.items():
        rows = {base + row: seen for base, search in members for row, seen in search.history().items()}
        try:
            if len(rows) == len(scores):
                scores = apply(filters, scores, History(list(rows.values()), scores.device))
            else:
                index = torch.tensor(list(rows), device=scores.device)
                changed = apply(filters, scores[index], History(list(rows.values()), scores.device))
                scores = scores.index_copy(0, index, changed)
        except Exception as error:
            failures |= dict.fromkeys((search for _, search in members), error)
    return scores
