"""The next words of a text: their probabilities are sums over all divisions into tokens, by exhaustive search."""

from typing import Any

import pytest
import torch
from support.variants import SIZE, random_model

from headway.generation.next_words import next_words
from headway.models.recipes import decoder


class Letters:
    """A tokenizer in which "ab" is one token or two; 0 ends a text."""

    pieces = (None, b"a", b"b", b"ab", b" ", b" a", b".", b"\n")
    controls = frozenset({"</s>"})

    def __len__(self) -> int:
        return len(self.pieces)

    def id(self, name: str) -> int:
        return 0

    def bytes_of(self, index: int) -> bytes:
        return self.pieces[index] or b"</s>"


LETTERS: Any = Letters()


def first_word(rest: bytes) -> bytes | None:
    """The first word or punctuation, if it cannot grow."""
    at = len(rest) - len(rest.lstrip(b" \n"))
    if at == len(rest):
        return None
    kind = b"." if rest[at : at + 1] == b"." else b"ab"
    end = len(rest) - len(rest[at:].lstrip(kind))
    return rest[:end] if end < len(rest) or kind == b"." else None


def brute_force(model: Any, given: list[int], tail: bytes, *, depth: int) -> dict[bytes, float]:
    """Every sequence of tokens up to a length, and what it adds to which word."""
    words: dict[bytes, float] = {}
    begun = 0.0

    def visit(ids: tuple[int, ...], text: bytes, mass: float) -> None:
        nonlocal begun
        if len(ids) == depth:
            return
        covered = len(text) >= len(tail)
        with torch.no_grad():
            scores = model(torch.tensor([[*given, *ids]])).logits[0, -1].softmax(-1).tolist()
        for token, piece in enumerate(LETTERS.pieces):
            chance = mass * scores[token]
            if piece is None:
                rest = text[len(tail) :]
                word = rest if rest.strip() else b""
                if covered:
                    words[word] = words.get(word, 0.0) + chance
                continue
            longer = text + piece
            if not (longer.startswith(tail) or tail.startswith(longer)):
                continue
            begun += chance if not covered and len(longer) >= len(tail) else 0.0
            ended = first_word(longer[len(tail) :]) if len(longer) >= len(tail) else None
            if ended is None:
                visit((*ids, token), longer, chance)
            else:
                words[ended] = words.get(ended, 0.0) + chance

    visit((), b"", 1.0)
    return {word: value / begun for word, value in words.items()}


@pytest.mark.parametrize(("given", "tail"), [([1, 4], b" "), ([5, 1], b"a"), ([1, 3], b"ab")])
def test_probabilities_are_those_of_an_exhaustive_search(given: list[int], tail: bytes) -> None:
    model = random_model(decoder(SIZE, "modern", vocab=len(LETTERS), context=32))
    expected = brute_force(model, given[:-1], tail, depth=4)
    found = next_words(model, given, tokenizer=LETTERS, top=1000, width=1000, depth=4)  # nothing is left out
    assert {word.text.encode(): word.probability for word in found} == pytest.approx(expected, abs=1e-6)
    assert len(expected) > 10
    few = next_words(model, given, tokenizer=LETTERS, top=3)
    assert [word.text for word in few] == [word.text for word in found[:3]]
