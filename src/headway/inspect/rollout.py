"""Attention rollout (Abnar & Zuidema 2020): how much of each token's last state comes from each input token, if every
residual is half its input and half the attention output, averaged over heads.

Cross-attention is one more such residual: half of it is the attended source states, each a mixture of source tokens by
the encoder's rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.inspect.parts import eval_mode, output_part
from headway.inspect.record import LIMIT, record
from headway.models.protocol import Model, Part


@dataclass(frozen=True)
class Rollout:
    """Each row sums to one over `own` and `source` together."""

    own: Tensor  # (batch, token, token): from tokens of the same stack (an encoder-decoder: of the decoder)
    source: Tensor | None = None  # (batch, target, source): from the encoder's tokens


@torch.no_grad()
def attention_rollout(
    model: Model,
    inputs: Mapping[str, Any],  # keyword arguments of the model's forward
    *,
    limit: int = LIMIT,  # bytes of weights
) -> Rollout:
    part = output_part(model)
    with eval_mode(model), record(model, "*stack.blocks.*.weights", limit=limit) as recorded:
        model(**inputs)
    weights = {
        name.removesuffix(".weights"): values[-1].mean(1) for name, values in recorded.items()
    }  # (batch, query, key)
    if not model.reads_source:
        return Rollout(_rolled(part, weights))
    encoder, prefix = _rolled(model.parts[0], weights), part.prefix
    first = weights[f"{prefix}stack.blocks.0.attention"]
    own = torch.eye(first.shape[1], dtype=first.dtype, device=first.device).expand_as(first)
    source = first.new_zeros(len(first), first.shape[1], encoder.shape[1])
    for i in range(len(part.model.stack.blocks)):
        half = _half(weights[f"{prefix}stack.blocks.{i}.attention"])
        own, source = half @ own, half @ source
        cross = weights[f"{prefix}stack.blocks.{i}.cross"]
        own, source = own / 2, (source + cross @ encoder) / 2
    return Rollout(own, source)


def _rolled(part: Part, weights: Mapping[str, Tensor]) -> Tensor:
    """The rollout of a stack's self-attention."""
    names = [f"{part.prefix}stack.blocks.{i}.attention" for i in range(len(part.model.stack.blocks))]
    return roll([weights[name] for name in names])


def roll(layers: Sequence[Tensor]) -> Tensor:
    """Multiplies the self-attention weights of the layers, first to last, each averaged over heads: (…, query, key)."""
    rolled = _half(layers[0])
    for weights in layers[1:]:
        rolled = _half(weights) @ rolled
    return rolled


def _half(weights: Tensor) -> Tensor:
    """(A + I) / 2 with rows normalised to one; a row of padding has no weights and becomes I."""
    mixed = weights + torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    return mixed / mixed.sum(-1, keepdim=True)
