"""Greedy search and sampling: one token a row and step. A row that is finished leaves the batch."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headway.errors import HeadwayError
from headway.generation.constraints import Guide, restrict
from headway.generation.filters import draw, narrow, steer
from headway.generation.outputs import FinishedBy, Hypothesis, OnToken, Token
from headway.generation.prefill import Batch
from headway.generation.settings import GenerationSettings
from headway.generation.stop import ended_by_id
from headway.generation.stop_criteria import Reader


@dataclass
class Row:
    """One answer being written."""

    request: int
    sample: int
    reader: Reader
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    finished_by: FinishedBy | None = None

    def __post_init__(self) -> None:
        self.stream, self.guide = self.reader.stream(), self.reader.guide()

    def take(self, token: int, logprob: float, *, settings: GenerationSettings) -> Token:
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.finished_by = ended_by_id(token, settings)
        text = ""
        if self.stream is not None:
            if self.finished_by is None:
                text = self.stream.push(token)
            if self.stream.stopped:
                self.finished_by = "stop"
        if self.finished_by is None and self.guide is not None:
            self.guide.take(token)
            self.finished_by = "complete" if self.guide.complete else None
        if self.finished_by is None and len(self.ids) == settings.max_new_tokens:
            self.finished_by = "length"
        if self.finished_by is not None and self.stream is not None:
            text += self.stream.finish()
        self.texts.append(text)
        return Token(self.request, self.sample, token, logprob, text, self.finished_by)

    def give_up(self) -> None:
        self.finished_by = "exhausted"
        self.texts.append(self.stream.finish() if self.stream is not None else "")

    def hypothesis(self, settings: GenerationSettings) -> Hypothesis:
        assert self.finished_by is not None
        forced = [0.0] * len(settings.prefix)
        text = "".join(self.texts) if self.stream is not None else None
        return Hypothesis(
            ids=[*settings.prefix, *self.ids],
            score=sum(self.logprobs) / max(len(self.ids), 1) ** settings.length_penalty,
            finished_by=self.finished_by,
            logprobs=forced + self.logprobs if settings.logprobs else None,
            text=text,
            fits=self.reader.fits(text),
        )


def sample(
    batch: Batch, settings: GenerationSettings, *, readers: list[Reader], on_token: OnToken | None
) -> list[list[Hypothesis]]:
    answers = [[Row(i, j, reader) for j in range(settings.n)] for i, reader in enumerate(readers)]
    rows = [row for answer in answers for row in answer]
    batch.repeat(settings.n)
    uniform = None
    if settings.temperature > 0:
        uniform = uniform_numbers([(row.request, row.sample) for row in rows], settings).to(batch.logits.device)
    for step in range(settings.max_new_tokens):
        guides = [row.guide for row in rows]
        tokens, own, scores = choose(batch, settings, step=step, uniform=uniform, guides=guides)
        chosen = torch.stack([tokens.double(), own.double(), scores.double()], 1).tolist()  # the step's only transfer
        for row, (token, logprob, score) in zip(rows, chosen, strict=True):
            if math.isnan(logprob):
                raise HeadwayError(f"request {row.request}, token {step}: the model's scores are not numbers")
            if score == -math.inf:
                row.give_up()
                continue
            event = row.take(int(token), logprob, settings=settings)
            if on_token is not None:
                on_token(event)
        going = [i for i, row in enumerate(rows) if row.finished_by is None]
        if not going:
            break
        if len(going) < len(rows):
            rows, tokens = [rows[i] for i in going], tokens[going]
            uniform = uniform[going] if uniform is not None else None
        batch.step(tokens, rows=going)
    return [[row.hypothesis(settings) for row in answer] for answer in answers]


def choose(
    batch: Batch, settings: GenerationSettings, *, step: int, uniform: Tensor | None, guides: Sequence[Guide | None]
) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row: the token, the model's own log-probability of it, and its score after the filters."""
    logits = batch.logits  # (row, vocab)
    scores = restrict(steer(logits, settings, ids=batch.ids, prompt=batch.prompt, new=step), guides)
    if uniform is None:
        tokens = scores.argmax(-1)
    else:
        tokens = draw(narrow(scores, settings), uniform[:, step])
    at = tokens[:, None]
    own = logits.gather(1, at).squeeze(1) - logits.logsumexp(-1)
    return tokens, own, scores.gather(1, at).squeeze(1)


def uniform_numbers(rows: Sequence[tuple[int, int]], settings: GenerationSettings) -> Tensor:
    """A generator of its own for every answer (request, sample), so that it is the same alone or in any batch: numbers
    (row, step) in [0, 1)."""
    first = secrets.randbits(32) if settings.seed is None else settings.seed
    generator = torch.Generator()
    numbers = []
    for request, sample in rows:
        seed = first[request] if isinstance(first, tuple) else first + request
        generator.manual_seed((seed + SAMPLE_STRIDE * sample) % 2**63)
        numbers.append(torch.rand(settings.max_new_tokens, generator=generator, dtype=torch.float64))
    return torch.stack(numbers)


SAMPLE_STRIDE = 0x9E3779B1  # odd and large: no two of a call's answers share a seed
