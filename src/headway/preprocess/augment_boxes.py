"""Random changes of training pictures and their boxes: a window of another scale and shape, mirror images, colour, and
mosaics of four pictures (Bochkovskiy et al. 2020). Every draw is from the generator given, one for each example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

GREY = 114  # of what lies outside a picture
VISIBLE = 0.3  # share of a box that must stay in the window
LEAST = 2.0  # pixels of a side that is kept
ASPECT = 0.15  # natural logarithm
SCALES = (0.6, 1.5)  # of a window, relative to the picture
TILE_SCALES = (0.7, 1.4)  # of objects in a mosaic, relative to those of the pictures
CENTRE = (0.35, 0.65)  # of a mosaic


class BoxedPicture(NamedTuple):
    pixels: NDArray[np.uint8]  # (height, width, channel)
    boxes: NDArray[np.float32]  # (box, 4): corners as shares of the picture
    labels: NDArray[np.int64]


def window(
    picture: BoxedPicture, size: tuple[int, int], draw: np.random.Generator, *, mirror: bool, upside_down: bool
) -> BoxedPicture:
    """A random part of the picture, or more than the picture, as a picture of `size` (height, width)."""
    scale = np.exp(draw.uniform(np.log(SCALES[0]), np.log(SCALES[1])))
    aspect = np.exp(draw.uniform(-ASPECT, ASPECT))
    fit_x, fit_y = _fit(picture, size)
    wide, high = scale * aspect * fit_x, scale / aspect * fit_y
    left, top = (draw.uniform(min(0.0, 1 - side), max(0.0, 1 - side)) for side in (wide, high))
    placed = place(picture, (left, top, left + wide, top + high), size)
    return _turned(placed, draw, mirror=mirror, upside_down=upside_down)


def mosaic(
    pictures: Sequence[BoxedPicture],
    size: tuple[int, int],
    draw: np.random.Generator,
    *,
    mirror: bool,
    upside_down: bool,
) -> BoxedPicture:
    """Four pictures around a random centre, each cut to its quarter at about its own scale."""
    height, width = size
    middle_x, middle_y = (round(side * draw.uniform(*CENTRE)) for side in (width, height))
    canvas = np.empty((height, width, pictures[0].pixels.shape[2]), np.uint8)
    boxes, labels = [], []
    corners = ((0, 0, middle_x, middle_y), (middle_x, 0, width, middle_y), (0, middle_y, middle_x, height),
               (middle_x, middle_y, width, height))  # fmt: skip
    for picture, (left, top, right, bottom) in zip(pictures, corners, strict=True):
        scale = draw.uniform(*TILE_SCALES)
        fit_x, fit_y = _fit(picture, size)
        wide, high = min(1.0, (right - left) / width / scale * fit_x), min(1.0, (bottom - top) / height / scale * fit_y)
        x, y = draw.uniform(0, 1 - wide), draw.uniform(0, 1 - high)
        tile = place(picture, (x, y, x + wide, y + high), (bottom - top, right - left))
        tile = _turned(tile, draw, mirror=mirror, upside_down=upside_down)
        canvas[top:bottom, left:right] = tile.pixels
        scaled = tile.boxes * np.tile([right - left, bottom - top], 2) + np.tile([left, top], 2)
        boxes.append((scaled / np.tile([width, height], 2)).astype(np.float32))
        labels.append(tile.labels)
    return BoxedPicture(canvas, np.concatenate(boxes), np.concatenate(labels))


def _fit(picture: BoxedPicture, size: tuple[int, int]) -> tuple[float, float]:
    """Width and height of the smallest window of this shape that contains the picture, in shares of it."""
    (height, width), (rows, columns) = size, picture.pixels.shape[:2]
    scale = max(rows / height, columns / width)
    return scale * width / columns, scale * height / rows


def place(picture: BoxedPicture, part: tuple[float, float, float, float], size: tuple[int, int]) -> BoxedPicture:
    """A part of the picture, in shares of it, resized to (height, width); grey where it lies outside."""
    height, width = size
    left, top, right, bottom = part
    wide, high = right - left, bottom - top
    rows, columns = picture.pixels.shape[:2]
    canvas = np.full((height, width, picture.pixels.shape[2]), GREY, np.uint8)
    x = [round((max(left, 0.0) - left) / wide * width), round((min(right, 1.0) - left) / wide * width)]
    y = [round((max(top, 0.0) - top) / high * height), round((min(bottom, 1.0) - top) / high * height)]
    if x[1] > x[0] and y[1] > y[0]:
        box = (max(left, 0.0) * columns, max(top, 0.0) * rows, min(right, 1.0) * columns, min(bottom, 1.0) * rows)
        source = Image.fromarray(picture.pixels[:, :, 0] if picture.pixels.shape[2] == 1 else picture.pixels)
        resized = source.resize((x[1] - x[0], y[1] - y[0]), Image.Resampling.BILINEAR, box=box)
        canvas[y[0] : y[1], x[0] : x[1]] = np.asarray(resized).reshape(y[1] - y[0], x[1] - x[0], -1)
    moved = (picture.boxes - np.array([left, top, left, top])) / np.array([wide, high, wide, high])
    cut = moved.clip(0, 1)
    sides, whole = cut[:, 2:] - cut[:, :2], (moved[:, 2:] - moved[:, :2]).prod(1)
    kept = (sides.prod(1) >= VISIBLE * whole) & (sides * [width, height] >= LEAST).all(1)
    return BoxedPicture(canvas, cut[kept].astype(np.float32), picture.labels[kept])


def _turned(picture: BoxedPicture, draw: np.random.Generator, *, mirror: bool, upside_down: bool) -> BoxedPicture:
    pixels, labels = picture.pixels, picture.labels
    boxes = picture.boxes.astype(np.float64)
    if mirror and draw.random() < 0.5:
        pixels, boxes = pixels[:, ::-1], boxes[:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [1, 0, 1, 0]
    if upside_down and draw.random() < 0.5:
        pixels, boxes = pixels[::-1], boxes[:, [0, 3, 2, 1]] * [1, -1, 1, -1] + [0, 1, 0, 1]
    return BoxedPicture(pixels, boxes.astype(np.float32), labels)


def recoloured(pixels: NDArray[np.uint8], draw: np.random.Generator, strength: float) -> NDArray[np.uint8]:
    """Brightness, contrast and saturation change by up to this share; each channel by a fifth of it."""
    brightness, contrast, saturation = draw.uniform(1 - strength, 1 + strength, 3)
    values = pixels.astype(np.float32) * brightness * draw.uniform(1 - strength / 5, 1 + strength / 5, pixels.shape[2])
    grey = values.mean(2, keepdims=True)
    values = grey + (values - grey) * saturation
    return (values.mean() + (values - values.mean()) * contrast).clip(0, 255).astype(np.uint8)
