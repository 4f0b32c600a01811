"""Front ends: what turns inputs into vectors, one protocol for all of them.

A front end is a module whose `forward(inputs, *, padding_mask, positions, segments)` returns `Embedded`: the vectors,
which of them are padding, and where they are. Its config says what it reads (`inputs`), how much (`max_length`,
`vocab`), and builds it. To add one, write the two and name the config in `FrontEndConfig`. The length of its output may
differ from that of its input (patches, strided convolutions): the padding mask it returns is that of the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.embedded import Embedded
from headway.layers.feature_map import FeatureMapConfig
from headway.layers.linear import Linear, TokenTable
from headway.layers.norms import NormConfig
from headway.layers.patches import cut_patches
from headway.layers.positions import (
    LearnedConfig,
    Positions,
    SinusoidalConfig,
    positions_of,
    resized_grid,
    sinusoids,
)
from headway.layers.stem import ConvStemConfig
from headway.layers.tap import Tap

PositionsAt = Literal["input", "query_key"]


# ---------------------------------------------------------------------------------------- tokens


@dataclass(frozen=True)
class EmbeddingConfig:
    vocab: int
    width: int
    positions: LearnedConfig | SinusoidalConfig | None = None
    segments: int = 0  # BERT's sentence A / sentence B
    scale: float = 1.0  # √width in the 2017 paper
    norm: NormConfig | None = None
    dropout: float = 0.0
    positions_at: PositionsAt = "input"  # where position vectors are added: here, or to the inputs of q and k (DETR)
    query_vector: bool = False  # a learned vector for a token that is to be predicted (XLNet's query stream)

    inputs: ClassVar[Literal["text"]] = "text"

    @property
    def max_length(self) -> int | None:
        """Tokens that have a position; None: no limit."""
        return (self.positions.count or None) if self.positions is not None else None

    def build(self) -> Embedding:
        return Embedding(self)


class Embedding(nn.Module):
    """token · scale + position + segment, then norm and dropout."""

    def __init__(self, config: EmbeddingConfig):
        super().__init__()
        self.tokens = TokenTable(config.vocab, config.width)
        self.positions = config.positions.build(config.width) if config.positions else None
        self.segments = TokenTable(config.segments, config.width) if config.segments else None
        self.query = TokenTable(1, config.width) if config.query_vector else None
        self.norm = config.norm.build(config.width) if config.norm else None
        self.scale, self.dropout, self.positions_at = config.scale, config.dropout, config.positions_at
        self.token, self.position, self.sum = Tap(), Tap(), Tap()

    @property
    def token_table(self) -> Tensor:
        return self.tokens.table

    def forward(
        self,
        ids: Tensor,  # (batch, length)
        *,
        padding_mask: Tensor | None = None,
        positions: Tensor | Positions | None = None,  # None: counted over real tokens
        segments: Tensor | None = None,
    ) -> Embedded:
        if not isinstance(positions, Positions):
            positions = positions_of(ids.shape[1], device=ids.device, given=positions, padding_mask=padding_mask)
        x = self.token(self.tokens(ids))  # (batch, length, width)
        if self.scale != 1.0:
            x = x * self.scale
        vectors = None if self.positions is None else self.position(self.positions(positions)).to(x.dtype)
        if vectors is not None and self.positions_at == "input":
            x = x + vectors
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.norm is not None:
            x = self.norm(x)
        x = self.sum(x)
        x = drop(x, self.dropout) if self.training and self.dropout else x
        return Embedded(
            x,
            positions,
            padding_mask,
            query_key_positions=vectors if self.positions_at == "query_key" else None,
            segments=segments if self.segments is None else None,
        )

    def query_vectors(self, rows: int, count: int) -> Tensor:  # (row, count, width)
        """The beginning of a query stream: one vector, wherever the token is."""
        assert self.query is not None
        x = self.sum(self.query.weight.expand(rows, count, -1))
        return drop(x, self.dropout) if self.training and self.dropout else x


# ---------------------------------------------------------------------------------------- image patches


@dataclass(frozen=True)
class PatchConfig:
    width: int
    image: tuple[int, int]  # height, width
    patch: tuple[int, int]
    channels: int = 3
    bias: bool = True
    dropout: float = 0.0
    class_token: bool = True  # a learned token in front of the patches
    distillation_token: bool = False  # a second one (DeiT)
    detection_tokens: int = 0  # learned tokens behind the patches, the queries of a detector (YOLOS)
    layer_positions: int = 0  # further tables of positions, one behind each of the first so many blocks (YOLOS)
    stem: ConvStemConfig | None = None  # convolutions in place of the linear map of each patch

    inputs: ClassVar[Literal["image"]] = "image"
    vocab: ClassVar[int] = 0
    max_length: ClassVar[None] = None

    def grid(self, image: tuple[int, int]) -> tuple[int, int]:
        """(rows, columns) of patches in an image of this size. What fills no patch is left out by the linear map and
        padded by a stem."""
        if self.stem is not None:
            return -(-image[0] // self.patch[0]), -(-image[1] // self.patch[1])
        return image[0] // self.patch[0], image[1] // self.patch[1]

    @property
    def count(self) -> int:
        return math.prod(self.grid(self.image))

    @property
    def prefix(self) -> tuple[str, ...]:
        """Names of the tokens in front of the patches."""
        return ("class",) * self.class_token + ("distillation",) * self.distillation_token

    def build(self) -> PatchEmbedding:
        return PatchEmbedding(self)


class PatchEmbedding(nn.Module):
    """An image cut into patches, each a token by one linear map or by a stem of convolutions, with learned positions; a
    class token in front if there is one (Dosovitskiy et al. 2021), and a distillation token (Touvron et al. 2021);
    detection tokens behind (Fang et al. 2021). For an image of another size the positions are interpolated."""

    token_table: ClassVar[None] = None

    def __init__(self, config: PatchConfig):
        super().__init__()
        self.config = config
        self.stem = None if config.stem is None else config.stem.build(config.channels)
        inputs = config.channels * math.prod(config.patch) if config.stem is None else config.stem.channels[-1]
        self.project = Linear(inputs, config.width, bias=config.bias)
        self.first = nn.Parameter(torch.zeros(1, 1, config.width)) if config.class_token else None
        self.distillation = nn.Parameter(torch.zeros(1, 1, config.width)) if config.distillation_token else None
        tokens, count = config.detection_tokens, config.layer_positions
        self.detection = nn.Parameter(torch.zeros(1, tokens, config.width)) if tokens else None
        length = len(config.prefix) + config.count + tokens
        self.positions = nn.Parameter(torch.zeros(1, length, config.width))
        self.layer_positions = nn.Parameter(torch.zeros(count, 1, length, config.width)) if count else None
        self.patch, self.sum = Tap(), Tap()

    def forward(
        self,
        images: Tensor,  # (batch, channel, height, width)
        *,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Embedded:
        if positions is not None or segments is not None:
            raise ValueError("image patches have their own positions and no segments")
        if self.stem is None:
            flat = cut_patches(images, self.config.patch)  # (batch, patch, channel·high·wide)
        else:
            flat = self.stem(images).flatten(2).transpose(1, 2)  # (batch, patch, channel)
        x = self.patch(self.project(flat))  # (batch, patch, width)
        behind = [] if self.detection is None else [self.detection.expand(len(x), -1, -1)]
        x = torch.cat([*(token.expand(len(x), -1, -1) for token in self.prefix()), x, *behind], dim=1)
        x = self.sum(x + self.positions_for(images.shape[2:], self.positions))
        x = drop(x, self.config.dropout) if self.training and self.config.dropout else x
        between = self.layer_positions
        return Embedded(
            x,
            positions_of(x.shape[1], device=x.device),
            None if padding_mask is None else self.token_mask(padding_mask),
            layer_positions=None if between is None else self.positions_for(images.shape[2:], between[:, 0])[:, None],
        )

    def prefix(self) -> list[Tensor]:
        """The tokens in front of the patches, each (1, 1, width)."""
        return [token for token in (self.first, self.distillation) if token is not None]

    def positions_for(self, image: Sequence[int], positions: Tensor) -> Tensor:  # (n, length, width), both
        """The positions of an image of this height and width, from those of `config.image`."""
        known, grid = self.config.grid(self.config.image), self.config.grid((image[0], image[1]))
        if grid == known:
            return positions
        first = len(self.config.prefix)
        last = first + self.config.count
        patches = resized_grid(positions[:, first:last], known, grid)
        return torch.cat([positions[:, :first], patches, positions[:, last:]], dim=1)

    def token_mask(self, padding_mask: Tensor) -> Tensor:
        """(batch, height, width), True = not padding → (batch, token): a patch is real if its first pixel is."""
        grid = self.config.grid((padding_mask.shape[1], padding_mask.shape[2]))
        real = F.interpolate(padding_mask[:, None].float(), size=grid)[:, 0].bool().flatten(1)
        others = real.new_ones(len(real), 1)
        return torch.cat(
            [
                others.expand(-1, len(self.config.prefix)),
                real,
                others.expand(-1, self.config.detection_tokens),
            ],
            dim=1,
        )


# ---------------------------------------------------------------------------------------- audio frames


KERNEL = 3  # frames that a convolution joins


@dataclass(frozen=True)
class FrameConfig:
    """Frames of a spectrogram through convolutions."""

    width: int
    bins: int  # values of a frame
    strides: tuple[int, ...] = (1, 2)  # of the convolutions; their product is how many frames become one vector
    positions: int = 0  # vectors of a fixed sinusoidal table, added behind the convolutions; 0: none
    dropout: float = 0.0

    inputs: ClassVar[Literal["audio"]] = "audio"
    vocab: ClassVar[int] = 0

    @property
    def stride(self) -> int:
        return math.prod(self.strides)

    @property
    def max_length(self) -> int | None:
        """Frames that have a position; None: no limit."""
        return self.positions * self.stride or None

    def build(self) -> FrameEmbedding:
        return FrameEmbedding(self)


class FrameEmbedding(nn.Module):
    """Convolutions over time, GELU behind each, then fixed positions (Whisper, Radford et al. 2022). A convolution is a
    linear map of neighbouring frames. Padding is zero before each of them, as what lies beyond the end is."""

    token_table: ClassVar[None] = None
    positions: Tensor | None

    def __init__(self, config: FrameConfig):
        super().__init__()
        self.config = config
        inputs = [config.bins, *[config.width] * (len(config.strides) - 1)]
        self.convolutions = nn.ModuleList(Linear(KERNEL * size, config.width) for size in inputs)
        table = sinusoids(config.positions, config.width, layout="halves") if config.positions else None
        self.register_buffer("positions", table)  # (position, width)
        self.frames, self.sum = Tap(), Tap()

    def forward(
        self,
        frames: Tensor,  # (batch, frame, bin)
        *,
        padding_mask: Tensor | None = None,  # (batch, frame), True = real
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Embedded:
        if positions is not None or segments is not None:
            raise ValueError("audio frames have their own positions and no segments")
        x = frames
        for stride, convolution in zip(self.config.strides, self.convolutions, strict=True):
            if padding_mask is not None:
                x = x * padding_mask[:, :, None]
                padding_mask = padding_mask[:, ::stride]
            around = nn.functional.pad(x, (0, 0, 1, 1))  # (batch, 1 + frame + 1, …)
            count = x.shape[1]
            near = torch.cat([around[:, shift : shift + count : stride] for shift in range(KERNEL)], dim=-1)
            x = nn.functional.gelu(convolution(near))  # (batch, ⌈frame / stride⌉, width)
        x = self.frames(x)
        if self.positions is not None:
            x = x + self.positions[: x.shape[1]].to(x.dtype)
        x = self.sum(x)
        x = drop(x, self.config.dropout) if self.training and self.config.dropout else x
        return Embedded(x, positions_of(x.shape[1], device=x.device), padding_mask)


FrontEndConfig = EmbeddingConfig | PatchConfig | FrameConfig | FeatureMapConfig
