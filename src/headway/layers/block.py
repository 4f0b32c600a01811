"""The residual, written once (idea: annotated-transformer's SublayerConnection), and the block:
attention, cross-attention if there is any, feed-forward. Where the norm stands is a choice of the config."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

from headway.layers.attention import AttentionConfig
from headway.layers.cache import BlockCache
from headway.layers.context import Context
from headway.layers.dropout import drop
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import BatchNorm, Modulation, NormConfig
from headway.layers.tap import Tap

LAYER_NORM = NormConfig()
NO_CACHE = BlockCache(None, None)
NormPlace = Literal["pre", "post", "branch", "both"]
Modulated = tuple[Tensor, Tensor, Tensor] | None  # shift, scale and gate of one branch


@dataclass(frozen=True)
class BlockConfig:
    width: int
    attention: AttentionConfig
    feedforward: FeedForwardConfig
    cross: AttentionConfig | None = None
    norm: NormConfig = LAYER_NORM
    norm_place: NormPlace = "pre"
    parallel: bool = False  # attention and feed-forward read the same input (GPT-NeoX)
    dropout: float = 0.0  # on each branch before it is added back
    drop_attention: bool = True  # False: the attention branch is added back whole (DistilBERT)
    condition: int | None = None  # width of a vector that modulates the block (AdaLN-Zero)

    @property
    def memory_width(self) -> int | None:
        """Of what it attends to across; None: nothing."""
        return None if self.cross is None else self.cross.memory_width or self.width


class Residual(nn.Module):
    """The sum of a stream x and a branch f, with the norm at one of four places:

    pre     x + dropout(f(norm(x)))
    post    norm(x + dropout(f(x)))             (2017)
    branch  x + dropout(norm(f(x)))             (OLMo 2)
    both    x + dropout(norm₂(f(norm(x))))      (Gemma)

    `before` gives what f reads, `forward` adds its result back."""

    def __init__(self, config: BlockConfig, *, drop: bool = True, norm: bool = True):
        super().__init__()
        place = config.norm_place
        self.norm = config.norm.build(config.width) if norm and place != "branch" else nn.Identity()
        self.branch_norm = config.norm.build(config.width) if place in ("branch", "both") else None
        self.post = place == "post"
        self.dropout = config.dropout if drop else 0.0
        self.branch, self.stream = Tap(), Tap()

    def before(self, x: Tensor, padding_mask: Tensor | None, modulated: Modulated = None) -> Tensor:
        if not self.post:
            x = normalise(self.norm, x, padding_mask)
        return x if modulated is None else x * (1 + modulated[1]) + modulated[0]

    def forward(
        self, x: Tensor, branch: Tensor, padding_mask: Tensor | None = None, modulated: Modulated = None
    ) -> Tensor:
        if self.branch_norm is not None:
            branch = normalise(self.branch_norm, branch, padding_mask)
        if modulated is not None:
            branch = branch * modulated[2]
        if self.training and self.dropout:
            branch = drop(branch, self.dropout)
        x = x + self.branch(branch)
        return self.stream(normalise(self.norm, x, padding_mask) if self.post else x)


def normalise(norm: nn.Module, x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Only a batch norm depends on which tokens are padding."""
    return norm(x, padding_mask=padding_mask) if isinstance(norm, BatchNorm) else norm(x)


class Block(nn.Module):
    is_block = True  # a unit of activation checkpointing

    def __init__(self, config: BlockConfig, *, attention_norm: bool = True):
        super().__init__()
        self.parallel = config.parallel
        self.attention = config.attention.build(config.width)
        self.attention_residual = Residual(config, drop=config.drop_attention, norm=attention_norm)
        self.cross = config.cross.build(config.width, cross=True) if config.cross else None
        self.cross_residual = Residual(config) if config.cross else None
        self.feedforward = config.feedforward.build(config.width)
        self.feedforward_residual = Residual(config)
        branches = 3 if config.cross else 2
        self.modulation = Modulation(config.width, config.condition, branches=branches) if config.condition else None

    def forward(self, x: Tensor, context: Context, *, cache: BlockCache = NO_CACHE) -> Tensor:
        """`x` is (batch, length, width)."""
        real, start = context.padding_mask, x
        first, *middle, last = [None] * 3 if self.modulation is None else self.modulation(context.condition)
        if context.source is not None:
            context = replace(context, source=self.attention_residual.before(context.source, None, first))
        branch = self.attention(self.attention_residual.before(x, real, first), context, cache=cache.attention)
        x = self.attention_residual(x, branch, real, first)
        if self.cross is not None and self.cross_residual is not None:
            branch = self.cross(self.cross_residual.before(x, real, middle[0]), context, cache=cache.cross)
            x = self.cross_residual(x, branch, real, middle[0])
        branch = self.feedforward(self.feedforward_residual.before(start if self.parallel else x, real, last))
        return self.feedforward_residual(x, branch, real, last)
