"""Published tokenizers: the ids and offsets of the library that reads their files, on 10,000 lines of varied Unicode.

`HEADWAY_TOKENIZERS` (or `tokenizers` in the folder of real data) holds a folder for each: `tokenizer.json`, or a
SentencePiece model. dev/LOG.md says where they are from.
"""

import os
from pathlib import Path

import pytest
from support.sentencepiece_models import lines
from tokenizers import Tokenizer as Backend

from headway.preprocess.sentencepiece_file import BPE, read_sentencepiece
from headway.preprocess.text import Tokenizer
from headway.preprocess.text_sentencepiece import FILES

LINES = lines(10_000)


@pytest.fixture(scope="module")
def folders(real_data: Path) -> list[Path]:
    place = Path(os.environ.get("HEADWAY_TOKENIZERS") or real_data / "tokenizers")
    if not place.is_dir():
        pytest.skip(f"no published tokenizers: {place} is not a folder (set HEADWAY_TOKENIZERS, see dev/LOG.md)")
    return sorted(each for each in place.iterdir() if each.is_dir())


def test_ids_and_offsets_are_those_of_the_file_s_own_library(folders: list[Path]) -> None:
    wrong: dict[str, list[str]] = {}
    compared = 0
    for folder in folders:
        if not (folder / "tokenizer.json").is_file():
            continue
        ours, theirs = Tokenizer.load(folder), Backend.from_file(str(folder / "tokenizer.json"))
        theirs.no_truncation()
        theirs.no_padding()
        texts = [line for line in LINES if not any(name in line for name in ours.controls)]  # text for us, not for it
        assert len(texts) > len(LINES) / 2
        for text, expected in zip(texts, theirs.encode_batch(texts), strict=True):
            found = ours._encode(text, special=True)
            if (found.ids, found.offsets) != (expected.ids, expected.offsets):
                wrong.setdefault(folder.name, []).append(text)
        compared += 1
    assert not wrong and compared


def test_sentencepiece_models_give_that_library_s_ids(folders: list[Path]) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    compared = 0
    for folder in folders:
        for name in set(FILES) - {FILES[2]}:
            if not (folder / name).is_file() or (folder / "tokenizer.json").is_file():
                continue
            ours = Tokenizer.load(folder)
            theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / name))
            model = read_sentencepiece(folder / name)
            wrong = 0
            for line in LINES:
                found, expected = ours.encode(line, special=False), theirs.encode(line)
                wrong += found != expected and sorted(found) != sorted(expected)  # equal scores are ordered by rounding
            assert wrong <= (0 if model.kind == BPE and not model.charsmap else len(LINES) / 1000), folder.name
            compared += 1
    if not compared:
        pytest.skip("no SentencePiece model without a tokenizer.json in the folder of tokenizers")
