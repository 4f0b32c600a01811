"""generate(): the answers to a list of prompts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from headway.errors import InputError
from headway.generation.outputs import Hypothesis, OnToken, Token
from headway.generation.prefill import Prefixes
from headway.generation.request import Source, new_request
from headway.generation.session import Session
from headway.generation.settings import GenerationSettings
from headway.preprocess.text import Tokenizer

Sources = Sequence[Source] | Tensor  # one per request


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings | None = None,
    *,
    sources: Sources | None = None,
    tokenizer: Tokenizer | None = None,
    on_token: OnToken | None = None,
    prefixes: Prefixes | None = None,
    terms: Sequence[tuple[tuple[int, ...], ...]] | None = None,
) -> list[list[Hypothesis]]:
    """`settings.n` answers to each prompt: samples in their order, beams best first.

    A model that reads a source takes `sources`, and prompts of its start id. A tokenizer adds the answers' text, and
    is required for stop strings and constraints. The prompts share one session, yet each answer is what it is alone
    (a sampled one: with its own seed, which is its own of settings.seed, or settings.seed + its index). `prefixes`
    spares a single request the prefill of the tokens that an earlier one began with. `terms`: for each prompt, in place
    of settings.terms.
    """
    settings = settings or GenerationSettings()
    if isinstance(settings.seed, tuple) and len(settings.seed) != len(prompts):
        raise InputError(f"there are {len(settings.seed)} seeds but {len(prompts)} prompts: give one for each, or one")
    if on_token is not None and settings.beams > 1:
        raise InputError("on_token needs beams = 1: a beam search decides on its first token only at its end")
    if sources is not None and len(sources) != len(prompts):
        raise InputError(
            f"there are {len(sources)} sources but {len(prompts)} prompts: give one prompt for each source"
        )
    first = secrets.randbits(32) if settings.seed is None else settings.seed
    requests = [
        new_request(
            i,
            model,
            prompt,
            settings if terms is None else replace(settings, terms=terms[i]),
            source=None if sources is None else sources[i],
            tokenizer=tokenizer,
            seed=first[i] if isinstance(first, tuple) else first + i,
            name=f"prompt {i}",
            source_name=f"source {i}",
        )
        for i, prompt in enumerate(prompts)
    ]
    if not requests:
        return []
    session = Session(
        model, tokenizer=tokenizer, prefixes=prefixes if len(requests) == 1 else None, prefill_tokens=None
    )
    for request in requests:
        session.add_request(request)
    found: list[dict[int, Hypothesis]] = [{} for _ in requests]
    while not session.idle:
        for event in session.step():
            if event.error is not None:
                raise event.error
            if on_token is not None and event.token is not None and event.logprob is not None:
                on_token(Token(event.id, event.sample, event.token, event.logprob, event.text, event.finished_by))
            if event.hypothesis is not None:
                found[event.id][event.sample] = event.hypothesis
    return [[answers[sample] for sample in sorted(answers)] for answers in found]
