"""Safetensors files written by hand, so that they can be wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Writer = Callable[..., Path]


@pytest.fixture
def write_raw(tmp_path: Path) -> Writer:
    """Write header (an object, or text as it is) and data, with the true header length unless another is claimed."""

    def write(header: Any, data: bytes = b"", *, length: int | None = None, name: str = "model.safetensors") -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / name
        path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
        return path

    return write
