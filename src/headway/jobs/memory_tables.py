"""Tables in memory as the data of a run: written to `training/data` in its folder, so that the run can be resumed and
evaluated on its held-out part later, like one on files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway import tasks
from headway.data.row import FILE_FIELDS
from headway.data.tables import Tables, as_tables
from headway.errors import ConfigError, DataError, HeadwayError
from headway.files import atomic_write, disk_errors, is_present
from headway.jobs.preparation import Say, locked_run
from headway.jobs.run_folder import PLAN, run_file

DATA = "data"  # in a run's training/: the tables it was given


@contextmanager
def as_files(
    data: Any, folder: Path, *, valid: Any, task: str, say: Say | None
) -> Iterator[tuple[Any, Any, Say | None]]:
    """Yields (data, valid) as files, and `say` with places in them as those of the tables. Tables are written into the
    folder of the run; if the run does not start because of an error of Headway's, they are removed again."""
    tables = as_tables(data, valid=valid)
    if tables is None:
        yield data, valid, say
        return
    if set(tasks.find(task).fields) & {"boxes", *FILE_FIELDS}:
        raise ConfigError(f"task {task} reads files; give the folder or the table file that has them")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("several processes cannot share a table in memory; save it to a file and give that")
    written = run_file(folder, DATA)
    with locked_run(folder, resume=False) as is_new:
        try:
            _write(tables, written)
            yield [written], None, None if say is None else lambda line: say(_renamed(line, tables, written))
        except HeadwayError as error:
            if not is_present(run_file(folder, PLAN)):
                shutil.rmtree(folder if is_new else written, ignore_errors=True)
            if isinstance(error, DataError):
                raise DataError(_renamed(str(error), tables, written)) from error
            raise


def _renamed(text: str, tables: Tables, folder: Path) -> str:
    for part, table in tables.parts.items():
        text = table.renamed(text, folder / f"{part}.jsonl")
    return text


def _write(tables: Tables, folder: Path) -> None:
    for part, table in tables.parts.items():
        path = folder / f"{part}.jsonl"
        with disk_errors(path, 0), atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.writelines(table.json_lines())
