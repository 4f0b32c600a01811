"""Running text as training examples: windows over one long stream of tokens."""

from __future__ import annotations

import numpy as np

from headway.errors import ConfigError, DataError


class TokenStream:
    """Windows of `context + 1` tokens (inputs and shifted targets), at another offset each epoch."""

    def __init__(self, tokens: np.ndarray, context: int) -> None:
        if context < 1:
            raise ConfigError(f"A context of {context} tokens is too short; give at least 1.")
        if len(tokens) <= context:
            raise DataError(
                f"The text has {len(tokens):,} tokens, fewer than one window of {context + 1:,}; "
                "give more text or a shorter context."
            )
        self.tokens, self.context = tokens, context

    def __len__(self) -> int:
        """Windows per epoch; the same for every offset."""
        return max(1, (len(self.tokens) - self.context) // self.context)

    def offset(self, epoch: int, *, seed: int = 0) -> int:
        """Tokens skipped at the start of an epoch, so that window borders differ between epochs."""
        available = min(self.context, len(self.tokens) - len(self) * self.context)
        return int(np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw() % available)

    def window(self, index: int, epoch: int = 0, *, seed: int = 0) -> np.ndarray:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start = self.offset(epoch, seed=seed) + index * self.context
        return self.tokens[start : start + self.context + 1]  # (context + 1,)
