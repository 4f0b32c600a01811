"""Captions → one picture file: what `headway run` does for a task that draws."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.checkpoints import save_bytes
from headway.errors import InputError
from headway.jobs.inference import run
from headway.preprocess.image import SUFFIXES
from headway.preprocess.picture_sheet import sheet


@dataclass(frozen=True)
class Drawn:
    """The pictures of each caption, and the seed of the first."""

    captions: list[str]
    rows: list[list[Any]]
    seed: int

    def save(self, file: Path) -> Path:
        return save_picture(sheet(self.rows, self.captions), file)

    def __str__(self) -> str:
        total, size = sum(map(len, self.rows)), self.rows[0][0].size
        name = "a picture" if total == 1 else f"{total} pictures"
        return f"{name} of {size[0]} × {size[1]} pixels, seed {self.seed}"

    def to_dict(self, file: Path) -> dict[str, Any]:
        return {
            "input": self.captions,
            "file": str(file),
            "pictures": [len(row) for row in self.rows],
            "seed": self.seed,
        }


def draw(bundle: Bundle, captions: Sequence[str], *, seed: int, **options: Any) -> Drawn:
    if not captions:
        raise InputError("give a caption")
    found = [answer for _, answer in run(bundle, captions, seed=seed, **options)]
    return Drawn(list(captions), [each if isinstance(each, list) else [each] for each in found], seed)


def save_picture(picture: Any, file: Path) -> Path:
    if file.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {file}: the name says what kind of picture: it ends in {', '.join(SUFFIXES)}")
    encoded = io.BytesIO()
    encoded.name = file.name  # the suffix selects the format
    try:
        picture.save(encoded)
    except OSError as error:
        raise InputError(f"{file}: cannot be encoded ({error})") from error
    save_bytes(os.path.realpath(file), encoded.getvalue())  # a link is followed: the user has named it
    return file


def free_name(file: Path) -> Path:
    """The name, with a number if there is such a file."""
    names = (file if number == 1 else file.with_stem(f"{file.stem}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())
