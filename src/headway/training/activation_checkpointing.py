"""Activation checkpointing (Chen et al. 2016): store the inputs of each block, recompute the rest in backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from headway.errors import ConfigError
from headway.layers.linear import linear


@contextmanager
def checkpoint_blocks(model: nn.Module) -> Iterator[None]:
    """Within the context, checkpoint the activations of every module with `is_block = True`. The random state is
    restored for the recomputation, so dropout masks are the same."""
    blocks = [module for module in model.modules() if getattr(module, "is_block", False)]
    if not blocks:
        raise ConfigError("checkpoint_activations: this model has no blocks to recompute; leave it off")
    for block in blocks:
        object.__setattr__(block, "forward", _checkpointed(block.forward))
    try:
        yield
    finally:
        for block in blocks:
            object.__delattr__(block, "forward")


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(
            forward, *args, use_reentrant=False, preserve_rng_state=True, context_fn=_same_precision, **kwargs
        )

    return run


def _same_precision() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """The contexts of the pass and of its recomputation, which comes when the pass's own precision has ended."""
    return nullcontext(), linear.replaced(linear.faster, where=linear.applies)
