"""Texts longer than the context: the model sees the first few tokens (attention sinks) and the last ones (Xiao et al.
2024, StreamingLLM).

As in the paper, positions count the tokens that are seen. The paper rotates every key again at each step; here the
text is prefilled again, from the sinks and the later half, whenever the context is full. What is seen depends on the
length of the text alone, and every score is that of a prefill of these tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

SINKS = 4


def sinks(context: int) -> int:
    """Number of first tokens that are always seen."""
    return min(SINKS, context // 2)


def dropped(length: int, context: int) -> int:
    """Number of tokens, after the sinks, that are not seen of a text of `length` tokens."""
    stride = max(1, (context - sinks(context)) // 2)
    return 0 if length <= context else -((context - length) // stride) * stride


def visible(ids: Sequence[int], context: int) -> list[int]:
    """The ids that are seen of a text."""
    first = sinks(context)
    return [*ids[:first], *ids[first + dropped(len(ids), context) :]]


def overflows(length: int, context: int) -> bool:
    """Whether the last of `length` tokens makes more tokens invisible, so that the rest must be prefilled again."""
    return dropped(length, context) > dropped(length - 1, context)
