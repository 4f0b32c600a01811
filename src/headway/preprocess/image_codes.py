"""Pictures ⇄ codes: each patch is replaced by the nearest of a few that were learned from data by k-means (vector
quantisation). Codes are tokens of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pictures = NDArray[np.uint8]  # (picture, height, width, channel)
ITERATIONS = 12
MOST_PATCHES = 50_000  # that the codes are learned from


@dataclass(frozen=True)
class Codebook:
    values: NDArray[np.uint8]  # (code, high·wide·channel)
    patch: int

    @classmethod
    def fit(cls, pictures: Pictures, *, patch: int, codes: int, seed: int = 0) -> Codebook:
        """Lloyd's algorithm from random different patches; a code without patches becomes the one that fits worst."""
        random = np.random.default_rng(seed)
        cut = _cut(pictures, patch)
        cut = cut[np.sort(random.permutation(len(cut))[:MOST_PATCHES])]
        different = np.unique(cut, axis=0)
        means = different[np.sort(random.permutation(len(different))[:codes])].astype(np.float32)
        data = cut.astype(np.float32)
        for _ in range(ITERATIONS if len(different) > codes else 0):
            nearest, distance = _nearest(data, means)
            counts = np.bincount(nearest, minlength=len(means))
            sums = np.stack([np.bincount(nearest, column, minlength=len(means)) for column in data.T], axis=1)
            means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], means).astype(np.float32)
            unused = np.flatnonzero(counts == 0)
            means[unused] = data[np.argsort(-distance, kind="stable")[: len(unused)]]
        return cls(np.rint(means).astype(np.uint8), patch)

    def __len__(self) -> int:
        return len(self.values)

    def encode(self, pictures: Pictures) -> NDArray[np.int64]:
        """(picture, patch): the nearest code of each patch, row by row."""
        nearest, _ = _nearest(_cut(pictures, self.patch).astype(np.float32), self.values.astype(np.float32))
        return nearest.reshape(len(pictures), -1)

    def decode(self, codes: NDArray[np.int64], *, side: int) -> Pictures:
        """Pictures of `side` × `side` pixels."""
        grid, size = side // self.patch, self.patch
        patches = self.values[codes].reshape(len(codes), grid, grid, size, size, -1)
        return patches.transpose(0, 1, 3, 2, 4, 5).reshape(len(codes), side, side, -1)

    def to_lists(self) -> list[list[int]]:
        return self.values.tolist()

    @classmethod
    def from_lists(cls, values: Sequence[Sequence[int]], *, patch: int) -> Codebook:
        return cls(np.asarray(values, dtype=np.uint8), patch)


def _cut(pictures: Pictures, patch: int) -> Pictures:
    """(picture · patch, high·wide·channel)"""
    count, high, wide, channels = pictures.shape
    grid = pictures.reshape(count, high // patch, patch, wide // patch, patch, channels)
    return grid.transpose(0, 1, 3, 2, 4, 5).reshape(-1, patch * patch * channels)


def _nearest(data: NDArray[np.float32], means: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(index of the nearest mean, squared distance to it) of each row."""
    found, best = np.empty(len(data), np.int64), np.empty(len(data), np.float32)
    for start in range(0, len(data), 8192):
        some = data[start : start + 8192]
        squared = np.square(means).sum(1) - 2 * some @ means.T  # (row, mean), without the rows' own squares
        nearest = squared.argmin(1)
        found[start : start + 8192] = nearest
        best[start : start + 8192] = squared[np.arange(len(some)), nearest] + np.square(some).sum(1)
    return found, best
