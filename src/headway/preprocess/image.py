"""A picture file (on the disk or in a zip archive), its bytes, an array or a Pillow image → a decoded picture.

`open_image` decodes: eight bits a colour, rotated as the EXIF tag says, the first frame of an animation. A file is
named by a `Path`; a plain string, which may come from anywhere, is refused. `ImageProcessor` (image_processor.py)
resizes, crops and normalises the result.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError, HeadwayError, InputError
from headway.files import RefusedFileError, open_file
from headway.preprocess import archive
from headway.preprocess.archive import ArchivedFile

if TYPE_CHECKING:
    from PIL.Image import Image

# By Pillow's names. It knows dozens more, some of which (EPS) it opens by starting a program; they are never tried.
FORMATS = {"PNG": (".png",), "JPEG": (".jpg", ".jpeg"), "WEBP": (".webp",), "GIF": (".gif",), "BMP": (".bmp",),
           "TIFF": (".tif", ".tiff")}  # fmt: skip
SUFFIXES = tuple(suffix for suffixes in FORMATS.values() for suffix in suffixes)
MAX_PIXELS = 100_000_000  # a small file may decode to a picture that fills the memory
MAX_BYTES = 1 << 28  # of a file
ORIENTATION = 0x0112  # EXIF tag: how the camera was held
WARNINGS = Lock()  # filters of warnings are global, and pictures are decoded by several threads


def open_image(source: Any, *, where: str = "image") -> Image:
    """The decoded picture. `where` names in errors a picture that is not a file; a file is named by its path."""
    from PIL import Image, ImageOps

    where = str(source) if isinstance(source, Path | ArchivedFile) else where
    if isinstance(source, np.ndarray):
        return _from_array(source, where=where)
    if not isinstance(source, Path | ArchivedFile | bytes | Image.Image):
        raise DataError(f"{where}: expected a picture's Path, its bytes or an array, found {type(source).__name__}")
    data = read_bytes(source) if isinstance(source, Path | ArchivedFile) else source
    with _decoding(where):
        picture = _opened(io.BytesIO(data)) if isinstance(data, bytes) else data
        if picture.width * picture.height > MAX_PIXELS:
            raise DataError(f"{where}: {picture.width} × {picture.height} is more than {MAX_PIXELS:,} pixels")
        picture.load()
        rotated = ImageOps.exif_transpose(picture)
        deep = rotated.mode == "F" or rotated.mode.startswith("I")  # more than eight bits a colour
        return _from_array(np.asarray(rotated), where=where) if deep else rotated


def image_size(source: Path | bytes, *, where: str = "image") -> tuple[int, int]:
    """(width, height) from the header, as `open_image` would rotate the picture; the pixels are not decoded."""
    where = str(source) if isinstance(source, Path) else where
    with _decoding(where), io.BytesIO(source) if isinstance(source, bytes) else open_file(source) as file:
        picture = _opened(file)
        turned = picture.getexif().get(ORIENTATION) in (5, 6, 7, 8)
        return (picture.height, picture.width) if turned else picture.size


def _opened(file: IO[bytes]) -> Image:
    """A picture whose pixels are not decoded yet."""
    from PIL import Image

    with WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of large pictures, of which MAX_PIXELS are read, and of what is damaged
        return Image.open(file, formats=[*FORMATS])


@contextmanager
def _decoding(where: str) -> Iterator[None]:
    """Whatever a decoder raises is an error of the picture: decoders trust the types and counts of a file."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except HeadwayError:
        raise
    except Exception as error:
        unknown = isinstance(error, UnidentifiedImageError)  # its message is the address of an object
        reason = f"expected {', '.join(FORMATS)}" if unknown else str(error) or type(error).__name__
        raise DataError(f"{where}: not a picture, or a damaged one ({reason})") from error


def stored_image(source: Any, *, where: str = "image") -> bytes | NDArray[np.uint8]:
    """What a store of examples keeps of a picture: a file's bytes as they are (decoded once, to find damage now and not
    during training), or the (height, width, channel) array of a picture that is not encoded."""
    from PIL import Image

    if isinstance(source, np.ndarray | Image.Image):
        picture = open_image(source, where=where)
        values = np.asarray(picture if picture.mode in ("L", "RGB") else picture.convert("RGB"))
        return values.reshape(*values.shape[:2], -1)
    is_file = isinstance(source, Path | ArchivedFile)
    data = read_bytes(source) if is_file else source
    open_image(data, where=str(source) if is_file else where)
    return bytes(data)


def to_picture(values: NDArray[np.uint8]) -> Image:
    """(height, width, 1 or 3) → a Pillow image."""
    return _from_array(values, where="image")


def picture_files(path: Path) -> list[Path]:
    """A folder's pictures, in name order; any other path alone."""
    if not path.is_dir():
        return [path]
    found = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES and file.is_file()]
    if not found:
        raise InputError(f"{path}: the folder has no pictures ({', '.join(SUFFIXES)})")
    return found


def png_bytes(values: NDArray[np.uint8]) -> bytes:
    """The array as an encoded picture, without loss."""
    out = io.BytesIO()
    open_image(values).save(out, "PNG", compress_level=1)
    return out.getvalue()


def read_bytes(path: Path | ArchivedFile) -> bytes:
    """The encoded picture, as it is on disk."""
    if isinstance(path, ArchivedFile):
        return path.read(limit=MAX_BYTES)
    try:
        with open_file(path) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except RefusedFileError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (OSError, ValueError, *archive.DAMAGED) as error:
        raise DataError(f"{path}: not a picture, or a damaged one ({error})") from error
    if len(data) > MAX_BYTES:
        raise DataError(f"{path}: more than {MAX_BYTES:,} bytes; make the picture smaller")
    return data


def _from_array(values: np.ndarray, *, where: str) -> Image:
    """Grey (height, width) or (height, width, 1), or RGB (height, width, 3). 16 bits are scaled to 8."""
    from PIL import Image

    grey = values.ndim == 2 or (values.ndim == 3 and values.shape[2] == 1)
    if values.size == 0 or not (grey or (values.ndim == 3 and values.shape[2] == 3)):
        raise DataError(
            f"{where}: an array of shape {values.shape}; expected (height, width, 3), or (height, width) for grey"
        )
    if values.dtype.kind not in "iu":
        raise DataError(f"{where}: an array of {values.dtype}; expected whole numbers from 0 to 255")
    if values.dtype != np.uint8:
        values = values >> 8 if values.max() > 255 else values
        if values.min() < 0 or values.max() > 255:
            raise DataError(f"{where}: values from {values.min()} to {values.max()}; expected 0 to 65535 at most")
    return Image.fromarray(values.astype(np.uint8).reshape(values.shape[:2] if grey else values.shape))
