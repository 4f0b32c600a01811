"""The text of each token: the exact substring it covers, so that joined tokens give the text again."""

from __future__ import annotations

from collections.abc import Sequence

from headway.data.truncation import TruncationCounter
from headway.errors import InputError
from headway.explain.story import Token
from headway.preprocess.text import Tokenizer

HOW_TO_SHORTEN = "show a part of it with --first N or --last N (first=, last= in Python)"


class NoTruncation(TruncationCounter):
    """Raises where the base class would truncate."""

    def exceeds(self, length: int, limit: int, *, part: str, where: str) -> bool:
        if length > limit:
            raise InputError(f"the {part} has {length:,} tokens, the model takes {limit:,}; {HOW_TO_SHORTEN}")
        return False


def tokens(tokenizer: Tokenizer | None, ids: Sequence[int], texts: Sequence[str] = ()) -> list[Token]:
    """`texts` are what the ids were encoded from, in order; a token outside all of them has its vocabulary string."""
    strings = token_strings(tokenizer, ids)
    at = 0
    for text in texts:
        assert tokenizer is not None
        found, spans = tokenizer.encode_offsets(text, special=False)
        start = _find(ids, found, at)
        if start is not None:
            at = start + len(found)
            strings[start:at] = _substrings(text, spans, strings[start:at])
    special = frozenset() if tokenizer is None else tokenizer.special_ids
    return [
        Token(text, index if isinstance(index, int) else 0, index in special)  # a word of characters has no id
        for text, index in zip(strings, ids, strict=True)
    ]


def token_strings(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[str]:
    """The tokens' strings in the vocabulary; `#id` for an id outside it, the id itself without a tokenizer."""
    if tokenizer is None:
        return [str(index) for index in ids]
    known = len(tokenizer)
    return [
        tokenizer.tokens([index])[0] if not isinstance(index, int) or index < known else f"#{index}" for index in ids
    ]


def truncate(tokenizer: Tokenizer, text: str, *, first: int | None = None, last: int | None = None) -> str:
    """The substring that the first or the last tokens of a text cover."""
    _, spans = tokenizer.encode_offsets(text, special=False)
    if first is not None and first < len(spans):
        return text[: spans[first - 1][1]]
    if last is not None and last < len(spans):
        return text[spans[-last][0] :]
    return text


def _find(ids: Sequence[int], part: Sequence[int], start: int) -> int | None:
    row, size = list(ids), len(part)
    return next((at for at in range(start, len(row) - size + 1) if size and row[at : at + size] == list(part)), None)


def _substrings(text: str, spans: Sequence[tuple[int, int]], own: Sequence[str]) -> list[str]:
    """The substrings of `text`, each with the space before it. Tokens that share a character keep their vocabulary
    strings, which show bytes."""
    out, done = [], 0
    for number, (span, name) in enumerate(zip(spans, own, strict=True)):
        shared = span in spans[max(number - 1, 0) : number] or span in spans[number + 1 : number + 2]
        if shared or span[1] <= done:
            out.append(name)
        else:
            out.append(text[done : span[1]])
        done = max(done, span[1])
    return out
