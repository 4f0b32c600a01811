"""Marian (Junczys-Dowmunt et al. 2018), the OPUS-MT translators: BART's blocks with sinusoidal
positions (all sines, then all cosines), no norm on the embeddings, and vocabularies that may differ by side."""

from __future__ import annotations

from functools import partial
from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Constant, same
from headway.errors import ConfigError
from headway.families.bart import (
    infer_from_tensors,
    logits_bias_rules,
    read_embedding,
    read_stack,
    shared_table_rules,
    stack_rules,
    write_shared,
)
from headway.families.family import Family, Keys
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.positions import SinusoidalConfig, sinusoids
from headway.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, LanguageHeadConfig


def read(keys: Keys, architecture: str) -> EncoderDecoderConfig:
    for key in ("normalize_before", "add_final_layer_norm", "normalize_embedding"):
        keys.only(key, False)
    keys.only("static_position_embeddings", True)
    context, vocab = keys.size("max_position_embeddings", 1024), keys.size("vocab_size", 58101)
    positions = SinusoidalConfig(context, layout="halves")
    shared = keys.get("share_encoder_decoder_embeddings", bool, True)
    tied = keys.get("tie_word_embeddings", bool, True)
    if shared and not tied:
        raise ConfigError("config.json: tie_word_embeddings = False needs share_encoder_decoder_embeddings = False")
    target = keys.size("decoder_vocab_size", vocab)
    return EncoderDecoderConfig(
        encoder=EncoderConfig(
            read_embedding(keys, vocab, positions=positions, norm=None),
            read_stack(keys, "encoder", norm_place="post", final_norm=False),
        ),
        decoder=DecoderConfig(
            read_embedding(keys, vocab if shared else target, positions=positions, norm=None),
            read_stack(keys, "decoder", norm_place="post", final_norm=False),
            head=None if architecture == "MarianModel" else LanguageHeadConfig(tied=tied, bias=True),
            context=context,
        ),
        start_id=keys.get("decoder_start_token_id", int, 58100),
        shared_embedding=shared,
    )


def write(config: EncoderDecoderConfig) -> dict[str, Any]:
    head = config.decoder.head
    return write_shared(config) | {
        "decoder_vocab_size": config.decoder.embedding.vocab,
        "max_position_embeddings": config.decoder.context,
        "share_encoder_decoder_embeddings": config.shared_embedding,
        "tie_word_embeddings": not isinstance(head, LanguageHeadConfig) or head.tied,
    }


def rules(config: EncoderDecoderConfig) -> list[AnyRule]:
    if config.shared_embedding:
        tables = shared_table_rules()
    else:
        tables = [
            same("encoder.embedding.tokens", "{base}encoder.embed_tokens"),
            same("decoder.embedding.tokens", "{base}decoder.embed_tokens"),
            same("decoder.head.project", "lm_head"),
            Alias("lm_head.weight", of="{base}decoder.embed_tokens.weight"),
        ]
    return [
        *tables,
        *stack_rules("encoder."),
        *stack_rules("decoder."),
        *logits_bias_rules(),
        *(position_rule(config, side) for side in ("encoder", "decoder")),
    ]


def position_rule(config: EncoderDecoderConfig, side: str) -> Constant:
    """The sinusoids: the bare model's file has them; only older files of the translator do."""
    embedding = config.encoder.embedding
    assert isinstance(embedding, EmbeddingConfig) and isinstance(embedding.positions, SinusoidalConfig)
    return Constant(
        "{base}" + side + ".embed_positions.weight",
        (embedding.positions.count, embedding.width),
        partial(sinusoids, embedding.positions.count, embedding.width, layout="halves"),
        written=config.decoder.head is None,
    )


FAMILY = Family(
    name="marian",
    architectures=("MarianMTModel", "MarianModel"),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "MarianModel" if config.decoder.head is None else "MarianMTModel",
    infer_from_tensors=infer_from_tensors,
    base="model.",
    bare=("MarianModel",),
)
