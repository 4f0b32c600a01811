"""Files to rows: `read` yields rows with the requested fields from any supported format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headway.data import formats
from headway.data.columns import assign_columns, listing
from headway.data.input_file import InputFile
from headway.data.row import MISSING_FIELDS, UNLABELLED, Layout, Row, Skipped, convert, is_unlabelled
from headway.data.sniff import detect_file_layout, detect_parallel_layout, is_parallel
from headway.data.split import DATA_SUFFIXES, bare_suffix, data_files, find_parts
from headway.data.text_reader import DEFAULT, OnBytes, ReadLimits, read_lines
from headway.errors import DataError

__all__ = ["Layout", "ReadLimits", "Row", "Rows", "detect_layout", "read"]

Paths = str | Path | Sequence[str | Path]
NO_COLUMNS: Mapping[str, str] = {}
OnFileBytes = Callable[[Path, bytes], object]


def detect_layout(
    paths: Paths, fields: Sequence[str], columns: Mapping[str, str] = NO_COLUMNS, *, optional: Sequence[str] = (),
    encoding: str | None = None, limits: ReadLimits = DEFAULT,
) -> Layout:  # fmt: skip
    """How `read` reads the files."""
    files = _files(paths)
    if is_parallel(files, fields):
        return detect_parallel_layout(files, fields, columns=columns, encoding=encoding)
    if _is_labelled_folder(paths, files):
        mapping = assign_columns(
            fields, ["folder", "file"], sample=[], chosen={"text": "file", "label": "folder"}, where=str(paths)
        )
        return Layout("a folder a label", mapping, ("folder", "file"), encoding=encoding or "utf-8")
    return detect_file_layout(files[0], fields, optional=optional, columns=columns, encoding=encoding, limits=limits)


def read(
    paths: Paths, *, fields: Sequence[str], optional: Sequence[str] = (), columns: Mapping[str, str] = NO_COLUMNS,
    encoding: str | None = None, limits: ReadLimits = DEFAULT, layout: Layout | None = None,
    on_bytes: OnFileBytes | None = None, lists: bool | None = None,
) -> Rows:  # fmt: skip
    """Rows with the given fields from a file, a list of files, two parallel files, or a folder (its train part).

    `columns` maps a field to a column (by name, or number from 1); other fields are detected. `optional` fields are
    read where a column has one of their usual names.
    `layout`, if known, saves the detection. `lists` says whether an empty label is a list without labels, where that is
    known; a row without a label is skipped. `on_bytes` is called with a file's path and its bytes as they are read.
    """
    layout = layout or detect_layout(paths, fields, columns, optional=optional, encoding=encoding, limits=limits)
    layout = layout if lists is None else replace(layout, lists=lists)
    return Rows(_files(paths), layout, limits=limits, on_bytes=on_bytes)


class Rows(Iterator[Row]):
    """An iterator of rows with their `layout` and the number of lines `skipped` so far, by kind."""

    def __init__(
        self, files: Sequence[Path], layout: Layout, *, limits: ReadLimits, on_bytes: OnFileBytes | None = None
    ) -> None:
        self.layout = layout
        self.skipped = Skipped()
        self._limits, self._on_bytes = limits, on_bytes
        self._rows = self._parallel(files) if layout.format == "parallel lines" else self._each(files)

    def __next__(self) -> Row:
        for row in self._rows:
            if self.layout.lists or not is_unlabelled(row):
                return row
            self.skipped.add(UNLABELLED, row.where)
        raise StopIteration

    def _each(self, files: Sequence[Path]) -> Iterator[Row]:
        for path in files:
            layout = self._layout_of(path, first=files[0])
            file = InputFile(path, layout, self._limits, self.skipped, self._observer(path))
            for number, record in formats.READERS[layout.format](file):
                yield make_row(record, layout.mapping, where=f"{path}:{number}", folder=path.parent)

    def _layout_of(self, path: Path, *, first: Path) -> Layout:
        """That of the first file, or of a file in another format, whose columns may have other names too, its own."""
        suffix = bare_suffix(path)
        if suffix == bare_suffix(first) or suffix not in DATA_SUFFIXES or self.layout.format == "a folder a label":
            return self.layout
        return detect_file_layout(path, tuple(self.layout.mapping), columns={}, encoding=None, limits=self._limits)

    def _parallel(self, files: Sequence[Path]) -> Iterator[Row]:
        encoding = None if self.layout.encoding.startswith("utf") else self.layout.encoding
        one_side, two_side = (
            read_lines(path, encoding=encoding, limits=self._limits, on_bytes=self._observer(path)) for path in files
        )
        number = 0
        for number, one in one_side:
            two = next(two_side, None)
            if two is None:
                rest = 1 + sum(1 for _ in one_side)
                raise _line_counts(files, number - 1 + rest, number - 1)
            line = two[1]
            if not one.strip() and not line.strip():
                self.skipped["blank lines"] += 1
                continue
            record = dict(zip(self.layout.columns, (one, line), strict=True))
            yield make_row(record, self.layout.mapping, where=f"{files[0]}:{number}", folder=files[0].parent)
        if rest := sum(1 for _ in two_side):
            raise _line_counts(files, number, number + rest)

    def _observer(self, path: Path) -> OnBytes | None:
        return None if self._on_bytes is None else partial(self._on_bytes, path)


def _line_counts(files: Sequence[Path], one: int, two: int) -> DataError:
    return DataError(
        f"{files[0]} has {one:,} lines but {files[1]} has {two:,}; line k of one must belong to line k of the other."
    )


def make_row(record: Mapping[str, Any], mapping: Mapping[str, str], *, where: str, folder: Path) -> Row:
    fields: dict[str, Any] = {}
    for name, column in mapping.items():
        if column not in record:
            if name in MISSING_FIELDS:
                continue
            raise DataError(
                f'{where}: {name}: the field "{column}" is missing; found {listing(record) or "none"}. '
                "Give every example the field, or name the column that holds it."
            )
        fields |= convert(name, record[column], where=where, folder=folder)
    if "words" in fields and "tags" in fields and len(fields["words"]) != len(fields["tags"]):
        raise DataError(f"{where}: tags: {len(fields['tags'])} tags for {len(fields['words'])} words; give each one.")
    return Row(fields, where)


def _files(paths: Paths) -> list[Path]:
    files: list[Path] = []
    for path in find_parts(paths).train:
        if not path.is_dir():
            files.append(path)
        elif found := data_files(path) or _texts_below(path):
            files += found
        else:
            raise DataError(f"{path}: the folder holds no data files.")
    if not files:
        raise DataError("No data files were given.")
    return files


def _texts_below(folder: Path) -> list[Path]:
    """The files of `folder/<label>/*.txt`."""
    return [file for child in sorted(folder.iterdir()) if child.is_dir() and not child.name.startswith(".")
            for file in data_files(child)]  # fmt: skip


def _is_labelled_folder(paths: Paths, files: Sequence[Path]) -> bool:
    top = find_parts(paths).train[0]
    return top.is_dir() and files[0].parent != top
