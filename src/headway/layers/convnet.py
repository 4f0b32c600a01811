"""Residual convolutional networks (He et al. 2016): images → feature maps, each stage at half the resolution of the one
before. With frozen batch norms they are the backbones of published detectors; with group norms (Wu & He 2018), which do
not depend on the batch, they are trained from scratch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Unit = Literal["basic", "bottleneck"]

GROUPS = 8  # of a group norm
REDUCTION = 4  # of the channels inside a bottleneck


@dataclass(frozen=True)
class ConvNetConfig:
    stem: int  # channels of the first convolution
    stages: tuple[int, ...]  # channels of each stage
    depths: tuple[int, ...]  # residual units of each stage
    unit: Unit = "basic"
    norm: Literal["frozen", "group"] = "group"
    pool: bool = False  # the stem is ResNet's, 7 × 7 and a max pool, and the first stage keeps its resolution
    dilated: bool = False  # the last stage has dilated convolutions in place of its stride (DC5)
    channels: int = 3
    names: Literal["timm", "transformers"] = "transformers"  # of its tensors in a published file

    @property
    def stride(self) -> int:
        """Pixels that one step of the last feature map spans."""
        return 2 ** (1 + len(self.stages)) // (2 if self.dilated else 1)

    def build(self) -> ConvNet:
        return ConvNet(self)


class Convolution(nn.Module):
    """A 2-D convolution without a bias, unless asked for. The kernel is kept as the matrix that it is for each window,
    (out, in · height · width): optimisers treat it like those of linear layers."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, dilation: int = 1, bias: bool = False
    ):
        super().__init__()
        self.inputs, self.kernel, self.stride, self.dilation = inputs, kernel, stride, dilation
        self.weight = nn.Parameter(torch.empty(outputs, inputs * kernel * kernel))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        if not self.weight.is_meta:
            nn.init.normal_(self.weight, std=math.sqrt(2 / self.weight.shape[1]))

    def forward(self, x: Tensor) -> Tensor:  # (batch, in, height, width) → (batch, out, height, width)
        kernel = self.weight.unflatten(1, (self.inputs, self.kernel, self.kernel))
        padding = self.dilation * (self.kernel // 2)
        return F.conv2d(x, kernel, self.bias, stride=self.stride, padding=padding, dilation=self.dilation)


class FrozenBatchNorm(nn.Module):
    """A batch norm whose statistics, scale and shift are constants."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, *, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, x: Tensor) -> Tensor:  # (batch, channel, height, width)
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]


class ConvNorm(nn.Module):
    """Convolution and norm; what follows them is up to the caller."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, norm: str, stride: int = 1, dilation: int = 1):
        super().__init__()
        self.conv = Convolution(inputs, outputs, kernel, stride=stride, dilation=dilation)
        self.norm = FrozenBatchNorm(outputs) if norm == "frozen" else nn.GroupNorm(math.gcd(GROUPS, outputs), outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class ResidualUnit(nn.Module):
    """relu(x + f(x)), where f is two 3 × 3 convolutions (basic) or 1 × 1, 3 × 3, 1 × 1 with a quarter of the channels
    inside (bottleneck). The shortcut is a 1 × 1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, config: ConvNetConfig, *, stride: int, dilations: tuple[int, int]):
        super().__init__()
        norm, inside = config.norm, outputs // REDUCTION
        if config.unit == "basic":
            convs = [
                ConvNorm(inputs, outputs, 3, stride=stride, dilation=dilations[0], norm=norm),
                ConvNorm(outputs, outputs, 3, dilation=dilations[1], norm=norm),
            ]
        else:
            convs = [
                ConvNorm(inputs, inside, 1, norm=norm),
                ConvNorm(inside, inside, 3, stride=stride, dilation=dilations[0], norm=norm),
                ConvNorm(inside, outputs, 1, norm=norm),
            ]
        self.convs = nn.ModuleList(convs)
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else ConvNorm(inputs, outputs, 1, stride=stride, norm=norm)

    def begin_as_identity(self) -> None:
        """Sets the scale of the branch's last norm to zero, if it is learned."""
        norm = self.convs[-1].norm
        if isinstance(norm, nn.GroupNorm):
            nn.init.zeros_(norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        branch = x
        for conv in self.convs[:-1]:
            branch = F.relu(conv(branch))
        return F.relu((x if self.shortcut is None else self.shortcut(x)) + self.convs[-1](branch))


class ConvNet(nn.Module):
    def __init__(self, config: ConvNetConfig):
        super().__init__()
        self.config = config
        self.stem = ConvNorm(config.channels, config.stem, 7 if config.pool else 3, stride=2, norm=config.norm)
        self.stages = nn.ModuleList()
        last = len(config.stages) - 1
        for number, (inputs, outputs) in enumerate(pairwise((config.stem, *config.stages))):
            dilated = config.dilated and number == last
            stride = 1 if dilated or (config.pool and number == 0) else 2
            self.stages.append(self._stage(inputs, outputs, config.depths[number], stride=stride, dilated=dilated))

    def _stage(self, inputs: int, outputs: int, depth: int, *, stride: int, dilated: bool) -> nn.Sequential:
        """A dilated stage begins with the density of the one before it, as in torchvision."""
        then = 2 if dilated else 1
        first = ResidualUnit(inputs, outputs, self.config, stride=stride, dilations=(1, then))
        rest = [ResidualUnit(outputs, outputs, self.config, stride=1, dilations=(then, then)) for _ in range(depth - 1)]
        return nn.Sequential(first, *rest)

    def forward(self, images: Tensor) -> list[Tensor]:
        """(batch, channel, height, width) → the feature map of each stage."""
        x = F.relu(self.stem(images))
        if self.config.pool:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps
