"""Images ⇄ rows of patches."""

from __future__ import annotations

from torch import Tensor


def cut_patches(images: Tensor, patch: tuple[int, int]) -> Tensor:
    """(batch, channel, height, width) → (batch, patch, channel·high·wide), row by row."""
    high, wide = patch
    cut = images.unfold(2, high, high).unfold(3, wide, wide)  # (batch, channel, row, column, high, wide)
    return cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def join_patches(patches: Tensor, *, patch: tuple[int, int], image: tuple[int, int]) -> Tensor:
    """The inverse: (batch, patch, channel·high·wide) → (batch, channel, height, width)."""
    high, wide = patch
    grid = patches.unflatten(1, (image[0] // high, image[1] // wide)).unflatten(3, (-1, high, wide))
    return grid.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
