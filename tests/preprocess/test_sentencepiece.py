"""SentencePiece models read here give that library's pieces; damaged and hostile files are refused at once."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from support.sentencepiece_models import lines, trained
from support.timing import processor_seconds

from headway.errors import CheckpointError
from headway.preprocess.sentencepiece_file import MAX_PIECE, read_sentencepiece
from headway.preprocess.text import Tokenizer

sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is a test-only dependency")
LINES = lines(1200)
KINDS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram, bytes": dict(byte_fallback=True, size=600),
    "unigram, as it is": dict(rule="identity"),
    "unigram, spaces kept": dict(remove_extra_whitespaces=False, add_dummy_prefix=False),
    "unigram, case folded": dict(rule="nmt_nfkc_cf", user_defined_symbols="<sep>,.,€"),
    "bpe": dict(kind="bpe", size=700),
    "bpe, bytes, as LLaMA": dict(
        kind="bpe", size=800, byte_fallback=True, rule="identity", remove_extra_whitespaces=False
    ),
}


def folder_of(tmp_path: Path, file: bytes, *, name: str = "tokenizer.model", **files: Any) -> Path:
    (tmp_path / name).write_bytes(file)
    for key, content in files.items():
        (tmp_path / f"{key}.json").write_text(json.dumps(content))
    return tmp_path


def library(file: bytes) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=file)


def differing(tokenizer: Tokenizer, theirs: Any, *, offset: int = 0) -> list[str]:
    """The lines whose ids differ, but for equally good segmentations, which rounding orders."""

    def total(ids: list[int]) -> float:
        return sum(theirs.get_score(i - offset if i > 3 else 0) for i in ids)

    out = []
    for line in LINES:
        ours, wanted = (
            tokenizer.encode(line, special=False),
            [i + offset if i else 3 * offset for i in theirs.encode(line)],
        )
        if ours != wanted and not (sorted(ours) == sorted(wanted) and abs(total(ours) - total(wanted)) < 1e-3):
            out.append(line)
    return out


@pytest.mark.parametrize("name", KINDS)
def test_ids_and_text_are_the_library_s(name: str, tmp_path: Path) -> None:
    file = trained(**KINDS[name])
    tokenizer, theirs = Tokenizer.load(folder_of(tmp_path, file)), library(file)
    assert len(tokenizer) == len(theirs)
    assert differing(tokenizer, theirs) == []
    unknown = theirs.unk_id()
    for line in LINES:
        ids = theirs.encode(line)
        if unknown not in ids and "▁" not in line:
            assert tokenizer.decode(ids) == theirs.decode(ids)
    assert tokenizer.roles == {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    assert tokenizer.encode("the fox")[0] == 1 and tokenizer.encode("the fox")[-1] != 2


def test_a_plain_conversion_would_differ(tmp_path: Path) -> None:
    """Negative control: without a part of the normaliser."""
    file = trained()
    tokenizer, theirs = Tokenizer.load(folder_of(tmp_path, file)), library(file)
    for part in ("Precompiled", "NFC", "Prepend"):
        spec = json.loads(tokenizer._full.to_str())
        spec["normalizer"]["normalizers"] = [s for s in spec["normalizer"]["normalizers"] if s["type"] != part]
        (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
        assert len(differing(Tokenizer.load(tmp_path), theirs)) > 20, part


def test_saved_as_a_tokenizer_json_it_is_the_same(tmp_path: Path) -> None:
    file = trained("bpe", size=700)
    tokenizer = Tokenizer.load(folder_of(tmp_path, file))
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.roles == tokenizer.roles and again.digest == tokenizer.digest
    assert [again.encode(line) for line in LINES] == [tokenizer.encode(line) for line in LINES]


CODES = ["de_DE", "en_XX", "fr_XX"]
T5_SPECIALS = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
BERT_SPECIALS = dict(pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
                     unk_piece="[UNK]")  # fmt: skip
XLNET_SPECIALS = dict(control_symbols="<cls>,<sep>,<pad>,<mask>", user_defined_symbols=".,–,€")
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str, dict[str, str]]] = {
    # family: file, training options, files of the folder, what is put around A and B, roles
    "t5": ("spiece.model", T5_SPECIALS, {}, "A </s> B </s>", {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"}),
    "deberta-v2": (
        "spm.model", BERT_SPECIALS, {}, "[CLS] A [SEP] B [SEP]",
        {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "[PAD]", "unk": "[UNK]"},
    ),
    "xlnet": (
        "spiece.model", XLNET_SPECIALS, {}, "A <sep> B <sep> <cls>",
        {"bos": "<s>", "eos": "</s>", "cls": "<cls>", "sep": "<sep>", "mask": "<mask>", "pad": "<pad>", "unk": "<unk>"},
    ),
    "xlm-roberta": (
        "sentencepiece.bpe.model", {}, {}, "<s> A </s> </s> B </s>",
        {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "mask": "<mask>", "pad": "<pad>", "unk": "<unk>"},
    ),
    "mbart": ("sentencepiece.bpe.model", {}, {}, "A B </s> en_XX", {"eos": "</s>", "mask": "<mask>"}),
    "mbart-50": (
        "sentencepiece.bpe.model", {},
        {
            "special_tokens_map": {"additional_special_tokens": CODES},
            "tokenizer_config": {"tokenizer_class": "MBart50Tokenizer", "src_lang": "de_DE"},
        },
        "de_DE A B </s>", {"eos": "</s>", "mask": "<mask>"},
    ),
    "llama": ("tokenizer.model", {}, {"tokenizer_config": {"add_eos_token": True}}, "<s> A </s> <s> B </s>", {}),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_special_tokens_are_the_family_s(family: str, tmp_path: Path) -> None:
    name, options, files, around, roles = FAMILIES[family]
    file = trained(size=420, **options)
    files["config"] = {"model_type": family.removesuffix("-50")}
    tokenizer, theirs = Tokenizer.load(folder_of(tmp_path, file, name=name, **files)), library(file)
    offset = 1 if name == "sentencepiece.bpe.model" else 0
    assert roles.items() <= tokenizer.roles.items()
    if not theirs.unk_id():
        assert differing(tokenizer, theirs, offset=offset) == []
    pair = tokenizer.encode_pair("the fox", "all you need")
    names = [
        "AB"[part] if part is not None else tokenizer.token(i) for i, part in zip(pair.ids, pair.parts, strict=True)
    ]
    assert " ".join(n for i, n in enumerate(names) if not (i and n in "AB" and names[i - 1] == n)) == around
    size = len(theirs) + offset
    if family == "t5":
        assert len(tokenizer) == size + 100 and tokenizer.id("<extra_id_0>") == size + 99
    elif "mbart" in family:
        codes = 3 if family == "mbart-50" else 25
        assert (tokenizer.id("de_DE"), tokenizer.mask_id) == (size + (0 if codes == 3 else 2), size + codes)
    elif "mask" in roles and family != "xlnet":
        assert tokenizer.mask_id == size
    text = f"the {tokenizer.roles.get('mask', '</s>')} fox"
    assert not tokenizer.special_ids - {tokenizer.unk_id} & set(tokenizer.encode(text, special=False))


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def piece(text: bytes, *, score: float = -1.0, kind: int = 1) -> bytes:
    return field(1, field(1, text) + b"\x15" + struct.pack("<f", score) + bytes([3 << 3, kind]))


UNK = piece(b"<unk>", kind=2)
DAMAGED = {
    "empty": (b"", "exactly one piece of the type unknown"),
    "text": (b"IUE= 0\nIg== 1\n", "not a SentencePiece model"),
    "a length past the end": (UNK + b"\x0a\xff\xff\xff\xff\x07", "where 0 are left"),
    "an endless number": (UNK + b"\x08" + b"\xff" * 40, "more than 10 bytes"),
    "a group": (UNK + b"\x0b", "wire type 3"),
    "a cut number": (UNK + b"\x0a\x80", "ends within a number"),
    "not UTF-8": (UNK + piece(b"\xff"), "not a SentencePiece model"),
    "a score without end": (UNK + piece(b"a", score=float("nan")), "score nan"),
    "an unknown type": (UNK + piece(b"a", kind=9), "type 9"),
    "a short score": (UNK + field(1, field(1, b"a") + field(2, b"abc")), "not a SentencePiece model"),
    "two equal pieces": (UNK + piece(b"a") * 2, "two pieces are equal"),
    "words": (UNK + piece(b"a") + field(2, b"\x18\x03"), "of the type word; unigram and bpe are read"),
    "a number for a text": (UNK + b"\x08\x01", "a number where bytes"),
    "a bad table": (UNK + piece(b"a") + field(3, field(2, b"\x08\0\0\0abc")), "damaged"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_named(name: str, tmp_path: Path) -> None:
    content, words = DAMAGED[name]
    with pytest.raises(CheckpointError, match=f"(?s)tokenizer.*{words}|{words}"):
        Tokenizer.load(folder_of(tmp_path, content))


def test_every_truncation_is_an_error_or_another_model(tmp_path: Path) -> None:
    content = trained()
    for end in range(0, len(content), len(content) // 60):
        try:
            read_sentencepiece(folder_of(tmp_path, content[:end]) / "tokenizer.model")
        except CheckpointError as error:
            assert "tokenizer.model" in str(error)


def test_hostile_files_are_refused_at_once(tmp_path: Path) -> None:
    many = UNK + b"".join(piece(f"{n}".encode()) for n in range(5)) * 6_000
    long = b"\x0a\x84\x04\x0a\x81\x04" + b"a" * (MAX_PIECE + 1)
    for content, words in ((many, "two pieces are equal"), (UNK + long, "more than 512 characters")):
        (tmp_path / "tokenizer.model").write_bytes(content)

        def load(words: str = words) -> None:
            with pytest.raises(CheckpointError, match=words):
                Tokenizer.load(tmp_path)

        assert processor_seconds(load, limit=2) < 2


def test_a_table_that_makes_long_texts_is_refused(tmp_path: Path) -> None:
    from headway.preprocess.tokenizer_limits import check_limits

    def step(texts: bytes) -> dict[str, Any]:
        import base64

        content = base64.b64encode(b"\4\0\0\0" + b"\0" * 4 + texts).decode()
        return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": content}, "model": {}}

    check_limits(step(b"ss\0" * 100), "x")
    with pytest.raises(CheckpointError, match="makes 1,000 bytes of one character"):
        check_limits(step(b"a" * 1000 + b"\0"), "x")


def test_marian_reads_with_one_model_and_writes_with_the_other(tmp_path: Path) -> None:
    """The ids are those of vocab.json, in any order; a code of the language is one token."""
    source, target = trained(size=300), trained(size=300, seed=1, kind="bpe")
    models = library(source), library(target)
    tokens = {model.id_to_piece(i) for model in models for i in range(3, len(model))}
    vocabulary = {token: i for i, token in enumerate(["</s>", "<unk>", *sorted(tokens), ">>fra<<", "<pad>"])}
    folder_of(tmp_path, source, name="source.spm", vocab=vocabulary, config={"model_type": "marian"})
    tokenizer = Tokenizer.load(folder_of(tmp_path, target, name="target.spm"))
    assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (0, 1, len(vocabulary) - 1)
    for side, theirs in ((tokenizer, models[0]), (tokenizer.target, models[1])):
        for line in LINES[:400]:
            wanted = [vocabulary.get(piece, 1) if i else 1 for i, piece in
                      zip(theirs.encode(line), theirs.encode(line, out_type=str), strict=True)]  # fmt: skip
            ids = side.encode(line)
            assert ids[-1] == 0 and (ids[:-1] == wanted or sorted(ids[:-1]) == sorted(wanted)), line
    text = "the quick brown fox"
    assert [tokenizer.encode(x) for x in LINES] != [tokenizer.target.encode(x) for x in LINES]  # the models do differ
    assert tokenizer.decode(tokenizer.target.encode(text)) == tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(f">>fra<< {text}") == [vocabulary[">>fra<<"], *tokenizer.encode(text)]
    (tmp_path / "again").mkdir()
    tokenizer.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert again.encode(text) == tokenizer.encode(text) and again.target.encode(text) == tokenizer.target.encode(text)
    (tmp_path / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 5}))
    with pytest.raises(CheckpointError, match=r"vocab\.json: the ids of 2 tokens are not 0, 1, 2"):
        Tokenizer.load(tmp_path)
