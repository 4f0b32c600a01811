"""Recordings with their texts, not yet decoded, from the ways they come in:

- a table (CSV, TSV, JSON lines, Parquet, …) with a column of paths relative to the table; files of a folder whose names
  say train, valid and test are the parts;
- a folder of recordings, each with a text of the same name beside it (`talk.wav`, `talk.txt`), or with the lists of
  LibriSpeech (`*.trans.txt`, a line of name and text for each); folders named train, valid and test are the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.data.images import TABLES, ImageRows, by_part, joined_parts
from headway.data.read import detect_layout, read
from headway.data.row import Row, Skipped
from headway.data.split import PART_NAMES, bare_suffix, data_files
from headway.data.text_reader import read_lines
from headway.errors import DataError
from headway.preprocess.audio import SUFFIXES

LISTS = ".trans.txt"
MAX_TEXT = 100_000  # characters of one transcript


@dataclass(frozen=True)
class SoundFields:
    fields: Sequence[str] = ("audio", "text")
    columns: Mapping[str, str] = field(default_factory=dict)
    encoding: str | None = None


def sound_parts(path: Path, wanted: SoundFields | None = None) -> dict[str, ImageRows]:
    """train, and valid and test if there are such folders or files."""
    wanted = wanted or SoundFields()
    if not path.is_dir():
        if bare_suffix(path) not in TABLES:
            raise DataError(
                f"{path}: expected a table (CSV, TSV, JSON lines) with a column of sound files and one of texts, or a "
                "folder of recordings with their texts"
            )
        return {"train": _table(path, wanted)}
    if tables := by_part([file for file in data_files(path) if bare_suffix(file) in TABLES]):
        return joined_parts([(part, _table(file, wanted)) for part, file in tables])
    inner = {PART_NAMES[child.name.lower()]: child for child in sorted(path.iterdir())
             if child.is_dir() and child.name.lower() in PART_NAMES}  # fmt: skip
    if "train" in inner:
        return {part: _folder(child, wanted) for part, child in inner.items()}
    return {"train": _folder(path, wanted)}


def _table(path: Path, wanted: SoundFields) -> ImageRows:
    layout = detect_layout(path, wanted.fields, wanted.columns, encoding=wanted.encoding)
    rows = read(path, fields=wanted.fields, layout=layout)
    return ImageRows(list(rows), str(layout), rows.skipped)


def _folder(folder: Path, wanted: SoundFields) -> ImageRows:
    """Recordings with their texts, sorted by name."""
    rows, skipped = list[Row](), Skipped()
    listed: dict[Path, str] = {}
    sounds = [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in SUFFIXES and file.is_file()]
    for file in sorted(folder.rglob(f"*{LISTS}")):
        for number, line in read_lines(file, encoding=wanted.encoding):
            name, _, text = line.strip().partition(" ")
            if name and not text.strip():
                raise DataError(f"{file}:{number}: expected a name and a text, found {line!r:.80}")
            if name:
                listed[file.parent / name] = text.strip()
    for file in sounds:
        found = listed.get(file.with_suffix("")) or _beside(file, wanted)
        if found is None:
            skipped["recordings without a text"] += 1
        else:
            rows.append(Row({"audio": file, "text": found}, str(file)))
    if not rows:
        raise DataError(
            f"{folder}: no recordings with a text; expected {', '.join(SUFFIXES[:6])} files, each with a .txt file of "
            f"the same name, a list (*{LISTS}), or a table with a column of files and one of texts"
        )
    return ImageRows(rows, "recordings with a text beside each", skipped)


def _beside(file: Path, wanted: SoundFields) -> str | None:
    path = file.with_suffix(".txt")
    if not path.is_file():
        return None
    text = " ".join(line.strip() for _, line in read_lines(path, encoding=wanted.encoding)).strip()
    if len(text) > MAX_TEXT:
        raise DataError(f"{path}: {len(text):,} characters; a transcript has at most {MAX_TEXT:,}")
    return text
