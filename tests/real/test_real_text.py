"""The Llama tokenizer of a published model, against transformers."""

from pathlib import Path

import pytest

from headway.preprocess.text import StreamDecoder, Tokenizer


@pytest.fixture(scope="module")
def folder(real_data: Path) -> Path:
    return real_data / "weights" / "stories15M"


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


TEXTS = ["Once upon a time, there was a girl.", "日本 😀 naïve", "  two  spaces\n\ttab", "", "</s>x"]


def test_same_ids_and_text_as_transformers(tokenizer: Tokenizer, folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    for place in (folder, tmp_path):
        theirs = transformers.AutoTokenizer.from_pretrained(place)
        for text in TEXTS[:-1]:
            ids = tokenizer.encode(text)
            assert ids == theirs(text)["input_ids"]
            assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True) == text
        assert "token_type_ids" not in theirs("a") or place == folder
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (1, 2, 0, None)
    assert tokenizer.max_length == 256 and len(tokenizer) == 32000


def test_typed_specials_are_text(tokenizer: Tokenizer) -> None:
    for name in ("<s>", "</s>", "<unk>"):
        assert not tokenizer.special_ids & set(tokenizer.encode(f"a {name}b", special=False))
        assert tokenizer.id(name) in tokenizer.encode(f"a {name}b", special=False, special_in_text=True)
        assert tokenizer.decode(tokenizer.encode(f"a {name}b")) == f"a {name}b"


def test_stream_equals_decode_with_byte_fallback(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        ids, stream = tokenizer.encode(text), StreamDecoder(tokenizer)
        pieces = [stream.push(i) for i in ids]
        assert "".join([*pieces, stream.finish()]) == text
        assert not any("\ufffd" in piece for piece in pieces)


def test_pieces_are_readable(tokenizer: Tokenizer) -> None:
    assert tokenizer.tokens(tokenizer.encode("Once upon\n")) == ["<s>", " Once", " upon", "\n"]
    assert tokenizer.tokens(tokenizer.encode("😀", special=False)) == [" ", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
