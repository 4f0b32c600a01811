"""The next whole words of a text, with their probabilities: autocompletion.

A word may be one token or several, in more than one division: its probability is the sum over them, each times that of
what may follow a word. The last token of the text is taken back and its characters required again ("token healing"), so
that a text that ends within a word, or with a space, is continued as well as any other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.errors import InputError
from headway.preprocess.text import Tokenizer

WIDTH = 64  # beginnings of words that are extended at a time
DEPTH = 12  # tokens of a word
REST = 0.005  # the search ends when the words that are not whole yet have less than this probability together
WORD = rb"[\w'\x80-\xff]"  # bytes of a word: letters, digits, apostrophes, and parts of longer characters
CHUNK = re.compile(rb"\s*(?:" + WORD + rb"+|[^\w\s'\x80-\xff]+)")  # a word or punctuation, with the space before it
IN_WORD = re.compile(rb"\s*" + WORD + rb"+\Z")
STARTS_WORD = re.compile(WORD)
LAST_WORD = re.compile(WORD + rb"+\Z")


@dataclass(frozen=True)
class NextWord:
    """`text` continues the given text, with the space before the word; empty: the text ends here. `word` is the whole
    word, also where the given text ends within it."""

    text: str
    word: str
    probability: float


@dataclass(frozen=True)
class _Beginning:
    text: bytes  # behind the text without its last token
    probability: float
    parent: int  # row of the cache
    token: int


class _Vocabulary:
    """The bytes of every token, and which tokens begin within a word."""

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        known = min(size, len(tokenizer))
        special = {tokenizer.id(name) for name in tokenizer.controls}
        pieces = [None if i in special else tokenizer.bytes_of(i) for i in range(known)]
        self.pieces: list[bytes | None] = pieces + [None] * (size - known)  # None: a control token, which ends a text
        self.ends = torch.tensor([piece is None for piece in self.pieces])
        self.in_word = torch.tensor([bool(piece and STARTS_WORD.match(piece)) for piece in self.pieces])


@torch.no_grad()
def next_words(
    model: Any, ids: Sequence[int], *, tokenizer: Tokenizer, top: int = 5, width: int = WIDTH, depth: int = DEPTH
) -> list[NextWord]:
    """The most probable words after the tokens `ids`, best first. What the search leaves out, beyond the `width` most
    probable beginnings, belongs to no word, so each probability is a lower bound."""
    if top < 1:
        raise InputError(f"top is {top}: give the number of words to suggest, at least 1")
    vocabulary = _Vocabulary(tokenizer, model.vocab_size)
    device = next(model.parameters()).device
    given, tail = _taken_back(list(ids), vocabulary)
    limit = model.max_context
    given = given if limit is None else given[-max(1, limit - depth) :]
    cache = model.new_cache(1)
    logits = model.step(torch.tensor([given], device=device), cache)  # (1, vocabulary)
    open_ = [_Beginning(b"", 1.0, 0, 0)]
    words: dict[bytes, float] = defaultdict(float)
    begun = 0.0  # probability of the characters of `tail`
    for _ in range(depth):
        found, mass = _extend(open_, logits.float().softmax(-1).cpu(), tail, vocabulary, words, width)
        begun += mass
        open_ = sorted(found, key=lambda each: -each.probability)[:width]
        if sum(each.probability for each in open_) < REST * begun or not open_:
            break
        cache.select([each.parent for each in open_])
        logits = model.step(torch.tensor([[each.token] for each in open_], device=device), cache)
    best = sorted(words.items(), key=lambda item: -item[1])[:top]
    begins = LAST_WORD.search(b"".join(vocabulary.pieces[i] or b"" for i in ids))
    partial = begins[0] if begins else b""
    return [
        NextWord(
            text.decode("utf-8", "replace"),
            (partial * bool(STARTS_WORD.match(text)) + text).decode("utf-8", "replace").strip(),
            min(1.0, value / begun),
        )
        for text, value in best
    ]


def _taken_back(ids: list[int], vocabulary: _Vocabulary) -> tuple[list[int], bytes]:
    """The tokens without the last one, and the characters of that one."""
    last = vocabulary.pieces[ids[-1]] if 0 <= ids[-1] < len(vocabulary.pieces) else None
    return (ids, b"") if last is None or len(ids) < 2 else (ids[:-1], last)


def _extend(
    open_: Sequence[_Beginning],
    probabilities: Tensor,  # (beginning, vocabulary)
    tail: bytes,
    vocabulary: _Vocabulary,
    words: dict[bytes, float],
    width: int,
) -> tuple[list[_Beginning], float]:
    """Beginnings with a token more, and the probability of those that now contain `tail`. Whole words are added to
    `words`."""
    found: list[_Beginning] = []
    covered = 0.0
    for row, (beginning, scores) in enumerate(zip(open_, probabilities, strict=True)):
        scores = scores * beginning.probability  # (vocabulary)
        rest = beginning.text[len(tail) :]
        complete = len(beginning.text) >= len(tail)
        if complete:
            if IN_WORD.match(rest):  # a word, which ends where the next token does not go on with it
                words[rest] += float(scores[~vocabulary.in_word].sum())
                scores = scores.masked_fill(~vocabulary.in_word, 0.0)
            elif not rest.strip():
                words[b""] += float(scores[vocabulary.ends].sum())
            if not beginning.text:
                covered += float(scores.sum())
        matching = _matching(scores, beginning.text, tail, vocabulary)
        values, tokens = matching.topk(min(4 * width, len(matching)))
        for value, token in zip(values.tolist(), tokens.tolist(), strict=True):
            piece = vocabulary.pieces[token]
            if value <= 0 or not piece:
                continue
            text = beginning.text + piece
            if not complete and len(text) >= len(tail):
                covered += value
            if len(text) >= len(tail) and (word := _ended(text[len(tail) :])) is not None:
                words[word] += value
            else:
                found.append(_Beginning(text, value, row, token))
    return found, covered


def _matching(scores: Tensor, text: bytes, tail: bytes, vocabulary: _Vocabulary) -> Tensor:
    """Zero for tokens that do not write the rest of `tail`."""
    needed = tail[len(text) :]
    if not needed:
        return scores
    allowed = [
        piece is not None and (piece.startswith(needed) or (bool(piece) and needed.startswith(piece)))
        for piece in vocabulary.pieces
    ]
    return scores.masked_fill(~torch.tensor(allowed), 0.0)


def _ended(rest: bytes) -> bytes | None:
    """The first word or punctuation behind the text, if it can no longer grow."""
    found = CHUNK.match(rest)
    if found is None:
        return None
    if found.end() < len(rest):
        return found[0]
    return None if IN_WORD.match(rest) else found[0]
