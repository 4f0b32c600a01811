"""A step of a decoder on the machine: its plan, the memory it works in, and the tables that depend on
where a token stands."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headway.engine.interpreter import enter
from headway.engine.lowering import Plan
from headway.engine.matmul import most_tokens
from headway.engine.opcodes import FRAME, SLOTS, Frame, Place, Slot
from headway.engine.thread_pool import crew
from headway.engine.workspace import Workspace
from headway.layers.cache import KeyValueCache, LayerCache
from headway.layers.linear import Linear
from headway.layers.positions import LearnedPositions, SinusoidalPositions, alibi_bias
from headway.models.decoder import Decoder
from headway.models.stack import positions_of

ROWS = 64  # the most tokens in a step


class Compiled:
    """A plan with its memory."""

    def __init__(self, decoder: Decoder, plan: Plan):
        self.decoder, self.plan, self.crew = decoder, plan, crew()
        self.program, self.numbers = plan.tables()
        self.frame = np.zeros(FRAME, dtype=np.int64)
        self.slots = np.zeros((len(decoder.stack.blocks), SLOTS), dtype=np.int64)
        self.frame[Frame.MEETING], self.frame[Frame.THREADS] = self.crew.meeting, self.crew.size
        self.workspace = Workspace(plan, threads=self.crew.size)
        self.tables = Tables(decoder)
        widest = decoder.stack.blocks[0].feedforward.up  # type: ignore[union-attr]
        self.most = most_tokens(widest.weight, limit=ROWS) if isinstance(widest, Linear) else ROWS
        self.vocab, self.memory = decoder.config.embedding.vocab, memory_of(decoder)

    def outdated(self) -> bool:
        """Whether the model's memory is elsewhere now, or torch uses another number of threads."""
        return self.crew is not crew() or self.memory != memory_of(self.decoder)

    def step(self, ids: Tensor, cache: KeyValueCache, *, mask: Tensor | None, last: bool) -> Tensor:
        (batch, new), past, frame = ids.shape, cache.length, self.frame
        keep = cache.extend_mask(mask, batch=batch, new=new, device=ids.device)
        source_keep = None if cache.memory_mask is None else cache.memory_mask.bool()
        source = cache.cross[0].length
        at, _ = positions_of(new, past=past, keep=keep, given=None, device=ids.device)
        ids, at = ids.contiguous(), at.expand(batch, new).contiguous()
        out = torch.empty(batch if last else batch * new, self.vocab)
        frame[Frame.BATCH], frame[Frame.TOKENS], frame[Frame.PAST], frame[Frame.LAST] = batch, new, past, last
        frame[Frame.IDS], frame[Frame.POSITIONS], frame[Frame.SOURCE] = ids.data_ptr(), at.data_ptr(), source
        frame[Frame.MASK], frame[Frame.MASK_ROW] = _rows(keep)
        frame[Frame.SOURCE_MASK], frame[Frame.SOURCE_MASK_ROW] = _rows(source_keep)
        self.tables.place(frame, past + new)
        attention = self.decoder.config.stack.block.attention
        fresh = torch.empty(1).expand(batch, attention.kv_heads or attention.heads, new, attention.head_size)
        for slots, layer, cross in zip(self.slots, cache.layers, cache.cross, strict=True):
            place_layer(slots, layer, cross, fresh=fresh)
        places = self.workspace.places(batch * new, keys=max(past + new, source))
        places[:, Place.OUT] = out.data_ptr()
        self.crew.run(enter.address, self.program, self.numbers, frame, self.slots, places)
        for layer in cache.layers:
            layer.length += new
        return out if last else out.view(batch, new, self.vocab)


def memory_of(decoder: Decoder) -> list[int]:
    """Where its tensors are."""
    return [tensor.data_ptr() for tensor in (*decoder.parameters(), *decoder.buffers())]


def place_layer(slots: np.ndarray, layer: LayerCache, cross: LayerCache, *, fresh: Tensor) -> None:
    """`fresh` has the shape of the keys that will be written."""
    keys, values = layer.with_room(fresh, fresh)
    slots[Slot.KEYS], slots[Slot.VALUES], slots[Slot.ROOM] = keys.data_ptr(), values.data_ptr(), keys.shape[2]
    if cross.length:
        keys, values = cross.with_room(cross.keys[:, :, :0], cross.values[:, :, :0])
        slots[Slot.SOURCE_KEYS], slots[Slot.SOURCE_VALUES] = keys.data_ptr(), values.data_ptr()
        slots[Slot.SOURCE_ROOM] = keys.shape[2]


def _rows(mask: Tensor | None) -> tuple[int, int]:
    """(address, bytes a row) of a mask over keys."""
    return (0, 0) if mask is None else (mask.data_ptr(), mask.stride(0))


class Tables:
    """What depends on where a token stands: rotary angles, position vectors, biases by distance."""

    def __init__(self, decoder: Decoder):
        self.decoder, self.count, self.version = decoder, 0, -1
        self._angles: tuple[Tensor, Tensor] | None = None
        self._vectors: Tensor | None = None
        self._distances: Tensor | None = None

    def place(self, frame: np.ndarray, max_position: int) -> None:
        stack, positions = self.decoder.stack, self.decoder.embedding.positions
        version = stack.relative_bias.table.weight._version if stack.relative_bias is not None else 0
        if max_position > self.count or version != self.version:
            self.count, self.version = max(2 * max_position, 512), version
            self._fill()
        if self._angles is not None:
            frame[Frame.COS], frame[Frame.SIN] = (angle.data_ptr() for angle in self._angles)
        if isinstance(positions, LearnedPositions):
            table = positions.table.weight
            frame[Frame.POSITION_TABLE] = table.data_ptr() + 4 * positions.offset * table.shape[1]
        elif self._vectors is not None:
            frame[Frame.POSITION_TABLE] = self._vectors.data_ptr()
        if self._distances is not None:
            frame[Frame.DISTANCE], frame[Frame.DISTANCE_ROW] = self._distances.data_ptr(), self.count

    def _fill(self) -> None:
        stack, positions, count = self.decoder.stack, self.decoder.embedding.positions, self.count
        every = torch.arange(count)[None]
        if stack.rotary is not None:
            cos, sin = stack.rotary(every, count, dtype=torch.float32)
            self._angles = cos.contiguous(), sin.contiguous()
        if isinstance(positions, SinusoidalPositions):
            self._vectors = positions(every, count).contiguous()
        if stack.relative_bias is not None:
            bias = stack.relative_bias(1, count)
        elif stack.config.score_bias == "alibi":
            heads = stack.config.block.attention.heads
            bias = alibi_bias(heads, queries=1, keys=count, device=torch.device("cpu"))
        else:
            return
        self._distances = bias[0, :, 0].flip(-1).float().contiguous()  # (head, distance)
