"""Models that generate, made once per session."""

import functools

import pytest
from support.parity import Pair
from support.writers import GENERATORS, confident_pair, tiny_translator

from headway.models.encoder_decoder import EncoderDecoder
from headway.preprocess.text import Tokenizer


@pytest.fixture(scope="session")
def pair_of(tmp_path_factory):
    """A family's name → the same weights in both libraries."""
    return functools.cache(lambda name: confident_pair(GENERATORS[name], tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session")
def gpt2(pair_of) -> Pair:
    return pair_of("gpt2")


@pytest.fixture(scope="session")
def llama(pair_of) -> Pair:
    return pair_of("llama")


@pytest.fixture(scope="session")
def translator() -> EncoderDecoder:
    return tiny_translator()


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat – naïve café €5"] * 5, kind="char", size=40)
