"""What the taps heard in one pass, as the story's parts: embedding, attention, residual stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.explain import story
from headway.explain.choices import short
from headway.explain.model_map import Place, Side
from headway.explain.size_budget import PLACES, Kept
from headway.layers.embeddings import Embedding, PatchEmbedding
from headway.layers.positions import SinusoidalPositions, rotary_frequencies, sinusoids
from headway.models.stack import Stack

Heard = Mapping[str, Sequence[Tensor]]
VECTORS = ("q", "k", "v", "z")


def taps(side: Side, places: Sequence[Place], kept: Kept) -> list[str]:
    """Whom to listen to for one side of the model."""
    names = [f"{side.prefix}embedding.{part}" for part in _embedding_taps(side.model.embedding)]
    for block, _ in side.blocks:
        names += [f"{block}.{part}.{end}" for part in _residuals(side) for end in ("branch", "stream")]
    for place in (place for place in places if place.side == side):
        if place.layer in kept.weights:
            names.append(f"{place.name}.weights")
        if place.layer in kept.vectors:
            names += [f"{place.name}.{part}" for part in VECTORS]
    return names


def array(values: Tensor) -> np.ndarray:
    return values.detach().float().cpu().numpy()


# ---------------------------------------------------------------------------------------- embedding and position


def embedding(side: Side, heard: Heard) -> story.Embedding:
    module, at = side.model.embedding, f"{side.prefix}embedding."
    result = heard[at + "sum"][0][0]  # (token, width)
    position = _angles(side.model.stack, len(result))
    if isinstance(module, PatchEmbedding):
        words = torch.cat([module.first[0], heard[at + "patch"][0][0]])
        position = story.Position("learned", array(module.positions[0]))
    else:
        words = heard[at + "token"][0][0] * module.scale
        if module.positions is not None:
            position = _vectors(module.positions, heard[at + "position"][0][0])
    return story.Embedding(side.sequence, array(words), position, array(result), _also(module))


def _vectors(module: nn.Module, added: Tensor) -> story.Position:
    if not isinstance(module, SinusoidalPositions):
        return story.Position("learned", array(added))
    pattern = sinusoids(PLACES, module.width, layout=module.layout)
    return story.Position("sinusoidal", array(added), pattern=array(pattern))


def _also(module: Embedding | PatchEmbedding) -> list[Literal["segment", "norm"]]:
    found: dict[Literal["segment", "norm"], str] = {"segment": "segments", "norm": "norm"}
    return [name for name, part in found.items() if getattr(module, part, None) is not None]


def _embedding_taps(module: Embedding | PatchEmbedding) -> list[str]:
    if isinstance(module, PatchEmbedding):
        return ["patch", "sum"]
    return ["token", "sum"] + ([] if module.positions is None else ["position"])


def _angles(stack: Stack, length: int) -> story.Position:
    if stack.rotary is not None:
        size, config = stack.rotary.size, stack.rotary.config
        frequencies, _ = rotary_frequencies(size, config, lengths=torch.tensor([length]))
        angles = torch.arange(length)[:, None] * frequencies.reshape(1, -1)  # (token, size/2)
        return story.Position("rotary", angles=array(angles))
    if stack.config.score_bias is None:
        return story.Position("none")
    return story.Position("alibi" if stack.config.score_bias == "alibi" else "relative")


# ---------------------------------------------------------------------------------------- attention


def attention(place: Place, heard: Heard, kept: Kept) -> story.Attention:
    weights = heard[f"{place.name}.weights"][0][0]  # (head, query, key)
    queries, keys = weights.shape[1:]
    full = place.layer in kept.vectors
    vectors = {part: array(heard[f"{place.name}.{part}"][0][0]) for part in VECTORS} if full else {}
    bias = place.bias(queries, keys) if full else None
    return story.Attention(
        name=place.name,
        stack=place.side.name,
        layer=place.layer,
        kind="cross" if place.cross else "self",
        queries=place.side.sequence,
        keys=place.keys,
        causal=place.causal,
        scale=place.scale,
        heads=place.module.heads,
        kv_heads=place.module.kv_heads,
        weights=story.fractions(array(weights)) if kept.rounded else array(weights),
        mask=place.mask(queries, keys).numpy(),
        bias=None if bias is None else array(bias),
        **vectors,
    )


# ---------------------------------------------------------------------------------------- the residual stream


def stream(side: Side, heard: Heard) -> Iterator[story.Part]:
    """How large the stream is after each part, what the part added, and how far it turned the stream."""
    before = heard[f"{side.prefix}embedding.sum"][0][0].float()  # (token, width)
    yield story.Part(side.name, -1, "embedding", side.sequence, stream=_norms(before))
    for layer, (block, _) in enumerate(side.blocks):
        for residual in _residuals(side):
            branch, after = (heard[f"{block}.{residual}.{end}"][0][0].float() for end in ("branch", "stream"))
            yield story.Part(
                side.name,
                layer,
                residual.removesuffix("_residual"),  # type: ignore[arg-type]
                side.sequence,
                stream=_norms(after),
                branch=_norms(branch),
                cosine=[short(value) for value in F.cosine_similarity(before, after, dim=-1).tolist()],
            )
            before = after


def _norms(values: Tensor) -> list[float]:
    return [short(value) for value in values.norm(dim=-1).tolist()]


def _residuals(side: Side) -> list[str]:
    parts = ["attention", "cross", "feedforward"] if side.memory else ["attention", "feedforward"]
    return [f"{part}_residual" for part in parts]
