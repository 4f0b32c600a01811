"""Pictures beside each other in one: a row for each caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

GAP = 4  # pixels between pictures
TEXT = 14  # pixels of a caption's line
SEEN = 112  # pixels per side that a small picture is enlarged to, by a whole factor


def sheet(rows: Sequence[Sequence[Image]], captions: Sequence[str]) -> Image:
    """One picture alone is as it is. Several are enlarged if they are small, and each row has its caption above it."""
    from PIL import Image, ImageDraw

    if len(rows) == 1 and len(rows[0]) == 1:
        return rows[0][0]
    side = max(max(picture.size) for row in rows for picture in row)
    factor = max(1, -(-SEEN // side)) if side < SEEN else 1
    width, height = (factor * max(picture.size[axis] for row in rows for picture in row) for axis in (0, 1))
    columns = max(map(len, rows))
    out = Image.new("RGB", (columns * (width + GAP) + GAP, len(rows) * (height + TEXT + GAP) + GAP), "white")
    pen = ImageDraw.Draw(out)
    for row, (pictures, caption) in enumerate(zip(rows, captions, strict=True)):
        top = GAP + row * (height + TEXT + GAP)
        pen.text((GAP, top), _fitting(pen, caption, out.width - 2 * GAP), fill="black")
        for column, picture in enumerate(pictures):
            large = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
            out.paste(large, (GAP + column * (width + GAP), top + TEXT))
    return out


def _fitting(pen: object, caption: str, width: int) -> str:
    """The caption on one line, shortened to a width in pixels."""
    text = " ".join(caption.split())
    while len(text) > 1 and pen.textlength(text) > width:  # type: ignore[attr-defined]
        text = text[:-2] + "…"
    return text
