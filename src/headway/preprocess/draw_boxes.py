"""Boxes drawn on a picture, each with its label and score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = (  # told apart also by people with colour blindness (Okabe & Ito 2008)
    "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000",
)  # fmt: skip
DARK_TEXT = ("#e69f00", "#56b4e9", "#f0e442")  # colours on which black is easier to read than white
LINE, TEXT = 1 / 300, 1 / 45  # of the longer side: width of a line, height of a letter
LEAST_TEXT = 10  # pixels


def draw_boxes(picture: Image, objects: Sequence[Mapping[str, Any]], *, labels: Sequence[str]) -> Image:
    """`objects` have a box (left, top, right, bottom in pixels), a label and a score, as `detect` predicts them, or a
    caption in place of both; the best is drawn last. The place of a label in `labels` selects its colour."""
    from PIL import ImageDraw, ImageFont

    out = picture.convert("RGB")
    pen, longer = ImageDraw.Draw(out), max(out.size)
    line, font = max(1, round(longer * LINE)), ImageFont.load_default(max(LEAST_TEXT, round(longer * TEXT)))
    for one in reversed(objects):
        colour = COLOURS[labels.index(one["label"]) % len(COLOURS)]
        left, top, right, bottom = one["box"]
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=line)
        caption = one.get("caption") or f"{one['label']} {one['score']:.2f}"
        _caption(pen, caption, (left, top), colour, font, width=out.width)
    return out


def _caption(pen: Any, text: str, corner: tuple[float, float], colour: str, font: Any, *, width: int) -> None:
    """Above the box; inside it at the upper edge of the picture."""
    x0, y0, x1, y1 = pen.textbbox((0, 0), text, font=font)
    wide, high = x1 - x0 + 4, y1 - y0 + 4
    left = max(0.0, min(corner[0], width - wide))
    top = corner[1] - high if corner[1] >= high else corner[1]
    pen.rectangle((left, top, left + wide, top + high), fill=colour)
    ink = "black" if colour in DARK_TEXT else "white"
    pen.text((left + 2 - x0, top + 2 - y0), text, fill=ink, font=font)
