"""What the tasks that write have in common: how they are told to, and how they answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from headway.errors import ConfigError
from headway.generation import GenerationSettings, Hypothesis, Token
from headway.generation import generate as search
from headway.generation.prefill import Prefixes
from headway.generation.search import Sources
from headway.preprocess.text import Tokenizer

APART = ("on_text", "details", "prefixes")  # options that are not settings
SETTINGS = {f.name for f in dataclasses.fields(GenerationSettings)}


def settings_of(options: dict[str, Any], tokenizer: Tokenizer) -> GenerationSettings:
    """From options as a person gives them: `prefix` may be a text."""
    unknown = [name for name in options if name not in SETTINGS]
    if unknown:
        raise ConfigError(f"generation has no option {unknown[0]!r}; known: {', '.join(sorted(SETTINGS))}")
    prefix = options.get("prefix")
    if isinstance(prefix, str):
        options = {**options, "prefix": tokenizer.encode(prefix, special=False)}
    return GenerationSettings(**options)


def write(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings,
    *,
    tokenizer: Tokenizer,
    sources: Sources | None = None,
    on_text: Any = None,
    details: bool = False,
    prefixes: Prefixes | None = None,
) -> list[Any]:
    """A text for each prompt, or a list of them when several are asked for; with `details`, what is known of each.
    `on_text` hears the first answer to the first prompt as it is written, or as a whole when beams choose it;
    `prefixes` remember what a single prompt began with."""

    def hear(token: Token) -> None:
        if token.request == 0 and token.sample == 0:
            on_text(token.text)

    heard = hear if on_text is not None and settings.beams == 1 else None
    found = search(
        cast(Any, model),
        prompts,
        settings,
        sources=sources,
        tokenizer=tokenizer,
        on_token=heard,
        prefixes=prefixes,
    )
    if on_text is not None and heard is None:
        on_text(found[0][0].text)
    told = [[told_of(each, tokenizer) if details else each.text for each in answers] for answers in found]
    return told if settings.n > 1 else [answers[0] for answers in told]


def told_of(hypothesis: Hypothesis, tokenizer: Tokenizer) -> dict[str, Any]:
    """An answer with how it ended, its score, whether it fits a constraint, and its tokens when those are asked for."""
    out: dict[str, Any] = {
        "text": hypothesis.text,
        "finished_by": hypothesis.finished_by,
        "score": round(hypothesis.score, 6),
    }
    if hypothesis.fits is not None:
        out["fits"] = hypothesis.fits
    if hypothesis.logprobs is not None:
        tokens = zip(hypothesis.ids, tokenizer.tokens(hypothesis.ids), hypothesis.logprobs, strict=True)
        out["tokens"] = [{"id": i, "text": text, "logprob": round(logprob, 6)} for i, text, logprob in tokens]
    return out
