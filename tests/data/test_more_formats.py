"""Several files, patterns, workbooks, archives, fastText lines and tables in memory: all are read as the same rows."""

import builtins
import datetime
import io
import json
import re
import sys
import zipfile

import pytest

from headway.data.dataset import open_files
from headway.data.paths import data_path
from headway.data.read import read
from headway.data.tables import as_tables
from headway.errors import DataError, InputError

GOOD = [{"text": "a fine day", "label": "good"}, {"text": "no, never", "label": "bad"}]
CSV = 'text,label\na fine day,good\n"no, never",bad\n'


def rows(path, **more):
    return list(read(path, fields=("text", "label"), **more))


def fields(path, **more):
    return [row.fields for row in rows(path, **more)]


def workbook(path, sheets):
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, content in sheets.items():
        sheet = book.create_sheet(name)
        for row in content:
            sheet.append(row)
    book.save(path)
    return path


def archive(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path


# --- several files


def test_pattern_is_expanded_in_name_order(tmp_path):
    for number in (2, 1):
        (tmp_path / f"part{number}.csv").write_text(f"text,label\ntext {number},x\n")
    found = rows(str(tmp_path / "part*.csv"))
    assert [row.where for row in found] == [f"{tmp_path}/part1.csv:2", f"{tmp_path}/part2.csv:2"]
    with pytest.raises(DataError, match="no file matches"):
        rows(str(tmp_path / "*.tsv"))
    (tmp_path / "a[1].csv").write_text(CSV)  # a file's own name is not a pattern
    assert fields(tmp_path / "a[1].csv") == GOOD


def test_files_of_several_formats(tmp_path):
    (tmp_path / "1.csv").write_text(CSV)
    (tmp_path / "2.jsonl").write_text('{"sentence": "so so", "label": "fair"}\n')
    assert [row["label"] for row in fields([tmp_path / "1.csv", tmp_path / "2.jsonl"])] == ["good", "bad", "fair"]


def test_parts_by_name_in_a_list(tmp_path):
    for name in ("train-1", "train-2", "dev", "test"):
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{name} text,x\n")
    data = open_files([str(tmp_path / "*.csv")], fields=("text", "label"), columns={})
    texts = [[row.fields["text"] for row in part()] for part in (data.train, data.valid, data.test)]
    assert texts == [["train-1 text", "train-2 text"], ["dev text"], ["test text"]]


# --- workbooks


def test_workbook(tmp_path):
    content = [["text", "label", "when"], ["a fine day", "good", datetime.datetime(2020, 5, 1)], [None, None, None],
               ["no, never", "bad", None]]  # fmt: skip
    path = workbook(tmp_path / "x.xlsx", {"May": content, "June": [["label", "text"], [1, "one"], [True, "two"]]})
    found = rows(path)
    assert [row.fields for row in found] == GOOD
    assert [row.where for row in found] == [f"{path}:2", f"{path}:4"]  # the row numbers that Excel shows
    assert fields(f"{path}/June") == [{"text": "one", "label": "1"}, {"text": "two", "label": "true"}]
    data = open_files(f"{path}/June", fields=("text", "label"), columns={})
    assert data.layout == 'Excel, with a header, sheet "June": text = text, label = label'
    with pytest.raises(DataError, match=r'no sheet \'Jun\'; its sheets are "May", "June". Did you mean "June"'):
        rows(f"{path}/Jun")


def test_formula_is_read_by_its_saved_value(tmp_path):
    path = workbook(tmp_path / "x.xlsx", {"S": [["text", "label"], ["one", "=1+1"], ["two", "=1+2"]]})
    out = tmp_path / "saved.xlsx"  # as Excel saves it: with the values
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("sheet1.xml"):
                formula = re.compile(rb"<f>1\+(\d)</f><v ?(?:/>|></v>)")
                content = formula.sub(lambda at: b"<f>x</f><v>%d</v>" % (1 + int(at[1])), content)
                assert b"<v>3</v>" in content
            new.writestr(name, content)
    assert [row["label"] for row in fields(out)] == ["2", "3"]


def test_workbook_without_openpyxl_or_damaged(tmp_path, monkeypatch):
    path = workbook(tmp_path / "x.xlsx", {"S": [["text", "label"], ["one", "x"]]})
    (tmp_path / "cut.xlsx").write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"cut\.xlsx: not an Excel workbook"):
        rows(tmp_path / "cut.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"headway\[excel\]"):
        rows(path)


# --- archives


def test_archive_of_parts(tmp_path):
    files = {f"set/{part}.csv": CSV.replace("day", part) for part in ("train", "valid", "test")}
    path = archive(tmp_path / "x.zip", files | {"__MACOSX/set/._train.csv": "?", "set/README.md": "about"})
    data = open_files(path, fields=("text", "label"), columns={})
    kept = data.load()
    assert [row.fields["text"] for row in kept.train()] == ["a fine train", "no, never"]
    assert next(kept.valid()).where == f"{path}/set/valid.csv:2"
    assert next(data.test()).fields["text"] == "a fine test"
    assert kept.fingerprint == data.fingerprint  # hashed while read, or on its own
    assert fields(f"{path}/set/test.csv")[0]["text"] == "a fine test"
    archive(path, {**files, "set/train.csv": CSV + "more,good\n"})
    assert open_files(path, fields=("text", "label"), columns={}).fingerprint != data.fingerprint
    with pytest.raises(DataError, match="no such file"):
        open_files(f"{path}/set/other.csv", fields=("text", "label"), columns={})


def test_archive_of_folders_and_other_formats(tmp_path):
    path = archive(tmp_path / "x.zip", {"good/1.txt": "a fine day", "bad/2.json": "no, never"})
    assert sorted(fields(path), key=str) == sorted(GOOD, key=str)
    workbook(tmp_path / "x.xlsx", {"A": [["q"]], "B": [["text", "label"], *(list(row.values()) for row in GOOD)]})
    parquet = io.BytesIO()
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(GOOD), parquet)
    path = archive(tmp_path / "y.zip", {"x.xlsx": (tmp_path / "x.xlsx").read_bytes(), "x.parquet": parquet.getvalue()})
    assert fields(f"{path}/x.xlsx/B") == fields(f"{path}/x.parquet") == GOOD
    assert data_path(f"{path}/x.xlsx/B").is_file()


def test_hostile_archives(tmp_path, monkeypatch):
    monkeypatch.setattr("headway.preprocess.archive.UNPACK_FREE", 1 << 20)
    outside = archive(tmp_path / "out.zip", {"../x.csv": CSV})
    with pytest.raises(DataError, match="leads out of the archive"):
        rows(outside)
    bomb = archive(tmp_path / "bomb.zip", {"x.csv": CSV + "x" * (4 << 20)})
    with pytest.raises(DataError, match="an archive of data has far fewer"):
        rows(bomb)
    with pytest.raises(DataError, match="a zip archive; unpack it"):
        rows(archive(tmp_path / "nested.zip", {"in.zip": outside.read_bytes()}))
    damaged = archive(tmp_path / "bad.zip", {"x.csv": CSV * 50})
    content = bytearray(damaged.read_bytes())
    content[60:90] = bytes(30)
    damaged.write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.zip/x\.csv: the archive is damaged"):
        rows(damaged)
    bomb = archive(tmp_path / "bomb.xlsx", {"x.xml": "x" * (4 << 20)})
    with pytest.raises(DataError, match="an archive of data has far fewer"):
        rows(bomb)


# --- fastText


def test_fasttext(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("__label__good a fine day\n\n__label__bad no, never\n")
    assert fields(path) == GOOD
    path.write_text("__label__good a fine day\n__label__bad __label__sad no\n")
    assert [row["label"] for row in fields(path)] == ["good", ["bad", "sad"]]
    path.write_text("__label__good a\n__label__bad\n")
    with pytest.raises(DataError, match=r"x\.txt:2: .*found no text"):
        fields(path)
    path.write_text("__label__good a fine day\n__label__good a\nlabel without the prefix\n")
    with pytest.raises(DataError, match=r"x\.txt:3: .*found no label"):
        fields(path)


# --- in memory


def frames():
    import pandas
    import polars
    import pyarrow

    yield GOOD
    yield {"text": [row["text"] for row in GOOD], "label": [row["label"] for row in GOOD]}
    yield pandas.DataFrame(GOOD)
    yield pandas.DataFrame(GOOD).astype({"label": "category"})
    yield polars.DataFrame(GOOD)
    yield polars.DataFrame(GOOD).lazy()
    yield pyarrow.Table.from_pylist(GOOD)


def test_tables_in_memory_are_equal():
    opened = [open_files(as_tables(each), fields=("text", "label"), columns={}) for each in frames()]
    for data in opened:
        assert [row.fields for row in data.test()] == GOOD
    assert len({data.fingerprint for data in opened}) == 1
    assert [row.where for row in opened[2].test()] == ["DataFrame.loc[0]", "DataFrame.loc[1]"]
    assert [row.where for row in opened[4].test()] == ["DataFrame:1", "DataFrame:2"]
    changed = as_tables([GOOD[0], {**GOOD[1], "label": "sad"}])
    assert open_files(changed, fields=("text", "label"), columns={}).fingerprint != opened[0].fingerprint


def test_values_of_frames():
    import numpy
    import pandas

    table = as_tables(pandas.DataFrame({"words": [numpy.array(["a", "b"])], "n": [numpy.int64(3)], "x": [numpy.nan]}))
    assert table.train.records == [{"words": ["a", "b"], "n": 3, "x": None}]
    wrong = as_tables(pandas.DataFrame({"text": ["a", 3], "label": ["x", "y"]}, index=["one", "two"]))
    with pytest.raises(DataError, match=r"DataFrame.loc\['two'\]: text: expected text, found a number"):
        open_files(wrong, fields=("text", "label"), columns={})


@pytest.mark.parametrize("labels", [["x", None, "y"], ["x", "", "y"], [0.5, float("nan"), 1.5], ["x", "NaN", "y"]])
def test_what_is_missing_in_a_frame_is_missing_in_its_file(labels, tmp_path):
    import pandas

    frame = pandas.DataFrame({"text": ["a", "b", None], "label": labels}, index=[7, 8, 9])
    frame.to_csv(tmp_path / "x.csv", index=False)
    pandas.DataFrame(frame).to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    fields = ("text", "label")
    given, file = (
        open_files(as_tables(frame), fields=fields, columns={}),
        open_files(tmp_path / "x.csv", fields=fields, columns={}),
    )
    assert [row.fields for row in given.test()] == [row.fields for row in file.test()]
    assert [row.fields["text"] for row in file.test()] == ["a", ""]
    assert given.train().skipped.places == {"rows without a label": ["DataFrame.loc[8]"]}
    rows = file.train()
    assert len(list(rows)) + len(list(file.valid())) == 2
    assert rows.skipped.places == {"rows without a label": [f"{tmp_path / 'x.csv'}:3"]}


def test_parts_in_memory():
    parts = as_tables({"train": dict_frame(1), "validation": dict_frame(2), "test": dict_frame(3)})
    data = open_files(parts, fields=("text", "label"), columns={})
    texts = [next(part()).fields["text"] for part in (data.train, data.valid, data.test)]
    assert texts == ["text 1", "text 2", "text 3"]
    given = open_files(as_tables(GOOD, valid=dict_frame(4)), fields=("text", "label"), columns={})
    assert len(list(given.train())) == 2
    assert next(given.valid()).where == "valid.loc[0]"


def dict_frame(number):
    import pandas

    return pandas.DataFrame({"text": [f"text {number}"], "label": ["x"]})


class ClassLabel:
    names = ["bad", "good"]

    def int2str(self, number):
        return self.names[number]


class HubDataset(list):
    """As datasets.Dataset: rows with numbers of classes, whose names are among the features."""

    column_names = ["text", "label"]
    features = {"text": object(), "label": ClassLabel()}


def test_numbers_of_classes_are_replaced_by_their_names():
    rows = HubDataset([{"text": row["text"], "label": int(row["label"] == "good")} for row in GOOD])
    assert as_tables(rows).train.records == GOOD


def test_what_is_no_table(tmp_path):
    assert as_tables(None) is as_tables("x.csv") is as_tables([tmp_path, "y.csv"]) is None
    for wrong in (3, object(), ["x", 3], {"text": "a"}, [GOOD]):
        with pytest.raises(InputError):
            as_tables(wrong)
    with pytest.raises(DataError, match="different lengths"):
        as_tables({"text": ["a"], "label": ["x", "y"]})
    with pytest.raises(DataError, match="no rows"):
        as_tables({"text": []})
    with pytest.raises(InputError, match="an empty list"):
        as_tables([])
    with pytest.raises(InputError, match="in the same way"):
        as_tables("x.csv", valid=GOOD)
    with pytest.raises(DataError, match="image is read from files"):
        open_files(as_tables(GOOD), fields=("image", "label"), columns={})


def test_reading_tables_imports_no_library(monkeypatch):
    imported, real = [], builtins.__import__
    monkeypatch.setattr(builtins, "__import__", lambda name, *a, **k: imported.append(name) or real(name, *a, **k))
    assert json.loads(next(as_tables(GOOD).train.json_lines())) == GOOD[0]
    assert not {"pandas", "polars", "pyarrow", "datasets"} & set(imported)
