"""The stacks of a model (encoder, decoder), the attention layers of each, and the names of their taps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from headway.layers.attention import Attention
from headway.layers.block import Block
from headway.layers.masks import CAUSAL, Mask, window
from headway.layers.positions import alibi_bias
from headway.models.decoder import Decoder
from headway.models.encoder import Encoder
from headway.models.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class StackInfo:
    """One stack and the sequence it processes."""

    name: Literal["encoder", "decoder"]
    prefix: str  # of the names of its taps
    model: Encoder | Decoder
    sequence: str
    memory: str = ""  # the sequence its cross-attention attends to

    @property
    def blocks(self) -> list[tuple[str, Block]]:
        return [(f"{self.prefix}stack.blocks.{i}", block) for i, block in enumerate(_blocks(self.model))]


@dataclass(frozen=True)
class AttentionInfo:
    """One attention of one layer."""

    stack: StackInfo
    name: str
    layer: int
    module: Attention

    @property
    def cross(self) -> bool:
        return self.name.endswith(".cross")

    @property
    def keys(self) -> str:
        return self.stack.memory if self.cross else self.stack.sequence

    @property
    def causal(self) -> bool:
        return self.stack.model.config.stack.causal and not self.cross

    @property
    def biased(self) -> bool:
        return self.stack.model.config.stack.score_bias is not None and not self.cross

    @property
    def scale(self) -> float:
        config = self.module.config
        return 1.0 / math.sqrt(config.head_size) if config.scale is None else config.scale

    def mask(self, queries: int, keys: int) -> Tensor:  # (query, key), True = may attend; there is no padding here
        windows = self.stack.model.config.stack.windows
        size = windows[self.layer] if windows and not self.cross else None
        device = torch.device("cpu")
        allowed = CAUSAL if self.causal else Mask()
        if size is not None:
            allowed = allowed & window(size, queries=queries, keys=keys, device=device)
        found = allowed.tensor(queries, keys, device)
        return torch.ones(queries, keys, dtype=torch.bool) if found is None else found.expand(queries, keys)

    def bias(self, queries: int, keys: int) -> Tensor | None:  # (head, query, key)
        relative_bias = self.stack.model.stack.relative_bias
        if not self.biased:
            return None
        if relative_bias is not None:
            return relative_bias(queries, keys)[0]
        return alibi_bias(self.module.heads, queries=queries, keys=keys, device=torch.device("cpu"))[0]


def stacks(model: nn.Module) -> list[StackInfo]:
    if isinstance(model, EncoderDecoder):
        return [
            StackInfo("encoder", "encoder.", model.encoder, "source"),
            StackInfo("decoder", "decoder.", model.decoder, "target", memory="source"),
        ]
    if isinstance(model, Encoder):
        return [StackInfo("encoder", "", model, "text")]
    return [StackInfo("decoder", "", model, "text")] if isinstance(model, Decoder) else []


def attentions(model: nn.Module) -> list[AttentionInfo]:
    return [each for stack in stacks(model) for each in _attentions(stack)]


def _attentions(stack: StackInfo) -> Iterator[AttentionInfo]:
    for layer, (name, block) in enumerate(stack.blocks):
        yield AttentionInfo(stack, f"{name}.attention", layer, block.attention)
        if block.cross is not None:
            yield AttentionInfo(stack, f"{name}.cross", layer, block.cross)


def _blocks(model: Encoder | Decoder) -> list[Block]:
    return [block for block in model.stack.blocks if isinstance(block, Block)]
