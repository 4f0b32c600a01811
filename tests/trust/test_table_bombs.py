"""TRUST 61: tables that unpack to a thousand times their size are refused by name, within bounded memory, also in a
process that a server starts."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook
from support.commands import headway

from headway.data import table_limits
from headway.data.read import read
from headway.errors import DataError
from headway.memory import peak_memory

LABELS = ["pos", "neg"] * 1750


def parquet(table: pa.Table, **options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", **options)
    return out.getvalue()


def repeated_text() -> bytes:
    """Seven gigabytes of text: one of 2 MB, thousands of times, by reference to a dictionary."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3500, pa.int32()), pa.array(["very good " * 200_000]))
    return parquet(pa.table({"text": text, "label": LABELS}))


def long_list() -> bytes:
    """A list of 30 million empty values in a row, by a count."""
    lists = pa.ListArray.from_arrays(pa.array([0, 30_000_000], pa.int32()), pa.nulls(30_000_000, pa.int8()))
    return parquet(pa.table({"text": lists, "label": ["pos"]}))


def many_rows() -> bytes:
    return parquet(pa.table({"text": pa.nulls(20_000_000, pa.string()), "label": pa.nulls(20_000_000, pa.string())}))


def well_compressed_page() -> bytes:
    return parquet(pa.table({"text": ["a" * (90 << 20)], "label": ["pos"]}), use_dictionary=False)


def workbook(part: str, before: str, unit: str, count: int) -> bytes:
    """A workbook in which a unit of XML is repeated in one of its parts."""
    saved, out = io.BytesIO(), io.BytesIO()
    book = Workbook()
    for row in (["text", "label"], ["good", "pos"], ["bad", "neg"]):
        book.active.append(row)
    book.save(saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name in old.namelist():
            content = old.read(name).decode()
            if name.endswith(part):
                assert before in content
                content = content.replace(before, unit * count + before, 1)
            new.writestr(name, content)
    return out.getvalue()


BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "repeated text": ("x.parquet", repeated_text, "unpacks to"),
    "long list": ("x.parquet", long_list, "unpacks to"),
    "many rows": ("x.parquet", many_rows, "unpacks to"),
    "well compressed page": ("x.parquet", well_compressed_page, "unpacks to"),
    "styles": ("x.xlsx", lambda: workbook("styles.xml", "</cellXfs>", "<xf/>", 1_000_000), "was stopped"),
    "one row": ("x.xlsx", lambda: workbook("sheet1.xml", "</row>", "<c/>", 3_000_000), "was stopped"),
    "Arrow": ("x.arrow", lambda: b"ARROW1\0\0" + bytes(100), "an Arrow .* file"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each == "styles" else each for each in BOMBS]
)
def test_trust_61_a_table_that_grows_a_thousandfold_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, make, reason = BOMBS[name]
    (tmp_path / file).write_bytes(make())
    monkeypatch.setattr(table_limits, "SECONDS", 2)  # of the processor
    before = peak_memory()
    with pytest.raises(DataError, match=f"{file}.*({reason})"):
        list(read(tmp_path / file, fields=["text", "label"]))
    assert before is not None and peak_memory() - before < 200e6


def test_control_61_without_the_trial_the_text_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.parquet").write_bytes(repeated_text())
    monkeypatch.setattr("headway.data.formats.try_table", lambda *_, **__: "")
    rows = read(tmp_path / "x.parquet", fields=["text", "label"])
    assert sum(len(next(rows).fields["text"]) for _ in range(100)) > 1e5 * (tmp_path / "x.parquet").stat().st_size


def test_tables_that_repeat_much_are_read(tmp_path: Path) -> None:
    """Ordinary text beside few labels, and pictures, of which fewer are decoded at once."""
    texts = [f"row {number} " * 9 for number in range(3000)]
    (tmp_path / "a.parquet").write_bytes(parquet(pa.table({"text": texts, "label": LABELS[:3000]})))
    assert sum(1 for _ in read(tmp_path / "a.parquet", fields=["text", "label"])) == 3000
    pictures = [Random(number).randbytes(1 << 17) for number in range(300)]
    (tmp_path / "b.parquet").write_bytes(parquet(pa.table({"image": pictures, "label": LABELS[:300]})))
    assert sum(1 for _ in read(tmp_path / "b.parquet", fields=["image", "label"])) == 300


def test_a_command_refuses_a_bomb_by_name(tmp_path: Path) -> None:
    """As a server's check and training do, which are commands."""
    (tmp_path / "x.parquet").write_bytes(repeated_text())
    done = headway("check", "classify", "x.parquet", "--json", cwd=tmp_path)
    assert done.returncode == 2 and "x.parquet: " in done.stderr and "unpacks to" in done.stderr, done.stderr
