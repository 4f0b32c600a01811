"""Blocks that write over their own intermediate results during inference: less memory traffic, the same numbers.

`FastBlock` takes the place of `Block` and falls back to it under gradients, in training, under modulation, and whenever
a forward hook could see a value before it is overwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from headway.engine.supported import INPLACE_BLOCK, unsupported_config, unsupported_module
from headway.layers.block import NO_CACHE, Block, Residual, normalise
from headway.layers.cache import BlockCache
from headway.layers.context import Context
from headway.layers.feedforward import ACTIVATIONS, FeedForward
from headway.models.protocol import Model

IN_PLACE: dict[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] = {
    ACTIVATIONS["relu"]: torch.relu_,
    ACTIVATIONS["gelu"]: torch.ops.aten.gelu_,
    ACTIVATIONS["gelu_tanh"]: lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
    ACTIVATIONS["silu"]: lambda x: F.silu(x, inplace=True),
}


class FastBlock(Block):
    def forward(self, x: Tensor, context: Context, *, cache: BlockCache = NO_CACHE) -> Tensor:
        if torch.is_grad_enabled() or self.training or self.modulation is not None or has_hooks(self):
            return super().forward(x, context, cache=cache)
        real = context.padding_mask
        branch = self.attention(self.attention_residual.before(x, real), context, cache=cache.attention)
        x = _add(self.attention_residual, x, branch, real)
        if self.cross is not None and self.cross_residual is not None:
            branch = self.cross(self.cross_residual.before(x, real), context, cache=cache.cross)
            x = _add(self.cross_residual, x, branch, real)
        branch = _feedforward(self.feedforward, self.feedforward_residual.before(x, real))
        return _add(self.feedforward_residual, x, branch, real)


def _add(residual: Residual, x: Tensor, branch: Tensor, padding_mask: Tensor | None) -> Tensor:
    x = branch.add_(x)  # the branch's memory is not used again
    return normalise(residual.norm, x, padding_mask) if residual.post else x


def _feedforward(layer: nn.Module, x: Tensor) -> Tensor:
    if not isinstance(layer, FeedForward):  # routed to experts
        return layer(x)
    activation = IN_PLACE.get(layer.activation, layer.activation)
    if layer.gate is None:
        return layer.down(activation(layer.up(x)))
    return layer.down(activation(layer.gate(x)).mul_(layer.up(x)))


def has_hooks(part: nn.Module) -> bool:
    """Whether any forward hook would be called in this part of a model."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return True
    return any(module._forward_hooks or module._forward_pre_hooks for module in part.modules())


def swap_blocks(model: Model, *, fast: bool) -> None:
    """Makes every plain block of a model fast, or plain again. A block of another class, with parts of another class or
    with options that FastBlock does not implement is left alone."""
    for stack in (part.model.stack for part in model.parts):
        known = fast and unsupported_config(stack.config.block, INPLACE_BLOCK) is None
        for block in stack.blocks:
            if type(block) is FastBlock and not fast:
                block.__class__ = Block  # type: ignore[assignment]
            elif known and unsupported_module(_own_parts(block), (Block, Residual, FeedForward)) is None:
                block.__class__ = FastBlock


def _own_parts(block: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules whose forward FastBlock replaces."""
    yield "block", block
    for name in ("attention_residual", "cross_residual", "feedforward", "feedforward_residual"):
        if (part := getattr(block, name, None)) is not None:
            yield name, part
