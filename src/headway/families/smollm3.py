"""SmolLM3 (2025): LLaMA in which every fourth layer has no rotary positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.errors import ConfigError
from headway.families import llama
from headway.families.family import Family, Keys
from headway.models.config import SAME, DecoderConfig, LayerConfig

VARIANT = llama.LlamaVariant("SmolLM3", theta=2e6, kv_heads=4, context=32768, tied=True)


def read(keys: Keys, architecture: str) -> DecoderConfig:
    config = llama.read(keys, architecture, VARIANT)
    layers, every = config.stack.layers, keys.size("no_rope_layer_interval", 4)
    given = keys.get("no_rope_layers", list, None)
    rotates = [(number + 1) % every != 0 for number in range(layers)] if given is None else [bool(x) for x in given]
    size = keys.get("sliding_window", int, None) if keys.get("use_sliding_window", bool, False) else None
    kinds = keys.get("layer_types", list, None)
    slides = [not rotate for rotate in rotates] if kinds is None else [kind == "sliding_attention" for kind in kinds]
    keys.ignore("sliding_window")
    if min(len(rotates), len(slides)) < layers:
        raise ConfigError(f"config.json: no_rope_layers and layer_types must have a value for each of {layers} layers")
    per_layer = tuple(
        LayerConfig(window=size if slide else None, rotary=None if rotate else "none")
        for rotate, slide in zip(rotates[:layers], slides[:layers], strict=True)
    )
    return replace(config, stack=replace(config.stack, per_layer=per_layer if set(per_layer) != {SAME} else ()))


def write(config: DecoderConfig) -> dict[str, Any]:
    per_layer = [config.stack.layer(number) for number in range(config.stack.layers)]
    window = next((layer.window for layer in per_layer if layer.window), None)
    return {
        **llama.write(config, VARIANT),
        "no_rope_layers": [int(layer.rotary != "none") for layer in per_layer],
        "layer_types": [("sliding" if layer.window else "full") + "_attention" for layer in per_layer],
        "use_sliding_window": window is not None,
        "sliding_window": window,
    }


FAMILY = Family(
    name="smollm3",
    architectures=tuple(VARIANT.title + kind for kind in llama.KINDS),
    read=read,
    write=write,
    rules=llama.rules,
    architecture=lambda config: llama.architecture(config, VARIANT),
    base="model.",
    bare=("SmolLM3Model",),
)
