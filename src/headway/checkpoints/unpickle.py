"""Tensors of a pickle file (`.pt`), read in a child process and rewritten as safetensors.

A pickle can run code when it is opened. torch's weights-only reader builds nothing but tensors and plain containers;
it runs in a process of its own, of limited memory and time, whose only results are a safetensors file and a JSON file,
which are read here like any from outside. Nothing calls this unless the user has allowed it for this one file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from headway.checkpoints.files import TensorFiles
from headway.checkpoints.header import parse_json, read_bounded
from headway.checkpoints.save import save_tensors
from headway.checkpoints.text_files import save_json
from headway.errors import CheckpointError
from headway.limited_process import python_command

SECONDS = 600
SPARE_BYTES = 32 << 30  # of address space, beyond that for the tensors: a build of torch with CUDA maps many libraries
VALUES = "values.json"
MAX_JSON = 1 << 20


def unpickled(path: Path, folder: Path) -> tuple[dict[str, Any], TensorFiles]:
    """(plain values, tensors) of a dict in a pickle file; nested dicts are joined by dots. `folder` receives the
    rewritten files."""
    if not path.is_file():
        raise CheckpointError(f"{path}: {'not a plain file' if path.exists() else 'no such file'}")
    command = python_command("-m", "headway.checkpoints.unpickle", str(path), str(folder))
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(f"{path}: not read within {SECONDS} s") from error
    if ran.returncode != 0:
        lines = ran.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ran.returncode}"]
        raise CheckpointError(f"{path}: not a pickle of tensors and plain values ({ascii(lines[-1])[1:-1]:.300})")
    values = parse_json(read_bounded(folder / VALUES, limit=MAX_JSON), folder / VALUES)
    return values, TensorFiles(folder)


def _child(path: Path, folder: Path) -> None:
    """What the child process does."""
    _limit_memory(path.stat().st_size * 3 + SPARE_BYTES)
    import torch

    found = torch.load(path, map_location="cpu", weights_only=True)
    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}

    def collect(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                collect(inner, f"{name}.{key}" if name else str(key))
        elif isinstance(value, torch.Tensor):
            tensors[name] = value.detach().clone().contiguous()  # a file has no shared memory
        elif value is None or isinstance(value, bool | int | float | str):
            values[name] = value

    collect(found, "")
    save_tensors(folder, tensors)
    save_json(folder / VALUES, values)


def _limit_memory(size: int) -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


if __name__ == "__main__":
    _child(Path(sys.argv[1]), Path(sys.argv[2]))
