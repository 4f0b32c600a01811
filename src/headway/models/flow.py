"""The flow shape: from noise to an image that fits a caption, by rectified flow (Liu et al. 2023, Lipman et al. 2023).

x_t = (1 − t)·noise + t·image is a straight line, and the model predicts its velocity, image − noise. A transformer over
patches (Peebles & Xie 2023) computes it: the time modulates every block (AdaLN-Zero), the caption is read by
cross-attention and, as the mean of its tokens, added to the time.
"""

from __future__ import annotations

from torch import Tensor, nn

from headway.layers.linear import Linear
from headway.layers.patches import join_patches
from headway.layers.positions import sinusoids
from headway.models.config import DenoiserConfig, FlowConfig
from headway.models.encoder import Encoder
from headway.models.heads import pool
from headway.models.outputs import Output
from headway.models.protocol import HeadKind, Inputs, Model, Part
from headway.models.stack import Stack

TIME_SCALE = 1000.0  # times are spread over the positions that sinusoids tell apart
TIME_FREQUENCIES = 128


class TimeEmbedding(nn.Module):
    """A time from 0 to 1 as a vector: sinusoids through two linear layers (Ho et al. 2020; Peebles & Xie 2023)."""

    def __init__(self, width: int):
        super().__init__()
        self.up = Linear(TIME_FREQUENCIES, width)
        self.down = Linear(width, width)

    def forward(self, time: Tensor) -> Tensor:  # (batch,) → (batch, width)
        waves = sinusoids(time * TIME_SCALE, TIME_FREQUENCIES, layout="halves").to(self.up.weight.dtype)
        return self.down(nn.functional.silu(self.up(waves)))


class VelocityHead(nn.Module):
    """Every token → the pixels of its patch."""

    is_head = True

    def __init__(self, config: DenoiserConfig):
        super().__init__()
        patches = config.embedding
        self.image, self.patch = patches.image, patches.patch
        self.project = Linear(patches.width, patches.channels * patches.patch[0] * patches.patch[1])

    def forward(self, hidden: Tensor) -> Tensor:  # (batch, patch, width) → (batch, channel, height, width)
        return join_patches(self.project(hidden), patch=self.patch, image=self.image)


class Denoiser(Model):
    def __init__(self, config: DenoiserConfig):
        super().__init__()
        self.config = config
        width, condition = config.stack.block.width, config.stack.block.condition
        assert condition is not None
        self.embedding = config.embedding.build()
        self.time = TimeEmbedding(condition)
        self.caption = Linear(width, condition)
        self.stack = Stack(config.stack)
        self.head = VelocityHead(config)

    @property
    def inputs(self) -> Inputs:
        return "image"

    def forward(
        self,
        images: Tensor,  # (batch, channel, height, width), noisy
        *,
        time: Tensor,  # (batch,), from 0 (noise) to 1 (image)
        memory: Tensor,  # (batch, source, width)
        memory_padding_mask: Tensor | None = None,
    ) -> Output:
        condition = self.time(time) + self.caption(pool(memory, memory_padding_mask, "mean"))  # (batch, condition)
        hidden = self.stack(
            self.embedding(images), memory=memory, memory_padding_mask=memory_padding_mask, condition=condition
        )
        return Output(hidden, velocity=self.head(hidden))


class FlowModel(Model):
    def __init__(self, config: FlowConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.denoiser = Denoiser(config.denoiser)

    @property
    def parts(self) -> list[Part]:
        return [Part("encoder", "encoder.", self.encoder), Part("denoiser", "denoiser.", self.denoiser)]

    @property
    def head_kind(self) -> HeadKind:
        return "velocity"

    @property
    def image_channels(self) -> int:
        return self.config.denoiser.embedding.channels

    @property
    def max_length(self) -> int | None:
        return self.encoder.max_length

    @property
    def vocab_size(self) -> int | None:
        return self.encoder.vocab_size

    @property
    def token_table(self) -> Tensor | None:
        return self.encoder.token_table

    def forward(
        self,
        inputs: Tensor,  # token ids of the captions (batch, source)
        *,
        images: Tensor,  # (batch, channel, height, width), noisy
        time: Tensor,  # (batch,), from 0 (noise) to 1 (image)
        padding_mask: Tensor | None = None,
    ) -> Output:
        memory = self.encoder.encode(inputs, padding_mask=padding_mask)
        output = self.denoiser(images, time=time, memory=memory, memory_padding_mask=padding_mask)
        output.memory = memory
        return output
