"""Configs of every family, and models built from them and run: what is accepted must also run.

`python -m fuzz.models` writes families.json again, from the cases of the parity tests."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from fuzz import seeds

from headway.families import MODULES, find
from headway.families.dialect import architecture_of, rules_of
from headway.families.family import Keys
from headway.models.build import build
from headway.models.config import ModelConfig, to_dict
from headway.models.config_checks import validate

LARGEST = 300_000  # parameters of a model that is run
LAYERS = 4
FILE = Path(__file__).with_name("families.json")


@cache
def family_configs() -> list[dict[str, Any]]:
    """Small configs, at least one of each family; of a family that is not in families.json, made of its parity case."""
    out = [*seeds.CONFIGS, *json.loads(FILE.read_text())]
    missing = set(MODULES) - {config["model_type"] for config in out} - {"headway"}
    return out + (_parity_configs(missing) if missing else [])


def _parity_configs(families: set[str]) -> list[dict[str, Any]]:
    import transformers
    from parity.cases import CASES

    found: dict[str, dict[str, Any]] = {}
    for case in CASES:
        kind = getattr(transformers, case.model)
        name = kind.config_class.model_type
        if name in families - found.keys():
            found[name] = json.loads(kind.config_class(**case.config).to_json_string())
            found[name]["architectures"] = [case.model]
    assert found.keys() == families, f"no parity case of {families - found.keys()}"
    return list(found.values())


@cache
def own_configs() -> list[dict[str, Any]]:
    """The same models in Headway's own dialect, which can say everything."""
    return [
        {"model_type": "headway", "architectures": ["HeadwayModel"], "headway": to_dict(read(config))}
        for config in family_configs()
    ]


def read(data: dict[str, Any]) -> ModelConfig:
    """As `headway.load` reads it, up to the point where weights are needed."""
    keys = Keys(data)
    kind = find(keys.get("model_type", str))
    config = kind.read(keys, architecture_of(keys, kind))
    keys.done()
    validate(config)
    if kind.name != "headway":
        rules_of(kind, config)
    return config


def build_and_run(config: ModelConfig) -> str:
    """Builds the model and runs it on two short inputs, if it is small; a larger one is built without its memory."""
    model: Any = build(config, device="meta")
    small = sum(parameter.numel() for parameter in model.parameters()) <= LARGEST
    layers = sum(len(part.model.stack.blocks) for part in model.parts)
    if not small or layers > LAYERS:
        return "built"
    torch.manual_seed(0)
    model = build(config).eval()
    inputs = example(model)
    more = {"decoder_ids": torch.full((2, 1), model.start_id)} if model.reads_source else {}
    if model.shape == "span-scorer":
        more = dict.fromkeys(("word_at", "label_at"), torch.zeros(2, 1, dtype=torch.long))
    with torch.no_grad():
        output = model(inputs, **more)
    return type(output).__name__


def example(model: Any) -> torch.Tensor:
    encoder = model.parts[0].model if model.parts else model
    if model.inputs == "image":
        config = encoder.embedding.config
        return torch.rand(2, config.channels, *config.image)
    if model.inputs == "audio":
        config = encoder.embedding.config
        return torch.rand(2, min(config.max_length or 8, 8), config.bins)
    length = min(5, encoder.max_length or 5, model.max_context or 5)
    return torch.arange(2 * length).reshape(2, length) % model.source_vocab_size


if __name__ == "__main__":
    hand_made = {config["model_type"] for config in seeds.CONFIGS}
    configs = _parity_configs(set(MODULES) - hand_made - {"headway"})
    FILE.write_text("[\n" + ",\n".join(json.dumps(config) for config in configs) + "\n]\n")
