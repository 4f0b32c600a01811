"""Lines and JSON values do not depend on the chunk size."""

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.data import text_reader as module
from headway.data.json_stream import elements
from headway.data.text_reader import ReadLimits, read_lines
from headway.errors import DataError

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=20)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8)
RELAXED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@RELAXED
@given(st.lists(TEXT, min_size=1), st.integers(1, 9), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]), st.booleans())
def test_lines_at_any_chunk_size(tmp_path, monkeypatch, texts, chunk, encoding, zipped):
    content = "\n".join(texts)
    expected = [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")] if content else []
    data = content.encode(encoding)
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(data) if zipped else data)
    monkeypatch.setattr(module, "CHUNK", max(chunk, 4))  # the first chunk must hold a byte order mark
    read: list[bytes] = []
    assert [line for _, line in read_lines(path, encoding=encoding, on_bytes=read.append)] == expected
    assert b"".join(read) == path.read_bytes()


@RELAXED
@given(st.lists(VALUES), st.integers(4, 9), st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_json_values_at_any_chunk_size(tmp_path, monkeypatch, values, chunk, indent, ascii_only, wrapped):
    path = tmp_path / "x.json"
    content = {"n": -12.5e3, "data": values, "s": "x"} if wrapped else values
    path.write_text(json.dumps(content, indent=indent, ensure_ascii=ascii_only), encoding="utf-8")
    monkeypatch.setattr(module, "CHUNK", chunk)
    assert [value for _, value in elements(path)] == values


@pytest.mark.parametrize("before", range(12))
def test_a_bad_byte_is_located_at_any_chunk_size(tmp_path, monkeypatch, before):
    path = tmp_path / "x.json"
    path.write_bytes(b"[1,\n" + b" " * before + b'"\xe9"]')
    monkeypatch.setattr(module, "CHUNK", 4)
    with pytest.raises(DataError, match=rf"x\.json:2: byte 0xe9 at byte {before + 2} of the line"):
        list(elements(path))


def test_the_limit_applies_to_one_line(tmp_path):
    path = tmp_path / "x"
    path.write_text("12345\n" * 100)
    assert len(list(read_lines(path, limits=ReadLimits(line_bytes=5)))) == 100
    with pytest.raises(DataError, match="x:1: the line is longer than 4 bytes"):
        list(read_lines(path, limits=ReadLimits(line_bytes=4)))
