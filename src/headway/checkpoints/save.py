"""Saves tensors and JSON atomically: a reader finds the old file or the new one, never a part."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from headway.checkpoints.header import DTYPES, MAX_JSON
from headway.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
SHARD_BYTES = 5 * 2**30
STORABLE = {torch_name for torch_name, _ in DTYPES.values()}
HEADER_BYTES_PER_TENSOR = 160  # dtype, shape and offsets, at most; without the name


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
    with ExitStack() as written:
        partials = {file: written.enter_context(_partial(folder / file)) for file in files}
        for file, names in zip(files, shards, strict=True):
            _write_tensors(partials[file], {name: tensors[name] for name in names}, metadata)
        if len(files) > 1:
            partials[INDEX] = written.enter_context(_partial(folder / INDEX))
            partials[INDEX].write_text(_json(folder / INDEX, _index(tensors, files, shards)), encoding="utf-8")
            _sync(partials[INDEX])
            # Shards without an index are not read, so a crash between the renames never leaves a mixture.
            (folder / INDEX).unlink(missing_ok=True)
        for file, partial in partials.items():
            os.replace(partial, folder / file)
    _sync_folder(folder)
    for old in list(folder.iterdir()):
        if old.name not in partials and (old.name in (SINGLE, INDEX) or SHARD.fullmatch(old.name)):
            old.unlink()


def save_json(path: str | os.PathLike[str], value: Any, *, sort_keys: bool = False) -> None:
    """Write a value as readable JSON, atomically."""
    text = _json(Path(path), value, sort_keys=sort_keys)
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A place to write a file's new content, which takes the file's name only if the block succeeds."""
    path = Path(path)
    with _partial(path) as partial:
        yield partial
        _sync(partial)
        os.replace(partial, path)
    _sync_folder(path.parent)


def sha256(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """A hidden neighbour of `path` to write to; whatever is still there at the end is removed."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error}") from error


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make renames durable, where the system can open a folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
    return {"metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())}, "weight_map": weight_map}


def _write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    needed = sum(tensor.nbytes for tensor in tensors.values())
    try:
        save_file(_unshared(tensors), path, metadata=metadata)
        path.chmod(path.parent.stat().st_mode & 0o666)  # save_file makes it readable by the owner only
        _sync(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path.parent}: {needed} bytes of weights cannot be written: {error}") from error


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


def _json(path: Path, value: Any, *, sort_keys: bool = False) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys) + "\n"
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: not representable in JSON: {error}") from error
