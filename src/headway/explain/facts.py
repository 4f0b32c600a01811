"""A short description of a model, for the head of a page."""

from __future__ import annotations

from headway.bundle import Bundle
from headway.explain import story
from headway.models.config import StackConfig
from headway.models.protocol import Model

NORM_PLACES = {"pre": "before", "post": "after"}


def name_of(bundle: Bundle) -> str:
    return bundle.family if bundle.folder is None else bundle.folder.resolve().name


def kind_of(model: Model) -> story.Kind:
    return "vision" if model.inputs == "image" else model.shape


def facts(bundle: Bundle) -> list[tuple[str, str]]:
    model = bundle.model
    out = [("parameters", f"{sum(parameter.numel() for parameter in model.parameters()):,}")]
    for part in model.parts:
        out += _stack(part.model.config.stack, part.prefix.replace(".", " "))
    if model.shape == "recurrent":
        out.append(("hidden state", f"{model.config.hidden} numbers"))
    if model.inputs == "image":
        patches = model.config.embedding
        out.append(("patches", f"{patches.count} of {patches.patch[0]} × {patches.patch[1]} pixels"))
    else:
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
        (f"{side}norm", f"{block.norm.kind}, {NORM_PLACES[block.norm_place]} each part"),
    ]
