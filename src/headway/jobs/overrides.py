"""`--set key=value`: the setting a key names, and its value. Unknown keys are refused with a suggestion.

A key is a field of the training settings, of the task, or of the model size; the prefix `train.`, `task.` or `model.`
is needed only where a bare name fits several.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from headway.checkpoints.header import read_given_json
from headway.errors import CheckpointError, ConfigError, did_you_mean
from headway.files import open_file
from headway.validation import from_dict

OTHER_NAMES = {  # names of the same setting in other libraries
    "learning_rate": "lr", "batch_size": "batch", "per_device_train_batch_size": "batch", "num_epochs": "epochs",
    "num_train_epochs": "epochs", "max_steps": "steps", "gradient_accumulation_steps": "accumulate",
    "warmup_steps": "warmup", "warmup_ratio": "warmup", "max_grad_norm": "clip", "grad_clip": "clip",
    "adam_betas": "betas", "adam_epsilon": "eps", "hidden_size": "width", "d_model": "width", "n_embd": "width",
    "num_layers": "layers", "num_hidden_layers": "layers", "n_layer": "layers", "num_heads": "heads",
    "num_attention_heads": "heads", "n_head": "heads", "intermediate_size": "feedforward", "d_ff": "feedforward",
    "vocab_size": "vocab", "max_length": "limit", "max_seq_length": "limit", "block_size": "context",
    "ema": "average", "ema_decay": "average", "bf16": "precision", "fp16": "precision", "early_stopping": "patience",
}  # fmt: skip

Sections = dict[str, dict[str, Any]]


def parse(pairs: Sequence[str]) -> dict[str, Any]:
    """["lr=0.01", …] → {"lr": 0.01}. A value is JSON, or else a plain string."""
    out: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise ConfigError(f"--set {pair!r}: expected key=value")
        try:
            out[key.strip()] = json.loads(text)
        except json.JSONDecodeError:
            out[key.strip()] = text.strip()
    return out


def from_file(path: Path) -> dict[str, Any]:
    """Settings from a JSON or TOML file, by section or by bare name."""
    try:
        if path.suffix == ".toml":
            with open_file(path) as file:
                return tomllib.load(file)
        return read_given_json(path)
    except (OSError, CheckpointError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable as settings: {error}") from error


def by_section(values: Mapping[str, Any], known: Mapping[str, type]) -> Sections:
    """Values by section. `known` is {"train": Settings, "task": Classify, …}; sections may also be nested
    objects, as in a config file."""
    fields = {section: {field.name for field in dataclasses.fields(kind)} for section, kind in known.items()}
    fields.get("task", set()).discard("tokenizer")
    hints = {section: get_type_hints(kind, include_extras=True) for section, kind in known.items()}
    out: Sections = {section: {} for section in known}
    for key, value in flatten(values, known).items():
        section, _, name = key.rpartition(".")
        found = [section] if section else [s for s, names in fields.items() if name in names]
        if section and section not in fields:
            raise ConfigError(f"setting {key!r}: no section {section!r}; sections: {', '.join(fields)}")
        if len(found) > 1:
            raise ConfigError(f"setting {key!r} could be {' or '.join(f'{s}.{name}' for s in found)}: add the section")
        if not found or name not in fields[found[0]]:
            choices = [n for s, names in fields.items() for n in names if not section or s == section]
            hint = (
                f"did you mean {OTHER_NAMES[name]!r}?"
                if OTHER_NAMES.get(name) in choices
                else did_you_mean(name, choices, otherwise=f"known: {', '.join(sorted(choices))}")
            )
            raise ConfigError(f"setting {key!r} is not known; {hint}")
        kind = hints[found[0]][name]
        out[found[0]][name] = from_dict(kind, as_list(kind, value), path=f"setting {key!r}")
    return out


def as_list(kind: Any, value: Any) -> Any:
    """A text for a setting that is a list of texts: its parts between commas (`report=tensorboard,mlflow`)."""
    is_list = get_origin(kind) in (list, tuple) and str in get_args(kind)
    return [part.strip() for part in value.split(",")] if is_list and isinstance(value, str) else value


def flatten(values: Mapping[str, Any], known: Mapping[str, type]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in values.items():
        if key in known and isinstance(value, Mapping):
            out |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            out[key] = value
    return out
