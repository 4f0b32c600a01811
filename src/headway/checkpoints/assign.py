"""Assigns tensors to a module built on the meta device, without copying them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headway.errors import CheckpointError


def assign(module: nn.Module, state: Mapping[str, Tensor], *, dtype: torch.dtype | None, device: torch.device) -> None:
    """Replace parameters and buffers of `module` by the tensors of `state`, converted to `dtype` and `device`. A tensor
    that needs no conversion is not copied and stays memory-mapped. Raises if a shape differs or one stays on meta."""
    owners = dict(module.named_modules())
    for name, tensor in state.items():
        owner, _, leaf = name.rpartition(".")
        tensors = owners[owner]._parameters if leaf in owners[owner]._parameters else owners[owner]._buffers
        old = tensors[leaf]
        assert old is not None
        if old.shape != tensor.shape:
            raise CheckpointError(
                f"{name} has shape {list(tensor.shape)} in the file but the config says {list(old.shape)}"
            )
        ready = _convert(tensor, dtype, device)
        tensors[leaf] = nn.Parameter(ready, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else ready
    every = (*module.named_parameters(), *module.named_buffers())
    empty = [name for name, value in every if value.is_meta]
    if empty:
        raise CheckpointError(f"no tensor was given for {', '.join(empty[:5])}")


def _convert(tensor: Tensor, dtype: torch.dtype | None, device: torch.device) -> Tensor:
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype)
    return tensor.to(device)
