"""COCO: one JSON file a part, with `images` (id, file_name, width, height), `annotations` (image_id, category_id, bbox
as left, top, width, height) and `categories` (id, name)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from headway.data.boxes import Box, box_row, number
from headway.data.images import ImageRows
from headway.data.row import Skipped
from headway.data.split import PART_NAMES
from headway.errors import ConfigError, DataError
from headway.files import open_file
from headway.validation import between, from_dict

MAX_BYTES = 1 << 30  # of one file; that of COCO itself has 450 MB
MISSING = "pictures that the file names but that are not there"


class CocoPicture(TypedDict):
    id: int
    file_name: str
    width: Annotated[int, between(1, 1_000_000)]
    height: Annotated[int, between(1, 1_000_000)]


def folder_parts(folder: Path) -> dict[str, ImageRows]:
    """The files of a folder, of its `annotations`, or one in each of train, valid and test."""
    inner = [child for child in sorted(folder.iterdir()) if child.is_dir() and child.name.lower() in PART_NAMES]
    named = [(PART_NAMES[child.name.lower()], file) for child in inner for file in _files(child)]
    for place in (folder / "annotations", folder):
        named = named or [(part_of(file), file) for file in _files(place)]
    if not named:
        return {}
    parts: dict[str, ImageRows] = {}
    for part, file in named:
        rows = _rows(file)
        parts[part] = parts[part] + rows if part in parts else rows
    if "train" not in parts:
        raise DataError(f"{folder}: has {', '.join(file.name for _, file in named)}, but no file whose name says train")
    return parts


def file_parts(file: Path) -> dict[str, ImageRows]:
    if not is_coco(file):
        raise DataError(f"{file}: not COCO; expected an object with images, annotations and categories")
    return {"train": _rows(file)}


def part_of(file: Path) -> str:
    """The part that a word of the name says: instances_val2017.json."""
    words = re.split(r"[^a-z]+", file.stem.lower())
    return next((PART_NAMES[word] for word in words if word in PART_NAMES), "train")


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    instances = [file for file in sorted(folder.glob("*.json")) if not file.name.startswith(("captions", "person_"))]
    return [file for file in instances if is_coco(file)]


def is_coco(file: Path) -> bool:
    """By its keys in the first or last bytes, since such files are large."""
    try:
        with open_file(file) as opened:
            head = opened.read(1 << 16)
            opened.seek(max(0, file.stat().st_size - (1 << 16)))
            ends = head + opened.read(1 << 16)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    return head.lstrip()[:1] == b"{" and any(key in ends for key in (b'"images"', b'"annotations"', b'"categories"'))


def _rows(file: Path) -> ImageRows:
    data = _content(file)
    names = _names(data, file)
    pictures: dict[int, CocoPicture] = {}
    for place, item in enumerate(_list(data, "images", file)):
        picture = _checked(CocoPicture, item, f"{file}: images[{place}]")
        if picture["id"] in pictures:
            raise DataError(f"{file}: images[{place}]: the id {picture['id']} is given twice")
        pictures[picture["id"]] = picture
    boxes: dict[int, list[Box]] = {identity: [] for identity in pictures}
    for place, item in enumerate(_list(data, "annotations", file)):
        where = f"{file}: annotations[{place}]"
        identity, box = _box(item, names, where=where)
        if identity not in boxes:
            raise DataError(f"{where}: image_id: there is no picture {identity!r:.40}")
        boxes[identity].append(box)
    find, skipped, rows = _Finder(file), Skipped(), []
    for identity, picture in pictures.items():
        image = find(picture["file_name"])
        if image is None:
            skipped[MISSING] += 1
            continue
        rows.append(box_row(image, boxes[identity], (picture["width"], picture["height"]), where=f"{file}:{identity}"))
    if not rows:
        first = next(iter(pictures.values()), None)
        raise DataError(f"{file}: none of its pictures is there" + (f", such as {first['file_name']}" if first else ""))
    return ImageRows(rows, "COCO boxes", skipped)


def _box(item: Any, names: Mapping[int, str], *, where: str) -> tuple[int, Box]:
    if not isinstance(item, dict) or not isinstance(item.get("bbox"), list) or len(item["bbox"]) != 4:
        raise DataError(f"{where}: bbox: expected left, top, width and height, found {item!r:.80}")
    left, top, width, height = (number(value, where=where, name="bbox") for value in item["bbox"])
    kind, picture = item.get("category_id"), item.get("image_id")
    if type(kind) is not int or type(picture) is not int:
        raise DataError(
            f"{where}: expected numbers for category_id and image_id, found {kind!r:.40} and {picture!r:.40}"
        )
    return picture, Box(names.get(kind, ""), left, top, left + width, top + height, item.get("iscrowd") == 1)


class _Finder:
    """Finds pictures by `file_name`: beside the file, in `images`, or in a folder with the name of the part."""

    def __init__(self, file: Path):
        stems = [file.stem, *re.split(r"[_-]+", file.stem)]  # instances_train2017 → train2017
        tops = [file.parent, file.parent.parent]
        self.places = [top / name for top in tops for name in ("", "images", *stems, *(f"images/{s}" for s in stems))]

    def __call__(self, name: str) -> Path | None:
        for place, folder in enumerate(self.places):
            try:
                if (folder / name).is_file():
                    self.places.insert(0, self.places.pop(place))  # the next one is likely there too
                    return folder / name
            except (OSError, ValueError):  # a name that no file can have
                return None
        return None


def _content(file: Path) -> dict[str, Any]:
    try:
        with open_file(file) as opened:
            text = opened.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise DataError(f"{file}: more than {MAX_BYTES:,} bytes; divide it")
        data = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: not readable as JSON ({error})") from error
    if not isinstance(data, dict):
        raise DataError(f"{file}: expected an object with images, annotations and categories")
    return data


def _names(data: dict[str, Any], file: Path) -> dict[int, str]:
    names: dict[int, str] = {}
    for place, item in enumerate(_list(data, "categories", file)):
        if not isinstance(item, dict) or type(item.get("id")) is not int or not isinstance(item.get("name"), str):
            raise DataError(f"{file}: categories[{place}]: expected id and name, found {item!r:.80}")
        names[item["id"]] = item["name"]
    return names


def _list(data: dict[str, Any], key: str, file: Path) -> list[Any]:
    if not isinstance(data.get(key), list):
        raise DataError(f"{file}: {key}: expected a list, found {data.get(key)!r:.60}")
    return data[key]


def _checked(kind: Any, item: Any, path: str) -> Any:
    if isinstance(item, dict):
        item = {key: item[key] for key in kind.__annotations__ if key in item}
    try:
        return from_dict(kind, item, path=path)
    except ConfigError as error:
        raise DataError(str(error)) from error
