"""Pictures with the boxes of what was found in them: what `headway run --out` does for `detect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.errors import InputError
from headway.jobs.pictures import save_picture
from headway.preprocess.draw_boxes import draw_boxes
from headway.preprocess.image import SUFFIXES, open_image
from headway.printable import printable


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


def summary(answer: Mapping[str, Any]) -> str:
    """How many objects of each label were found in a picture."""
    found = Counter(one["label"] for one in answer["objects"])
    return ", ".join(f"{count} {printable(label)}" for label, count in found.most_common()) or "nothing found"
