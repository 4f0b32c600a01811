"""The residual, written once (idea: annotated-transformer's SublayerConnection), and the block:
attention, cross-attention if there is any, feed-forward. Pre-norm and post-norm are two places of the same norm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from headway.layers.attend import NO_MASK
from headway.layers.attention import Attention, AttentionConfig
from headway.layers.cache import LayerCache
from headway.layers.dropout import drop
from headway.layers.feedforward import FeedForward, FeedForwardConfig
from headway.layers.masks import Mask
from headway.layers.norms import BatchNorm, NormConfig
from headway.layers.tap import Tap

LAYER_NORM = NormConfig()


@dataclass(frozen=True)
class BlockConfig:
    width: int
    attention: AttentionConfig
    feedforward: FeedForwardConfig
    cross: AttentionConfig | None = None
    norm: NormConfig = LAYER_NORM
    norm_place: Literal["pre", "post"] = "pre"
    dropout: float = 0.0  # on each branch before it is added back
    drop_attention: bool = True  # False: the attention branch is added back whole (DistilBERT)


class Residual(nn.Module):
    """pre: x + dropout(f(norm(x)));  post (2017): norm(x + dropout(f(x)))."""

    def __init__(self, config: BlockConfig, *, drop: bool = True):
        super().__init__()
        self.norm = config.norm.build(config.width)
        self.post = config.norm_place == "post"
        self.dropout = config.dropout if drop else 0.0
        self.branch, self.stream = Tap(), Tap()

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], *, padding_mask: Tensor | None = None) -> Tensor:
        branch = f(x if self.post else normalise(self.norm, x, padding_mask))
        x, padding_mask = (
            x[:, -branch.shape[1] :],
            None if padding_mask is None else padding_mask[:, -branch.shape[1] :],
        )  # f may give the last
        if self.training and self.dropout:
            branch = drop(branch, self.dropout)
        if torch.is_grad_enabled() or self.branch.listening:
            x = x + self.branch(branch)
        else:
            x = branch.add_(x)  # the branch is nobody else's, so its memory serves again
        return self.stream(normalise(self.norm, x, padding_mask) if self.post else x)


def normalise(norm: nn.Module, x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Only a batch norm needs to know which tokens are padding."""
    return norm(x, padding_mask=padding_mask) if isinstance(norm, BatchNorm) else norm(x)


class Block(nn.Module):
    is_block = True  # where activation checkpointing may cut

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.attention = Attention(config.width, config.attention)
        self.attention_residual = Residual(config, drop=config.drop_attention)
        self.cross = Attention(config.width, config.cross) if config.cross else None
        self.cross_residual = Residual(config) if config.cross else None
        self.feedforward = FeedForward(config.width, config.feedforward)
        self.feedforward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,  # (batch, length, width)
        *,
        mask: Mask = NO_MASK,
        bias: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: LayerCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask = NO_MASK,
        cross_cache: LayerCache | None = None,
        padding_mask: Tensor | None = None,
        last: int = 0,  # only so many of the last tokens are wanted; mask and bias are for their queries alone
    ) -> Tensor:
        x = self.attention_residual(
            x,
            lambda y: self.attention(y, mask=mask, bias=bias, rotary=rotary, cache=cache, last=last),
            padding_mask=padding_mask,
        )
        padding_mask = None if padding_mask is None else padding_mask[:, -x.shape[1] :]
        if self.cross is not None and self.cross_residual is not None:
            cross = self.cross
            x = self.cross_residual(
                x, lambda y: cross(y, memory=memory, mask=memory_mask, cache=cross_cache), padding_mask=padding_mask
            )
        return self.feedforward_residual(x, self.feedforward, padding_mask=padding_mask)
