"""Outputs of generation: finished hypotheses, and the events of a session's step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

# complete: the constraint is satisfied and allows no further token; exhausted: the filters left no token to choose;
# error: the request failed (see Event.error)
FinishedBy = Literal["eos", "stop", "length", "complete", "exhausted", "error"]


@dataclass(frozen=True)
class Hypothesis:
    """One finished answer. `ids` includes the forced prefix and the end token; `text` excludes the end token and the
    stop string.

    `score` is Σ log p / length**length_penalty over the chosen tokens, minus the coverage penalty. In a beam search
    log p is taken after the filters, otherwise it is the model's own unless the settings renormalize. `logprobs` are
    the model's own (under `renormalize` without beams: those after the filters), one per id, 0 for a forced one. `fits`
    is whether the finished text satisfies the constraint; an answer that was cut short may not.
    """

    ids: list[int]
    score: float
    finished_by: FinishedBy
    logprobs: list[float] | None = None
    text: str | None = None  # with a tokenizer
    fits: bool | None = None  # with a constraint


class Event(NamedTuple):
    """What a step of a session did for one answer.

    A greedy or sampled answer has one event per token. A beam search has events only when it is finished: one per
    hypothesis, best first, without a token and with the whole text. `text` is the text that has become final: it may be
    empty, or longer than this token's.
    """

    id: int  # the request, as returned by Session.add
    sample: int  # which of the request's answers
    token: int | None
    logprob: float | None  # the model's own log-probability of the token
    text: str
    finished_by: FinishedBy | None
    hypothesis: Hypothesis | None = None  # of a finished answer
    error: Exception | None = None  # with finished_by "error"; the whole request has ended
    top: tuple[tuple[int, float], ...] = ()  # with settings.top_logprobs: (token, log-probability), highest first


@dataclass(frozen=True)
class Token:
    """One token of one answer, as `generate` passes it to `on_token`. `text` is as in `Event`."""

    request: int
    sample: int
    id: int
    logprob: float
    text: str
    finished_by: FinishedBy | None


OnToken = Callable[[Token], None]
