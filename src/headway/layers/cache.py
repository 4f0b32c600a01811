"""Keys and values of the past: a value owned by the caller, never by a module.

Buffers are allocated ahead and grow by doubling, so a step writes one column instead of copying the past.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one attention layer, (batch, kv_head, length, d)."""

    def __init__(self, capacity: int = 0):
        self.length = 0
        self._room = capacity
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def keys(self) -> Tensor:
        assert self._keys is not None
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        assert self._values is not None
        return self._values[:, :, : self.length]

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes the new columns and returns everything so far."""
        end = self.length + keys.shape[2]
        all_keys, all_values = self.with_room(keys, values)
        all_keys[:, :, self.length : end] = keys
        all_values[:, :, self.length : end] = values
        self.length = end
        return self.keys, self.values

    def with_room(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The buffers themselves, with room for columns of these shapes behind what is written. Who writes them counts
        `length` on."""
        if self._keys is None or self._values is None or self.length + keys.shape[2] > self._keys.shape[2]:
            self._grow(keys, values)
        assert self._keys is not None and self._values is not None
        return self._keys, self._values

    def _grow(self, keys: Tensor, values: Tensor) -> None:
        room = max(self.length + keys.shape[2], self._room, 2 * self.length)
        new_keys = keys.new_empty(*keys.shape[:2], room, keys.shape[3])
        new_values = values.new_empty(*values.shape[:2], room, values.shape[3])
        if self._keys is not None:
            new_keys[:, :, : self.length] = self.keys
            new_values[:, :, : self.length] = self.values
        self._keys, self._values = new_keys, new_values

    def select(self, rows: Tensor) -> None:
        """Keeps and reorders batch rows (beams that live on, sequences that are not finished). Only what is written is
        copied; the room ahead stays empty."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._chosen(self._keys, rows), self._chosen(self._values, rows)

    def _chosen(self, buffer: Tensor, rows: Tensor) -> Tensor:
        out = buffer.new_empty(len(rows), *buffer.shape[1:])
        torch.index_select(buffer[:, :, : self.length], 0, rows, out=out[:, :, : self.length])
        return out

    def join(self, parts: Sequence[tuple[Tensor, LayerCache]], *, batch: int, length: int) -> None:
        """Takes what others hold for some rows each, ended at `length` alike; before it there is nothing."""
        like = parts[0][1]
        room = max(length, self._room)
        self._keys = like.keys.new_zeros(batch, like.keys.shape[1], room, like.keys.shape[3])
        self._values = like.values.new_zeros(batch, like.values.shape[1], room, like.values.shape[3])
        for rows, part in parts:
            self._keys[rows, :, length - part.length : length] = part.keys
            self._values[rows, :, length - part.length : length] = part.values
        self.length = length

    def truncate(self, length: int) -> None:
        self.length = min(self.length, length)


class KeyValueCache:
    """What a decoder remembers between steps: one LayerCache per layer, which tokens were padding, and, for an
    encoder-decoder, the cross-attention keys and values of the source (computed once) with the source's own mask."""

    def __init__(self, layers: int, *, capacity: int = 0):
        self.layers = [LayerCache(capacity) for _ in range(layers)]
        self.cross = [LayerCache() for _ in range(layers)]
        self.mask: Tensor | None = None  # (batch, length), False = padding; None = no padding so far
        self.memory: Tensor | None = None  # the encoder's output (batch, source, width)
        self.memory_mask: Tensor | None = None  # (batch, source)
        self._reads: Tensor | None = None  # which of the first rows' sources each row reads

    @property
    def length(self) -> int:
        return self.layers[0].length if self.layers else 0

    def extend_mask(self, mask: Tensor | None, *, batch: int, new: int, device: torch.device) -> Tensor | None:
        """Remembers which of the `new` tokens are real; returns the mask over everything so far (None = all real)."""
        if mask is None and self.mask is None:
            return None
        past = self.mask if self.mask is not None else torch.ones(batch, self.length, dtype=torch.bool, device=device)
        fresh = mask.bool() if mask is not None else torch.ones(batch, new, dtype=torch.bool, device=device)
        self.mask = torch.cat([past, fresh], dim=1)
        return self.mask

    def join(self, parts: Sequence[tuple[Tensor, KeyValueCache]], mask: Tensor) -> None:
        """Takes what others hold for some rows each: prompts that were read apart, padded on the left by `mask` (batch,
        length)."""
        batch, length = mask.shape
        for number, layer in enumerate(self.layers):
            layer.join([(rows, part.layers[number]) for rows, part in parts], batch=batch, length=length)
        self.mask = mask

    def select(self, rows: Tensor) -> None:
        """Keeps and reorders batch rows. Beams that change places within one request read the same source, so what was
        worked out from it stays where it is."""
        for layer in self.layers:
            layer.select(rows)
        if self.mask is not None:
            self.mask = self.mask.index_select(0, rows)
        reads = rows if self._reads is None else self._reads.index_select(0, rows)
        if self._reads is not None and torch.equal(reads, self._reads):
            return
        self._reads = reads
        for layer in self.cross:
            layer.select(rows)
        if self.memory is not None:
            self.memory = self.memory.index_select(0, rows)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, rows)

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        for layer in self.layers:
            layer.truncate(length)
        if self.mask is not None:
            self.mask = self.mask[:, :length]
