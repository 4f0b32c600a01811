"""Who may look at whom. True = may look. Masks combine with `&` and `|`.

The causal triangle, and texts laid end to end, are kept as a fact rather than a tensor for as long as possible: so the
fast kernel can use its own causal path, a single-token step needs no mask at all, and each text is met by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """`allowed` broadcasts to (batch, head, query, key); None allows everything. `causal` adds the triangle, aligned
    so that the last query is the last key. `texts` are the lengths of texts laid end to end, which do not see each
    other."""

    allowed: Tensor | None = None
    causal: bool = False
    texts: tuple[int, ...] | None = None

    def __and__(self, other: Mask) -> Mask:
        if self.allowed is None or other.allowed is None:
            allowed = other.allowed if self.allowed is None else self.allowed
        else:
            allowed = self.allowed & other.allowed
        return Mask(allowed, causal=self.causal or other.causal, texts=self.texts or other.texts)

    def __or__(self, other: Mask) -> Mask:
        if self.causal or other.causal or self.texts or other.texts:
            raise ValueError("`|` needs masks of known size: call .tensor(queries, keys, device) on the others first")
        if self.allowed is None or other.allowed is None:
            return Mask()
        return Mask(self.allowed | other.allowed)

    def tensor(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """The mask as a bool tensor, or None when everything may be seen."""
        allowed = self.allowed
        if self.texts is not None:
            counts = torch.tensor(self.texts, device=device)
            text = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)  # (key)
            same = text[-queries:, None] == text[None]  # (query, key)
            allowed = same if allowed is None else same & allowed
        if not self.causal or queries == 1:
            return allowed
        triangle = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)  # (query, key)
        return triangle if allowed is None else triangle & allowed


CAUSAL = Mask(causal=True)


def padding(padding_mask: Tensor) -> Mask:
    """From (batch, key) with nonzero = a real token. A mask without any padding is no mask."""
    keep = padding_mask.bool()
    return Mask() if bool(keep.all()) else Mask(keep[:, None, None, :])


def window(size: int, *, queries: int, keys: int, device: torch.device) -> Mask:
    """Each query sees itself and the `size - 1` keys before it (with the causal triangle: sliding-window attention)."""
    if keys <= size:
        return Mask()
    query = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)[None, :]
    return Mask(query - key < size)


def prefix(lengths: Tensor, *, queries: int, keys: int) -> Mask:
    """Causal, except that everyone may look at the first `lengths[b]` keys of row b (prefix language modelling)."""
    device = lengths.device
    seen = torch.arange(keys, device=device)[None, None, None, :] < lengths[:, None, None, None]
    triangle = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    return Mask(seen) | Mask(triangle)


def segments(packed: Tensor | tuple[int, ...]) -> Mask:
    """Packed rows: a token sees only its own segment. (batch, length) with one number per packed example, or, for a
    single row, the lengths of its examples."""
    if isinstance(packed, tuple):
        return Mask(texts=packed) if len(packed) > 1 else Mask()
    return Mask(packed[:, None, :, None] == packed[:, None, None, :])
