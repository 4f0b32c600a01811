"""Next-token scores → sequences: one search for everything that can step: a GPT, a T5, an RNN."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch

from headway.errors import InputError
from headway.generation.beam import beam_search
from headway.generation.constraints import Grammar
from headway.generation.coverage import Coverage
from headway.generation.outputs import Hypothesis, OnToken
from headway.generation.prefill import Prefixes, Sources, start
from headway.generation.prompts import Model
from headway.generation.sample import sample
from headway.generation.settings import GenerationSettings
from headway.generation.stop_criteria import Reader
from headway.preprocess.text import Tokenizer


@torch.no_grad()
def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings | None = None,
    *,
    sources: Sources | None = None,
    tokenizer: Tokenizer | None = None,
    on_token: OnToken | None = None,
    prefixes: Prefixes | None = None,
) -> list[list[Hypothesis]]:
    """`settings.n` answers to each prompt: samples in their order, beams best first.

    An encoder-decoder takes `sources`, and prompts of its start id. A tokenizer adds the answers' text, and is needed
    for stop texts and constraints. Requests are one batch, yet each answer is what it would be alone (a sampled one:
    with its seed, which is its own of settings.seed, or settings.seed + its place). `prefixes` spare a single request
    the reading of what an earlier one began with too.
    """
    settings = settings or GenerationSettings()
    if settings.stop and tokenizer is None:
        raise InputError("settings.stop holds texts, which need a tokenizer to be found: give tokenizer=")
    if settings.constrained and tokenizer is None:
        raise InputError("a constraint is on the answer's text, which needs a tokenizer: give tokenizer=")
    if isinstance(settings.seed, tuple) and len(settings.seed) != len(prompts):
        raise InputError(f"there are {len(settings.seed)} seeds but {len(prompts)} prompts: give one for each, or one")
    if on_token is not None and settings.beams > 1:
        raise InputError("on_token needs beams = 1: a beam search knows its first token only at its end")
    if not prompts:
        return []
    settings = settings.for_prompt(max(map(len, prompts)))
    grammar = Grammar(settings, tokenizer) if settings.constrained and tokenizer is not None else None
    readers = [Reader(settings, tokenizer, grammar, prompt=prompt if sources is None else ()) for prompt in prompts]
    penalty = settings.coverage_penalty
    with Coverage(model, sources, penalty=penalty) if penalty else nullcontext() as coverage:
        batch = start(model, prompts, settings, sources=sources, prefixes=prefixes)
        if settings.beams > 1:
            found = beam_search(batch, settings, readers=readers, coverage=coverage)
        else:
            found = sample(batch, settings, readers=readers, on_token=on_token)
    if prefixes is not None and len(prompts) == 1 and batch.window is None:
        prefixes.store(model, batch.ids[0].tolist(), batch.cache)
    return found
