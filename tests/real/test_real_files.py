"""Real data sets are understood without help, and hold as many examples as their authors say."""

import pytest

from headway.data.check import check
from headway.data.read import read
from headway.data.split import find_parts
from headway.errors import DataError

FIELDS = {
    "sst2": ("text", "label"),
    "wnut17": ("words", "tags"),
    "scitldr": ("source", "target"),
    "multi30k": ("source", "target"),
}
COUNTS = {
    "sst2": (6920, 872, 1821),
    "wnut17": (3394, 1009, 1287),
    "scitldr": (1992, 619, 618),
    "multi30k": (29000, 1014, 1000),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_each_part(real_data, name):
    parts = find_parts(real_data / "data" / name)
    found = tuple(sum(1 for _ in read(part, fields=FIELDS[name])) for part in (parts.train, parts.valid, parts.test))
    assert found == COUNTS[name]


def test_sst2_columns(real_data):
    rows = read(real_data / "data/sst2", fields=("text", "label"))
    assert str(rows.layout) == "table, separated by tabs, no header, utf-8: text = column 1, label = column 2"
    assert check(rows).labels == {"1": 3610, "0": 3310}


def test_trec_has_one_latin_1_byte(real_data):
    folder = real_data / "data/trec"
    with pytest.raises(DataError, match=r"train\.txt:66: byte 0xf0 at byte \d+ of the line is not UTF-8"):
        list(read(folder, fields=("text", "label")))
    report = check(read(folder, fields=("text", "label"), encoding="latin-1"))
    assert report.examples == 5452 and len(report.labels) == 6
    assert sum(1 for _ in read(find_parts(folder).test, fields=("text", "label"))) == 500


def test_squad_questions_and_answers(real_data):
    rows = list(read(real_data / "data/squad2-dev-half", fields=("question", "context", "answers")))
    assert (len(rows), sum(not row.fields["impossible"] for row in rows)) == (6078, 2910)
    for row in rows:
        for text, start in row.fields["answers"]:
            assert row.fields["context"][start : start + len(text)] == text


def test_multi30k_is_english_to_german(real_data):
    first = next(read(real_data / "data/multi30k", fields=("source", "target"))).fields
    assert first["source"].startswith("Two young, White males") and first["target"].startswith("Zwei junge")


def test_scitldr_alternatives(real_data):
    rows = list(read(real_data / "data/scitldr/test.jsonl", fields=("source", "target")))
    assert max(len(row.fields["targets"]) for row in rows) > 1
    assert all(row.fields["target"] == row.fields["targets"][0] for row in rows)


def test_wnut_sentences_are_parted_by_lines_of_space(real_data):
    rows = read(real_data / "data/wnut17", fields=("words", "tags"))
    assert all(word.strip() for row in rows for word in row.fields["words"])
