"""Whisper (Radford et al. 2022): BART's blocks, pre-norm and without a bias on the keys. The encoder reads log-mel
frames through two convolutions; its positions are a fixed sinusoidal table, the decoder's are learned. Tied head."""

from __future__ import annotations

from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, convolution, same
from headway.errors import ConfigError
from headway.families.bart import Defaults, read_stack, stack_rules, write_stacks
from headway.families.family import Family, Keys
from headway.layers.embeddings import KERNEL, EmbeddingConfig, FrameConfig
from headway.layers.positions import LearnedConfig
from headway.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, LanguageHeadConfig

TINY = Defaults(width=384, heads=6, feedforward=1536, layers=4, dropout=0.0)
MOST_POSITIONS = 1_000_000
TRAINING = (  # of SpecAugment in the reference library, and of its classifier
    "apply_spec_augment", "mask_time_prob", "mask_time_length", "mask_time_min_masks", "mask_feature_prob",
    "mask_feature_length", "mask_feature_min_masks", "use_weighted_layer_sum", "classifier_proj_size",
)  # fmt: skip


def read(keys: Keys, architecture: str) -> EncoderDecoderConfig:
    keys.only("tie_word_embeddings", True)
    keys.only("median_filter_width", 7)  # of word timings
    keys.ignore(*TRAINING, "scale_embedding")  # the reference library reads the last key and does not use it
    keys.alias(num_key_value_heads="encoder_attention_heads")
    width = keys.size("d_model", TINY.width)
    context, dropout = keys.size("max_target_positions", 448), keys.get("dropout", float, TINY.dropout)
    sides = {
        side: read_stack(keys, side, norm_place="pre", final_norm=True, bias="qvo", defaults=TINY)
        for side in ("encoder", "decoder")
    }
    frames = FrameConfig(
        width,
        keys.size("num_mel_bins", 80),
        positions=keys.size("max_source_positions", 1500, most=MOST_POSITIONS),
        dropout=dropout,
    )
    tokens = EmbeddingConfig(keys.size("vocab_size", 51865), width, positions=LearnedConfig(context), dropout=dropout)
    return EncoderDecoderConfig(
        encoder=EncoderConfig(frames, sides["encoder"]),
        decoder=DecoderConfig(
            tokens,
            sides["decoder"],
            head=None if architecture == "WhisperModel" else LanguageHeadConfig(tied=True),
            context=context,
        ),
        start_id=keys.get("decoder_start_token_id", int, 50257),
        shared_embedding=False,
    )


def write(config: EncoderDecoderConfig) -> dict[str, Any]:
    frames, tokens = config.encoder.embedding, config.decoder.embedding
    if not isinstance(frames, FrameConfig):
        raise ConfigError("a Whisper encoder reads audio frames")
    return write_stacks(config) | {
        "vocab_size": tokens.vocab,
        "num_mel_bins": frames.bins,
        "max_source_positions": frames.positions,
        "max_target_positions": config.decoder.context,
        "scale_embedding": False,
    }


def rules(config: EncoderDecoderConfig) -> list[AnyRule]:
    table = "{base}decoder.embed_tokens"
    convolutions: list[AnyRule] = []
    for number in (0, 1):
        ours, theirs = f"encoder.embedding.convolutions.{number}", "{base}encoder." + f"conv{number + 1}"
        weight = convolution(f"{ours}.weight", f"{theirs}.weight", kernel=KERNEL)
        convolutions += [weight, same(f"{ours}.bias", f"{theirs}.bias")]
    return [
        *convolutions,
        same("encoder.embedding.positions", "{base}encoder.embed_positions.weight"),
        same("decoder.embedding.tokens", table),
        Alias("proj_out.weight", of=f"{table}.weight"),
        *stack_rules("encoder."),
        *stack_rules("decoder."),
    ]


FAMILY = Family(
    name="whisper",
    architectures=("WhisperForConditionalGeneration", "WhisperModel"),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "WhisperModel" if config.decoder.head is None else "WhisperForConditionalGeneration",
    base="model.",
    bare=("WhisperModel",),
)
