"""A convolution over neighbouring tokens beside the first block (DeBERTa v2, He et al. 2021): its branch reads what the
block reads, and is added behind it: norm(block(x) + activation(dropout(conv(x))))."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.context import Context
from headway.layers.dropout import drop
from headway.layers.feedforward import ACTIVATIONS, Activation
from headway.layers.linear import Linear
from headway.layers.masks import sequence_numbers
from headway.layers.norms import NormConfig
from headway.layers.tap import Tap


@dataclass(frozen=True)
class ConvolutionConfig:
    kernel: int
    norm: NormConfig
    activation: Activation = "tanh"
    dropout: float = 0.0

    def problem(self) -> str | None:
        return None if self.kernel % 2 else f"kernel is {self.kernel}: it must be odd, so that the length stays"

    def build(self, width: int) -> NeighbourConvolution:
        return NeighbourConvolution(width, self)


class NeighbourConvolution(nn.Module):
    """A linear map of neighbouring vectors. What lies beyond the ends of a text, and its padding, is zero."""

    def __init__(self, width: int, config: ConvolutionConfig):
        super().__init__()
        self.kernel, self.dropout = config.kernel, config.dropout
        self.conv = Linear(config.kernel * width, width)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = config.norm.build(width)
        self.stream = Tap()

    def forward(self, x: Tensor, y: Tensor, context: Context) -> Tensor:
        """`x` is what the block reads and `y` what it returns, both (batch, length, width)."""
        real, lengths = context.padding_mask, context.mask.sequence_lengths
        x = x if real is None else x * real[:, :, None].to(x.dtype)
        half, count = self.kernel // 2, x.shape[1]
        around = F.pad(x, (0, 0, half, half))  # (batch, half + length + half, width)
        near = [around[:, shift : shift + count] for shift in range(self.kernel)]
        if lengths is not None:  # sequences laid end to end: a neighbour belongs to the same one
            number = sequence_numbers(lengths, x.device)
            numbers = F.pad(number, (half, half), value=-1)
            near = [part * (numbers[i : i + count] == number)[:, None].to(x.dtype) for i, part in enumerate(near)]
        branch = self.conv(torch.cat(near, dim=-1))  # (batch, length, width)
        if self.training and self.dropout:
            branch = drop(branch, self.dropout)
        return self.stream(self.norm(y + self.activation(branch)))
