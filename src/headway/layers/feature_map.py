"""The front end of DETR (Carion et al. 2020): a convolutional network whose last feature map is a row of vectors, with
two-dimensional positions at the inputs of q and k."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.convnet import ConvNetConfig, ConvNorm, Convolution
from headway.layers.dropout import drop
from headway.layers.embedded import Embedded, Grid
from headway.layers.linear import TokenTable
from headway.layers.positions import positions_of
from headway.layers.tap import Tap

EPS = 1e-6


@dataclass(frozen=True)
class Sine2dConfig:
    """Sinusoids of row and column as shares of the picture times `scale`, each half of the vector."""

    scale: float = 2 * math.pi
    temperature: float = 10_000.0

    def build(self, width: int) -> Sine2d:
        return Sine2d(width, self)


@dataclass(frozen=True)
class Learned2dConfig:
    """A learned vector for each column, and one for each row."""

    count: int = 50  # of rows, and of columns

    def build(self, width: int) -> Learned2d:
        return Learned2d(width, self)


class Sine2d(nn.Module):
    def __init__(self, width: int, config: Sine2dConfig):
        super().__init__()
        self.width, self.config = width, config

    def forward(self, rows: int, columns: int, real: Tensor | None, like: Tensor) -> Tensor:
        """(batch or 1, rows · columns, width); `real` is (batch, rows, columns), True = not padding."""
        real = torch.ones(1, rows, columns, device=like.device) if real is None else real.float()
        y, x = real.cumsum(1), real.cumsum(2)  # counted from 1
        y, x = y / (y[:, -1:, :] + EPS), x / (x[:, :, -1:] + EPS)
        return torch.cat([self.vectors(y), self.vectors(x)], dim=-1).flatten(1, 2).to(like.dtype)

    def vectors(self, shares: Tensor) -> Tensor:  # (…) → (…, width / 2): sin, cos, sin, cos …
        return sine_vectors(shares, self.width // 2, scale=self.config.scale, temperature=self.config.temperature)


class Learned2d(nn.Module):
    def __init__(self, width: int, config: Learned2dConfig):
        super().__init__()
        self.rows, self.columns = (TokenTable(config.count, width // 2) for _ in range(2))

    def forward(self, rows: int, columns: int, real: Tensor | None, like: Tensor) -> Tensor:
        place = torch.arange(max(rows, columns), device=like.device)
        across = self.columns(place[:columns])[None].expand(rows, -1, -1)  # (row, column, width / 2)
        down = self.rows(place[:rows])[:, None].expand(-1, columns, -1)
        return torch.cat([across, down], dim=-1).flatten(0, 1)[None]


def sine_vectors(shares: Tensor, size: int, *, scale: float, temperature: float) -> Tensor:
    """(…) → (…, size): sin and cos of share · scale / temperature^(2i/size), in turn."""
    even = torch.arange(0, size, 2, device=shares.device, dtype=shares.dtype)
    angle = shares[..., None] * scale / temperature ** (even / size)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


@dataclass(frozen=True)
class FeatureMapConfig:
    width: int
    convnet: ConvNetConfig
    positions: Sine2dConfig | Learned2dConfig = Sine2dConfig()
    top_down: bool = False  # the last feature map is added to the one before it, of twice the resolution (FPN)
    dropout: float = 0.0

    inputs: ClassVar[Literal["image"]] = "image"
    vocab: ClassVar[int] = 0
    max_length: ClassVar[None] = None

    @property
    def channels(self) -> int:
        return self.convnet.channels

    @property
    def stride(self) -> int:
        """Pixels that a vector spans in each direction."""
        return self.convnet.stride // (2 if self.top_down else 1)

    def build(self) -> FeatureMap:
        return FeatureMap(self)


class FeatureMap(nn.Module):
    token_table: ClassVar[None] = None

    def __init__(self, config: FeatureMapConfig):
        super().__init__()
        self.config, width, net = config, config.width, config.convnet
        self.convnet = net.build()
        self.project = Convolution(net.stages[-1], width, 1, bias=True)
        self.lateral = Convolution(net.stages[-2], width, 1, bias=True) if config.top_down else None
        self.smooth = ConvNorm(width, width, 3, norm=net.norm) if config.top_down else None
        self.positions = config.positions.build(width)
        self.sum = Tap()

    def forward(
        self,
        images: Tensor,  # (batch, channel, height, width)
        *,
        padding_mask: Tensor | None = None,  # (batch, height, width), True = not padding
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Embedded:
        if positions is not None or segments is not None:
            raise ValueError("a feature map has its own positions and no segments")
        maps = self.convnet(images)
        x = self.project(maps[-1])  # (batch, width, row, column)
        if self.lateral is not None and self.smooth is not None:
            x = F.interpolate(x, size=maps[-2].shape[-2:]) + self.lateral(maps[-2])
            x = F.relu(self.smooth(x))
        rows, columns = x.shape[-2:]
        real = None
        if padding_mask is not None:
            real = F.interpolate(padding_mask[None].float(), size=(rows, columns))[0].bool()
        x = self.sum(x.flatten(2).transpose(1, 2))  # (batch, row · column, width)
        vectors = self.positions(rows, columns, real, x)
        x = drop(x, self.config.dropout) if self.training and self.config.dropout else x
        return Embedded(
            x,
            positions_of(x.shape[1], device=x.device),
            None if real is None else real.flatten(1),
            vectors,
            grid_of(rows, columns, padding_mask, like=x),
        )


def grid_of(rows: int, columns: int, padding_mask: Tensor | None, *, like: Tensor) -> Grid:
    """`padding_mask` is (batch, height, width): the picture fills a corner of it."""
    centres = [(torch.arange(count, device=like.device) + 0.5)[None] / count for count in (rows, columns)]
    if padding_mask is not None:
        for axis, (other, size) in enumerate(((2, padding_mask.shape[1]), (1, padding_mask.shape[2]))):
            real = padding_mask.any(other).sum(1, keepdim=True).clamp(min=1)  # (batch, 1) pixels
            centres[axis] = centres[axis] * size / real
    return Grid(*(each.to(like.dtype) for each in centres))
