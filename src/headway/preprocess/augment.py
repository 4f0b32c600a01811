"""Random changes of training pictures that keep what they show: zoom (Szegedy et al. 2015), shift, mirror images,
colour, erasing (Zhong et al. 2020); and mixtures of two: mixup (Zhang et al. 2018), cutmix (Yun et al. 2019).

Every draw is a hash of the example's key, so it depends neither on the other examples nor on earlier draws, and a
resumed run makes the same pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
ZOOM, SHIFT, FLIP, COLOUR, ERASE, MIX = 0, 4, 6, 7, 10, 15  # first column of each change's draws
DRAWS = 20
ERASED = (0.02, 0.25)  # share of the picture that is erased
ASPECT = (3 / 4, 4 / 3)
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue

Window = tuple[float, float, float, float]  # left, top, right, bottom, as shares of the picture


@dataclass(frozen=True)
class Augmentation:
    """All zero: none. `mixup` and `cutmix` are the shares of pictures that are mixed in each way."""

    zoom: float = 0.0  # a part of the picture is resized to the full size; at most this share of it is left out
    shift: float = 0.0  # by up to this share of a side; the edge is mirrored
    flip: bool = False  # half of the pictures are mirrored, left to right
    colour: float = 0.0  # brightness, contrast and saturation change by up to this share
    erase: float = 0.0  # probability that a rectangle becomes the mean colour
    mixup: float = 0.0
    cutmix: float = 0.0

    def __bool__(self) -> bool:
        return self != Augmentation()

    @property
    def mixes(self) -> bool:
        return self.mixup + self.cutmix > 0

    def describe(self) -> str:
        parts = [f"zoom to {1 - self.zoom:.0%} or more"] if self.zoom else []
        parts += [f"shift by up to {self.shift:.1%}"] if self.shift else []
        parts += ["mirror images"] if self.flip else []
        parts += [f"colour ±{self.colour:.0%}"] if self.colour else []
        parts += [f"erasing in {self.erase:.0%}"] if self.erase else []
        parts += [f"mixup of {self.mixup:.0%}"] if self.mixup else []
        parts += [f"cutmix of {self.cutmix:.0%}"] if self.cutmix else []
        return ", ".join(parts) or "none"

    def windows(self, draws: NDArray[np.float64]) -> Sequence[Window | None]:
        """The part of each picture that is used; None: all of it."""
        if not self.zoom:
            return [None] * len(draws)
        area, aspect, left, top = draws[:, ZOOM : ZOOM + 4].T
        area = 1 - self.zoom * area
        aspect = np.exp(np.log(ASPECT[0]) + np.log(ASPECT[1] / ASPECT[0]) * aspect)
        wide, high = np.minimum(np.sqrt(area * aspect), 1), np.minimum(np.sqrt(area / aspect), 1)
        left, top = left * (1 - wide), top * (1 - high)
        sides = (left, top, np.minimum(left + wide, 1), np.minimum(top + high, 1))
        return list(zip(*(each.tolist() for each in sides), strict=True))

    def change(
        self, pixels: NDArray[np.uint8], draws: NDArray[np.float64], *, fill: Sequence[float]
    ) -> NDArray[np.uint8]:
        """(batch, height, width, channel) pictures with everything but zoom and mixing; `fill` is the mean colour."""
        if self.shift or self.flip:
            pixels = self._moved(pixels, draws)
        if self.colour and pixels.shape[-1] == len(GREY):
            pixels = self._recoloured(pixels, draws[:, COLOUR : COLOUR + 3])
        if self.erase:
            chosen = draws[:, ERASE] < self.erase
            area = ERASED[0] + (ERASED[1] - ERASED[0]) * draws[:, ERASE + 1]
            inside = rectangles(pixels.shape[1:3], area, draws[:, ERASE + 2 : ERASE + 5]) & chosen[:, None, None]
            pixels = np.where(inside[..., None], np.asarray(fill, np.float32).astype(np.uint8), pixels)
        return pixels

    def _moved(self, pixels: NDArray[np.uint8], draws: NDArray[np.float64]) -> NDArray[np.uint8]:
        high, wide = pixels.shape[1:3]
        rows = _shifted(high, round(self.shift * high), draws[:, SHIFT])  # (batch, high)
        columns = _shifted(wide, round(self.shift * wide), draws[:, SHIFT + 1])
        if self.flip:
            columns = np.where(draws[:, FLIP, None] < 0.5, columns[:, ::-1], columns)
        return pixels[np.arange(len(pixels))[:, None, None], rows[:, :, None], columns[:, None, :]]

    def _recoloured(self, pixels: NDArray[np.uint8], draws: NDArray[np.float64]) -> NDArray[np.uint8]:
        factors = (1 + self.colour * (2 * draws - 1)).astype(np.float32)[:, :, None, None, None]
        brightness, contrast, saturation = factors.swapaxes(0, 1)
        values = pixels * brightness
        grey = (values @ GREY)[..., None]
        values = grey + (values - grey) * saturation
        mean = grey.mean((1, 2, 3), keepdims=True)
        return (mean + (values - mean) * contrast).clip(0, 255).astype(np.uint8)


class Mixture(NamedTuple):
    """How much of each picture stays, and where: (batch, 1, height, width), and its mean over the picture, (batch,)."""

    kept: NDArray[np.float32]
    share: NDArray[np.float32]


def mixture(draws: NDArray[np.float64], size: tuple[int, int], augmentation: Augmentation) -> Mixture:
    """For pictures that are mixed with a second one."""
    share = draws[:, MIX + 1]
    is_cut = draws[:, MIX] < augmentation.cutmix
    inside = rectangles(size, 1 - share, draws[:, MIX + 2 : MIX + 5])
    kept = np.where(is_cut[:, None, None], ~inside, share[:, None, None]).astype(np.float32)
    return Mixture(kept[:, None], kept.mean((1, 2)))


def partner(key: tuple[int, ...], count: int, augmentation: Augmentation) -> int | None:
    """The index, below `count`, of the picture that an example is mixed with; None: it stays alone."""
    chosen, index = uniforms([key], MIX + 1)[0, MIX], uniforms([(*key, 2)], 1)[0, 0]
    return int(index * count) if chosen < augmentation.cutmix + augmentation.mixup else None


def rectangles(
    size: tuple[int, int], area: NDArray[np.float64], draws: NDArray[np.float64]
) -> NDArray[np.bool_]:  # → (batch, height, width)
    """True inside rectangles of these shares of the picture; `draws` (batch, 3) decide their shape and place."""
    aspect = np.exp(np.log(0.5) + np.log(4) * draws[:, 0])
    sides = (np.minimum(np.sqrt(area * aspect), 1), np.minimum(np.sqrt(area / aspect), 1))
    spans = []
    for length, share, place in zip(size, sides, draws[:, 1:].T, strict=True):
        first = np.floor(place * (length + 1 - np.rint(share * length)))[:, None]
        at = np.arange(length)
        spans.append((at >= first) & (at < first + np.rint(share * length)[:, None]))
    return spans[0][:, :, None] & spans[1][:, None, :]


def uniforms(keys: Sequence[tuple[int, ...]], count: int) -> NDArray[np.float64]:
    """(key, count) numbers from 0 to 1: SplitMix64 (Steele et al. 2014) of each key."""
    state = np.zeros(len(keys), np.uint64)
    for column in np.array(keys, np.uint64).T:
        state = _mixed(state + column + GOLDEN)
    bits = _mixed(state[:, None] + GOLDEN * np.arange(1, count + 1, dtype=np.uint64))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * MULTIPLIERS[0]
    bits = (bits ^ (bits >> np.uint64(27))) * MULTIPLIERS[1]
    return bits ^ (bits >> np.uint64(31))


def _shifted(length: int, most: int, draws: NDArray[np.float64]) -> NDArray[np.int64]:  # → (batch, length)
    """Places along a side after a shift by −most … most, mirrored at its ends."""
    shift = np.floor(draws * (2 * most + 1)).astype(np.int64) - most
    places = np.abs(np.arange(length) + shift[:, None])
    return np.minimum(places, 2 * (length - 1) - places)
