"""Keys and values of the past: a value owned by the caller, never by a module.

Every row has a length of its own: token t of a row is column t, and no column holds padding. Buffers are allocated
ahead and grow by doubling, so a step writes one column instead of copying the past. Columns behind a row's length are
zero or left over from longer rows; masks keep them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headway.layers.positions import Positions


class LayerCache:
    """Keys and values of one attention layer: buffers of (row, kv_head, column, d), with rows and columns that are not
    in use."""

    def __init__(self, capacity: int = 0):
        self.rows = 0  # in use
        self.columns = 0  # in use: the length of the longest row
        self.capacity = capacity
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def keys(self) -> Tensor:
        assert self._keys is not None
        return self._keys[: self.rows, :, : self.columns]

    @property
    def values(self) -> Tensor:
        assert self._values is not None
        return self._values[: self.rows, :, : self.columns]

    def append(self, keys: Tensor, values: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor]:
        """Writes the new columns, (row, kv_head, new, d), and returns everything so far. Without `positions` they go
        behind the columns in use."""
        columns = None if positions is None else positions.columns
        end = self.columns + keys.shape[2] if positions is None else positions.keys
        all_keys, all_values = self.reserve(keys, values, end)
        if columns is None:
            all_keys[:, :, end - keys.shape[2] : end] = keys
            all_values[:, :, end - keys.shape[2] : end] = values
        else:
            rows = torch.arange(len(keys), device=keys.device)[:, None]
            all_keys[rows, :, columns] = keys.transpose(1, 2)
            all_values[rows, :, columns] = values.transpose(1, 2)
        self.columns = end
        return self.keys, self.values

    def reserve(self, keys: Tensor, values: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """The buffers, with space for `end` columns of such rows. Whoever writes to them sets `columns`."""
        if self._keys is None or self._values is None or end > self._keys.shape[2]:
            size = max(end, self.capacity, 2 * self.columns)
            used = (keys[:, :, :0], values[:, :, :0]) if self._keys is None else (self.keys, self.values)
            self._keys, self._values = (_copied(each, len(keys), size) for each in used)
        self.rows = len(keys)
        return self._keys[: self.rows], self._values[: self.rows]

    def select(self, rows: Tensor, *, ragged: bool = False) -> None:
        """`ragged`: the rows have different lengths, so that columns behind a row's length may be in use."""
        if self._keys is not None and self._values is not None:
            self._keys = self._chosen(self._keys, rows, ragged)
            self._values = self._chosen(self._values, rows, ragged)
            self.rows = len(rows)

    def fill_gaps(self, rows: Sequence[int]) -> None:
        """As `select`, of rows that stay where they are or come from behind (see `fills_gaps`): only those are copied,
        and the space behind is kept for rows that join."""
        for buffer in (self._keys, self._values):
            for place, row in enumerate(rows):
                if row != place and buffer is not None:
                    buffer[place] = buffer[row]
        self.rows = len(rows)

    def _chosen(self, buffer: Tensor, rows: Tensor, ragged: bool) -> Tensor:
        shape = len(rows), *buffer.shape[1:]
        out = buffer.new_zeros(shape) if ragged else buffer.new_empty(shape)
        torch.index_select(buffer[:, :, : self.columns], 0, rows, out=out[:, :, : self.columns])
        return out

    def append_rows(self, other: LayerCache) -> None:
        if other._keys is None or other._values is None:
            return
        if self._keys is None or self._values is None:
            self._keys, self._values, self.rows, self.columns = other._keys, other._values, other.rows, other.columns
            return
        columns, rows = max(self.columns, other.columns), self.rows + other.rows
        room, size = self._keys.shape[0], max(columns, self._keys.shape[2], self.capacity)
        if rows > room or size > self._keys.shape[2]:
            room = max(rows, room + room // 2)
            self._keys, self._values = (_copied(each, room, size) for each in (self.keys, self.values))
        for mine, theirs in ((self._keys, other.keys), (self._values, other.values)):
            mine[self.rows : rows, :, : other.columns] = theirs
            mine[self.rows : rows, :, other.columns :] = 0
        self.rows, self.columns = rows, columns

    def truncate(self, columns: int) -> None:
        self.columns = min(self.columns, columns)

    @property
    def fixed(self) -> bool:
        """Whether attention reads what is here and computes no further keys and values."""
        return False


class SharedCache(LayerCache):
    """Keys and values of several passes through one layer: the first computes them and the others read them."""

    def __init__(self, inner: LayerCache | None = None, positions: Positions | None = None):
        """`inner`, if any, holds the past, to which the new ones are appended at `positions`."""
        super().__init__()
        self.inner, self.positions = inner, positions

    @property
    def fixed(self) -> bool:
        return self._keys is not None

    def append(self, keys: Tensor, values: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor]:
        if self.inner is not None:
            keys, values = self.inner.append(keys, values, self.positions)
        self._keys, self._values, self.rows, self.columns = keys, values, len(keys), keys.shape[2]
        return keys, values


def _copied(used: Tensor, rows: int, columns: int) -> Tensor:
    """A buffer that begins with these rows and columns."""
    out = used.new_zeros(rows, used.shape[1], columns, used.shape[3])
    out[: len(used), :, : used.shape[2]] = used
    return out


def fills_gaps(rows: Sequence[int]) -> bool:
    """Whether each row stays in its place or comes from behind the last place."""
    return all(row == place or row >= len(rows) for place, row in enumerate(rows)) and len(set(rows)) == len(rows)


class BlockCache(NamedTuple):
    """What one block of a decoder keeps."""

    attention: LayerCache | None
    cross: LayerCache | None


@dataclass(frozen=True)
class Encoded:
    """What a decoder reads of sources: the encoder's output."""

    memory: Tensor  # (row, source, width)
    padding_mask: Tensor | None = None  # (row, source), True = real
    positions: Tensor | None = None  # (row, source, width), added to the inputs of the cross-attention's keys

    def __len__(self) -> int:
        """Length of the sources."""
        return self.memory.shape[1]


class KeyValueCache:
    """What a decoder keeps between steps: a LayerCache per layer and, for an encoder-decoder, the cross-attention's
    keys and values of the source (computed once) with the source's own mask."""

    can_truncate = True

    def __init__(self, layers: int, *, rows: int, capacity: int = 0):
        self.lengths = [0] * rows  # tokens of each row
        self.layers = [LayerCache(capacity) for _ in range(layers)]
        self.cross = [LayerCache() for _ in range(layers)]
        self.memory: Tensor | None = None  # the encoder's output (row, source, width)
        self.memory_padding_mask: Tensor | None = None  # (row, source)
        self.memory_positions: Tensor | None = None  # added to the inputs of the cross-attention's keys
        self.before_layer: Callable[[], None] | None = None  # called before each layer of a step, which it may end
        self._sources = list(range(rows))  # rows with equal numbers have the same source

    def __len__(self) -> int:
        return len(self.lengths)

    def block(self, layer: int) -> BlockCache:
        if self.before_layer is not None:
            self.before_layer()
        return BlockCache(self.layers[layer], self.cross[layer])

    def advance(self, lengths: Sequence[int]) -> None:
        """Counts the tokens that were appended to each row."""
        self.lengths = [past + new for past, new in zip(self.lengths, lengths, strict=True)]
        self.truncate(self.lengths)

    def select(self, rows: Sequence[int]) -> None:
        """Keeps, repeats and reorders rows (beams that live on, sequences that are not finished)."""
        if list(rows) == list(range(len(self))):
            return
        device = next((layer.keys.device for layer in self.layers if layer.columns), None)
        device = self.memory.device if device is None and self.memory is not None else device
        index = torch.tensor(rows, dtype=torch.long, device=device)
        ragged = len(set(self.lengths)) > 1
        for layer in self.layers:
            layer.fill_gaps(rows) if fills_gaps(rows) else layer.select(index, ragged=ragged)
        self.lengths = [self.lengths[row] for row in rows]
        self.truncate(self.lengths)
        sources = [self._sources[row] for row in rows]
        if sources == self._sources:  # beams that change places within one request
            return
        self._sources = sources
        for layer in self.cross:
            layer.select(index)
        for name in ("memory", "memory_padding_mask", "memory_positions"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value.index_select(0, index))

    def append_rows(self, other: KeyValueCache) -> None:
        """Adds the rows of another cache of the same model behind its own; the other is not used any more."""
        if not self.lengths:
            self.__dict__.update(other.__dict__)
            return
        for mine, theirs in zip((*self.layers, *self.cross), (*other.layers, *other.cross), strict=True):
            mine.append_rows(theirs)
        if self.memory is not None and other.memory is not None:
            self.memory_padding_mask = joined_padding(
                self.memory, self.memory_padding_mask, other.memory, other.memory_padding_mask
            )
            self.memory = joined(self.memory, other.memory)
        if self.memory_positions is not None and other.memory_positions is not None:
            self.memory_positions = joined(self.memory_positions, other.memory_positions)
        first = max(self._sources, default=-1) + 1
        self._sources += [first + number for number in other._sources]
        self.lengths += other.lengths

    def truncate(self, lengths: Sequence[int]) -> None:
        """Forgets all but the first `lengths[row]` tokens of each row."""
        self.lengths = [min(old, new) for old, new in zip(self.lengths, lengths, strict=True)]
        for layer in self.layers:
            layer.truncate(max(self.lengths, default=0))


def joined(first: Tensor, second: Tensor) -> Tensor:
    """Rows of (row, length, …) behind each other, the shorter ones filled up with zeros."""
    out = first.new_zeros(len(first) + len(second), max(first.shape[1], second.shape[1]), *first.shape[2:])
    out[: len(first), : first.shape[1]] = first
    out[len(first) :, : second.shape[1]] = second
    return out


def joined_padding(
    first: Tensor, first_mask: Tensor | None, second: Tensor, second_mask: Tensor | None
) -> Tensor | None:
    """The padding mask of two sources (row, length, …) whose rows are joined; None: nothing is padded."""
    if first_mask is None and second_mask is None and first.shape[1] == second.shape[1]:
        return None
    masks = [
        source.new_ones(source.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
        for source, mask in ((first, first_mask), (second, second_mask))
    ]
    return joined(*masks)
