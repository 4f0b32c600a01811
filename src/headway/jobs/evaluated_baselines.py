"""Baselines beside an evaluation of a run's model: those that its training stored, or, for other data, models that are
fitted anew to the training data of the run, where that is still there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from headway.baselines import Baseline
from headway.bundle import Bundle
from headway.data.dataset import RowReader
from headway.data.row import Row
from headway.data.split import drawn_rows
from headway.errors import DataError
from headway.files import is_present
from headway.jobs.run_folder import BASELINES, PLAN, read_run_json, run_file
from headway.validation import from_dict

MOST = 20_000  # rows that it is scored on


class StoredBaselines(TypedDict):
    baselines: list[Baseline]


def beside(bundle: Bundle, rows: RowReader, *, own: bool) -> list[Baseline]:
    """`own`: the rows are the held-out ones of the run."""
    folder = bundle.folder
    if folder is None or not is_present(run_file(folder, PLAN)):
        return []
    if own:
        return stored(folder)
    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in rows():
            count += 1
            yield row

    kept = drawn_rows(counted(), MOST)
    from headway.jobs.run_config import open_data, saved_plan

    try:
        train = open_data(saved_plan(folder)).train
        found = bundle.find_task().classic_baseline(train, kept) if kept else None
    except DataError:  # the training data has been moved
        return []
    if found is not None and len(kept) < count:
        note = f"scored on {len(kept):,} of {count:,} examples"
        found = replace(found, note=f"{found.note}, {note}" if found.note else note)
    return [] if found is None else [found]


def stored(folder: Path) -> list[Baseline]:
    content = read_run_json(folder, BASELINES)
    if content is None:  # a run of an earlier version
        return []
    found: StoredBaselines = from_dict(StoredBaselines, content, path=str(run_file(folder, BASELINES)))
    return found["baselines"]
