"""Pictures and sound in requests: as bytes or base64, never as an address; bounded before they are decoded."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

from headway.errors import DataError, InputError
from headway.preprocess.audio import Sound
from headway.preprocess.image import image_size
from headway.serving.api_errors import ApiError
from headway.serving.limits import ServerLimits


def from_base64(text: Any, *, param: str = "inputs") -> bytes:
    if not isinstance(text, str):
        raise ApiError(400, f"{param}: send the bytes themselves as the body, or in base64", param=param)
    if text[:5].lower() == "data:":
        text = text.partition(",")[2]
    elif "://" in text[:16]:
        raise ApiError(400, f"{param}: no address is fetched; send the bytes themselves, or in base64", param=param)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, f"{param}: it is not base64", param=param) from None


def check_picture(data: bytes, limits: ServerLimits, *, param: str = "inputs") -> bytes:
    """The bytes, if their header says that the picture is not too large; its pixels are not decoded."""
    try:
        width, height = image_size(data, where=param)
    except DataError as error:
        raise ApiError(400, str(error), param=param) from None
    if width * height > limits.pixels:
        raise ApiError(
            400, f"{param}: {width} × {height} is more than {limits.pixels:,} pixels; make it smaller", param=param
        )
    return data


def check_sound(data: bytes, limits: ServerLimits, *, param: str = "inputs") -> bytes:
    """The bytes, if their header says that the recording is not too long."""
    seconds = Sound(data, 16_000, param, InputError).header.seconds
    if seconds > limits.audio_seconds:
        raise ApiError(
            400,
            f"{param}: {seconds / 60:,.0f} minutes; at most {limits.audio_seconds / 60:,.0f}. Split it",
            param=param,
        )
    return data


def png(picture: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()
