"""What is chosen for a translation from scratch with a time limit: size, dropout and averaged weights."""

from typing import Any

import pytest

from headway.data.row import Row
from headway.tasks.translate import Translate
from headway.tasks.translation_settings import choose_at_pace, choose_for_pairs, vocabulary

PACE = 95e-6  # seconds for a token of the smallest model of one stack, about that of two cores
MULTI30K = 4_000_000  # characters of its training pairs


def chosen(characters: int, minutes: float, **given: Any) -> dict[str, Any]:
    vocab = vocabulary(characters)
    return dict(
        choose_at_pace(PACE, characters / 4, vocab=vocab, given={"train.minutes": minutes, **given}).settings
    )  # fmt: skip


def test_multi30k_in_43_minutes() -> None:
    found = chosen(MULTI30K, 43)
    assert (found["model.width"], found["model.layers"], found["model.dropout"]) == (128, 2, 0.15)
    assert found["train.average"] == 0.997 and found["train.decay"] == 1.0


def test_pairs_that_are_seen_often_are_translated_both_ways_at_first() -> None:
    assert chosen(MULTI30K, 43)["task.two_way_epochs"] == 5
    assert "task.two_way_epochs" not in chosen(MULTI30K, 20)
    assert "task.two_way_epochs" not in chosen(MULTI30K, 43, **{"task.two_way_epochs": 0})


def test_more_time_gets_a_larger_model_where_there_are_pairs_enough() -> None:
    widths = [chosen(10 * MULTI30K, minutes)["model.width"] for minutes in (10, 430, 1000, 3000, 30000)]
    assert widths == sorted(widths) and widths[0] == 128 and widths[-1] == 512
    assert chosen(100 * MULTI30K, 43)["model.width"] == 128
    assert chosen(MULTI30K, 30000)["model.width"] == 192  # a larger one would learn the pairs by heart
    assert chosen(20_000, 1000)["model.width"] == 128


def test_pairs_that_are_seen_often_get_dropout() -> None:
    found = [chosen(MULTI30K, minutes) for minutes in (1, 5, 43, 400)]
    assert [each["model.dropout"] for each in found] == [0.0, 0.1, 0.15, 0.3]
    assert [each["model.width"] for each in found] == [128, 128, 128, 192]


def test_a_given_dropout_does_not_change_the_size() -> None:
    sizes = [chosen(10 * MULTI30K, 3000, **given)["model.width"] for given in ({}, {"model.dropout": 0.3})]
    assert sizes[0] == sizes[1] > 128


def test_a_given_size_is_kept() -> None:
    found = chosen(MULTI30K, 43, **{"model.width": 64, "model.heads": 2})
    assert (found["model.width"], found["model.heads"], found["model.layers"]) == (64, 2, 2)


@pytest.mark.parametrize(
    ("recipe", "given"),
    [
        ("modern", {}),
        ("modern", {"train.steps": 100}),
        ("finetune", {"train.minutes": 1.0}),
        ("modern", {"train.minutes": 1.0, "task.architecture": "lstm"}),
    ],
)
def test_nothing_is_chosen_without_a_time_limit_or_for_other_models(recipe: str, given: dict[str, Any]) -> None:
    rows = [Row({"source": "a b", "target": "c d"}, "pairs.tsv:1")]
    assert not choose_for_pairs(Translate.scan(rows), recipe=recipe, given=given).settings


def test_the_classic_recipe_keeps_its_schedule() -> None:
    rows = [Row({"source": "a b" * 100, "target": "c d" * 100}, "pairs.tsv:1")]
    given = {"train.minutes": 1.0}
    found = choose_for_pairs(Translate.scan(rows), recipe="classic", given=given).settings
    assert "model.width" in found
    assert not {"train.average", "train.decay", "task.two_way_epochs"} & set(found)
