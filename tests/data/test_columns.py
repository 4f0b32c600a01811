"""Columns of pairs of texts, and columns of texts that nothing reads."""

from pathlib import Path
from typing import Any

import pytest

from headway.data.columns import pair_columns
from headway.data.dataset import open_files
from headway.data.read import detect_layout, read
from headway.data.row import Row
from headway.data.split import BORDER, input_hash, split_hash
from headway.errors import DataError

FIELDS, PAIR = ("text", "label"), ("text_pair",)
LONG = [f"this is text number {'abcdefghij'[i]} of the file" for i in range(8)]


def write(folder: Path, header: str, rows: list[str], name: str = "x.csv") -> Path:
    (folder / name).write_text("\n".join([header, *rows] if header else rows) + "\n")
    return folder / name


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["premise", "hypothesis", "label"], ("premise", "hypothesis")),
        (["id", "sentence1", "sentence2"], ("sentence1", "sentence2")),
        (["sentence_B", "sentence_A"], ("sentence_A", "sentence_B")),
        (["Question1", "Question2", "is_duplicate"], ("Question1", "Question2")),
        (["text", "text_pair"], ("text", "text_pair")),
        (["Text A", "Text B"], ("Text A", "Text B")),
        (["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], ("#1 String", "#2 String")),
        (["question", "sentence", "label"], ("question", "sentence")),
        (["text", "label"], None),
        (["title", "text", "label"], None),
        (["sentence1", "text", "label"], None),
        (["option_a", "option_b", "label"], None),
        (["text", "sentence", "label"], None),
    ],
)
def test_usual_names_of_pairs(columns: list[str], found: Any) -> None:
    assert pair_columns(columns) == found


def test_a_pair_is_read_only_where_it_may_be(tmp_path: Path) -> None:
    path = write(tmp_path, "id,premise,hypothesis,gold_label", [f"{i},{t},b {i},yes" for i, t in enumerate(LONG)])
    assert detect_layout(path, FIELDS, optional=PAIR).mapping == {
        "text": "premise", "text_pair": "hypothesis", "label": "gold_label"
    }  # fmt: skip
    assert next(iter(read(path, fields=FIELDS, optional=PAIR))).fields["text_pair"] == "b 0"
    assert detect_layout(path, FIELDS).mapping == {"text": "premise", "label": "gold_label"}
    one = detect_layout(path, FIELDS, {"text": "hypothesis"}, optional=PAIR)
    assert one.mapping == {"text": "hypothesis", "label": "gold_label"} and one.unused == ("premise",)
    both = detect_layout(path, FIELDS, {"text": "hypothesis", "text_pair": "premise"}, optional=PAIR)
    assert both.mapping == {"text": "hypothesis", "text_pair": "premise", "label": "gold_label"}


def test_a_trained_pair_is_found_by_content_and_missed_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "", [f"{'yes' if i % 2 else 'no'},{t},and {t}" for i, t in enumerate(LONG)])
    assert detect_layout(path, ("text", "text_pair", "label")).mapping == {"text": "2", "text_pair": "3", "label": "1"}
    path = write(tmp_path, "text,label", [f"{t},no" for t in LONG])
    with pytest.raises(DataError, match='no column for "text_pair"'):
        detect_layout(path, ("text", "text_pair", "label"))


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_a_column_of_texts_that_is_not_read_is_named(name: str, tmp_path: Path) -> None:
    gap = "," if name.endswith("csv") else "\t"
    cells = [
        [f"2024-05-0{i + 1} 10:00", "Main Street 3", text, f"and more: {text}", "ab"[i % 2]]
        for i, text in enumerate(LONG)
    ]
    path = write(
        tmp_path, gap.join(["date", "place", "text", "reply", "label"]), [gap.join(row) for row in cells], name
    )
    assert detect_layout(path, FIELDS).unused == ("reply",)
    assert open_files(path, fields=FIELDS, columns={}).unused == ("reply",)
    assert open_files(path, fields=("text", "reply", "label"), columns={}).unused == ()


def test_the_files_of_a_data_set_have_the_fields_of_the_first(tmp_path: Path) -> None:
    rows = [f"{text},b,yes" for text in LONG]
    write(tmp_path, "premise,hypothesis,label", rows, "train.csv")
    write(tmp_path, "sentence1,sentence2,label", rows, "valid.csv")
    data = open_files(tmp_path, fields=FIELDS, optional=PAIR, columns={})
    assert data.columns == {"text": "premise", "text_pair": "hypothesis", "label": "label"}
    assert {row.fields["text_pair"] for row in (*data.train(), *data.valid(), *data.test())} == {"b"}
    write(tmp_path, "text,label", [f"{text},yes" for text in LONG], "valid.csv")
    with pytest.raises(DataError, match=r'valid\.csv: no column for "text_pair"'):
        list(open_files(tmp_path, fields=FIELDS, optional=PAIR, columns={}).valid())


def test_the_split_depends_on_both_texts() -> None:
    rows = [Row({"text": "same", "text_pair": f"other {i}", "label": "x"}, "") for i in range(300)]
    assert 10 < sum(split_hash(row) < BORDER for row in rows) < 60 and len(set(map(input_hash, rows))) == 300
