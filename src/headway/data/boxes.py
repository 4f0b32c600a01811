"""Pictures with labelled boxes, in the layouts that annotation tools write: Pascal VOC (voc.py), COCO (coco.py) and
YOLO (yolo.py).

A row has `image`, its `size` (width, height) and `boxes`: corners in pixels, as the file states them. `usable` are
those that a model can be trained and evaluated on; `problems` names what is wrong with the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.data.images import ImageRows
from headway.data.row import Row
from headway.errors import DataError

HELP = (
    "expected Pascal VOC (Annotations/*.xml beside JPEGImages/, or .xml files beside the pictures), COCO (a .json file "
    "with images, annotations and categories) or YOLO (images/ beside labels/, with data.yaml or classes.txt)"
)
SMALLEST = 1e-3  # pixels: a box of a smaller side has no area
ROUNDING = 1.0  # pixels that a box may pass the edge by: tools count from 0 or from 1, and round


class Box(NamedTuple):
    label: str  # empty: a class that the data has no name for
    left: float
    top: float
    right: float
    bottom: float
    crowd: bool = False  # COCO's iscrowd, VOC's difficult: not trained on, and no prediction of it counts as wrong


def box_parts(path: Path) -> dict[str, ImageRows]:
    """The rows of train, and of valid and test if the layout has them."""
    from headway.data import coco, voc, yolo

    if path.is_file() and path.suffix.lower() == ".json":
        return coco.file_parts(path)
    if path.is_file() and path.suffix.lower() in (".yaml", ".yml"):
        return yolo.folder_parts(path.parent, config=path)
    if path.is_dir():
        for found in (voc.folder_parts(path), coco.folder_parts(path), yolo.folder_parts(path)):
            if found:
                return found
    raise DataError(f"{path}: no pictures with boxes; {HELP}")


def box_row(image: Path, boxes: Sequence[Box], size: tuple[int, int], *, where: str) -> Row:
    return Row({"image": image, "boxes": list(boxes), "size": size}, where)


def usable(row: Row) -> list[Box]:
    """The boxes that have an area inside the picture, cut at its edges; each once."""
    width, height = row.fields["size"]
    found: dict[Box, None] = {}
    for box in row.fields["boxes"]:
        left, right = sorted((min(max(box.left, 0.0), width), min(max(box.right, 0.0), width)))
        top, bottom = sorted((min(max(box.top, 0.0), height), min(max(box.bottom, 0.0), height)))
        if box.label and right - left >= SMALLEST and bottom - top >= SMALLEST and not _is_empty(box):
            found[Box(box.label, left, top, right, bottom, box.crowd)] = None
    return list(found)


def problems(row: Row) -> Iterator[str]:
    """What is wrong with a row's boxes, once for each of them."""
    width, height = row.fields["size"]
    boxes: list[Box] = row.fields["boxes"]
    if not boxes:
        yield "pictures have no boxes (they teach what is background)"
    seen = set[Box]()
    for box in boxes:
        if not box.label:
            yield "boxes have an unknown class, one without a name, and are left out"
        elif _is_empty(box):
            yield "boxes have no area and are left out"
        elif box.left >= width or box.top >= height or box.right <= 0 or box.bottom <= 0:
            yield "boxes are outside the picture and are left out"
        elif min(box.left, box.top, width - box.right, height - box.bottom) < -ROUNDING:
            yield "boxes reach past the picture's edge and are cut there"
        elif box in seen:
            yield "boxes are given twice and are used once"
        seen.add(box)


def _is_empty(box: Box) -> bool:
    return box.right - box.left < SMALLEST or box.bottom - box.top < SMALLEST


def picture_index(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """The pictures directly in a folder by name and by stem."""
    files = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in suffixes and file.is_file()]
    return {key: file for file in files if not file.name.startswith(".") for key in (file.stem, file.name)}


def number(value: Any, *, where: str, name: str) -> float:
    """A finite number of a file from outside."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if isinstance(value, bool) or not abs(found) < 1e9:
        raise DataError(f"{where}: {name}: expected a number, found {value!r:.60}")
    return found
