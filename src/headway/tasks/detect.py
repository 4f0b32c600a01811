"""`detect`: the objects of a picture, each with a label and a box (DETR, Carion et al. 2020)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.boxes import usable
from headway.data.builtin.pool import Builtin
from headway.data.builtin.scenes import SCENES
from headway.data.facts import Facts, Label
from headway.data.row import Row
from headway.errors import ConfigError, DataError
from headway.generation.box_settings import threshold_of
from headway.kinds.inputs import InputKind, PictureInput
from headway.kinds.predictions import BoxesPrediction, PredictionKind
from headway.layers.boxes import to_corners
from headway.models import recipes
from headway.models.config import AnchorConfig, ModelConfig
from headway.models.outputs import DetectionOutput
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.models.rehead import with_labels
from headway.preprocess.augment_boxes import BoxedPicture, mosaic, recoloured, window
from headway.preprocess.image import open_image, stored_image
from headway.preprocess.image_processor import ImageProcessor, pad_batch
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.detection_batches import as_picture, joined, noised, targets_of
from headway.tasks.detection_loss import Targets, denoising_loss, detection_loss
from headway.tasks.detection_scores import MOST, Scored, average_precision
from headway.tasks.detection_settings import Statistics, choose, statistics
from headway.tasks.distributed import chunks, distributed_map
from headway.tasks.evaluated import Evaluated
from headway.tasks.object_predictions import Boxes
from headway.tasks.task import Choice, Example, Task

BATCH = 16  # pictures of one forward pass
COLOUR = 0.3  # strength of the changes of colour
MIXING = 1  # what a further draw of an example is for


@dataclass
class Detect(Task):
    name: ClassVar[str] = "detect"
    builtin: ClassVar[Builtin] = SCENES
    fields: ClassVar[tuple[str, ...]] = ("image", "boxes")
    input_kind: ClassVar[InputKind] = PictureInput()
    prediction_kind: ClassVar[PredictionKind] = BoxesPrediction()
    metric: ClassVar[str] = "ap50"
    stacks: ClassVar[int] = 2
    reads_text: ClassVar[bool] = False
    rows_at_once: ClassVar[int] = 1024
    packages: ClassVar[dict[str, str]] = {"faster_coco_eval": "vision"}  # scores

    labels: list[str] = field(default_factory=list, repr=False)  # in the order of the logits
    counts: list[int] = field(default_factory=list, repr=False)  # boxes of each label in the training data
    height: int = 96  # pixels of a training picture; others are resized to fit, in their own proportions
    width: int = 96
    queries: int = 20
    threshold: float = 0.5  # least score of what `predict` returns
    anchor_size: float = 0.125  # these five: see AnchorConfig
    proposals: bool = True
    prior: bool = True
    refine: bool = True
    denoising: int = 60  # noised targets of a training picture; 0: none
    encoder_layers: int = 0
    mosaic: float = 0.5  # share of training pictures that are made of four
    mirror: bool = True
    upside_down: bool = False
    augment: bool = True  # windows, mirror images and colour
    mean: list[float] = field(default_factory=list)  # of each channel, from 0 to 1
    std: list[float] = field(default_factory=list)
    loaded_processor: ImageProcessor | None = field(default=None, repr=False)  # of the folder, instead of the above

    # --- before training

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        if recipe == "finetune":
            return {"epochs": 20, "batch": 4}
        return {"epochs": 40, "batch": 8, "lr": 2e-3, "matrix_lr": 0.02, "average": 0.99}

    @classmethod
    def labels_in(cls, row: Row) -> Iterable[Label]:
        return [box.label for box in usable(row) if not box.crowd]

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        return choose(statistics(facts), recipe=recipe, given=given)

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=None, **options)  # type: ignore[arg-type]
        if not facts.labels:
            raise DataError("the data has no boxes to learn from")
        task.labels = sorted(map(str, facts.labels))
        task.counts = [facts.labels[label][0] for label in task.labels]
        if not task.mean or not task.std:
            task.mean, task.std = Statistics.colours(facts, (task.height, task.width))
        return task

    @property
    def image_processor(self) -> ImageProcessor:
        if self.loaded_processor is not None:
            return self.loaded_processor
        edges = sorted((self.height, self.width))
        mean, std = (tuple(self.mean), tuple(self.std)) if self.mean and self.std else (None, None)
        return ImageProcessor(shortest_edge=edges[0], longest_edge=edges[1], mean=mean, std=std)

    def processor(self, base: Processor) -> Processor:
        return base.with_image(self.image_processor)

    def use_processor(self, processor: Processor) -> None:
        """A run from scratch that is resumed has its own, and goes on changing its pictures at random."""
        self.loaded_processor = None
        if processor.image != self.image_processor:
            self.loaded_processor = processor.image

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        anchors = AnchorConfig(self.proposals, self.denoising > 0, self.prior, self.refine, self.anchor_size)
        if recipe == "classic":
            self.denoising = 0
        return recipes.detector(
            size, recipe, labels=len(self.labels), queries=self.queries, channels=3, anchors=anchors,
            encoder_layers=self.encoder_layers,
        )  # fmt: skip

    def adapt(self, model: Model) -> Model:
        """The model's queries stay; its classes become those of the data."""
        if model.head_kind != "detect":
            raise ConfigError(f"task detect starts from a detector (DETR, …), not from this {model.shape}")
        decoder = getattr(model.config, "decoder", None)  # of a model without one, the last tokens are the queries
        anchors = getattr(decoder, "anchors", None)
        self.denoising = self.denoising if anchors is not None and anchors.denoising else 0
        self.queries = model.head_config.tokens if decoder is None else decoder.queries
        return with_labels(model, len(self.labels))

    # --- training

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"boxes": len(usable(row)), "picture": max(row.fields["size"])}

    def length_limits(self) -> dict[str, int]:
        return {"boxes": self.queries}

    def examples(self, row: Row) -> list[Example]:
        image = stored_image(row.fields["image"], where=row.where)
        size = tuple(row.fields["size"])
        actual = open_image(image, where=row.where).size
        if actual != size:
            raise DataError(
                f"{row.where}: the boxes are for a picture of {size[0]} × {size[1]} pixels, but it has "
                f"{actual[0]} × {actual[1]}; correct the annotation or the picture"
            )
        boxes = [box for box in usable(row) if not box.crowd]
        self.truncation.exceeds(len(boxes), self.queries, part="boxes", where=row.where)
        corners = np.array([box[1:5] for box in boxes], np.float32).reshape(-1, 4) / np.tile(size, 2).astype(np.float32)
        labels = np.array([self.label_index(box.label, where=row.where) for box in boxes], np.int32)
        return [{"image": image, "boxes": corners[: self.queries], "labels": labels[: self.queries]}]

    def label_index(self, label: str, *, where: str) -> int:
        if label not in self.labels:
            known = ", ".join(map(repr, self.labels[:20]))
            raise DataError(f"{where}: label {label!r} is not one of the model's labels ({known})")
        return self.labels.index(label)

    def partners(self, key: tuple[int, ...], count: int) -> Sequence[int]:
        draw = np.random.default_rng((*key, MIXING))
        if not self.augment or not self.mosaic or draw.random() >= self.mosaic:
            return ()
        return draw.integers(0, count, 3).tolist()

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        """Pictures are changed at random only where there are seeds: in training."""
        names = where or ["image"] * len(examples)
        pictures = []
        for example, key, name in zip(examples, seeds, names, strict=True):
            if key and self.augment and self.loaded_processor is None:
                pictures.append(self._changed(example, np.random.default_rng(key), name))
            else:
                pixels = self.image_processor.pixels(example["image"], where=name)
                pictures.append(as_picture(pixels, example))
        normalized = [self.image_processor.normalize(picture.pixels) for picture in pictures]
        values, mask = pad_batch(normalized)
        inputs = {"inputs": torch.from_numpy(values)}
        if mask is not None:
            inputs["padding_mask"] = torch.from_numpy(mask)
        targets: dict[str, Tensor] = {}
        if "boxes" in examples[0]:
            targets = targets_of(pictures)
            if self.denoising and seeds[0]:
                groups = [
                    noised(picture, key, count=self.denoising, labels=len(self.labels))
                    for picture, key in zip(pictures, seeds, strict=True)
                ]
                wanted, given = joined(groups)
                inputs |= given
                targets |= wanted
        count = sum(max(1, len(picture.labels)) for picture in pictures)
        return Batch(inputs, targets, count=count, where=where)

    def _changed(self, example: Example, draw: np.random.Generator, name: str) -> BoxedPicture:
        parts = [
            as_picture(np.asarray(open_image(each["image"], where=name).convert("RGB")), each)
            for each in (example, *example.get("partners", ()))
        ]
        size, turns = (self.height, self.width), {"mirror": self.mirror, "upside_down": self.upside_down}
        made = mosaic(parts, size, draw, **turns) if len(parts) > 1 else window(parts[0], size, draw, **turns)
        boxes, labels = made.boxes[: self.queries], made.labels[: self.queries]
        return BoxedPicture(recoloured(made.pixels, draw, COLOUR), boxes, labels)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        inputs = dict(batch.inputs)
        output: DetectionOutput = model(inputs.pop("inputs"), **inputs)
        targets = Targets(batch.targets["boxes"], batch.targets["labels"])
        parts = detection_loss(output, targets, labels=len(self.labels))
        if output.denoised:
            wanted = batch.targets
            parts["denoising"] = denoising_loss(
                output.denoised, wanted["noised_boxes"], wanted["noised_labels"], wanted["noised_weight"]
            )
        return Loss(torch.stack(list(parts.values())).sum(), parts)

    # --- inference

    @torch.no_grad()
    def detections(self, model: nn.Module, images: Sequence[Any], *, where: Sequence[str]) -> list[list[Scored]]:
        """What is found in each picture, best first, in pixels of the picture as given."""
        sizes = [open_image(image, where=name).size for image, name in zip(images, where, strict=True)]
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)  # a batch needs no padding
        for at, (wide, high) in enumerate(sizes):
            groups[self.image_processor.resized(high, wide)].append(at)
        batches = [batch for members in groups.values() for batch in chunks(members, BATCH)]
        found: list[list[Scored]] = [[] for _ in images]

        def work(members: Sequence[int]) -> list[list[Scored]]:
            batch = self.batch([{"image": images[at]} for at in members], model)
            output = model(**batch.inputs)
            return [
                _best(logits.float().cpu(), boxes.float().cpu(), sizes[at], labels=len(self.labels))
                for at, logits, boxes in zip(members, output.logits, output.boxes, strict=True)
            ]

        for members, results in distributed_map(batches, work):
            for at, result in zip(members, results, strict=True):
                found[at] = result
        return found

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The objects of each picture, best first: label, score and box (left, top, right, bottom in pixels)."""
        self.refuse_options(options, "threshold", "top")
        least, top = threshold_of(options, self.threshold), options.get("top")
        names = [str(each) if isinstance(each, Path) else f"input {n}" for n, each in enumerate(inputs, 1)]
        images = [stored_image(value, where=name) for value, name in zip(inputs, names, strict=True)]
        return [
            {
                "objects": [
                    {"label": self.labels[label], "score": round(score, 4), "box": [round(side, 1) for side in corners]}
                    for label, score, corners in found[:top]
                    if score >= least
                ]
            }
            for found in self.detections(model, images, where=names)
        ]

    @torch.no_grad()
    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """COCO's AP, AP50, AP75, AP50 of each label, and the loss."""
        self.refuse_options(options)
        rows = list(rows)
        if not rows:
            raise DataError("detect: there are no pictures to evaluate on")
        wanted = [usable(row) for row in rows]
        for row, boxes in zip(rows, wanted, strict=True):
            for box in boxes:
                self.label_index(box.label, where=row.where)
        images = [stored_image(row.fields["image"], where=row.where) for row in rows]
        found = self.detections(model, images, where=[row.where for row in rows])
        sizes = [tuple(row.fields["size"]) for row in rows]
        scores = average_precision(wanted, found, sizes=sizes, labels=self.labels)
        with self.count_truncation():
            examples = [example for row in rows for example in self.examples(row)]
        scores["loss"] = self.mean_loss(model, examples)
        return Boxes(scores, rows, found, wanted, self.labels, self.threshold)


def best_queries(logits: Tensor, *, labels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, label and score of the best pairs of query and label, of logits (query, class); with "no object" as a
    class, a query has one label at most."""
    if logits.shape[-1] == labels:
        scores = logits.sigmoid().flatten()
        best = scores.argsort(descending=True, stable=True)[:MOST]
        return best // labels, best % labels, scores[best]
    score, label = logits.softmax(-1)[:, :labels].max(-1)
    query = score.argsort(descending=True, stable=True)[:MOST]
    return query, label[query], score[query]


def _best(logits: Tensor, boxes: Tensor, size: tuple[int, int], *, labels: int) -> list[Scored]:
    """The best pairs of query and label, in pixels."""
    query, label, score = best_queries(logits, labels=labels)
    wide, high = size
    limits = torch.tensor([wide, high, wide, high], dtype=torch.float32)
    corners = (to_corners(boxes)[query] * limits).clamp(min=0).minimum(limits)
    return [
        (int(one), float(value), tuple(edges))
        for one, value, edges in zip(label, score, corners.tolist(), strict=True)
        if math.isfinite(value)
    ]
