"""Malformed files: an error names file and line, or the line is counted as skipped."""

import gzip
import json
import subprocess
import sys

import pytest
from support.data_files import CLASSIFY, PAIR, fields, write

from headway.data.read import ReadLimits, read
from headway.errors import DataError

TABLE = "text,label\nfine,pos\nno good,neg\nso so,neg\n"


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.txt", "e.json", "e.jsonl", "e.conll", "e.csv.gz"])
@pytest.mark.parametrize("content", ["", "\n \n"])
def test_empty_files(tmp_path, name, content):
    with pytest.raises(DataError, match=r"e\.\S+: the file is empty"):
        read(write(tmp_path, name, content), fields=CLASSIFY)


def test_header_only(tmp_path):
    with pytest.raises(DataError, match=r'h\.csv: the file has a header \("text", "label"\) and no examples'):
        read(write(tmp_path, "h.csv", "text,label\n\n"), fields=CLASSIFY)
    with pytest.raises(DataError, match="no examples"):
        read(write(tmp_path, "h.json", "[]"), fields=CLASSIFY)


def test_missing_file_and_empty_folder(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "nowhere.csv", fields=CLASSIFY)
    with pytest.raises(DataError, match="holds no data files"):
        read(tmp_path, fields=CLASSIFY)


@pytest.mark.parametrize("name", ["l.csv", "l.txt", "l.json"])
def test_not_utf8_names_line_and_byte_and_an_encoding_fixes_it(tmp_path, name):
    lines = {"l.csv": "text,label\nx,a\ncaf\xe9,b\n", "l.txt": "a x\nb y\na caf\xe9\n",
             "l.json": '[{"text": "x", "label": 1},\n\n{"text":"caf\xe9", "label": 2}]'}  # fmt: skip
    path = write(tmp_path, name, lines[name].encode("latin-1"))
    with pytest.raises(DataError, match=rf"{name}:3: byte 0xe9 at byte \d+ of the line is not UTF-8.*latin-1"):
        fields(path)
    assert fields(path, encoding="latin-1")[-1]["text"] == "café"


def test_unknown_encoding_and_cut_utf16(tmp_path):
    with pytest.raises(DataError, match='no encoding "latin-x"'):
        fields(write(tmp_path, "a.csv", TABLE), encoding="latin-x")
    with pytest.raises(DataError, match=r"b\.csv:5: byte 0x41 is not utf-16"):
        fields(write(tmp_path, "b.csv", TABLE.encode("utf-16") + b"A"))


@pytest.mark.parametrize("name", ["n.csv", "n.json"])
def test_nul_bytes(tmp_path, name):
    lines = {
        "n.csv": b"text,label\nx,a\ny\0,b\n",
        "n.json": b'[{"text":"x","label":1},\n{"text":"x","label":1},\n"\0"]',
    }
    with pytest.raises(DataError, match=rf"{name}:3: NUL byte at byte 2 of the line"):
        fields(write(tmp_path, name, lines[name]))


def test_a_long_line_is_refused_and_the_limit_can_be_raised(tmp_path):
    path = write(tmp_path, "long.tsv", "short\ta\n" + "x" * 5000 + "\tb\n")
    small = ReadLimits(line_bytes=1000)
    with pytest.raises(DataError, match=r"long\.tsv:2: the line is longer than 1,000 bytes.*line_bytes"):
        fields(path, limits=small)
    assert len(fields(path, limits=ReadLimits(line_bytes=6000))) == 2
    path = write(tmp_path, "long.json", json.dumps([{"text": "x" * 600_000, "label": "a"}]))
    with pytest.raises(DataError, match=r"long\.json:1: .*longer than 1,000 bytes"):
        fields(path, limits=small)
    assert len(fields(path)[0]["text"]) == 600_000


MEMORY_PROBE = """
import resource, sys
from headway.data.read import read
from headway.errors import DataError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for row in read(sys.argv[1], fields=("text", "label")): pass
except DataError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("name", ["huge.tsv", "huge.csv", "huge.json", "huge.jsonl"])
def test_a_line_of_200_megabytes_within_a_memory_cap(tmp_path, name):
    path = tmp_path / name
    opening = {
        "huge.tsv": b"a\tb\nc\td\n",
        "huge.csv": b'text,label\nx,b\n"',
        "huge.json": b'[\n{"text":"',
        "huge.jsonl": b'\n{"text":"',
    }[name]
    with path.open("wb") as file:
        file.write(opening)
        for _ in range(200):
            file.write(b"x" * (1 << 20))
    done = subprocess.run([sys.executable, "-c", MEMORY_PROBE, path], capture_output=True, text=True, check=True)
    message, megabytes = done.stdout.strip().rsplit("\n", 1)
    assert f"{name}:{opening.count(bytes([10])) + 1}: " in message and "16,777,216" in message
    assert int(megabytes) < 150


def test_cut_and_damaged_gzip(tmp_path):
    lines = "".join(f"text number {i * i}\t{i % 2}\n" for i in range(20_000))
    path = write(tmp_path, "cut.tsv.gz", lines)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.tsv\.gz:\d+: the gzip file is truncated"):
        fields(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="truncated"):
        fields(path)
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    path.write_bytes(broken)
    with pytest.raises(DataError, match=r"cut\.tsv\.gz(:\d+)?: "):
        fields(path)
    path.write_bytes(whole + gzip.compress(b"one more\t1\n"))
    assert len(fields(path)) == 20_001


def test_gzip_bomb(tmp_path):
    path = tmp_path / "bomb.tsv.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(100):
            file.write((b"spam" * 10_000 + b"\t1\n") * 25)
    with pytest.raises(DataError, match=r"bomb\.tsv\.gz: unpacks to over .* 200 times.*gunzip.*unpack_ratio"):
        fields(path)
    rows = read(path, fields=CLASSIFY, limits=ReadLimits(unpack_ratio=2000))
    assert sum(1 for _ in zip(range(2000), rows, strict=False)) == 2000


@pytest.mark.parametrize(
    "bad", ['{"text": "x", "label": }', '{"text": "x"', '["x", "a"]', '"x"', "{'text': 1}", "[" * 9999]
)
def test_bad_json_names_its_line(tmp_path, bad):
    path = write(tmp_path, "k.jsonl", '{"text": "x", "label": 1}\n\n' + bad + "\n")
    with pytest.raises(DataError, match=r"k\.jsonl:3: (bad JSON|expected a JSON object|JSON nested)"):
        fields(path)


@pytest.mark.parametrize(
    "content", ['[\n{"text": "x", "label": 1},\n{"text": "y" "label": 2}]',
        '[\n{"text": "x", "label": 1}\n',
        '[{"text":"x","label":1}]\n\n{}']
)  # fmt: skip
def test_bad_json_document_names_its_line(tmp_path, content):
    with pytest.raises(DataError, match=r"d\.json:3: "):
        fields(write(tmp_path, "d.json", content))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"label": 1}', 'k.jsonl:2: text: the field "text" is missing'),
        ('{"text": 5, "label": 1}', "k.jsonl:2: text: expected text, found a number"),
        ('{"text": null, "label": 1}', "k.jsonl:2: text: expected text, found null"),
        ('{"text": "y", "label": {}}', "k.jsonl:2: label: expected text, found an object"),
        ('{"text": "y", "label": [[1]]}', "k.jsonl:2: label: expected text, found a list"),
        ('{"text": "\\ud800", "label": 1}', "k.jsonl:2: text: contains half of a surrogate pair"),
    ],
)
def test_missing_fields_and_wrong_types(tmp_path, line, message):
    with pytest.raises(DataError) as caught:
        fields(write(tmp_path, "k.jsonl", '{"text": "x", "label": 1}\n' + line))
    assert message in str(caught.value)


def test_an_unclosed_quote_names_its_first_line(tmp_path):
    rows = [f"text {i},{i % 2}" for i in range(300)]
    rows[250] = '"text 250,0'
    with pytest.raises(DataError, match=r"q\.csv:251: a quote opened here"):
        fields(write(tmp_path, "q.csv", "\n".join(rows)))
    rows[270] = '"text 270",0'  # closes it by accident, with text behind
    with pytest.raises(DataError, match=r"q\.csv:251: a quote opened here"):
        fields(write(tmp_path, "q.csv", "\n".join(rows)))
    rows[250] = '"a ""fine""\ntext","0'
    with pytest.raises(DataError, match=r"q\.csv:252: a quote opened here"):
        fields(write(tmp_path, "q.csv", "\n".join(rows)))


@pytest.mark.parametrize(("name", "mark"), [("x.csv", ","), ("x.tsv", "\t")])
def test_extra_and_missing_columns(tmp_path, name, mark):
    for line, count in ((f"y{mark}b{mark}c", 3), ("y", 1)):
        path = write(tmp_path, name, f"text{mark}label\nx{mark}a\n{line}\n")
        with pytest.raises(DataError, match=rf"{name}:3: {count} columns where 2 were expected"):
            fields(path)


def test_repeated_header_name(tmp_path):
    with pytest.raises(DataError, match=r'r\.csv:1: the header names "text" more than once'):
        fields(write(tmp_path, "r.csv", "text,label,text\na,b,c\n"), columns={"label": "label"})


def test_a_label_without_text(tmp_path):
    with pytest.raises(DataError, match=r"t\.txt:3: text: "):
        fields(write(tmp_path, "t.txt", "1 a\n2 b\n1\n"))


def test_undetectable_columns_are_an_error(tmp_path):
    with pytest.raises(DataError, match="two parallel files"):
        fields(write(tmp_path, "t.txt", "one line\nanother line\n"), PAIR)
    with pytest.raises(DataError, match='without a "data" array'):
        fields(write(tmp_path, "o.json", '{\n"x": {"y": 1}\n}'), ("messages",))
