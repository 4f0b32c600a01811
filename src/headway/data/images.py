"""Labelled images, not yet decoded: a folder per label, or idx files (MNIST, Fashion-MNIST, …)."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headway.data.row import Row
from headway.data.split import PART_NAMES
from headway.errors import DataError
from headway.preprocess.image import SUFFIXES

IDX = "-images-idx3-ubyte"
IDX_PARTS = {"train": "train", "t10k": "test"}
MOST_BYTES = 4 << 30  # of one idx file, uncompressed
MOST_TIMES = 1000  # larger than compressed: gzip's own limit, so that a false header cannot make us allocate memory


def image_parts(path: Path) -> dict[str, list[Row]]:
    """train, and valid and test if there are such folders or files; a row's `image` is a Path or an array."""
    if not path.is_dir():
        raise DataError(f"{path}: expected a folder with a folder of images for each label")
    if idx_files := sorted(path.glob(f"*{IDX}*")):
        return {IDX_PARTS.get(file.name.split(IDX)[0], "train"): list(_idx_rows(file)) for file in idx_files}
    parts = {PART_NAMES[folder.name.lower()]: folder for folder in _folders(path) if folder.name.lower() in PART_NAMES}
    if "train" in parts and all(_folders(folder) for folder in parts.values()):
        return {part: folder_rows(folder) for part, folder in parts.items()}
    return {"train": folder_rows(path)}


def folder_rows(folder: Path) -> list[Row]:
    """`folder/<label>/**/<image>`, sorted by name."""
    rows = [
        Row({"image": file, "label": child.name}, str(file))
        for child in _folders(folder)
        for file in sorted(child.rglob("*"))
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
    ]
    if not rows:
        raise DataError(
            f"{folder}: no images; expected a folder for each label, with {', '.join(SUFFIXES)} files in it"
        )
    return rows


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def _idx_rows(file: Path) -> Iterator[Row]:
    labels_file = file.with_name(file.name.replace(IDX, "-labels-idx1-ubyte"))
    images, labels = _idx(file, dimensions=3), _idx(labels_file, dimensions=1)
    if len(images) != len(labels):
        raise DataError(f"{file} has {len(images):,} images but {labels_file} has {len(labels):,} labels")
    for number, (image, label) in enumerate(zip(images, labels, strict=True), 1):
        yield Row({"image": image, "label": str(label)}, f"{file}:{number}")


def _idx(file: Path, *, dimensions: int) -> np.ndarray:
    """Two zeros, 8 for bytes, the number of dimensions, each dimension in four bytes, then the values."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            head = opened.read(4 + 4 * dimensions)
            if head[:4] != bytes([0, 0, 8, dimensions]) or len(head) < 4 + 4 * dimensions:
                raise DataError(f"{file}: not an idx file of bytes in {dimensions} dimensions")
            shape: Sequence[int] = np.frombuffer(head[4:], ">u4").tolist()
            size = int(np.prod(shape, dtype=object))
            if size > min(MOST_BYTES, MOST_TIMES * file.stat().st_size):
                raise DataError(f"{file}: its header declares {size:,} bytes, more than can be read")
            values = opened.read(size + 1)
    except FileNotFoundError as error:
        raise DataError(f"{file}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: damaged ({error})") from error
    if len(values) != size:
        raise DataError(f"{file}: truncated or too long; its header declares {size:,} bytes")
    return np.frombuffer(values, np.uint8).reshape(shape)
