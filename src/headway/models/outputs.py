"""What a forward pass returns. Never a loss: the loss is the task's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Output:
    hidden: Tensor  # (batch, length, width), after the last block and the final norm
    logits: Tensor | None = None  # (batch, length, vocab), (n, vocab), (batch, labels) or (batch, length, labels)
    pooled: Tensor | None = None  # (batch, width), for heads that pool
    next_sentence: Tensor | None = None  # (batch, 2)
    memory: Tensor | None = None  # the encoder's hidden, for an encoder-decoder
    memory_logits: Tensor | None = None  # of the encoder's own head, for an encoder-decoder that has one
    memories: Sequence[Tensor] | None = None  # of each layer, for the next segment (batch, memory, width)
    velocity: Tensor | None = None  # (batch, channel, height, width), of a flow from noise to images


@dataclass
class Detections:
    """What some queries found."""

    logits: Tensor  # (batch, query, labels), one more where "no object" is a class
    boxes: Tensor  # (batch, query, 4): centre x, centre y, width and height as shares of the picture


@dataclass
class DetectionOutput(Output):
    boxes: Tensor | None = None  # (batch, query, 4), as in Detections
    auxiliary: list[Detections] = field(default_factory=list)  # of the decoder's layers before the last
    proposals: Detections | None = None  # of every vector of the encoder, where queries are chosen among them
    denoised: list[Detections] = field(default_factory=list)  # of the noised targets, of every decoder layer
