"""The cheap baselines against scikit-learn, and against what they must be by their definition."""

import numpy as np
import pytest

from headway.baselines import thinned
from headway.baselines.linear import fit
from headway.baselines.ngrams import NgramModel
from headway.baselines.tfidf import TextFeatures, TfIdf, Words, character_keys
from headway.data.builtin.messages import MESSAGES

ROWS = MESSAGES.rows(split="train", size=300)
HELD = MESSAGES.rows(split="test", size=60)
TEXTS, LABELS = ([row.fields[name] for row in ROWS] for name in ("text", "label"))
NAMES = sorted(set(LABELS))


def reference_features(texts: list[str], *, characters: bool) -> object:
    from sklearn.feature_extraction.text import TfidfVectorizer

    kind = {"analyzer": "char_wb", "ngram_range": (3, 5), "min_df": 2} if characters else {"ngram_range": (1, 2)}
    return TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+", **kind).fit(texts)


@pytest.mark.filterwarnings("ignore:The parameter 'token_pattern'")
@pytest.mark.parametrize("characters", [False, True])
def test_features_are_those_of_scikit_learn(characters: bool) -> None:
    ours = TfIdf(character_keys, least=2) if characters else TfIdf(words := Words())
    theirs = reference_features(TEXTS, characters=characters)
    found = {"fit": ours.fit(TEXTS)}
    if not characters:
        words.grows = False
    found["new"] = ours.transform([*(row.fields["text"] for row in HELD), "naïve 日本語 naïve", ""])
    wanted = {"fit": TEXTS, "new": [*(row.fields["text"] for row in HELD), "naïve 日本語 naïve", ""]}
    for part, texts in wanted.items():
        matrix = theirs.transform(texts)  # type: ignore[attr-defined]
        assert found[part].shape == matrix.shape
        for one, other in zip(found[part], matrix, strict=True):  # the columns have another order
            np.testing.assert_allclose(np.sort(one.data), np.sort(other.data), atol=1e-6)


def test_logistic_regression_is_that_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    features = TextFeatures()
    inputs, held = features.fit(TEXTS), features.transform([row.fields["text"] for row in HELD])
    targets = np.eye(len(NAMES))[[NAMES.index(label) for label in LABELS]]
    ours = fit(inputs, targets, kind="one", strength=0.25)(held)
    theirs = LogisticRegression(C=4, max_iter=1000, tol=1e-6).fit(inputs, LABELS)
    assert list(theirs.classes_) == NAMES
    centred = ours - ours.mean(1, keepdims=True)  # of two labels the reference has one row
    wanted = theirs.decision_function(held) if len(NAMES) > 2 else None
    if wanted is not None:
        np.testing.assert_allclose(centred, wanted - wanted.mean(1, keepdims=True), atol=0.02)
    assert [NAMES[index] for index in ours.argmax(1)] == list(theirs.predict(held))
    assert not np.allclose(centred, fit(inputs, targets, kind="one", strength=4.0)(held), atol=0.02)  # can fail


def test_ridge_and_one_regression_a_label_are_those_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression, Ridge

    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(80, 5))
    numbers = inputs @ rng.normal(size=5) + 3 + rng.normal(size=80)
    ours = fit(inputs, numbers[:, None], kind="number", strength=2.0)
    theirs = Ridge(alpha=2.0).fit(inputs, numbers)
    np.testing.assert_allclose(ours(inputs)[:, 0], theirs.predict(inputs), atol=1e-3)
    several = (inputs[:, :2] + rng.normal(size=(80, 2)) > 0).astype(float)
    both = fit(inputs, several, kind="several", strength=0.5)(inputs)
    for label in range(2):
        one = LogisticRegression(C=2.0, tol=1e-8, max_iter=500).fit(inputs, several[:, label])
        np.testing.assert_allclose(both[:, label], one.decision_function(inputs), atol=5e-3)


def test_scales_are_those_of_the_inputs() -> None:
    rng = np.random.default_rng(0)
    inputs, scales = rng.normal(size=(80, 5)), rng.normal(size=(5, 2))
    several = (inputs[:, :2] + rng.normal(size=(80, 2)) > 0).astype(float)
    both = fit(inputs, several, kind="several", strength=0.5, scales=scales)(inputs)
    for label in range(2):
        scaled = inputs * scales[:, label]
        alone = fit(scaled, several[:, label, None], kind="several", strength=0.5)(scaled)[:, 0]
        np.testing.assert_allclose(both[:, label], alone, atol=1e-2)
    assert not np.allclose(both, fit(inputs, several, kind="several", strength=0.5)(inputs), atol=1e-2)


def test_an_ngram_model_is_a_distribution_and_learns() -> None:
    rng = np.random.default_rng(0)
    steps = rng.integers(1, 3, size=4000)
    ids = np.cumsum(steps) % 7  # the next token is one of two
    model = NgramModel(ids[:3000], vocab=9, order=3)
    for history in ([1, 2], [8, 8], [3, 8]):  # known, unknown, and known in part
        total = sum(np.exp(-model.losses(np.array([*history, token]))[-1]) for token in range(9))
        assert total == pytest.approx(1.0, abs=1e-9)
    assert model.losses(ids[3000:]).mean() == pytest.approx(np.log(2), abs=0.03)
    assert NgramModel(ids[:3000], vocab=9, order=1).losses(ids[3000:]).mean() > 1.9


def test_large_data_is_drawn_and_says_so() -> None:
    kept, note = thinned(range(1000), lambda item: 10, most=2000)
    assert (
        150 <= len(kept) <= 200
        and list(kept) == sorted(kept)
        and kept == thinned(range(1000), lambda item: 10, most=2000)[0]
    )
    assert min(np.histogram(kept, 5)[0]) > 20  # from everywhere
    assert 0.35 < np.mean(np.array(kept) % 2) < 0.65  # where labels take turns, each is drawn
    assert note == f"on {len(kept)} of 1,000 training examples"
    assert thinned(range(10), lambda item: 10, most=2000) == (list(range(10)), "")
    assert thinned([], lambda item: 1, most=5) == ([], "")
