"""Phi-3 and Phi-4-mini (Abdin et al. 2024): LLaMA with q, k and v in one matrix, and gate and up in another; Phi-4-mini
rotates three quarters of each head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.checkpoints.rules import AnyRule, fused
from headway.families import llama
from headway.families.family import Family, Keys
from headway.models.config import DecoderConfig, LayerConfig

VARIANT = llama.LlamaVariant("Phi3", context=4096, eps=1e-5)


def read(keys: Keys, architecture: str) -> DecoderConfig:
    keys.only("attention_bias", False)
    config = llama.read(keys, architecture, VARIANT)
    window = keys.get("sliding_window", int, None)
    block = replace(config.stack.block, dropout=keys.get("resid_pdrop", float, 0.0))
    per_layer = (LayerConfig(window=window),) * config.stack.layers if window else ()
    return replace(
        config,
        stack=replace(config.stack, block=block, per_layer=per_layer),
        embedding=replace(config.embedding, dropout=keys.get("embd_pdrop", float, 0.0)),
    )


def write(config: DecoderConfig) -> dict[str, Any]:
    rotary = config.stack.block.attention.rotary
    original = rotary.scaling.original_length if rotary is not None and rotary.scaling is not None else config.context
    return {
        **llama.write(config, VARIANT),
        "sliding_window": config.stack.layer(0).window,
        "resid_pdrop": config.stack.block.dropout,
        "embd_pdrop": config.embedding.dropout,
        "original_max_position_embeddings": original,
    }


def rules(config: DecoderConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}layers.{i}."
    attention = config.stack.block.attention
    keys = (attention.kv_heads or attention.heads) * attention.head_size
    return [
        *llama.common_rules(config),
        fused(
            [ours + f"attention.{part}" for part in ("query", "key", "value")],
            theirs + "self_attn.qkv_proj",
            sizes=(attention.heads * attention.head_size, keys, keys),
        ),
        fused([ours + "feedforward.gate", ours + "feedforward.up"], theirs + "mlp.gate_up_proj"),
    ]


FAMILY = Family(
    name="phi3",
    architectures=tuple(VARIANT.title + kind for kind in llama.KINDS),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: llama.architecture(config, VARIANT),
    base="model.",
    bare=("Phi3Model",),
)
