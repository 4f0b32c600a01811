"""The logit lens (nostalgebraist 2020): every layer's stream goes through the final norm and the head,
as if the model stopped there, and says what the model would answer so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.inspect.parts import evaluating, speaker, token_table
from headway.inspect.record import record
from headway.layers.block import normalise
from headway.models.decoder import Decoder
from headway.models.encoder import Encoder


@dataclass(frozen=True)
class LensLayer:
    name: str  # the tap whose value was read: the embedding, then each block's stream
    ids: Tensor  # (batch, length, top), or (batch, top) where the head labels the whole example; the likeliest first
    probabilities: Tensor  # of these, among all


@torch.no_grad()
def logit_lens(
    model: nn.Module,
    inputs: Mapping[str, Any],  # what the model is called with, by name
    *,
    top: int = 5,
) -> list[LensLayer]:
    """What each layer would say, from the embedding to the last block, whose answer is the model's own. The layers of
    an encoder-decoder are its decoder's. A post-norm stream has its norm behind it and goes to the head as it is."""
    prefix, part = speaker(model)
    names = stream_names(prefix, part)
    with evaluating(model):
        with record(model, names) as seen:
            model(**inputs)
        mask = inputs.get("decoder_padding_mask" if prefix else "padding_mask")
        layers = []
        for name in names:
            probabilities = answer(part, seen[name][-1], mask=mask).float().softmax(-1)
            best = probabilities.topk(min(top, probabilities.shape[-1]))
            layers.append(LensLayer(name, best.indices, best.values))
    return layers


def stream_names(prefix: str, part: Encoder | Decoder) -> list[str]:
    """The taps of the residual stream: what goes into the first block, and what comes out of each."""
    blocks = [f"{prefix}stack.blocks.{i}.feedforward_residual.stream" for i in range(len(part.stack.blocks))]
    return [f"{prefix}embedding.sum", *blocks]


def answer(part: Encoder | Decoder, stream: Tensor, *, mask: Tensor | None) -> Tensor:
    """The logits of a stream (batch, length, width)."""
    norm = part.stack.final_norm
    if part.head is None:
        raise InputError("the model has no head, so its layers say nothing; load it with one")
    hidden = stream if norm is None else normalise(norm, stream, None)
    logits = part.head(hidden, table=token_table(part), padding_mask=mask).logits
    if logits is None:
        raise InputError(f"the model's head ({type(part.head).__name__}) gives no logits")
    return logits
