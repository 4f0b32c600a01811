"""Targets made from the tables of formats in the code: every picture and sound format that is read, and every suffix of
data files, so that a new one is mutated without a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import soundfile
from fuzz import seeds
from fuzz.campaign import Target
from fuzz.data_targets import read_rows, repacked
from fuzz.mutate import damaged
from PIL import Image
from support.sounds import encoded, tone

from headway.data.paths import ARCHIVES, WORKBOOKS
from headway.data.split import DATA_SUFFIXES
from headway.preprocess import audio, image
from headway.preprocess.audio import Sound
from headway.preprocess.image import image_size, open_image

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F")
ROWS = [["good, very", "pos"], ["bad", "neg"], ["fine", "pos"], ["no", "neg"]]
METHODS = {"xlsx": "excel", "xlsm": "excel", "feather": "feather"}  # of a data frame, where its name is not the suffix


def pictures(formats: Sequence[str]) -> dict[str, list[bytes]]:
    """Small pictures of each format in every mode that it has."""
    found: dict[str, list[bytes]] = {}
    for name in formats:
        for mode in MODES:
            out = BytesIO()
            with suppress(Exception):  # a mode that the format does not have
                picture = Image.fromarray(np.arange(120, dtype=np.uint8).reshape(5, 8, 3), "RGB").convert(mode)
                picture.save(out, name)
                found.setdefault(name, []).append(out.getvalue())
    return found


def other_pictures() -> dict[str, list[bytes]]:
    """Of the formats that Pillow knows and Headway does not read."""
    Image.init()
    return pictures(sorted((Image.SAVE.keys() & Image.OPEN.keys()) - image.FORMATS.keys()))


def sounds(formats: Sequence[str]) -> dict[str, list[bytes]]:
    """A recording in each format, in the usual and the last of its encodings."""
    found: dict[str, list[bytes]] = {}
    for name in formats:
        for subtype in (None, *[*soundfile.available_subtypes(name)][-1:]):
            with suppress(Exception):  # an encoding that the format only reads, or that has another rate
                data = encoded(tone(0.2), format=name, subtype=subtype)
                soundfile.read(BytesIO(data))
                found.setdefault(name, []).append(data)
    return found


def other_sounds() -> dict[str, list[bytes]]:
    """Not SD2, which the library writes to two files, one of them `._` in the working folder; and not samples alone."""
    return sounds(sorted(soundfile.available_formats().keys() - audio.FORMATS.keys() - {"SD2", "RAW"}))


def table_bytes(suffix: str) -> list[bytes]:
    """A table as a data frame saves it under this suffix; texts of every kind if it cannot."""
    frame, out, name = pd.DataFrame(ROWS, columns=["text", "label"]), BytesIO(), suffix.lstrip(".")
    method = getattr(frame, f"to_{METHODS.get(name, name)}", None)
    if method is None or name in ("csv", "json"):
        return list(seeds.FILES)
    method(out, **({} if name == "feather" else {"index": False}))
    return [out.getvalue()]


def read_picture(path: Path) -> object:
    """By its header, and decoded."""
    width, height = size = image_size(path)
    picture = open_image(path)
    assert picture.size in (size, size[::-1]) and picture.convert("RGB").tobytes()
    return picture.mode, width > height


def read_sound(path: Path) -> object:
    sound = Sound(path, 16000)
    samples = sound.read(seconds=1.0)
    assert samples.dtype == np.float32 and np.isfinite(samples).all() and len(samples) <= 16000
    return sound.header.format, len(samples) > 800


def either(*changes: Callable[[bytes, Sequence[bytes], Random], bytes]) -> Any:
    return lambda data, others, random: random.choice(changes)(data, others, random)


def targets(known: Sequence[Target]) -> list[Target]:
    """Those for formats; and one for each suffix of data files that no other target has."""
    covered = {suffix for target in known for suffix in Path(target.file).suffixes}
    shown = [data for each in pictures([*image.FORMATS]).values() for data in each]
    heard = [data for each in sounds([*audio.FORMATS]).values() for data in each]
    out = [
        Target("pictures", "x.png", shown, read_picture, damaged, 6),
        Target("sounds", "x.wav", heard, read_sound, damaged, 6),
    ]
    for suffix in sorted({*DATA_SUFFIXES, *WORKBOOKS, *ARCHIVES} - covered):
        made = table_bytes(suffix)
        change = either(damaged, repacked) if made[0].startswith(b"PK") else damaged
        out.append(Target(f"table {suffix}", f"x{suffix}", made, read_rows("classify"), change, 1))
    return out
