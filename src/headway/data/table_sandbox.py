"""Reads a binary table to its end and keeps nothing: a few bytes of one may unpack to more than the memory holds. Run
in a separate process (headway.limited_process), which bounds memory and time, before the file is read for its rows.

A Parquet file repeats values by counts and by references to a dictionary; a workbook is a zip archive of XML.
"""

import zipfile
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, str]:
    """The reason for which the file is refused, if there is one. `inside`: the name of a file in an archive."""
    try:
        with open(request["path"], "rb") as file:
            if request["inside"] is None:
                return {"refused": KINDS[request["kind"]](file, request)}
            with zipfile.ZipFile(file) as archive, archive.open(request["inside"]) as member:
                return {"refused": KINDS[request["kind"]](member, request)}
    except MemoryError:
        return {"refused": "memory"}
    except Exception as error:
        return {"damaged": str(error)[:500] or type(error).__name__}


def parquet(file: Any, request: dict[str, Any]) -> str:
    import pyarrow
    import pyarrow.parquet

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # reserves nothing ahead
    total = 0
    opened = pyarrow.parquet.ParquetFile(file)
    expanded = all(is_expanded(kind) for kind in opened.schema_arrow.types)
    for batch in opened.iter_batches(batch_size=request["rows"], use_threads=False):
        total += batch.nbytes if expanded else size(batch.to_pylist())
        if total > request["most"]:
            return "ratio"
    return ""


def is_expanded(kind: Any) -> bool:
    """Whether an array of this type holds each of its values, and not references to shared ones."""
    from pyarrow import types

    if types.is_nested(kind):
        return not types.is_run_end_encoded(kind) and all(
            is_expanded(kind.field(n).type) for n in range(kind.num_fields)
        )
    views = types.is_string_view(kind) or types.is_binary_view(kind)
    return not (views or types.is_dictionary(kind) or hasattr(kind, "storage_type"))


def size(value: Any) -> int:
    """Bytes of a value, at least."""
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(size, value)) if isinstance(value, list) else len(value) if isinstance(value, str | bytes) else 8


def workbook(file: Any, request: dict[str, Any]) -> str:
    import openpyxl

    book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    for sheet in book.worksheets:
        sheet.reset_dimensions()
        for _ in sheet.iter_rows(values_only=True):
            pass
    return ""


KINDS = {"parquet": parquet, "workbook": workbook}
