"""Pictures of several shapes with their boxes. Numpy only."""

from random import Random
from typing import Any

import numpy as np

from headway.data.boxes import Box
from headway.data.builtin.pool import Example, Generated
from headway.data.builtin.shapes import coverage

SIDE = 96
LABELS = ("circle", "square", "triangle", "cross")
RADII = (7.0, 18.0)  # pixels
MOST = 6  # shapes of a picture
APART = 0.8  # of the sum of two radii: the least distance of their centres


def detect(chance: Random) -> Example:
    number = chance.getrandbits(64)
    return str(number), lambda: draw_scene(np.random.default_rng(number))


def draw_scene(noise: np.random.Generator) -> dict[str, Any]:
    """Up to six shapes of random size, angle and colour that hardly overlap, on a noisy background."""
    ground = noise.uniform(40, 215, size=3)
    image = np.broadcast_to(ground, (SIDE, SIDE, 3)).copy()  # (row, column, colour)
    placed: list[tuple[float, float, float]] = []
    boxes: list[Box] = []
    for _ in range(int(noise.integers(1, MOST + 1))):
        radius = noise.uniform(*RADII)
        x, y = noise.uniform(radius, SIDE - 1 - radius, size=2)
        angle, label = noise.uniform(0, 2 * np.pi), LABELS[int(noise.integers(len(LABELS)))]
        ink = (ground + noise.choice([-1, 1], size=3) * noise.uniform(80, 150, size=3)) % 256
        if any(np.hypot(x - a, y - b) < APART * (radius + r) for a, b, r in placed):
            continue
        placed.append((x, y, radius))
        cover = coverage(label, (x, y), radius=radius, angle=angle, side=SIDE)
        image = image * (1 - cover) + ink * cover
        rows, columns = np.nonzero(cover[..., 0] > 0.5)
        left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        boxes.append(Box(label, float(left), float(top), float(right), float(bottom)))
    image = image + noise.uniform(2, 12) * noise.standard_normal(image.shape, dtype=np.float32)
    pixels = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    return {"image": pixels, "boxes": boxes, "size": (SIDE, SIDE)}


SCENES = Generated("detect", detect, train=1_000, test=100)
