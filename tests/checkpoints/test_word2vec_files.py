"""Files of word vectors: gensim opens ours, we open gensim's, and damaged ones are refused by name."""

from pathlib import Path

import numpy as np
import pytest

from headway.checkpoints.word2vec import is_word2vec, read_word2vec, save_word2vec
from headway.errors import CheckpointError

WORDS = ["the", "köln", "12", "new_york", "naïve"]
VECTORS = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


@pytest.mark.parametrize("binary", [True, False])
def test_gensim_opens_our_files_and_we_open_gensims(tmp_path: Path, binary: bool) -> None:
    gensim = pytest.importorskip("gensim.models", reason="gensim is not installed (pip install 'headway[dev]')")
    save_word2vec(tmp_path / "ours", WORDS, VECTORS, binary=binary)
    theirs = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / "ours"), binary=binary)
    assert list(theirs.index_to_key) == WORDS
    assert np.array_equal(theirs.vectors, VECTORS)
    theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    words, vectors = read_word2vec(tmp_path / "theirs")
    assert words == WORDS
    np.testing.assert_allclose(vectors, VECTORS, rtol=0 if binary else 1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_what_is_written_is_read(tmp_path: Path, binary: bool) -> None:
    path = tmp_path / "vectors"
    save_word2vec(path, WORDS, VECTORS, binary=binary)
    words, vectors = read_word2vec(path)
    assert is_word2vec(path) and words == WORDS and np.array_equal(vectors, VECTORS)


def test_damaged_files_are_refused_with_their_name(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    cases = {
        b"1000000 100\nthe 1 2\n": "too short",
        b"2 2\nthe 1 2\nof 1\n      \n": "vectors.txt:3: expected a word and 2 numbers",
        b"2 2\nthe 1 2\nthe 1 2\n": "occurs twice",
        b"1 2\nthe 1 nan\n": "not finite",
        b"0 2\n": "not possible",
        b"hello\n": "does not begin with",
    }
    for content, message in cases.items():
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            read_word2vec(path)
    save_word2vec(path, WORDS, VECTORS, binary=True)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match="ends within word 5 of 5"):
        read_word2vec(path)
    with pytest.raises(CheckpointError, match="has a space"):
        save_word2vec(path, ["new york"], VECTORS[:1], binary=False)
