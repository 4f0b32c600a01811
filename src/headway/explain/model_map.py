"""The stacks of a model (encoder, decoder), the attention layers of each, and the names of their taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from headway.layers.attend import score_scale
from headway.layers.attention import Attention
from headway.models.protocol import Model, Part


@dataclass(frozen=True)
class StackInfo:
    """One stack and the sequence it processes."""

    part: Part
    sequence: str
    memory: str = ""  # the sequence its cross-attention attends to

    @property
    def name(self) -> Literal["encoder", "decoder", "denoiser"]:
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
        """Whether a position bias is added to the scores."""
        config = self.stack.model.config.stack
        return not self.cross and (config.score_bias is not None or self.module.config.score_bias is not None)

    @property
    def scale(self) -> float:
        return score_scale(self.module.config.head_size, self.module.config.scale)


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
