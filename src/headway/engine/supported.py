"""Which models the engine implements, field by field. It computes blocks with its own code, so a config field that it
does not list must have its default value: a new option of a layer is refused until the engine implements it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import nn

from headway.engine.bf16 import Bf16Linear, Bf16Table
from headway.engine.int8 import Int8Linear, Int8Table
from headway.errors import with_article
from headway.layers.attention import Attention, AttentionConfig
from headway.layers.block import Block, BlockConfig, Residual
from headway.layers.embeddings import Embedding, EmbeddingConfig
from headway.layers.feedforward import FeedForward, FeedForwardConfig
from headway.layers.linear import Linear, TokenTable
from headway.layers.norms import NormConfig, RMSNorm
from headway.layers.positions import LearnedConfig, LearnedPositions, SinusoidalConfig, SinusoidalPositions
from headway.layers.rotary import RotaryConfig, RotaryScaling
from headway.layers.score_bias import AlibiBias, RelativeBias, RelativeBiasConfig
from headway.layers.tap import Tap
from headway.models.config import DecoderConfig, LanguageHeadConfig, LayerConfig, StackConfig
from headway.models.decoder import Decoder
from headway.models.heads import LanguageHead
from headway.models.stack import Stack

ANY = "any value"
CONFIG = "None, or configs that are listed too"
Rules = Mapping[type, Mapping[str, tuple[Any, ...]]]  # the values of each field that are implemented


def any_value(names: str) -> dict[str, tuple[Any, ...]]:
    return dict.fromkeys(names.split(), (ANY,))


# what a compiled decoding step implements
COMPILED_STEP: Rules = {
    DecoderConfig: {"embedding": (CONFIG,), "stack": (CONFIG,), "head": (CONFIG,), **any_value("context shape")},
    EmbeddingConfig: {
        **any_value("vocab width scale dropout"),
        "positions": (CONFIG,),
        "segments": (0,),
        "norm": (CONFIG,),
        "positions_at": ("input",),
    },
    LearnedConfig: any_value("count offset"),
    SinusoidalConfig: any_value("count layout"),
    NormConfig: {"kind": ("layer", "rms"), **any_value("eps affine bias")},
    StackConfig: {
        "block": (CONFIG,),
        **any_value("layers final_norm final_dropout"),
        "causal": (True,),
        "score_bias": ("alibi", CONFIG),
        "per_layer": (CONFIG,),
    },
    LayerConfig: {"window": (ANY,), "rotary": ("none", CONFIG)},
    BlockConfig: {
        **any_value("width dropout drop_attention"),
        "attention": (CONFIG,),
        "feedforward": (CONFIG,),
        "cross": (CONFIG,),
        "norm": (CONFIG,),
        "norm_place": ("pre", "post"),
        "condition": (None,),
    },
    AttentionConfig: {
        **any_value("heads head_size kv_heads bias scale dropout memory_width"),
        "rotary": (CONFIG,),
        "qk_norm": (CONFIG,),
        "score_bias": (None,),
    },
    RotaryConfig: {**any_value("theta share"), "scaling": (CONFIG,)},
    RotaryScaling: {
        "kind": ("linear", "yarn", "llama3"),  # the others depend on the length of each row
        **any_value("factor original_length attention_factor beta_fast beta_slow mscale mscale_all_dim truncate"),
        **any_value("low_freq_factor high_freq_factor short_factor long_factor"),
    },
    RelativeBiasConfig: any_value("buckets max_distance"),
    FeedForwardConfig: {
        **any_value("width gated bias dropout"),
        "activation": ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"),
    },
    LanguageHeadConfig: {**any_value("tied bias scale kind"), "transform": (None,)},
}
# what a block that works in place implements; attention and norms are called as modules
INPLACE_BLOCK: Rules = {
    BlockConfig: {
        **any_value("width attention cross norm dropout drop_attention condition"),
        "norm_place": ("pre", "post"),
        "feedforward": (CONFIG,),
    },
    FeedForwardConfig: any_value("width activation gated bias dropout"),
}
# what the prefill implements, which calls all but the last block as modules
PREFILL: Rules = {
    DecoderConfig: {**any_value("embedding head context shape"), "stack": (CONFIG,)},
    StackConfig: {
        **any_value("layers causal final_norm final_dropout score_bias relative per_layer"),
        "block": (CONFIG,),
    },
    BlockConfig: {
        **any_value("width feedforward norm norm_place parallel dropout drop_attention"),
        "attention": (CONFIG,),
        "cross": (CONFIG,),
        "condition": (None,),
    },
    AttentionConfig: {
        **any_value("heads head_size kv_heads bias rotary qk_norm qk_norm_over scale dropout score_bias memory_width")
    },
}

STEP_MODULES = frozenset(
    {Decoder, Embedding, Stack, nn.ModuleList, Block, Residual, Attention, FeedForward, LanguageHead, Tap}
    | {Linear, Int8Linear, Bf16Linear, TokenTable, Int8Table, Bf16Table, nn.LayerNorm, RMSNorm}
    | {LearnedPositions, SinusoidalPositions, RelativeBias, AlibiBias}
)


def unsupported_config(config: Any, rules: Rules, path: str = "config") -> str | None:
    """The first field, with its path and value, that `rules` do not cover; None if they cover all. A field that is not
    listed must have its default value."""
    fields = rules.get(type(config))
    if fields is None:
        return f"{path} is {with_article(type(config).__name__)}"
    for field in dataclasses.fields(config):
        value, where = getattr(config, field.name), f"{path}.{field.name}"
        rule = fields.get(field.name, (_default(field),))
        if rule == (ANY,):
            continue
        if CONFIG in rule and not isinstance(value, str):
            for part in value if isinstance(value, tuple) else (value,):
                reason = None if part is None else unsupported_config(part, rules, where)
                if reason is not None:
                    return reason
        elif value not in rule:
            return f"{where} is {value!r}"
    return None


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def unsupported_module(modules: Iterable[tuple[str, nn.Module]], known: Collection[type]) -> str | None:
    """The first module whose class is not among `known`, or whose forward was replaced; a subclass may differ."""
    for name, module in modules:
        if type(module) not in known:
            return f"{name} is {with_article(type(module).__name__)}"
        if "forward" in vars(module):
            return f"{name}.forward was replaced"
    return None
