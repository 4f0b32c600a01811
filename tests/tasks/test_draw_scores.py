"""Scores of drawn pictures: what each of them catches."""

from collections.abc import Sequence

import numpy as np
import pytest

from headway.data.row import Row
from headway.tasks.draw_scores import (
    GUIDANCES,
    OTHER_SEEDS,
    SampleSizes,
    label_scores,
    labels_of,
    nearest,
    nearest_scores,
)

SHADES = {"dark": 40, "light": 200}
SIZES = SampleSizes(chosen_by=8, judged=20, taught_by=40)


def picture(shade: float, seed: int) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal(shade, 20, (4, 4, 1)), 0, 255).astype(np.uint8)


ROWS = [Row({"caption": list(SHADES)[n % 2]}, f"a:{n}") for n in range(30)]
REAL = np.stack([picture(SHADES[row.fields["caption"]], 500 + n) for n, row in enumerate(ROWS)])


class Nearest:
    """Classifiers that give a picture the label of the nearest mean."""

    def __init__(self) -> None:
        self.taught: tuple[np.ndarray, list[str]] | None = None

    def real(self):
        return self.trained(REAL, labels_of(ROWS) or [])

    def drawn(self, pictures: np.ndarray, labels: Sequence[str]):
        self.taught = pictures, list(labels)
        return self.trained(pictures, labels)

    @staticmethod
    def trained(pictures: np.ndarray, labels: Sequence[str]):
        names = sorted(set(labels))
        means = [pictures[[label == name for label in labels]].mean() for name in names]
        return lambda given: [names[int(np.argmin([abs(each.mean() - m) for m in means]))] for each in given]


def test_a_model_that_draws_what_is_asked_has_all_scores() -> None:
    calls = []

    def draw(captions: Sequence[str], seeds: Sequence[int], guidance: float) -> np.ndarray:
        calls.append((guidance, seeds[0], len(captions)))
        return np.stack([picture(SHADES[caption], seed) for caption, seed in zip(captions, seeds, strict=True)])

    scores = label_scores(ROWS, labels_of(ROWS) or [], REAL, draw=draw, classifiers=Nearest(), sizes=SIZES)
    assert scores == {
        "judge_accuracy": 1.0, "agreement": 1.0, "agreement_guided": 1.0, "best_guidance": 1.0, "drawn_accuracy": 1.0,
    }  # fmt: skip
    assert calls[:5] == [(guidance, OTHER_SEEDS, 8) for guidance in GUIDANCES], "chosen on pictures that are not judged"
    assert calls[5:] == [(1.0, 0, 40), (1.0, 0, 20)]


def test_guidance_is_chosen_by_agreement_and_reported_beside_none() -> None:
    def draw(captions: Sequence[str], seeds: Sequence[int], guidance: float) -> np.ndarray:
        wrong = {"dark": 200, "light": 40}
        return np.stack(
            [
                picture((SHADES if guidance == 3 else wrong)[caption], s)
                for caption, s in zip(captions, seeds, strict=True)
            ]
        )

    scores = label_scores(ROWS, labels_of(ROWS) or [], REAL, draw=draw, classifiers=Nearest(), sizes=SIZES)
    assert (scores["agreement"], scores["agreement_guided"], scores["best_guidance"]) == (0, 1, 3)


def test_labels_are_given_or_recurring_captions() -> None:
    assert labels_of(ROWS) == [row.fields["caption"] for row in ROWS]
    assert labels_of([Row({"caption": f"caption {n}"}, "") for n in range(30)]) is None
    assert labels_of([Row({"caption": f"caption {n}", "label": "x"}, "") for n in range(3)]) == ["x"] * 3
    assert labels_of([Row({"caption": "one"}, "") for n in range(30)]) is None


def test_copies_of_training_pictures_are_found() -> None:
    random = np.random.default_rng(0)
    training, held, fresh = (random.integers(0, 256, (n, 4, 4, 3), dtype=np.uint8) for n in (9000, 200, 100))
    copied = training[::90].copy()
    copied[:, 0, 0, 0] ^= 1
    found = nearest_scores(copied, held, training)
    assert found["copies"] == 1 and found["nearest_drawn"] < 0.01 < found["nearest_real"]
    fine = nearest_scores(fresh, held, training)
    assert fine["copies"] < 0.1 and fine["nearest_drawn"] == pytest.approx(fine["nearest_real"], rel=0.05)
    by_hand = np.sqrt(np.square(fresh[0].astype(float) - training).mean((1, 2, 3))).min() / 255
    assert nearest(fresh[:1], training)[0] == pytest.approx(by_hand, rel=1e-4)
