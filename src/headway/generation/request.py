"""One request of a session, and the checks on it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headway.errors import InputError
from headway.generation.constraints import Constraint, Grammar, grammar_of
from headway.generation.filters import Filter, StatefulFilter, States, score_filters
from headway.generation.forced_terms import ForcedTerms
from headway.generation.sampling_filters import sampling_filters
from headway.generation.settings import GenerationSettings, tokens_left
from headway.generation.stop_criteria import StopCriteria
from headway.layers.cache import Encoded
from headway.preprocess.text import Tokenizer

# Token ids; or another encoder input without the batch dimension, its length first; or one row that `encode` returned
Source = Sequence[int] | Tensor | Encoded


@dataclass(eq=False)
class Request:
    id: int
    ids: list[int]  # prompt and forced prefix
    prompt: int  # tokens of the prompt
    settings: GenerationSettings
    source: Source | None
    filters: tuple[Filter, ...]  # before every choice
    sampling: tuple[Filter, ...] | None  # before sampling; None: greedy or beams
    criteria: StopCriteria
    grammar: Grammar | None
    terms: ForcedTerms | None
    seed: int
    window: int | None  # tokens that a row may have before it is shortened (overflow "window")
    unfinished: int = 0  # answers
    abandoned: bool = (
        False  # set by any thread: the pass that reads the prompt ends early; `Session.cancel` must follow
    )

    @property
    def capacity(self) -> int:
        """Most tokens that a row of the cache will hold."""
        most = len(self.ids) + self.settings.max_new_tokens - 1  # the last token is never an input
        return most if self.window is None else min(most, self.window)

    def new_states(self) -> States:
        return {rule: rule.new_state() for rule in self.filters if isinstance(rule, StatefulFilter)}

    def fits(self, text: str | None) -> bool | None:
        return None if self.grammar is None or text is None else self.grammar.matches(text)


def new_request(
    id: int,
    model: Any,
    prompt: Sequence[int],
    settings: GenerationSettings,
    *,
    source: Source | None = None,
    filters: Sequence[Filter] = (),
    tokenizer: Tokenizer | None = None,
    seed: int | None = None,
    name: str = "prompt",
    source_name: str = "source",
) -> Request:
    """Checks a request and collects what its rows share. `name` and `source_name` are used in error messages."""
    settings = settings.for_prompt(len(prompt) + len(settings.prefix))
    check(model, prompt, settings, source=source, tokenizer=tokenizer, name=name, source_name=source_name)
    criteria = StopCriteria(settings, tokenizer, prompt=prompt if source is None else ())
    grammar = grammar_of(settings, tokenizer) if settings.constrained and tokenizer is not None else None
    constraint = () if grammar is None else (Constraint(grammar, begins_text=not criteria.before),)
    terms = None
    if settings.terms and tokenizer is not None:
        terms = ForcedTerms(settings.terms, settings.end_ids, tokenizer)
    return Request(
        id=id,
        ids=[*prompt, *settings.prefix],
        prompt=len(prompt),
        settings=settings,
        source=source,
        filters=(*score_filters(settings), *filters, *constraint, *(() if terms is None else (terms,))),
        sampling=sampling_filters(settings) if settings.temperature > 0 else None,
        criteria=criteria,
        grammar=grammar,
        terms=terms,
        seed=secrets.randbits(32) if seed is None else seed,
        window=model.max_context if settings.overflow == "window" else None,
    )


# ---------------------------------------------------------------------------------------- checks


def check(
    model: Any,
    prompt: Sequence[int],
    settings: GenerationSettings,
    *,
    source: Source | None,
    tokenizer: Tokenizer | None,
    name: str,
    source_name: str,
) -> None:
    if not model.generates:
        raise InputError(f"{type(model).__name__} has no language head, so it does not generate")
    if model.training:
        raise InputError("the model is in training mode, where dropout changes the answers: call model.eval() first")
    if settings.stop and tokenizer is None:
        raise InputError("settings.stop holds strings, which need a tokenizer: pass tokenizer=")
    if settings.terms and tokenizer is None:
        raise InputError("settings.terms are words, which need a tokenizer: pass tokenizer=")
    if settings.constrained and tokenizer is None:
        raise InputError("a constraint applies to the answer's text and needs a tokenizer: pass tokenizer=")
    check_source(model, source, name=source_name)
    if not prompt:
        raise InputError(f"{name} is empty: it needs at least one token")
    check_ids(name, prompt, vocab=model.vocab_size)
    check_ids("settings.prefix", settings.prefix, vocab=model.vocab_size)
    check_ids("settings.terms", [token for term in settings.terms for token in term], vocab=model.vocab_size)
    check_ids("settings.forced_eos_ids", settings.forced_eos_ids, vocab=model.vocab_size)
    check_ids("settings.forced_ids", [token for _, token in settings.forced_ids], vocab=model.vocab_size)
    if settings.forced_bos_id is not None:
        check_ids("settings.forced_bos_id", (settings.forced_bos_id,), vocab=model.vocab_size)
    if settings.coverage_penalty and source is None:
        raise InputError(f"coverage_penalty needs a model with a source; {type(model).__name__} has none")
    length, context = len(prompt) + len(settings.prefix), model.max_context
    left = None if context is None else tokens_left(context, length)
    if left is not None and settings.max_new_tokens > left and settings.overflow == "error":
        raise InputError(
            f"{name} has {length} tokens, and max_new_tokens is {settings.max_new_tokens}, but the model's context is "
            f"{context} tokens, which leaves {left}; shorten one of them, or drop the oldest tokens (overflow 'window')"
        )


def check_source(model: Any, source: Source | None, *, name: str) -> None:
    if source is None:
        if model.reads_source:
            raise InputError(f"{type(model).__name__} needs a source for each prompt: give sources")
        return
    if not model.reads_source:
        raise InputError(f"{type(model).__name__} continues a prompt and takes no source: leave sources out")
    if isinstance(source, Encoded):
        return
    if not len(source):
        raise InputError(f"{name} is empty: it needs at least one token")
    if not isinstance(source, Tensor):
        check_ids(name, source, vocab=model.source_vocab_size)
    if model.max_length is not None and len(source) > model.max_length:
        unit = "tokens" if model.inputs == "text" else "frames"
        raise InputError(f"{name} has {len(source)} {unit}, but the model reads at most {model.max_length}")


def check_ids(name: str, ids: Sequence[int], *, vocab: int) -> None:
    wrong = next((token for token in ids if not 0 <= token < vocab), None)
    if wrong is not None:
        raise InputError(f"{name} contains id {wrong}, which is not in the model's vocabulary of {vocab}")
