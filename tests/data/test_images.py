"""Pictures as rows: folders, tables, zip archives, idx files."""

import gzip
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.data.check import check
from headway.data.dataset import open_files
from headway.data.images import ImageFields, image_parts
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
    assert {row.fields["label"] for row in image_parts(tmp_path)["train"].rows} == {"train", "plane"}


def test_idx_files(tmp_path):
    images = np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2)
    pack(tmp_path, "train", images, [7, 0, 7])
    pack(tmp_path, "t10k", images[:1], [3])
    parts = {part: found.rows for part, found in image_parts(tmp_path).items()}
    assert [row.fields["label"] for row in parts["train"]] == ["7", "0", "7"]
    assert parts["train"][2].fields["image"].tolist() == [[8, 9], [10, 11]]
    assert parts["train"][2].where.endswith("train-images-idx3-ubyte.gz:3")
    assert [row.fields["label"] for row in parts["test"]] == ["3"]


def test_errors_name_the_file(tmp_path):
    with pytest.raises(DataError, match="no pictures in folders, no files at all; expected a folder for each label"):
        image_parts(tmp_path)
    for name in ("x/a.heic", "x/b.heic", "x/notes.txt", "loose.png"):
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).touch()
    counts = "2 .heic files, 1 pictures outside the folders of the labels, 1 .txt files"
    with pytest.raises(DataError, match=f"set: no pictures in folders, {counts}; expected"):
        image_parts(tmp_path / "set")
    file = draw(tmp_path / "a.png", 1)
    with pytest.raises(DataError, match=r"a\.png: expected a folder"):
        image_parts(file)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"")
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte: no such file; it has the labels of train-images"):
        image_parts(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").unlink()
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


def test_other_names_of_idx_files(tmp_path):
    images = np.zeros((2, 2, 2), np.uint8)
    pack(tmp_path, "emnist-letters-test", images, [1, 2])
    pack(tmp_path, "emnist-letters-train", images, [3, 4])
    for file in tmp_path.iterdir():
        file.rename(file.with_name(file.name.replace("-idx", ".idx")))
    parts = image_parts(tmp_path)
    assert {part: labels(found) for part, found in parts.items()} == {"train": ["3", "4"], "test": ["1", "2"]}
    assert labels(image_parts(tmp_path / "emnist-letters-test-images.idx3-ubyte")["train"]) == ["1", "2"]


def labels(found) -> list[str]:
    return [row.fields["label"] for row in found.rows]


def test_files_that_are_not_rows_are_counted(tmp_path):
    draw(tmp_path / "cat" / "1.png", 1)
    draw(tmp_path / "dog" / "2.png", 2)
    draw(tmp_path / "3.png", 3)
    for name in ("cat/a.HEIC", "dog/b.heic", "dog/.hidden", "notes"):
        (tmp_path / name).write_bytes(b"x")
    skipped = image_parts(tmp_path)["train"].skipped
    assert skipped == {".heic files": 2, "other files": 1, "pictures outside the folders of the labels": 1}
    rows = open_images(tmp_path).train()
    list(rows)
    assert rows.skipped == skipped


# --- tables


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for number in range(6):
        draw(tmp_path / "pics" / f"{number}.png", 40 * number)
    return tmp_path


ROWS = [(f"pics/{number}.png", "odd" if number % 2 else "even", f"shade {number}") for number in range(6)]
TABLES = {
    "train.csv": "file_name,label,caption\n" + "".join(",".join(row) + "\n" for row in ROWS),
    "no header.csv": "".join(",".join(row) + "\n" for row in ROWS),
    "other names.tsv": "weather\tscan\tkind\n" + "".join(f"{c}\t{a}\t{b}\n" for a, b, c in ROWS),
    "rows.jsonl": "".join(json.dumps(dict(image=a, label=b, text=c)) + "\n" for a, b, c in ROWS),
    "windows.csv": "image,label\n" + "".join(f"{a},{b}\n".replace("/", "\\") for a, b, _ in ROWS),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_names_files_beside_it(pictures, name):
    (pictures / name).write_text(TABLES[name])
    found = image_parts(pictures / name)["train"].rows
    assert [(row.fields["image"], row.fields["label"]) for row in found] == [(pictures / a, b) for a, b, _ in ROWS]
    assert found[0].where.startswith(f"{pictures / name}:")
    if name != "windows.csv":
        wanted = ImageFields(("image", "caption"))
        assert [row.fields["caption"] for row in image_parts(pictures / name, wanted)["train"].rows] == [
            row[2] for row in ROWS
        ]


def test_columns_can_be_named(pictures):
    (pictures / "t.csv").write_text("a,b,c,d\npics/0.png,pics/1.png,x,y\npics/2.png,pics/3.png,z,y\n")
    found = image_parts(pictures / "t.csv", ImageFields(columns={"image": "b", "label": "3"}))["train"].rows
    assert [(row.fields["image"].name, row.fields["label"]) for row in found] == [("1.png", "x"), ("3.png", "z")]


def test_tables_of_a_folder_are_its_parts(pictures):
    for name, rows in (("train.csv", ROWS[:4]), ("test.csv", ROWS[4:]), ("submission.csv", ROWS[:1])):
        (pictures / name).write_text("image,label\n" + "".join(f"{a},{b}\n" for a, b, _ in rows))
    parts = image_parts(pictures)
    assert {part: len(found.rows) for part, found in parts.items()} == {"train": 4, "test": 2}
    (pictures / "train.csv").rename(pictures / "metadata.csv")
    (pictures / "submission.csv").unlink()
    assert {part: len(found.rows) for part, found in image_parts(pictures).items()} == {"train": 4, "test": 2}
    (pictures / "metadata.csv").unlink()
    with pytest.raises(DataError, match="no file whose name says train"):
        image_parts(pictures)


def test_a_table_in_each_part(tmp_path):
    for part in ("train", "test"):
        draw(tmp_path / part / "a" / f"{part}.png", 1)
        (tmp_path / part / "metadata.csv").write_text(f"file_name,label\na/{part}.png,{part}ed\n")
    assert {part: labels(found) for part, found in image_parts(tmp_path).items()} == {
        "train": ["trained"],
        "test": ["tested"],
    }


def test_a_stray_table_beside_folders_is_not_the_data(tmp_path):
    draw(tmp_path / "cat" / "1.png", 1)
    draw(tmp_path / "dog" / "2.png", 2)
    (tmp_path / "notes.csv").write_text("day,weather\n1,fine\n2,rain\n")
    found = image_parts(tmp_path)["train"]
    assert labels(found) == ["cat", "dog"] and found.skipped == {".csv files": 1}


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("pics/9.png", r"t\.csv:2: image: .*9\.png: no such file \(paths are relative to the table's folder\)"),
        ("https://example.org/1.png", r"t\.csv:2: image: .* is an address; download"),
        ("pics", r"t\.csv:2: image: .*no such file"),
        ("x" * 300 + ".png", r"t\.csv:2: image: .*no such file"),
        ('""', r"t\.csv:2: image: expected the path of a file"),
    ],
)
def test_a_wrong_cell_names_line_and_file(pictures, cell, message):
    (pictures / "t.csv").write_text(f"image,label\n{cell},a\n")
    with pytest.raises(DataError, match=message):
        image_parts(pictures / "t.csv")


def test_parquet_with_encoded_pictures(pictures):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    content = (pictures / "pics" / "0.png").read_bytes()
    table = pyarrow.table({"image": [{"bytes": content, "path": "0.png"}], "label": [3]})
    parquet.write_table(table, pictures / "t.parquet")
    [row] = image_parts(pictures / "t.parquet")["train"].rows
    assert row.fields == {"image": content, "label": "3"}


# --- zip archives


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_a_zip_of_folders_is_read_without_unpacking(tmp_path):
    for number in range(40):
        draw(tmp_path / "pets" / ("cat" if number % 2 else "dog") / f"{number}.png", number)
    files = {
        str(file.relative_to(tmp_path)): file.read_bytes()
        for file in sorted((tmp_path / "pets").rglob("*"))
        if file.is_file()
    }
    archive = zipped(tmp_path / "pets.zip", {**files, "README.txt": b"x", "__MACOSX/pets/cat/._1.png": b"x"})
    before = sorted(tmp_path.rglob("*"))
    data, unpacked = open_images(archive), open_images(tmp_path / "pets")
    assert data.fingerprint == unpacked.fingerprint  # so it is split the same way
    assert labels_of(data.valid) == labels_of(unpacked.valid) and labels_of(data.valid)
    [row, *_] = data.train()
    assert row.where == f"{archive}/pets/cat/1.png" and row.fields["image"].read(limit=9999) == files["pets/cat/1.png"]
    assert sorted(tmp_path.rglob("*")) == before


def test_archives_of_a_folder_are_its_parts(tmp_path):
    picture = draw(tmp_path / "x.png", 1).read_bytes()
    zipped(tmp_path / "train.zip", {"a/1.png": picture, "b/2.png": picture})
    zipped(tmp_path / "test.zip", {"test/a/3.png": picture})
    assert {part: labels(found) for part, found in image_parts(tmp_path).items()} == {
        "train": ["a", "b"],
        "test": ["a"],
    }
    whole = zipped(tmp_path / "whole.zip", {"d/train/a/1.png": picture, "d/test/b/2.png": picture})
    assert {part: labels(found) for part, found in image_parts(whole).items()} == {"train": ["a"], "test": ["b"]}


def test_hostile_archives(tmp_path, monkeypatch):
    def refused(files: dict[str, bytes], message: str) -> None:
        with pytest.raises(DataError, match=message):
            for row in image_parts(zipped(tmp_path / "x.zip", files))["train"].rows:
                row.fields["image"].read(limit=1 << 20)

    refused({"../../a/1.png": b"x"}, "leads out of the archive")
    refused({"/etc/a/1.png": b"x"}, "leads out of the archive")
    refused({"c:\\a\\1.png": b"x"}, "leads out of the archive")
    refused({"a/1.png": bytes(2 << 20)}, r"x\.zip/a/1\.png: more than 1,048,576 bytes")
    monkeypatch.setattr("headway.preprocess.archive.UNPACK_FREE", 1 << 20)
    refused({f"a/{number}.png": bytes(1 << 20) for number in range(4)}, "declares 4 files of 4,194,304 bytes")
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match=r"x\.zip: not a zip archive, or a damaged one"):
        image_parts(tmp_path / "x.zip")
    packed = zipped(tmp_path / "x.zip", {"a/1.png": np.random.default_rng(0).bytes(5000)})
    content = bytearray(packed.read_bytes())
    content[2000] ^= 255
    packed.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.zip/a/1\.png: cannot be read from the archive"):
        open_images(packed)
    nameless = zipped(tmp_path / "x.zip", {"?a/1.png": b"x"}).read_bytes().replace(b"?a/1.png", b"\0a/1.png")
    (tmp_path / "x.zip").write_bytes(nameless)  # a name ends at a NUL; found by the fuzzer
    with pytest.raises(DataError, match="the name '' leads out of the archive"):
        image_parts(tmp_path / "x.zip")
    locked = bytearray(zipped(tmp_path / "x.zip", {"a/1.png": b"x"}).read_bytes())
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "x.zip").write_bytes(locked)
    with pytest.raises(DataError, match="encrypted; give an archive without a password"):
        image_parts(tmp_path / "x.zip")
