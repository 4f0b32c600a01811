"""TRUST 11–20: every kind of bad file, for every text task, is an error with file, line and remedy, or is counted.
Never another kind of error, and nothing is lost in silence."""

from __future__ import annotations

import gzip
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.bad_files import (
    EVERY,
    FORMATS,
    ODD,
    WRITERS,
    check_output,
    is_running,
    line_of,
    refusal,
    rows_of,
    sound,
    write,
)

from headway.errors import DataError
from headway.printable import printable

ODD_LINE = {kind: line_of(kind, ODD) for kind in WRITERS} | {"conll": line_of("conll", ODD) + 3}


@pytest.mark.parametrize(("task", "kind"), EVERY)
def test_the_sound_file_is_read_to_its_end(task: str, kind: str, tmp_path: Path) -> None:
    """The control of everything below: the same file without the fault."""
    path = write(tmp_path, f"x.{kind}", sound(task, kind))
    rows = rows_of(task, path)
    if is_running(task, kind):
        assert "".join(row["text"] for row in rows) == sound(task, kind)
    else:
        assert len(rows) == 40
    assert ("characters, held out" if is_running(task, kind) else "examples ") in check_output(task, path, tmp_path)


# ---------------------------------------------------------------------------------------- 11, 12: bytes

SAME: dict[str, Callable[[str], bytes]] = {
    "a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, big end first": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "no line end at the end": lambda text: text.rstrip("\n").encode(),
    "mixed line ends": lambda text: text.replace("\n", "\r\n", 5).encode(),
}


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize(("task", "kind"), EVERY)
def test_another_way_to_write_the_same_file_gives_the_same_rows(
    task: str, kind: str, change: str, tmp_path: Path
) -> None:
    text = sound(task, kind)
    plain, changed = write(tmp_path, f"x.{kind}", text), write(tmp_path, f"y.{kind}", SAME[change](text))
    one, two = rows_of(task, plain), rows_of(task, changed)
    if is_running(task, kind):
        assert "".join(row["text"] for row in two) == (text.rstrip("\n") if change.startswith("no line") else text)
    else:
        assert one == two


@pytest.mark.parametrize(("task", "kind"), EVERY)
def test_the_same_packed(task: str, kind: str, tmp_path: Path) -> None:
    text = sound(task, kind).encode()
    half = len(text) // 2
    path = write(tmp_path, f"x.{kind}.gz", gzip.compress(text[:half]) + gzip.compress(text[half:]))
    assert rows_of(task, path) == rows_of(task, write(tmp_path, f"x.{kind}", text))


def odd_byte(text: str) -> bytes:
    return text.encode("latin-1")


def nul(text: str) -> bytes:
    return text.replace("é", "\0").encode()


EMPTY = "the file is empty|has no text|no examples"
REFUSED: dict[str, tuple[Callable[[str], bytes], str]] = {
    "empty": (lambda text: b"", EMPTY),
    "blank lines": (lambda text: b"\n \n\t\n\r\n", EMPTY),
    "only a mark": (lambda text: b"\xef\xbb\xbf", EMPTY),
    "latin-1": (odd_byte, r"x\.\w+:{line}: byte 0xe9 at byte \d+ of the line is not UTF-8.*latin-1"),
    "a NUL byte": (nul, r"x\.\w+:{line}: NUL byte at byte \d+ of the line"),
    "UTF-32": (lambda text: text.encode("utf-32"), "NUL byte"),
    "an odd number of bytes of UTF-16": (lambda text: text.encode("utf-16")[:-1], r"x\.\w+:\d+: .*utf-16"),
    "a picture": (lambda text: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20, r"x\.\w+:\d+: "),
    "random bytes": (lambda text: bytes((i * 37 + i // 7) % 251 + 4 for i in range(5000)), r"x\.\w+:\d+: "),
    "a pickle": (lambda text: pickle.dumps(["text", "label"] * 9), r"x\.\w+:\d+: "),
    "an archive": (lambda text: b"PK\x03\x04" + bytes(60), r"x\.\w+: a zip archive|x\.txt:\d+: "),
}


@pytest.mark.parametrize("fault", REFUSED)
@pytest.mark.parametrize(("task", "kind"), EVERY)
def test_a_file_that_is_no_text_is_refused_by_file_and_line(task: str, kind: str, fault: str, tmp_path: Path) -> None:
    damage, pattern = REFUSED[fault]
    path = write(tmp_path, f"x.{kind}", damage(sound(task, kind)))
    message = refusal(task, path, tmp_path)
    assert re.search(pattern.replace("{line}", str(ODD_LINE[kind])), message), message


@pytest.mark.parametrize(("task", "kind"), EVERY)
def test_old_line_ends_are_read_or_named(task: str, kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"x.{kind}", sound(task, kind).replace("\n", "\r"))
    if is_running(task, kind):
        assert "".join(row["text"] for row in rows_of(task, path)) == sound(task, kind)
    else:
        assert f"x.{kind}:1: lines end with a carriage return only" in refusal(task, path, tmp_path)


@pytest.mark.parametrize(("task", "kind"), [pair for pair in EVERY if pair[1] not in ("json", "conll")])
def test_blank_lines_are_counted(task: str, kind: str, tmp_path: Path) -> None:
    lines = sound(task, kind).splitlines(keepends=True)
    path = write(tmp_path, f"x.{kind}", "".join(["\n", *lines[:4], "\n", "  \n", *lines[4:], "\n"]))
    report = check_output(task, path, tmp_path)
    if is_running(task, kind):
        assert "".join(row["text"] for row in rows_of(task, path)) == path.read_text()
    else:
        assert len(rows_of(task, path)) == 40
        assert re.search(r"skipped\s+4 blank lines", report), report


# ---------------------------------------------------------------------------------------- 14: gzip


@pytest.mark.parametrize(("task", "kind"), EVERY)
def test_gzip_cut_or_damaged(task: str, kind: str, tmp_path: Path) -> None:
    whole = gzip.compress(sound(task, kind, count=400).encode())
    cut = write(tmp_path, f"cut.{kind}.gz", whole[: len(whole) // 2])
    assert re.search(
        rf"cut\.{kind}\.gz:\d+: the gzip file is truncated here; download it again", refusal(task, cut, tmp_path)
    )
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    assert re.search(rf"bad\.{kind}\.gz(:\d+)?: ", refusal(task, write(tmp_path, f"bad.{kind}.gz", broken), tmp_path))


# ---------------------------------------------------------------------------------------- what is no file


@pytest.mark.parametrize("task", FORMATS)
def test_what_is_no_plain_file_is_refused(task: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path / "none.csv", Path("a text, not a path. " * 40), Path("a\0b")):
        with pytest.raises(DataError) as caught:
            check_output(task, path, tmp_path)
        assert str(caught.value).startswith(printable(str(path))[:200])
