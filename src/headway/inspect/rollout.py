"""Attention rollout (Abnar & Zuidema 2020): how much of each token's last state comes from each input
token, if every residual is half what was there and half what attention, averaged over heads, brought.

Cross-attention is one more such residual: half of it brings what, by the encoder's rollout, its tokens are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.inspect.parts import evaluating, speaker
from headway.inspect.record import LIMIT, record
from headway.models.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class Rollout:
    """Shares; over `own` and `source` together each row sums to one."""

    own: Tensor  # (batch, token, token): from the tokens of the same stack, an encoder-decoder's decoder
    source: Tensor | None = None  # (batch, target, source): from the tokens that were read


@torch.no_grad()
def attention_rollout(
    model: nn.Module,
    inputs: Mapping[str, Any],  # what the model is called with, by name
    *,
    limit: int = LIMIT,  # bytes of weights
) -> Rollout:
    prefix, part = speaker(model)
    with evaluating(model), record(model, "*stack.blocks.*.weights", limit=limit) as seen:
        model(**inputs)
    weights = {
        name.removesuffix(".weights"): values[-1].mean(1) for name, values in seen.items()
    }  # (batch, query, key)
    if not isinstance(model, EncoderDecoder):
        return Rollout(roll([weights[f"stack.blocks.{i}.attention"] for i in range(len(part.stack.blocks))]))
    read = roll([weights[f"encoder.stack.blocks.{i}.attention"] for i in range(len(model.encoder.stack.blocks))])
    first = weights[f"{prefix}stack.blocks.0.attention"]
    own = torch.eye(first.shape[1], dtype=first.dtype, device=first.device).expand_as(first)
    source = first.new_zeros(len(first), first.shape[1], read.shape[1])
    for i in range(len(part.stack.blocks)):
        half = _half(weights[f"{prefix}stack.blocks.{i}.attention"])
        own, source = half @ own, half @ source
        cross = weights[f"{prefix}stack.blocks.{i}.cross"]
        own, source = own / 2, (source + cross @ read) / 2
    return Rollout(own, source)


def roll(layers: Sequence[Tensor]) -> Tensor:
    """Self-attention weights by layer, averaged over heads, (…, query, key) each, the first layer first → (…, query,
    key)."""
    rolled = _half(layers[0])
    for weights in layers[1:]:
        rolled = _half(weights) @ rolled
    return rolled


def _half(weights: Tensor) -> Tensor:
    """(A + I) / 2 with rows that sum to one, also those of padding, which looks at nothing."""
    mixed = weights + torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    return mixed / mixed.sum(-1, keepdim=True)
