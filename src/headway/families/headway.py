"""Headway's own dialect: any config of ours as it is, tensors under their own names. For models whose
shape no published architecture has."""

from __future__ import annotations

from typing import Any

from headway.checkpoints.rules import AnyRule, same
from headway.families.family import Family, Keys
from headway.models.build import build, tensor_names
from headway.models.config import EnsembleConfig, ModelConfig, to_dict
from headway.models.ensemble import file_name
from headway.validation import from_dict


def read(keys: Keys, architecture: str) -> ModelConfig:
    keys.strict = True
    return from_dict(ModelConfig, upgraded(keys.get("headway", dict)), path="config.json: headway")


def upgraded(config: Any) -> Any:
    """A config as it is written now, from one written by an earlier version: the windows of layers were a list of their
    own, and the members of an ensemble were parts of a head."""
    if not isinstance(config, dict):
        return config
    out = {key: upgraded(value) for key, value in config.items()}
    if "windows" in out and "block" in out:
        windows = out.pop("windows")
        if isinstance(windows, list) and windows:
            out["per_layer"] = [{"window": window} for window in windows]
    if isinstance(head := out.get("head"), dict) and "ngrams" in head:
        members = {name: head.pop(name, None) for name in ("ngrams", "convolution")}
        out = {"model": out, **members, "shape": "ensemble"} if any(members.values()) else out
    return out


def write(config: ModelConfig) -> dict[str, Any]:
    return {"headway": to_dict(config)}


def rules(config: ModelConfig) -> list[AnyRule]:
    names = tensor_names(build(config, device="meta"))
    return [same(name, file_name(name) if isinstance(config, EnsembleConfig) else name) for name in names]


FAMILY = Family(
    name="headway",
    architectures=("HeadwayModel",),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "HeadwayModel",
)
