"""Folders of text models as they are published: a config, weights (tiny and random) and the tokenizer's files of the
first repository of each family, no more. Each is run by its task, as a user would."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import headway
from support.sentencepiece_models import WORDS, trained
from support.sounds import tone, wav

import headway as library
from headway.preprocess.speech_tokens import control_tokens
from headway.preprocess.text import Tokenizer

transformers = pytest.importorskip("transformers", reason="the reference library is a test-only dependency")
pytest.importorskip("sentencepiece", reason="sentencepiece is a test-only dependency")

TEXTS = [" ".join(WORDS[i % 30 :] + WORDS[: i % 30]) for i in range(60)]
WIDE = dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=24)
SEQ2SEQ = dict(d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
               encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64)  # fmt: skip
UNCASED = {"do_lower_case": True, "model_max_length": 512}
DEBERTA = dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, type_vocab_size=0)
LABELS = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
TAGS = {"id2label": {0: "O", 1: "B-place", 2: "I-place"}, "label2id": {"O": 0, "B-place": 1, "I-place": 2}}
BERT_PIECES = dict(pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
                   unk_piece="[UNK]")  # fmt: skip
XLNET_PIECES = dict(control_symbols="<cls>,<sep>,<pad>,<mask>", user_defined_symbols=".,–")


def wordpiece(folder: Path, *, whole: bool = True) -> int:
    """vocab.txt, and if `whole` tokenizer.json."""
    tokenizer = Tokenizer.train(TEXTS, kind="wordpiece", size=150, lowercase=True)
    if whole:
        tokenizer.save(folder)
    names = "".join(f"{tokenizer.token(i)}\n" for i in range(len(tokenizer)))
    (folder / "vocab.txt").write_text(names, encoding="utf-8")
    return len(tokenizer)


def byte_level(*first: str) -> Callable[[Path], int]:
    """vocab.json and merges.txt, with the family's special tokens first."""

    def write(folder: Path) -> int:
        tokenizer = Tokenizer.train(TEXTS, kind="bpe", size=300)
        tokenizer.save(folder)
        model = json.loads((folder / "tokenizer.json").read_text())["model"]
        (folder / "tokenizer.json").unlink()
        pieces = [p for p in sorted(model["vocab"], key=model["vocab"].get) if p not in tokenizer.roles.values()]
        vocabulary = {piece: i for i, piece in enumerate([*first, *pieces])}
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        merges = [" ".join(merge) for merge in model["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
        return len(vocabulary)

    return write


def with_tokenizer_json(write: Callable[[Path], int], folder: Path) -> int:
    size = write(folder)
    Tokenizer.load(folder).save(folder)
    return size


def pieces(name: str, *, more: int = 0, **options: Any) -> Callable[[Path], int]:
    """One SentencePiece model; `more` is the number of tokens that the family adds."""

    def write(folder: Path) -> int:
        import sentencepiece

        file = trained(**({"size": 300} | options))
        (folder / name).write_bytes(file)
        return len(sentencepiece.SentencePieceProcessor(model_proto=file)) + more

    return write


def marian(folder: Path) -> int:
    import sentencepiece

    names: set[str] = set()
    for seed, name in enumerate(("source.spm", "target.spm")):
        file = trained(size=300, seed=seed)
        (folder / name).write_bytes(file)
        model = sentencepiece.SentencePieceProcessor(model_proto=file)
        names |= {model.id_to_piece(i) for i in range(3, len(model))}
    vocabulary = ["</s>", "<unk>", *sorted(names), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(vocabulary)}))
    return len(vocabulary)


ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
IDS = dict(bos_token_id=0, pad_token_id=1, eos_token_id=2)
LLAMA = dict(kind="bpe", size=800, byte_fallback=True, rule="identity", remove_extra_whitespaces=False)
# family: class, config, tokenizer's files, tokenizer_config.json, input, what the first and last token of "the fox" are
FAMILIES: dict[str, tuple[str, dict[str, Any], Callable[[Path], int], dict[str, Any] | None, str, str]] = {
    "bert, fill": ("BertForMaskedLM", WIDE, wordpiece, UNCASED, "the [MASK] fox", "[CLS] [SEP]"),
    "bert, vocab.txt alone, embed": (
        "BertModel", WIDE, lambda folder: wordpiece(folder, whole=False), UNCASED, "the fox", "[CLS] [SEP]",
    ),
    "distilbert, fill": (
        "DistilBertForMaskedLM", dict(dim=16, n_heads=2, n_layers=1, hidden_dim=24), wordpiece, UNCASED,
        "the [MASK] fox", "[CLS] [SEP]",
    ),
    "distilbert, classify": (
        "DistilBertForSequenceClassification", dict(dim=16, n_heads=2, n_layers=1, hidden_dim=24) | LABELS, wordpiece,
        UNCASED, "the fox", "[CLS] [SEP]",
    ),
    "roberta, fill": (
        "RobertaForMaskedLM", WIDE | IDS | dict(max_position_embeddings=514),
        lambda folder: with_tokenizer_json(byte_level(*ROBERTA), folder), {"model_max_length": 512}, "the <mask> fox",
        "<s> </s>",
    ),
    "deberta, classify": (
        "DebertaForSequenceClassification", WIDE | DEBERTA | LABELS,
        byte_level("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"), {"do_lower_case": False, "vocab_type": "gpt2"},
        "the fox", "[CLS] [SEP]",
    ),
    "deberta-v3, tag": (
        "DebertaV2ForTokenClassification", WIDE | DEBERTA | TAGS | dict(position_buckets=16, share_att_key=True),
        pieces("spm.model", more=1, **BERT_PIECES), {"do_lower_case": False, "vocab_type": "spm"}, "the fox",
        "[CLS] [SEP]",
    ),
    "xlnet, generate": (
        "XLNetLMHeadModel", dict(d_model=16, n_head=2, n_layer=1, d_inner=24), pieces("spiece.model", **XLNET_PIECES),
        None, "the quick", "▁the <cls>",
    ),
    "xlnet, classify": (
        "XLNetForSequenceClassification", dict(d_model=16, n_head=2, n_layer=1, d_inner=24) | LABELS,
        pieces("spiece.model", **XLNET_PIECES), None, "the fox", "▁the <cls>",
    ),
    "xlm-roberta, embed": (
        "XLMRobertaModel", WIDE | IDS | dict(max_position_embeddings=514),
        pieces("sentencepiece.bpe.model", more=2), {"model_max_length": 512}, "the fox", "<s> </s>",
    ),
    "camembert, fill": (
        "CamembertForMaskedLM",
        WIDE | dict(pad_token_id=1, bos_token_id=5, eos_token_id=6, max_position_embeddings=514),
        pieces("sentencepiece.bpe.model", more=5), None, "the <mask> fox", "<s> </s>",
    ),
    "gpt2, generate": (
        "GPT2LMHeadModel", dict(n_embd=16, n_head=2, n_layer=1, bos_token_id=0, eos_token_id=0),
        byte_level("<|endoftext|>"), {"model_max_length": 1024}, "the quick", "t x",
    ),
    "llama, generate": (
        "LlamaForCausalLM", WIDE, pieces("tokenizer.model", **LLAMA), {"legacy": True}, "the quick", "<s> ▁fox",
    ),
    "t5, translate": (
        "T5ForConditionalGeneration", dict(d_model=16, d_kv=8, num_heads=2, d_ff=24, num_layers=1, n_positions=512),
        pieces("spiece.model", more=100, pad_id=0, eos_id=1, unk_id=2, bos_id=-1), {"model_max_length": 512}, "the fox",
        "▁the </s>",
    ),
    "bart, translate": (
        "BartForConditionalGeneration", SEQ2SEQ | dict(decoder_start_token_id=2, forced_eos_token_id=2) | IDS,
        byte_level(*ROBERTA), None, "the fox", "<s> </s>",
    ),
    "mbart, translate": (
        "MBartForConditionalGeneration", SEQ2SEQ | IDS | dict(normalize_before=True, decoder_start_token_id=5),
        pieces("sentencepiece.bpe.model", more=27), None, "the fox", "▁the en_XX",
    ),
    "marian, translate": (
        "MarianMTModel", SEQ2SEQ | dict(eos_token_id=0, forced_eos_token_id=0, decoder_start_token_id=5),
        marian, {"source_lang": "en", "target_lang": "de", "model_max_length": 64}, "the fox", "▁the </s>",
    ),
}  # fmt: skip


def published(name: str, folder: Path) -> Path:
    kind, config, write, settings, *_ = FAMILIES[name]
    folder.mkdir()
    size = write(folder)
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        (folder / "tokenizer_config.json").unlink(missing_ok=True)
    model = getattr(transformers, kind)
    more = {"pad_token_id": size - 1} if kind.startswith("Marian") else {}
    model(model.config_class(vocab_size=size, **config, **more)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_as_published_runs_by_its_task(name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    *_, text, ends = FAMILIES[name]
    folder, task = published(name, tmp_path / "model"), name.split(", ")[-1]
    limit = ["--max-new-tokens", "4"] if task in ("generate", "translate") else []
    done = headway("run", "model", text, "--json", *limit, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tokenizer" not in done.stderr
    bundle = library.load(folder)
    assert bundle.find_task().name == task
    tokenizer = bundle.processor.require_tokenizer("test")
    ids = tokenizer.encode("the fox")
    assert f"{tokenizer.token(ids[0])} {tokenizer.token(ids[-1])}" == ends
    assert max(ids) < len(tokenizer) <= bundle.model.vocab_size


def test_whisper_as_published_transcribes(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    size = byte_level()(folder)
    controls = {token: size + i for i, token in enumerate(control_tokens(2))}
    end, start = controls["<|endoftext|>"], controls["<|startoftranscript|>"]
    (folder / "added_tokens.json").write_text(json.dumps(controls))
    settings = {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk", "pad")}
    settings |= {"additional_special_tokens": [t for t in controls if "." not in t]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    features = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 16}
    (folder / "preprocessor_config.json").write_text(json.dumps(features))
    config = SEQ2SEQ | dict(num_mel_bins=16, max_source_positions=1500, max_target_positions=32)
    config |= dict(decoder_start_token_id=start, bos_token_id=end, eos_token_id=end, pad_token_id=end)
    config.pop("max_position_embeddings")
    theirs = transformers.WhisperConfig(vocab_size=size + len(controls), begin_suppress_tokens=None, **config)
    transformers.WhisperForConditionalGeneration(theirs).save_pretrained(folder)
    wav(tmp_path / "tone.wav", tone(1.0))
    done = headway("run", "model", "tone.wav", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tokenizer = library.load(folder).processor.require_tokenizer("test")
    assert tokenizer.eos_id == end and len(tokenizer) == size + len(controls)


def test_without_the_derived_special_tokens_fill_is_refused(tmp_path: Path) -> None:
    """Negative control: what the files of bert-base-uncased leave unsaid is what the task needs."""
    folder = published("bert, fill", tmp_path / "model")
    (folder / "special_tokens_map.json").write_text('{"unk_token": "[UNK]"}')
    done = headway("run", "model", "the [MASK] fox", cwd=tmp_path)
    assert done.returncode != 0 and "no mask token" in done.stderr


@pytest.mark.parametrize("name", ["deberta-v3, tag", "t5, translate"])
def test_a_model_of_relative_positions_has_its_tokenizer_s_limit(name: str, tmp_path: Path) -> None:
    """Config and tokenizer say 512; the model itself reads any length."""
    folder = published(name, tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    if name.startswith("deberta"):
        config = WIDE | DEBERTA | LABELS | dict(position_buckets=16, share_att_key=True)
        size = json.loads((folder / "config.json").read_text())["vocab_size"]
        kind = transformers.DebertaV2ForSequenceClassification
        kind(kind.config_class(vocab_size=size, max_position_embeddings=512, **config)).save_pretrained(folder)
    for stated, expected in ((512, 512), (None, 1024)):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": stated}))
        task = library.load(folder).find_task()
        assert (task.source_limit if name.startswith("t5") else task.limit) == expected
