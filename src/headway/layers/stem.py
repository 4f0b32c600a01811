"""A stem of convolutions in front of the blocks (Xiao et al. 2021, "Early convolutions help transformers see better").

3 × 3 convolutions, each with a norm and ReLU, some of stride 2, take the place of the one linear map of a patch: a
small vision transformer then learns from fewer pictures. The strides multiply to the side of a patch; a convolution
that changes neither channels nor resolution has a residual connection. Where the paper has batch norm there is group
norm, so that no picture depends on the others of its batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.layers.convnet import ConvNorm


@dataclass(frozen=True)
class ConvStemConfig:
    channels: tuple[int, ...]  # outputs of each convolution
    strides: tuple[int, ...]

    @property
    def stride(self) -> int:
        return math.prod(self.strides)

    def build(self, channels: int) -> ConvStem:
        return ConvStem(channels, self)


class ConvStem(nn.Module):
    def __init__(self, channels: int, config: ConvStemConfig):
        super().__init__()
        inputs = (channels, *config.channels)
        self.layers = nn.ModuleList(
            ConvLayer(into, out, stride=stride)
            for into, out, stride in zip(inputs, config.channels, config.strides, strict=False)
        )

    def forward(self, images: Tensor) -> Tensor:  # (batch, channel, height, width) → (batch, channel, row, column)
        x = images.contiguous(memory_format=torch.channels_last)  # the faster layout on CPUs and tensor cores
        for layer in self.layers:
            x = layer(x)
        return x


class ConvLayer(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, stride: int):
        super().__init__()
        self.conv = ConvNorm(inputs, outputs, 3, stride=stride, norm="group")
        self.residual = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        branch = self.conv(x)
        return torch.relu(x + branch if self.residual else branch)
