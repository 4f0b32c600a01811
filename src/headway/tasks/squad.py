"""Exact match and F1 of SQuAD (Rajpurkar et al. 2016, 2018): words without case, punctuation and articles, the best
over all references; for an unanswerable question only an empty answer is correct."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def words(text: str) -> list[str]:
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def exact(found: str, reference: str) -> float:
    return float(words(found) == words(reference))


def f1(found: str, reference: str) -> float:
    """Harmonic mean of precision and recall over words; an empty text matches only an empty text."""
    mine, theirs = words(found), words(reference)
    if not mine or not theirs:
        return float(mine == theirs)
    common = (Counter(mine) & Counter(theirs)).total()
    return 2 * common / (len(mine) + len(theirs))


def best(score: Callable[[str, str], float], found: str, references: Sequence[str]) -> float:
    """Over the references that have words; if none has, the answer must be empty."""
    return max(score(found, reference) for reference in [r for r in references if words(r)] or [""])


def report(found: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Means from 0 to 1: over all questions, over the answerable and over the unanswerable ones."""
    pairs = list(zip(found, references, strict=True))
    groups = {
        "": pairs,
        "_answerable": [pair for pair in pairs if any(map(words, pair[1]))],
        "_unanswerable": [pair for pair in pairs if not any(map(words, pair[1]))],
    }
    return {
        f"{score.__name__}{group}": sum(best(score, answer, refs) for answer, refs in members) / len(members)
        for group, members in groups.items()
        if members
        for score in (exact, f1)
    }
