"""Reads a SentencePiece model (Kudo and Richardson 2018): pieces with scores, and the rules that normalise a text.

The file is a protocol buffer: fields of a number, a wire type and a value. It is untrusted, so lengths are checked
against what is there before anything is sliced, fields that are not needed are skipped, and sizes have limits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.checkpoints.header import read_bounded
from headway.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
KINDS = {UNIGRAM: "unigram", BPE: "bpe", 3: "word", 4: "char"}
MAX_BYTES = 64 << 20
MAX_PIECES = 2_000_000
MAX_PIECE = 512  # characters

Value = int | bytes


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int = NORMAL


@dataclass(frozen=True)
class SentencePieceModel:
    pieces: list[Piece]
    kind: int  # UNIGRAM or BPE
    charsmap: bytes = b""  # character sequences and what replaces them; empty: a text stays as it is
    dummy_prefix: bool = True  # a space before every text
    strips_spaces: bool = True  # at both ends, and all but one of several
    byte_fallback: bool = False

    @property
    def unknown(self) -> str:
        """The piece that stands for text which no piece covers."""
        return next(piece.text for piece in self.pieces if piece.kind == UNKNOWN)


def read_sentencepiece(path: Path) -> SentencePieceModel:
    content = read_bounded(path, limit=MAX_BYTES)
    try:
        return _model(content)
    except (ValueError, struct.error) as error:
        raise CheckpointError(
            f"{path}: not a SentencePiece model, or a damaged one ({error}); fetch it again"
        ) from error


def _model(content: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in _fields(content):
        if number == 1:
            pieces.append(_piece(_bytes(value)))
            if len(pieces) > MAX_PIECES:
                raise ValueError(f"more than {MAX_PIECES:,} pieces")
        elif number == 2:
            trainer |= dict(_fields(_bytes(value)))
        elif number == 3:
            normalizer |= dict(_fields(_bytes(value)))
    if sum(piece.kind == UNKNOWN for piece in pieces) != 1:
        raise ValueError("it needs exactly one piece of the type unknown")
    if len({piece.text for piece in pieces}) != len(pieces):
        raise ValueError("two pieces are equal")
    kind = trainer.get(3, UNIGRAM)
    if kind not in (UNIGRAM, BPE):
        raise ValueError(
            f"of the type {KINDS.get(kind, kind) if isinstance(kind, int) else '?'}; unigram and bpe are read"
        )
    if trainer.get(24):
        raise ValueError("it marks spaces at the end of words, which is not supported")
    if not normalizer.get(5, 1):
        raise ValueError("it does not escape spaces, which is not supported")
    return SentencePieceModel(
        pieces,
        kind,
        charsmap=_bytes(normalizer.get(2, b"")),
        dummy_prefix=bool(normalizer.get(3, 1)),
        strips_spaces=bool(normalizer.get(4, 1)),
        byte_fallback=bool(trainer.get(35, 0)),
    )


def _piece(content: bytes) -> Piece:
    fields = dict(_fields(content))
    text = _bytes(fields.get(1, b"")).decode("utf-8")
    (score,) = struct.unpack("<f", _bytes(fields.get(2, b"\0\0\0\0")))
    kind = fields.get(3, NORMAL)
    if not text or len(text) > MAX_PIECE or "\0" in text:
        raise ValueError(f"the piece {text!a:.40} is empty, has a NUL, or more than {MAX_PIECE} characters")
    if not math.isfinite(score) or not isinstance(kind, int) or not NORMAL <= kind <= BYTE:
        raise ValueError(f"the piece {text!a:.40} has the score {score} and the type {kind!r:.40}")
    return Piece(text, score, kind)


def _fields(content: bytes) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field; a value of four or eight bytes as these bytes."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(content, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(content, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of wire type {wire} at byte {at}")
        if length > len(content) - at:
            raise ValueError(f"a field of {length:,} bytes at byte {at}, where {len(content) - at:,} are left")
        yield number, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """(value, position after it): seven bits a byte, the lowest first, the eighth set where more follow."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            raise ValueError("it ends within a number")
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number of more than 10 bytes at byte {at}")


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes are expected")
    return value
