"""The files of bilm-tf (ELMo, Peters et al. 2018): options.json, and weights in HDF5 under TensorFlow's names.

Gates are there in the order input, new, forget, output, and the forget gate has 1 added to its bias; the input and the
recurrent matrix are one. The table of characters has no row for padding, which is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headway.checkpoints.rules import AnyRule, Dropped, Rule, same, transposed
from headway.errors import ConfigError
from headway.families.family import Keys
from headway.layers.characters import Activation, CharacterConfig, FilterConfig
from headway.layers.projected_lstm import ProjectedLSTMConfig
from headway.models.config import BiLMConfig
from headway.models.config_checks import LIMITS
from headway.validation import from_dict

FORGET_BIAS = 1.0
TRAINING_KEYS = (  # of options.json that say nothing about the model
    "all_clip_norm_val", "batch_size", "dropout", "n_epochs", "n_gpus", "n_negative_samples_batch", "n_train_tokens",
    "n_tokens_vocab", "unroll_steps", "sample_softmax", "share_embedding_softmax", "n_eval_batches", "checkpoint_path",
)  # fmt: skip


def read_options(options: Mapping[str, Any], *, file: str) -> BiLMConfig:
    """The config of a model from the content of options.json."""
    keys = Keys(options, file=file)
    lstm, cnn = (Keys(keys.get(name, dict), file=f"{file}: {name}") for name in ("lstm", "char_cnn"))
    keys.only("bidirectional", True)
    keys.ignore(*TRAINING_KEYS)
    width = lstm.size("projection_dim")
    stack = ProjectedLSTMConfig(
        lstm.size("dim"),
        width,
        layers=lstm.layers("n_layers"),
        cell_clip=float(lstm.get("cell_clip", int | float, 0.0)),
        projection_clip=float(lstm.get("proj_clip", int | float, 0.0)),
        residual=lstm.get("use_skip_connections", bool, False),
    )
    letters = Keys(cnn.get("embedding", dict), file=f"{file}: char_cnn.embedding")
    embedding = CharacterConfig(
        width,
        cnn.size("n_characters"),
        letters.size("dim"),
        filters_of(cnn.get("filters", list), file=file),
        longest=cnn.size("max_characters_per_token", most=10_000),
        highways=cnn.size("n_highway", most=LIMITS["layers"]),
        activation=from_dict(Activation, cnn.get("activation", str), path=f"{file}: char_cnn.activation"),
    )
    for each in (keys, lstm, cnn, letters):
        each.strict = True
        each.done()
    return BiLMConfig(embedding, stack)


def filters_of(given: Sequence[Any], *, file: str) -> tuple[FilterConfig, ...]:
    pairs = [pair for pair in given if isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair)]
    if not given or len(pairs) != len(given):
        raise ConfigError(f"{file}: char_cnn.filters must be a list of pairs: characters, and number of filters")
    return tuple(FilterConfig(characters, count) for characters, count in pairs)


def write_options(config: BiLMConfig) -> dict[str, Any]:
    words, stack = config.embedding, config.stack
    return {
        "lstm": {
            "dim": stack.hidden,
            "projection_dim": stack.width,
            "n_layers": stack.layers,
            "cell_clip": stack.cell_clip,
            "proj_clip": stack.projection_clip,
            "use_skip_connections": stack.residual,
        },
        "char_cnn": {
            "embedding": {"dim": words.character_width},
            "filters": [[each.characters, each.count] for each in words.filters],
            "n_highway": words.highways,
            "n_characters": words.characters,
            "max_characters_per_token": words.longest,
            "activation": words.activation,
        },
    }


def rules(config: BiLMConfig) -> list[AnyRule]:
    """Between our tensors and those of the HDF5 file; the mix and a head are not in it."""
    out: list[AnyRule] = [
        Rule(
            ("embedding.characters.weight",),
            "char_embed",
            lambda t: (torch.cat([t.new_zeros(1, t.shape[1]), t]),),
            lambda ts: ts[0][1:],
        ),
        transposed("embedding.project.weight", "CNN_proj/W_proj"),
        same("embedding.project.bias", "CNN_proj/b_proj"),
        Dropped("softmax/*", "of the vocabulary that the model was trained with"),
    ]
    for number, each in enumerate(config.embedding.filters):
        ours = f"embedding.convolutions.{number}"
        shape = (1, each.characters, config.embedding.character_width, each.count)
        out.append(_convolution(f"{ours}.weight", f"CNN/W_cnn_{number}", shape))
        out.append(same(f"{ours}.bias", f"CNN/b_cnn_{number}"))
    for number in range(config.embedding.highways):
        for ours_name, theirs_name in (("gate", "carry"), ("transform", "transform")):
            ours, theirs = f"embedding.highways.{number}.{ours_name}", f"CNN_high_{number}/"
            out.append(transposed(f"{ours}.weight", f"{theirs}W_{theirs_name}"))
            out.append(same(f"{ours}.bias", f"{theirs}b_{theirs_name}"))
    for side, direction in enumerate(("forwards", "backwards")):
        for layer in range(config.stack.layers):
            ours, theirs = f"stack.{direction}.{layer}", f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            out.append(_matrices(ours, theirs + "W_0", config.stack.width))
            out.append(_bias(f"{ours}.input.bias", theirs + "B"))
            out.append(transposed(f"{ours}.project.weight", theirs + "W_P_0"))
    return out


def _convolution(ours: str, theirs: str, shape: tuple[int, ...]) -> Rule:
    """(filter, joined · width) ⇄ (1, joined, width, filter)."""
    return Rule((ours,), theirs, lambda t: (t.flatten(0, 2).T,), lambda ts: ts[0].T.reshape(shape))


def _matrices(ours: str, theirs: str, width: int) -> Rule:
    """Input and recurrent weights ⇄ both in one, transposed."""

    def to_ours(t: Tensor) -> Sequence[Tensor]:
        return [_reordered(part.T).contiguous() for part in t.split([width, t.shape[0] - width])]

    def to_theirs(ts: Sequence[Tensor]) -> Tensor:
        return torch.cat([_reordered(part).T for part in ts])

    return Rule((f"{ours}.input.weight", f"{ours}.recurrent.weight"), theirs, to_ours, to_theirs)


def _bias(ours: str, theirs: str) -> Rule:
    def shifted(t: Tensor, by: float) -> Tensor:
        size = len(t) // 4
        return t + by * torch.cat([t.new_zeros(size), t.new_ones(size), t.new_zeros(2 * size)])

    def to_ours(t: Tensor) -> Sequence[Tensor]:
        return [shifted(_reordered(t), FORGET_BIAS)]

    return Rule((ours,), theirs, to_ours, lambda ts: _reordered(shifted(ts[0], -FORGET_BIAS)))


def _reordered(t: Tensor) -> Tensor:
    """Rows of the gates input, new, forget, output ⇄ input, forget, new, output."""
    first, second, third, fourth = t.chunk(4)
    return torch.cat([first, third, second, fourth])
