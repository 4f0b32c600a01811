"""Logits as rows of candidates: the best few with their logits, and the log-sum-exp over all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from headway.explain import story
from headway.explain.token_text import token_strings
from headway.models.outputs import Output
from headway.preprocess.text import Tokenizer

TOP_ANSWER = 50  # candidates of a large vocabulary, at the position of the answer
TOP_OTHERS = 10  # at every other position

IdsToText = Callable[[Sequence[int]], Sequence[str]]


def round_float32(value: float) -> float:
    """The number with the digits that float32 has."""
    return float(f"{value:.8g}")


def candidates(
    scores: Tensor, to_text: IdsToText, *, top: int = TOP_ANSWER, chosen: int | None = None
) -> list[story.Candidate]:
    """Best first: all when there are few, else the `top`, and the chosen one in any case. −∞ is not a candidate."""
    possible = int(torch.isfinite(scores).sum())
    few = len(scores) <= TOP_ANSWER
    found = scores.topk(min(possible, len(scores) if few else top)).indices.tolist()
    if chosen is not None and chosen not in found:
        found.append(chosen)
    return [
        story.Candidate(text, index, round_float32(float(scores[index])))
        for text, index in zip(to_text(found), found, strict=True)
    ]


def choice(
    scores: Tensor,  # (candidate,), −∞ where not allowed
    to_text: IdsToText,
    *,
    label: str,
    at: int | None = None,
    chosen: int | None = None,
    top: int = TOP_ANSWER,
) -> story.RowView:
    """`chosen` defaults to the best candidate."""
    scores = scores.detach().float().cpu()
    best = int(scores.argmax()) if chosen is None else chosen
    return story.RowView(
        label=label,
        candidates=candidates(scores, to_text, top=top, chosen=best),
        logsumexp=round_float32(float(scores.logsumexp(0))),
        count=int(torch.isfinite(scores).sum()),
        at=at,
        chosen=best,
    )


def labels(given: Sequence[str]) -> IdsToText:
    return lambda ids: [given[index] for index in ids]


def vocabulary(tokenizer: Tokenizer | None) -> IdsToText:
    return partial(token_strings, tokenizer)


def next_tokens(
    output: Output, read: story.Sequence, targets: Sequence[int | None], tokenizer: Tokenizer | None
) -> list[story.RowView]:
    """The next-token candidates at each position; `targets` are the ids that follow, None where there is none yet."""
    assert output.logits is not None
    last = len(targets) - 1
    return [
        choice(
            scores,
            vocabulary(tokenizer),
            label=read.tokens[at].text,
            at=at,
            chosen=targets[at],
            top=TOP_ANSWER if at == last else TOP_OTHERS,
        )
        for at, scores in enumerate(output.logits[0])
    ]
