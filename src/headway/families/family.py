"""What a family file is made of: a name, the keys of its config (read strictly), and its tensor rules.

Every key that the reference library's config of the family has is read, knowingly ignored, or refused by name
(`tests/families/test_config_keys.py` compares them). Any other key of a config.json changes nothing in the reference
library: it is noted and ignored, unless the folder has model code of its own, which may read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.checkpoints.rules import AnyRule
from headway.errors import ConfigError, did_you_mean
from headway.models.config import EncoderConfig, ModelConfig, PoolerConfig, StackConfig
from headway.models.config_checks import LIMITS
from headway.validation import from_dict

# Keys that say nothing about the shape of the model: bookkeeping, generation defaults, training aids.
BOOKKEEPING = frozenset(
    [
        "architectures",
        "model_type",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "_name_or_path",
        "name_or_path",
        "auto_map",
        "use_cache",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "torchscript",
        "use_bfloat16",
        "tf_legacy_loss",
        "pruned_heads",
        "chunk_size_feed_forward",
        "is_encoder_decoder",
        "is_decoder",
        "cross_attention_hidden_size",
        "add_cross_attention",
        "tie_encoder_decoder",
        "finetuning_task",
        "task_specific_params",
        "problem_type",
        "tokenizer_class",
        "prefix",
        "id2label",
        "label2id",
        "num_labels",
        "_num_labels",
        "max_length",
        "min_length",
        "do_sample",
        "early_stopping",
        "num_beams",
        "num_beam_groups",
        "diversity_penalty",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "repetition_penalty",
        "length_penalty",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "bad_words_ids",
        "num_return_sequences",
        "output_scores",
        "return_dict_in_generate",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "remove_invalid_values",
        "exponential_decay_length_penalty",
        "suppress_tokens",
        "begin_suppress_tokens",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "sep_token_id",
        "decoder_start_token_id",
        "initializer_range",
        "initializer_factor",
        "init_std",
        "gradient_checkpointing",
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_commit_hash",
        "return_unused_kwargs",
        "pretraining_tp",
        "use_return_dict",
        "layer_norm_epsilon_unused",
        "model_max_length",
    ]
)

ACTIVATIONS = {  # their name → ours; exact names, since gelu and its tanh form are different functions
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_MISSING = object()
MOST_NOTED = 20  # unknown keys in a message


class Keys:
    """A foreign config, read key by key; `file` names it in errors. `outer` is the config that contains it, if any."""

    def __init__(self, data: Mapping[str, Any], file: str = "config.json", *, outer: Keys | None = None):
        self.data, self.file = data, file
        self.read: set[str] = set()
        self.notes: list[str] = [] if outer is None else outer.notes  # a line for each file with unknown keys
        self.own_code: bool = names_model_code(data) if outer is None else outer.own_code
        self.strict = False  # unknown keys are refused: the reference library has no config that lists all keys

    def get(self, key: str, kind: Any, default: Any = _MISSING) -> Any:
        """The value of `key`, checked; its published default when the file leaves it out or says null."""
        self.read.add(key)
        value = self.data.get(key)
        if value is None:
            if default is _MISSING:
                raise ConfigError(f"{self.file}: {key} is missing")
            return default
        value = from_dict(kind, value, path=f"{self.file}: {key}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{self.file}: {key} is {value}: it must be a finite number")
        return value

    def size(self, key: str, default: Any = _MISSING, *, most: int = LIMITS["vocab"]) -> int:
        """A whole number above zero (checked here, since sizes are divided before a model config exists)."""
        value = self.get(key, int, default)
        if value is not None and value <= 0:
            raise ConfigError(f"{self.file}: {key} is {value}: it must be positive")
        if value is not None and value > most:
            raise ConfigError(f"{self.file}: {key} is {value}: larger than any model Headway will allocate for")
        return value

    def layers(self, key: str, default: Any = _MISSING) -> int:
        return self.size(key, default, most=LIMITS["layers"])

    def heads(self, key: str, default: Any = _MISSING, *, width: int) -> int:
        """A number of heads that share `width` evenly."""
        heads = self.size(key, default)
        if width % heads:
            raise ConfigError(f"{self.file}: {key} is {heads}: it does not divide the width, {width}")
        return heads

    def activation(self, key: str, default: str) -> Any:
        name = self.get(key, str, default)
        if name not in ACTIVATIONS:
            raise ConfigError(f"{self.file}: {key} is {name!r}; known activations: {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[name]

    def only(self, key: str, *allowed: Any) -> None:
        """Values other than these (or none) are a variant that is refused by name."""
        self.read.add(key)
        value = self.data.get(key)
        if value is not None and value not in allowed:
            raise ConfigError(
                f"{self.file}: {key} = {value!r:.100} is not supported; supported: {', '.join(map(repr, allowed))}"
            )

    def ignore(self, *keys: str) -> None:
        self.read.update(keys)

    def alias(self, **keys: str) -> None:
        """Other names of keys, in the order name=key: each may repeat the key or stand in its place."""
        for name, key in keys.items():
            self.read.add(name)
            value = self.data.get(name)
            if value is not None and self.data.get(key) is None:
                self.data = {**self.data, key: value}
            elif value is not None and value != self.data[key]:
                raise ConfigError(
                    f"{self.file}: {name} = {value!r:.60} and {key} = {self.data[key]!r:.60} are one setting"
                )

    def labels(self) -> int:
        names = self.get("id2label", dict, None)
        return len(names) if names else self.size("num_labels", 2)

    def done(self) -> None:
        self.only("problem_type", "regression", "single_label_classification", "multi_label_classification")
        names = self.data.get("id2label") or {}
        if not isinstance(names, dict) or not all(key.isdecimal() and isinstance(names[key], str) for key in names):
            raise ConfigError(f"{self.file}: id2label must map whole numbers to names")
        self.only("pruned_heads", {})
        known = self.read | BOOKKEEPING
        unknown = [key for key, value in self.data.items() if key not in known and value is not None]
        if unknown and (self.own_code or self.strict):
            hint = did_you_mean(unknown[0], known, otherwise="remove it, or use another family")
            if self.own_code:
                hint = "the model code that auto_map names may read it, and Headway runs no code of a model folder"
            raise ConfigError(
                f"{self.file}: {unknown[0]:.100} = {self.data[unknown[0]]!r:.100} is not a key of this family; {hint}"
            )
        if unknown:
            missing = self.read - BOOKKEEPING - self.data.keys()
            hints = (did_you_mean(key, missing, cutoff=0.85) for key in unknown[:MOST_NOTED])
            names = [f"{key:.60} ({hint})" if hint else f"{key:.60}" for key, hint in zip(unknown, hints, strict=False)]
            more = f" and {len(unknown) - MOST_NOTED:,} more" if len(unknown) > MOST_NOTED else ""
            self.notes.append(f"{self.file}: not settings of this family, so ignored: {', '.join(names)}{more}")


def names_model_code(config: Mapping[str, Any]) -> bool:
    """Whether a config.json names Python code for its model, which is never run here."""
    named = config.get("auto_map")
    return isinstance(named, dict) and any(str(name).startswith("AutoModel") for name in named)


@dataclass(frozen=True)
class Family:
    """One published architecture, both ways. `read` turns its config keys and an architecture (the class name in its
    config.json) into ours; `write` turns ours back; `rules` names the tensors, `{base}` standing for the prefix that
    models with a head put before the bare model's names."""

    name: str  # its model_type
    architectures: tuple[str, ...]  # the first is the default
    read: Callable[[Keys, str], ModelConfig]
    write: Callable[[Any], dict[str, Any]]
    rules: Callable[[Any], Sequence[AnyRule]]
    architecture: Callable[[Any], str]  # our config → their class name
    base: str = ""
    bare: tuple[str, ...] = ()  # architectures saved without the prefix
    config_file: str = "config.json"
    positions_skip_pad: bool = False  # padding is told by its id and gets no position (RoBERTa)
    infer_from_tensors: Callable[[Any, Sequence[str]], ModelConfig] = lambda config, names: (
        config
    )  # completes a config by a file's tensor names


def without_absent_pooler(config: EncoderConfig, names: Sequence[str]) -> EncoderConfig:
    """A bare model may be saved with its pooler or without; its config.json does not say which."""
    only_pools = isinstance(config.head, PoolerConfig) and not (config.head.next_sentence or config.head.language)
    absent = only_pools and not any(name.endswith("pooler.dense.weight") for name in names)
    return replace(config, head=None) if absent else config


def activation_name(ours: str) -> str:
    """Our exact name → the reference library's."""
    return {"gelu_tanh": "gelu_new"}.get(ours, ours)


def encoder_keys(stack: StackConfig) -> dict[str, Any]:
    """The keys of a stack that BERT-like and ViT-like configs have in common."""
    block = stack.block
    return {
        "hidden_size": block.width,
        "num_attention_heads": block.attention.heads,
        "num_hidden_layers": stack.layers,
        "intermediate_size": block.feedforward.width,
        "hidden_act": activation_name(block.feedforward.activation),
        "layer_norm_eps": block.norm.eps,
        "hidden_dropout_prob": block.dropout,
        "attention_probs_dropout_prob": block.attention.dropout,
    }
