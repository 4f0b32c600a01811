"""Terms that an answer must contain, in any order: lexically constrained beam search with dynamic beam allocation
(Post and Vilar 2018). The beams are divided among banks by how many tokens of the terms a sequence has, so that the
model chooses where a term stands. An answer ends when it has them all, and each stands as words of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from headway.generation.filters import History
from headway.preprocess.text import Tokenizer

Term = tuple[int, ...]  # token ids
Candidate = list[float]  # score, parent · vocab + token, the model's own log-probability
PROBE = "a"  # a word before a term, whose tokens are those inside a text


@dataclass(frozen=True)
class ForcedTerms:
    """The filter that keeps an answer from ending without its terms, and a word from going on after one."""

    terms: tuple[Term, ...]
    end_ids: tuple[int, ...]
    tokenizer: Tokenizer

    @property
    def size(self) -> int:
        return sum(map(len, self.terms))

    def new_state(self) -> TermState:
        return TermState(self)

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        states = cast(list[TermState], history.states(self))
        forbidden = torch.zeros(scores.shape, dtype=torch.bool)
        for row, state in enumerate(states):
            if state.left:
                forbidden[row, list(self.end_ids)] = True
            if state.closed:
                forbidden[row, word_tokens(self.tokenizer)] = True
        return scores.masked_fill(forbidden.to(scores.device), -math.inf)

    def allocate(
        self, candidates: Iterable[Candidate], states: Sequence[TermState], *, width: int, vocab: int
    ) -> list[Candidate]:
        """The candidates to go on with: those that end, then `width` others, an equal number from each bank."""
        banks: list[list[Candidate]] = [[] for _ in range(self.size + 1)]
        ending = list[Candidate]()
        for place, candidate in sorted({int(each[1]): each for each in candidates}.items(), key=lambda c: -c[1][0]):
            parent, token = divmod(place, vocab)
            if candidate[0] == -math.inf:
                continue
            if token in self.end_ids:
                ending.append(candidate)
            else:
                banks[states[parent].after(token).met].append(candidate)
        share, rest = divmod(width, len(banks))
        chosen = [each for bank in banks for each in bank[:share]]
        ranked = [bank[share:] for bank in reversed(banks)]  # what is left, most tokens first
        chosen += [each for bank in ranked for each in bank][: width - len(chosen)]
        best = sorted([*ending, *banks[-1]], key=lambda each: -each[0])[: share + rest]
        return [each for each in ending if each in best] + sorted(chosen, key=lambda each: -each[0])


class TermState:
    """How far one answer has its terms."""

    complete = False  # something may always follow

    def __init__(self, rule: ForcedTerms) -> None:
        self.rule = rule
        self.left = tuple(range(len(rule.terms)))  # terms that it lacks
        self.begun: tuple[tuple[int, int], ...] = ()  # of these, those that its last tokens begin: (term, tokens)
        self.closed = False  # its last token ends a term

    @property
    def met(self) -> int:
        """Tokens of terms that it has."""
        lacking = sum(len(self.rule.terms[term]) for term in self.left)
        return self.rule.size - lacking + max((count for _, count in self.begun), default=0)

    def following(self) -> set[int]:
        """The tokens that bring it further."""
        begun = {self.rule.terms[term][count] for term, count in self.begun}
        return begun or {self.rule.terms[term][0] for term in self.left}

    def push(self, token: int) -> None:
        terms = self.rule.terms
        grown = [(term, count + 1) for term, count in self.begun if terms[term][count] == token]
        grown += [(term, 1) for term in self.left if terms[term][0] == token]
        ended = [term for term, count in grown if count == len(terms[term])]
        self.closed = bool(ended)
        if ended:
            longest = max(ended, key=lambda term: len(terms[term]))
            self.left = tuple(term for term in self.left if term != longest)
        self.begun = () if ended else tuple(grown)

    def copy(self) -> TermState:
        return copy(self)

    def after(self, token: int) -> TermState:
        out = self.copy()
        out.push(token)
        return out


def term_ids(text: str, tokenizer: Tokenizer) -> Term:
    """The tokens of a term inside a text, after a space."""
    before, ids = tokenizer.encode(PROBE, special=False), tokenizer.encode(f"{PROBE} {text}", special=False)
    return tuple(ids[len(before) :])


@lru_cache(maxsize=4)
def word_tokens(tokenizer: Tokenizer) -> list[int]:
    """The tokens that go on with a word."""
    first = ((i, tokenizer.bytes_of(i).decode(errors="replace")[:1]) for i in range(len(tokenizer)))
    return [i for i, letter in first if letter.isalnum() and i not in tokenizer.special_ids]
