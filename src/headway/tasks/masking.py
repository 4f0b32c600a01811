"""BERT's masking (Devlin et al. 2019): 15% of the tokens are predicted; of those, 80% are replaced by [MASK], 10% by a
random token, and 10% are left unchanged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.preprocess.text import Tokenizer

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1


@dataclass(frozen=True)
class Masking:
    mask_id: int
    special: np.ndarray  # (vocabulary,), True: never masked, and never a random replacement
    continues: np.ndarray  # (vocabulary,), True: continues the word of the token before
    whole_words: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, whole_words: bool) -> Masking:
        assert tokenizer.mask_id is not None
        special = np.zeros(len(tokenizer), dtype=bool)
        special[sorted(tokenizer.special_ids)] = True
        return cls(tokenizer.mask_id, special, _continues(tokenizer), whole_words)

    def choose(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(length,), True where a token is predicted: 15% on average, and at least one if any can be."""
        free = np.flatnonzero(~self.special[ids])
        chosen = np.zeros(len(ids), dtype=bool)
        if not len(free):
            return chosen
        wanted = max(1, int(CHOSEN * len(free) + rng.random()))
        starts = ~self.continues[ids[free]] if self.whole_words else np.ones(len(free), dtype=bool)
        starts[0] = True
        word = np.cumsum(starts) - 1  # (free,), the word of each token
        order = rng.permutation(int(word[-1]) + 1)
        covered = np.cumsum(np.bincount(word)[order])
        taken = order[: max(1, int(np.searchsorted(covered, wanted, side="right")))]
        chosen[free[np.isin(word, taken)]] = True
        return chosen

    def apply(self, ids: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """`ids` with the chosen tokens replaced."""
        draw = rng.random(len(ids))
        random = rng.choice(np.flatnonzero(~self.special), size=len(ids))
        shown = np.where(draw < MASKED, self.mask_id, np.where(draw < MASKED + RANDOM, random, ids))
        return np.where(chosen, shown, ids)


def _continues(tokenizer: Tokenizer) -> np.ndarray:
    """Tokens inside a word: those with ## (WordPiece), or without a leading space where tokens include spaces."""
    pieces = tokenizer.tokens(range(len(tokenizer)))
    marked = np.array([piece.startswith("##") and len(piece) > 2 for piece in pieces])
    spaced = np.array([piece[:1].isspace() for piece in pieces])
    return marked if marked.any() or not spaced.any() else ~spaced
