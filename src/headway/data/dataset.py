"""Data room: a person's data as train, valid and test rows that can be walked again and again.

Given splits are used as they are. Otherwise an example's content decides whether it is held out; running text keeps its
order, and its last tenth is held out.
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
from headway.data.read import Row, Rows, guess, read
from headway.data.split import bare_suffix, find_parts, held_out, inputs
from headway.data.store import fingerprint
from headway.data.text_reader import text as text_of
from headway.errors import DataError

RowReader = Callable[[], Iterator[Row]]
HELD_OUT = 0.1
PIECE = 1 << 14  # characters; a piece of running text is a little longer, up to a line end …
LONGEST = 1 << 16  # … or a space, if no line ends before this


@dataclass(frozen=True)
class DataSet:
    name: str
    layout: str  # how the files are read, in a line
    fingerprint: str
    train: RowReader
    valid: RowReader
    test: RowReader  # what an evaluation asks for: the test part if there is one, else everything in the files


def open_builtin(builtin: Builtin, *, size: int | None = None, seed: int = 0) -> DataSet:
    """A built-in data set; its test part is held out."""
    train = builtin.rows(split="train", size=size, seed=seed)
    test = builtin.rows(split="test", size=None if size is None else max(1, size // 10), seed=seed)
    return DataSet(
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
) -> DataSet:
    """`running`: the task reads running text, so a plain text file is one long text and not a list of lines."""
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    for path in given:
        if not _exists(path):
            raise DataError(f"{str(path)[:200]}: no such file or folder")
        if not (path.is_file() or path.is_dir()):  # a pipe would wait, a device may never end
            raise DataError(f"{path}: is not a plain file; copy what it gives into one")
    if "image" in fields:
        return _images(given, [] if valid is None else _as_paths(valid))
    parallel = len(given) == 2 and {"source", "target"} <= set(fields)
    parts = find_parts(given[0] if len(given) == 1 else given)
    train_files = list(parts.train) or given
    valid_files = _as_paths(valid) if valid is not None else list(parts.valid)
    mark = "\n".join(f"{path.name} {fingerprint(path)}" for path in [*train_files, *valid_files])
    if running and all(bare_suffix(path) in ("", ".txt", ".md") for path in train_files):
        return _running(train_files, valid=valid_files, test=parts.test, mark=mark, encoding=encoding)
    layout = guess(
        train_files if parallel or len(train_files) > 1 else train_files[0], fields, columns, encoding=encoding
    )

    def rows(files: Sequence[Path]) -> Rows:
        return read(list(files), fields=fields, columns=columns, encoding=encoding)

    if valid_files:
        train: RowReader = lambda: rows(train_files)  # noqa: E731
        held: RowReader = lambda: rows(valid_files)  # noqa: E731
    else:
        train = lambda: _Side(rows(train_files), out=False)  # noqa: E731
        held = lambda: _Side(rows(train_files), out=True)  # noqa: E731
    test = lambda: rows(parts.test or train_files)  # noqa: E731
    return DataSet(", ".join(path.name for path in train_files), str(layout), mark, train, held, test)


class _Side(Iterator[Row]):
    """The rows that are held out, or those that are not; what the files hold beside rows is counted as `Rows` does."""

    def __init__(self, rows: Rows, *, out: bool) -> None:
        self.skipped = rows.skipped
        self._rows = (row for row in rows if held_out(row, share=HELD_OUT) == out)

    def __next__(self) -> Row:
        return next(self._rows)


def _images(given: Sequence[Path], valid: Sequence[Path]) -> DataSet:
    """Every file is read once here, for what it holds: equal pictures are on one side, wherever they lie."""
    parts: dict[str, list[Row]] = {"train": [], "valid": [], "test": []}
    for path in given:
        for part, rows in image_parts(path).items():
            parts[part] += rows
    if valid:
        parts["valid"] = [row for path in valid for row in image_parts(path)["train"]]
    everything = parts["train"]
    marks = [inputs(row) for row in everything]
    if not parts["valid"]:
        held = [mark < HELD_OUT * 2**64 for mark in marks]
        parts["valid"] = [row for row, out in zip(everything, held, strict=True) if out]
        parts["train"] = [row for row, out in zip(everything, held, strict=True) if not out]
    labels = "".join(f"{row.fields['label']} {mark:x}\n" for row, mark in zip(everything, marks, strict=True))
    return DataSet(
        ", ".join(path.name for path in given),
        "pictures, a label each",
        f"pictures {blake2b(labels.encode(), digest_size=16).hexdigest()}",
        lambda: iter(parts["train"]),
        lambda: iter(parts["valid"]),
        lambda: iter(parts["test"] or everything),
    )


def _running(
    train: Sequence[Path], *, valid: Sequence[Path], test: Sequence[Path], mark: str, encoding: str | None
) -> DataSet:
    def pieces(files: Sequence[Path]) -> RowReader:
        return lambda: _pieces(files, encoding=encoding)

    whole, name, asked = pieces(train), ", ".join(path.name for path in train), pieces(test or train)
    if valid:
        return DataSet(name, "running text", mark, whole, pieces(valid), asked)
    total = sum(len(row.fields["text"]) for row in whole())
    if not total:
        raise DataError(f"{name}: there is no text in it; give a file that has some")
    keep = int(total * (1 - HELD_OUT))
    return DataSet(
        name,
        "running text; its last tenth is held out",
        mark,
        lambda: _between(whole(), 0, keep),
        lambda: _between(whole(), keep, total),
        asked,
    )


def _pieces(files: Sequence[Path], *, encoding: str | None = None) -> Iterator[Row]:
    """The text in order, cut at line ends, with nothing lost: joined they are the file, every line end a newline."""
    for path in files:
        line, pending, ends = 1, "", io.IncrementalNewlineDecoder(None, translate=True)
        for chunk in chain(text_of(path, encoding=encoding), [""]):
            pending += ends.decode(chunk, final=not chunk)
            at = 0
            while end := _piece_end(pending, at):
                yield Row({"text": pending[at:end], "running": True}, f"{path.name}:{line}")
                line += pending.count("\n", at, end)
                at = end
            pending = pending[at:]
        if pending:
            yield Row({"text": pending, "running": True}, f"{path.name}:{line}")


def _piece_end(text: str, start: int) -> int:
    """Where the piece that begins at `start` ends; 0 while that is not known."""
    if line_end := text.find("\n", start + PIECE, start + LONGEST) + 1:
        return line_end
    if len(text) < start + LONGEST:
        return 0
    return text.rfind(" ", start + PIECE, start + LONGEST) + 1 or start + LONGEST


def _between(rows: Iterator[Row], start: int, end: int) -> Iterator[Row]:
    """The characters from `start` to `end` of the rows' text, joined."""
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
    except (OSError, ValueError):  # a name that no file can have, such as a whole text
        return False


def _as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def first(rows: RowReader, count: int) -> list[Row]:
    return list(islice(rows(), count))
