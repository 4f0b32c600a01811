"""Settings of a `translate` or `summarize` from scratch with a time limit: how large the model is and how much it is
regularised. Evaluations follow in `jobs/budget.py`.

The reference is Multi30k (dev/LOG.md), 29,000 pairs in 43 minutes on two cores: three layers of width 192 on each
side, which see them 13 times, translate no better than two of width 128, which see them 24 times; on a faster CPU they
see them 30 times and the small model 60, and it is at least as good since it learns both directions at first. Dropout
of larger models: that of Wu et al. 2021 on this data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.data.facts import Facts
from headway.data.row import Row
from headway.models.recipes import SIZES, Size
from headway.tasks import language_settings as language
from headway.tasks.task import Choice
from headway.tasks.text_settings import TOKEN, dropout_line, largest_suited, plans_by_time, seconds_per_token

LADDER = (  # of each stack
    Size(width=128, layers=2, heads=4),
    Size(width=192, layers=3, heads=6),
    Size(width=256, layers=4, heads=4),
    Size(width=512, layers=6, heads=8),
)
ENOUGH_EPOCHS = 40  # that a larger model sees the pairs at least
PER_TOKEN = 5  # parameters of a larger model for each token of the pairs, at most
ONCE, SOME = 2.0, 8.0  # epochs without dropout, epochs with that of the size …
OFTEN, LARGER = 0.15, 0.3  # … and the dropout beyond, of the smallest and of a larger model, which overfits more
AVERAGE = 0.997  # decay of the averaged weights, over some hundred updates
TWO_WAYS = 1 / 5  # of the epochs, in which pairs that are seen OFTEN_ENOUGH are translated in both directions
OFTEN_ENOUGH = 16.0


def pair_length(row: Row) -> int:
    return len(row.fields["source"]) + len(row.fields["target"])


def choose_for_pairs(facts: Facts, *, recipe: str, given: Mapping[str, Any], two_ways: bool = True) -> Choice:
    """Nothing without a time limit and for a model that is trained already: then the pairs are not read."""
    if not plans_by_time(recipe, given):
        return Choice()
    characters = facts.total(pair_length)
    if not characters:
        return Choice()
    vocab = given.get("task.vocab") or vocabulary(characters)
    pace, tokens = seconds_per_token(SIZES["tiny"]), characters / TOKEN
    two_ways = two_ways and recipe != "classic" and not given.get("task.prefix")
    choice = choose_at_pace(pace, tokens, vocab=vocab, given=given, two_ways=two_ways)
    plain = ("train.average", "train.decay") if recipe == "classic" else ()  # that recipe has neither
    return Choice({name: value for name, value in choice.settings.items() if name not in plain}, choice.why)


def vocabulary(characters: int) -> int:
    """Tokens for so many characters of sources and targets."""
    return max(300, min(8000, characters // 600))


def choose_at_pace(
    pace: float, tokens: float, *, vocab: int, given: Mapping[str, Any], two_ways: bool = True
) -> Choice:
    """As `choose_for_pairs`, for so many tokens of sources and targets, where the blocks of the smallest size of one
    stack take `pace` seconds for a token in training."""
    seconds = given["train.minutes"] * 60

    def epochs(size: Size) -> float:
        blocks = language.parameters(SIZES["tiny"], vocab=0)
        return seconds / (pace * parameters(size, vocab=vocab) / blocks) / tokens

    def suits(size: Size) -> bool:
        return epochs(size) >= ENOUGH_EPOCHS and 2 * parameters(size, vocab=vocab) <= PER_TOKEN * tokens

    size = largest_suited(LADDER, suits, given=given)
    often = epochs(size)
    most = OFTEN if size.width <= LADDER[0].width else LARGER
    dropout = 0.0 if often < ONCE else size.dropout if often < SOME else most
    settings = {f"model.{name}": value for name, value in vars(size).items()} | {"model.dropout": dropout}
    settings |= {"train.average": AVERAGE, "train.decay": 1.0}
    why = {"size": f"2 × {size.layers} layers of width {size.width}, which see the pairs about {often:.2g} times"}
    if two_ways and often >= OFTEN_ENOUGH and "task.two_way_epochs" not in given:
        count = settings["task.two_way_epochs"] = round(TWO_WAYS * often)
        why["directions"] = f"half of the pairs are translated from target to source in the first {count} epochs"
    return Choice(settings, why | dropout_line(dropout, "the pairs are", often=often >= ONCE, given=given))


def parameters(size: Size, *, vocab: int) -> float:
    """That a token takes part in, on average over sources and targets: a block of the encoder, or one of the decoder,
    which also attends to the source, and the output layer."""
    return (12 + 16) / 2 * size.layers * size.width**2 + vocab * size.width / 2
