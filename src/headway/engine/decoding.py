"""A compiled decoding step: the program, its buffers, and the tables that depend on position."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headway.engine.interpreter import entry_point
from headway.engine.lowering import Program
from headway.engine.matmul import max_compiled_tokens
from headway.engine.opcodes import CACHE_FIELDS, FRAME_SIZE, Buffer, CacheField, Frame
from headway.engine.thread_pool import thread_pool
from headway.engine.workspace import Workspace
from headway.layers.cache import KeyValueCache, LayerCache
from headway.layers.linear import Linear
from headway.layers.positions import LearnedPositions, SinusoidalPositions, positions_of
from headway.models.decoder import Decoder

MAX_TOKENS = 256  # of all rows in one step …
MAX_ROW_TOKENS = 128  # … and of one row: torch reads more of it as fast, and can stop between two layers
FEW_TOKENS = 64  # for which the products with the weights take most of the time, however long the past is


class CompiledStep:
    """A program with its memory."""

    def __init__(self, decoder: Decoder, program: Program):
        self.decoder, self.program, self.pool = decoder, program, thread_pool()
        self.instructions, self.constants = program.tables()
        self.frame = np.zeros(FRAME_SIZE, dtype=np.int64)
        self.cache_table = np.zeros((len(decoder.stack.blocks), CACHE_FIELDS), dtype=np.int64)
        self.frame[Frame.BARRIER], self.frame[Frame.THREADS] = self.pool.barrier, self.pool.size
        self.workspace = Workspace(program, threads=self.pool.size)
        self.tables = PositionTables(decoder)
        widest = decoder.stack.blocks[0].feedforward.up  # type: ignore[union-attr]
        self.max_tokens = MAX_TOKENS
        if isinstance(widest, Linear):
            self.max_tokens = max_compiled_tokens(widest.weight, limit=MAX_TOKENS)
        self.vocab, self.addresses = decoder.config.embedding.vocab, tensor_addresses(decoder)

    def is_stale(self) -> bool:
        """Whether the model's tensors have moved, or the number of threads has changed."""
        return self.pool is not thread_pool() or self.addresses != tensor_addresses(self.decoder)

    def takes(self, ids: Tensor, cache: KeyValueCache) -> bool:
        """Whether this is faster than torch: its attention is from about as many keys on as the model is wide."""
        (_, new), most = ids.shape, self.decoder.config.stack.block.width
        few = ids.numel() <= FEW_TOKENS or (new <= MAX_ROW_TOKENS and max(cache.lengths) + new <= most)
        return ids.numel() <= self.max_tokens and few

    def step(self, ids: Tensor, cache: KeyValueCache, *, every: bool) -> Tensor:
        """The logits after each row's last new token (rows, vocab), or after every one (rows, new, vocab)."""
        (rows, new), frame = ids.shape, self.frame
        past = np.array(cache.lengths, dtype=np.int64)
        length, memory_length = int(past.max()) + new, cache.cross[0].columns
        positions = past[:, None] + np.arange(new)  # (rows, new), contiguous
        memory_mask = None if cache.memory_padding_mask is None else cache.memory_padding_mask.bool()
        ids = ids.contiguous()
        out = torch.empty(rows * new if every else rows, self.vocab)
        frame[Frame.BATCH], frame[Frame.NEW_TOKENS], frame[Frame.LAST_ONLY] = rows, new, not every
        frame[Frame.TOKEN_IDS], frame[Frame.POSITIONS] = ids.data_ptr(), positions.ctypes.data
        frame[Frame.PAST_LENGTHS], frame[Frame.MEMORY_LENGTH] = past.ctypes.data, memory_length
        frame[Frame.MEMORY_MASK], frame[Frame.MEMORY_MASK_STRIDE] = _address_and_stride(memory_mask)
        self.tables.write(frame, length)
        attention = self.decoder.config.stack.block.attention
        fresh = torch.empty(1).expand(rows, attention.kv_heads or attention.heads, new, attention.head_size)
        for row, layer, cross in zip(self.cache_table, cache.layers, cache.cross, strict=True):
            write_cache_row(row, layer, cross, fresh=fresh, length=length)
        buffers = self.workspace.addresses(rows * new, keys=max(length, memory_length))
        buffers[:, Buffer.OUTPUT] = out.data_ptr()
        self.pool.run(entry_point.address, self.instructions, self.constants, frame, self.cache_table, buffers)
        cache.advance([new] * rows)
        return out.view(rows, new, self.vocab) if every else out


def tensor_addresses(decoder: Decoder) -> list[int]:
    return [tensor.data_ptr() for tensor in (*decoder.parameters(), *decoder.buffers())]


def write_cache_row(row: np.ndarray, layer: LayerCache, cross: LayerCache, *, fresh: Tensor, length: int) -> None:
    """Writes the addresses of one layer's keys and values, with space for `length` columns of the shape of `fresh`."""
    keys, values = layer.reserve(fresh, fresh, length)
    layer.columns = length
    row[CacheField.KEYS], row[CacheField.VALUES] = keys.data_ptr(), values.data_ptr()
    row[CacheField.CAPACITY] = keys.shape[2]
    if cross.columns:
        keys, values = cross.reserve(cross.keys, cross.values, cross.columns)
        row[CacheField.MEMORY_KEYS], row[CacheField.MEMORY_VALUES] = keys.data_ptr(), values.data_ptr()
        row[CacheField.MEMORY_CAPACITY] = keys.shape[2]


def _address_and_stride(mask: Tensor | None) -> tuple[int, int]:
    """Of a mask over keys (batch, keys); the stride is in bytes."""
    return (0, 0) if mask is None else (mask.data_ptr(), mask.stride(0))


class PositionTables:
    """Rotary angles, position embeddings and score biases by distance, for all positions up to `count`."""

    def __init__(self, decoder: Decoder):
        self.decoder, self.count, self.version = decoder, 0, -1
        self._angles: tuple[Tensor, Tensor] | None = None
        self._embeddings: Tensor | None = None
        self._score_bias: Tensor | None = None

    def write(self, frame: np.ndarray, length: int) -> None:
        """Writes the addresses of the tables, which then cover `length` positions."""
        stack, positions = self.decoder.stack, self.decoder.embedding.positions
        version = sum(weight._version for weight in stack.relative_bias.parameters()) if stack.relative_bias else 0
        if length > self.count or version != self.version:
            self.count, self.version = max(2 * length, 512), version
            self._compute()
        if self._angles is not None:
            frame[Frame.COS], frame[Frame.SIN] = (angle.data_ptr() for angle in self._angles)
        if isinstance(positions, LearnedPositions):
            table = positions.table.weight
            frame[Frame.POSITION_TABLE] = table.data_ptr() + 4 * positions.offset * table.shape[1]
        elif self._embeddings is not None:
            frame[Frame.POSITION_TABLE] = self._embeddings.data_ptr()
        if self._score_bias is not None:
            frame[Frame.SCORE_BIAS], frame[Frame.SCORE_BIAS_STRIDE] = self._score_bias.data_ptr(), self.count

    def _compute(self) -> None:
        stack, embedding = self.decoder.stack, self.decoder.embedding
        cpu = torch.device("cpu")
        every = positions_of(self.count, device=cpu)
        for rotary in stack.rotaries.values():  # lowering refuses more than one
            cos, sin = rotary(every, dtype=torch.float32)
            self._angles = cos.contiguous(), sin.contiguous()
        if isinstance(embedding.positions, SinusoidalPositions):
            self._embeddings = embedding.positions(every).contiguous()
        if stack.relative_bias is not None:
            bias = stack.relative_bias(positions_of(1, device=cpu, past=[self.count - 1]))
            self._score_bias = bias[0, :, 0].flip(-1).float().contiguous()  # (head, distance)
