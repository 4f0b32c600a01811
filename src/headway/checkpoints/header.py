"""Reads and validates the header of a safetensors file before any tensor data is read.

The format is eight bytes of header length, a JSON object of name → dtype, shape and byte range, then the data. Files
are untrusted, so every value is checked against the size of the file before anything is allocated.
"""

import gc
import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from headway.errors import CheckpointError, with_article
from headway.files import open_file

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")

# Parsed JSON takes up to 30 times the memory of its text. This limit (about 20,000 tensors) keeps it under 100 MB.
MAX_JSON = 5 * 2**19
MAX_RANK = 32
MAX_BYTES = 2**63 - 1

# dtype in the file → (torch dtype, bytes per element)
DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "F32": ("float32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),
    "C64": ("complex64", 8),
}

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
PICKLE_OR_ZIP = (b"\x80", b"PK")
PICKLED = "pytorch_model.bin"  # a model's weights as a pickle, or shards of them with an index
PICKLED_INDEX = "pytorch_model.bin.index.json"
PICKLES = "pytorch_model*.bin"

CONVERT_FOLDER = (
    "{path} is a pickle, which can run code when it is opened. If you trust its source, write the model once as "
    "safetensors: headway convert {folder} NEW_FOLDER --to fp32 --allow-pickle. This reads tensors alone, in a process "
    "of their own"
)
CONVERT = (
    "{path} is a pickle. Opening a pickle can run arbitrary code, so Headway never does. Convert it once, on a machine "
    'where that is acceptable: tensors = torch.load("{name}", map_location="cpu", weights_only=True); '
    "safetensors.torch.save_file({{name: tensor.clone().contiguous() for name, tensor in tensors.items()}}, "
    '"model.safetensors", metadata={{"format": "pt"}})'
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as declared in its file; `start` and `end` are byte offsets after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


class TensorHeader(dict[str, TensorInfo]):
    """The tensors of one file by name, and its metadata."""

    def __init__(self, tensors: dict[str, TensorInfo], metadata: dict[str, str]) -> None:
        super().__init__(tensors)
        self.metadata = metadata


def read_header(path: str | os.PathLike[str]) -> TensorHeader:
    """Read and validate the header of a safetensors file. Raises a CheckpointError for any violation."""
    path = Path(path)
    if path.suffix in PICKLE_SUFFIXES:
        raise pickle_error(path)
    with _opened(path, path.parent) as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(size - 8, MAX_JSON):
            # The first bytes of a pickle or a zip file, read as a length, always exceed the limit.
            if prefix.startswith(PICKLE_OR_ZIP):
                raise pickle_error(path)
            raise CheckpointError(
                f"{path}: not a complete safetensors file: {size} bytes, with a header length of {length} "
                f"(at most {MAX_JSON}). Download or save it again."
            )
        text = file.read(length)
    if not text.startswith(b"{"):
        raise CheckpointError(f"{path}: the safetensors header does not start with '{{'")
    entries = parse_json(text, path)
    metadata = _metadata(entries.pop("__metadata__", {}), path)
    tensors = {name: _tensor_info(name, entry, path) for name, entry in entries.items()}
    _check_layout(tensors, path, data_bytes=size - 8 - length)
    return TensorHeader(tensors, metadata)


def pickle_error(path: Path) -> CheckpointError:
    if path.name in (PICKLED, PICKLED_INDEX):
        return CheckpointError(CONVERT_FOLDER.format(path=path, folder=path.parent))
    return CheckpointError(CONVERT.format(path=path, name=path.name))


def read_json(
    path: str | os.PathLike[str], *, limit: int = MAX_JSON, inside: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Read a JSON object from an untrusted file: size at most `limit`, UTF-8, no duplicate keys. Links may not leave
    the folder `inside` (default: that of the file)."""
    return parse_json(read_bounded(path, limit=limit, inside=inside), Path(path))


def read_bounded(
    path: str | os.PathLike[str], *, limit: int = MAX_JSON, inside: str | os.PathLike[str] | None = None
) -> bytes:
    """Read a file of at most `limit` bytes. Links may not leave the folder `inside` (default: that of the file)."""
    path = Path(path)
    return _read(path, limit=limit, inside=path.parent if inside is None else inside)


def read_given_json(path: Path, *, kind: type = dict) -> Any:
    """Read a JSON file that the user has named: as `read_json`, but links may lead anywhere."""
    return parse_json(_read(path, limit=MAX_JSON, inside=None), path, kind=kind)


def _read(path: Path, *, limit: int, inside: str | os.PathLike[str] | None) -> bytes:
    with _opened(path, inside) as file:
        text = file.read(limit + 1)
    if len(text) > limit:
        raise CheckpointError(f"{path}: more than the {limit} bytes allowed for this file")
    return text


@contextmanager
def _opened(path: Path, inside: str | os.PathLike[str] | None) -> Iterator[IO[bytes]]:
    try:
        with open_file(path, inside=inside) as file:
            yield file
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error


def parse_json(text: bytes, path: Path, *, kind: type = dict) -> Any:
    """Parse JSON whose top-level value is of type `kind`. Duplicate keys are an error."""
    try:
        with _garbage_collection_paused():
            value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique_keys)
    except RecursionError as error:
        raise CheckpointError(f"{path}: JSON nested too deeply") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, kind):
        wanted = "object" if kind is dict else kind.__name__
        raise CheckpointError(f"{path}: a JSON {wanted} is expected, not {with_article(type(value).__name__)}")
    return value


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Disable the cycle collector, which would repeatedly traverse the growing value."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {_shorten(key)} is given twice")
            seen.add(key)
    return result


def _metadata(value: Any, path: Path) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise CheckpointError(f"{path}: __metadata__ must map text to text")
    return value


def _tensor_info(name: str, entry: Any, path: Path) -> TensorInfo:
    def error(fault: str) -> CheckpointError:
        return CheckpointError(f"{path}: tensor {_shorten(name)}: {fault}")

    if not name.isprintable():
        raise error("a name must be printable")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise error("must have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise error(f"unknown dtype {_shorten(dtype)}")
    if not is_shape(shape):
        raise error(f"shape must be a list of at most {MAX_RANK} whole numbers, none negative")
    _, item_bytes = DTYPES[dtype]
    if overflows(shape, item_bytes):
        raise error(f"shape {_shorten(shape)} overflows")
    if not _is_list_of_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise error("data_offsets must be [start, end] with 0 <= start <= end")
    start, end = offsets
    expected = math.prod(shape) * item_bytes
    if end - start != expected:
        raise error(f"{dtype} {shape} takes {expected} bytes, but data_offsets span {end - start}")
    return TensorInfo(dtype, tuple(shape), start, end)


def is_safe_name(name: str) -> bool:
    """Whether a file name from untrusted data is relative and stays inside its folder, apart from links."""
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and "\\" not in name
    return 0 < len(name) <= 200 and inside and name.isprintable()


def is_shape(value: Any) -> bool:
    return _is_list_of_counts(value) and len(value) <= MAX_RANK


def overflows(shape: list[int], item_bytes: int) -> bool:
    return math.prod(max(dim, 1) for dim in shape) * item_bytes > MAX_BYTES


def _is_list_of_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number <= MAX_BYTES for number in value)


def _check_layout(tensors: dict[str, TensorInfo], path: Path, *, data_bytes: int) -> None:
    """Raise unless the tensors cover the data exactly: no overlap, no gap, nothing beyond the end."""
    position = 0
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if info.start != position:
            fault = "overlaps the one before it" if info.start < position else "leaves a gap before it"
            raise CheckpointError(f"{path}: tensor {_shorten(name)} {fault} (starts at {info.start}, not {position})")
        if info.end > data_bytes:
            raise CheckpointError(
                f"{path}: tensor {_shorten(name)} ends at byte {info.end} of {data_bytes}: the file is truncated"
            )
        position = info.end
    if position != data_bytes:
        raise CheckpointError(f"{path}: {data_bytes - position} bytes at the end belong to no tensor")


def _shorten(value: Any) -> str:
    text = ascii(value) if not isinstance(value, list) or len(value) <= MAX_RANK else "of many numbers"
    return text if len(text) <= 120 else text[:117] + "..."
