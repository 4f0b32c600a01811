"""A data set: train, validation and test rows that can be iterated repeatedly.

Given splits are used. Otherwise a hash of an example's input decides whether it is held out; the last tenth of running
text is held out.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path

from headway.data.builtin.pool import Builtin
from headway.data.images import image_parts
from headway.data.read import Row, Rows, detect_layout, read
from headway.data.split import bare_suffix, find_parts, held_out, input_hash
from headway.data.store import fingerprint
from headway.data.text_reader import read_text
from headway.errors import DataError
from headway.preprocess.image import png_bytes

RowReader = Callable[[], Iterator[Row]]  # a new iterator at each call
HELD_OUT = 0.1
PIECE = 1 << 14  # characters; a row of running text is cut at the first line end after this many …
LONGEST = 1 << 16  # … or at a space, if no line ends before this


@dataclass(frozen=True)
class Dataset:
    name: str
    layout: str  # how the files are read
    fingerprint: str
    train: RowReader
    valid: RowReader
    test: RowReader  # for evaluation: the test part if there is one, else all rows


def open_builtin(builtin: Builtin, *, size: int | None = None, seed: int = 0) -> Dataset:
    """A built-in data set; its test part is held out."""
    train = builtin.rows(split="train", size=size, seed=seed)
    test = builtin.rows(split="test", size=None if size is None else max(1, size // 10), seed=seed)
    return Dataset(
        f"built-in data for {builtin.name}",
        "generated",
        f"builtin {builtin.name} {len(train)} {seed}",
        lambda: iter(train),
        lambda: iter(test),
        lambda: iter(test),
    )


def open_files(
    paths: str | Path | Sequence[str | Path],
    *,
    fields: Sequence[str],
    columns: Mapping[str, str],
    encoding: str | None = None,
    valid: str | Path | Sequence[str | Path] | None = None,
    running: bool = False,
) -> Dataset:
    """`running`: read a plain text file as one long text, not as one example per line."""
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    for path in given:
        if not _exists(path):
            raise DataError(f"{str(path)[:200]}: no such file or folder")
        if not (path.is_file() or path.is_dir()):  # a pipe may block, a device may be endless
            raise DataError(f"{path}: is not a regular file; copy its content into one")
    if "image" in fields:
        return _images(given, [] if valid is None else _as_paths(valid))
    parallel = len(given) == 2 and {"source", "target"} <= set(fields)
    parts = find_parts(given[0] if len(given) == 1 else given)
    train_files = list(parts.train) or given
    valid_files = _as_paths(valid) if valid is not None else list(parts.valid)
    content = "\n".join(f"{path.name} {fingerprint(path)}" for path in [*train_files, *valid_files])
    if running and all(bare_suffix(path) in ("", ".txt", ".md") for path in train_files):
        return _running(train_files, valid=valid_files, test=parts.test, content=content, encoding=encoding)
    layout = detect_layout(
        train_files if parallel or len(train_files) > 1 else train_files[0], fields, columns, encoding=encoding
    )

    def rows(files: Sequence[Path]) -> Rows:
        return read(list(files), fields=fields, columns=columns, encoding=encoding)

    if valid_files:
        train: RowReader = lambda: rows(train_files)  # noqa: E731
        held: RowReader = lambda: rows(valid_files)  # noqa: E731
    else:
        train = lambda: _SplitRows(rows(train_files), out=False)  # noqa: E731
        held = lambda: _SplitRows(rows(train_files), out=True)  # noqa: E731
    test = lambda: rows(parts.test or train_files)  # noqa: E731
    return Dataset(", ".join(path.name for path in train_files), str(layout), content, train, held, test)


class _SplitRows(Iterator[Row]):
    """The held-out rows (`out=True`) or the others; `skipped` is that of the underlying `Rows`."""

    def __init__(self, rows: Rows, *, out: bool) -> None:
        self.skipped = rows.skipped
        self._rows = (row for row in rows if held_out(row, share=HELD_OUT) == out)

    def __next__(self) -> Row:
        return next(self._rows)


def _images(given: Sequence[Path], valid: Sequence[Path]) -> Dataset:
    """Hashes every file: equal images are on the same side of the split, whatever their path."""
    parts: dict[str, list[Row]] = {"train": [], "valid": [], "test": []}
    for path in given:
        for part, rows in image_parts(path).items():
            parts[part] += rows
    if valid:
        parts["valid"] = [row for path in valid for row in image_parts(path)["train"]]
    everything = parts["train"]
    hashes = [input_hash(row) for row in everything]
    if not parts["valid"]:
        held = [number < HELD_OUT * 2**64 for number in hashes]
        parts["valid"] = [row for row, out in zip(everything, held, strict=True) if out]
        parts["train"] = [row for row, out in zip(everything, held, strict=True) if not out]
    parts = {part: _one_kind(rows, mixed=_is_mixed(everything)) for part, rows in parts.items()}
    labels = "".join(f"{row.fields['label']} {number:x}\n" for row, number in zip(everything, hashes, strict=True))
    return Dataset(
        ", ".join(path.name for path in given),
        "images, one label each",
        f"pictures {blake2b(labels.encode(), digest_size=16).hexdigest()}",
        lambda: iter(parts["train"]),
        lambda: iter(parts["valid"]),
        lambda: iter(parts["test"] or everything),
    )


def _is_mixed(rows: Sequence[Row]) -> bool:
    """Whether some images are files and some are arrays."""
    return len({isinstance(row.fields["image"], Path) for row in rows}) == 2


def _one_kind(rows: list[Row], *, mixed: bool) -> list[Row]:
    """With arrays encoded if the data also has files: a store takes one type of value."""
    if not mixed:
        return rows
    return [
        row
        if isinstance(image := row.fields["image"], Path)
        else Row({**row.fields, "image": png_bytes(image)}, row.where)
        for row in rows
    ]


def _running(
    train: Sequence[Path], *, valid: Sequence[Path], test: Sequence[Path], content: str, encoding: str | None
) -> Dataset:
    def pieces(files: Sequence[Path]) -> RowReader:
        return lambda: _pieces(files, encoding=encoding)

    whole, name, tested = pieces(train), ", ".join(path.name for path in train), pieces(test or train)
    if valid:
        return Dataset(name, "running text", content, whole, pieces(valid), tested)
    total = sum(len(row.fields["text"]) for row in whole())
    if not total:
        raise DataError(f"{name}: the file has no text; give one that has")
    keep = int(total * (1 - HELD_OUT))
    return Dataset(
        name,
        "running text; its last tenth is held out",
        content,
        lambda: _between(whole(), 0, keep),
        lambda: _between(whole(), keep, total),
        tested,
    )


def _pieces(files: Sequence[Path], *, encoding: str | None = None) -> Iterator[Row]:
    """The text in order, cut at line ends. Joined, the rows are the file's text with all line ends as newlines."""
    for path in files:
        line, pending, ends = 1, "", io.IncrementalNewlineDecoder(None, translate=True)
        for chunk in chain(read_text(path, encoding=encoding), [""]):
            pending += ends.decode(chunk, final=not chunk)
            at = 0
            while end := _row_end(pending, at):
                yield Row({"text": pending[at:end], "running": True}, f"{path.name}:{line}")
                line += pending.count("\n", at, end)
                at = end
            pending = pending[at:]
        if pending:
            yield Row({"text": pending, "running": True}, f"{path.name}:{line}")


def _row_end(text: str, start: int) -> int:
    """The end of the row that starts at `start`; 0 if more text is needed."""
    if line_end := text.find("\n", start + PIECE, start + LONGEST) + 1:
        return line_end
    if len(text) < start + LONGEST:
        return 0
    return text.rfind(" ", start + PIECE, start + LONGEST) + 1 or start + LONGEST


def _between(rows: Iterator[Row], start: int, end: int) -> Iterator[Row]:
    """Characters `start` to `end` of the rows' joined text, as rows."""
    at = 0
    for row in rows:
        text = row.fields["text"]
        cut = text[max(0, start - at) : max(0, end - at)]
        at += len(text)
        if cut:
            yield Row({**row.fields, "text": cut}, row.where)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a possible file name, for example a whole text
        return False


def _as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def first_rows(rows: RowReader, count: int) -> list[Row]:
    return list(islice(rows(), count))
