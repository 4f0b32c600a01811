"""Models to write with, made once."""

import pytest
from support.parity import Case, Pair
from support.writers import GPT2, LLAMA, MARIAN, T5, lively, tiny_translator

from headway.models.encoder_decoder import EncoderDecoder
from headway.preprocess.text import Tokenizer


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory) -> Pair:
    return lively(Case("GPT2LMHeadModel", GPT2), tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session")
def llama(tmp_path_factory) -> Pair:
    return lively(Case("LlamaForCausalLM", LLAMA), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def t5(tmp_path_factory) -> Pair:
    return lively(Case("T5ForConditionalGeneration", T5), tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="session")
def marian(tmp_path_factory) -> Pair:
    return lively(Case("MarianMTModel", MARIAN), tmp_path_factory.mktemp("marian"))


@pytest.fixture(scope="session")
def translator() -> EncoderDecoder:
    return tiny_translator()


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat – naïve café €5"] * 5, kind="char", size=40)
