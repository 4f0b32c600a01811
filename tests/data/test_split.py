"""The split by hash, and given parts by file name."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.dataset import first_rows, open_files
from headway.data.row import Row
from headway.data.split import BORDER, digest, drawn_rows, find_parts, held_out_border, input_hash, split_hash
from headway.errors import DataError

TEXT = st.text(st.characters(codec="utf-8"))


@given(TEXT, TEXT)
def test_equal_inputs_are_on_one_side(text, label):
    row = Row({"text": text, "label": label}, "a:1")
    twin = Row({"label": "another", "text": f" {text}\n"}, "b:7")
    assert split_hash(row) == split_hash(twin)


def test_the_share_is_kept():
    rows = [Row({"text": f"example {number}"}, "") for number in range(20_000)]
    hashes = [split_hash(row) for row in rows]
    assert sum(number < held_out_border(hashes) for number in hashes) == pytest.approx(2000, abs=200)


@given(st.lists(st.sampled_from([0, 3, BORDER - 1, BORDER, BORDER + 5, 2**64 - 1])))
def test_two_different_inputs_are_enough_for_both_parts(hashes):
    border = held_out_border(hashes)
    assert {number < border for number in hashes} == {True, False} or len(set(hashes)) < 2
    below, above = (any((number < BORDER) == side for number in hashes) for side in (True, False))
    assert border == BORDER or not (below and above)


def test_the_border_is_known_after_a_row_of_each_part():
    hashes = iter([BORDER, 0, 1, 2])
    assert held_out_border(hashes) == BORDER and next(hashes) == 1


def test_the_split_never_changes():
    """Golden values: a resumed or repeated run must hold out the same rows."""
    assert digest(Row({"text": "hello"}, ""), fields=["text"]) == GOLDEN


GOLDEN = 0xFE616DDA7929C853


def test_questions_on_one_context_are_on_one_side():
    rows = [Row({"question": f"q{i}", "context": "same", "answers": []}, "") for i in range(50)]
    assert len({split_hash(row) for row in rows}) == 1
    assert len({input_hash(row) for row in rows}) == 50


def test_field_boundaries_change_the_hash():
    one, two = Row({"a": "x y", "b": "z"}, ""), Row({"a": "x", "b": "y z"}, "")
    assert input_hash(one) != input_hash(two)


@pytest.mark.parametrize("valid", ["dev", "val", "valid", "validation"])
def test_parts_of_a_folder(tmp_path, valid):
    for name in ("train.tsv", f"{valid}.tsv", "test.tsv", "LICENSE", ".hidden"):
        (tmp_path / name).write_text("x\ty\n")
    parts = find_parts(tmp_path)
    assert [[path.name for path in part] for part in (parts.train, parts.valid, parts.test)] == [
        ["train.tsv"], [f"{valid}.tsv"], ["test.tsv"]
    ]  # fmt: skip
    assert find_parts(tmp_path, valid=tmp_path / "mine.tsv").valid == (tmp_path / "mine.tsv",)


def test_a_file_or_an_undivided_folder_is_all_train(tmp_path):
    (tmp_path / "dev-v2.0.json").write_text("{}")
    assert find_parts(tmp_path).train == (tmp_path,)
    assert find_parts([tmp_path / "a", tmp_path / "b"]).train == (tmp_path / "a", tmp_path / "b")


def test_ambiguous_parts_are_refused(tmp_path):
    for name in ("train.tsv", "train.csv"):
        (tmp_path / name).write_text("x")
    with pytest.raises(DataError, match=r"several kinds of train files \(train\.csv, train\.tsv\)"):
        find_parts(tmp_path)
    (tmp_path / "other").mkdir()
    for name in ("dev.tsv", "test.tsv"):
        (tmp_path / "other" / name).write_text("x")
    with pytest.raises(DataError, match="none whose name begins with train"):
        find_parts(tmp_path / "other")


@pytest.mark.parametrize("ordered_by", ["label", "time", "turns"])
def test_drawn_rows_are_of_all_and_the_same_each_time(ordered_by: str, tmp_path: Path) -> None:
    """TRUST 66: not the first ones, of a file that is sorted by label."""
    labels = [number // 200 if ordered_by == "label" else number % 10 for number in range(2000)]
    lines = [f"text {number},label {label}\n" for number, label in enumerate(labels)]
    (tmp_path / "x.csv").write_text("text,label\n" + "".join(lines))
    data = open_files(tmp_path / "x.csv", fields=("text", "label"), columns={})
    drawn = drawn_rows(data.test(), 500)
    counts = Counter(row.fields["label"] for row in drawn)
    assert len(drawn) == 500 and len(counts) == 10 and min(counts.values()) > 25
    assert drawn == drawn_rows(data.test(), 500) == sorted(drawn, key=lambda row: int(row.fields["text"].split()[1]))
    assert {row.where for row in drawn} == {row.where for row in drawn_rows(reversed(list(data.test())), 500)}
    first = Counter(row.fields["label"] for row in first_rows(data.test, 500))
    assert (len(first) == 3) == (ordered_by == "label")  # the control
    assert {row.where for row in drawn_rows(data.valid(), 10**6)} == {row.where for row in data.valid()}
