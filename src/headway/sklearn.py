"""scikit-learn estimators of texts, `HeadwayClassifier` and `HeadwayRegressor`, for pipelines, cross-validation and
grid search. This module needs scikit-learn; `import headway` does not."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, check_is_fitted, check_X_y, column_or_1d
except ImportError as error:
    raise ImportError("headway.sklearn needs scikit-learn: pip install 'headway[sklearn]'") from error

from headway.errors import InputError, with_article

__all__ = ["HeadwayClassifier", "HeadwayRegressor"]

FEWEST = 2  # examples of a label of which one may be held out


class _TextEstimator(BaseEstimator):
    """The arguments are those of `headway.train`. Without `out` the run folder is temporary; the fitted model is
    `bundle_`, and `bundle_.save(folder)` keeps it. A share of `validation` of the examples is held out to choose the
    best weights by."""

    kind = "labels"

    def __init__(
        self,
        *,
        start: str | None = None,
        size: str | None = None,
        recipe: str | None = None,
        steps: int | None = None,
        epochs: int | None = None,
        minutes: float | None = None,
        settings: Mapping[str, Any] | None = None,
        lora: int = 0,
        validation: float = 0.1,
        random_state: int | None = None,
        out: str | None = None,
    ) -> None:
        self.start = start
        self.size = size
        self.recipe = recipe
        self.steps = steps
        self.epochs = epochs
        self.minutes = minutes
        self.settings = settings
        self.lora = lora
        self.validation = validation
        self.random_state = random_state
        self.out = out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = True
        return tags

    def _fit(self, texts: list[str], labels: list[str], *, held: np.ndarray) -> None:
        from headway import jobs

        rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
        parts = [[row for row, is_out in zip(rows, held, strict=True) if is_out == wanted] for wanted in (False, True)]
        settings = {**(self.settings or {}), "task.kind": self.kind}
        with tempfile.TemporaryDirectory(prefix="headway-") as folder:
            trained = jobs.train(
                "classify",
                parts[0],
                valid=parts[1],
                out=self.out or Path(folder) / "run",
                start=self.start,
                size=self.size,
                recipe=self.recipe,
                steps=self.steps,
                epochs=self.epochs,
                minutes=self.minutes,
                seed=self.random_state,
                settings=settings,
                lora=self.lora,
            )
        self.bundle_, self.scores_ = trained.bundle, trained.scores

    def _answers(self, X: Any) -> list[Any]:
        check_is_fitted(self, "bundle_")
        from headway import jobs

        found = check_array(_several(X), dtype=object, ensure_2d=False, ensure_min_samples=0, input_name="X")
        return [answer for _, answer in jobs.run(self.bundle_, _texts(found))]

    def _checked(self, X: Any, y: Any, *, numeric: bool) -> tuple[list[str], np.ndarray]:
        """Texts and targets, with scikit-learn's own checks and messages."""
        found, targets = check_X_y(
            _several(X), y, dtype=object, ensure_2d=False, ensure_min_samples=FEWEST, y_numeric=numeric, estimator=self
        )
        return _texts(found), targets

    def _held_out(self, groups: np.ndarray) -> np.ndarray:
        """Which examples are held out: of each group a share, and at least one example in all."""
        random = np.random.default_rng(self.random_state or 0)
        held = np.zeros(len(groups), bool)
        places = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        for each in places:
            count = int(len(each) * self.validation)
            held[random.permutation(each)[:count]] = True
        if not held.any():
            largest = max(places, key=len)
            if len(largest) < FEWEST:
                raise InputError(f"{len(groups)} examples are too few: at least one more is needed to hold out")
            held[random.choice(largest)] = True
        return held


class HeadwayClassifier(ClassifierMixin, _TextEstimator):
    """A classifier of texts by a transformer, trained from scratch or fine-tuned (`start`).

    >>> from headway.sklearn import HeadwayClassifier
    >>> texts, labels = ["a fine day", "rain again"] * 20, ["good", "bad"] * 20
    >>> small = {"model.width": 16, "model.layers": 1, "model.heads": 2, "vocab": 100}
    >>> classifier = HeadwayClassifier(steps=30, settings=small, random_state=0).fit(texts, labels)
    >>> classifier.predict(["a fine day", "rain again"]).tolist()
    ['good', 'bad']
    """

    kind = "labels"

    def fit(self, X: Any, y: Any) -> Self:
        """`X`: texts; `y`: a label for each."""
        texts, labels = self._checked(X, y, numeric=False)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least two classes; the data has {len(self.classes_)} class")
        self._names = [str(label) for label in self.classes_]
        self._fit(texts, [self._names[number] for number in numbers], held=self._held_out(numbers))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(text, class), in the order of `classes_`."""
        answers = self._answers(X)
        return np.array([[answer["scores"].get(name, 0.0) for name in self._names] for answer in answers]).reshape(
            len(answers), len(self._names)
        )

    def predict(self, X: Any) -> np.ndarray:
        chances = self.predict_proba(X)
        return np.asarray(self.classes_[chances.argmax(1)])


class HeadwayRegressor(RegressorMixin, _TextEstimator):
    """A number for each text."""

    kind = "regression"

    def fit(self, X: Any, y: Any) -> Self:
        """`X`: texts; `y`: a number for each."""
        texts, numbers = self._checked(X, y, numeric=True)
        self._fit(texts, [repr(float(number)) for number in numbers], held=self._held_out(np.zeros(len(texts))))
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.array([answer["value"] for answer in self._answers(X)])


def _several(X: Any) -> Any:
    if isinstance(X, str):
        raise ValueError("X: one text where several are expected; give a list of texts")
    return X


def _texts(X: np.ndarray) -> list[str]:
    """One column of texts, from an array of objects."""
    values = column_or_1d(X, input_name="X").tolist()
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(
                f"X[{number}]: expected a text, found {with_article(type(value).__name__)}; give one text an example"
            )
    return [str(value) for value in values]
