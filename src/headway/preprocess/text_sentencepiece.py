"""Folders with a SentencePiece model and no tokenizer.json → the rules of one.

The model numbers its pieces; a family may number them otherwise. Fairseq's models (XLM-R, mBART, NLLB; the file is
`sentencepiece.bpe.model`) put four special tokens first, and language codes and the mask last. T5 adds sentinels.
Marian has a table of ids (`vocab.json`) for the pieces of two models, one a language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError
from headway.preprocess.sentencepiece_file import CONTROL, NORMAL, Piece, SentencePieceModel, read_sentencepiece
from headway.preprocess.sentencepiece_rules import Entry, rules
from headway.preprocess.text_roles import LLAMA, MARIAN, T5, UNKNOWN, Convention, convention_of

FAIRSEQ_FILE = "sentencepiece.bpe.model"
FILES = ("spiece.model", "tokenizer.model", FAIRSEQ_FILE, "spm.model")
MARIAN_FILES = ("vocab.json", "source.spm", "target.spm")
LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Za-z]{2,4}")  # en_XX, eng_Latn
SENTINELS = 100  # of T5, unless its settings say otherwise
MAX_SENTINELS = 10_000
CC25 = [  # the languages of the first mBART, whose files do not list them, in the order of their ids
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX", "kk_KZ",
    "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN",
]  # fmt: skip


@dataclass(frozen=True)
class SentencePieces:
    """`rules` without what is put around a text, and `convention`, which says that, with the token of a language."""

    rules: dict[str, Any]
    convention: Convention
    language: str | None = None
    hidden: frozenset[str] = frozenset()  # tokens that are decoded and that no text gives


def single_model(
    path: Path, *, settings: Mapping[str, Any], config: Mapping[str, Any], extra: list[str]
) -> SentencePieces:
    """`extra`: the additional special tokens that the folder lists."""
    model, model_type = read_sentencepiece(path), config.get("model_type")
    languages: list[str] = []
    if path.name == FAIRSEQ_FILE:
        languages = [token for token in extra if LANGUAGE.fullmatch(token)]
        languages = languages or (CC25 if model_type == "mbart" else [])
        entries = _fairseq(model, languages, path, old=model_type == "camembert")
    else:
        entries = [(piece.text, piece) for piece in model.pieces]
    convention = convention_of({text for text, _ in entries})
    if convention is UNKNOWN:
        convention = replace(LLAMA, roles={})
    more = [convention.roles["mask"]] if "mask" in convention.optional else []
    if convention is T5:
        more = [f"<extra_id_{i}>" for i in reversed(range(_sentinels(settings, path)))]
    known = {text for text, _ in entries}
    entries += [(token, None) for token in more if token not in known]
    if not languages:
        return SentencePieces(rules(model, entries, path), convention)
    kind = str(settings.get("tokenizer_class") or config.get("tokenizer_class") or "")
    leads = kind.startswith(("MBart50", "Nllb")) and not settings.get("legacy_behaviour")
    single = "language:0 A:0 eos:0" if leads else "A:0 eos:0 language:0"
    convention = replace(convention, single=single, pair=single.replace("A:0", "A:0 B:0"))
    return SentencePieces(rules(model, entries, path), convention, _language(settings, languages))


def _language(settings: Mapping[str, Any], languages: list[str]) -> str:
    """The code of the texts' language: English unless the settings say otherwise."""
    stated = settings.get("src_lang")
    usual = next((code for code in languages if code in ("en_XX", "eng_Latn")), languages[0])
    return stated if stated in languages else usual


def _fairseq(model: SentencePieceModel, languages: list[str], path: Path, *, old: bool) -> list[Entry]:
    """<unk>, <s> and </s> of the model are replaced by the four first tokens, the others move by one. `old`: of
    CamemBERT, whose first tokens are five and unused, and stand before all pieces but <unk>."""
    if [piece.text for piece in model.pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        raise CheckpointError(
            f"{path}: the first pieces are not <unk>, <s> and </s>, as the models in such a file have"
        )
    unknown = model.pieces[0]
    pieces: list[Entry] = [(piece.text, piece) for piece in model.pieces[1 if old else 3 :]]
    if old:
        first: list[Entry] = [("<s>NOTUSED", None), ("<pad>", None), ("</s>NOTUSED", None), ("<unk>", unknown)]
        return [*first, ("<unk>NOTUSED", None), *pieces, ("<mask>", None)]
    first = [("<s>", None), ("<pad>", None), ("</s>", None), ("<unk>", unknown)]
    return [*first, *pieces, *((code, None) for code in languages), ("<mask>", None)]


def _sentinels(settings: Mapping[str, Any], path: Path) -> int:
    count = settings.get("extra_ids", SENTINELS)
    if not isinstance(count, int) or not 0 <= count <= MAX_SENTINELS:
        raise CheckpointError(
            f"{path.parent}: extra_ids is {count!r:.40}; expected a number from 0 to {MAX_SENTINELS:,}"
        )
    return count


def marian(path: Path, vocabulary: Mapping[str, int]) -> SentencePieces:
    """The ids of `vocabulary`, for the pieces of one of the two models. The pieces of the other are decoded too, and
    the language codes (>>fra<<) that a text may begin with are tokens of their own."""
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise CheckpointError(f"{path.parent / 'vocab.json'}: the ids of {len(vocabulary):,} tokens are not 0, 1, 2, …")
    model = read_sentencepiece(path)
    own = {piece.text: piece for piece in model.pieces if piece.kind != CONTROL}
    least = min((piece.score for piece in model.pieces if piece.kind == NORMAL), default=0.0)
    if model.unknown not in vocabulary:
        raise CheckpointError(f"{path.parent / 'vocab.json'}: {model.unknown!r} is missing, which {path.name} needs")
    special = {*MARIAN.roles.values(), model.unknown}
    entries: list[Entry] = []
    for text in sorted(vocabulary, key=vocabulary.__getitem__):
        other = None if text in special else Piece(text, least)
        entries.append((text, own.get(text, other)))
    found = rules(model, entries, path)
    codes = [text for text in vocabulary if text.startswith(">>") and text.endswith("<<")]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    found["added_tokens"] += [{"id": vocabulary[code], "content": code, **flags} for code in codes]
    return SentencePieces(found, MARIAN, hidden=frozenset(vocabulary.keys() - own.keys() - special - set(codes)))
