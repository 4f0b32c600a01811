"""Copies in 16 bits of float32 matrices whose every value is a float16, as in models that were published in half
precision (all of OpenAI's Whisper). A decoding step then reads half the memory and computes the same bits: a float16
becomes a float32 exactly, and products are summed in the same order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from headway.engine.huge_pages import CACHE_LINE
from headway.layers.linear import Linear, TokenTable

LANES = 8  # a row is a whole number of vectors
MIN_BYTES = 2**22  # of all float32 matrices: smaller models are read from the cache anyway
MAX_BYTES = 2**31  # of the copies: they are held beside the matrices
CHECKED_ROWS = 256  # that are converted at once
SAMPLE = 1021  # values by which a change past torch's counter is noticed


@dataclass(frozen=True)
class Copy:
    original: Tensor
    half: Tensor
    version: int  # of the original: torch counts changes in place
    sample: Tensor

    def is_current(self, module: nn.Module) -> bool:
        weight = module.weight
        assert isinstance(weight, Tensor)
        same = weight.data_ptr() == self.original.data_ptr() and weight._version == self.version
        return same and torch.equal(sample(weight), self.sample)


class HalfCopies:
    def __init__(self, modules: Iterable[nn.Module]) -> None:
        """Of those modules that can have one; of none if some cannot, or if all are too small or too large."""
        self.copies: dict[nn.Module, Copy] = {}
        every = list(dict.fromkeys(modules))
        weights = [_weight(module) for module in every]
        size = sum(weight.nbytes for weight in weights if weight is not None)
        fits = all(weight is not None for weight in weights) and MIN_BYTES <= size <= 2 * MAX_BYTES
        if not fits or not converts_halves():
            return
        memory = torch.from_numpy(np.empty(size // 2 + CACHE_LINE * (len(every) + 1), dtype=np.uint8))  # in huge pages
        at, copies = -memory.data_ptr() % CACHE_LINE, dict[nn.Module, Copy]()
        for module, weight in zip(every, weights, strict=True):
            assert weight is not None
            half = memory[at : at + weight.nbytes // 2].view(torch.float16).view(weight.shape)
            if not copied(weight, half):
                return
            copies[module] = Copy(weight, half, weight._version, sample(weight))
            at += -(-half.nbytes // CACHE_LINE) * CACHE_LINE
        self.copies = copies

    def __bool__(self) -> bool:
        return bool(self.copies)

    def get(self, module: nn.Module) -> Tensor | None:
        found = self.copies.get(module)
        return None if found is None else found.half

    def are_current(self) -> bool:
        return all(copy.is_current(module) for module, copy in self.copies.items())


def converts_halves() -> bool:
    from headway.engine import llvm

    return llvm.converts_halves()


def copied(weight: Tensor, half: Tensor) -> bool:
    """Converts `weight` into `half`; False as soon as a value is no float16."""
    for start in range(0, len(weight), CHECKED_ROWS):
        rows = weight[start : start + CHECKED_ROWS].detach()
        into = half[start : start + CHECKED_ROWS]
        into.copy_(rows)
        if not torch.equal(into.float(), rows):
            return False
    return True


def sample(weight: Tensor) -> Tensor:
    flat = weight.detach().view(-1)
    return flat[:: max(1, len(flat) // SAMPLE)].clone()


def _weight(module: nn.Module) -> Tensor | None:
    if type(module) not in (Linear, TokenTable):
        return None
    weight = module.weight
    assert isinstance(weight, Tensor)
    fits = weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.is_contiguous()
    return weight if fits and not weight.is_inference() and not weight.shape[1] % LANES else None
