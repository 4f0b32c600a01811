"""A short description of a model, for the head of a page."""

from __future__ import annotations

from headway.bundle import Bundle
from headway.explain import story
from headway.layers.embeddings import PatchConfig
from headway.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
    RecurrentConfig,
    StackConfig,
)

NORM_PLACES = {"pre": "before", "post": "after"}


def name_of(bundle: Bundle) -> str:
    return bundle.family if bundle.folder is None else bundle.folder.resolve().name


def kind_of(config: ModelConfig) -> story.Kind:
    if isinstance(config, EncoderConfig) and isinstance(config.embedding, PatchConfig):
        return "vision"
    return config.shape


def facts(bundle: Bundle) -> list[tuple[str, str]]:
    config = bundle.config
    count = sum(parameter.numel() for parameter in bundle.model.parameters())
    out = [("parameters", f"{count:,}")]
    match config:
        case EncoderDecoderConfig():
            out += [*_stack(config.encoder.stack, "encoder "), *_stack(config.decoder.stack, "decoder ")]
            out.append(("vocabulary", f"{config.decoder.embedding.vocab:,}"))
        case RecurrentConfig():
            out += [("hidden state", f"{config.hidden} numbers"), ("vocabulary", f"{config.embedding.vocab:,}")]
        case EncoderConfig(embedding=PatchConfig() as patches):
            out += _stack(config.stack)
            out.append(("patches", f"{patches.count} of {patches.patch[0]} × {patches.patch[1]} pixels"))
        case EncoderConfig() | DecoderConfig():
            out += _stack(config.stack)
            out.append(("vocabulary", f"{config.embedding.vocab:,}"))
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
