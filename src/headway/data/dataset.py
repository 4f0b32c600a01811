"""A data set: train, validation and test rows that can be iterated repeatedly.

Given splits are used. Otherwise a hash of an example's input decides whether it is held out; the last tenth of running
text is held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from headway.data.boxes import box_parts
from headway.data.builtin.pool import Builtin
from headway.data.damaged import checked
from headway.data.images import ImageFields, ImageRows, image_parts
from headway.data.paths import exists, expand, size_of
from headway.data.read import OnFileBytes, Row, Rows, detect_layout, make_row, read
from headway.data.row import FILE_FIELDS, UNLABELLED, Layout, Skipped, is_unlabelled
from headway.data.running_text import rows_between, text_rows
from headway.data.sniff import SAMPLE, record_layout
from headway.data.sounds import SoundFields, sound_parts
from headway.data.split import HELD_OUT, bare_suffix, find_parts, held_out_border, input_hash, split_hash
from headway.data.store import fingerprint
from headway.data.tables import Table, Tables
from headway.errors import DataError
from headway.files import BLAKE2B
from headway.preprocess.image import png_bytes

RowReader = Callable[[], Iterator[Row]]  # a new iterator at each call
Scan = Callable[[OnFileBytes], tuple["_Part", "_Part"]]
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
    columns: Mapping[str, str] = field(default_factory=dict)  # field -> column
    unused: tuple[str, ...] = ()  # columns that hold texts and are mapped to no field
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

    rows: Sequence[Row]
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
    return size_of(path) * (GZIP_RATIO if path.suffix == ".gz" else 1)


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
    paths: str | Path | Sequence[str | Path] | Tables,
    *,
    fields: Sequence[str],
    columns: Mapping[str, str],
    optional: Sequence[str] = (),
    encoding: str | None = None,
    valid: str | Path | Sequence[str | Path] | None = None,
    running: bool = False,
    lists: bool | None = None,
) -> Dataset:
    """`optional` fields are read where a column has one of their usual names; all files have the fields of the first.
    `running`: read a plain text file as one long text, not as one example per line. `lists`: whether an empty label is
    a list without labels (then the row is kept); None: as the data looks."""
    if isinstance(paths, Tables):
        return _of_tables(paths, fields=fields, columns=columns, optional=optional, lists=lists)
    given = expand(paths)
    for path in given:
        if not exists(path):
            raise DataError(f"{str(path)[:200]}: no such file or folder")
        if not (path.is_file() or path.is_dir()):  # a pipe may block, a device may be endless
            raise DataError(f"{path}: is not a regular file; copy its content into one")
        if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
            raise DataError(f"{path}: a model folder, not data; give the file or folder with the examples")
    if "boxes" in fields:
        held = [box_parts(path)["train"] for path in ([] if valid is None else expand(valid))]
        return image_dataset(", ".join(path.name for path in given), [box_parts(path) for path in given], valid=held)
    if "audio" in fields:
        sounds = SoundFields(fields, columns, encoding)
        held = [sound_parts(path, sounds)["train"] for path in ([] if valid is None else expand(valid))]
        return image_dataset(
            ", ".join(path.name for path in given), [sound_parts(p, sounds) for p in given], valid=held
        )
    if "image" in fields:
        wanted = ImageFields(fields, columns, encoding)
        found = [image_parts(path, wanted) for path in given]
        held = [image_parts(path, wanted)["train"] for path in ([] if valid is None else expand(valid))]
        return image_dataset(", ".join(path.name for path in given), found, valid=held)
    parallel = len(given) == 2 and {"source", "target"} <= set(fields)
    parts = find_parts(given)
    train_files = list(parts.train)
    valid_files = expand(valid) if valid is not None else list(parts.valid)
    if running and all(bare_suffix(path) in ("", ".txt", ".md") for path in train_files):
        return _running(train_files, valid=valid_files, test=parts.test, encoding=encoding)
    layout = detect_layout(
        train_files if parallel or len(train_files) > 1 else train_files[0], fields, columns, optional=optional,
        encoding=encoding,
    )  # fmt: skip
    layout = layout if lists is None else replace(layout, lists=lists)
    row_fields = [*fields, *(name for name in optional if name in layout.mapping)]
    reader = partial(read, fields=row_fields, columns=columns, encoding=encoding, lists=layout.lists)
    train_rows = partial(reader, train_files, layout=layout)
    valid_rows = partial(reader, valid_files)

    def scan(on_bytes: OnFileBytes) -> tuple[_Part, _Part]:
        rows = train_rows(on_bytes=on_bytes)
        if valid_files:
            held_rows = valid_rows(on_bytes=on_bytes)
            return _Part(list(rows), rows.skipped), _Part(list(held_rows), held_rows.skipped)
        everything = list(rows)
        train, held = _divided(everything, [split_hash(row) for row in everything])
        return _Part(train, rows.skipped), _Part(held)

    @cache
    def border() -> int:
        return held_out_border(map(split_hash, train_rows()))

    return Dataset(
        ", ".join(path.name for path in train_files),
        str(layout),
        train_rows if valid_files else lambda: _SplitRows(train_rows(), border, out=False),
        valid_rows if valid_files else lambda: _SplitRows(train_rows(), border, out=True),
        partial(reader, parts.test) if parts.test else train_rows,
        files=(*train_files, *valid_files),
        columns=layout.mapping,
        unused=layout.unused,
        scan=scan,
    )


class _SplitRows(Iterator[Row]):
    """The held-out rows (`out=True`), whose hash is below `border()`, or the others, with which `skipped` counts."""

    def __init__(self, rows: Rows, border: Callable[[], int], *, out: bool) -> None:
        self.skipped = Skipped() if out else rows.skipped
        self._rows = (row for row in rows if (split_hash(row) < border()) == out)

    def __next__(self) -> Row:
        return next(self._rows)


def _of_tables(
    tables: Tables, *, fields: Sequence[str], columns: Mapping[str, str], optional: Sequence[str], lists: bool | None
) -> Dataset:
    name = tables.train.name
    if files := {"boxes", *FILE_FIELDS} & set(fields):
        raise DataError(f"{name}: {files.pop()} is read from files; give the folder or the table file that has them.")
    layout = record_layout(
        Layout("table in memory"), fields, sample=tables.train.records[:SAMPLE], columns=columns, optional=optional,
        where=name,
    )  # fmt: skip
    layout = layout if lists is None else replace(layout, lists=lists)
    parts = {part: _of_table(table, layout) for part, table in tables.parts.items()}
    everything, train, held = parts["train"], parts["train"], parts.get("valid")
    if held is None:
        rows = _divided(train.rows, [split_hash(row) for row in train.rows])
        train, held = _Part(rows[0], train.skipped), _Part(rows[1])
    return Dataset(
        name,
        str(layout),
        partial(_Kept, train),
        partial(_Kept, held),
        partial(_Kept, parts.get("test", everything)),
        identity="\n".join(f"table {part} {table.fingerprint}" for part, table in tables.parts.items()),
        columns=layout.mapping,
        unused=layout.unused,
    )


def _of_table(table: Table, layout: Layout) -> _Part:
    rows, skipped = list[Row](), Skipped()
    for number, record in enumerate(table.records):
        row = make_row(record, layout.mapping, where=table.where(number), folder=Path())
        if is_unlabelled(row) and not layout.lists:
            skipped.add(UNLABELLED, row.where)
        else:
            rows.append(row)
    return _Part(rows, skipped)


def image_dataset(name: str, found: Sequence[Mapping[str, ImageRows]], *, valid: Sequence[ImageRows] = ()) -> Dataset:
    """The data set of pictures from several places, each with its parts; `valid` replaces their held-out part.

    Every picture is hashed: equal ones are on the same side of the split, whatever their path."""
    parts = {part: [rows for each in found if (rows := each.get(part))] for part in ("train", "valid", "test")}
    parts |= {"valid": list(valid)} if valid else {}
    train, held, test = ([row for rows in each for row in rows.rows] for each in parts.values())
    everything, hashes = train, [input_hash(row) for row in train]
    if not held:
        train, held = _divided(train, hashes)
    mixed = len({_is_array(row) for row in (*everything, *held, *test)}) == 2
    train, held, test = (_encoded(rows) if mixed else rows for rows in (train, held, test or everything))
    skipped = sum((rows.skipped for rows in parts["train"]), start=Skipped())
    return Dataset(
        name,
        "; ".join(dict.fromkeys(rows.layout for rows in parts["train"])),
        _decodable(train, skipped),
        _decodable(held, Skipped()),
        _decodable(test, Skipped()),
        identity=f"pictures {_identity(everything, hashes)}",
    )


def _decodable(rows: Sequence[Row], skipped: Skipped) -> RowReader:
    check = checked(rows, skipped)
    return lambda: _Kept(_Part(*check()))


def _divided(rows: Sequence[Row], hashes: Sequence[int]) -> tuple[list[Row], list[Row]]:
    """The rows that are not held out, and those that are."""
    border, train, held = held_out_border(hashes), list[Row](), list[Row]()
    for row, number in zip(rows, hashes, strict=True):
        (held if number < border else train).append(row)
    return train, held


def _identity(rows: Sequence[Row], hashes: Sequence[int]) -> str:
    """A hash of the pictures and of the other fields of their rows."""
    hasher = BLAKE2B()
    for row, number in zip(rows, hashes, strict=True):
        rest = " ".join(str(value) for name, value in row.fields.items() if name not in FILE_FIELDS)
        hasher.update(f"{rest} {number:x}\n".encode("utf-8", "surrogatepass"))
    return hasher.hexdigest()


def _is_array(row: Row) -> bool:
    return hasattr(row.fields.get("image"), "dtype")


def _encoded(rows: Sequence[Row]) -> list[Row]:
    """With arrays encoded: in data that also has files, as a store takes one type of value."""
    return [
        Row({**row.fields, "image": png_bytes(row.fields["image"])}, row.where) if _is_array(row) else row
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


def first_rows(rows: RowReader, count: int) -> list[Row]:
    return list(islice(rows(), count))
