"""A SentencePiece model → the rules of a tokenizer.json that gives the same pieces.

SentencePiece normalises the whole text, marks spaces as ▁ and segments the line in one go: so there is no
pre-tokenizer, and the marks are made by the normalizer. Pieces that no text may give (control, unused) become special
tokens.
"""

from __future__ import annotations

import base64
from typing import Any

from tokenizers import normalizers

from headway.errors import CheckpointError
from headway.preprocess.sentencepiece_file import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Piece,
    SentencePieceModel,
)

MARK = "▁"
MAX_SPLITS = 1 << 27  # characters compared to find the merges; ten times those of the largest published vocabulary
Entry = tuple[str, Piece | None]  # a token in the order of ids, and the piece of the model that it is


def rules(model: SentencePieceModel, entries: list[Entry], where: object) -> dict[str, Any]:
    """The content of a tokenizer.json whose token i is entry i; without what is put around a text."""
    special = [
        _added(i, text, special=True)
        for i, (text, piece) in enumerate(entries)
        if piece is None or piece.kind in (CONTROL, UNUSED, UNKNOWN)
    ]
    if model.kind == BPE:
        symbols = [
            _added(i, text, special=False)
            for i, (text, piece) in enumerate(entries)
            if piece is not None and piece.kind == USER_DEFINED
        ]
        segmentation = _bpe(model, entries, where)
    else:
        symbols, segmentation = [], _unigram(model, entries)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(special + symbols, key=lambda token: token["id"]),
        "normalizer": _normalizer(model),
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": _decoder(model),
        "model": segmentation,
    }


def _added(index: int, text: str, *, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": text, "special": special, **flags}


def _unigram(model: SentencePieceModel, entries: list[Entry]) -> dict[str, Any]:
    """The segmentation with the highest sum of scores (Kudo 2018). A symbol that users have defined scores so high, by
    its length in bytes, that it is taken wherever it occurs."""
    normal = [piece.score for piece in model.pieces if piece.kind == NORMAL] or [0.0]
    best, least = max(normal), min(normal)

    def score(piece: Piece | None) -> float:
        if piece is None or piece.kind in (CONTROL, UNUSED, UNKNOWN, BYTE):
            return (
                least  # never compared: no text gives it. The library derives the score of unknown text from the least
            )
        return len(piece.text.encode()) * best - 0.1 if piece.kind == USER_DEFINED else piece.score

    vocabulary = [[text, score(piece)] for text, piece in entries]
    unknown = next(i for i, (_, piece) in enumerate(entries) if piece is not None and piece.kind == UNKNOWN)
    return {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": model.byte_fallback}


def _bpe(model: SentencePieceModel, entries: list[Entry], where: object) -> dict[str, Any]:
    """Two neighbours are merged if together they are a piece, the best score first: every division of a piece into two
    others is a merge."""
    scores = {text: piece.score for text, piece in entries if piece is not None and piece.kind == NORMAL}
    if sum(len(text) ** 2 for text in scores) > MAX_SPLITS:
        raise CheckpointError(f"{where}: the pieces are too many and too long to find their merges; is it damaged?")
    merges: list[tuple[float, str, str]] = []
    for text, score in scores.items():
        merges += [
            (-score, text[:at], text[at:]) for at in range(1, len(text)) if {text[:at], text[at:]} <= scores.keys()
        ]
    merges.sort(key=lambda merge: merge[0])
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": model.byte_fallback,
        "ignore_merges": False,
        "vocab": {text: i for i, (text, _) in enumerate(entries)},
        "merges": [[left, right] for _, left, right in merges],
    }


def _normalizer(model: SentencePieceModel) -> dict[str, Any] | None:
    steps: list[dict[str, Any]] = []
    if model.charsmap:
        steps += _charsmap(model.charsmap)
    if model.strips_spaces:
        steps += [_replace({"Regex": r"\A +"}, ""), _replace({"Regex": " {2,}"}, " ")]
    if model.dummy_prefix:
        steps.append({"type": "Prepend", "prepend": MARK})
    steps.append(_replace({"String": " "}, MARK))
    if model.strips_spaces:
        steps.append(_replace({"Regex": rf"{MARK}+\z"}, ""))
    return {"type": "Sequence", "normalizers": steps}


def _charsmap(content: bytes) -> list[dict[str, Any]]:
    """The library looks up one character at a time, and a short one with its accents as a whole. SentencePiece's own
    tables also compose characters, as NFC does: before it those of the text, after it those that the table makes. A
    line end of two characters would be one; the other way round, which is the same if they become the same, it is not.
    """
    step = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}
    table = normalizers.Precompiled(content)
    steps = [step]
    if table.normalize_str("e\u0301") == "é":
        steps = [{"type": "NFC"}, step, {"type": "NFC"}]
    if table.normalize_str("\r") == table.normalize_str("\n"):
        steps.insert(0, _replace({"String": "\r\n"}, "\n\r"))
    return steps


def _decoder(model: SentencePieceModel) -> dict[str, Any]:
    steps = [_replace({"String": MARK}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if model.dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}
