"""SQuAD's exact match and F1, by hand and beside the library's."""

import numpy as np
import pytest

from headway.tasks import squad


@pytest.mark.parametrize(
    ("found", "references", "exact", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1, 1),
        ("in the Eiffel Tower", ["Eiffel Tower"], 0, 2 * 2 / (3 + 2)),  # 2 words in common, of 3 and of 2
        ("a cat, a cat", ["cat"], 0, 2 * 1 / (2 + 1)),  # a repeated word is in common once
        ("Paris", ["London", "Paris, France"], 0, 2 / 3),  # the better reference counts
        ("dog", ["cat"], 0, 0),
        ("", ["cat"], 0, 0),
        ("cat", [], 0, 0),
        ("", [], 1, 1),
        ("the", [], 1, 1),  # an article is no answer
        ("1,000", ["1000"], 1, 1),
    ],
)
def test_squad_scores_by_hand(found, references, exact, f1):
    assert squad.best(squad.exact, found, references) == exact
    assert squad.best(squad.f1, found, references) == pytest.approx(f1)


def test_squad_scores_are_those_of_torchmetrics():
    from torchmetrics.functional.text import squad as reference

    words = ["the", "a", "cat", "dog", "Dog.", "sat", "mat", "on"]
    chance = np.random.default_rng(0)
    found = [" ".join(chance.choice(words, 3)) for _ in range(50)]
    wanted = [[" ".join(chance.choice(words, 4)) + " cat" for _ in range(2)] for _ in found]
    told = [{"prediction_text": text, "id": str(i)} for i, text in enumerate(found)]
    asked = [{"answers": {"answer_start": [0, 0], "text": texts}, "id": str(i)} for i, texts in enumerate(wanted)]
    theirs, ours = reference(told, asked), squad.report(found, wanted)
    assert 0.1 < ours["f1"] < 0.9
    assert ours["f1"] == pytest.approx(float(theirs["f1"]) / 100, abs=1e-5)
    assert ours["exact"] == pytest.approx(float(theirs["exact_match"]) / 100, abs=1e-5)


def test_the_report_tells_answerable_and_unanswerable_apart():
    report = squad.report(["Rome", "Bern", "", "Rome"], [["Rome"], ["Rome"], [], []])
    assert report == {
        "exact": 0.5, "f1": 0.5, "exact_answerable": 0.5, "f1_answerable": 0.5,
        "exact_unanswerable": 0.5, "f1_unanswerable": 0.5,
    }  # fmt: skip
    assert "exact_unanswerable" not in squad.report(["Rome"], [["Rome"]])
