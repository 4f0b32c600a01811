"""Small images of shapes, rotated, coloured and noisy. Numpy only."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from headway.data.builtin.pool import Example, Generated

SIDE = 32
ROWS, COLUMNS = np.mgrid[0:SIDE, 0:SIDE]  # (row, column) each
Plane = NDArray[np.float64]
Depth = Callable[[Plane, Plane], Plane]  # coordinates → signed depth inside the shape, in units of its radius


def _triangle(x: Plane, y: Plane) -> Plane:
    edges = [0.5 - (x * np.sin(turn) + y * np.cos(turn)) for turn in (0.0, 2 * np.pi / 3, 4 * np.pi / 3)]
    return np.minimum.reduce(edges)


def _cross(x: Plane, y: Plane) -> Plane:
    def bar(along: Plane, across: Plane) -> Plane:
        return np.minimum(1 - np.abs(along), 0.3 - np.abs(across))

    return np.maximum(bar(x, y), bar(y, x))


SHAPES: dict[str, Depth] = {
    "circle": lambda x, y: 0.9 - np.hypot(x, y),
    "square": lambda x, y: 0.75 - np.maximum(np.abs(x), np.abs(y)),
    "triangle": _triangle,
    "cross": _cross,
    "ring": lambda x, y: 0.22 - np.abs(np.hypot(x, y) - 0.75),
    "bar": lambda x, y: np.minimum(1 - np.abs(x), 0.28 - np.abs(y)),
}


def classify_image(chance: Random) -> Example:
    label = chance.choice(list(SHAPES))
    number = chance.getrandbits(64)
    return f"{label} {number}", lambda: {"image": draw_shape(label, np.random.default_rng(number)), "label": label}


def draw_shape(label: str, noise: np.random.Generator) -> NDArray[np.uint8]:
    """One shape of random position, size, angle and colour on a noisy background."""
    radius = noise.uniform(6.5, 13.0)
    centre = noise.uniform(radius, SIDE - 1 - radius, size=2)
    angle = noise.uniform(0, 2 * np.pi)
    cover = coverage(label, centre, radius=radius, angle=angle)
    ground = noise.uniform(0, 255, size=3)
    ink = (ground + noise.choice([-1, 1], size=3) * noise.uniform(90, 160, size=3)) % 256
    speckle = noise.uniform(5, 25) * noise.standard_normal((SIDE, SIDE, 3), dtype=np.float32)
    image = ground * (1 - cover) + ink * cover + speckle  # (row, column, colour)
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def coverage(label: str, centre: Sequence[float] | Plane, *, radius: float, angle: float, side: int = SIDE) -> Plane:
    """(row, column, 1): 1 inside the shape, 0 outside, soft by one pixel. `centre` is (x, y) in pixels."""
    rows, columns = (ROWS, COLUMNS) if side == SIDE else np.mgrid[0:side, 0:side]
    right, down = (columns - centre[0]) / radius, (rows - centre[1]) / radius
    x, y = right * np.cos(angle) + down * np.sin(angle), down * np.cos(angle) - right * np.sin(angle)
    return np.clip(SHAPES[label](x, y) * radius + 0.5, 0, 1)[..., None]


DRAWN_SHAPES = Generated("classify-image", classify_image, train=4_000, test=500)
