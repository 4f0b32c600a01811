"""A short description of a model, for the head of a page."""

from __future__ import annotations

from typing import Any

from headway.bundle import Bundle
from headway.explain import story
from headway.models.config import StackConfig

NORM_PLACES = {
    "pre": "before each part",
    "post": "after each part",
    "branch": "on what each part adds",
    "both": "before each part and on what it adds",
}


def model_facts(bundle: Bundle) -> story.Model:
    model = bundle.model
    name = bundle.family if bundle.folder is None else bundle.folder.resolve().name
    kind: story.Kind = "vision" if model.inputs == "image" and model.shape == "encoder" else model.shape
    return story.Model(name, bundle.family, kind, _facts(bundle))


def _facts(bundle: Bundle) -> list[tuple[str, str]]:
    model = bundle.model
    out = [("parameters", f"{sum(parameter.numel() for parameter in model.parameters()):,}")]
    for part in (part for part in model.parts if part.model.config.stack.layers):
        out += _stack(part.model.config.stack, part.prefix.replace(".", " "))
    if not model.parts:
        config = model.config
        out.append(("cell", f"{config.cell}, {config.layers} layer{'s' * (config.layers > 1)}"))
        out.append(("hidden state", f"{config.hidden} numbers"))
    for part in model.parts:
        front: Any = getattr(part.model.config, "embedding", None)
        if hasattr(front, "patch"):
            out.append(("patches", f"{front.count} of {front.patch[0]} × {front.patch[1]} pixels"))
        elif hasattr(front, "convnet"):
            out.append(("feature map", f"a vector for {front.stride} × {front.stride} pixels"))
    if model.vocab_size is not None:
        out.append(("vocabulary", f"{model.vocab_size:,}"))
    return out


def _stack(config: StackConfig, side: str = "") -> list[tuple[str, str]]:
    block, attention = config.block, config.block.attention
    heads = f"{attention.heads} of {attention.head_size} numbers"
    if attention.kv_heads not in (None, attention.heads):
        heads += f", {attention.kv_heads} for keys and values"
    return [
        (f"{side}layers", str(config.layers)),
        (f"{side}width", str(block.width)),
        (f"{side}heads", heads),
        (f"{side}feed-forward", f"{block.feedforward.width} ({block.feedforward.activation})"),
        (f"{side}norm", f"{block.norm.kind}, {NORM_PLACES[block.norm_place]}"),
    ]
