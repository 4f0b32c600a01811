"""A data set in memory has the rows and the fingerprint of the one on disk, from a single pass over the files."""

import gzip
import io
import json
from pathlib import Path

import pytest

from headway.data import dataset as module
from headway.data import text_reader
from headway.data.dataset import open_files
from headway.data.store import fingerprint
from headway.errors import DataError

LINES = [f"text number {i}" for i in range(400)]


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def table(lines, mark="\t"):
    return "".join(f"{line}{mark}label {i % 3}\n" for i, line in enumerate(lines))


def squad(lines):
    contexts = [{"context": line, "qas": [{"question": "Who?", "answers": [], "id": "1"}]} for line in lines]
    return json.dumps({"data": [{"paragraphs": [context]} for context in contexts]}, indent=1)


def json_lines(lines):
    return "".join(json.dumps({"text": text, "label": "a"}) + "\n" for text in lines)


CASES = {
    "TSV": (["x.tsv"], table, ("text", "label"), {}),
    "gzip": (["x.tsv.gz"], table, ("text", "label"), {}),
    "JSON lines": (["x.jsonl"], json_lines, ("text", "label"), {}),
    "SQuAD": (["x.json"], squad, ("question", "context", "answers"), {}),
    "CoNLL": (["x.conll"], lambda ls: "".join(f"{t.replace(' ', '_')}\tO\n\n" for t in ls), ("words", "tags"), {}),
    "parallel": (["x.en", "x.de"], lambda ls: "".join(t + "\n" for t in ls), ("source", "target"), {}),
    "several files": (["1.tsv", "2.tsv"], table, ("text", "label"), {}),
    "running text": (["x.txt"], lambda ls: "".join(t * 50 + "\n" for t in ls), ("text",), {"running": True}),
    "a folder per label": (["data/a/1.txt", "data/b/2.txt"], lambda ls: ls[0], ("text", "label"), {}),
}  # fmt: skip


def opened(folder, case, **more):
    names, content, fields, options = CASES[case]
    files = [write(folder, name, content(LINES)) for name in names]
    paths = [folder / "data"] if case == "a folder per label" else files
    return open_files(paths if len(paths) > 1 else paths[0], fields=fields, columns={}, **options, **more), files


def rows(reader):
    return [(row.fields, row.where) for row in reader()]


@pytest.mark.parametrize("given", [False, True], ids=["split by hash", "given validation file"])
@pytest.mark.parametrize("case", CASES)
def test_loaded_rows_and_fingerprint_are_those_on_disk(case, given, tmp_path):
    if given and case in ("parallel", "a folder per label"):
        pytest.skip("a list of files has another meaning there")
    more = {"valid": write(tmp_path, f"valid/{CASES[case][0][0]}", CASES[case][1](LINES[:50]))} if given else {}
    data, _ = opened(tmp_path, case, **more)
    loaded = data.load()
    assert loaded is not data and loaded.load() is loaded
    assert rows(loaded.train) == rows(data.train) == rows(loaded.train)
    assert rows(loaded.valid) == rows(data.valid) and rows(loaded.test) == rows(data.test)
    assert loaded.fingerprint == data.fingerprint
    assert loaded.fingerprint == "\n".join(f"{path.name} {fingerprint(path)}" for path in data.files)
    assert getattr(loaded.train(), "skipped", {}) == dict(counted(data.train()))


def counted(iterator):
    list(iterator)
    return getattr(iterator, "skipped", {})


@pytest.mark.parametrize("case", [case for case in CASES if case != "a folder per label"])
def test_loading_reads_every_byte_once(case, tmp_path, monkeypatch):
    """After the detection of the layout, which reads the first chunks."""
    monkeypatch.setattr(text_reader, "CHUNK", 1 << 10)
    data, files = opened(tmp_path, case)
    count = watch(monkeypatch, files)
    loaded = data.load()
    rows(loaded.train), rows(loaded.valid), loaded.fingerprint
    assert count[0] == sum(path.stat().st_size for path in files)


def watch(monkeypatch, files) -> list[int]:
    """The number of bytes read from files, so far."""
    count, real = [0], io.open

    class Counted(io.FileIO):
        def readinto(self, buffer):
            size = super().readinto(buffer)
            count[0] += size
            return size

    def counted_open(file, mode="r", *args, **options):
        return (
            io.BufferedReader(Counted(file)) if file in files and mode == "rb" else real(file, mode, *args, **options)
        )

    monkeypatch.setattr(io, "open", counted_open)
    monkeypatch.setattr("builtins.open", counted_open)
    return count


def test_large_files_are_not_loaded(tmp_path, monkeypatch):
    data, files = opened(tmp_path, "TSV")
    monkeypatch.setattr(module, "MAX_LOADED_BYTES", files[0].stat().st_size - 1)
    assert data.load() is data
    assert len(rows(data.train)) + len(rows(data.valid)) == len(LINES)


def test_errors_are_those_of_reading(tmp_path):
    path = write(tmp_path, "x.tsv", table(LINES) + "one\ttwo\tthree\n")
    data = open_files(path, fields=("text", "label"), columns={})
    with pytest.raises(DataError, match=r"x\.tsv:401: 3 columns where 2"):
        data.load()
    empty = write(tmp_path, "x.txt", "")
    with pytest.raises(DataError, match="has no text"):
        open_files(empty, fields=("text",), columns={}, running=True).load()
