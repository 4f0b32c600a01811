"""OpenAI's own files of Whisper: the sizes in `dims` as keys of the reference library's config.json, the names of their
tensors, and what generation_config.json says of the published models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.checkpoints.rules import AnyRule, convolution, modules, same
from headway.errors import CheckpointError, ConfigError
from headway.families.whisper import FAMILY
from headway.layers.embeddings import KERNEL
from headway.models.config import EncoderDecoderConfig
from headway.validation import from_dict

DIMS = ("n_mels", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_vocab", "n_text_ctx",
        "n_text_state", "n_text_head", "n_text_layer")  # fmt: skip
ENGLISH_VOCAB = 51864  # a larger one has several languages
FIRST_LANGUAGES = 99  # of the vocabulary of 51,865; each further token is a language
ALIGNMENT_HEADS = {  # (layer, head) pairs of the cross-attention that follow the sound, of the published models
    "tiny.en": "1.0 2.0 2.5 3.0 3.1 3.2 3.3 3.4",
    "tiny": "2.2 3.0 3.2 3.3 3.4 3.5",
    "base.en": "3.3 4.7 5.1 5.5 5.7",
    "base": "3.1 4.2 4.3 4.7 5.1 5.2 5.4 5.6",
    "small.en": "6.6 7.0 7.3 7.8 8.2 8.5 8.7 9.0 9.4 9.8 9.10 10.0 10.1 10.2 10.3 10.6 10.11 11.2 11.4",
    "small": "5.3 5.9 8.0 8.4 8.7 8.8 9.0 9.7 9.9 10.5",
    "medium.en": "11.4 14.1 14.12 14.14 15.4 16.0 16.4 16.9 17.12 17.14 18.7 18.10 18.15 20.0 20.3 20.9 20.14 21.12",
    "medium": "13.15 15.4 15.15 16.1 20.0 23.4",
    "large-v1": "9.19 11.2 11.4 11.17 22.7 22.11 22.17 23.2 23.15",
    "large-v2": (
        "10.12 13.17 16.11 16.12 16.13 17.15 17.16 18.4 18.11 18.19 19.11 21.2 21.3 22.3 22.9 22.12 23.5 23.7 23.13 "
        "25.5 26.1 26.12 27.15"
    ),
    "large-v3": "7.0 10.17 12.18 13.12 16.1 17.14 19.11 21.4 24.1 25.6",
    "large-v3-turbo": "2.4 2.11 3.3 3.6 3.11 3.14",
}
OTHER_NAMES = {"large": "large-v3", "turbo": "large-v3-turbo"}


def sizes_of(dims: Any, *, name: str) -> dict[str, int]:
    """The sizes of a model, checked; `name` is the file."""
    try:
        sizes: dict[str, int] = from_dict(dict[str, int], dims, path="dims")
    except ConfigError as error:
        raise CheckpointError(f"{name}: {error}") from error
    if missing := [key for key in DIMS if key not in sizes]:
        raise CheckpointError(f"{name}: dims has no {missing[0]}, so this is not a Whisper model of OpenAI's")
    if sizes["n_audio_state"] != sizes["n_text_state"]:
        raise CheckpointError(f"{name}: encoder and decoder of different widths are not supported")
    return sizes


def config_json(sizes: Mapping[str, int], *, end: int) -> dict[str, Any]:
    """config.json of a model with these sizes; `end` is the id of the end, which the start follows."""
    return {
        "model_type": "whisper",
        "architectures": [FAMILY.architectures[0]],
        "vocab_size": sizes["n_vocab"],
        "num_mel_bins": sizes["n_mels"],
        "d_model": sizes["n_audio_state"],
        "encoder_layers": sizes["n_audio_layer"],
        "encoder_attention_heads": sizes["n_audio_head"],
        "encoder_ffn_dim": 4 * sizes["n_audio_state"],
        "decoder_layers": sizes["n_text_layer"],
        "decoder_attention_heads": sizes["n_text_head"],
        "decoder_ffn_dim": 4 * sizes["n_text_state"],
        "max_source_positions": sizes["n_audio_ctx"],
        "max_target_positions": sizes["n_text_ctx"],
        "activation_function": "gelu",
        "dropout": 0.0,
        "decoder_start_token_id": end + 1,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
    }


def is_multilingual(vocab: int) -> bool:
    return vocab > ENGLISH_VOCAB


def language_count(vocab: int) -> int:
    return FIRST_LANGUAGES + max(0, vocab - ENGLISH_VOCAB - 1)


def rules(config: EncoderDecoderConfig) -> list[AnyRule]:
    """Between our tensor names and OpenAI's."""
    table = {
        "decoder.embedding.tokens.weight": "decoder.token_embedding.weight",
        "decoder.embedding.positions.table.weight": "decoder.positional_embedding",
        "encoder.embedding.positions": "encoder.positional_embedding",
        "encoder.stack.final_norm": "encoder.ln_post",
        "decoder.stack.final_norm": "decoder.ln",
    }
    parts = {"query": "query", "key": "key", "value": "value", "output": "out"}
    for side in ("encoder", "decoder"):
        ours, theirs = side + ".stack.blocks.{i}.", side + ".blocks.{i}."
        for layer, name in {"attention": "attn", "cross": "cross_attn"}.items():
            table |= {f"{ours}{layer}.{part}": f"{theirs}{name}.{their}" for part, their in parts.items()}
            table[f"{ours}{layer}_residual.norm"] = f"{theirs}{name}_ln"
        table[f"{ours}feedforward.up"], table[f"{ours}feedforward.down"] = f"{theirs}mlp.0", f"{theirs}mlp.2"
        table[f"{ours}feedforward_residual.norm"] = f"{theirs}mlp_ln"
    out: list[AnyRule] = list(modules(table))
    for number in (0, 1):
        ours, theirs = f"encoder.embedding.convolutions.{number}", f"encoder.conv{number + 1}"
        out += [
            convolution(f"{ours}.weight", f"{theirs}.weight", kernel=KERNEL),
            same(f"{ours}.bias", f"{theirs}.bias"),
        ]
    return out


def alignment_heads(config: EncoderDecoderConfig, *, name: str) -> list[list[int]] | None:
    """Of the published model of this name, if it has these sizes; None: not known."""
    stack = config.decoder.stack
    text = ALIGNMENT_HEADS.get(OTHER_NAMES.get(name, name), "")
    pairs = [[int(number) for number in pair.split(".")] for pair in text.split()]
    assert stack.block.cross is not None
    fits = all(layer < stack.layers and head < stack.block.cross.heads for layer, head in pairs)
    return pairs if pairs and fits else None


def generation_json(config: EncoderDecoderConfig, *, ids: Mapping[str, Any], name: str) -> dict[str, Any]:
    """generation_config.json; `ids` are the keys that follow from the vocabulary, `name` is that of the file."""
    out = {**ids, "max_length": config.decoder.context, "max_initial_timestamp_index": 50, "return_timestamps": False}
    heads = alignment_heads(config, name=name)
    return out if heads is None else {**out, "alignment_heads": heads}
