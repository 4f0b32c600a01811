"""Data of few different inputs has a held-out part too."""

from pathlib import Path

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


def test_few_pictures_and_few_recordings(tmp_path: Path) -> None:
    contents: list[bytes] = []
    while len(contents) < 4:  # none of which the share holds out
        content = f"{len(contents)} {tmp_path}".encode()
        number = 0
        while split_hash(Row({"audio": content}, "")) < BORDER:
            number, content = number + 1, content + bytes([number])
        contents.append(content)
    rows = [Row({"audio": content, "text": "x"}, "") for content in contents * 5]
    data = image_dataset("sounds", [{"train": ImageRows(rows, "a list")}])
    train, valid = ([row.fields["audio"] for row in reader()] for reader in (data.train, data.valid))
    assert len(valid) == 5 and len(set(valid)) == 1 and set(train) == {*contents} - {*valid}
