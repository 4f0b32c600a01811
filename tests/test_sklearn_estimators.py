"""The scikit-learn estimators: scikit-learn's own checks, pipelines, cross-validation, grid search."""

import copy
import io
import json
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import cloudpickle
import joblib
import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from headway.errors import InputError
from headway.loading import load
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
# And of those for arrays of numbers, a few; all of them are slow.
ARRAY_CHECKS = [
    "check_requires_y_none",
    "check_supervised_y_no_nan",
    "check_estimators_pickle",
]
ROUNDING = {
    "check_methods_subset_invariance": "in a batch of another size, float32 sums differ by 1e-7",
}


class OfNumbers:
    """An estimator that reads each row of numbers as a text, so that scikit-learn's checks can train it."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        return tags

    def fit(self, X, y=None):
        rows = validate_data(self, X, y if y is None else "no_validation")
        return super().fit(as_texts(rows), y)

    def _answers(self, X):
        check_is_fitted(self, "bundle_")
        return super()._answers(as_texts(validate_data(self, X, reset=False)))


class ClassifierOfNumbers(OfNumbers, HeadwayClassifier):
    pass


class RegressorOfNumbers(OfNumbers, HeadwayRegressor):
    pass


def as_texts(rows):
    return [" ".join(f"{chr(97 + place % 26)}{round(float(value))}" for place, value in enumerate(row)) for row in rows]


def classifier(**more):
    return HeadwayClassifier(**{"steps": 40, "settings": SMALL, "random_state": 0, **more})


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", [HeadwayClassifier, HeadwayRegressor])
def test_checks_of_scikit_learn(kind, name):
    getattr(estimator_checks, name)(kind.__name__, kind())


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(TEXTS, LABELS)


def of_numbers(kind):
    return kind(steps=30, settings=SMALL | {"task.convolutions": 0}, random_state=0)


@pytest.mark.slow
@estimator_checks.parametrize_with_checks(
    [of_numbers(ClassifierOfNumbers), of_numbers(RegressorOfNumbers)],
    expected_failed_checks=lambda each: ROUNDING,
    xfail_strict=False,
)
def test_all_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ARRAY_CHECKS)
@pytest.mark.parametrize("kind", [ClassifierOfNumbers, RegressorOfNumbers])
def test_some_checks_of_scikit_learn_on_arrays(kind, name):
    getattr(estimator_checks, name)(kind.__name__, of_numbers(kind))


def test_a_model_answers_alike_in_another_process(fitted, translator):
    """By every way of pickling; the folder that it was loaded from is not needed."""
    new, bundle = ["fine day 9", "awful day 9"], load(translator)
    bundle.folder = translator / "moved"
    expected = fitted.predict_proba(new), bundle("3 May 1998", max_new_tokens=9)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        elsewhere = pool.submit(fitted.predict_proba, new).result(), pool.submit(bundle, "3 May 1998", max_new_tokens=9)
        assert np.array_equal(elsewhere[0], expected[0]) and elsewhere[1].result() == expected[1]
    file = io.BytesIO()
    joblib.dump([fitted, bundle], file)
    for one, other in (
        joblib.load(io.BytesIO(file.getvalue())),
        pickle.loads(cloudpickle.dumps([fitted, bundle])),
        pickle.loads(pickle.dumps(pickle.loads(pickle.dumps([fitted, bundle])))),
        copy.deepcopy([fitted, bundle]),
    ):
        assert np.array_equal(one.predict_proba(new), expected[0])
        assert other("3 May 1998", max_new_tokens=9) == expected[1]
    assert not np.array_equal(fitted.predict_proba(["fine fine", "day"]), expected[0])  # control: answers differ


def test_a_published_sentence_encoder_keeps_its_pooling_when_pickled(embedder, tmp_path):
    shutil.copytree(embedder, tmp_path / "model")
    (tmp_path / "model" / "headway.json").unlink()
    module = [{"idx": 0, "name": "0", "path": "", "type": "models.Transformer"},
              {"idx": 1, "name": "1", "path": "pool", "type": "models.Pooling"}]  # fmt: skip
    (tmp_path / "model" / "modules.json").write_text(json.dumps(module))
    (tmp_path / "model" / "pool").mkdir()
    (tmp_path / "model" / "pool" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    model, mean = load(tmp_path / "model", verify=False), load(embedder)
    data = pickle.dumps(model)
    shutil.rmtree(tmp_path / "model")
    again = pickle.loads(data)
    assert again.sentence == model.sentence and again("The import") == model("The import")
    assert model("The import") != mean("The import")  # control


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
    """Where scikit-learn has a message for it, with that."""
    for texts, labels, message in (
        ("one text", ["x"], "give a list of texts"),
        ([1, 2], ["x", "y"], r"X\[0\]: expected a text, found an int"),
        ([["a", "b"], ["c", "d"]], [0, 1], "should be a 1d array"),
        (TEXTS, LABELS[:3], "inconsistent numbers of samples"),
        (TEXTS, None, "requires y to be passed"),
        (TEXTS, [1] * 60, "at least two classes"),
        (TEXTS, [0.5 + n for n in range(60)], "Unknown label type: continuous"),
        (["a", float("nan")], [0, 1], "contains NaN"),
        (["a"], [1], r"1 sample.*minimum of 2"),
        ([], [], r"0 sample.*minimum of 2"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier().fit(texts, labels)
    with pytest.raises(ValueError, match="contains NaN"):
        HeadwayRegressor().fit(TEXTS, [float("nan")] * 60)


def test_headway_does_not_import_scikit_learn():
    code = "import sys, headway, headway.data.dataset; assert not {'sklearn', 'pandas', 'openpyxl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
