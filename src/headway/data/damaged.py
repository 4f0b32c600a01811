"""Pictures and recordings that cannot be decoded: a few are left out, counted and named, so that one damaged file among
thousands stops nothing; more than MOST of a part are an error, as then something is wrong with all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from headway.data.row import Row, Skipped
from headway.errors import DataError
from headway.preprocess.archive import ArchivedFile
from headway.preprocess.audio import Sound
from headway.preprocess.image import open_image

MOST = 0.05  # share of the files of a part; one file is always left out
NAMED = 5  # in the message of an error
KINDS = {"image": "damaged pictures", "audio": "damaged recordings"}


def checked(rows: Sequence[Row], skipped: Skipped) -> Callable[[], tuple[Sequence[Row], Skipped]]:
    """A function that returns the rows whose file can be decoded, and `skipped` with the others. The files are decoded
    at its first call."""

    @cache
    def result() -> tuple[Sequence[Row], Skipped]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            damage = list(pool.map(_damage, rows))
        found = [(row, error) for row, error in zip(rows, damage, strict=True) if error is not None]
        if len(found) > max(1, MOST * len(rows)) or len(found) == len(rows):
            _refuse([error for _, error in found], len(rows))
        out = skipped + {}
        for row, _ in found:
            for name in KINDS.keys() & row.fields.keys():
                out.add(KINDS[name], _name(row.fields[name], row))
        return [row for row, error in zip(rows, damage, strict=True) if error is None], out

    return result


def _damage(row: Row) -> DataError | None:
    try:
        if (picture := row.fields.get("image")) is not None and not hasattr(picture, "dtype"):
            open_image(picture, where=row.where)
        if (recording := row.fields.get("audio")) is not None:
            rate = Sound(recording, 1, row.where, DataError).header.rate
            for _ in Sound(recording, rate, row.where, DataError).blocks():
                pass
    except DataError as error:
        return error
    return None


def _name(value: Any, row: Row) -> str:
    return str(value) if isinstance(value, Path | ArchivedFile) else row.where


def _refuse(errors: Sequence[DataError], count: int) -> None:
    if not errors:
        return
    if count == 1:
        raise errors[0]
    more = f"; and {len(errors) - NAMED:,} more" if len(errors) > NAMED else ""
    raise DataError(
        f"{'; '.join(map(str, errors[:NAMED]))}{more}. {len(errors):,} of {count:,} files are damaged, and at most "
        f"{MOST:.0%} of them are left out: replace or remove them"
    )
