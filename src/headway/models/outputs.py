"""What a forward pass returns. Never a loss: the loss is the task's."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Output:
    hidden: Tensor  # (batch, length, width), after the last block and the final norm
    logits: Tensor | None = None  # (batch, length, vocab), (n, vocab), (batch, labels) or (batch, length, labels)
    pooled: Tensor | None = None  # (batch, width), for heads that pool
    next_sentence: Tensor | None = None  # (batch, 2)
    memory: Tensor | None = None  # the encoder's hidden, for an encoder-decoder
