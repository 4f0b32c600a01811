"""Gemma 3, the text model (Gemma team 2025): norms before each part and on what it adds, a scale of 1 + weight in every
norm, and two kinds of layers: five with a sliding window for each without, which has a rotary base of its own."""

from __future__ import annotations

import math
from typing import Any

from headway.checkpoints.rules import AnyRule, modules
from headway.errors import ConfigError
from headway.families import llama
from headway.families.family import Family, Keys
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.rotary import RotaryConfig
from headway.models.config import (
    ClassifyHeadConfig,
    DecoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    LayerConfig,
    StackConfig,
)

FULL, SLIDING = "full_attention", "sliding_attention"


def read(keys: Keys, architecture: str) -> DecoderConfig:
    width, heads = keys.size("hidden_size", 2304), keys.size("num_attention_heads", 8)
    layers, context = keys.layers("num_hidden_layers", 26), keys.size("max_position_embeddings", 131072)
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        keys.only(key)
    keys.only("use_bidirectional_attention", False)
    keys.ignore("_sliding_window_pattern")  # layer_types say it too
    norm = NormConfig("rms", eps=keys.get("rms_norm_eps", float, 1e-6), unit_offset=True)
    rotary = {
        FULL: read_rotary(keys, FULL, context, old="rope_theta", default=1e6),
        SLIDING: read_rotary(keys, SLIDING, context, old="rope_local_base_freq", default=1e4),
    }
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(
            heads,
            keys.size("head_dim", 256),
            kv_heads=keys.size("num_key_value_heads", 4),
            bias="qkvo" if keys.get("attention_bias", bool, False) else "",
            rotary=rotary[FULL],
            qk_norm=norm,
            scale=keys.size("query_pre_attn_scalar", 256) ** -0.5,
            dropout=keys.get("attention_dropout", float, 0.0),
        ),
        feedforward=FeedForwardConfig(
            keys.size("intermediate_size", 9216),
            activation=keys.activation("hidden_activation", keys.get("hidden_act", str, "gelu_pytorch_tanh")),
            gated=True,
            bias=False,
        ),
        norm=norm,
        norm_place="both",
    )
    head: HeadConfig | None = {
        "Gemma3TextModel": None,
        "Gemma3ForCausalLM": LanguageHeadConfig(tied=keys.get("tie_word_embeddings", bool, True)),
        "Gemma3TextForSequenceClassification": ClassifyHeadConfig(keys.labels(), pool="last", bias=False),
    }[architecture]
    return DecoderConfig(
        embedding=EmbeddingConfig(keys.size("vocab_size", 262208), width, scale=math.sqrt(width)),
        stack=StackConfig(
            block, layers, causal=True, final_norm=True, per_layer=per_layer(keys, layers, rotary[SLIDING])
        ),
        head=head,
        context=context,
    )


def per_layer(keys: Keys, layers: int, rotary: RotaryConfig) -> tuple[LayerConfig, ...]:
    size, every = keys.size("sliding_window", 4096), keys.size("sliding_window_pattern", 6)
    kinds = layer_kinds(keys, [SLIDING if (number + 1) % every else FULL for number in range(layers)])
    sliding = LayerConfig(window=size, rotary=rotary)
    return tuple(sliding if kind == SLIDING else LayerConfig() for kind in kinds)


def layer_kinds(keys: Keys, default: list[str]) -> list[str]:
    kinds = keys.get("layer_types", list, default)
    if len(kinds) != len(default) or any(kind not in (FULL, SLIDING) for kind in kinds):
        raise ConfigError(f"config.json: layer_types must name {FULL} or {SLIDING} for each of {len(default)} layers")
    return kinds


def read_rotary(keys: Keys, kind: str, context: int, *, old: str, default: float) -> RotaryConfig:
    """Of one kind of layers: `rope_parameters` by kind, or older files' base and, for the layers without a window,
    `rope_scaling`."""
    given = keys.get("rope_parameters", dict, {}).get(kind) or {}
    if not isinstance(given, dict):
        raise ConfigError(f"config.json: rope_parameters: {kind} must be an object, not {given!r:.60}")
    base = keys.get(old, float, default)
    scaling = keys.get("rope_scaling", dict, {})
    own = {**(scaling if kind == FULL else {}), "rope_theta": base, **given}
    return llama.rotary(Keys({"rope_parameters": own}, outer=keys), context, base)


def write(config: DecoderConfig) -> dict[str, Any]:
    block = config.stack.block
    attention = block.attention
    sliding = next((layer for layer in config.stack.per_layer if layer.window), None)
    full_rotary, scale = attention.rotary, attention.scale
    if full_rotary is None or scale is None or sliding is None or not isinstance(sliding.rotary, RotaryConfig):
        raise ConfigError("Gemma 3 has rotary positions, a given scale of the scores, and layers with a window")
    kinds = [SLIDING if layer.window else FULL for layer in config.stack.per_layer]
    rotaries = {FULL: llama.write_rotary(full_rotary), SLIDING: llama.write_rotary(sliding.rotary)}
    return {
        "hidden_size": block.width,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads or attention.heads,
        "head_dim": attention.head_size,
        "num_hidden_layers": config.stack.layers,
        "intermediate_size": block.feedforward.width,
        "hidden_activation": {"gelu_tanh": "gelu_pytorch_tanh"}.get(block.feedforward.activation, "gelu"),
        "rms_norm_eps": block.norm.eps,
        "query_pre_attn_scalar": round(scale**-2),
        "attention_bias": "q" in attention.bias,
        "attention_dropout": attention.dropout,
        "vocab_size": config.embedding.vocab,
        "max_position_embeddings": config.context,
        "sliding_window": sliding.window,
        "layer_types": kinds,
        "rope_parameters": rotaries,
        "tie_word_embeddings": not isinstance(config.head, LanguageHeadConfig) or config.head.tied,
    }


def architecture(config: DecoderConfig) -> str:
    kinds = {
        type(None): "Gemma3TextModel",
        LanguageHeadConfig: "Gemma3ForCausalLM",
        ClassifyHeadConfig: "Gemma3TextForSequenceClassification",
    }
    return kinds[type(config.head)]


def rules(config: DecoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}layers.{i}."
    norms = {
        ours + "attention_residual.branch_norm": theirs + "post_attention_layernorm",
        ours + "feedforward_residual.norm": theirs + "pre_feedforward_layernorm",
        ours + "feedforward_residual.branch_norm": theirs + "post_feedforward_layernorm",
    }
    shared = [rule for rule in llama.rules(config) if getattr(rule, "ours", ("",))[0] not in norms]
    return [*shared, *modules(norms)]


FAMILY = Family(
    name="gemma3_text",
    architectures=("Gemma3ForCausalLM", "Gemma3TextModel", "Gemma3TextForSequenceClassification"),
    read=read,
    write=write,
    rules=rules,
    architecture=architecture,
    base="model.",
    bare=("Gemma3TextModel",),
)
