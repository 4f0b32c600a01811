"""Pascal VOC: an XML file for each picture. Either Annotations/ beside JPEGImages/, with the parts listed in
ImageSets/Main/{train,val,test}.txt, or XML files beside the pictures, in one folder or in one for each part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from headway.data.boxes import Box, box_row, number, picture_index
from headway.data.images import ImageRows
from headway.data.row import Row
from headway.data.split import PART_NAMES
from headway.data.text_reader import read_lines
from headway.errors import DataError
from headway.files import open_file
from headway.preprocess.image import SUFFIXES, image_size

MAX_BYTES = 16 << 20  # of one XML file
MAX_DEPTH = 20
UNANNOTATED = "pictures without an annotation file"


def folder_parts(folder: Path) -> dict[str, ImageRows]:
    """Nothing if the folder has another layout."""
    if (folder / "Annotations").is_dir() and (folder / "JPEGImages").is_dir():
        return _standard_parts(folder)
    inner = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    parts = {PART_NAMES[child.name.lower()]: child for child in inner if child.name.lower() in PART_NAMES}
    if "train" in parts and any(parts["train"].glob("*.xml")):
        return {part: _beside(child) for part, child in parts.items()}
    if any(folder.glob("*.xml")):
        return {"train": _beside(folder)}
    nested = [child for child in inner if (child / "Annotations").is_dir()]  # VOCdevkit/VOC2012
    return folder_parts(nested[0]) if len(nested) == 1 else {}


def _standard_parts(folder: Path) -> dict[str, ImageRows]:
    pictures = picture_index(folder / "JPEGImages", SUFFIXES)
    lists = {name: folder / "ImageSets" / "Main" / f"{name}.txt" for name in ("train", "trainval", "val", "test")}
    lists = {name: file for name, file in lists.items() if file.is_file()}
    if "train" not in lists and "trainval" not in lists:
        return {"train": _rows(sorted((folder / "Annotations").glob("*.xml")), pictures)}
    lists.pop("trainval" if "train" in lists else "train", None)
    return {PART_NAMES.get(name, "train"): _listed(file, folder, pictures) for name, file in lists.items()}


def _listed(file: Path, folder: Path, pictures: dict[str, Path]) -> ImageRows:
    """The pictures that ImageSets names, one a line."""
    annotations = []
    for line, text in read_lines(file):
        if not (name := text.split()[0] if text.strip() else ""):
            continue
        annotation = folder / "Annotations" / f"{name}.xml"
        if "/" in name or "\\" in name or not annotation.is_file():
            raise DataError(f"{file}:{line}: {annotation}: no such file")
        annotations.append(annotation)
    return _rows(annotations, pictures)


def _beside(folder: Path) -> ImageRows:
    pictures = picture_index(folder, SUFFIXES)
    files = sorted(folder.glob("*.xml"))
    found = _rows(files, pictures)
    used = {row.fields["image"] for row in found.rows}
    if unused := len({file for file in pictures.values() if file not in used}):
        found.skipped[UNANNOTATED] += unused
    return found


def _rows(files: list[Path], pictures: dict[str, Path]) -> ImageRows:
    return ImageRows([_row(file, pictures) for file in files], "Pascal VOC boxes")


def _row(file: Path, pictures: dict[str, Path]) -> Row:
    root = parse_xml(file)
    named = (root.findtext("filename") or "").strip()
    image = pictures.get(file.stem) or pictures.get(named) or pictures.get(Path(named).stem)
    if image is None:
        raise DataError(f"{file}: its picture is not there: no {file.stem}.jpg or {named!r:.80}")
    width, height = (
        int(number(root.findtext(f"size/{side}") or 0, where=str(file), name=side)) for side in ("width", "height")
    )
    size = (width, height) if min(width, height) > 0 else image_size(image)
    return box_row(image, list(_boxes(root, file)), size, where=str(file))


CORNERS = ("xmin", "ymin", "xmax", "ymax")


def _boxes(root: Element, file: Path) -> Iterator[Box]:
    for count, item in enumerate(root.findall("object"), 1):
        where, label = f"{file}: object {count}", (item.findtext("name") or "").strip()
        if not label:
            raise DataError(f"{where}: name: the box has no class")
        left, top, right, bottom = (number(item.findtext(f"bndbox/{name}"), where=where, name=name) for name in CORNERS)
        yield Box(label, left, top, right, bottom, crowd=(item.findtext("difficult") or "").strip() == "1")


def parse_xml(path: Path) -> Element:
    """The root element. A document type, which may define entities that expand without end, is refused."""
    data = _content(path)
    builder, depth = TreeBuilder(), 0
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise DataError(f"{path}: a document type (<!DOCTYPE) is refused; remove it")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise DataError(f"{path}: elements are nested more than {MAX_DEPTH} deep")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise DataError(f"{path}:{error.lineno}: not XML ({expat.errors.messages[error.code]})") from error
    except (ValueError, LookupError) as error:  # an encoding that it declares
        raise DataError(f"{path}: not XML ({error})") from error
    return builder.close()


def _content(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise DataError(f"{path}: more than {MAX_BYTES:,} bytes for the boxes of one picture")
    return data
