"""`classify-image`: one label for an image (ViT, Dosovitskiy et al. 2021)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.baselines import Baseline
from headway.data.batch import Batch
from headway.data.builtin.pool import Builtin
from headway.data.builtin.shapes import DRAWN_SHAPES
from headway.data.dataset import RowReader
from headway.data.facts import Facts
from headway.data.read import Row
from headway.errors import ConfigError
from headway.kinds.inputs import InputKind, PictureInput
from headway.models import recipes
from headway.models.config import ClassifyHeadConfig, ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.models.rehead import with_head
from headway.preprocess.augment import DRAWS, Augmentation, Window, mixture, partner, uniforms
from headway.preprocess.image import stored_image
from headway.preprocess.image_processor import ImageProcessor
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.classification import Classification
from headway.tasks.image_baseline import pixel_baseline
from headway.tasks.image_settings import choose
from headway.tasks.task import Choice, Example

THREADED_BYTES = 1 << 13  # mean size of files from which decoding is worth a thread
MEASURED = 1000  # images of which mean and standard deviation are computed
DECODED_SIDE = 96  # pixels: pictures of at most this side are decoded once, before training; larger ones in each epoch
SPARE = 1.5  # of the side, in pictures that are stored to be zoomed into


@dataclass
class ClassifyImage(Classification):
    name: ClassVar[str] = "classify-image"
    builtin: ClassVar[Builtin] = DRAWN_SHAPES
    fields: ClassVar[tuple[str, ...]] = ("image", "label")
    input_kind: ClassVar[InputKind] = PictureInput()
    reads_text: ClassVar[bool] = False
    rows_at_once: ClassVar[int] = 1024  # encoded pictures of a large data set do not fit in memory

    image: int = 32  # pixels per side; images are resized to it
    patch: int = 4
    stem: list[int] = field(default_factory=list)  # channels of convolutions; empty: a linear map of each patch
    pool: Literal["first", "mean"] = "first"  # a class token, or the mean of the patches
    channels: int = 3
    zoom: float = 0.0  # these: see Augmentation
    shift: float = 0.0
    flip: bool = False
    colour: float = 0.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
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
        """A model that is trained further keeps its own preprocessing."""
        if base.image is not None and base.image.output_size == (self.image, self.image):
            self.loaded_processor = base.image
        return base.with_image(self.image_processor)

    def use_processor(self, processor: Processor) -> None:
        self.loaded_processor = processor.image

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        return choose(facts, recipe=recipe, given=given)

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=None, **options)  # type: ignore[arg-type]
        task.count_labels(facts)
        if not task.mean or not task.std:
            task.mean, task.std = task._measured(facts)
        task.mean, task.std = list(task.mean), list(task.std)
        return task

    def _measured(self, facts: Facts) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel, over some of the images."""
        read = self.image_processor.pixels
        pictures = [read(row.fields["image"], where=row.where) for row in facts.some(MEASURED)]
        values = np.stack(pictures).reshape(-1, self.channels) / 255.0
        return values.mean(0).round(4).tolist(), values.std(0).clip(min=1e-2).round(4).tolist()

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(**{each.name: getattr(self, each.name) for each in fields(Augmentation)})

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        if self.image % self.patch and not self.stem:
            raise ConfigError(f"image {self.image} is not a multiple of patch {self.patch}")
        return recipes.vision(
            size,
            recipe,
            image=(self.image, self.image),
            patch=self.patch,
            channels=self.channels,
            stem=self.stem,
            head=ClassifyHeadConfig(len(self.labels), pool=self.pool, dropout=size.dropout),
        )

    def adapt(self, model: Model) -> Model:
        """Size and channels of pictures become the model's."""
        if model.shape != "encoder" or model.inputs != "image":
            raise ConfigError(
                f"task classify-image starts from an image encoder (ViT, …), "
                f"not from this {model.shape} of {model.inputs}"
            )
        patches = model.config.embedding
        if patches.image[0] != patches.image[1]:
            raise ConfigError("the model reads pictures of {} × {} pixels, which are not square".format(*patches.image))
        self.image, self.patch = patches.image[0], patches.patch[0]
        if patches.channels != self.channels:
            self.mean, self.std = ([sum(each) / len(each)] * patches.channels for each in (self.mean, self.std))
            self.channels = patches.channels
        return with_head(model, ClassifyHeadConfig(len(self.labels)))

    # --- training

    def read(self, value: Any, *, where: str) -> Example:
        """The picture as it is stored: encoded if it came from a file. It is decoded when batched."""
        return {"image": stored_image(value, where=where)}

    def training_examples(self, row: Row) -> list[Example]:
        """Small pictures are stored as pixels. They are those of every epoch, unless a part of the picture is enlarged:
        then they have more detail."""
        processor, size = self.image_processor, self.image_processor.output_size
        if size is None or max(size) > DECODED_SIDE:
            return self.examples(row)
        if self.augmentation.zoom:
            side = round(SPARE * max(size))
            processor = replace(processor, size=(side, side), shortest_edge=None, crop_size=None)
        label = self.target.encode(row.fields["label"], where=row.where, strict=True)
        return [{"image": processor.pixels(row.fields["image"], where=row.where), "label": label}]

    def partners(self, key: tuple[int, ...], count: int) -> Sequence[int]:
        found = partner(key, count, self.augmentation) if self.augmentation.mixes else None
        return () if found is None else (found,)

    def _decode(
        self, images: Sequence[bytes | np.ndarray], where: Sequence[str], windows: Sequence[Window | None]
    ) -> list[np.ndarray]:
        """Pixels of each picture. Larger files are decoded by several threads, as Pillow releases the GIL."""

        def decode(image: bytes | np.ndarray, name: str, window: Window | None) -> np.ndarray:
            return self.image_processor.pixels(image, where=name, window=window)

        workers = min(len(images), os.cpu_count() or 1)
        if workers == 1 or sum(map(len, images)) < THREADED_BYTES * len(images):
            return list(map(decode, images, where, windows))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(decode, images, where, windows))

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        """Pictures are changed at random only where there are seeds: in training."""
        mixed = [at for at, example in enumerate(examples) if "partners" in example]
        every = [*examples, *(examples[at]["partners"][0] for at in mixed)]
        names = [*(where or ["image"] * len(examples)), *("a picture to mix" for _ in mixed)]
        draws = None
        if self.augmentation and seeds[0]:
            draws = np.concatenate([uniforms(seeds, DRAWS), uniforms([(*seeds[at], 1) for at in mixed], DRAWS)])
        windows = [None] * len(every) if draws is None else self.augmentation.windows(draws)
        pixels = np.stack(self._decode([example["image"] for example in every], names, windows))
        if draws is not None:
            pixels = self.augmentation.change(pixels, draws, fill=[255 * value for value in self.mean])
        inputs = torch.from_numpy(self.image_processor.normalize(pixels))  # (batch, channel, height, width)
        targets = self.targets(every)
        if mixed and draws is not None:
            kept, share = map(torch.from_numpy, mixture(draws[mixed], pixels.shape[1:3], self.augmentation))
            first, second = inputs[: len(examples)], inputs[len(examples) :]
            first[mixed] = first[mixed] * kept + second * (1 - kept)
            targets = {"labels": self._mixed_labels(targets["labels"], mixed, share)}
        return Batch({"inputs": inputs[: len(examples)]}, targets, count=len(examples), where=where)

    def classic_baseline(self, train: RowReader, rows: Sequence[Row]) -> Baseline | None:
        return pixel_baseline(self.target, train(), rows)

    def _mixed_labels(self, labels: Tensor, mixed: Sequence[int], share: Tensor) -> Tensor:
        """(batch, label) probabilities: a picture has the labels of its two parts, by their shares."""
        count = len(labels) - len(mixed)
        every = F.one_hot(labels, len(self.labels)).float()
        first, second = every[:count], every[count:]
        first[list(mixed)] = first[list(mixed)] * share[:, None] + second * (1 - share[:, None])
        return first
