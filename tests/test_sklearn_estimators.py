"""The scikit-learn estimators: scikit-learn's own checks, pipelines, cross-validation, grid search."""

import subprocess
import sys

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from headway.errors import InputError
from headway.sklearn import HeadwayClassifier, HeadwayRegressor

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "vocab": 60, "eval_every": 0, "lr": 0.01}
TEXTS = [f"{'fine' if n % 2 else 'awful'} day {n % 7}" for n in range(60)]
LABELS = [n % 2 for n in range(60)]

# Of scikit-learn's checks, those that need no array of numbers: parameters, cloning, tags, errors before fit.
CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimators_unfitted",
]


def classifier(**more):
    return HeadwayClassifier(**{"steps": 40, "settings": SMALL, "random_state": 0, **more})


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", [HeadwayClassifier, HeadwayRegressor])
def test_checks_of_scikit_learn(kind, name):
    getattr(estimator_checks, name)(kind.__name__, kind())


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(TEXTS, LABELS)


def test_predictions(fitted):
    new = ["fine day 9", "awful day 9"]
    assert fitted.predict(new).tolist() == [1, 0] and fitted.classes_.tolist() == [0, 1]
    chances = fitted.predict_proba(new)
    assert chances.shape == (2, 2) and np.allclose(chances.sum(1), 1)
    assert (fitted.classes_[chances.argmax(1)] == fitted.predict(new)).all()
    assert fitted.score(TEXTS, LABELS) == 1.0
    assert fitted.score(TEXTS, LABELS[::-1]) == 0.0  # negative control: the labels of 0 and 1 exchanged
    assert fitted.predict([]).shape == (0,)
    assert "accuracy" in fitted.scores_


def test_same_seed_same_model(fitted):
    again = clone(fitted).fit(TEXTS, LABELS)
    assert np.array_equal(again.predict_proba(TEXTS[:4]), fitted.predict_proba(TEXTS[:4]))
    assert fitted.get_params()["steps"] == 40 and clone(fitted).set_params(steps=3).steps == 3
    with pytest.raises(NotFittedError):
        clone(fitted).predict(["x"])


def test_pipeline_and_cross_validation():
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = Pipeline([("lower", lower), ("classify", classifier(steps=30))])
    names = np.array(["low", "high"])[LABELS]
    pipeline.fit(pandas.Series(TEXTS).str.upper(), names)
    assert pipeline.predict(["FINE DAY 3"]).tolist() == ["high"]
    assert cross_val_score(classifier(steps=30), np.array(TEXTS, dtype=object), names, cv=2).min() == 1.0


def test_grid_search_chooses_the_longer_run():
    model = classifier().set_params(settings=SMALL | {"task.ngrams": 0, "task.convolutions": 0})  # need few
    search = GridSearchCV(model, {"steps": [1, 40]}, cv=2, refit=False).fit(TEXTS, LABELS)
    assert search.best_params_ == {"steps": 40}


def test_regression():
    numbers = [float(n % 2) * 3 + 0.25 * (n % 7) for n in range(60)]
    model = HeadwayRegressor(steps=60, settings=SMALL, random_state=0).fit(TEXTS, numbers)
    low, high = model.predict(["awful day 0", "fine day 6"])
    assert low + 1 < high and model.score(TEXTS, numbers) > 0.5
    assert model.score(TEXTS, numbers[::-1]) < 0.2


def test_held_out_examples_leave_each_class_in_training(fitted):
    held = classifier()._held_out(np.array([0] * 50 + [1] * 3))
    assert held[:50].sum() == 5 and not held[50:].any()
    assert classifier()._held_out(np.array([0, 0, 1])).sum() == 1
    with pytest.raises(InputError, match="too few"):
        classifier()._held_out(np.array([0, 1]))


def test_wrong_arguments():
    for texts, labels in (
        ("one text", ["x"]),
        ([1, 2], ["x", "y"]),
        (TEXTS, LABELS[:3]),
        (TEXTS, None),
        (TEXTS, [1] * 60),
    ):
        with pytest.raises(ValueError):
            classifier().fit(texts, labels)


def test_headway_does_not_import_scikit_learn():
    code = "import sys, headway, headway.data.dataset; assert not {'sklearn', 'pandas', 'openpyxl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
