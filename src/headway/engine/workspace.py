"""Memory for the intermediate results of a step."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headway.engine.lowering import Program
from headway.engine.opcodes import BUFFERS, PRIVATE_TOKENS, Buffer

CACHE_LINE = 64  # bytes


class Workspace:
    """The buffers of a program; they grow with the number of tokens and keys."""

    def __init__(self, program: Program, *, threads: int):
        self.program, self.threads = program, threads
        self.tokens = self.keys = 0  # capacity
        self._memory: Tensor | None = None
        self._addresses = np.zeros((threads, BUFFERS), dtype=np.int64)

    def addresses(self, tokens: int, *, keys: int) -> np.ndarray:
        """The address of every buffer for every thread, (threads, buffers)."""
        if tokens > self.tokens or keys > self.keys:
            self.tokens, self.keys = max(tokens, self.tokens), max(2 * keys, self.keys)
            self._allocate()
        return self._addresses

    def _allocate(self) -> None:
        needed = {buffer: 4 * width * self.tokens for buffer, width in self.program.buffer_widths.items()}
        needed |= {
            Buffer.INT16_TOKENS: 2 * self.program.max_in_features * self.tokens,
            Buffer.TOKEN_SCALES: 4 * self.tokens,
            Buffer.THREAD_INT16_TOKENS: 2 * self.program.max_in_features * PRIVATE_TOKENS,
            Buffer.THREAD_TOKEN_SCALES: 4 * PRIVATE_TOKENS,
            Buffer.SCORES: 4 * self.keys,
        }
        # rounded up to cache lines, with one line between buffers
        sizes = {buffer: (size + 2 * CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE for buffer, size in needed.items()}
        total = sum(size * (self.threads if buffer >= Buffer.PER_THREAD else 1) for buffer, size in sizes.items())
        self._memory = torch.empty(total + CACHE_LINE, dtype=torch.uint8)
        at = (self._memory.data_ptr() + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
        for buffer, size in sizes.items():
            for thread in range(self.threads):
                self._addresses[thread, buffer] = at
                at += size if buffer >= Buffer.PER_THREAD else 0
            at += 0 if buffer >= Buffer.PER_THREAD else size
