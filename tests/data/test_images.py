"""Image folders and idx files as rows."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.data.check import check
from headway.data.dataset import open_files
from headway.data.images import image_parts
from headway.data.read import Row
from headway.errors import DataError


def draw(path: Path, shade: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (3, 3), shade).save(path)
    return path


def pack(folder: Path, part: str, images: np.ndarray, labels: list[int]) -> None:
    three = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape) + images.tobytes()
    one = struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + bytes(labels)
    if part == "train":
        (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(three))
        (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(one))
    else:
        (folder / f"{part}-images-idx3-ubyte").write_bytes(three)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(one)


def labels_of(walk) -> list[str]:
    return [row.fields["label"] for row in walk()]


def open_images(folder: Path):
    return open_files(folder, fields=("image", "label"), columns={})


def test_a_folder_per_label(tmp_path):
    for number in range(40):
        draw(tmp_path / ("cat" if number % 2 else "dog") / "more" / f"{number}.PNG", number)
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    data = open_images(tmp_path)
    train, valid = [{row.where for row in walk()} for walk in (data.train, data.valid)]
    assert train and valid and not train & valid and len(train | valid) == 40
    assert set(labels_of(data.train)) == {"cat", "dog"} and len(labels_of(data.test)) == 40
    assert all(row.fields["image"] == Path(row.where) for row in data.train())


def test_the_split_depends_on_image_content_only(tmp_path):
    for number in range(40):
        draw(tmp_path / "one" / "a" / f"{number}.png", number)
        draw(tmp_path / "two" / "a" / f"x{39 - number}.png", number)
    one, two = open_images(tmp_path / "one"), open_images(tmp_path / "two")
    held = [sorted(row.fields["image"].read_bytes() for row in data.valid()) for data in (one, two)]
    assert held[0] == held[1] and held[0]
    assert one.fingerprint != two.fingerprint  # the order is another
    draw(tmp_path / "one" / "a" / "0.png", 99)
    assert open_images(tmp_path / "one").fingerprint != one.fingerprint


def test_the_check_counts_equal_images(tmp_path):
    first, again = draw(tmp_path / "a" / "1.png", 1), draw(tmp_path / "b" / "2.png", 1)
    arrays = np.zeros((2, 40, 40), np.uint8)
    arrays[1, 20, 20] = 1  # in the middle, which a printed array leaves out
    rows = [Row({"image": image, "label": "x"}, "") for image in (first, again, *arrays)]
    assert check(rows).duplicates == 1
    assert check(rows[2:]).duplicates == 0 and check(rows[2:] + rows[2:]).duplicates == 2


def test_given_parts_are_used(tmp_path):
    for part in ("train", "val", "test"):
        draw(tmp_path / part / "cat" / f"{part}.png", 1)
    data = open_images(tmp_path)
    names = [[Path(row.where).name for row in walk()] for walk in (data.train, data.valid, data.test)]
    assert names == [["train.png"], ["val.png"], ["test.png"]]


def test_a_label_may_be_called_train(tmp_path):
    draw(tmp_path / "train" / "1.png", 1)
    draw(tmp_path / "plane" / "1.png", 2)
    assert {row.fields["label"] for row in image_parts(tmp_path)["train"]} == {"train", "plane"}


def test_idx_files(tmp_path):
    images = np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2)
    pack(tmp_path, "train", images, [7, 0, 7])
    pack(tmp_path, "t10k", images[:1], [3])
    parts = image_parts(tmp_path)
    assert [row.fields["label"] for row in parts["train"]] == ["7", "0", "7"]
    assert parts["train"][2].fields["image"].tolist() == [[8, 9], [10, 11]]
    assert parts["train"][2].where.endswith("train-images-idx3-ubyte.gz:3")
    assert [row.fields["label"] for row in parts["test"]] == ["3"]


def test_errors_name_the_file(tmp_path):
    with pytest.raises(DataError, match="no images; expected a folder for each label"):
        image_parts(tmp_path)
    file = draw(tmp_path / "a.png", 1)
    with pytest.raises(DataError, match=r"a\.png: expected a folder"):
        image_parts(file)
    pack(tmp_path, "train", np.zeros((3, 2, 2), np.uint8), [1, 2])
    with pytest.raises(DataError, match=r"3 images but .* has 2 labels"):
        image_parts(tmp_path)
    packed = tmp_path / "train-images-idx3-ubyte.gz"
    packed.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 3, 2, 2) + b"123"))
    with pytest.raises(DataError, match="truncated or too long"):
        image_parts(tmp_path)
    packed.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 1 << 31, 1 << 31, 1 << 31)))
    with pytest.raises(DataError, match="more than can be read"):
        image_parts(tmp_path)
    noise = np.random.default_rng(0).bytes(5000)
    packed.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 50, 10, 10) + noise)[:-200])
    with pytest.raises(DataError, match="damaged"):
        image_parts(tmp_path)
    packed.write_bytes(gzip.compress(b"plain text, rather"))
    with pytest.raises(DataError, match="not an idx file"):
        image_parts(tmp_path)
