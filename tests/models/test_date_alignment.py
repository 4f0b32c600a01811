"""Bahdanau's attention learns where to look: on dates, each digit of the output attends to its own one in the input."""

import random
from datetime import date

import pytest
import torch

from headway.bundle import Bundle
from headway.data.builtin.dates import random_day
from headway.data.row import Row
from headway.lineage.compare_measures import alignment
from headway.models.build import build
from headway.models.recipes import Size
from headway.preprocess.text import Tokenizer
from headway.tasks.translate import Translate

STEPS, BATCH, WIDTH, RATE = 120, 24, 64, 0.003
# Style → place in the source of each character of YYYY-MM-DD; None: of a hyphen, which stands for no digit.
PLACES = {
    "year first": [0, 1, 2, 3, None, 5, 6, None, 8, 9],  # the diagonal
    "day first": [6, 7, 8, 9, None, 3, 4, None, 0, 1],  # the diagonal in three parts, the last first
}


def row(day: date, style: str) -> Row:
    source = f"{day:%Y/%m/%d}" if style == "year first" else f"{day:%d.%m.%Y}"
    return Row({"source": source, "target": day.isoformat()}, "a test")


def batch_of(chance: random.Random) -> list[Row]:
    return [row(random_day(chance), chance.choice(list(PLACES))) for _ in range(BATCH)]


def share_in_place(bundle: Bundle, style: str) -> float:
    """Of the digits of other dates, how many attend most to their own digit in the source."""
    chance, found = random.Random(1), list[bool]()
    for _ in range(20):
        weights = torch.tensor(alignment(bundle, bundle.find_task(), row(random_day(chance), style))["weights"])
        most = weights.argmax(-1).tolist()
        found += [at == place for at, place in zip(most, PLACES[style], strict=False) if place is not None]
    return sum(found) / len(found)


def untrained_translator() -> Bundle:
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(["0123456789-./"], kind="bpe", size=259)  # a token a character
    assert tokenizer.bos_id is not None
    task = Translate(tokenizer, start_id=tokenizer.bos_id, architecture="gru-bahdanau", label_smoothing=0.0)
    config = task.config(Size(width=WIDTH, layers=1, heads=2, dropout=0.0), "modern")
    return Bundle(build(config), "headway", task=task)


@pytest.fixture(scope="module")
def bundles() -> tuple[Bundle, Bundle]:
    """An untrained model, and the same one trained."""
    untrained, trained = untrained_translator(), untrained_translator()
    task, model, chance = trained.find_task(), trained.model.train(), random.Random(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        examples = [example for each in batch_of(chance) for example in task.examples(each)]
        batch = task.collate(examples, seeds=[()] * BATCH, where=[""] * BATCH)
        optimiser.zero_grad()
        loss = task.loss(model, batch).total / batch.count
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return untrained, trained


@pytest.mark.parametrize("style", PLACES)
def test_each_digit_attends_to_its_own(bundles: tuple[Bundle, Bundle], style: str) -> None:
    untrained, trained = bundles
    assert share_in_place(trained, style) > 0.75  # 0.89
    assert share_in_place(untrained, style) < 0.3  # control: 0.13, about chance
