"""The worked examples give the numbers of the notes."""

import numpy as np
import pytest
from support.stories import computed_weights

from headway.errors import InputError
from headway.explain.examples import EXAMPLES, example
from headway.explain.explanation import Explanation


@pytest.mark.parametrize("name", EXAMPLES)
def test_weights_follow_from_the_vectors(name: str) -> None:
    for each in example(name).attention:
        np.testing.assert_allclose(each.weights, computed_weights(each), atol=1e-6)
        if each.v is not None:
            np.testing.assert_allclose(each.z, each.weights @ each.v, atol=1e-5)


def test_chasing_scores_26_05_and_minus_4_5() -> None:
    (attention,) = example("chasing").attention
    np.testing.assert_allclose(attention.q[0] @ attention.k[0].T, [[26.05, -4.5]], atol=1e-5)
    (section,) = example("chasing").example
    rows = {row[0]: row[1:] for row in section.table.rows}
    assert rows["sum"] == ["26.05", "−4.5"]
    assert rows["1"] == ["3 × 2.8 = 8.4  (strong match)", "3 × −2 = −6  (strong mismatch)"]
    assert rows["3"] == ["−1 × 0.2 = −0.2  (minor mismatch)", "−1 × −0.5 = 0.5  (minor match)"]


def test_the_three_word_table_has_every_column() -> None:
    (attention,), (section,) = example("three-words").attention, example("three-words").example
    scores = attention.q[0] @ attention.k[0].T
    assert attention.scale == 1 / 8 and len(section.table.rows) == 9
    for number, row in enumerate(section.table.rows):
        i, j = divmod(number, 3)
        shown = [float(text.replace("−", "-")) for text in row[1:4]]
        np.testing.assert_allclose(shown, [scores[i, j], scores[i, j] / 8, attention.weights[0, i, j]], atol=6e-4)


def test_the_soft_dictionary_and_the_mask() -> None:
    (attention,) = example("soft-dictionary").attention
    assert [round(float(share), 2) for share in attention.weights[0, 0]] == [0.73, 0.27, 0.0]
    (back,) = example("mask").attention
    np.testing.assert_allclose(back.weights[0], np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None], atol=1e-7)


def test_positions_distinguish_two_equal_words() -> None:
    (embedding,) = example("positions").embedding
    assert (embedding.token[0] == embedding.token[4]).all() and np.abs(
        embedding.result[0] - embedding.result[4]
    ).max() > 1
    np.testing.assert_array_equal(embedding.position.pattern[:6], embedding.position.values)


def test_an_unknown_example_names_the_known() -> None:
    with pytest.raises(InputError, match="three-words"):
        example("four-words")


def test_a_word_has_one_id_and_no_other_word_has_it() -> None:
    for name in EXAMPLES:
        words = [token for each in example(name).sequences.values() for token in each.tokens]
        ids = {token.text.strip().lower(): token.id for token in words}
        assert len(set(ids.values())) == len(ids) and all(ids[one.text.strip().lower()] == one.id for one in words)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_has_a_picture(name: str) -> None:
    explained = example(name)
    image = Explanation(explained).draw().axes[0].get_images()[0].get_array()
    drawn = explained.attention[0].weights[0] if explained.attention else explained.embedding[0].position.pattern
    np.testing.assert_allclose(image, drawn)
