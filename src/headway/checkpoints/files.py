"""The weight files of a model as one read-only mapping, name → tensor.

Headers are validated when the mapping is created; tensors are memory-mapped and read on access. The layout is that of
Hugging Face: `model.safetensors`, or shards with an index.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from safetensors import SafetensorError, safe_open

from headway.checkpoints.header import (
    INDEX,
    PICKLE_SUFFIXES,
    PICKLED,
    PICKLED_INDEX,
    PICKLES,
    SINGLE,
    TensorHeader,
    TensorInfo,
    is_safe_name,
    pickle_error,
    read_header,
    read_json,
)
from headway.errors import CheckpointError
from headway.files import is_present, require_file, sha256

if TYPE_CHECKING:
    from torch import Tensor


class TensorFiles(Mapping[str, "Tensor"]):
    """The tensors of a model folder, or of one safetensors or index file. Tensors are read on access."""

    def __init__(self, folder_or_file: str | os.PathLike[str]) -> None:
        self.path = Path(folder_or_file)
        self._headers = _read_headers(self.path)
        self._file_of = {name: file for file, header in self._headers.items() for name in header}
        self._open: dict[Path, Any] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self._headers)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._file_of)

    @property
    def metadata(self) -> dict[str, str]:
        return {key: text for header in self._headers.values() for key, text in header.metadata.items()}

    @property
    def dtypes(self) -> set[str]:
        """Of the tensors as stored, by the names in the files."""
        return {info.dtype for header in self._headers.values() for info in header.values()}

    @property
    def nbytes(self) -> int:
        """Total bytes of all tensors as stored."""
        return sum(info.nbytes for header in self._headers.values() for info in header.values())

    def info(self, name: str) -> TensorInfo:
        """A tensor's dtype and shape, without reading it."""
        return self._headers[self._file_of[name]][name]

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file, by file name."""
        return {file.name: sha256(file, inside=file.parent) for file in self.files}

    def __getitem__(self, name: str) -> "Tensor":
        file = self._file_of[name]
        try:
            if file not in self._open:
                require_file(file, inside=file.parent)
                self._open[file] = safe_open(file, framework="pt")
            return self._open[file].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file}: tensor {name!a} cannot be read: {error}") from error

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)

    def close(self) -> None:
        """Close the mapped files. Tensors already read stay valid; reading another one opens its file again."""
        while self._open:
            _, opened = self._open.popitem()
            opened.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TensorFiles({str(self.path)!r}: {len(self)} tensors, {self.nbytes} bytes)"


def _read_headers(path: Path) -> dict[Path, TensorHeader]:
    if path.name.endswith(INDEX):
        return _read_shards(path)
    if not path.is_dir():
        return {path: read_header(path)}
    if is_present(path / SINGLE):
        return {path / SINGLE: read_header(path / SINGLE)}
    if is_present(path / INDEX):
        return _read_shards(path / INDEX)
    if (pickled := pickled_weights(path)) is not None and any(path.glob(PICKLES)):
        raise pickle_error(pickled)
    for file in sorted(path.iterdir()):
        if file.suffix in PICKLE_SUFFIXES:
            raise pickle_error(file)
    raise CheckpointError(
        f"{path}: neither {SINGLE} nor {INDEX} exists. Of a model on the hub, pickles are downloaded only by: "
        "headway convert NAME NEW_FOLDER --to fp32 --allow-pickle"
    )


def pickled_weights(folder: Path) -> Path | None:
    """The pickle or index of pickles that a folder has in place of safetensors."""
    if is_present(folder / SINGLE) or is_present(folder / INDEX):
        return None
    return next((folder / name for name in (PICKLED, PICKLED_INDEX) if is_present(folder / name)), None)


def read_index(index: Path) -> tuple[dict[str, str], dict[str, Path]]:
    """(tensor → shard, shard → file in the folder of the index)"""
    shard_of = read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of or not all(isinstance(shard, str) for shard in shard_of.values()):
        raise CheckpointError(f"{index}: weight_map must map tensor names to file names")
    return shard_of, {shard: _shard_file(shard, index) for shard in sorted(set(shard_of.values()))}


def _read_shards(index: Path) -> dict[Path, TensorHeader]:
    """The header of every shard in the index. Raises if index and shards disagree about the file of a tensor."""
    shard_of, file_of = read_index(index)
    headers: dict[Path, TensorHeader] = {}
    owner: dict[str, Path] = {}
    for file in file_of.values():
        headers[file] = read_header(file)
        for name in headers[file]:
            if name in owner:
                raise CheckpointError(f"{file}: tensor {name!a} is also in {owner[name].name}")
            owner[name] = file
    for name, shard in shard_of.items():
        if owner.get(name) != file_of[shard]:
            raise CheckpointError(f"{index}: tensor {name!a} is listed in {shard} but is not there")
    return headers


def _shard_file(shard: str, index: Path) -> Path:
    """The path of a shard. Raises if it is outside the folder of the model."""
    if not is_safe_name(shard):
        raise CheckpointError(f"{index}: shard {shard!a:.200} is not a plain file name inside the folder")
    file = index.parent / shard
    try:
        require_file(file, inside=index.parent)
    except FileNotFoundError as error:
        raise CheckpointError(f"{index}: shard {shard!a} is missing") from error
    except OSError as error:
        raise CheckpointError(f"{index}: shard {shard!a} cannot be read ({error.strerror})") from error
    return file
