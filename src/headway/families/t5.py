"""T5 (Raffel et al. 2020), T5 v1.1 and mT5 (Xue et al. 2021): RMS pre-norm, no biases, scores that are
not scaled, and one relative bias table a stack, kept in its first block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Dropped, Rule, modules, same
from headway.errors import ConfigError
from headway.families.family import Family, Keys, activation_name
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.score_bias import RelativeBiasConfig
from headway.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    LanguageHeadConfig,
    StackConfig,
)

T5Config = EncoderDecoderConfig | EncoderConfig
DEFAULTS: dict[str, dict[str, Any]] = {  # the published defaults in which the two differ
    "t5": {"vocab_size": 32128, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "feed_forward_proj": "relu"},
    "mt5": {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"},
}
TITLES = {"t5": "T5", "mt5": "MT5"}


def read(keys: Keys, architecture: str, name: str) -> T5Config:
    default = DEFAULTS[name]
    keys.alias(hidden_size="d_model", num_attention_heads="num_heads", num_hidden_layers="num_layers", head_dim="d_kv")
    keys.ignore("classifier_dropout", "n_positions", "output_past")
    width, dropout = keys.size("d_model", 512), keys.get("dropout_rate", float, 0.1)
    attention = AttentionConfig(
        keys.size("num_heads", default["num_heads"]), keys.size("d_kv", 64), bias="", scale=1.0, dropout=dropout
    )
    block = BlockConfig(
        width=width,
        attention=attention,
        feedforward=feedforward(keys, default, dropout),
        norm=NormConfig("rms", eps=keys.get("layer_norm_epsilon", float, 1e-6)),
        dropout=dropout,
    )
    bias = RelativeBiasConfig(
        keys.size("relative_attention_num_buckets", 32), keys.size("relative_attention_max_distance", 128)
    )
    layers = keys.layers("num_layers", default["num_layers"])
    decoder_layers = keys.layers("num_decoder_layers", layers)
    embedding = EmbeddingConfig(keys.size("vocab_size", default["vocab_size"]), width, dropout=dropout)
    stack = StackConfig(block, layers, final_norm=True, final_dropout=dropout, score_bias=bias)
    head = language_head(keys, width, name)
    if architecture.endswith("EncoderModel"):
        return EncoderConfig(embedding, stack)
    decoder = replace(stack, block=replace(block, cross=attention), layers=decoder_layers, causal=True)
    return EncoderDecoderConfig(
        encoder=EncoderConfig(embedding, stack),
        decoder=DecoderConfig(embedding, decoder, head=None if architecture.endswith("Model") else head),
        start_id=keys.get("decoder_start_token_id", int, keys.get("pad_token_id", int, 0)),
    )


def feedforward(keys: Keys, default: dict[str, Any], dropout: float) -> FeedForwardConfig:
    """`feed_forward_proj` is "relu", "gated-gelu", …, where gated GELU has always meant the tanh form."""
    kind = keys.get("feed_forward_proj", str, default["feed_forward_proj"])
    named = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    return FeedForwardConfig(
        keys.size("d_ff", default["d_ff"]),
        activation=keys.activation("dense_act_fn", named),
        gated=keys.get("is_gated_act", bool, kind.startswith("gated-")),
        bias=False,
        dropout=dropout,
    )


def language_head(keys: Keys, width: int, name: str) -> LanguageHeadConfig:
    """T5 ties its output table and scales; v1.1 and mT5, as published, do neither."""
    tied = keys.get("tie_word_embeddings", bool, True)
    scaled = keys.get("scale_decoder_outputs", bool, tied) and name == "t5"
    return LanguageHeadConfig(tied=tied, scale=width**-0.5 if scaled else 1.0)


def infer_from_tensors(config: T5Config, names: Sequence[str]) -> T5Config:
    """The reference library writes `tie_word_embeddings: true` for v1.1 and mT5 too. Whether one of these, which do not
    scale, is tied is known only by its file having an lm_head."""
    if isinstance(config, EncoderConfig) or not isinstance(config.decoder.head, LanguageHeadConfig):
        return config
    head = config.decoder.head
    tied = "lm_head.weight" not in names or (head.tied and head.scale != 1.0)
    return replace(config, decoder=replace(config.decoder, head=replace(head, tied=tied)))


def write(config: T5Config, name: str) -> dict[str, Any]:
    encoder = config if isinstance(config, EncoderConfig) else config.encoder
    block, bias = encoder.stack.block, encoder.stack.score_bias
    if not isinstance(encoder.embedding, EmbeddingConfig) or not isinstance(bias, RelativeBiasConfig):
        raise ConfigError("T5 reads tokens and has a bias of the scores by relative distance")
    activation, gated = activation_name(block.feedforward.activation), block.feedforward.gated
    out = {
        "d_model": block.width,
        "d_kv": block.attention.head_size,
        "d_ff": block.feedforward.width,
        "num_heads": block.attention.heads,
        "num_layers": encoder.stack.layers,
        "vocab_size": encoder.embedding.vocab,
        "relative_attention_num_buckets": bias.buckets,
        "relative_attention_max_distance": bias.max_distance,
        "dropout_rate": block.dropout,
        "layer_norm_epsilon": block.norm.eps,
        "feed_forward_proj": "gated-gelu" if gated and "gelu" in activation else "gated-" * gated + activation,
        "dense_act_fn": activation,
        "is_gated_act": gated,
    }
    if isinstance(config, EncoderDecoderConfig):
        head = config.decoder.head
        out["num_decoder_layers"] = config.decoder.stack.layers
        out["decoder_start_token_id"] = config.start_id
        if isinstance(head, LanguageHeadConfig):
            out["tie_word_embeddings"] = head.tied
            if name == "t5":
                out["scale_decoder_outputs"] = head.scale != 1.0
    return out


def architecture(config: T5Config, name: str) -> str:
    if isinstance(config, EncoderConfig):
        return TITLES[name] + "EncoderModel"
    return TITLES[name] + ("Model" if config.decoder.head is None else "ForConditionalGeneration")


def rules(config: T5Config) -> list[AnyRule]:
    alone = isinstance(config, EncoderConfig)
    encoder = "" if alone else "encoder."
    gated = (config if isinstance(config, EncoderConfig) else config.encoder).stack.block.feedforward.gated
    return [
        same(encoder + "embedding.tokens", "shared"),
        *stack_rules(encoder, "encoder.", gated=gated, feedforward=1),
        *([] if alone else stack_rules("decoder.", "decoder.", gated=gated, feedforward=2)),
        same("decoder.head.project", "lm_head"),
        *[Alias(copy + ".weight", of="shared.weight") for copy in ("encoder.embed_tokens", "decoder.embed_tokens")],
        Alias("lm_head.weight", of="shared.weight"),
        Dropped("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", "nothing uses it"),
    ]


def stack_rules(side: str, theirs: str, *, gated: bool, feedforward: int) -> list[Rule]:
    """`feedforward` is where it stands among a block's layers."""
    ours, block = side + "stack.blocks.{i}.", theirs + "block.{i}.layer."
    table = {
        side + "stack.relative_bias.table": theirs + "block.0.layer.0.SelfAttention.relative_attention_bias",
        side + "stack.final_norm": theirs + "final_layer_norm",
        ours + "attention_residual.norm": block + "0.layer_norm",
        ours + "cross_residual.norm": block + "1.layer_norm",
        ours + "feedforward_residual.norm": block + f"{feedforward}.layer_norm",
        ours + "feedforward.gate": block + f"{feedforward}.DenseReluDense.wi_0",
        ours + "feedforward.up": block + f"{feedforward}.DenseReluDense." + ("wi_1" if gated else "wi"),
        ours + "feedforward.down": block + f"{feedforward}.DenseReluDense.wo",
    }
    for part in ("query", "key", "value", "output"):
        table[ours + f"attention.{part}"] = block + f"0.SelfAttention.{part[0]}"
        table[ours + f"cross.{part}"] = block + f"1.EncDecAttention.{part[0]}"
    return modules(table)


FAMILIES = tuple(
    Family(
        name=name,
        architectures=tuple(title + kind for kind in ("ForConditionalGeneration", "Model", "EncoderModel")),
        read=partial(read, name=name),
        write=partial(write, name=name),
        rules=rules,
        architecture=partial(architecture, name=name),
        infer_from_tensors=infer_from_tensors,
    )
    for name, title in TITLES.items()
)
