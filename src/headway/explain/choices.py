"""Scores as a choice: the candidates a reader can compare, and what all of them together weigh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from headway.explain import story
from headway.explain.token_text import names
from headway.models.outputs import Output
from headway.preprocess.text import Tokenizer

SHOWN = 50  # of a large vocabulary, for the choice that is the answer
SKETCHED = 10  # for each of the others

Names = Callable[[Sequence[int]], Sequence[str]]


def short(value: float) -> float:
    """All that float32 knows of a number, and no more digits than that."""
    return float(f"{value:.8g}")


def candidates(scores: Tensor, name: Names, *, top: int = SHOWN, chosen: int | None = None) -> list[story.Candidate]:
    """Best first: all of them when few, else the best; and the chosen one in any case. −∞ is no candidate."""
    possible = int(torch.isfinite(scores).sum())
    few = len(scores) <= SHOWN
    found = scores.topk(min(possible, len(scores) if few else top)).indices.tolist()
    if chosen is not None and chosen not in found:
        found.append(chosen)
    return [
        story.Candidate(text, index, short(float(scores[index])))
        for text, index in zip(name(found), found, strict=True)
    ]


def choice(
    scores: Tensor,  # (candidate,), −∞ where it may not be chosen
    name: Names,
    *,
    label: str,
    at: int | None = None,
    chosen: int | None = None,
    top: int = SHOWN,
) -> story.Row:
    """Unless told which is chosen, the best is."""
    scores = scores.detach().float().cpu()
    best = int(scores.argmax()) if chosen is None else chosen
    return story.Row(
        label=label,
        candidates=candidates(scores, name, top=top, chosen=best),
        logsumexp=short(float(scores.logsumexp(0))),
        count=int(torch.isfinite(scores).sum()),
        at=at,
        chosen=best,
    )


def labels(given: Sequence[str]) -> Names:
    return lambda ids: [given[index] for index in ids]


def vocabulary(tokenizer: Tokenizer | None) -> Names:
    return partial(names, tokenizer)


def next_tokens(
    output: Output, read: story.Sequence, wanted: Sequence[int | None], tokenizer: Tokenizer | None
) -> list[story.Row]:
    """What comes after each token that was read; `wanted` is what did come, None where it is still open."""
    assert output.logits is not None
    last = len(wanted) - 1
    return [
        choice(
            scores,
            vocabulary(tokenizer),
            label=read.tokens[at].text,
            at=at,
            chosen=wanted[at],
            top=SHOWN if at == last else SKETCHED,
        )
        for at, scores in enumerate(output.logits[0])
    ]
