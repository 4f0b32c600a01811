"""A model's parts in the order a reader meets them: its sides (encoder, decoder), the attentions of each
layer, and the taps where their numbers are heard."""

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
class Side:
    """One stack and the sequence it reads."""

    name: Literal["encoder", "decoder"]
    prefix: str  # of its taps' names
    model: Encoder | Decoder
    sequence: str
    memory: str = ""  # the sequence its cross-attention looks at

    @property
    def blocks(self) -> list[tuple[str, Block]]:
        return [(f"{self.prefix}stack.blocks.{i}", block) for i, block in enumerate(_blocks(self.model))]


@dataclass(frozen=True)
class Place:
    """One attention of one layer."""

    side: Side
    name: str
    layer: int
    module: Attention

    @property
    def cross(self) -> bool:
        return self.name.endswith(".cross")

    @property
    def keys(self) -> str:
        return self.side.memory if self.cross else self.side.sequence

    @property
    def causal(self) -> bool:
        return self.side.model.config.stack.causal and not self.cross

    @property
    def biased(self) -> bool:
        return self.side.model.config.stack.score_bias is not None and not self.cross

    @property
    def scale(self) -> float:
        config = self.module.config
        return 1.0 / math.sqrt(config.head_size) if config.scale is None else config.scale

    def mask(self, queries: int, keys: int) -> Tensor:  # → (query, key), True = may look; there is no padding here
        windows = self.side.model.config.stack.windows
        size = windows[self.layer] if windows and not self.cross else None
        device = torch.device("cpu")
        allowed = CAUSAL if self.causal else Mask()
        if size is not None:
            allowed = allowed & window(size, queries=queries, keys=keys, device=device)
        found = allowed.tensor(queries, keys, device)
        return torch.ones(queries, keys, dtype=torch.bool) if found is None else found.expand(queries, keys)

    def bias(self, queries: int, keys: int) -> Tensor | None:  # → (head, query, key)
        stack = self.side.model.stack
        if not self.biased:
            return None
        if stack.relative_bias is not None:
            return stack.relative_bias(queries, keys)[0]
        return alibi_bias(self.module.heads, queries=queries, keys=keys, device=torch.device("cpu"))[0]


def sides(model: nn.Module) -> list[Side]:
    if isinstance(model, EncoderDecoder):
        return [
            Side("encoder", "encoder.", model.encoder, "source"),
            Side("decoder", "decoder.", model.decoder, "target", memory="source"),
        ]
    if isinstance(model, Encoder):
        return [Side("encoder", "", model, "text")]
    return [Side("decoder", "", model, "text")] if isinstance(model, Decoder) else []


def places(model: nn.Module) -> list[Place]:
    return [place for side in sides(model) for place in _places(side)]


def _places(side: Side) -> Iterator[Place]:
    for layer, (name, block) in enumerate(side.blocks):
        yield Place(side, f"{name}.attention", layer, block.attention)
        if block.cross is not None:
            yield Place(side, f"{name}.cross", layer, block.cross)


def _blocks(model: Encoder | Decoder) -> list[Block]:
    return [block for block in model.stack.blocks if isinstance(block, Block)]
