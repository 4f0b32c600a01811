"""Tokens as a person reads them: the exact pieces of the text they stand for, put together again they
are the text. Nothing is cut unless it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from headway.data.truncation import Ledger
from headway.errors import InputError
from headway.explain.story import Token
from headway.preprocess.text import Tokenizer

ADVICE = "show a part of it with --first N or --last N (first=, last= in Python)"


class Whole(Ledger):
    """A ledger that never has anything to count: what does not fit is refused."""

    def fit(self, ids: list[int], limit: int, *, part: str, where: str, last: int | None = None) -> list[int]:
        if len(ids) > limit:
            raise InputError(f"the {part} has {len(ids):,} tokens, the model takes {limit:,}; {ADVICE}")
        return ids


def tokens(tokenizer: Tokenizer | None, ids: Sequence[int], texts: Sequence[str] = ()) -> list[Token]:
    """`texts` are what the ids were made from, in order; a token that stands for none of them goes by its own name."""
    spelt = names(tokenizer, ids)
    at = 0
    for text in texts:
        assert tokenizer is not None
        found, spans = tokenizer.encode_offsets(text, special=False)
        place = _place(ids, found, at)
        if place is not None:
            at = place + len(found)
            spelt[place:at] = _spelt(text, spans, spelt[place:at])
    special = frozenset() if tokenizer is None else tokenizer.special_ids
    return [Token(text, index, index in special) for text, index in zip(spelt, ids, strict=True)]


def names(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[str]:
    """As the vocabulary spells them; a number where it has none for them."""
    if tokenizer is None:
        return [str(index) for index in ids]
    known = len(tokenizer)
    return [tokenizer.tokens([index])[0] if index < known else f"#{index}" for index in ids]


def cut(tokenizer: Tokenizer, text: str, *, first: int | None = None, last: int | None = None) -> str:
    """The first or the last so many tokens of a text, by the text's own characters."""
    _, spans = tokenizer.encode_offsets(text, special=False)
    if first is not None and first < len(spans):
        return text[: spans[first - 1][1]]
    if last is not None and last < len(spans):
        return text[spans[-last][0] :]
    return text


def _place(ids: Sequence[int], wanted: Sequence[int], start: int) -> int | None:
    row, size = list(ids), len(wanted)
    return next((at for at in range(start, len(row) - size + 1) if size and row[at : at + size] == list(wanted)), None)


def _spelt(text: str, spans: Sequence[tuple[int, int]], own: Sequence[str]) -> list[str]:
    """The space before a piece is part of it. Tokens that share a character show their bytes, as they do by name."""
    out, done = [], 0
    for number, (span, name) in enumerate(zip(spans, own, strict=True)):
        shared = span in spans[max(number - 1, 0) : number] or span in spans[number + 1 : number + 2]
        if shared or span[1] <= done:
            out.append(name)
        else:
            out.append(text[done : span[1]])
        done = max(done, span[1])
    return out
