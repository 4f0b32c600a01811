"""What the tasks that generate text share: settings from options, and the form of the predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import nn

from headway.errors import ConfigError, did_you_mean
from headway.generation import GenerationSettings, Hypothesis, Token, tokens_left
from headway.generation import generate as search
from headway.generation.prefill import Prefixes
from headway.generation.search import Sources
from headway.preprocess.text import Tokenizer

CALL_OPTIONS = ("on_text", "details", "prefixes")  # options of a call that are not settings
SETTINGS = {f.name for f in dataclasses.fields(GenerationSettings)}


def settings_from(options: dict[str, Any], tokenizer: Tokenizer) -> GenerationSettings:
    """Settings from the options of a call, where `prefix` may be a text."""
    for name in options:
        if name not in SETTINGS:
            hint = did_you_mean(name, SETTINGS, otherwise=f"known: {', '.join(sorted(SETTINGS))}")
            raise ConfigError(f"generation has no option {name!r}; {hint}")
    return GenerationSettings(**_with_prefix_ids(options, tokenizer))


def _with_prefix_ids(options: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    prefix = options.get("prefix")
    more = {"prefix": tokenizer.encode(prefix, special=False)} if isinstance(prefix, str) else {}
    return {**options, **more}


def default_length(
    most: int,
    prompts: Sequence[Sequence[int]],
    options: Mapping[str, Any],
    *,
    context: int | None,
    tokenizer: Tokenizer,
) -> int:
    """`max_new_tokens` where it is not given: `most`, or what the context leaves after the longest prompt and the
    forced prefix of `options`."""
    if context is None:
        return most
    prefix = len(_with_prefix_ids(options, tokenizer).get("prefix") or ())
    return max(1, min(most, tokens_left(context, prefix + max(map(len, prompts), default=0))))


def generate_texts(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings,
    *,
    tokenizer: Tokenizer,
    sources: Sources | None = None,
    on_text: Any = None,
    details: bool = False,
    prefixes: Prefixes | None = None,
    terms: Sequence[tuple[tuple[int, ...], ...]] | None = None,
) -> list[Any]:
    """A text for each prompt, or a list of texts if `settings.n` is above 1; with `details`, dicts (see `details_of`).
    `on_text` receives the first text of the first prompt in pieces, or as a whole under beam search; `prefixes` caches
    the state of a single prompt."""

    def receive(token: Token) -> None:
        if token.request == 0 and token.sample == 0:
            on_text(token.text)

    on_token = receive if on_text is not None and settings.beams == 1 else None
    found = search(
        cast(Any, model),
        prompts,
        settings,
        sources=sources,
        tokenizer=tokenizer,
        on_token=on_token,
        prefixes=prefixes,
        terms=terms,
    )
    if terms is not None:  # a term that comes first has the space before it
        found = [[dataclasses.replace(each, text=(each.text or "").lstrip()) for each in answers] for answers in found]
    if on_text is not None and on_token is None:
        on_text(found[0][0].text)
    texts = [[details_of(each, tokenizer) if details else each.text for each in answers] for answers in found]
    return texts if settings.n > 1 else [answers[0] for answers in texts]


def details_of(hypothesis: Hypothesis, tokenizer: Tokenizer) -> dict[str, Any]:
    """A text with how it ended, its score, whether it matches the constraint, and its tokens under `logprobs`."""
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


def empty_answer(settings: GenerationSettings, *, details: bool) -> Any:
    """The answer to an input of a task that has nothing to answer, in the form of `generate_texts`."""
    one = {"text": "", "finished_by": "eos", "score": 0.0} if details else ""
    return [one] * settings.n if settings.n > 1 else one


def search_name(settings: GenerationSettings) -> str:
    if settings.beams > 1:
        return f"beam search, {settings.beams} beams"
    return f"sampling, temperature {settings.temperature:g}" if settings.temperature else "greedy search"
