"""The dropout rates of a config, by their path. They belong to training, and most published configs cannot express the
ones used here, so they are compared and stored apart from the architecture."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from headway.errors import ConfigError


def dropout_rates(config: Any) -> dict[str, float]:
    """`{"stack.block.dropout": 0.1, …}`: every rate of a nested config."""
    return dict(_rates(config, ""))


def _rates(config: Any, path: str) -> Iterator[tuple[str, float]]:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _rates(value, f"{path}{field.name}.")
        elif field.name.endswith("dropout") and not isinstance(value, bool):
            yield path + field.name, float(value)


def with_dropout(config: Any, rates: Mapping[str, float]) -> Any:
    """The config with other rates at some paths."""
    for path, rate in rates.items():
        if path not in dropout_rates(config):
            raise ConfigError(f"dropout: {path:.100} is not a dropout rate of this model")
        config = _replaced(config, path.split("."), rate)
    return config


def _replaced(config: Any, path: list[str], rate: float) -> Any:
    first, *rest = path
    return dataclasses.replace(config, **{first: _replaced(getattr(config, first), rest, rate) if rest else rate})
