"""`run --out predictions.csv`: predictions beside the columns of the inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import note, say
from headway.errors import InputError
from headway.jobs.inputs import INPUT, Record, read_records, refuse_file_names
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
    files: list[Path],
    out: Path,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Runs in every process of `world`; the main one writes the file."""
    if files and inputs:
        raise InputError(f"--out {out}: give the inputs in --file or on the command line, not both")
    options.pop("format", None)
    with ExitStack() as stack:
        paths = [stack.enter_context(regular_file(file)) for file in files]
        on_rows = stack.enter_context(_counter(world.is_main))
        truncated = stack.enter_context(bundle.find_task().count_truncation())
        columns = None
        records: Iterable[tuple[Record, Any]]
        if paths:
            if out.suffix.lower() != ".jsonl":
                columns = all_columns(read_records(paths, bundle, **reading))  # CSV and Parquet begin with them
            records = read_records(paths, bundle, **reading)
        else:
            refuse_file_names(inputs, bundle.find_task())
            texts = world.broadcast(world.run_on_main(lambda: inputs or [line.rstrip("\n") for line in sys.stdin]))
            records = [row for text in texts for row in _rows_of(text, bundle)]
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


def _rows_of(text: str, bundle: Bundle) -> list[tuple[Record, Any]]:
    """The rows of one argument: a folder has one for each of its files, which has its name."""
    found = bundle.find_task().input_kind.parse_all(text)
    names = [str(each) if isinstance(each, Path) and each != Path(text) else text for each in found]
    return [({INPUT: name}, each) for name, each in zip(names, found, strict=True)]


@contextmanager
def _counter(shown: bool) -> Iterator[Callable[[int], None]]:
    """The number of rows that are done, at a terminal."""
    if not shown or not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.console import Console

    with Console(stderr=True).status("running") as status:
        yield lambda rows: status.update(f"{rows:,} rows")
