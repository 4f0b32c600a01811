"""Settings of language models from scratch (`generate`, `chat`, `fill`) with a time limit: how large a model is, how
much it is regularised and how long its context is. Batch, rates and evaluations follow in `jobs/budget.py`, once there
is a model to time.

The reference is tiny Shakespeare (dev/LOG.md): in 29 minutes on two cores a model of 4.7 million parameters sees
the text five times by characters, with dropout 0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headway.data.facts import Facts
from headway.data.row import Row
from headway.models.recipes import SIZES, Size
from headway.tasks.task import Choice
from headway.tasks.text_settings import TOKEN, dropout_line, largest_suited, plans_by_time, seconds_per_token

UPDATES = 300  # of a run, at least, if the smallest batches give as many
PER_PARAMETER = 0.4  # tokens that a larger model sees for each of its parameters, at least …
ENOUGH_EPOCHS = 6  # … unless it sees the text so often: then there is more time than text
PER_TOKEN = 30  # parameters of a model for each token of the data, at most: a larger one overfits
ONCE, SOME, OFTEN = 1.5, 8.0, 0.2  # epochs without dropout, epochs with that of the size, and the dropout beyond
WEIGHT_DECAY = 0.1  # of data that is seen more than once
LEAST_CONTEXT, BATCH = 64, 16  # the context is shorter rather than a batch has fewer windows
SHORT = 2_000_000  # characters of a text that is read by characters: most subwords of it would be rare …
ALPHABET = 500  # … if it has no more different ones
TINY = SIZES["tiny"]
CHARACTERS = 100  # a vocabulary of characters, about


def text_of(row: Row) -> Iterable[str]:
    return [row.fields["text"]]


def choose_for_time(
    facts: Facts, texts: Callable[[Row], Iterable[str]], *, vocab: int, context: int | None, recipe: str,
    given: Mapping[str, Any],
) -> Choice:  # fmt: skip
    """For the texts of the rows; nothing without a time limit, and nothing for a model that is trained already.
    `context`: of a decoder, whose context may be shorter and whose tokens may be characters."""
    if not plans_by_time(recipe, given):
        return Choice()
    characters, alphabet = facts.total(lambda row: sum(map(len, texts(row)))), set[str]()
    for text in (text for row in facts.rows for text in texts(row)):
        if len(alphabet) <= ALPHABET:
            alphabet.update(text)
    if not characters:
        return Choice()
    settings, why = dict[str, Any](), dict[str, str]()
    kind = given.get("task.kind")
    if (
        context is not None
        and characters < SHORT
        and len(alphabet) <= ALPHABET
        and not {"task.kind", "task.vocab"} & set(given)
    ):
        kind = settings["task.kind"] = "char"
        why["vocabulary"] = f"{len(alphabet)} characters, since most subwords of so short a text are rare"
    tokens = characters / (1 if kind == "char" else TOKEN)
    vocab = CHARACTERS if kind == "char" else given.get("task.vocab", vocab)
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

    size = largest_suited(list(SIZES.values()), suits, given=given)
    epochs = seen(size) / tokens
    settings: dict[str, Any] = {f"model.{name}": value for name, value in vars(size).items()}
    shape = f"{size.layers} layers of width {size.width}"
    why = {"size": f"{shape}, which see about {_round(seen(size)):,} tokens in the time, {epochs:.2g} times the text"}
    settings["model.dropout"] = 0.0 if epochs < ONCE else size.dropout if epochs < SOME else OFTEN
    if epochs >= ONCE:
        settings["train.weight_decay"] = WEIGHT_DECAY
    why |= dropout_line(settings["model.dropout"], "the text is", often=epochs >= ONCE, given=given)
    if context is not None and "task.context" not in given:
        shorter = context
        while shorter > LEAST_CONTEXT and seen(size) < UPDATES * BATCH * shorter:
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
