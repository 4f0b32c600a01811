"""BART (Lewis et al. 2020) and mBART (Liu et al. 2020): learned positions from row 2 on, a norm on the
embeddings, one table of tokens for everything. BART is post-norm; mBART is pre-norm with a final norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Dropped, Rule, modules, same, shaped
from headway.families.family import Family, Keys, activation_name
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig, SinusoidalConfig
from headway.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    LanguageHeadConfig,
    StackConfig,
)

NORM = NormConfig("layer", eps=1e-5)  # not a key of the config
TITLES = {"bart": "Bart", "mbart": "MBart"}


def read(keys: Keys, architecture: str, name: str) -> EncoderDecoderConfig:
    pre = name == "mbart"
    keys.only("tie_word_embeddings", True)  # else the reference library has four tables, one of them unused
    keys.only("normalize_before", pre)
    keys.only("add_final_layer_norm", pre)
    keys.only("normalize_embedding", True)
    keys.only("static_position_embeddings", False)
    context = keys.size("max_position_embeddings", 1024)
    embedding = read_embedding(
        keys, keys.size("vocab_size", 50265), positions=LearnedConfig(context, offset=2), norm=NORM
    )
    place: Any = "pre" if pre else "post"
    return EncoderDecoderConfig(
        encoder=EncoderConfig(embedding, read_stack(keys, "encoder", final_norm=pre, norm_place=place)),
        decoder=DecoderConfig(
            embedding,
            read_stack(keys, "decoder", final_norm=pre, norm_place=place),
            head=None if architecture.endswith("Model") else LanguageHeadConfig(tied=True, bias=True),
            context=context,
        ),
        start_id=keys.get("decoder_start_token_id", int, keys.get("eos_token_id", int, 2)),
    )


def read_embedding(
    keys: Keys, vocab: int, *, positions: LearnedConfig | SinusoidalConfig, norm: NormConfig | None
) -> EmbeddingConfig:
    width = keys.size("d_model", 1024)
    scale = math.sqrt(width) if keys.get("scale_embedding", bool, False) else 1.0
    dropout = keys.get("dropout", float, 0.1)
    return EmbeddingConfig(vocab, width, positions=positions, scale=scale, norm=norm, dropout=dropout)


@dataclass(frozen=True)
class Defaults:
    """What keys mean that a file leaves out."""

    width: int = 1024
    heads: int = 16
    feedforward: int = 4096
    layers: int = 12
    dropout: float = 0.1


BART = Defaults()


def read_stack(
    keys: Keys, side: str, *, norm_place: Any, final_norm: bool, bias: str = "qkvo", defaults: Defaults = BART
) -> StackConfig:
    """`side` is encoder or decoder; each has its own number of layers, heads and inner width."""
    keys.ignore("encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout", "num_hidden_layers")
    keys.ignore("add_bias_logits", "extra_pos_embeddings", "force_bos_token_to_be_generated", "output_past")
    keys.alias(hidden_size="d_model", num_attention_heads="encoder_attention_heads")
    width = keys.size("d_model", defaults.width)
    heads = keys.heads(f"{side}_attention_heads", defaults.heads, width=width)
    attention = AttentionConfig(heads, width // heads, bias=bias, dropout=keys.get("attention_dropout", float, 0.0))
    block = BlockConfig(
        width=width,
        attention=attention,
        cross=attention if side == "decoder" else None,
        feedforward=FeedForwardConfig(
            keys.size(f"{side}_ffn_dim", defaults.feedforward),
            activation=keys.activation("activation_function", "gelu"),
            dropout=keys.get("activation_dropout", float, 0.0),
        ),
        norm=NORM,
        norm_place=norm_place,
        dropout=keys.get("dropout", float, defaults.dropout),
    )
    layers = keys.layers(f"{side}_layers", defaults.layers)
    return StackConfig(block, layers, causal=side == "decoder", final_norm=final_norm)


def infer_from_tensors(config: EncoderDecoderConfig, names: Sequence[str]) -> EncoderDecoderConfig:
    """A file may leave out the bias of the logits."""
    head = config.decoder.head
    if not isinstance(head, LanguageHeadConfig) or "final_logits_bias" in names:
        return config
    return replace(config, decoder=replace(config.decoder, head=replace(head, bias=False)))


def write(config: EncoderDecoderConfig) -> dict[str, Any]:
    out = {"max_position_embeddings": config.decoder.context, "tie_word_embeddings": True}
    return out | write_shared(config)


def write_shared(config: EncoderDecoderConfig) -> dict[str, Any]:
    """The keys that BART, mBART and Marian have in common."""
    embedding = config.encoder.embedding
    assert isinstance(embedding, EmbeddingConfig)
    vocab = {"vocab_size": embedding.vocab, "scale_embedding": embedding.scale != 1.0}
    return vocab | write_stacks(config)


def write_stacks(config: EncoderDecoderConfig) -> dict[str, Any]:
    """The keys of both stacks, of BART and of Whisper."""
    block = config.encoder.stack.block
    out = {
        "d_model": block.width,
        "activation_function": activation_name(block.feedforward.activation),
        "dropout": block.dropout,
        "attention_dropout": block.attention.dropout,
        "activation_dropout": block.feedforward.dropout,
        "decoder_start_token_id": config.start_id,
    }
    for side, stack in (("encoder", config.encoder.stack), ("decoder", config.decoder.stack)):
        out[f"{side}_layers"] = stack.layers
        out[f"{side}_attention_heads"] = stack.block.attention.heads
        out[f"{side}_ffn_dim"] = stack.block.feedforward.width
    return out


def architecture(config: EncoderDecoderConfig, name: str) -> str:
    return TITLES[name] + ("Model" if config.decoder.head is None else "ForConditionalGeneration")


def rules(config: EncoderDecoderConfig) -> list[AnyRule]:
    return [
        *shared_table_rules(),
        *stack_rules("encoder."),
        *stack_rules("decoder."),
        *logits_bias_rules(),
        Dropped("*.version", "a counter of the file's age"),
    ]


def shared_table_rules() -> list[AnyRule]:
    copies = ("{base}encoder.embed_tokens", "{base}decoder.embed_tokens", "lm_head")
    table = "{base}shared"
    return [same("encoder.embedding.tokens", table), *(Alias(f"{c}.weight", of=f"{table}.weight") for c in copies)]


def logits_bias_rules() -> list[Rule]:
    return [shaped("decoder.head.bias", "final_logits_bias", ours_shape=(-1,), theirs_shape=(1, -1))]


def stack_rules(side: str) -> list[Rule]:
    ours, theirs = side + "stack.blocks.{i}.", "{base}" + side + "layers.{i}."
    table = {
        side + "embedding.positions.table": "{base}" + side + "embed_positions",
        side + "embedding.norm": "{base}" + side + "layernorm_embedding",
        side + "stack.final_norm": "{base}" + side + "layer_norm",
        ours + "attention_residual.norm": theirs + "self_attn_layer_norm",
        ours + "cross_residual.norm": theirs + "encoder_attn_layer_norm",
        ours + "feedforward_residual.norm": theirs + "final_layer_norm",
        ours + "feedforward.up": theirs + "fc1",
        ours + "feedforward.down": theirs + "fc2",
    }
    for part, name in {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}.items():
        table[ours + f"attention.{part}"] = theirs + f"self_attn.{name}"
        table[ours + f"cross.{part}"] = theirs + f"encoder_attn.{name}"
    return modules(table)


FAMILIES = tuple(
    Family(
        name=name,
        architectures=(f"{title}ForConditionalGeneration", f"{title}Model"),
        read=partial(read, name=name),
        write=write,
        rules=rules,
        architecture=partial(architecture, name=name),
        infer_from_tensors=infer_from_tensors,
        base="model.",
        bare=(f"{title}Model",),
    )
    for name, title in TITLES.items()
)
