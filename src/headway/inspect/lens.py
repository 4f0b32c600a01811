"""The logit lens (nostalgebraist 2020): the residual stream after every layer goes through the final norm and the
head, as if that layer were the last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.errors import InputError
from headway.inspect.parts import eval_mode, output_part
from headway.inspect.record import record
from headway.models.heads import apply_head
from headway.models.protocol import Model, Part


@dataclass(frozen=True)
class LensLayer:
    name: str  # the tap: the embedding, then each block's residual stream
    ids: Tensor  # (batch, length, top), or (batch, top) with a classification head; the most probable first
    probabilities: Tensor  # of these ids, softmax over all


@torch.no_grad()
def logit_lens(
    model: Model,
    inputs: Mapping[str, Any],  # keyword arguments of the model's forward
    *,
    top: int = 5,
) -> list[LensLayer]:
    """The top ids of each layer, from the embedding to the last block, whose ids are the model's own. For an
    encoder-decoder, the layers of the decoder. The stream of a post-norm model is normalised already."""
    part = output_part(model)
    names = stream_names(part)
    with eval_mode(model):
        with record(model, names) as recorded:
            model(**inputs)
        mask = inputs.get("decoder_padding_mask" if model.reads_source else "padding_mask")
        layers = []
        for name in names:
            logits = model.combined(head_logits(part, recorded[name][-1], mask=mask), inputs.get("inputs"), mask)
            probabilities = logits.float().softmax(-1)
            best = probabilities.topk(min(top, probabilities.shape[-1]))
            layers.append(LensLayer(name, best.indices, best.values))
    return layers


def stream_names(part: Part) -> list[str]:
    """The taps of the residual stream: the input of the first block and the output of each."""
    count = len(part.model.stack.blocks)
    blocks = [f"{part.prefix}stack.blocks.{i}.feedforward_residual.stream" for i in range(count)]
    return [f"{part.prefix}embedding.sum", *blocks]


def head_logits(part: Part, stream: Tensor, *, mask: Tensor | None) -> Tensor:
    """The logits of a residual stream (batch, length, width)."""
    model = part.model
    if model.head is None:
        raise InputError("the model has no head, so the logit lens has nothing to apply; load it with one")
    hidden = model.stack.finish(stream, None if mask is None else mask.bool())
    logits = apply_head(model.head, hidden, model.token_table, padding_mask=mask).logits
    if logits is None:
        raise InputError(f"the model's head ({type(model.head).__name__}) gives no logits")
    return logits
