"""Which way is better: the one table of scores with their direction."""

from __future__ import annotations

LOWER_IS_BETTER = frozenset({"loss", "perplexity", "bits_per_byte", "mae", "wer", "cer", "wer_normalized"})


def is_better_higher(score: str) -> bool:
    return score not in LOWER_IS_BETTER
