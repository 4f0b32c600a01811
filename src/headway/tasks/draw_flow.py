"""Drawing by rectified flow: points of the straight lines from noise to pictures, and pictures from captions.

The noise and the time of an example depend on its own seed alone, so a resumed run sees the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.errors import ConfigError
from headway.generation.flow import Velocity, guided_velocity, integrate, noise_of
from headway.generation.flow_settings import FlowSettings
from headway.models import recipes
from headway.models.config import ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.tasks.draw_scores import GUIDANCES
from headway.tasks.task import device_of

if TYPE_CHECKING:
    from headway.tasks.draw import Draw

STRIP = 9  # states that a strip shows
Shape = tuple[int, int, int]  # channel, height, width


@dataclass(frozen=True)
class LinePoint:
    """What is drawn at random for one example."""

    noise: NDArray[np.float32]  # (channel, height, width)
    time: float  # from 0 (noise) to 1 (picture)
    empty_caption: bool = False


def training_point(seed: Sequence[int], shape: Shape, *, caption_dropout: float) -> LinePoint:
    """Times are logit-normal: more of them in the middle, where velocities are hard to predict (Esser et al. 2024)."""
    random = np.random.default_rng(seed)
    noise = random.standard_normal(shape, dtype=np.float32)
    return LinePoint(noise, 1 / (1 + math.exp(-random.standard_normal())), bool(random.random() < caption_dropout))


def evaluation_point(number: int, shape: Shape) -> LinePoint:
    """Of example `number`. The times of any first examples are spread evenly: multiples of the golden ratio."""
    noise = np.random.default_rng((0, number)).standard_normal(shape, dtype=np.float32)
    return LinePoint(noise, number * (math.sqrt(5) - 1) / 2 % 1)


def on_the_lines(pictures: NDArray[np.float32], points: Sequence[LinePoint]) -> tuple[Tensor, Tensor, Tensor]:
    """(noisy pictures, velocities, times) of normalised pictures (batch, channel, height, width)."""
    images, noise = torch.from_numpy(pictures), torch.from_numpy(np.stack([point.noise for point in points]))
    time = torch.tensor([point.time for point in points])  # (batch,)
    return torch.lerp(noise, images, time[:, None, None, None]), images - noise, time


def squared_error(found: Tensor, wanted: Tensor) -> Tensor:
    """The mean over the pixels of each picture, (batch,)."""
    return (found.float() - wanted).square().flatten(1).mean(1)


class FlowDrawing:
    options = ("n", "steps", "guidance", "seed", "strip")
    guidances = GUIDANCES

    def __init__(self, task: Draw) -> None:
        self.task = task

    @property
    def shape(self) -> Shape:
        return self.task.channels, self.task.image, self.task.image

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        task = self.task
        return recipes.flow(
            size,
            recipe,
            vocab=len(task.tokenizer),
            image=(task.image, task.image),
            patch=task.patch,
            channels=task.channels,
            caption_layers=task.caption_layers,
        )

    def adapt(self, model: Model) -> Model:
        if model.shape != "flow":
            raise ConfigError(f"task draw starts from a model trained by it, not from this {model.shape}")
        patches = model.config.denoiser.embedding
        self.task.image, self.task.patch, self.task.channels = patches.image[0], patches.patch[0], patches.channels
        return model

    def batch(
        self, pixels: np.ndarray, captions: Sequence[Any], *, seeds: Sequence[tuple[int, ...]], where: list[str]
    ) -> Batch:
        dropout = self.task.caption_dropout
        points = [training_point(seed, self.shape, caption_dropout=dropout) for seed in seeds]
        return self._batch(pixels, captions, points, where=where)

    def evaluation_batch(self, pixels: np.ndarray, captions: Sequence[Any], numbers: Sequence[int]) -> Batch:
        return self._batch(pixels, captions, [evaluation_point(number, self.shape) for number in numbers], where=[])

    def _batch(
        self, pixels: np.ndarray, captions: Sequence[Any], points: Sequence[LinePoint], *, where: list[str]
    ) -> Batch:
        empty = self.task.tokenizer.encode("")
        read = [empty if point.empty_caption else caption for caption, point in zip(captions, points, strict=True)]
        noisy, velocity, time = on_the_lines(self.task.image_processor.normalize(pixels), points)
        inputs = {**self.task.text_inputs(read), "images": noisy, "time": time}
        return Batch(inputs, {"velocity": velocity}, count=len(points), where=where)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return Loss(squared_error(model(**batch.inputs).velocity, batch.targets["velocity"]).sum())

    @torch.no_grad()
    def pictures(
        self, model: Model, captions: Sequence[Sequence[int]], seeds: Sequence[int], options: dict[str, Any]
    ) -> list[np.ndarray]:
        """Pictures (caption, height, width, channel) from token ids, eight bits a colour; with `strip`, before them the
        states between noise and picture."""
        settings = FlowSettings(**{"steps": self.task.euler_steps, "guidance": self.task.guidance, **options})
        velocity, noise = self._flow(model, captions, seeds, guidance=settings.guidance)
        spread = np.linspace(0, settings.steps, min(STRIP, settings.steps + 1)).round().tolist()
        shown = {settings.steps, *(spread if settings.strip else [])}
        states: list[np.ndarray] = []

        def after(step: int, images: Tensor) -> None:
            if step in shown:
                states.append(self._pixels(images))

        after(0, noise)
        integrate(velocity, noise, steps=settings.steps, on_step=after)
        return states

    def _flow(
        self, model: Model, captions: Sequence[Sequence[int]], seeds: Sequence[int], *, guidance: float
    ) -> tuple[Velocity, Tensor]:
        """The velocity for token ids, and the noise (caption, channel, height, width) that it starts from."""
        device, dtype = device_of(model), next(model.parameters()).dtype
        inputs = {name: tensor.to(device) for name, tensor in self.task.text_inputs(captions).items()}
        velocity = guided_velocity(
            cast(Any, model),
            inputs["inputs"],
            torch.tensor(self.task.tokenizer.encode(""), device=device),
            padding_mask=inputs.get("padding_mask"),
            guidance=guidance,
        )
        return velocity, noise_of(seeds, self.shape, device=device, dtype=dtype)

    @torch.no_grad()
    def state_at(self, model: Model, caption: Sequence[int], *, seed: int, time: float) -> tuple[Tensor, np.ndarray]:
        """The state (1, channel, height, width) of one drawing at about this time, and the picture it becomes."""
        velocity, noise = self._flow(model, [caption], [seed], guidance=self.task.guidance)
        states = [noise]
        integrate(velocity, noise, steps=self.task.euler_steps, on_step=lambda _, images: states.append(images))
        return states[round(time * self.task.euler_steps)], self._pixels(states[-1])[0]

    def _pixels(self, images: Tensor) -> np.ndarray:
        """(batch, channel, height, width), normalised → (batch, height, width, channel), from 0 to 255."""
        values = images.float() * self.task.std + self.task.mean
        return (values.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
