"""Tokens split into those they were merged from: the same text, other tokens, repeated by a seed."""

import numpy as np
import pytest

from headway.preprocess.subwords import SubwordSplitter
from headway.preprocess.text import Tokenizer

TEXTS = ["Two young men are outside near many bushes.", "Zwei junge Männer sind draußen, in der Nähe von Büschen. 日本"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 20, kind="bpe", size=400)


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_stays_the_same(tokenizer: Tokenizer, text: str) -> None:
    splitter, ids = SubwordSplitter(tokenizer), np.array(tokenizer.encode(text))
    found = [splitter.split(ids, share=0.3, rng=np.random.default_rng(seed)) for seed in range(20)]
    assert all(tokenizer.decode(each.tolist()) == text for each in found)
    assert len({tuple(each.tolist()) for each in found}) > 10 and all(len(each) >= len(ids) for each in found)


def test_a_seed_repeats_it_and_nothing_is_split_without_a_share(tokenizer: Tokenizer) -> None:
    splitter, ids = SubwordSplitter(tokenizer), np.array(tokenizer.encode(TEXTS[0]))
    one, two = (splitter.split(ids, share=0.3, rng=np.random.default_rng(7)) for _ in range(2))
    assert one.tolist() == two.tolist()
    assert splitter.split(ids, share=0.0, rng=np.random.default_rng(7)).tolist() == ids.tolist()


def test_the_share_is_that_of_the_tokens_that_can_be_split(tokenizer: Tokenizer) -> None:
    splitter = SubwordSplitter(tokenizer)
    merged = next(iter(tokenizer.merged_from()))
    ids = np.full(20_000, merged)
    first = splitter.halves[merged]
    found = splitter.split(ids, share=0.25, rng=np.random.default_rng(0))
    assert abs((found == merged).sum() / len(ids) - 0.75) < 0.02
    assert first[0] in found and first[1] in found


def test_characters_and_wordpieces_are_never_split() -> None:
    for kind in ("char", "wordpiece"):
        tokenizer = Tokenizer.train(TEXTS * 20, kind=kind, size=300)  # type: ignore[arg-type]
        ids = np.array(tokenizer.encode(TEXTS[0]))
        assert SubwordSplitter(tokenizer).split(ids, share=0.9, rng=np.random.default_rng(0)).tolist() == ids.tolist()
