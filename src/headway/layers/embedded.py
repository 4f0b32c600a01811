"""What a front end returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.layers.positions import Positions


@dataclass(frozen=True)
class Grid:
    """Where the vectors of an image are: the centres of their rows and columns, as shares of the picture."""

    rows: Tensor  # (batch or 1, row)
    columns: Tensor  # (batch or 1, column)

    def centres(self) -> Tensor:
        """(batch or 1, row · column, 2): x and y of each vector."""
        shape = -1, self.rows.shape[1], self.columns.shape[1]
        x, y = self.columns[:, None, :].expand(*shape), self.rows[:, :, None].expand(*shape)
        return torch.stack([x, y], dim=-1).flatten(1, 2)


@dataclass(frozen=True)
class Embedded:
    x: Tensor  # (batch, length, width)
    positions: Positions
    padding_mask: Tensor | None = None  # (batch, length), True = real
    query_key_positions: Tensor | None = None  # (batch or 1, length, width), for the inputs of q and k
    grid: Grid | None = None  # of a feature map
    segments: Tensor | None = None  # (batch, length), where they are not in x: compared at the scores (XLNet)
    layer_positions: Tensor | None = None  # (n, 1, length, width), added behind each of the first n blocks

    @property
    def is_plain(self) -> bool:
        """Whether all that the blocks get is x."""
        return self.query_key_positions is None and self.layer_positions is None
