"""One picture – a file, its bytes, an array, a Pillow image – as an array of one size, eight bits a
colour, turned the way the camera's EXIF note says; of an animation the first frame. The size is reached by stretching,
as ViT's own preprocessing does. A file is asked for by a Path: a mere string, which may come from anywhere, opens none.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
MOST_PIXELS = 100_000_000  # beyond this a small file may hide a picture that fills the memory
MOST_BYTES = 1 << 28  # of a file


def read_image(source: Any, *, side: int, channels: int = 3, where: str = "image") -> NDArray[np.uint8]:
    """(row, column, channel). `where` names a picture that is not a file; a file is named by its path."""
    mode = {1: "L", 3: "RGB"}[channels]
    if isinstance(source, np.ndarray) and source.dtype == np.uint8 and source.shape == (side, side, channels):
        return source
    picture = _open(source, where=str(source) if isinstance(source, Path) else where)
    if (picture.mode, picture.size) != (mode, (side, side)):
        from PIL.Image import Resampling

        picture = picture.convert(mode).resize((side, side), Resampling.BILINEAR)
    return np.asarray(picture).reshape(side, side, channels)


def _open(source: Any, *, where: str) -> Image:
    from PIL import Image, ImageOps

    if isinstance(source, np.ndarray):
        return _from_array(source, where=where)
    if not isinstance(source, Path | bytes | Image.Image):
        raise DataError(f"{where}: expected a picture's Path, its bytes or an array, found {type(source).__name__}")
    try:
        data = _read(source) if isinstance(source, Path) else source
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is lower
            picture = Image.open(io.BytesIO(data)) if isinstance(data, bytes) else data
            if picture.width * picture.height > MOST_PIXELS:
                raise DataError(f"{where}: {picture.width} × {picture.height} is more than {MOST_PIXELS:,} pixels")
            picture.load()
            turned = ImageOps.exif_transpose(picture)
    except FileNotFoundError as error:
        raise DataError(f"{where}: no such file") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{where}: not a picture, or a damaged one ({error})") from error
    deep = turned.mode == "F" or turned.mode.startswith("I")
    return _from_array(np.asarray(turned), where=where) if deep else turned


def _read(path: Path) -> bytes:
    if not path.is_file() and path.exists():
        raise DataError(f"{path}: not a plain file")
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DataError(f"{path}: more than {MOST_BYTES:,} bytes; make the picture smaller")
    return data


def _from_array(values: np.ndarray, *, where: str) -> Image:
    """Grey (row, column) or (row, column, 1), or RGB (row, column, 3). Sixteen bits are brought down to eight."""
    from PIL import Image

    grey = values.ndim == 2 or (values.ndim == 3 and values.shape[2] == 1)
    if values.size == 0 or not (grey or (values.ndim == 3 and values.shape[2] == 3)):
        raise DataError(
            f"{where}: an array of shape {values.shape}; expected (row, column, 3), or (row, column) for grey"
        )
    if values.dtype.kind not in "iu":
        raise DataError(f"{where}: an array of {values.dtype}; expected whole numbers from 0 to 255")
    if values.dtype != np.uint8:
        values = values >> 8 if values.max() > 255 else values
        if values.min() < 0 or values.max() > 255:
            raise DataError(f"{where}: values from {values.min()} to {values.max()}; expected 0 to 65535 at most")
    return Image.fromarray(values.astype(np.uint8).reshape(values.shape[:2] if grey else values.shape))
