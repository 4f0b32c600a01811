"""Names of numbered classes: from a file beside the idx files, or of a data set that is known."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from headway.data.class_names import FASHION_MNIST, KNOWN
from headway.data.images import image_parts
from headway.errors import DataError


def pack(folder: Path, labels: list[int]) -> None:
    pixels = np.zeros((len(labels), 2, 2), np.uint8)
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, *pixels.shape) + pixels.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + bytes(labels))


def labels(folder: Path) -> list[str]:
    return [row.fields["label"] for row in image_parts(folder)["train"].rows]


def test_names_are_lines_of_a_file(tmp_path: Path) -> None:
    pack(tmp_path, [2, 0, 1])
    assert labels(tmp_path) == ["2", "0", "1"]
    (tmp_path / "classes.txt").write_text("cat\ndog \n\nhorse\n")
    assert labels(tmp_path) == ["horse", "cat", "dog"]


def test_a_file_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    pack(tmp_path, [2, 0, 1])
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    with pytest.raises(DataError, match=r"labels.txt: 2 names, but the labels go up to 2"):
        labels(tmp_path)
    (tmp_path / "labels.txt").write_text("cat\ndog\ncat\n")
    with pytest.raises(DataError, match=r"labels.txt: two classes have the same name"):
        labels(tmp_path)


def test_a_known_data_set_is_recognised_by_its_labels(tmp_path: Path) -> None:
    known = [int(digit) for digit in next(iter(KNOWN))]
    pack(tmp_path, [*known, 5])
    assert labels(tmp_path)[:3] == ["Ankle boot", "T-shirt/top", "T-shirt/top"]
    pack(tmp_path, [*reversed(known), 5])
    assert labels(tmp_path)[-2:] == ["9", "5"]


def test_the_names_of_fashion_mnist(real_data: Path) -> None:
    folder = real_data / "data/fashion-mnist"
    if not folder.is_dir():
        pytest.skip("no Fashion-MNIST")
    for part in ("train", "t10k"):
        with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
            first = file.read(48)[8:]
        assert KNOWN["".join(map(str, first))] is FASHION_MNIST
