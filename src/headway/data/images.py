"""Pictures with a label or other text, not yet decoded, from all the ways they come in:

- a folder per label, on the disk or in a zip archive; folders named train, valid and test above them are the parts;
- a table (CSV, TSV, JSON lines, Parquet, …) with a column of paths relative to the table, or of encoded pictures;
- idx files (MNIST, Fashion-MNIST, …); see idx.py.

A row's `image` is a Path, an ArchivedFile, bytes or an array.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.data.idx import IDX_IMAGES, idx_rows
from headway.data.read import detect_layout, read
from headway.data.row import Row, Skipped
from headway.data.split import DATA_SUFFIXES, PART_NAMES, bare_suffix, data_files
from headway.errors import DataError
from headway.preprocess.archive import ArchivedFile, archived_files
from headway.preprocess.image import SUFFIXES

TABLES = DATA_SUFFIXES - {".txt", ".conll", ".conllu", ".bio", ".iob"}
WORDS = {**PART_NAMES, "t10k": "test"}  # MNIST's name for its test part
Encoded = Path | ArchivedFile


@dataclass(frozen=True)
class ImageFields:
    """Which fields a row has, and how the columns of a table are found. Pictures that are in a folder or an idx file
    have one text, the label; it is the value of every field other than the image."""

    fields: Sequence[str] = ("image", "label")
    columns: Mapping[str, str] = field(default_factory=dict)
    encoding: str | None = None

    def row(self, image: Any, label: str, *, where: str) -> Row:
        return Row({name: image if name == "image" else label for name in self.fields}, where)


@dataclass
class ImageRows:
    """The rows of one part; `skipped` counts files that are not among them, by kind; `layout` says how they are read"""

    rows: list[Row]
    layout: str
    skipped: Skipped = field(default_factory=Skipped)

    def __add__(self, other: ImageRows) -> ImageRows:
        layout = self.layout if other.layout in self.layout else f"{self.layout}; {other.layout}"
        return ImageRows(self.rows + other.rows, layout, self.skipped + other.skipped)


def image_parts(path: Path, wanted: ImageFields | None = None) -> dict[str, ImageRows]:
    """train, and valid and test if there are such folders or files."""
    wanted = wanted or ImageFields()
    if path.is_dir():
        return _folder_parts(path, wanted)
    if path.suffix.lower() == ".zip":
        return _tree_parts(_unwrapped([(file.name.parts, file) for file in archived_files(path)]), path, wanted)
    if IDX_IMAGES.search(path.name):
        return {"train": _idx(path, wanted)}
    if bare_suffix(path) in TABLES:
        return {"train": _table(path, wanted)}
    raise DataError(
        f"{path}: expected a folder with a folder of pictures for each label, a zip archive of such folders, a table "
        "(CSV, TSV, JSON lines) with a column of picture files, or an idx file (…-images-idx3-ubyte)"
    )


def _folder_parts(folder: Path, wanted: ImageFields) -> dict[str, ImageRows]:
    files = data_files(folder)
    if idx := [file for file in files if IDX_IMAGES.search(file.name)]:
        return joined_parts([(_part_named(file) or "train", _idx(file, wanted)) for file in idx])
    tree: list[tuple[tuple[str, ...], Encoded]] = [
        (file.relative_to(folder).parts, file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    pictures = any(len(parts) > 1 and _is_picture(parts) for parts, _ in tree)
    tables = by_part([file for file in files if bare_suffix(file) in TABLES])
    if tables and (not pictures or _names_pictures(tables[0][1], wanted)):
        return joined_parts([(part, _table(file, wanted)) for part, file in tables])
    if not pictures and (archives := by_part([file for file in files if file.suffix.lower() == ".zip"])):
        found = [(part, image_parts(file, wanted)) for part, file in archives]
        return joined_parts([(part if inner == "train" else inner, rows)
                        for part, parts in found for inner, rows in parts.items()])  # fmt: skip
    inner = [child for child in sorted(folder.iterdir()) if child.is_dir() and child.name.lower() in PART_NAMES]
    if any(
        bare_suffix(file) in TABLES and _names_pictures(file, wanted) for each in inner for file in data_files(each)
    ):
        return joined_parts([(PART_NAMES[each.name.lower()], _folder_parts(each, wanted)["train"]) for each in inner])
    return _tree_parts(tree, folder, wanted)


def _tree_parts(
    files: Sequence[tuple[tuple[str, ...], Encoded]], top: Path, wanted: ImageFields
) -> dict[str, ImageRows]:
    """`<label>/**/<picture>`, or `<part>/<label>/**/<picture>` where one of the parts is train."""
    parts: dict[str, list[tuple[tuple[str, ...], Encoded]]] = {}
    for names, file in files:
        if len(names) > 1 and names[0].lower() in PART_NAMES:
            parts.setdefault(PART_NAMES[names[0].lower()], []).append((names[1:], file))
    if "train" in parts and all(any(len(names) > 1 for names, _ in found) for found in parts.values()):
        return {part: _labelled(found, top, wanted) for part, found in parts.items()}
    return {"train": _labelled(files, top, wanted)}


def _labelled(files: Sequence[tuple[tuple[str, ...], Encoded]], top: Path, wanted: ImageFields) -> ImageRows:
    """`<label>/**/<picture>`, sorted by name."""
    out = ImageRows([], "a folder a label")
    for names, file in files:
        if not _is_picture(names):
            out.skipped[f"{Path(names[-1]).suffix.lower() or 'other'} files"] += 1
        elif len(names) < 2:
            out.skipped["pictures outside the folders of the labels"] += 1
        else:
            out.rows.append(wanted.row(file, names[0], where=str(file)))
    if not out.rows:
        seen = ", ".join(f"{count:,} {kind}" for kind, count in out.skipped.most_common(5)) or "no files at all"
        raise DataError(
            f"{top}: no pictures in folders, {seen}; expected a folder for each label, with {', '.join(SUFFIXES)} "
            "files in it"
        )
    return out


def _unwrapped(files: Sequence[tuple[tuple[str, ...], Encoded]]) -> Sequence[tuple[tuple[str, ...], Encoded]]:
    """Without the folder that all pictures of an archive are in, if that is not the folder of a label."""
    pictures = [names for names, _ in files if _is_picture(names)]
    while len({names[0] for names in pictures}) == 1 and all(len(names) > 2 for names in pictures):
        top = pictures[0][0]
        files = [(names[1:] if names[0] == top and len(names) > 1 else names, file) for names, file in files]
        pictures = [names[1:] for names in pictures]
    return files


def _table(path: Path, wanted: ImageFields) -> ImageRows:
    layout = detect_layout(path, wanted.fields, wanted.columns, encoding=wanted.encoding)
    rows = read(path, fields=wanted.fields, layout=layout)
    return ImageRows(list(rows), str(layout), rows.skipped)


def _names_pictures(table: Path, wanted: ImageFields) -> bool:
    """Whether the first row of a table names a picture, so that the table and not the folders beside it is the data."""
    try:
        next(read(table, fields=wanted.fields, columns=wanted.columns, encoding=wanted.encoding))
    except (DataError, StopIteration):
        return False
    return True


def _idx(file: Path, wanted: ImageFields) -> ImageRows:
    rows = [wanted.row(image, label, where=where) for image, label, where in idx_rows(file)]
    return ImageRows(rows, "idx files")


def _is_picture(names: tuple[str, ...]) -> bool:
    return Path(names[-1]).suffix.lower() in SUFFIXES


def _part_named(file: Path) -> str | None:
    """The part that a word of the file's name says: train-images.gz, emnist-test-labels, t10k-images."""
    words = re.split(r"[^a-z0-9]+", file.name.lower())
    found = [WORDS[word] for word in words if word in WORDS]
    return found[0] if found else None


def by_part(files: Sequence[Path]) -> list[tuple[str, Path]]:
    """The files with their parts. Those not named after a part are left out if one is named train; else they are it."""
    named = [(_part_named(file), file) for file in files]
    has_train = any(part == "train" for part, _ in named)
    found = [(part or "train", file) for part, file in named if part is not None or not has_train]
    if found and not any(part == "train" for part, _ in found):
        raise DataError(f"{files[0].parent}: has {files[0].name} but no file whose name says train")
    return found


def joined_parts(found: Sequence[tuple[str, ImageRows]]) -> dict[str, ImageRows]:
    parts: dict[str, ImageRows] = {}
    for part, rows in found:
        parts[part] = parts[part] + rows if part in parts else rows
    return parts
