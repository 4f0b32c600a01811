"""What can be asked of word vectors, as text: `king`, `king ~ queen`, `man : uncle :: woman`, `king - man + woman`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from headway.errors import InputError

SYNTAX = "a word (king), two to compare (king ~ queen), an analogy (man : uncle :: woman) or a sum (king - man + woman)"
ANALOGY = re.compile(r"\s*(\S+)\s+:\s+(\S+)\s+::\s+(\S+)\s*")
PAIR = re.compile(r"\s*(\S+)\s+~\s+(\S+)\s*")
SIGN = re.compile(r"\s+([+-])\s+")


@dataclass(frozen=True)
class Expression:
    """Words with a sign each: `nearest` is to the sum, `cosine` is between the two words."""

    kind: Literal["nearest", "cosine"]
    terms: tuple[tuple[str, int], ...]


def parse_expression(text: str, *, where: str) -> Expression:
    if found := ANALOGY.fullmatch(text):
        first, second, third = found.groups()  # first is to second as third is to the answer
        return Expression("nearest", ((second, 1), (first, -1), (third, 1)))
    if found := PAIR.fullmatch(text):
        return Expression("cosine", tuple((word, 1) for word in found.groups()))
    words, signs = SIGN.split(text.strip())[::2], SIGN.split(text.strip())[1::2]
    if any(len(word.split()) != 1 or word in ("+", "-", ":", "::", "~") for word in words):
        raise InputError(f"{where}: expected {SYNTAX}; found {text[:60]!r}. Signs have spaces around them")
    return Expression("nearest", tuple(zip(words, [1, *(1 if sign == "+" else -1 for sign in signs)], strict=True)))
