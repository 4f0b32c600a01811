"""Data room: running text as training examples: windows over one long stream of tokens, and packed rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.errors import ConfigError, DataError


class TokenStream:
    """Windows of `context + 1` tokens (input and its continuation), shifted anew each epoch."""

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
        """Windows an epoch; the same for every shift."""
        return max(1, (len(self.tokens) - self.context) // self.context)

    def shift(self, epoch: int, *, seed: int = 0) -> int:
        """How many tokens an epoch leaves out at the start, so that window borders wander."""
        room = min(self.context, len(self.tokens) - len(self) * self.context)
        return int(np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw() % room)

    def window(self, index: int, epoch: int = 0, *, seed: int = 0) -> np.ndarray:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start = self.shift(epoch, seed=seed) + index * self.context
        return self.tokens[start : start + self.context + 1]  # (context + 1,)


def pack(lengths: Sequence[int] | np.ndarray, size: int) -> list[list[int]]:
    """Rows of example indices whose lengths sum to at most `size`: first fit, longest first.

    The first row with room is found in a tree of the rows' largest rooms, so a million examples take seconds.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) and (longest := int(sizes.max())) > size:
        raise ConfigError(f"Example {int(sizes.argmax())} has {longest:,} tokens, more than a packed row of {size:,}.")
    leaves = 1 << max(0, len(sizes) - 1).bit_length()
    room = [size] * (2 * leaves)  # room[node] = the largest room of a row below it
    rows: list[list[int]] = []
    for index in np.argsort(-sizes, kind="stable").tolist():
        length, node = int(sizes[index]), 1
        while node < leaves:
            node = 2 * node if room[2 * node] >= length else 2 * node + 1
        if node - leaves == len(rows):
            rows.append([])
        rows[node - leaves].append(index)
        room[node] -= length
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return rows
