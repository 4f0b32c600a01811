"""The stacks of a model (encoder, decoder), the attention layers of each, and the names of their taps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from headway.layers.attention import Attention
from headway.layers.context import Context
from headway.layers.positions import positions_of
from headway.models.protocol import Model, Part


@dataclass(frozen=True)
class StackInfo:
    """One stack and the sequence it processes."""

    part: Part
    sequence: str
    memory: str = ""  # the sequence its cross-attention attends to

    @property
    def name(self) -> Literal["encoder", "decoder"]:
        return self.part.name

    @property
    def prefix(self) -> str:
        """Of the names of its taps."""
        return self.part.prefix

    @property
    def model(self) -> Any:
        return self.part.model

    @property
    def blocks(self) -> list[tuple[str, Any]]:
        return [(f"{self.prefix}stack.blocks.{i}", block) for i, block in enumerate(self.model.stack.blocks)]


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
        found = None if self.cross else self.context(queries, keys).mask.tensor(queries, keys, torch.device("cpu"))
        return torch.ones(queries, keys, dtype=torch.bool) if found is None else found.expand(queries, keys)

    def bias(self, queries: int, keys: int) -> Tensor | None:  # (head, query, key)
        bias = None if self.cross else self.context(queries, keys).bias
        return None if bias is None else bias[0]

    def context(self, queries: int, keys: int) -> Context:
        """What the stack gives this layer in a pass over so many tokens."""
        positions = positions_of(queries, device=torch.device("cpu"), past=[keys - queries])
        return self.stack.model.stack.contexts(positions, dtype=torch.float32)[self.layer]


def stacks(model: Model) -> list[StackInfo]:
    if len(model.parts) < 2:
        return [StackInfo(part, "text") for part in model.parts]
    return [
        StackInfo(part, sequence, memory)
        for part, sequence, memory in zip(model.parts, ("source", "target"), ("", "source"), strict=True)
    ]


def attentions(model: Model) -> list[AttentionInfo]:
    return [each for stack in stacks(model) for each in _attentions(stack)]


def _attentions(stack: StackInfo) -> Iterator[AttentionInfo]:
    for layer, (name, block) in enumerate(stack.blocks):
        yield AttentionInfo(stack, f"{name}.attention", layer, block.attention)
        if block.cross is not None:
            yield AttentionInfo(stack, f"{name}.cross", layer, block.cross)
