"""A data set: train, validation and test rows that can be iterated repeatedly.

Given splits are used. Otherwise a hash of an example's input decides whether it is held out; the last tenth of running
text is held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from headway.data.builtin.pool import Builtin
from headway.data.images import image_parts
from headway.data.read import OnFileBytes, Row, Rows, detect_layout, read
from headway.data.running_text import rows_between, text_rows
from headway.data.split import bare_suffix, find_parts, held_out, input_hash
from headway.data.store import fingerprint
from headway.errors import DataError
from headway.files import BLAKE2B
from headway.preprocess.image import png_bytes

RowReader = Callable[[], Iterator[Row]]  # a new iterator at each call
Scan = Callable[[OnFileBytes], tuple["_Part", "_Part"]]
HELD_OUT = 0.1
MAX_LOADED_BYTES = 256 << 20  # of data files whose rows are kept in memory
GZIP_RATIO = 8  # of text, at most about


@dataclass(frozen=True)
class Dataset:
    """`train`, `valid` and `test` read the files at each call; those of `load()` iterate over rows in memory."""

    name: str
    layout: str  # how the files are read
    train: RowReader
    valid: RowReader
    test: RowReader  # for evaluation: the test part if there is one, else all rows
    identity: str = ""  # a fingerprint that needs no reading
    files: tuple[Path, ...] = ()  # of train and valid
    hashes: Mapping[Path, str] = field(default_factory=dict)  # of files that were read
    scan: Scan | None = field(default=None, repr=False)  # reads train and valid in one pass

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the content of the training and validation files; one line per file."""
        lines = (f"{path.name} {fingerprint(path, known=self.hashes)}" for path in self.files)
        return self.identity or "\n".join(lines)

    def load(self) -> Dataset:
        """The same rows in memory, from one pass over the files, which also hashes them. Files larger than
        MAX_LOADED_BYTES are not loaded; they are read again wherever they are needed."""
        if self.scan is None or sum(map(_content_bytes, self.files)) > MAX_LOADED_BYTES:
            return self
        hashers: dict[Path, Any] = {}

        def on_bytes(path: Path, data: bytes) -> None:
            hashers.setdefault(path, BLAKE2B()).update(data)

        train, valid = self.scan(on_bytes)
        hashes = {path: hasher.hexdigest() for path, hasher in hashers.items()}
        return replace(self, train=partial(_Kept, train), valid=partial(_Kept, valid), hashes=hashes, scan=None)


@dataclass
class _Part:
    """Rows in memory, and the lines that were skipped."""

    rows: list[Row]
    skipped: Mapping[str, int] = field(default_factory=dict)


class _Kept(Iterator[Row]):
    def __init__(self, part: _Part) -> None:
        self.skipped = part.skipped
        self._rows = iter(part.rows)

    def __next__(self) -> Row:
        return next(self._rows)


def _content_bytes(path: Path) -> int:
    """Size of a file's text; of a gzip file, an estimate."""
    if path.is_dir():
        return sum(_content_bytes(file) for file in path.rglob("*") if file.is_file())
    return path.stat().st_size * (GZIP_RATIO if path.suffix == ".gz" else 1)


def open_builtin(builtin: Builtin, *, size: int | None = None, seed: int = 0) -> Dataset:
    """The built-in data; its test part is also the validation part."""
    train = builtin.rows(split="train", size=size, seed=seed)
    test = builtin.rows(split="test", size=None if size is None else max(1, size // 10), seed=seed)
    return Dataset(
        f"built-in data for {builtin.name}",
        "generated",
        lambda: iter(train),
        lambda: iter(test),
        lambda: iter(test),
        identity=f"builtin {builtin.name} {len(train)} {seed}",
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
    given = _as_paths(paths)
    for path in given:
        if not _exists(path):
            raise DataError(f"{str(path)[:200]}: no such file or folder")
        if not (path.is_file() or path.is_dir()):  # a pipe may block, a device may be endless
            raise DataError(f"{path}: is not a regular file; copy its content into one")
        if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
            raise DataError(f"{path}: a model folder, not data; give the file or folder with the examples")
    if "image" in fields:
        return _images(given, [] if valid is None else _as_paths(valid))
    parallel = len(given) == 2 and {"source", "target"} <= set(fields)
    parts = find_parts(given[0] if len(given) == 1 else given)
    train_files = list(parts.train) or given
    valid_files = _as_paths(valid) if valid is not None else list(parts.valid)
    if running and all(bare_suffix(path) in ("", ".txt", ".md") for path in train_files):
        return _running(train_files, valid=valid_files, test=parts.test, encoding=encoding)
    layout = detect_layout(
        train_files if parallel or len(train_files) > 1 else train_files[0], fields, columns, encoding=encoding
    )
    reader = partial(read, fields=fields, columns=columns, encoding=encoding)
    train_rows = partial(reader, train_files, layout=layout)
    valid_rows = partial(reader, valid_files)

    def scan(on_bytes: OnFileBytes) -> tuple[_Part, _Part]:
        rows = train_rows(on_bytes=on_bytes)
        train, held = _Part([], rows.skipped), _Part([])
        if valid_files:
            train.rows.extend(rows)
            held.rows.extend(valid_rows(on_bytes=on_bytes))
        else:
            for row in rows:
                (held if held_out(row, share=HELD_OUT) else train).rows.append(row)
        return train, held

    return Dataset(
        ", ".join(path.name for path in train_files),
        str(layout),
        train_rows if valid_files else lambda: _SplitRows(train_rows(), out=False),
        valid_rows if valid_files else lambda: _SplitRows(train_rows(), out=True),
        partial(reader, parts.test) if parts.test else train_rows,
        files=(*train_files, *valid_files),
        scan=scan,
    )


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
        lambda: iter(parts["train"]),
        lambda: iter(parts["valid"]),
        lambda: iter(parts["test"] or everything),
        identity=f"pictures {blake2b(labels.encode(), digest_size=16).hexdigest()}",
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


def _running(train: Sequence[Path], *, valid: Sequence[Path], test: Sequence[Path], encoding: str | None) -> Dataset:
    whole = partial(text_rows, train, encoding=encoding)
    given = partial(text_rows, valid, encoding=encoding)
    name = ", ".join(path.name for path in train)

    def part(out: bool) -> Iterator[Row]:
        total = _characters(whole())
        border = int(total * (1 - HELD_OUT))
        return rows_between(whole(), border, total) if out else rows_between(whole(), 0, border)

    def scan(on_bytes: OnFileBytes) -> tuple[_Part, _Part]:
        rows = list(whole(on_bytes=on_bytes))
        if valid:
            return _Part(rows), _Part(list(given(on_bytes=on_bytes)))
        total = _characters(rows)
        border = int(total * (1 - HELD_OUT))
        return _Part(list(rows_between(rows, 0, border))), _Part(list(rows_between(rows, border, total)))

    def _characters(rows: Iterable[Row]) -> int:
        if not (total := sum(len(row.fields["text"]) for row in rows)):
            raise DataError(f"{name}: the file has no text; give one that has")
        return total

    return Dataset(
        name,
        "running text" if valid else "running text; its last tenth is held out",
        whole if valid else lambda: part(out=False),
        given if valid else lambda: part(out=True),
        partial(text_rows, test or train, encoding=encoding),
        files=(*train, *valid),
        scan=scan,
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a possible file name, for example a whole text
        return False


def _as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def first_rows(rows: RowReader, count: int) -> list[Row]:
    return list(islice(rows(), count))
