"""Detects a file's format and columns from its name and first lines."""

from __future__ import annotations

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.data import formats
from headway.data.columns import assign_columns, listing, unused_texts
from headway.data.conll import conll_cells, is_conll_u
from headway.data.header import has_header
from headway.data.input_file import InputFile
from headway.data.json_stream import elements
from headway.data.paths import WORKBOOKS
from headway.data.row import Layout
from headway.data.split import DATA_SUFFIXES, bare_suffix
from headway.data.target_kinds import are_lists
from headway.data.text_reader import (
    CHUNK,
    ReadLimits,
    detect_encoding,
    head_bytes,
    read_lines,
    read_text,
    refuse_binary,
    refuse_cr_line_ends,
)
from headway.data.workbook import sheet_name
from headway.errors import DataError

SAMPLE = 200
PAIRS = ({"source", "target"}, {"a", "b"})
JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")


def detect_file_layout(
    path: Path, fields: Sequence[str], *, optional: Sequence[str] = (), columns: Mapping[str, str],
    encoding: str | None, limits: ReadLimits,
) -> Layout:  # fmt: skip
    """The layout of one file."""
    if bare_suffix(path) in WORKBOOKS:
        layout = Layout("Excel", encoding=f"sheet {listing([sheet_name(path)])}")
        return _table(path, fields, optional=optional, layout=layout, chosen=columns, limits=limits)
    head = head_bytes(path, limits=limits)
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise DataError(f"{path}: the file is empty; give one with examples in it.")
    refuse_binary(path, head)
    if not _is_parquet(path, head):
        refuse_cr_line_ends(path, head)
    found = encoding or detect_encoding(path, limits=limits)
    layout = _format(path, fields, encoding=found, limits=limits)
    if layout.format == "table":
        return _table(path, fields, optional=optional, layout=layout, chosen=columns, limits=limits)
    file = InputFile(path, layout, limits)
    if layout.format == "CoNLL":
        words = (line for _, line in file.lines() if line.strip() and not line.startswith(("-DOCSTART-", "#")))
        first = next(words, None)
        if first is None:
            raise _no_examples(path)
        cells = conll_cells(first, layout.delimiter)
        names = [str(number) for number in range(1, len(cells) + 1)]
        if len(names) < 2:
            raise DataError(f"{path}: tags: the lines have one column; expected a word and its tag on each line.")
        mapping = {"words": names[0], "tags": names[-1]}
        if is_conll_u(cells):
            layout, mapping = replace(layout, format="CoNLL-U"), {"words": "2", "tags": "4"}
        mapping |= assign_columns(list(columns), names, sample=[], chosen=columns, where=str(path))
        return _with(layout, mapping=mapping, columns=names)
    sample = [record for _, record in itertools.islice(formats.READERS[layout.format](file), SAMPLE)]
    if not sample:
        raise _no_examples(path)
    if layout.format in ("label and text a line", "fastText"):
        return _with(layout, mapping={"text": "2", "label": "1"}, columns=list(sample[0]))
    return record_layout(layout, fields, sample=sample, optional=optional, columns=columns, where=str(path))


def record_layout(
    layout: Layout, fields: Sequence[str], *, sample: Sequence[Mapping[str, Any]], where: str,
    optional: Sequence[str] = (), columns: Mapping[str, str],
) -> Layout:  # fmt: skip
    """The layout of records with named fields, given the first of them."""
    names = list(dict.fromkeys(name for record in sample for name in record))
    mapping = assign_columns(fields, names, sample=sample, chosen=columns, where=where, optional=optional)
    if layout.format == "SQuAD":
        mapping = {name: name for name in names} | mapping
    lists = _holds_lists(mapping, sample)
    return replace(_with(layout, mapping=mapping, columns=names), unused=unused_texts(mapping, sample), lists=lists)


def detect_parallel_layout(
    paths: Sequence[Path], fields: Sequence[str], *, columns: Mapping[str, str], encoding: str | None
) -> Layout:
    """The layout of two files with corresponding lines; the first is the first field unless `columns` names it."""
    for path in paths:
        refuse_cr_line_ends(path, head_bytes(path))
    names = [bare_suffix(path).lstrip(".") for path in paths]
    if "" in names or names[0] == names[1]:
        names = [path.name for path in paths]
    order = list(columns) + [name for name in fields if name not in columns]
    mapping = assign_columns([], names, sample=[], chosen=columns, where=" and ".join(map(str, paths)))
    free = iter(name for name in names if name not in mapping.values())
    mapping |= {name: next(free) for name in order if name not in mapping}
    found = encoding or detect_encoding(paths[0])
    return Layout("parallel lines", {name: mapping[name] for name in fields}, tuple(names), encoding=found)


def is_parallel(paths: Sequence[Path], fields: Sequence[str]) -> bool:
    known = DATA_SUFFIXES - {".txt"}
    return len(paths) == 2 and set(fields) in PAIRS and not any(bare_suffix(path) in known for path in paths)


def _format(path: Path, fields: Sequence[str], *, encoding: str, limits: ReadLimits) -> Layout:
    suffix = bare_suffix(path)
    if _is_parquet(path, head_bytes(path, limits=limits)):
        return Layout("Parquet", encoding="binary")
    head = next(read_text(path, encoding=encoding, limits=limits))
    if (kind := _json_kind(path, head, suffix, encoding=encoding, limits=limits)) is not None:
        return Layout(kind, encoding=encoding)
    if suffix == ".csv":
        return Layout("table", delimiter=_delimiter(path, encoding=encoding, limits=limits), encoding=encoding)
    sample = [line for _, line in itertools.islice(read_lines(path, encoding=encoding, limits=limits), SAMPLE)]
    filled = [line for line in sample if line.strip()]
    if not filled:
        raise _no_examples(path)
    fasttext = sum(line.lstrip().startswith(formats.FASTTEXT) for line in filled)
    if set(fields) <= {"text", "label"} and 2 * fasttext > len(filled):
        return Layout("fastText", encoding=encoding)
    tabs = sum("\t" in line for line in filled) > 0.9 * len(filled)
    if {"words", "tags"} <= set(fields):
        words = [line for line in filled if not line.startswith("#")]
        tabs = sum("\t" in line for line in words) > 0.9 * len(words)
        return Layout("CoNLL", delimiter="\t" if tabs else " ", encoding=encoding)
    if suffix == ".tsv" or (tabs and len(fields) > 1):
        return Layout("table", delimiter="\t", encoding=encoding)
    if list(fields) == ["text"]:
        return Layout("one text a line", encoding=encoding)
    if set(fields) == {"text", "label"}:
        firsts = {line.split()[0] for line in filled}
        if len(firsts) <= max(2, len(filled) // 2) and max(map(len, firsts)) <= 40:
            return Layout("label and text a line", encoding=encoding)
    raise DataError(
        f"{path}: cannot detect which part of a line is {listing(fields)}. Use CSV or TSV with a header, "
        "JSON lines with named fields" + (", or two parallel files." if set(fields) in PAIRS else ".")
    )


def _is_parquet(path: Path, head: bytes) -> bool:
    return bare_suffix(path) == ".parquet" or head.startswith(b"PAR1")


def _json_kind(path: Path, head: str, suffix: str, *, encoding: str, limits: ReadLimits) -> str | None:
    start = head.lstrip()
    if suffix in (".jsonl", ".ndjson"):
        return "JSON lines"
    if suffix != ".json" and not re.match(r'\{\s*"', start):
        return None
    first, _, rest = start.partition("\n")
    if first.rstrip().endswith("}") and rest.lstrip().startswith("{"):
        return "JSON lines"
    if start.startswith("{") and '"data"' not in start and not rest.strip() and len(head) < CHUNK // 4:
        return "JSON lines"  # one example, on one line
    _, element = next(elements(path, encoding=encoding, limits=limits), (0, None))
    return "SQuAD" if isinstance(element, dict) and "paragraphs" in element else "JSON array"


def _delimiter(path: Path, *, encoding: str, limits: ReadLimits) -> str:
    """The separator that gives most of the first lines the same number of columns; among equals, the most columns."""

    def quality(delimiter: str) -> tuple[float, int]:
        rows = formats.split_rows(path, Layout("table", delimiter=delimiter, encoding=encoding), limits=limits)
        try:
            widths = Counter(len(cells) for _, cells in itertools.islice(rows, 20) if cells)
        except (
            DataError
        ):  # quotes do not match this separator; if they match none, reading with commas reports the line
            return (0.0, 0)
        width, count = max(widths.items(), key=lambda item: item[1], default=(0, 0))
        return (count / max(1, widths.total()), width) if width > 1 else (0.0, 0)

    best = max(",\t;|", key=quality)
    return best if quality(best) > (0.0, 0) else ","


def _table(
    path: Path, fields: Sequence[str], *, optional: Sequence[str], layout: Layout, chosen: Mapping[str, str],
    limits: ReadLimits,
) -> Layout:  # fmt: skip
    rows = formats.split_rows(path, layout, limits=limits)
    top = [cells for _, cells in itertools.islice(_filled(rows), SAMPLE)]
    if not top:
        raise _no_examples(path)
    width = max(map(len, top)) if layout.format == "Excel" else len(top[0])
    top = [formats.padded(cells, width, layout) for cells in top]
    header = has_header(top, (*fields, *optional), chosen=chosen)
    names = list(formats.column_names(top[0], width, layout)) if header else [str(i) for i in range(1, width + 1)]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{path}:1: the header names {listing(repeated)} more than once.")
    if len(top) == header:
        raise DataError(f"{path}: the file has a header ({listing(names)}) and no examples; give it some.")
    sample = [dict(zip(names, cells, strict=True)) for cells in top[header:] if len(cells) == len(names)]
    mapping = assign_columns(fields, names, sample=sample, chosen=chosen, where=str(path), optional=optional)
    unused = unused_texts(mapping, sample)
    lists = _holds_lists(mapping, sample)
    return Layout(layout.format, mapping, tuple(names), layout.delimiter, header, layout.encoding, unused, lists)


def _holds_lists(mapping: Mapping[str, str], sample: Sequence[Mapping[str, Any]]) -> bool:
    """Whether labels are lists of labels."""
    labels = [record.get(mapping["label"]) for record in sample] if "label" in mapping else []
    return any(isinstance(label, list) for label in labels) or are_lists(
        Counter(label for label in labels if isinstance(label, str))
    )


def _filled(rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    return (row for row in rows if any(cell.strip() for cell in row[1]))


def _with(layout: Layout, *, mapping: Mapping[str, str], columns: Sequence[str]) -> Layout:
    return Layout(layout.format, mapping, tuple(columns), layout.delimiter, layout.header, layout.encoding)


def _no_examples(path: Path) -> DataError:
    return DataError(f"{path}: the file has no examples; give one that has.")
