"""The store returns what was written, and nothing from incomplete, damaged or forged files."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headway.data.checksums import read_checksummed, write_checksummed
from headway.data.schema import MAX_RANK, NUMBERS, ArrayField
from headway.data.store import INDEX, Store, fingerprint
from headway.data.store_writer import VERSION
from headway.errors import DataError
from headway.files import BLAKE2B, file_hash


@st.composite
def columns(draw, count):
    """The values of one field in `count` examples: bytes, or arrays of one dtype and rank with any shapes."""
    dtype = draw(st.sampled_from([*sorted(NUMBERS), "bytes"]))
    if dtype == "bytes":
        return [draw(st.binary(max_size=40)) for _ in range(count)]
    rank = draw(st.integers(0, 4))
    shapes = [tuple(draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))) for _ in range(count)]
    return [draw(arrays.arrays(dtype, shape)) for shape in shapes]


@st.composite
def contents(draw):
    count = draw(st.integers(1, 6))
    return [
        dict(zip("abc", values, strict=False))
        for values in zip(draw(columns(count)), draw(columns(count)), strict=True)
    ]


def assert_same(found, written):
    if isinstance(written, bytes):
        assert type(found) is bytes and found == written
    else:
        assert found.dtype == written.dtype and found.shape == written.shape
        np.testing.assert_array_equal(found, written)


@settings(deadline=None, max_examples=150)
@given(contents())
def test_round_trip_of_every_type_and_rank(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("store") / "s"
    Store.build(folder, ({**e, "where": f"some:file.csv:{i}"} for i, e in enumerate(content)), key="k")
    store = Store.open(folder, "k")
    assert store is not None and len(store) == len(content) and store.fields == ("a", "b")
    for position, example in enumerate(content):
        for name, value in example.items():
            assert_same(store[position][name], value)
        assert store.where(position) == f"some:file.csv:{position}"


def test_byte_order_strides_and_lists(tmp_path):
    wide = np.arange(12, dtype=">i4").reshape(3, 4)
    store = Store.build(tmp_path / "s", [{"x": wide.T, "y": [1, 2], "z": memoryview(b"ab")}], key="k")
    assert store[0]["x"].dtype == np.dtype("int32") and store[0]["x"].tolist() == wide.T.tolist()
    assert store[0]["y"].tolist() == [1, 2] and store[0]["z"] == b"ab"
    assert store.schema["x"] == ArrayField("int32", 2) and store.schema["z"] == ArrayField("bytes", 0)


def test_lengths_are_of_the_first_dimension(tmp_path):
    rows = [{"ids": np.arange(n, dtype=np.int32), "boxes": np.zeros((n + 1, 4), np.float32), "label": np.int64(n),
             "image": b"x" * n} for n in (3, 0, 5)]  # fmt: skip
    store = Store.build(tmp_path / "s", rows, key="k")
    assert store.lengths("ids").tolist() == [3, 0, 5] and store.lengths("boxes").tolist() == [4, 1, 6]
    assert store.lengths("label").tolist() == store.lengths("image").tolist() == [1, 1, 1]
    assert store.flat("ids").tolist() == [0, 1, 2, 0, 1, 2, 3, 4]


def examples(count=5):
    for i in range(count):
        yield {
            "ids": np.arange(i, dtype=np.int32),
            "boxes": np.full((i, 4), i, np.float32),
            "image": b"\xff\xd8" * i,
            "where": f"f:{i}",
        }


@pytest.fixture
def folder(tmp_path):
    Store.build(tmp_path / "s", examples(), key="k")
    assert Store.open(tmp_path / "s", "k") is not None
    return tmp_path / "s"


def test_views_are_mapped_and_cannot_be_written(folder):
    example = Store.open(folder, "k")[3]
    for name in ("ids", "boxes"):
        assert isinstance(example[name], np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            example[name][0] = 1
    with pytest.raises(IndexError):
        Store.open(folder, "k")[5]


def test_another_key_or_no_folder_is_not_opened(folder, tmp_path):
    assert Store.open(folder, "other") is None and "have changed" in Store.why_unusable(folder, "other")
    assert Store.open(tmp_path / "nowhere", "k") is None and Store.why_unusable(tmp_path / "nowhere", "k") is None


def test_another_format_is_named_and_rebuilt(folder):
    """The format before this one had 1-D integers only; its index had another field for its own checksum."""
    old = {"version": 2, "key": "k", "fields": {"ids": "int32"}, "names": [""], "files": {}, "note": {}, "seal": "0"}
    (folder / INDEX).write_text(json.dumps(old))
    assert Store.open(folder, "k") is None
    assert f"format 2, and this version of Headway writes format {VERSION}" in Store.why_unusable(folder, "k")
    assert len(Store.build(folder, examples(7), key="k")) == 7


FILES = ["ids.bin", "ids.offsets.bin", "boxes.bin", "boxes.offsets.bin", "boxes.shapes.bin", "image.bin", "where.bin"]


@pytest.mark.parametrize("name", [*FILES, INDEX])
@pytest.mark.parametrize("damage", ["flip", "cut", "zero", "gone"])
def test_damage_is_detected_and_fixed_by_building_again(folder, name, damage):
    path = folder / name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[:-1], "zero": bytes(len(data))}.get(damage, data))
    if damage == "gone":
        path.unlink()
    if bytes(data) == bytes(len(data)) and damage == "zero":
        return  # the file was all zeros
    assert Store.open(folder, "k") is None and "damaged" in Store.why_unusable(folder, "k")
    assert len(Store.build(folder, examples(7), key="k")) == 7


def forge(folder, file=None, values=None, dtype="<i8", **changes):
    """Changes the index or a file, with checksums that match."""
    index = read_checksummed(folder / INDEX)
    if file is not None:
        (folder / file).write_bytes(np.asarray(values, dtype).tobytes())
        index["files"][file] = {
            "bytes": (folder / file).stat().st_size,
            "checksum": file_hash(folder / file, BLAKE2B).hexdigest(),
        }
    write_checksummed(folder / INDEX, index | changes)


def fields(**changed):
    known = {"ids": ("int32", 1), "boxes": ("float32", 2), "image": ("bytes", 0)} | changed
    return {name: {"dtype": dtype, "rank": rank} for name, (dtype, rank) in known.items()}


FORGED = [
    fields(ids=("int64", 1)), fields(ids=("object", 1)), fields(ids=("int32", 2)), fields(ids=("int32", 0)),
    fields(ids=("int32", -1)), fields(ids=("int32", 1.0)), fields(ids=("int32", True)), fields(ids=("int32", None)),
    fields(ids=("int32", MAX_RANK + 1)), fields(ids=(["int32"], 1)), fields(ids=("bytes", 1)),
    fields(image=("uint8", 0)), fields(boxes=("float32", 1)), fields(boxes=("float32", 3)), fields(where=("int64", 1)),
    {}, [], None,
    {"../ids": {"dtype": "int32", "rank": 1}}, {"ids": "int32"}, {"ids": {"dtype": "int32", "rank": 1, "more": 1}},
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_a_forged_schema_is_refused(folder, forged):
    forge(folder, fields=fields())
    assert Store.open(folder, "k") is not None
    forge(folder, fields=forged)
    assert Store.open(folder, "k") is None


SHAPES = [[0, 4], [1, 4], [2, 4], [3, 4], [4, 4]]
FORGED_FILES = {
    "negative sizes": ("boxes.shapes.bin", [[0, 4], [-1, -4], *SHAPES[2:]]),
    "another product": ("boxes.shapes.bin", [[0, 4], [1, 5], *SHAPES[2:]]),
    "a product that overflows to the right one": ("boxes.shapes.bin", [[2**32, 2**32], *SHAPES[1:]]),
    "too few shapes": ("boxes.shapes.bin", SHAPES[:4]),
    "offsets that go back": ("ids.offsets.bin", [0, 0, 3, 1, 6, 10]),
    "offsets past the end": ("ids.offsets.bin", [0, 0, 1, 3, 6, 11]),
    "offsets that begin late": ("ids.offsets.bin", [1, 1, 1, 3, 6, 10]),
    "too few offsets": ("ids.offsets.bin", [0, 0, 1, 3, 10]),
    "a data file without a name": ("where.bin", [[0, 0], [0, 1], [7, 2], [0, 3], [0, 4]]),
    "a negative data file": ("where.bin", [[0, 0], [0, 1], [-1, 2], [0, 3], [0, 4]]),
    "half a location": ("where.bin", [0, 0, 0, 1, 0, 2, 0, 3, 0]),
}


@pytest.mark.parametrize("case", FORGED_FILES)
def test_forged_files_are_refused(folder, case):
    file, values = FORGED_FILES[case]
    forge(folder, file, values)
    assert Store.open(folder, "k") is None


def test_a_failure_while_building_leaves_the_old_store_and_no_other_files(folder):
    def failing():
        yield from examples(2)
        raise RuntimeError("pulled plug")

    with pytest.raises(RuntimeError, match="pulled plug"):
        Store.build(folder, failing(), key="k")
    assert len(Store.open(folder, "k")) == 5
    assert [path.name for path in folder.parent.iterdir()] == ["s"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            {"ids": np.zeros(2, np.int64)},
            "f:9: fields {ids: int64 of rank 1}, but the first example has {ids: int32 of",
        ),
        ({"idz": np.zeros(2, np.int32)}, "f:9: fields"),
        ({"ids": np.zeros((2, 2), np.int32)}, "f:9: fields {ids: int32 of rank 2}"),
        ({"ids": b"12"}, "f:9: fields {ids: bytes of rank 0}"),
        ({"ids": np.zeros(2, bool)}, "f:9: ids: an array of bool with 1 dimensions cannot be stored"),
        ({"ids": "text"}, "f:9: ids: an array of str"),
        ({"ids": [None]}, "f:9: ids: an array of object"),
        ({"ids": np.zeros([1] * (MAX_RANK + 1), np.int32)}, f"with {MAX_RANK + 1} dimensions cannot be stored"),
    ],
)
def test_an_example_of_another_type_is_named_by_its_line(tmp_path, bad, message):
    good = [{"ids": np.zeros(2, np.int32)}]
    with pytest.raises(DataError) as caught:
        Store.build(tmp_path / "s", [*good, bad | {"where": "f:9"}], key="k")
    assert message in str(caught.value)


def test_no_examples(tmp_path):
    with pytest.raises(DataError, match="no examples"):
        Store.build(tmp_path / "s", [], key="k")


def test_progress_is_reported(tmp_path):
    counts = []
    Store.build(tmp_path / "s", examples(3), key="k", progress=counts.append)
    assert counts == [1, 2, 3]


def test_fingerprint_is_of_content_and_order(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("b")
    before = fingerprint([one, two])
    assert fingerprint([two, one]) != before
    one.rename(tmp_path / "renamed")
    assert fingerprint([tmp_path / "renamed", two]) == before
    whole = fingerprint(tmp_path)
    two.write_text("B")
    assert fingerprint([tmp_path / "renamed", two]) != before
    assert fingerprint(tmp_path) != whole
    with pytest.raises(DataError, match="nowhere: cannot be read"):
        fingerprint(tmp_path / "nowhere")
