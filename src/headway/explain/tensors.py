"""Values recorded in one forward pass as parts of the story: embedding, attention, residual stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.explain import story
from headway.explain.choices import round_float32
from headway.explain.model_map import AttentionInfo, StackInfo
from headway.explain.size_budget import PATTERN_POSITIONS, Kept
from headway.layers.context import Context
from headway.layers.positions import SinusoidalPositions, sinusoids

Recorded = Mapping[str, Sequence[Tensor]]
Contexts = Mapping[str, Context]
VECTORS = ("q", "k", "v", "z")


def taps(stack: StackInfo, attentions: Sequence[AttentionInfo], kept: Kept) -> list[str]:
    """The taps to record for one stack."""
    names = [f"{stack.prefix}embedding.{part}" for part in _embedding_taps(stack.model)]
    for block, _ in stack.blocks:
        names += [f"{block}.{part}.{end}" for part in _residuals(stack) for end in ("branch", "stream")]
    return names + attention_taps([each for each in attentions if each.stack == stack], kept)


def attention_taps(attentions: Sequence[AttentionInfo], kept: Kept) -> list[str]:
    names = []
    for each in attentions:
        if each.layer in kept.weights:
            names.append(f"{each.name}.weights")
        if each.layer in kept.vectors:
            names += [f"{each.name}.{part}" for part in VECTORS]
    return names


def array(values: Tensor) -> np.ndarray:
    return values.detach().float().cpu().numpy()


# ---------------------------------------------------------------------------------------- embedding and position


def embedding(stack: StackInfo, recorded: Recorded, contexts: Contexts) -> story.EmbeddingView:
    module, prefix = stack.model.embedding, f"{stack.prefix}embedding."
    result = recorded[prefix + "sum"][-1][0]  # (token, width)
    position = _position(stack, contexts)
    if stack.model.inputs == "image":
        token = torch.cat([*(token[0] for token in module.prefix()), recorded[prefix + "patch"][0][0]])
        position = story.Position("learned", array(module.positions[0]))
    elif stack.model.inputs == "audio":
        token = recorded[prefix + "frames"][0][0]
        if module.positions is not None:
            table = array(module.positions)
            position = story.Position("sinusoidal", table[: len(token)], pattern=table[:PATTERN_POSITIONS])
    else:
        token = recorded[prefix + "token"][0][0] * module.scale
        if module.positions is not None:
            position = _vectors(module.positions, recorded[prefix + "position"][0][0])
    return story.EmbeddingView(stack.sequence, array(token), position, array(result), _also(module))


def _vectors(module: nn.Module, added: Tensor) -> story.Position:
    if not isinstance(module, SinusoidalPositions):
        return story.Position("learned", array(added))
    pattern = sinusoids(PATTERN_POSITIONS, module.width, layout=module.layout)
    return story.Position("sinusoidal", array(added), pattern=array(pattern))


def _also(module: nn.Module) -> list[Literal["segment", "norm"]]:
    found: dict[Literal["segment", "norm"], str] = {"segment": "segments", "norm": "norm"}
    return [name for name, part in found.items() if getattr(module, part, None) is not None]


def _embedding_taps(model: Any) -> list[str]:
    if model.inputs == "image":
        return ["patch", "sum"]
    if model.inputs == "audio":
        return ["frames", "sum"]
    return ["token", "sum"] + ([] if model.embedding.positions is None else ["position"])


def _position(stack: StackInfo, contexts: Contexts) -> story.Position:
    """Where position enters, if not at the input: at q and k, at the scores, or nowhere."""
    config, rotaries = stack.model.config.stack, stack.model.stack.rotaries
    if rotaries:
        positions = contexts[f"{stack.prefix}stack.blocks.0.attention"].positions
        assert positions is not None
        ids = positions.ids[:1]  # (1, token)
        angles, _ = next(iter(rotaries.values())).angles(ids.float(), ids.amax(-1) + 1)
        return story.Position("rotary", angles=array(angles[0]))
    if config.score_bias is None and config.block.attention.score_bias is None:
        return story.Position("none")
    return story.Position("alibi" if config.score_bias == "alibi" else "relative")


# ---------------------------------------------------------------------------------------- attention


def attention(layer: AttentionInfo, recorded: Recorded, contexts: Contexts, kept: Kept) -> story.Attention:
    weights = recorded[f"{layer.name}.weights"][-1][0]  # (head, query, key), of the last pass through the layer
    queries, keys = weights.shape[1:]
    full = layer.layer in kept.vectors
    vectors = {part: recorded[f"{layer.name}.{part}"][-1] for part in VECTORS} if full else {}
    context = contexts[layer.name]
    bias = layer.module.bias(vectors["q"], vectors["k"], context) if full else None
    mask = layer.module.mask(context).tensor(queries, keys, weights.device)
    return story.Attention(
        name=layer.name,
        stack=layer.stack.name,
        layer=layer.layer,
        kind="cross" if layer.cross else "self",
        queries=layer.stack.sequence,
        keys=layer.keys,
        causal=layer.causal,
        scale=layer.scale,
        heads=layer.module.heads,
        kv_heads=layer.module.kv_heads,
        weights=story.quantize(array(weights)) if kept.quantized else array(weights),
        mask=np.ones((queries, keys), dtype=bool)
        if mask is None
        else mask.expand(1, 1, queries, keys)[0, 0].cpu().numpy(),
        bias=None if bias is None else array(bias.expand(1, *weights.shape)[0]),
        **{part: array(values[0]) for part, values in vectors.items()},
    )


# ---------------------------------------------------------------------------------------- the residual stream


def stream(stack: StackInfo, recorded: Recorded) -> Iterator[story.PartView]:
    """Norms of the stream after each part and of what the part adds, and the cosine between before and after."""
    before = recorded[f"{stack.prefix}embedding.sum"][-1][0].float()  # (token, width)
    yield story.PartView(stack.name, -1, "embedding", stack.sequence, stream=_norms(before))
    for layer, (block, _) in enumerate(stack.blocks):
        for residual in _residuals(stack):
            branch, after = (recorded[f"{block}.{residual}.{end}"][-1][0].float() for end in ("branch", "stream"))
            yield story.PartView(
                stack.name,
                layer,
                residual.removesuffix("_residual"),  # type: ignore[arg-type]
                stack.sequence,
                stream=_norms(after),
                branch=_norms(branch),
                cosine=[round_float32(value) for value in F.cosine_similarity(before, after, dim=-1).tolist()],
            )
            before = after


def _norms(values: Tensor) -> list[float]:
    return [round_float32(value) for value in values.norm(dim=-1).tolist()]


def _residuals(stack: StackInfo) -> list[str]:
    parts = ["attention", "cross", "feedforward"] if stack.memory else ["attention", "feedforward"]
    return [f"{part}_residual" for part in parts]
