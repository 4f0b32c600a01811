"""`draw`: a picture from a caption, by rectified flow (draw_flow.py) or as a sequence of codes (draw_tokens.py)."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import nn

from headway.data.batch import Batch, Loss
from headway.data.builtin.captions import CAPTIONED_SHAPES
from headway.data.builtin.pool import Builtin
from headway.data.facts import Facts
from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.generation.flow_settings import GUIDANCE, STEPS
from headway.generation.option import whole
from headway.kinds.inputs import InputKind, TextInput
from headway.kinds.predictions import PicturePrediction, PredictionKind
from headway.models.config import ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.preprocess.image import open_image, stored_image, to_picture
from headway.preprocess.image_codes import Codebook
from headway.preprocess.image_processor import ImageProcessor
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.distributed import chunks, distributed_map
from headway.tasks.draw_flow import FlowDrawing
from headway.tasks.draw_tokens import CODES, TokenDrawing
from headway.tasks.task import Choice, Example, Task, device_of, ids_array

if TYPE_CHECKING:
    from PIL.Image import Image

MEASURED = 1000  # pictures of which size, colours, mean and standard deviation are computed
MOST_SIDE = 64  # pixels; larger pictures are made smaller
GRID = 8  # patches on a side
BATCH = 64  # pictures of one forward pass
ARTICLE = re.compile(r"(a|an|the) (?=\w)", re.IGNORECASE)


@dataclass
class Draw(Task):
    name: ClassVar[str] = "draw"
    builtin: ClassVar[Builtin] = CAPTIONED_SHAPES
    fields: ClassVar[tuple[str, ...]] = ("image", "caption")
    input_kind: ClassVar[InputKind] = TextInput(("caption",), "a caption")
    metric: ClassVar[str] = "loss"

    method: Literal["flow", "tokens"] = "flow"  # rectified flow, or next-token prediction over codes of patches
    image: int = 0  # pixels per side; 0: those of the data, at most 64
    patch: int = 0  # 0: about eight to a side
    channels: int = 0  # 1: grey, 3: RGB, 0: as the data
    mean: float = 0.0  # of all pixels, from 0 to 1
    std: float = 0.0
    vocab: int = 2000  # most tokens of captions
    limit: int = 64  # tokens of a caption
    caption_layers: int = 2
    caption_dropout: float = 0.1  # share of training captions that are left empty, for guidance
    codes: int = CODES  # of method tokens: different patches that a picture is made of
    codebook: list[list[int]] = field(default_factory=list, repr=False)  # the pixels of each code
    euler_steps: int = STEPS  # defaults of `predict`
    guidance: float = GUIDANCE

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        return {"epochs": 10, "batch": 64, "average": 0.995}

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        """From scratch six layers without dropout: every pass sees other noise, so there is little to overfit."""
        if recipe == "finetune":
            return Choice()
        return Choice({"model.layers": 6, "model.dropout": 0.0})

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        captions = Counter(plain_caption(row.fields["caption"]) for row in facts.rows)
        if not captions:
            raise DataError("the data has no pictures")
        if tokenizer is None:
            task.tokenizer = Tokenizer.train(captions, kind="wordpiece", size=task.vocab, lowercase=True)
        task._measure(facts.some(MEASURED))
        return task

    def _measure(self, rows: Sequence[Row]) -> None:
        """Sets what is not given: the size of pictures and patches, colours, mean and standard deviation."""
        pictures = [open_image(row.fields["image"], where=row.where) for row in rows]
        if not self.channels:
            self.channels = 3 if any(_has_colours(picture) for picture in pictures) else 1
        if not self.image:
            side = min(MOST_SIDE, int(np.median([min(picture.size) for picture in pictures])))
            self.patch = self.patch or max(1, round(side / GRID))
            self.image = max(1, round(side / self.patch)) * self.patch
        self.patch = self.patch or next(n for n in range(max(1, round(self.image / GRID)), 0, -1) if not self.image % n)
        processor = ImageProcessor(**self._sides)
        pixels = np.stack([processor.pixels(picture) for picture in pictures])
        if self.method == "tokens" and not self.codebook and not self.image % self.patch:
            self.codebook = Codebook.fit(pixels, patch=self.patch, codes=self.codes).to_lists()
        if not self.std:
            values = pixels / 255.0
            self.mean, self.std = round(float(values.mean()), 4), round(max(float(values.std()), 1e-2), 4)

    @property
    def _sides(self) -> dict[str, Any]:
        return {"shortest_edge": self.image, "crop_size": (self.image, self.image), "channels": self.channels}

    @property
    def image_processor(self) -> ImageProcessor:
        mean, std = (self.mean,) * self.channels, (self.std,) * self.channels
        return ImageProcessor(**self._sides, mean=mean, std=std)

    def processor(self, base: Processor) -> Processor:
        return super().processor(base).with_image(self.image_processor)

    @property
    def drawing(self) -> FlowDrawing | TokenDrawing:
        return FlowDrawing(self) if self.method == "flow" else TokenDrawing(self)

    @property
    def prediction_kind(self) -> PredictionKind:  # type: ignore[override]
        return PicturePrediction(self.drawing.options)

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        if self.image % self.patch:
            raise ConfigError(f"image {self.image} is not a multiple of patch {self.patch}")
        return self.drawing.config(size, recipe)

    def adapt(self, model: Model) -> Model:
        return self.drawing.adapt(model)

    # --- training

    def caption_ids(self, text: Any, *, where: str) -> list[int]:
        ids = self.tokenizer.encode(plain_caption(self.require_text(text, where=where)))
        return self.truncation.apply(ids, self.limit, part="caption", where=where, last=ids[-1])

    def examples(self, row: Row) -> list[Example]:
        caption = ids_array(self.caption_ids(row.fields["caption"], where=row.where))
        return [{"image": stored_image(row.fields["image"], where=row.where), "caption": caption}]

    def training_examples(self, row: Row) -> list[Example]:
        """Pictures are decoded once, before training."""
        caption = ids_array(self.caption_ids(row.fields["caption"], where=row.where))
        return [{"image": self.image_processor.pixels(row.fields["image"], where=row.where), "caption": caption}]

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        self.tokenizer.encode_ahead([plain_caption(row.fields["caption"]) for row in rows])

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"caption": len(self.tokenizer.encode(plain_caption(row.fields["caption"])))}

    def length_limits(self) -> dict[str, int]:
        return {"caption": self.limit}

    def length(self, example: Example) -> int:
        return len(example["caption"])

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        return self.drawing.batch(self._decoded(examples, where), _captions(examples), seeds=seeds, where=where)

    def _decoded(self, examples: Sequence[Example], where: Sequence[str] = ()) -> np.ndarray:
        """(example, height, width, channel), from 0 to 255."""
        names, processor = where or ["image"] * len(examples), self.image_processor
        return np.stack([processor.pixels(e["image"], where=name) for e, name in zip(examples, names, strict=True)])

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return self.drawing.loss(model, batch)

    # --- inference

    @torch.no_grad()
    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """The mean squared error of the velocity, at times spread evenly from noise to picture; or nats a code."""
        examples = [example for row in rows for example in self.examples(row)]
        if not examples:
            raise DataError("draw: there are no pictures to evaluate on")
        drawing = self.drawing

        def work(numbers: Sequence[int]) -> tuple[float, int]:
            some = [examples[number] for number in numbers]
            batch = drawing.evaluation_batch(self._decoded(some), _captions(some), numbers).to(device_of(model))
            return float(drawing.loss(model, batch).total), batch.count

        found = [each for _, each in distributed_map(chunks(range(len(examples)), BATCH), work)]
        return {"loss": sum(total for total, _ in found) / sum(count for _, count in found)}

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """A Pillow image for each caption, or a list of `n`; with `strip` the list shows one picture on its way from
        noise. The other options are those of `FlowSettings`; picture c of caption i uses seed + i + c."""
        drawing = self.drawing
        self.refuse_options(options, *drawing.options)
        count, seed = whole(1, 10_000)("n", options.pop("n", 1)), options.pop("seed", None)
        strip = bool(options.get("strip"))
        if strip and count > 1:
            raise InputError("strip shows the steps of one picture a caption: leave n out")
        captions = [self.caption_ids(text, where=f"input {number}") for number, text in enumerate(inputs, 1)]
        first = secrets.randbits(32) if seed is None else whole(0, 2**62)("seed", seed)
        wanted = [(ids, first + number + copy) for number, ids in enumerate(captions) for copy in range(count)]

        def work(chunk: Sequence[tuple[list[int], int]]) -> list[np.ndarray]:
            return drawing.pictures(model, [ids for ids, _ in chunk], [seed for _, seed in chunk], options)

        pictures = [
            [to_picture(pixels) for pixels in states]
            for _, drawn in distributed_map(chunks(wanted, BATCH), work)
            for states in zip(*drawn, strict=True)
        ]
        if strip:
            return pictures
        alone = [picture for (picture,) in pictures]
        return alone if count == 1 else list(chunks(alone, count))

    def pixels(self, rows: Sequence[Row]) -> np.ndarray:
        """The pictures of rows as the model sees them, (picture, height, width, channel), from 0 to 255."""
        processor = self.image_processor
        return np.stack([processor.pixels(row.fields["image"], where=row.where) for row in rows])

    def draw_captions(
        self,
        model: Model,
        captions: Sequence[str],
        seeds: Sequence[int],
        guidance: float,
        *,
        on_drawn: Callable[[int], object] = lambda count: None,
    ) -> np.ndarray:
        """One picture for each caption and seed, (picture, height, width, channel), from 0 to 255. `on_drawn` receives
        the number of pictures so far."""
        ids = [self.caption_ids(caption, where="caption") for caption in captions]
        drawing, drawn = self.drawing, list[np.ndarray]()
        for part in zip(chunks(ids, BATCH), chunks(seeds, BATCH), strict=True):
            drawn.append(drawing.pictures(model, *part, {"guidance": guidance})[-1])
            on_drawn(sum(map(len, drawn)))
        return np.concatenate(drawn)


def _captions(examples: Sequence[Example]) -> list[Any]:
    return [example["caption"] for example in examples]


def plain_caption(text: str) -> str:
    """Without an article in front: captions that are labels have none, and "a sneaker" means the label "Sneaker"."""
    text = " ".join(text.replace("_", " ").split())
    found = ARTICLE.match(text)
    return text if found is None else text[found.end() :]


def _has_colours(picture: Image) -> bool:
    if picture.mode in ("1", "L", "LA"):
        return False
    values = np.asarray(picture.convert("RGB"))
    return bool((values != values[..., :1]).any())
