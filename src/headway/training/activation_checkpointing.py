"""Activation checkpointing (Chen et al. 2016). Blocks keep their input and run again going back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from headway.errors import ConfigError


@contextmanager
def recomputed(model: nn.Module) -> Iterator[None]:
    """While inside, every module marked `is_block` trades time for memory; its random stream is replayed."""
    blocks = [module for module in model.modules() if getattr(module, "is_block", False)]
    if not blocks:
        raise ConfigError("checkpoint_activations: this model has no blocks to recompute; leave it off")
    for block in blocks:
        object.__setattr__(block, "forward", _twice(block.forward))
    try:
        yield
    finally:
        for block in blocks:
            object.__delattr__(block, "forward")


def _twice(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=True, **kwargs)

    return run
