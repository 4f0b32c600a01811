"""Room: checkpoints. A model published as one JSON file: `{"config": {…}, "<tensor>": {"shape", "dtype", "data"}}` with
the numbers in base64 (the form in which small teaching models are put on a page)."""

from __future__ import annotations

import base64
import binascii
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.checkpoints.header import read_json
from headway.errors import CheckpointError

DTYPES = {"torch.float32": torch.float32, "torch.float64": torch.float64, "torch.int64": torch.int64}


def json_model(folder: Path) -> Path | None:
    """The folder's `*-model.json`, if that is what it holds."""
    found = sorted(folder.glob("*-model.json"))
    return found[0] if len(found) == 1 else None


def read_json_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(config, tensors). Any object with a shape and data is a tensor."""
    data = read_json(path)
    config = data.get("config")
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: no config")
    tensors = {name: _tensor(path, name, value) for name, value in data.items() if name != "config"}
    return config, tensors


def _tensor(path: Path, name: str, value: Any) -> Tensor:
    try:
        shape, dtype = [int(n) for n in value["shape"]], DTYPES[value["dtype"]]
        raw = base64.b64decode(value["data"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CheckpointError(f"{path}: {name} is not a tensor: {error}") from error
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise CheckpointError(
            f"{path}: {name} has {len(raw)} bytes, but shape {shape} needs {math.prod(shape) * dtype.itemsize}"
        )
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
