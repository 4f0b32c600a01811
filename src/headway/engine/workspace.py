"""The memory in which the machine's orders hand their results on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headway.engine.lowering import Plan
from headway.engine.opcodes import FEW, PLACES, Place

LINE = 64  # bytes


class Workspace:
    def __init__(self, plan: Plan, *, threads: int):
        self.plan, self.threads = plan, threads
        self.tokens = self.keys = 0  # that there is room for
        self._memory: Tensor | None = None
        self._places = np.zeros((threads, PLACES), dtype=np.int64)

    def places(self, tokens: int, *, keys: int) -> np.ndarray:
        """The address of every place for every thread, (thread, place)."""
        if tokens > self.tokens or keys > self.keys:
            self.tokens, self.keys = max(tokens, self.tokens), max(2 * keys, self.keys)
            self._lay_out()
        return self._places

    def _lay_out(self) -> None:
        each = {place: 4 * numbers * self.tokens for place, numbers in self.plan.room.items()}
        each |= {
            Place.SHORT: 2 * self.plan.inputs * self.tokens,
            Place.FACTORS: 4 * self.tokens,
            Place.OWN_SHORT: 2 * self.plan.inputs * FEW,
            Place.OWN_FACTORS: 4 * FEW,
            Place.SCORES: 4 * self.keys,
        }
        sizes = {place: (size + 2 * LINE - 1) // LINE * LINE for place, size in each.items()}  # and a line between
        total = sum(size * (self.threads if place >= Place.OWN else 1) for place, size in sizes.items())
        self._memory = torch.empty(total + LINE, dtype=torch.uint8)
        at = (self._memory.data_ptr() + LINE - 1) // LINE * LINE
        for place, size in sizes.items():
            for thread in range(self.threads):
                self._places[thread, place] = at
                at += size if place >= Place.OWN else 0
            at += 0 if place >= Place.OWN else size
