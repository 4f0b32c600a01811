"""Pictures as files: those that are drawn for captions, and those with the boxes of what was found in them."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.checkpoints import save_bytes
from headway.errors import InputError
from headway.jobs.inference import run
from headway.preprocess.draw_boxes import draw_boxes
from headway.preprocess.image import SUFFIXES, open_image
from headway.preprocess.picture_sheet import sheet
from headway.printable import printable


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


# ---------------------------------------------------------------------------------------- boxes


class MarkedPictures:
    """Where the pictures of a run go: one to the file `out`, several into the folder `out`, each under its own name."""

    def __init__(self, out: Path, *, count: int, labels: Sequence[str]):
        self.out, self.labels, self.taken = out, labels, set[str]()
        self.folder = count != 1 or out.is_dir()
        if self.folder and out.suffix.lower() in SUFFIXES:
            raise InputError(f"--out {out}: there are {count} pictures, so it must be a folder")
        if self.folder and out.exists() and not out.is_dir():
            raise InputError(f"--out {out}: there are {count} pictures, so it must be a folder, and this is a file")

    def save(self, given: Any, answer: Mapping[str, Any]) -> Path:
        """The file that was written."""
        name = given.name if isinstance(given, Path) else "picture"
        marked = draw_boxes(open_image(given, where=name), answer["objects"], labels=self.labels)
        if not self.folder:
            return save_picture(marked, self.out)
        self.out.mkdir(parents=True, exist_ok=True)
        stem, number = Path(name).stem, 1
        while (unique := stem if number == 1 else f"{stem}-{number}") in self.taken:
            number += 1
        self.taken.add(unique)
        return save_picture(marked, self.out / f"{unique}.png")


def found_in_words(answer: Mapping[str, Any]) -> str:
    """How many objects of each label were found in a picture."""
    found = Counter(one["label"] for one in answer["objects"])
    return ", ".join(f"{count} {printable(label)}" for label, count in found.most_common()) or "nothing found"
