"""`run --out predictions.csv`: predictions beside the columns of the inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import note, say
from headway.errors import InputError
from headway.jobs.inputs import INPUT, Record, read_records
from headway.jobs.pipes import regular_file
from headway.jobs.predictions_file import all_columns, is_predictions_file, write_predictions

if TYPE_CHECKING:
    from headway.bundle import Bundle
    from headway.distributed import World

__all__ = ["is_predictions_file", "write_table"]


def write_table(
    bundle: Bundle,
    world: World,
    inputs: list[str],
    *,
    file: Path | None,
    out: Path,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Runs in every process of `world`; the main one writes the file."""
    if file is not None and inputs:
        raise InputError(f"--out {out}: give the inputs in --file or on the command line, not both")
    options.pop("format", None)
    opened = regular_file(file) if file is not None else nullcontext(None)
    with opened as path, _counter(world.is_main) as on_rows, bundle.find_task().count_truncation() as truncated:
        columns = None
        records: Iterable[tuple[Record, Any]]
        if path is not None:
            if out.suffix.lower() != ".jsonl":
                columns = all_columns(read_records(path, bundle, **reading))  # CSV and Parquet begin with them
            records = read_records(path, bundle, **reading)
        else:
            texts = world.broadcast(world.run_on_main(lambda: inputs or [line.rstrip("\n") for line in sys.stdin]))
            records = [({INPUT: text}, text) for text in texts]
        rows, added, unmatched = write_predictions(
            bundle, records, out, columns=columns, is_main=world.is_main, on_rows=on_rows, **options
        )
    if not world.is_main:
        return
    for line in truncated.summary():
        note(f"note: {line}")
    say(f"{out}: {rows:,} rows; added: {', '.join(added)}")
    if unmatched:
        note(f"note: {unmatched} answers do not match the constraint because they were cut off; raise --max-new-tokens")
        raise typer.Exit(1)


@contextmanager
def _counter(shown: bool) -> Iterator[Callable[[int], None]]:
    """The number of rows that are done, at a terminal."""
    if not shown or not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.console import Console

    with Console(stderr=True).status("running") as status:
        yield lambda rows: status.update(f"{rows:,} rows")
