"""`classify-image`: one label for an image (ViT, Dosovitskiy et al. 2021)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from headway.data.batch import Batch
from headway.data.builtin.pool import Builtin
from headway.data.builtin.shapes import DRAWN_SHAPES
from headway.data.dataset import RowReader
from headway.errors import ConfigError
from headway.models import recipes
from headway.models.config import ClassifyHeadConfig, ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.models.rehead import with_head
from headway.preprocess.image import stored_image
from headway.preprocess.image_processor import ImageProcessor
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.classification import Classification
from headway.tasks.task import Example

THREADED_BYTES = 1 << 13  # mean size of files from which decoding is worth a thread
MEASURED = 1000  # images of which mean and standard deviation are computed


@dataclass
class ClassifyImage(Classification):
    name: ClassVar[str] = "classify-image"
    builtin: ClassVar[Builtin] = DRAWN_SHAPES
    fields: ClassVar[tuple[str, ...]] = ("image", "label")
    input_fields: ClassVar[tuple[str, ...]] = ("image",)
    reads_text: ClassVar[bool] = False

    image: int = 32  # pixels per side; images are resized to it
    patch: int = 4
    channels: int = 3
    mean: list[float] = field(default_factory=list)  # of each channel, from 0 to 1
    std: list[float] = field(default_factory=list)
    loaded_processor: ImageProcessor | None = field(default=None, repr=False)  # of the folder, instead of the above

    @property
    def image_processor(self) -> ImageProcessor:
        if self.loaded_processor is not None:
            return self.loaded_processor
        mean, std = (tuple(self.mean), tuple(self.std)) if self.mean and self.std else (None, None)
        return ImageProcessor(size=(self.image, self.image), mean=mean, std=std, channels=self.channels)

    def processor(self, base: Processor) -> Processor:
        return base.with_image(self.image_processor)

    def use_processor(self, processor: Processor) -> None:
        self.loaded_processor = processor.image

    @classmethod
    def from_data(cls, rows: RowReader, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=None, **options)  # type: ignore[arg-type]
        task.count_labels(rows)
        if not task.mean or not task.std:
            task.mean, task.std = task._measured(rows)
        task.mean, task.std = list(task.mean), list(task.std)
        return task

    def _measured(self, rows: RowReader) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel, over images spread evenly through the data."""
        step = max(1, sum(self.counts) // MEASURED)
        pictures = [self._pixels(row.fields["image"], where=row.where) for row in islice(rows(), 0, None, step)]
        values = np.stack(pictures).reshape(-1, self.channels) / 255.0
        return values.mean(0).round(4).tolist(), values.std(0).clip(min=1e-2).round(4).tolist()

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        if self.image % self.patch:
            raise ConfigError(f"image {self.image} is not a multiple of patch {self.patch}")
        head = ClassifyHeadConfig(len(self.labels), dropout=size.dropout)
        side = (self.image, self.image)
        return recipes.vision(size, recipe, image=side, patch=self.patch, channels=self.channels, head=head)

    def adapt(self, model: Model) -> Model:
        """The image size becomes the model's; mean and standard deviation stay those of the task."""
        if model.shape != "encoder" or model.inputs != "image":
            raise ConfigError(
                f"task classify-image starts from an image encoder (ViT, …), "
                f"not from this {model.shape} of {model.inputs}"
            )
        patches = model.config.embedding
        if patches.image[0] != patches.image[1] or patches.channels != self.channels:
            raise ConfigError(f"the model reads {patches.image} pixels in {patches.channels} channels, not square RGB")
        self.image, self.patch = patches.image[0], patches.patch[0]
        return with_head(model, ClassifyHeadConfig(len(self.labels)))

    # --- training

    def parse_input(self, text: str) -> Any:
        return Path(text)

    def read(self, value: Any, *, where: str) -> Example:
        """The picture as it is stored: encoded if it came from a file. It is decoded when batched."""
        return {"image": stored_image(value, where=where)}

    def _pixels(self, value: Any, *, where: str) -> np.ndarray:
        return self.image_processor.pixels(value, where=where)

    def _decode(self, images: Sequence[bytes | np.ndarray], where: Sequence[str]) -> list[np.ndarray]:
        """Pixels of each picture. Larger files are decoded by several threads, as Pillow releases the GIL."""
        names = where or ["image"] * len(images)
        workers = min(len(images), os.cpu_count() or 1)
        if workers == 1 or sum(map(len, images)) < THREADED_BYTES * len(images):
            return [self._pixels(image, where=name) for image, name in zip(images, names, strict=True)]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda image, name: self._pixels(image, where=name), images, names))

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        pixels = np.stack(self._decode([example["image"] for example in examples], where))
        inputs = {"inputs": torch.from_numpy(self.image_processor.normalize(pixels))}  # (batch, channel, height, width)
        return Batch(inputs, self.targets(examples), count=len(examples), where=where)
