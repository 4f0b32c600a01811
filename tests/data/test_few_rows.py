"""Data of few different inputs has a held-out part too."""

from pathlib import Path

import numpy as np
import pytest

from headway.data.dataset import Dataset, image_dataset, open_files
from headway.data.images import ImageRows
from headway.data.row import Row
from headway.data.split import BORDER, split_hash

FIELDS = ("text", "label")


def texts(held_out: bool, *, count: int) -> list[str]:
    """Different texts whose hashes are all on one side of the border."""
    every = (f"text {number}" for number in range(1000))
    return [text for text in every if (split_hash(Row({"text": text}, "")) < BORDER) == held_out][:count]


def parts(data: Dataset) -> tuple[list[str], list[str]]:
    train, valid = ([row.fields["text"] for row in rows()] for rows in (data.train, data.valid))
    return train, valid


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("count", [2, 12])
def test_both_parts_have_rows(held_out: bool, count: int, tmp_path: Path) -> None:
    found = texts(held_out, count=count)
    rows = [(text, "ab"[number % 2]) for number, text in enumerate([*found, *found])]
    path = tmp_path / "x.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    data = open_files(path, fields=FIELDS, columns={})
    train, valid = parts(data)
    assert sorted([*train, *valid]) == sorted([*found, *found]) and not {*train} & {*valid}
    alone = set(train if held_out else valid)  # the part that would be empty has one input, of the rows equal to it
    assert len(alone) == 1
    assert parts(data.load()) == (train, valid)
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in reversed(rows)))
    assert set(parts(open_files(path, fields=FIELDS, columns={}))[1]) == set(valid)


def test_rows_that_are_all_equal_are_not_divided(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text,label\n" + f"{texts(False, count=1)[0]},a\n" * 5)
    train, valid = parts(open_files(tmp_path / "x.csv", fields=FIELDS, columns={}))
    assert len(train) == 5 and not valid


def test_few_pictures() -> None:
    pictures = (np.full((2, 2), shade, np.uint8) for shade in range(256))
    some = [picture for picture in pictures if split_hash(Row({"image": picture}, "")) >= BORDER][:4]
    contents = [picture.tobytes() for picture in some]  # none of which the share holds out
    rows = [Row({"image": picture, "label": "x"}, "") for picture in some * 5]
    data = image_dataset("pictures", [{"train": ImageRows(rows, "a list")}])
    train, valid = ([row.fields["image"].tobytes() for row in reader()] for reader in (data.train, data.valid))
    assert len(valid) == 5 and len(set(valid)) == 1 and set(train) == {*contents} - {*valid}
