"""Room: checkpoints. What a sentence-transformers folder says beside its model: pooling, normalisation, length."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError, ConfigError


@dataclass(frozen=True)
class SentenceSettings:
    pooling: str = "mean"
    normalize: bool = False
    limit: int | None = None


def sentence_settings(folder: Path | None) -> SentenceSettings:
    """What a sentence-transformers folder says about pooling, normalisation and length."""
    if folder is None or not (folder / "modules.json").exists():
        return SentenceSettings()
    modules = _read_list(folder / "modules.json")
    pooling, normalize, limit = "mean", False, None
    for module in modules:
        kind, where = module.get("type", "").rsplit(".", 1)[-1], folder / module.get("path", "")
        if kind == "Pooling":
            pooling = _pooling(json.loads((where / "config.json").read_text(encoding="utf-8")), where)
        elif kind == "Normalize":
            normalize = True
        elif kind == "Transformer" and (where / "sentence_bert_config.json").exists():
            limit = json.loads((where / "sentence_bert_config.json").read_text(encoding="utf-8")).get("max_seq_length")
        elif kind != "Transformer":
            raise ConfigError(f"{folder}/modules.json: module {kind!r} is not supported")
    return SentenceSettings(pooling, normalize, limit)


def _pooling(settings: dict[str, Any], where: Path) -> str:
    names = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}
    if "pooling_mode" in settings:
        named = {"cls": "first", "mean": "mean", "lasttoken": "last"}.get(settings["pooling_mode"])
        chosen: list[str | None] = [named] if named else []
    else:
        chosen = [names.get(key) for key, on in settings.items() if key.startswith("pooling_mode_") and on]
    if len(chosen) != 1 or chosen[0] is None:
        raise ConfigError(f"{where}/config.json: this way of pooling is not supported: {settings}")
    return chosen[0]


def copy_sentence_files(source: Path | None, target: Path) -> None:
    """What says how to pool and normalise goes along with the model."""
    if source is None or source == target or not (source / "modules.json").exists():
        return
    names = ["modules.json", "sentence_bert_config.json"]
    names += [f"{m['path']}/config.json" for m in _read_list(source / "modules.json") if m.get("path")]
    for name in names:
        if (source / name).is_file() and (target / name).resolve().is_relative_to(target.resolve()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((source / name).read_bytes())


def _read_list(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise CheckpointError(f"{path}: expected a list of objects")
    return found
