"""Beam search with length penalty and n best, and its diverse form (Vijayakumar et al. 2018).

The scoring and the ends are the reference library's: of (ends + 1) · beams candidates a step, those that end count if
they are among the first `beams`; the others run on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import HeadwayError
from headway.generation.constraints import Guide, restrict
from headway.generation.coverage import Coverage
from headway.generation.filters import counts, steer
from headway.generation.outputs import FinishedBy, Hypothesis
from headway.generation.prefill import Batch
from headway.generation.settings import GenerationSettings
from headway.generation.stop_criteria import Reader


@dataclass(frozen=True)
class Beam:
    """A sequence that runs on. `parent` is the place, in its group, of the one it continues."""

    score: float
    ids: list[int]
    logprobs: list[float]
    parent: int = 0
    guide: Guide | None = None


@dataclass(frozen=True)
class Finished:
    score: float  # with the penalties for length and coverage
    beam: Beam
    by: FinishedBy


class Group:
    """Beams that compete with each other: all of a request's, or a share of them when the search is diverse."""

    def __init__(self, width: int, settings: GenerationSettings, reader: Reader):
        self.width, self.settings, self.reader = width, settings, reader
        self.beams = [Beam(0.0, [], [], guide=reader.guide())]
        self.finished: list[Finished] = []
        self.fresh: list[int] = []  # the tokens just written
        self.done = False

    @property
    def guides(self) -> list[Guide | None]:
        """One for each of the rows that are the group's."""
        alive = [] if self.done else [beam.guide for beam in self.beams]
        return alive + [None] * (self.width - len(alive))

    def advance(self, candidates: list[list[float]], *, vocab: int, extra: list[float]) -> None:
        """`candidates`, best first: score, parent · vocab + token, the model's own log-probability. `extra` is added
        to the score of a sequence that ends, by its parent."""
        self.fresh = []
        if self.done:
            return
        running: list[Beam] = []
        for rank, (score, place, logprob) in enumerate(candidates):
            if math.isnan(score):
                raise HeadwayError(f"token {len(self.beams[0].ids)}: the model's scores are not numbers")
            if score == -math.inf:
                break
            parent, token = divmod(int(place), vocab)
            old = self.beams[parent]
            guide = None if old.guide is None else old.guide.copy()
            beam = Beam(score, [*old.ids, token], [*old.logprobs, logprob], parent, guide)
            by = self.reader.ended(beam.ids, guide)
            if by is None and len(running) < self.width:
                running.append(beam)
            elif by is not None and rank < self.width:
                self.finished.append(self._finish(beam, by, extra[parent]))
            else:
                continue
            if by is None or by == "length":
                self.fresh.append(token)
        if not running and not self.finished:
            self.finished = [
                self._finish(beam, "exhausted", more) for beam, more in zip(self.beams, extra, strict=False)
            ]
        self.finished = sorted(self.finished, key=lambda done: -done.score)[: self.width]
        self.beams = running
        self.done = not running or self._no_better_to_come(running[0])

    def _finish(self, beam: Beam, by: FinishedBy, extra: float) -> Finished:
        return Finished(beam.score / max(len(beam.ids), 1) ** self.settings.length_penalty + extra, beam, by)

    def _no_better_to_come(self, best: Beam) -> bool:
        settings = self.settings
        if len(self.finished) < self.width or settings.early_stopping is True:
            return len(self.finished) == self.width
        hopeful = settings.early_stopping == "never" and settings.length_penalty > 0
        length = settings.max_new_tokens if hopeful else len(best.ids)
        return best.score / length**settings.length_penalty <= self.finished[-1].score


def beam_search(
    batch: Batch, settings: GenerationSettings, *, readers: list[Reader], coverage: Coverage | None = None
) -> list[list[Hypothesis]]:
    width = settings.beams // settings.groups
    requests = [[Group(width, settings, reader) for _ in range(settings.groups)] for reader in readers]
    batch.repeat(settings.beams)
    if coverage is not None:
        coverage.repeat(settings.beams)
    live = requests
    running = torch.full((len(live), settings.groups, width), -math.inf, device=batch.logits.device)
    running[..., 0] = 0.0  # the other beams come to life when the first has continuations to give them
    for step in range(settings.max_new_tokens):
        advance(live, batch, settings, running=running, step=step, coverage=coverage)
        rows, tokens, scores, still = [], [], [], []
        for place, groups in enumerate(live):
            if all(group.done for group in groups):
                continue
            still.append(groups)
            for g, group in enumerate(groups):
                base = (place * settings.groups + g) * width
                alive = [] if group.done else group.beams
                missing = width - len(alive)
                rows += [base + beam.parent for beam in alive] + [base] * missing
                tokens += [beam.ids[-1] for beam in alive] + [0] * missing
                scores += [beam.score for beam in alive] + [-math.inf] * missing
        if not still:
            break
        live = still
        running = torch.tensor(scores, device=running.device).view(len(live), settings.groups, width)
        batch.step(torch.tensor(tokens, device=running.device), rows=rows)
        if coverage is not None:
            coverage.step(rows)
    return [best_of(groups, settings, reader) for groups, reader in zip(requests, readers, strict=True)]


def advance(
    live: list[list[Group]],
    batch: Batch,
    settings: GenerationSettings,
    *,
    running: Tensor,
    step: int,
    coverage: Coverage | None,
) -> None:
    """One step of every group of every request, in the order of the groups."""
    vocab = batch.logits.shape[1]
    own = batch.logits.log_softmax(-1)
    steered = steer(own, settings, ids=batch.ids, prompt=batch.prompt, new=step)
    steered = restrict(steered, [guide for groups in live for group in groups for guide in group.guides])
    if settings.renormalize:
        steered = steered.log_softmax(-1)
    extra = [0.0] * len(own) if coverage is None else coverage.penalties()
    shape = *running.shape, vocab  # (request, group, beam, vocab)
    steered, own = steered.view(shape), own.view(shape)
    width = running.shape[2]
    candidates = min(max(2, 1 + len(settings.end_ids)) * width, width * vocab)
    each = min(candidates, vocab)  # no beam has more than these among the best of all
    taken = torch.zeros(len(live), vocab, device=running.device)  # by the groups before
    for g in range(settings.groups):
        mine = (
            steered[:, g] - settings.diversity_penalty * taken[:, None] if settings.diversity_penalty else steered[:, g]
        )
        best, tokens = mine.topk(each)  # (request, beam, candidate)
        values, where = (best + running[:, g, :, None]).flatten(1).topk(candidates)  # (request, candidate)
        places = where // each * vocab + tokens.flatten(1).gather(1, where)
        logprobs = own[:, g].flatten(1).gather(1, places)
        table = torch.stack([values.double(), places.double(), logprobs.double()], -1).tolist()
        for place, (groups, rows) in enumerate(zip(live, table, strict=True)):
            base = (place * settings.groups + g) * width
            groups[g].advance(rows, vocab=vocab, extra=extra[base : base + width])
        if settings.diversity_penalty and g + 1 < settings.groups:
            fresh = [groups[g].fresh + [-1] * (width - len(groups[g].fresh)) for groups in live]
            taken += counts(torch.tensor(fresh, device=taken.device), vocab)


def best_of(groups: list[Group], settings: GenerationSettings, reader: Reader) -> list[Hypothesis]:
    finished = sorted((done for group in groups for done in group.finished), key=lambda done: -done.score)
    out = []
    for done in finished[: settings.n]:
        text = reader.text(done.beam.ids)
        out.append(
            Hypothesis(
                ids=[*settings.prefix, *done.beam.ids],
                score=done.score,
                finished_by=done.by,
                logprobs=[0.0] * len(settings.prefix) + done.beam.logprobs if settings.logprobs else None,
                text=text,
                fits=reader.fits(text),
            )
        )
    return out
