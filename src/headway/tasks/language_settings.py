"""Settings of language models from scratch (`generate`, `chat`, `fill`) with a time limit: how large a model is, how
much it is regularised and how long its context is. Batch, rates and evaluations follow in `jobs/budget.py`, once there
is a model to time.

The reference is tiny Shakespeare (docs/results.md): in 29 minutes on two cores a model of 4.7 million parameters sees
the text four times by characters, with dropout 0.1, and about 14 times by 2,000 subwords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from headway.models.recipes import SIZES, Size
from headway.tasks.task import Choice, Task
from headway.tasks.text_settings import TOKEN, seconds_per_token

UPDATES = 300  # of a run, at least, if the smallest batches give as many
PER_PARAMETER = 0.75  # tokens that a larger model sees for each of its parameters, at least …
ENOUGH_EPOCHS = 6  # … unless it sees the text so often: then there is more time than text
PER_TOKEN = 30  # parameters of a model for each token of the data, at most: a larger one learns them by heart
ONCE, SOME, OFTEN = 1.5, 8.0, 0.2  # epochs without dropout, epochs with that of the size, and the dropout beyond
WEIGHT_DECAY = 0.1  # of data that is seen more than once
LEAST_CONTEXT = 64
SUBWORD = 500  # characters of the text for each token of a vocabulary of subwords, at least
LEAST_VOCAB = 500
TINY = SIZES["tiny"]
CHARACTERS = 100  # a vocabulary of characters, about


def choose_for_time(
    texts: Callable[[], Iterable[str]], *, vocab: int, context: int | None, recipe: str, given: Mapping[str, Any]
) -> Choice:
    """For these texts; nothing without a time limit, and nothing for a model that is trained already: then they are not
    read. `context`: of a decoder, whose context and vocabulary may be smaller."""
    if recipe == "finetune" or not given.get("train.minutes"):
        return Choice()
    if given.get("task.architecture", "transformer") != "transformer":
        return Choice()
    if not (characters := sum(map(len, texts()))):
        return Choice()
    by_character = given.get("task.kind") == "char"
    tokens = characters / (1 if by_character else TOKEN)
    settings, why = dict[str, Any](), dict[str, str]()
    if by_character or "task.vocab" in given:
        vocab = CHARACTERS if by_character else given["task.vocab"]
    elif context is not None and (fewer := max(LEAST_VOCAB, characters // SUBWORD)) < vocab:
        vocab = settings["task.vocab"] = fewer
        why["vocabulary"] = f"{vocab:,} tokens, as the text is short: each should occur often"
    choice = choose_at_pace(seconds_per_token(TINY), tokens, vocab=vocab, context=context, given=given)
    settings |= choice.settings
    if recipe == "classic":  # has none
        settings.pop("train.weight_decay", None)
    return Choice(settings, {**why, **choice.why})


def choose_at_pace(pace: float, tokens: float, *, vocab: int, context: int | None, given: Mapping[str, Any]) -> Choice:
    """As `choose_for_time`, where the blocks of the smallest size take `pace` seconds for a token in training."""
    seconds = given["train.minutes"] * 60

    def seen(size: Size) -> float:
        return seconds / (pace * parameters(size, vocab=vocab) / parameters(TINY, vocab=0))

    def suits(size: Size) -> bool:
        count = parameters(size, vocab=vocab)
        enough = seen(size) >= PER_PARAMETER * count or seen(size) >= ENOUGH_EPOCHS * tokens
        return enough and PER_TOKEN * tokens >= count

    named = {each.name: given[f"model.{each.name}"] for each in fields(Size) if f"model.{each.name}" in given}
    size = Size(**{**vars(TINY), **named}) if named else [TINY, *filter(suits, list(SIZES.values())[1:])][-1]
    epochs = seen(size) / tokens
    settings: dict[str, Any] = {f"model.{name}": value for name, value in vars(size).items()}
    shape = f"{size.layers} layers of width {size.width}"
    why = {"size": f"{shape}, which see about {_round(seen(size)):,} tokens in the time, {epochs:.2g} times the text"}
    settings["model.dropout"] = 0.0 if epochs < ONCE else size.dropout if epochs < SOME else OFTEN
    if epochs >= ONCE:
        settings["train.weight_decay"] = WEIGHT_DECAY
    why["dropout"] = f"{given.get('model.dropout', settings['model.dropout']):g}, as the text is seen so often"
    if context is not None and "task.context" not in given:
        shorter = context
        while shorter > LEAST_CONTEXT and seen(size) < UPDATES * Task.least_batch * shorter:
            shorter //= 2
        if shorter < context:
            settings["task.context"] = shorter
            why["context"] = f"{shorter} tokens, for more updates in the time"
    return Choice(settings, why)


def parameters(size: Size, *, vocab: int) -> int:
    """Of the blocks and the output layer, which are what a step takes its time for."""
    return 12 * size.layers * size.width**2 + vocab * size.width


def _round(count: float) -> int:
    """To two digits."""
    return int(float(f"{count:.2g}"))
