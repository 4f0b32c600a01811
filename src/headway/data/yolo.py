"""YOLO: a text file for each picture, in `labels` beside `images`, with a line for each box: class number, centre x,
centre y, width and height as shares of the picture; or a class number and the corners of a polygon. The names of the
classes, and the folders of the parts, are in data.yaml; or the names are in classes.txt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.data.boxes import Box, box_row, number, picture_index
from headway.data.images import ImageRows
from headway.data.paths import exists
from headway.data.row import Row
from headway.data.split import PART_NAMES
from headway.data.text_reader import read_lines
from headway.errors import DataError
from headway.files import open_file
from headway.preprocess.image import SUFFIXES, image_size

CONFIGS = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
NAME_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "train/classes.txt")
MAX_BYTES = 1 << 20  # of a YAML file


def folder_parts(folder: Path, *, config: Path | None = None) -> dict[str, ImageRows]:
    """Nothing if the folder has another layout."""
    config = config or next((folder / name for name in CONFIGS if (folder / name).is_file()), None)
    content = {} if config is None else read_yaml(config)
    names = _names(content, folder, config)
    stated = {PART_NAMES[key]: content[key] for key in ("train", "val", "valid", "test") if content.get(key)}
    if stated and config is not None:
        base = folder / str(content.get("path") or "")
        places = {part: _folders(value, [base, folder], config) for part, value in stated.items()}
    else:
        places = {part: [found] for part, found in _found_parts(folder).items()}
    return {part: _rows([row for place in found for row in _labelled(place, names)]) for part, found in places.items()}


def _rows(rows: list[Row]) -> ImageRows:
    _refuse_pixels(rows)
    return ImageRows(rows, "YOLO boxes")


def _refuse_pixels(rows: Sequence[Row]) -> None:
    """Raises if most of the boxes are larger than their picture: they were written in pixels."""
    boxes = [(row, box) for row in rows for box in row.fields["boxes"]]
    larger = [
        (row, box) for row, box in boxes
        if box.right - box.left > row.fields["size"][0] and box.bottom - box.top > row.fields["size"][1]
    ]  # fmt: skip
    if 2 * len(larger) > len(boxes):
        row, box = larger[0]
        (wide, high), file = row.fields["size"], _label_file(row.fields["image"])
        raise DataError(
            f"{file}: the boxes are in pixels ({len(larger):,} of {len(boxes):,} are larger than their picture, such "
            f"as {(box.right - box.left) / wide:g} × {(box.bottom - box.top) / high:g}). YOLO states shares of the "
            f"picture: divide x and width by the picture's width (here {wide}), y and height by its height ({high})"
        )


def _found_parts(folder: Path) -> dict[str, Path]:
    """images/train, train/images, or images alone; or pictures beside text files of boxes."""
    for place in (folder / "images", folder):
        children = [child for child in sorted(place.iterdir()) if child.is_dir()] if place.is_dir() else []
        named = {PART_NAMES[child.name.lower()]: child for child in children if child.name.lower() in PART_NAMES}
        found = {part: child / "images" if (child / "images").is_dir() else child for part, child in named.items()}
        if "train" in found and _has_labels(found["train"]):
            return {part: found[part] for part in ("train", "valid", "test") if part in found}
    for place in (folder / "images", folder):
        if place.is_dir() and _has_labels(place):
            return {"train": place}
    return {}


def _has_labels(images: Path) -> bool:
    return any(_label_file(file).is_file() for file in picture_index(images, SUFFIXES).values())


def _folders(value: Any, bases: Sequence[Path], config: Path) -> list[Path]:
    out = []
    for given in value if isinstance(value, list) else [value]:
        if not isinstance(given, str) or "\0" in given:
            raise DataError(f"{config}: expected a folder of pictures, found {given!r:.80}")
        plain = given.removeprefix("../")  # written for another working folder
        tried = [base / name for base in bases for name in (given, plain)]
        found = next((place for place in tried if exists(place) and place.is_dir()), None)
        if found is None:
            raise DataError(f"{config}: {given}: no such folder of pictures")
        out.append(found)
    return out


def _label_file(image: Path) -> Path:
    """The last folder `images` of the path becomes `labels`; without one the file is beside the picture."""
    parts = list(image.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "images":
            parts[place] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


def _labelled(images: Path, names: Sequence[str]) -> Iterator[Any]:
    for image in sorted(set(picture_index(images, SUFFIXES).values())):
        file, size = _label_file(image), _size(image)
        lines = read_lines(file) if file.is_file() else iter(())
        boxes = [_box(text, names, size, where=f"{file}:{line}") for line, text in lines if text.strip()]
        yield box_row(image, boxes, size, where=str(image))


def _size(image: Path) -> tuple[int, int]:
    try:
        return image_size(image)
    except DataError:  # a damaged picture, which the data set leaves out
        return (1, 1)


def _box(text: str, names: Sequence[str], size: tuple[int, int], *, where: str) -> Box:
    cells = text.split()
    if len(cells) < 5 or (len(cells) > 6 and len(cells) % 2 == 0):
        raise DataError(f"{where}: expected a class and four numbers, found {text!r:.80}")
    if not cells[0].isdecimal():
        raise DataError(f"{where}: class: expected a whole number, found {cells[0]!r:.40}")
    kind = int(cells[0])
    values = [number(cell, where=where, name="box") for cell in cells[1:]]
    if len(values) > 5:  # a polygon
        left, right = min(values[0::2]), max(values[0::2])
        top, bottom = min(values[1::2]), max(values[1::2])
    else:
        x, y, width, height = values[:4]
        left, right, top, bottom = x - width / 2, x + width / 2, y - height / 2, y + height / 2
    wide, high = size
    label = str(kind) if not names else names[kind] if kind < len(names) else ""
    return Box(label, left * wide, top * high, right * wide, bottom * high)


def _names(content: dict[str, Any], folder: Path, config: Path | None) -> list[str]:
    names = content.get("names")
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        names = [names[key] for key in range(len(names))]
    if isinstance(names, list) and all(isinstance(name, str | int) for name in names):
        return [str(name) for name in names]
    if names is not None:
        raise DataError(f"{config}: names: expected a list of names, or names numbered from 0, found {names!r:.80}")
    for name in NAME_FILES:
        if (folder / name).is_file():
            return [text.strip() for _, text in read_lines(folder / name) if text.strip()]
    return []


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping of plain values. References (`*name`), which can expand without end, are refused."""
    try:
        import yaml
    except ImportError as error:
        raise DataError(f'{path}: reading YAML needs a package: pip install "headway[vision]"') from error

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("references are refused")
            return super().compose_node(parent, index)

    try:
        with open_file(path) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise DataError(f"{path}: more than {MAX_BYTES:,} bytes")
        content = yaml.load(data, Loader)
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: not readable as YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected names and folders, found {content!r:.60}")
    return content
