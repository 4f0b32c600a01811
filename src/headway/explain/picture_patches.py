"""A picture on a page: its pixels as PNG, and a token for each of its patches."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from headway.explain import story


def patches(
    name: str, image: Any, grid: tuple[int, int], *, before: Sequence[str] = (), behind: Sequence[str] = ()
) -> story.Sequence:
    """`grid` is (rows, columns); `before` and `behind` name the special tokens around the patches."""
    high, wide = grid
    tokens = [story.Token(f"[{name}]", -1, special=True) for name in before]
    tokens += [story.Token(f"{y + 1},{x + 1}", y * wide + x) for y in range(high) for x in range(wide)]
    tokens += [story.Token(f"[{name}]", -1, special=True) for name in behind]
    return story.Sequence(
        f"{name}, by row and column", tokens, story.PictureView(png_text(image), high, wide, len(before))
    )


def png_text(image: Any) -> str:
    """Of a Pillow image or an array of pixels, in base64."""
    from PIL import Image

    png = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(png, "PNG")
    return base64.b64encode(png.getvalue()).decode("ascii")
