"""The store gives back what was put in, and never what was half-written or damaged."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.store import INDEX, Store, fingerprint
from headway.errors import DataError

TYPES = st.sampled_from(["uint8", "uint16", "int32", "int64"])


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 255)), st.lists(st.integers(0, 255))), min_size=1, max_size=20),
    TYPES,
    TYPES,
)
def test_round_trip(tmp_path_factory, content, one, two):
    folder = tmp_path_factory.mktemp("store") / "s"
    examples = [
        {"ids": np.array(a, one), "mask": np.array(b, two), "where": f"some:file.csv:{line}"}
        for line, (a, b) in enumerate(content)
    ]
    Store.build(folder, iter(examples), key="k")
    store = Store.open(folder, "k")
    assert store is not None and len(store) == len(examples) and store.fields == ("ids", "mask")
    for position, example in enumerate(examples):
        for name in ("ids", "mask"):
            assert store[position][name].dtype == example[name].dtype
            assert store[position][name].tolist() == example[name].tolist()
        assert store.where(position) == example["where"]
    assert store.lengths("mask").tolist() == [len(b) for _, b in content]
    assert store.flat("ids").tolist() == [number for a, _ in content for number in a]


def examples(count=5):
    for i in range(count):
        yield {"ids": np.arange(i, dtype=np.int32), "where": f"f:{i}"}


@pytest.fixture
def folder(tmp_path):
    Store.build(tmp_path / "s", examples(), key="k")
    assert Store.open(tmp_path / "s", "k") is not None
    return tmp_path / "s"


def test_views_are_mapped_and_cannot_be_written(folder):
    ids = Store.open(folder, "k")[3]["ids"]
    assert isinstance(ids, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1
    with pytest.raises(IndexError):
        Store.open(folder, "k")[5]


def test_another_key_or_no_folder_is_no_store(folder, tmp_path):
    assert Store.open(folder, "other") is None
    assert Store.open(tmp_path / "nowhere", "k") is None


@pytest.mark.parametrize("name", ["ids.bin", "ids.offsets.bin", "where.bin", INDEX])
@pytest.mark.parametrize("damage", ["flip", "cut", "zero", "gone"])
def test_damage_is_noticed_and_mended_by_building_again(folder, name, damage):
    path = folder / name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[:-1], "zero": bytes(len(data))}.get(damage, data))
    if damage == "gone":
        path.unlink()
    assert Store.open(folder, "k") is None
    assert len(Store.build(folder, examples(7), key="k")) == 7


def test_an_index_that_agrees_with_itself_but_not_with_us_is_no_store(folder):
    index = json.loads((folder / INDEX).read_text())
    index["fields"]["ids"] = "float64"
    (folder / INDEX).write_text(json.dumps(index))
    assert Store.open(folder, "k") is None


def test_a_failure_while_building_leaves_the_old_one_and_no_litter(folder):
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
        ({"ids": np.zeros(2, np.int64)}, "f:9: fields"),
        ({"idz": np.zeros(2, np.int32)}, "f:9: fields"),
        ({"ids": np.zeros((2, 2), np.int32)}, "f:9: ids: expected a one-dimensional"),
    ],
)
def test_an_odd_example_is_named_by_its_line(tmp_path, bad, message):
    with pytest.raises(DataError, match=message):
        Store.build(tmp_path / "s", [*examples(), bad | {"where": "f:9"}], key="k")
    with pytest.raises(DataError, match="expected a one-dimensional array of whole numbers"):
        Store.build(tmp_path / "s", [{"ids": np.zeros(2)}], key="k")
    with pytest.raises(DataError, match="no examples"):
        Store.build(tmp_path / "s", [], key="k")


def test_progress_is_told(tmp_path):
    told = []
    Store.build(tmp_path / "s", examples(3), key="k", progress=told.append)
    assert told == [1, 2, 3]


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
