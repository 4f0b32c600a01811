"""What is chosen for a model from scratch: small data is repeated, large data gets the larger model if time allows."""

import pytest

from headway.data.row import Row
from headway.tasks import text_settings
from headway.tasks.classify import Classify
from headway.tasks.text_settings import Amount, choose_for_examples, choose_for_labels


@pytest.mark.parametrize(("examples", "epochs"), [(100, 60), (2000, 25), (5000, None), (100_000, None)])
def test_small_data_is_repeated(examples: int, epochs: int | None) -> None:
    amount = Amount(examples, 40 * examples)
    choice = choose_for_examples(amount, recipe="modern", given={})
    assert choice.settings.get("train.epochs") == epochs and bool(choice.why) == (epochs is not None)
    for given in ({"train.steps": 5}, {"train.epochs": 2}):
        assert not choose_for_examples(amount, recipe="modern", given=given).settings
    assert not choose_for_examples(amount, recipe="finetune", given={}).settings


def test_large_data_gets_the_larger_model_if_there_is_time() -> None:
    large, small = Amount(100_000, 4_000_000), Amount(10_000, 400_000)
    weeks, moment = {"train.minutes": 50_000.0}, {"train.minutes": 0.01}
    chosen = choose_for_examples(large, recipe="modern", given=weeks)
    assert chosen.settings["model.width"] == 256 and "100,000 examples" in chosen.why["size"]
    assert not choose_for_examples(large, recipe="modern", given=moment).settings
    assert not choose_for_examples(small, recipe="modern", given=weeks).settings
    assert not choose_for_examples(large, recipe="modern", given={**weeks, "model.width": 64}).settings


def rows(count: int) -> list[Row]:
    return [Row({"text": f"text {number}", "label": "ab"[number % 2]}, f"mine.tsv:{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("given", "settings", "words"),
    [
        ({}, {"task.ngrams", "task.convolutions", "task.vocab"}, ("pairs and conv", "30 texts")),
        ({"task.ngrams": 0}, {"task.ngrams", "task.convolutions", "task.vocab"}, ("convolutions over tokens, next",)),
        ({"task.ngrams": 0, "task.convolutions": 0}, set(), ()),
        ({"task.architecture": "gru"}, set(), ()),
    ],
)
def test_few_texts_get_parts_beside_the_transformer(given, settings, words) -> None:
    choice = choose_for_labels(Classify.scan(rows(30)), recipe="modern", given={"train.steps": 5, **given})
    assert set(choice.settings) == settings
    said = " ".join(choice.why.values())
    assert all(word in said for word in words) and bool(said) == bool(words)


def test_large_data_and_other_recipes_have_none(monkeypatch) -> None:
    monkeypatch.setattr(text_settings, "LARGE", 30)
    assert not choose_for_labels(Classify.scan(rows(30)), recipe="modern", given={"train.steps": 5}).settings
    assert choose_for_labels(Classify.scan(rows(28)), recipe="modern", given={"train.steps": 5}).settings
    for recipe in ("published", "classic", "finetune"):
        assert not choose_for_labels(Classify.scan(rows(28)), recipe=recipe, given={"train.steps": 5}).settings
