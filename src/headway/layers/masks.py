"""Who may attend to whom. True = may attend. Masks combine with `&` and `|`.

The causal triangle, and sequences laid end to end, stay symbolic for as long as possible: so the fused kernel can use
its own causal path, a single-token step needs no mask at all, and packed sequences are attended to one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """`allowed` broadcasts to (batch, head, query, key); None allows everything. `causal` adds the triangle, aligned
    so that the last query is the last key. `sequence_lengths` are the lengths of sequences laid end to end in one row,
    which do not attend to each other; with `window`, their queries attend to keys less than so many tokens away."""

    allowed: Tensor | None = None
    causal: bool = False
    sequence_lengths: tuple[int, ...] | None = None
    window: int | None = None

    def __and__(self, other: Mask) -> Mask:
        if self.allowed is None or other.allowed is None:
            allowed = other.allowed if self.allowed is None else self.allowed
        else:
            allowed = self.allowed & other.allowed
        lengths = self.sequence_lengths or other.sequence_lengths
        sizes = [size for size in (self.window, other.window) if size is not None]
        causal = self.causal or other.causal
        return Mask(allowed, causal=causal, sequence_lengths=lengths, window=min(sizes, default=None))

    def __or__(self, other: Mask) -> Mask:
        if any(mask.causal or mask.sequence_lengths or mask.window for mask in (self, other)):
            raise ValueError("`|` needs masks of known size: call .tensor(queries, keys, device) on the others first")
        if self.allowed is None or other.allowed is None:
            return Mask()
        return Mask(self.allowed | other.allowed)

    def tensor(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """The mask as a bool tensor, or None when everything is allowed."""
        allowed = self.allowed
        if self.sequence_lengths is not None:
            number = sequence_numbers(self.sequence_lengths, device)  # (key)
            same = number[-queries:, None] == number[None]  # (query, key)
            allowed = same if allowed is None else same & allowed
        if self.window is not None and keys > self.window:
            place = torch.arange(keys, device=device)
            near = (place[-queries:, None] - place).abs() < self.window  # (query, key)
            allowed = near if allowed is None else near & allowed
        if not self.causal or queries == 1:
            return allowed
        triangle = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)  # (query, key)
        return triangle if allowed is None else triangle & allowed


NO_MASK = Mask()
CAUSAL = Mask(causal=True)


def sequence_numbers(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """The number of the sequence that each token belongs to, (length), for sequences laid end to end."""
    numbers = torch.arange(len(lengths), device=device)
    return torch.repeat_interleave(numbers, torch.tensor(lengths, device=device), output_size=sum(lengths))


def padding(padding_mask: Tensor) -> Mask:
    """From (batch, key) with nonzero = a real token. Nothing is read back from the device: whoever knows that no token
    is padding passes no mask instead, which is faster."""
    return Mask(padding_mask.bool()[:, None, None, :])


def window(size: int, distances: Tensor, *, causal: bool) -> Mask:
    """Sliding-window attention. `distances` is query position − key position, (…, query, key). With the causal triangle
    a query sees itself and the `size - 1` keys before it; without, also as many behind it."""
    return Mask((distances if causal else distances.abs()) < size)


def prefix(lengths: Tensor, *, queries: int, keys: int) -> Mask:
    """Causal, except that all queries of row b may attend to its first `lengths[b]` keys (prefix language model)."""
    device = lengths.device
    seen = torch.arange(keys, device=device)[None, None, None, :] < lengths[:, None, None, None]
    triangle = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    return Mask(seen) | Mask(triangle)


def permutation(order: Tensor, *, include_self: bool = True) -> Mask:
    """Autoregression in another order than that of the text (XLNet, Yang et al. 2019): `order` is (batch, length), the
    step at which each token is predicted. A query attends to tokens of earlier steps and, in the content stream, to
    itself."""
    query, key = order[:, None, :, None], order[:, None, None, :]
    return Mask(key <= query if include_self else key < query)


def segments(numbers: Tensor) -> Mask:
    """Packed rows: a token attends only to its own segment. `numbers` is (batch, length), one number per segment."""
    return Mask(numbers[:, None, :, None] == numbers[:, None, None, :])
