"""What comes out: finished hypotheses, and tokens while they are being written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

# complete: the constraint is met and allows nothing more; exhausted: the filters left no token to choose
FinishedBy = Literal["eos", "stop", "length", "complete", "exhausted"]


@dataclass(frozen=True)
class Hypothesis:
    """One answer. `ids` has the forced prefix and the ending token, `text` neither the ending token nor the stop text.

    `score` is Σ log p / length**length_penalty over the chosen tokens, less the penalty for what of the source was not
    looked at. With beams, log p is what the search goes by: after the filters; else it is the model's own. `logprobs`
    are the model's own, one an id, 0 for a forced one. `fits` is whether the text is what the constraint asks for,
    looked at once more when it is finished: one that was cut short says so.
    """

    ids: list[int]
    score: float
    finished_by: FinishedBy
    logprobs: list[float] | None = None
    text: str | None = None  # when a tokenizer was given
    fits: bool | None = None  # when there is a constraint


@dataclass(frozen=True)
class Token:
    """One step of one answer. Text is what has become certain: it may be nothing, or more than this token's."""

    request: int
    sample: int
    id: int
    logprob: float
    text: str
    finished_by: FinishedBy | None


OnToken = Callable[[Token], None]
