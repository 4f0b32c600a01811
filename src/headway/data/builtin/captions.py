"""Small pictures of shapes with captions that say what, which colours, how large and where."""

from random import Random

import numpy as np
from numpy.typing import NDArray

from headway.data.builtin.pool import Example, Generated
from headway.data.builtin.shapes import SHAPES, SIDE, coverage

COLOURS = {
    "red": (215, 40, 40),
    "orange": (240, 140, 30),
    "yellow": (240, 220, 50),
    "green": (40, 160, 70),
    "blue": (40, 80, 210),
    "purple": (130, 60, 170),
    "black": (20, 20, 20),
    "white": (240, 240, 240),
}
RADII = {"small": (4.5, 6.0), "large": (9.0, 10.5)}  # pixels
PLACES = {  # where the centre is, as shares of the free width and height
    "at the top left": (0.0, 0.0), "at the top": (0.5, 0.0), "at the top right": (1.0, 0.0),
    "on the left": (0.0, 0.5), "in the middle": (0.5, 0.5), "on the right": (1.0, 0.5),
    "at the bottom left": (0.0, 1.0), "at the bottom": (0.5, 1.0), "at the bottom right": (1.0, 1.0),
}  # fmt: skip


def captioned_shape(chance: Random) -> Example:
    shape, (ink, ground) = chance.choice(list(SHAPES)), chance.sample(list(COLOURS), 2)
    size, place = chance.choice(list(RADII)), chance.choice(list(PLACES))
    words = [*([size] if chance.random() < 0.5 else []), ink, shape, "on", ground]
    article = "an" if words[0] == "orange" else "a"
    caption = " ".join([article, *words, *([place] if chance.random() < 0.5 else [])])
    number = chance.getrandbits(64)

    def make() -> dict[str, object]:
        noise = np.random.default_rng(number)
        return {
            "image": paint(shape, ink, ground, size=size, place=place, noise=noise),
            "caption": caption,
            "label": shape,
        }

    return f"{shape} {number}", make


def paint(
    shape: str, ink: str, ground: str, *, size: str, place: str, noise: np.random.Generator
) -> NDArray[np.uint8]:  # (row, column, colour)
    """Radius, centre, colours and grain vary a little."""
    radius = noise.uniform(*RADII[size])
    free = SIDE - 1 - 2 * radius
    centre = radius + free * np.clip(np.array(PLACES[place]) + noise.normal(0, 0.05, size=2), 0, 1)
    cover = coverage(shape, centre, radius=radius, angle=np.pi + noise.normal(0, 0.05))
    below, above = (np.array(COLOURS[name]) + noise.normal(0, 6, size=3) for name in (ground, ink))
    image = below * (1 - cover) + above * cover + noise.normal(0, 4, size=(SIDE, SIDE, 1))
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


CAPTIONED_SHAPES = Generated("draw", captioned_shape, train=4_000, test=400)
