"""Models published as one JSON file: `{"config": {…}, "<tensor>": {"shape", "dtype", "data"}}` with base64 data, as
used by small teaching models on web pages."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.checkpoints.header import is_shape, overflows, read_json
from headway.errors import CheckpointError

DTYPES = {"torch.float32": torch.float32, "torch.float64": torch.float64, "torch.int64": torch.int64}


def json_model(folder: Path) -> Path | None:
    """The only `*-model.json` of a folder, or None."""
    found = sorted(folder.glob("*-model.json"))
    return found[0] if len(found) == 1 else None


def read_json_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns (config, tensors). Every entry but the config must be a tensor."""
    data = read_json(path)
    config = data.get("config")
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: no config")
    tensors = {name: _tensor(path, name, value) for name, value in data.items() if name != "config"}
    return config, tensors


def _tensor(path: Path, name: str, value: Any) -> Tensor:
    if not isinstance(value, dict) or not {"shape", "dtype", "data"} <= value.keys():
        raise CheckpointError(f"{path}: {name!a:.80} is not a tensor: it needs shape, dtype and data")
    shape, dtype = value["shape"], DTYPES.get(str(value["dtype"]))
    if dtype is None or not is_shape(shape) or overflows(shape, dtype.itemsize):
        raise CheckpointError(f"{path}: {name!a:.80} has dtype {value['dtype']!a:.40} and shape {shape!a:.80}")
    try:
        raw = base64.b64decode(value["data"], validate=True)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {name!a:.80}: data is not base64: {error}") from error
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise CheckpointError(
            f"{path}: {name!a:.80} has {len(raw)} bytes, but shape {shape} needs {math.prod(shape) * dtype.itemsize}"
        )
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)
