"""Pooling, normalisation and length settings of a sentence-transformers folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from headway.checkpoints.header import is_safe_name, parse_json, read_bounded, read_json
from headway.checkpoints.text_files import save_bytes
from headway.errors import CheckpointError, ConfigError
from headway.files import disk_errors, is_present, require_inside
from headway.validation import between, from_dict

Pooling = Literal["mean", "first", "last"]


@dataclass(frozen=True)
class SentenceSettings:
    pooling: Pooling = "mean"
    normalize: bool = False
    limit: int | None = None


def sentence_settings(folder: Path | None) -> SentenceSettings:
    """Read the settings of a sentence-transformers folder; the defaults if it is not one."""
    if folder is None or not is_present(folder / "modules.json"):
        return SentenceSettings()
    pooling: Pooling = "mean"
    normalize, limit = False, None
    for module in _modules(folder):
        kind, where = module["type"].rsplit(".", 1)[-1], folder / module["path"]
        if kind == "Pooling":
            pooling = _pooling(read_json(where / "config.json", inside=folder), where)
        elif kind == "Normalize":
            normalize = True
        elif kind == "Transformer" and is_present(where / "sentence_bert_config.json"):
            limit = read_json(where / "sentence_bert_config.json", inside=folder).get("max_seq_length")
        elif kind != "Transformer":
            raise ConfigError(f"{folder}/modules.json: module {kind!r} is not supported")
    limit = from_dict(
        Annotated[int, between(1)] | None, limit, path=f"{folder}/sentence_bert_config.json: max_seq_length"
    )
    return SentenceSettings(pooling, normalize, limit)


def _pooling(settings: dict[str, Any], where: Path) -> Pooling:
    named: dict[str, Pooling] = {"cls": "first", "mean": "mean", "lasttoken": "last"}
    flags: dict[str, Pooling] = {"cls_token": "first", "mean_tokens": "mean", "lasttoken": "last"}
    if "pooling_mode" in settings:
        chosen = [named.get(str(settings["pooling_mode"]))]
    else:
        on = [
            key.removeprefix("pooling_mode_") for key, on in settings.items() if key.startswith("pooling_mode_") and on
        ]
        chosen = [flags.get(key) for key in on]
    if len(chosen) != 1 or chosen[0] is None:
        raise ConfigError(f"{where}/config.json: this pooling is not supported: {settings}")
    return chosen[0]


def copy_sentence_files(source: Path | None, target: Path) -> None:
    """Copy the files with the pooling and normalisation settings."""
    if source is None or source == target or not is_present(source / "modules.json"):
        return
    names = ["modules.json", "sentence_bert_config.json"]
    names += [f"{module['path']}/config.json" for module in _modules(source) if module["path"]]
    for name in names:
        if is_present(source / name):
            with disk_errors(target / name, 0):
                require_inside(target / name, target)
            save_bytes(target / name, read_bounded(source / name, inside=source))


def _modules(folder: Path) -> list[dict[str, str]]:
    """The entries of modules.json: each has a type name and a path inside the folder."""
    path = folder / "modules.json"
    found = parse_json(read_bounded(path), path, kind=list)
    for module in found:
        if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("type", "path")):
            raise CheckpointError(f"{path}: expected a list of objects with a type and a path")
        inside = not module["path"] or is_safe_name(module["path"])
        if not inside or not (folder / module["path"]).resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(f"{path}: {module['path']!a:.80} is outside the folder")
    return found
