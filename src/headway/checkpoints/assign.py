"""Room: checkpoints. Puts tensors onto a module that was built without memory, without copying them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from headway.errors import CheckpointError


def assign(module: nn.Module, state: Mapping[str, Tensor], *, dtype: torch.dtype | None, device: torch.device) -> None:
    """Every tensor takes its place as it is (memory-mapped, if the file was), converted only when asked. Shapes are
    checked, and nothing may be left without memory."""
    own = module.state_dict()
    for name, tensor in state.items():
        if own[name].shape != tensor.shape:
            raise CheckpointError(
                f"{name} has shape {list(tensor.shape)} in the file but the config says {list(own[name].shape)}"
            )
    ready = {name: _convert(tensor, dtype, device) for name, tensor in state.items()}
    module.load_state_dict(ready, assign=True, strict=False)
    empty = [name for name, value in module.state_dict().items() if value.is_meta]
    if empty:
        raise CheckpointError(f"no tensor was given for {', '.join(empty[:5])}")


def _convert(tensor: Tensor, dtype: torch.dtype | None, device: torch.device) -> Tensor:
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype)
    return tensor.to(device).contiguous()
