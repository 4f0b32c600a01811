"""idx files: the pictures and labels of MNIST, Fashion-MNIST, EMNIST, … as arrays."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headway.data.class_names import class_names
from headway.errors import DataError
from headway.files import open_file

IDX_IMAGES = re.compile(r"images([-.])idx3-ubyte(\.gz)?$")
MOST_BYTES = 4 << 30  # of one idx file, uncompressed
MOST_TIMES = 1000  # larger than compressed: gzip's own limit, so that a false header cannot make us allocate memory


def idx_rows(file: Path) -> Iterator[tuple[np.ndarray, str, str]]:
    """(picture, label, `file:number`) of a file of pictures; its labels are in the file of the same name. A label is
    the class's name, or its number where it has none."""
    name = IDX_IMAGES.sub(r"labels\1idx1-ubyte", file.name)
    names = [name + suffix for suffix in (".gz", "")] if file.suffix == ".gz" else [name, name + ".gz"]
    labels_file = next((file.with_name(each) for each in names if file.with_name(each).exists()), None)
    if labels_file is None:
        raise DataError(f"{file.with_name(names[0])}: no such file; it has the labels of {file.name}")
    images, labels = _values(file, dimensions=3), _values(labels_file, dimensions=1)
    if len(images) != len(labels):
        raise DataError(f"{file} has {len(images):,} images but {labels_file} has {len(labels):,} labels")
    classes = class_names(file.parent, labels)
    for number, (image, label) in enumerate(zip(images, labels, strict=True), 1):
        yield image, str(label) if classes is None else classes[label], f"{file}:{number}"


def _values(file: Path, *, dimensions: int) -> np.ndarray:
    """Two zeros, 8 for bytes, the number of dimensions, each dimension in four bytes, then the values."""
    try:
        with open_file(file) as raw, gzip.GzipFile(fileobj=raw) if file.suffix == ".gz" else raw as opened:
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
