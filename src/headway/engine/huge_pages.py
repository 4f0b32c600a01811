"""Matrices moved into large pages of memory. Writing a token reads every weight once, and every
page of memory must be found first: the larger the pages, the fewer."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

LEAST = 2**23  # bytes; less is not worth the move
LINE = 64


def settle(modules: Iterable[nn.Module], *, least: int = LEAST) -> Tensor | None:
    """Moves the modules' weights into one stretch of memory, for which numpy asks the system for large pages. Each is
    let go of once it has moved. Returns the stretch, or None where nothing was moved."""
    movable = {id(module.weight): module for module in modules if module.weight.device.type == "cpu"}.values()
    sizes = [_weight(module).nbytes for module in movable]
    if sum(sizes) < max(least, 1):
        return None
    memory = torch.from_numpy(np.empty(sum(sizes) + LINE * (len(sizes) + 1), dtype=np.uint8))
    at = -memory.data_ptr() % LINE
    for module, size in zip(movable, sizes, strict=True):
        old = _weight(module)
        new = memory[at : at + size].view(old.dtype).view(old.shape)
        new.copy_(old)
        if isinstance(module.weight, nn.Parameter):
            module.weight.data = new
        else:
            module.weight = new
        at += -(-size // LINE) * LINE
    return memory


def lies_in(module: nn.Module, memory: Tensor | None) -> bool:
    return memory is not None and _weight(module).untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()


def _weight(module: nn.Module) -> Tensor:
    assert isinstance(module.weight, Tensor)
    return module.weight.detach()
