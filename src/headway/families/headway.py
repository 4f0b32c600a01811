"""Headway's own dialect: any config of ours as it is, tensors under their own names. For models whose
shape no published architecture has."""

from __future__ import annotations

from typing import Any

from headway.checkpoints.rules import AnyRule, same
from headway.families.family import Family, Keys
from headway.models.build import build, tensor_names
from headway.models.config import ModelConfig, to_dict
from headway.validation import from_dict


def read(keys: Keys, architecture: str) -> ModelConfig:
    return from_dict(ModelConfig, keys.get("headway", dict), path="config.json: headway")


def write(config: ModelConfig) -> dict[str, Any]:
    return {"headway": to_dict(config)}


def rules(config: ModelConfig) -> list[AnyRule]:
    return [same(name, name) for name in tensor_names(build(config, device="meta"))]


FAMILY = Family(
    name="headway",
    architectures=("HeadwayModel",),
    read=read,
    write=write,
    rules=rules,
    architecture=lambda config: "HeadwayModel",
)
