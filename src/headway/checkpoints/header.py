"""Checkpoints: what a safetensors file says about itself, checked before a byte of tensor data is trusted.

The format is eight bytes of header length, a JSON object of name → dtype, shape and byte range, then the data. A file
comes from anywhere, so every claim is verified against the file's real size first; nothing is allocated on its word.
"""

import gc
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headway.errors import CheckpointError

# Parsed JSON takes up to 30 times its text. This much (some 20,000 tensors) stays well under 100 MB and one second.
MAX_JSON = 5 * 2**19
MAX_RANK = 32
MAX_BYTES = 2**63 - 1

# The file's name of a dtype → torch's name of it, and the bytes of one element.
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

CONVERT = """{path} is a pickle, and opening a pickle can run any code hidden in it, so Headway never does.
Convert it once, somewhere you can afford to trust it:
    import torch; from safetensors.torch import save_file
    tensors = torch.load("{name}", map_location="cpu", weights_only=True)
    tensors = {{name: tensor.clone().contiguous() for name, tensor in tensors.items()}}
    save_file(tensors, "model.safetensors", metadata={{"format": "pt"}})"""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as its file declares it; `start` and `end` count from the first byte after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


class Header(dict[str, TensorInfo]):
    """The tensors of one file by name, and the file's free-text metadata."""

    def __init__(self, tensors: dict[str, TensorInfo], metadata: dict[str, str]) -> None:
        super().__init__(tensors)
        self.metadata = metadata


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read and check the header of a safetensors file; any violation is a CheckpointError."""
    path = Path(path)
    if path.suffix in PICKLE_SUFFIXES:
        raise pickle_error(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(size - 8, MAX_JSON):
            # Read as a length, the first bytes of a pickle or a zip file are always over the limit.
            if prefix.startswith(PICKLE_OR_ZIP):
                raise pickle_error(path)
            raise CheckpointError(
                f"{path}: not a whole safetensors file: {size} bytes, with a header said to take {length} "
                f"(at most {MAX_JSON}). Download or save it again."
            )
        text = file.read(length)
    if not text.startswith(b"{"):
        raise CheckpointError(f"{path}: the safetensors header does not begin with '{{'")
    entries = parse_json(text, path)
    metadata = _metadata(entries.pop("__metadata__", {}), path)
    tensors = {name: _tensor_info(name, entry, path) for name, entry in entries.items()}
    _check_layout(tensors, path, data_bytes=size - 8 - length)
    return Header(tensors, metadata)


def pickle_error(path: Path) -> CheckpointError:
    return CheckpointError(CONVERT.format(path=path, name=path.name))


def read_json(path: str | os.PathLike[str], *, limit: int = MAX_JSON) -> dict[str, Any]:
    """A JSON object from a file nobody vouches for: of bounded size, in UTF-8, with no key given twice."""
    return parse_json(read_bounded(path, limit=limit), Path(path))


def read_bounded(path: str | os.PathLike[str], *, limit: int = MAX_JSON) -> bytes:
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with path.open("rb") as file:
            text = file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    if len(text) > limit:
        raise CheckpointError(f"{path}: more than the {limit} bytes allowed for this JSON file")
    return text


def parse_json(text: bytes, path: Path, *, kind: type = dict) -> Any:
    try:
        with _uncollected():
            value = json.loads(text.decode("utf-8"), object_pairs_hook=_object_without_duplicates)
    except RecursionError as error:
        raise CheckpointError(f"{path}: JSON nested too deeply") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, kind):
        wanted = "object" if kind is dict else kind.__name__
        raise CheckpointError(f"{path}: a JSON {wanted} is expected, not a {type(value).__name__}")
    return value


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cycle collector, which would walk a growing, cycle-free value again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {_shown(key)} is given twice")
            seen.add(key)
    return found


def _metadata(value: Any, path: Path) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise CheckpointError(f"{path}: __metadata__ must map text to text")
    return value


def _tensor_info(name: str, entry: Any, path: Path) -> TensorInfo:
    where = f"{path}: tensor {_shown(name)}"
    if not name.isprintable():
        raise CheckpointError(f"{where}: a name must be printable")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where}: must have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise CheckpointError(f"{where}: unknown dtype {_shown(dtype)}")
    if not is_shape(shape):
        raise CheckpointError(f"{where}: shape must be a list of at most {MAX_RANK} whole numbers, none negative")
    _, item_bytes = DTYPES[dtype]
    if overflows(shape, item_bytes):
        raise CheckpointError(f"{where}: shape {_shown(shape)} overflows")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{where}: data_offsets must be [start, end] with 0 <= start <= end")
    start, end = offsets
    expected = math.prod(shape) * item_bytes
    if end - start != expected:
        raise CheckpointError(f"{where}: {dtype} {shape} takes {expected} bytes, yet data_offsets span {end - start}")
    return TensorInfo(dtype, tuple(shape), start, end)


def is_plain(name: str) -> bool:
    """Whether a name that a file gives leads to a place below its own folder, links aside."""
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and "\\" not in name
    return 0 < len(name) <= 200 and inside and name.isprintable()


def is_shape(value: Any) -> bool:
    return _counts(value) and len(value) <= MAX_RANK


def overflows(shape: list[int], item_bytes: int) -> bool:
    return math.prod(max(dim, 1) for dim in shape) * item_bytes > MAX_BYTES


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number <= MAX_BYTES for number in value)


def _check_layout(tensors: dict[str, TensorInfo], path: Path, *, data_bytes: int) -> None:
    """Tensors must tile the data exactly: no overlap, no hole, nothing beyond the end."""
    position = 0
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if info.start != position:
            fault = "overlaps the one before it" if info.start < position else "leaves a hole before it"
            raise CheckpointError(f"{path}: tensor {_shown(name)} {fault} (starts at {info.start}, not {position})")
        if info.end > data_bytes:
            raise CheckpointError(
                f"{path}: tensor {_shown(name)} ends at byte {info.end} of {data_bytes}: the file is cut short"
            )
        position = info.end
    if position != data_bytes:
        raise CheckpointError(f"{path}: {data_bytes - position} bytes at the end belong to no tensor")


def _shown(value: Any) -> str:
    text = ascii(value) if not isinstance(value, list) or len(value) <= MAX_RANK else "of many numbers"
    return text if len(text) <= 120 else text[:117] + "..."
