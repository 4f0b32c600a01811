"""Saves tensors atomically: a reader finds the old file or the new one, never a part."""

import errno
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from headway.checkpoints.header import DTYPES, INDEX, MAX_JSON, SHARD, SINGLE
from headway.checkpoints.text_files import to_json
from headway.errors import CheckpointError
from headway.files import atomic_write, disk_errors, flush_folder, folder_lock, fsync, workplace

SHARD_BYTES = 5 * 2**30
STORABLE = {torch_name for torch_name, _ in DTYPES.values()}
HEADER_BYTES_PER_TENSOR = 160  # dtype, shape and offsets, at most; without the name
OS_ERROR = re.compile(r"os error (\d+)")  # in the message of a SafetensorError


def save_tensors(
    folder: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    *,
    shard_bytes: int = SHARD_BYTES,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the weights of a model folder, as one file or as shards with an index, replacing existing ones.

    All new files are complete on disk before the first old one is removed. `metadata` defaults to {"format": "pt"}.
    """
    folder = Path(folder)
    metadata = {"format": "pt"} if metadata is None else dict(metadata)
    for name, tensor in tensors.items():
        _check_storable(name, tensor)
    shards = _split(tensors, shard_bytes)
    count = len(shards)
    files = [SINGLE] if count == 1 else [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    with disk_errors(folder, _nbytes(tensors)):
        with workplace(folder) as work:
            for file, names in zip(files, shards, strict=True):
                chosen = {name: tensors[name] for name in names}
                with disk_errors(folder / file, _nbytes(chosen)):
                    write_safetensors(work / file, chosen, metadata)
            if count > 1:
                (work / INDEX).write_text(to_json(folder / INDEX, _index(tensors, files, shards)), encoding="utf-8")
            flush_folder(work)
            with folder_lock(folder):
                if count > 1:  # Shards without an index are not read, so a crash never leaves a mixture.
                    (folder / INDEX).unlink(missing_ok=True)
                for file in [*files, INDEX] if count > 1 else files:
                    os.replace(work / file, folder / file)
        fsync(folder)
        for old in list(folder.iterdir()):
            kept = old.name in files or (old.name == INDEX and count > 1)
            if not kept and (old.name in (SINGLE, INDEX) or SHARD.fullmatch(old.name)):
                old.unlink()


def save_tensor_file(path: Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str]) -> None:
    """Write tensors to one safetensors file, atomically."""
    with disk_errors(path, _nbytes(tensors)), atomic_write(path) as partial:
        write_safetensors(partial, tensors, dict(metadata))


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors to a file, readable by those who may read its folder. A failed write is an OSError."""
    try:
        save_file(_unshared(tensors), path, metadata=metadata)
    except SafetensorError as error:
        found = OS_ERROR.search(str(error))
        number = int(found[1]) if found else errno.EIO
        raise OSError(number, os.strerror(number) if found else str(error)) from error
    path.chmod(path.parent.stat().st_mode & 0o666)  # save_file makes it readable by the owner only


def _nbytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def _check_storable(name: str, tensor: Tensor) -> None:
    if tensor.is_meta:
        raise CheckpointError(f"tensor {name!a} cannot be saved: it is on the meta device")
    if tensor.layout != torch.strided or str(tensor.dtype).removeprefix("torch.") not in STORABLE:
        raise CheckpointError(
            f"tensor {name!a} cannot be saved: no safetensors form for {tensor.layout} {tensor.dtype}"
        )


def _split(tensors: Mapping[str, Tensor], shard_bytes: int) -> list[list[str]]:
    """Names in order, split where the next tensor would make a file or its header too large."""
    shards: list[list[str]] = [[]]
    data = header = 0
    for name, tensor in tensors.items():
        entry = len(json.dumps(name)) + HEADER_BYTES_PER_TENSOR
        if shards[-1] and (data + tensor.nbytes > shard_bytes or header + entry > MAX_JSON // 2):
            shards.append([])
            data = header = 0
        shards[-1].append(name)
        data += tensor.nbytes
        header += entry
    return shards


def _index(tensors: Mapping[str, Tensor], files: list[str], shards: list[list[str]]) -> dict[str, Any]:
    weight_map = {name: file for file, names in zip(files, shards, strict=True) for name in names}
    return {"metadata": {"total_size": _nbytes(tensors)}, "weight_map": weight_map}


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors on the CPU, contiguous, without shared storage, as the format requires."""
    ready: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        ready[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    return ready
