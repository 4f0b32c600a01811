"""Moves weights into huge pages. A decoding step reads every weight once; larger pages need fewer TLB entries."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

MIN_BYTES = 2**23  # for less, the move does not pay
CACHE_LINE = 64


def move_to_huge_pages(modules: Iterable[nn.Module], *, min_bytes: int = MIN_BYTES) -> Tensor | None:
    """Moves the modules' weights into one block of memory, for which numpy requests huge pages. Each old weight is
    freed after its copy. Returns the block, or None if nothing was moved."""
    movable = {id(module.weight): module for module in modules if module.weight.device.type == "cpu"}.values()
    sizes = [_weight(module).nbytes for module in movable]
    if sum(sizes) < max(min_bytes, 1):
        return None
    memory = torch.from_numpy(np.empty(sum(sizes) + CACHE_LINE * (len(sizes) + 1), dtype=np.uint8))
    at = -memory.data_ptr() % CACHE_LINE
    for module, size in zip(movable, sizes, strict=True):
        old = _weight(module)
        new = memory[at : at + size].view(old.dtype).view(old.shape)
        new.copy_(old)
        if isinstance(module.weight, nn.Parameter):
            module.weight.data = new
        else:
            module.weight = new
        at += -(-size // CACHE_LINE) * CACHE_LINE
    return memory


def is_stored_in(module: nn.Module, memory: Tensor | None) -> bool:
    return memory is not None and _weight(module).untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()


def _weight(module: nn.Module) -> Tensor:
    assert isinstance(module.weight, Tensor)
    return module.weight.detach()
