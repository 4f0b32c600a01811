"""Losses, answers and scores of the three kinds of target."""

import math

import numpy as np
import pytest
import torch

from headway.errors import ConfigError, DataError
from headway.tasks.targets import LabelSet, Number, OneLabel, Scale, fitted_threshold, pearson, ranks

RNG = np.random.default_rng(0)


def test_numbers_are_on_the_scale_of_the_data_before_and_after_folding() -> None:
    scale = Scale(100.0, 20.0)
    wanted = [np.array([60.0]), np.array([140.0])]
    standardised = torch.tensor([[-1.0], [2.5]])
    during, after = Number(scale, standardised=True), Number(scale)
    logits = standardised * 20 + 100
    assert during.answers(standardised) == after.answers(logits) == [{"value": 80.0}, {"value": 150.0}]
    assert during.collate(wanted).tolist() == [-2.0, 2.0]
    for target, found in ((during, standardised), (after, logits)):
        assert float(target.loss(found, target.collate(wanted), training=True)) == pytest.approx(1.0 + 0.25)
        scores = target.scores(found, wanted)
        assert scores["mae"] == pytest.approx(15.0) and scores["mean_mae"] == 40.0 and scores["pearson"] == 1.0
    with pytest.raises(DataError, match=r"x.csv:7: label: 'nan' is not a finite number"):
        after.encode("nan", where="x.csv:7")
    with pytest.raises(ConfigError, match="std"):
        Scale(0.0, 0.0)
    assert Scale(3.0, 4.0).without_mean() == Scale(0.0, 5.0)


def test_a_label_below_the_threshold_is_none_and_keeps_its_score() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.1, 0.0]])
    sure, unsure = OneLabel(["a", "b"]).answers(logits, threshold=0.6)
    assert sure["label"] == "a" and unsure["label"] is None
    assert unsure["score"] == unsure["scores"]["a"] == pytest.approx(1 / (1 + math.exp(-0.1)))
    assert OneLabel(["a", "b"]).answers(logits)[1]["label"] == "a"  # control


def test_correlations_equal_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    one, other = RNG.integers(0, 6, 50).astype(float), RNG.normal(size=50)
    assert pearson(one, other) == pytest.approx(stats.pearsonr(one, other)[0])
    assert pearson(ranks(one), ranks(other)) == pytest.approx(stats.spearmanr(one, other)[0])
    assert ranks(np.array([3.0, 1.0, 3.0])).tolist() == [2.5, 1.0, 2.5]
    assert pearson(np.full(5, 0.1), other[:5]) == 0.0


def test_label_sets_have_a_sigmoid_a_loss_and_scores_of_their_own() -> None:
    target = LabelSet(["a", "b", "c"], 0.6, ";")
    labels = [target.encode(text, where="") for text in ("a;b", "c", "", "b; x")]
    assert [each.tolist() for each in labels] == [[0, 1], [2], [], [1, -1]]
    assert target.collate(labels).tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    logits = torch.tensor([[2.0, 0.0, -2.0], [-2.0, -2.0, 2.0], [-2.0, -2.0, 2.0], [-2.0, 2.0, -2.0]])
    answers = target.answers(logits)
    assert [answer["labels"] for answer in answers] == [["a"], ["c"], ["c"], ["b"]]
    assert answers[0]["scores"]["a"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert list(target.answers(logits, top=1)[0]["scores"]) == ["a"]
    assert target.answers(logits, threshold=0.4)[0]["labels"] == ["a", "b"]
    assert target.answers(logits, threshold=0.9)[0]["labels"] == []
    scores = target.scores(logits, labels)
    assert scores["micro_f1"] == pytest.approx(2 * 3 / (4 + 5))  # 3 right, 4 predicted, 5 wanted with the unknown one
    assert scores["macro_f1"] == pytest.approx((1 + 2 / 3 + 2 / 3 + 0) / 4)
    assert scores["exact"] == 0.25 and scores["unknown_labels"] == 1
    assert scores["majority"] == pytest.approx(max(2 * 2 / (4 + 5), 2 * 3 / (8 + 5), 2 * 4 / (12 + 5)))
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, target.collate(labels))
    assert scores["loss"] == pytest.approx(float(expected))


def test_f1_equals_torchmetrics() -> None:
    functional = pytest.importorskip("torchmetrics.functional.classification")
    target = LabelSet(list("abcde"))
    wanted = RNG.random((40, 5)) < 0.3
    logits = torch.tensor(RNG.normal(size=(40, 5)), dtype=torch.float32)
    scores = target.scores(logits, [np.flatnonzero(row) for row in wanted])
    for average in ("micro", "macro"):
        theirs = functional.multilabel_f1_score(logits.sigmoid(), torch.tensor(wanted).int(), 5, average=average)
        assert scores[f"{average}_f1"] == pytest.approx(float(theirs), abs=1e-6)


def test_the_threshold_has_the_best_f1_of_all() -> None:
    for _ in range(20):
        scores, wanted = RNG.random((9, 4)).round(1), (RNG.random((9, 4)) < 0.4).astype(float)
        if not wanted.any():
            continue

        def f1(threshold: float, scores: np.ndarray = scores, wanted: np.ndarray = wanted) -> float:
            found = scores > threshold
            return 2 * (found * wanted).sum() / (found.sum() + wanted.sum())

        assert f1(fitted_threshold(scores, wanted)) == pytest.approx(max(map(f1, np.arange(0, 1, 0.01))))
    assert fitted_threshold(np.array([[0.9, 0.2]]), np.array([[1.0, 0.0]])) == pytest.approx(0.55)


def test_an_unknown_label_is_an_error_or_a_miss() -> None:
    target = OneLabel(["a", "b"])
    with pytest.raises(DataError, match=r"x:1: label 'c' is not one of the model's labels \('a', 'b'\)"):
        target.encode("c", where="x:1")
    with pytest.raises(DataError, match="x:1: label: a list of labels"):
        target.encode(["a"], where="x:1")
    labels = [target.encode(text, where="", strict=False) for text in ("a", "c")]
    scores = target.scores(torch.tensor([[0.0, math.log(3.0)], [1.0, 0.0]]), labels)
    assert scores["accuracy"] == 0.0 and scores["majority"] == 0.5 and scores["loss"] == pytest.approx(math.log(4))
