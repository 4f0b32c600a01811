"""Folders of tiny GLiNER models whose weights follow from the names of their tensors, so that a file with a config, a
tokenizer and what the `gliner` package computed (`tests/parity/gliner_golden.json`) is all that a test needs."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

GOLDEN = Path(__file__).resolve().parent.parent / "parity" / "gliner_golden.json"


def weights_of(name: str, shape: Sequence[int]) -> Tensor:
    """Numbers of mean 0 (a norm's of mean 1) that depend on the name and the place alone, the same anywhere."""
    at = np.arange(np.prod(shape), dtype=np.uint64) * np.uint64(2654435761) + np.uint64(zlib.crc32(name.encode()))
    at = (at ^ (at >> np.uint64(15))) * np.uint64(2246822519) & np.uint64(2**32 - 1)
    mixed = (at ^ (at >> np.uint64(13))) * np.uint64(3266489917) & np.uint64(2**32 - 1)
    values = (mixed / 2.0**32 - 0.5) * (0.9 if len(shape) > 1 else 0.3) + name.endswith("LayerNorm.weight")
    return torch.from_numpy(values.astype(np.float32).reshape(tuple(shape)))


def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def write_folder(folder: Path, case: dict[str, Any], tokenizer: dict[str, Any]) -> Path:
    """The files that the package's `save_pretrained` writes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gliner_config.json").write_text(json.dumps(case["config"]))
    for name, content in tokenizer.items():
        (folder / name).write_text(json.dumps(content))
    tensors = {name: weights_of(name, shape) for name, shape in case["tensors"].items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
