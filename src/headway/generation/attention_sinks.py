"""What a model still sees of a text that has outgrown its context: the first few tokens, which
attention leans on whatever they say, and the last ones (attention sinks: Xiao et al. 2024, StreamingLLM).

As in the paper, positions count what is seen, not where it stood. The paper turns each key anew at every step; here the
text is read again, from the sinks and the later half, whenever the context is full. What is seen so depends on the
text's length alone, and every score is the one that a fresh reading of it would give.
"""

from __future__ import annotations

from collections.abc import Sequence

SINKS = 4


def sinks(context: int) -> int:
    return min(SINKS, context // 2)


def left_out(length: int, context: int) -> int:
    """How many tokens, behind the sinks, a text of `length` tokens is read without."""
    stride = max(1, (context - sinks(context)) // 2)
    return 0 if length <= context else -((context - length) // stride) * stride


def seen(ids: Sequence[int], context: int) -> list[int]:
    first = sinks(context)
    return [*ids[:first], *ids[first + left_out(len(ids), context) :]]
