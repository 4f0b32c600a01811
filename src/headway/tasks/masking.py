"""BERT's masking (Devlin et al. 2019): of the tokens, 15% are chosen to be predicted; of those, 80% are
shown as [MASK], 10% as a random token and 10% as they are, so that every token has to be understood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.preprocess.text import Tokenizer

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1


@dataclass(frozen=True)
class Masking:
    mask_id: int
    special: np.ndarray  # (vocabulary,), True: never chosen, and never put in another token's place
    continues: np.ndarray  # (vocabulary,), True: goes on with the word before it
    whole_words: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, whole_words: bool) -> Masking:
        assert tokenizer.mask_id is not None
        special = np.zeros(len(tokenizer), dtype=bool)
        special[sorted(tokenizer.special_ids)] = True
        return cls(tokenizer.mask_id, special, _continues(tokenizer), whole_words)

    def choose(self, ids: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        """(length,), True where a token is to be predicted: 15% on average, and at least one if any can be."""
        free = np.flatnonzero(~self.special[ids])
        chosen = np.zeros(len(ids), dtype=bool)
        if not len(free):
            return chosen
        wanted = max(1, int(CHOSEN * len(free) + chance.random()))
        starts = ~self.continues[ids[free]] if self.whole_words else np.ones(len(free), dtype=bool)
        starts[0] = True
        word = np.cumsum(starts) - 1  # (free,), the word each token is of
        order = chance.permutation(int(word[-1]) + 1)
        covered = np.cumsum(np.bincount(word)[order])
        taken = order[: max(1, int(np.searchsorted(covered, wanted, side="right")))]
        chosen[free[np.isin(word, taken)]] = True
        return chosen

    def hide(self, ids: np.ndarray, chosen: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        """What the model is shown in place of `ids`."""
        lot = chance.random(len(ids))
        random = chance.choice(np.flatnonzero(~self.special), size=len(ids))
        shown = np.where(lot < MASKED, self.mask_id, np.where(lot < MASKED + RANDOM, random, ids))
        return np.where(chosen, shown, ids)


def _continues(tokenizer: Tokenizer) -> np.ndarray:
    """Pieces inside a word: marked by ## (WordPiece), or by the space they lack where spaces are part of pieces."""
    pieces = tokenizer.tokens(range(len(tokenizer)))
    marked = np.array([piece.startswith("##") and len(piece) > 2 for piece in pieces])
    spaced = np.array([piece[:1].isspace() for piece in pieces])
    return marked if marked.any() or not spaced.any() else ~spaced
