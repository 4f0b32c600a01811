"""Resize, centre crop, rescale and normalise a picture as preprocessor_config.json says.

The steps, their order and their arithmetic are those of the reference library's PIL image processors: resizing in eight
bits, rescaling in double precision rounded to float32, normalising in float32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.preprocess.archive import ArchivedFile
from headway.preprocess.augment import Window
from headway.preprocess.image import MAX_PIXELS, open_image
from headway.validation import Check, between, from_dict

NAME = "preprocessor_config.json"
MAX_SIDE = 100_000  # pixels
NEAREST, LANCZOS, BILINEAR, BICUBIC, BOX, HAMMING = range(6)  # Pillow's codes

HALF = (0.5, 0.5, 0.5)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))

DETECTORS = ("Detr", "Yolos")
DETECTORS_IGNORED = ("format", "do_convert_annotations", "do_pad", "pad_and_return_pixel_mask", "max_size")

# What a key that the file does not have means, by the class that the file names.
DEFAULTS: dict[str, dict[str, Any]] = {
    "ViT": {"size": {"height": 224, "width": 224}, "resample": BILINEAR, "image_mean": HALF, "image_std": HALF},
    "DeiT": {
        "size": {"height": 256, "width": 256},
        "resample": BICUBIC,
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
        "image_mean": IMAGENET[0],
        "image_std": IMAGENET[1],
    },
    "CLIP": {
        "size": {"shortest_edge": 224},
        "resample": BICUBIC,
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
        "image_mean": CLIP[0],
        "image_std": CLIP[1],
    },
    **{
        kind: {
            "size": {"shortest_edge": 800, "longest_edge": 1333},
            "resample": BILINEAR,
            "image_mean": IMAGENET[0],
            "image_std": IMAGENET[1],
        }
        for kind in DETECTORS
    },
}
MULTIPLE = {"Yolos": 16}  # sides are cut to a multiple of it
Side = Annotated[int, between(1, MAX_SIDE)]
Real = Annotated[float, Check("a finite number", math.isfinite)]
NotZero = Annotated[float, Check("a finite number other than 0", lambda value: math.isfinite(value) and value != 0)]


@dataclass(frozen=True)
class _Rectangle:
    height: Side
    width: Side


@dataclass(frozen=True)
class _ShortestEdge:
    shortest_edge: Side


@dataclass(frozen=True)
class _TwoEdges:
    shortest_edge: Side
    longest_edge: Side


@dataclass(frozen=True, kw_only=True)
class _File:
    """The keys of the file that are read."""

    do_resize: bool = True
    size: _Rectangle | _ShortestEdge | _TwoEdges
    resample: Annotated[int, between(NEAREST, HAMMING)]
    do_center_crop: bool = False
    crop_size: _Rectangle | None = None
    do_rescale: bool = True
    rescale_factor: Real = 1 / 255
    do_normalize: bool = True
    image_mean: tuple[Real, ...] | Real
    image_std: tuple[NotZero, ...] | NotZero


KNOWN = tuple(field.name for field in fields(_File))
IGNORED = (  # these name a class or an array type, or are always done (a picture is converted to the model's channels)
    "image_processor_type", "feature_extractor_type", "processor_class", "_processor_class", "_valid_processor_keys",
    "transformers_version", "do_convert_rgb", "default_to_square", "data_format", "input_data_format",
    "return_tensors", "device", "disable_grouping", "backend",
)  # fmt: skip


@dataclass(frozen=True)
class ImageProcessor:
    """`size` and `crop_size` are (height, width); `shortest_edge` keeps the proportions, and makes the other edge no
    longer than `longest_edge`. None: the step is left out."""

    size: tuple[int, int] | None = None
    shortest_edge: int | None = None
    longest_edge: int | None = None
    multiple: int = 1  # sides are cut to a multiple of it, behind `longest_edge`
    resample: int = BILINEAR
    crop_size: tuple[int, int] | None = None
    rescale_factor: float | None = 1 / 255
    mean: tuple[float, ...] | None = None  # one a channel, after rescaling
    std: tuple[float, ...] | None = None
    channels: int = 3  # 1: grey, 3: RGB

    def __call__(self, source: Any, *, where: str = "image") -> NDArray[np.float32]:  # → (channel, height, width)
        return self.normalize(self.pixels(source, where=where))

    def pixels(
        self, source: Any, *, where: str = "image", window: Window | None = None
    ) -> NDArray[np.uint8]:  # → (height, width, channel)
        """Decoded, converted to the model's channels, resized and cropped; still eight bits a colour. With a `window`
        that part of the picture is resized to the full size instead."""
        if window is None and self._fits(source):
            return source
        picture = open_image(source, where=where)
        mode = {1: "L", 3: "RGB"}[self.channels]
        picture = picture if picture.mode == mode else picture.convert(mode)
        height, width = self.resized(picture.height, picture.width)
        if height * width > MAX_PIXELS:
            sides = f"{picture.width} × {picture.height}"
            name = str(source) if isinstance(source, Path | ArchivedFile) else where
            raise DataError(f"{name}: {sides} would be resized to {width} × {height}, more than {MAX_PIXELS:,} pixels")
        if window is not None:
            height, width = self.output_size or (height, width)
        if (width, height) != picture.size or window is not None:
            from PIL.Image import Resampling

            left, top, right, bottom = window or (0.0, 0.0, 1.0, 1.0)
            box = (left * picture.width, top * picture.height, right * picture.width, bottom * picture.height)
            picture = picture.resize((width, height), Resampling(self.resample), box=box)
        values = np.asarray(picture).reshape(height, width, self.channels)
        return values if self.crop_size is None else center_crop(values, self.crop_size)

    def _fits(self, source: Any) -> bool:
        """Whether it is an array that needs no change; for small pictures going through Pillow would take longer."""
        if not isinstance(source, np.ndarray) or source.dtype != np.uint8 or source.ndim != 3:
            return False
        size = source.shape[:2]
        return size == self.resized(*size) == (self.crop_size or size) and source.shape[2] == self.channels

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) after resizing."""
        if self.size is not None:
            return self.size
        if self.shortest_edge is None:
            return height, width
        short, long = min(height, width), max(height, width)
        edge: float = self.shortest_edge
        if self.longest_edge is not None and long / short * edge > self.longest_edge:
            edge = self.longest_edge * short / long
        new, other = round(edge), int(edge * long / short)
        if self.longest_edge is not None and new == short and (self.multiple == 1 or width >= height):
            new, other = short, long  # resizing would only lose rounding
        new, other = (max(side - side % self.multiple, self.multiple) for side in (new, other))
        return (other, new) if width <= height else (new, other)

    def normalize(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(…, height, width, channel) from 0 to 255 → (…, channel, height, width), by a table of all 256 values."""
        scale = 1.0 if self.rescale_factor is None else self.rescale_factor
        column = (np.arange(256, dtype=np.float64) * scale).astype(np.float32)[:, None]
        values: NDArray[np.float32] = np.repeat(column, self.channels, axis=1)  # (256, channel)
        if self.mean is not None and self.std is not None:
            mean, std = (np.asarray(each, dtype=np.float32) for each in (self.mean, self.std))
            values = (values - mean) / std
        return np.stack([values[pixels[..., channel], channel] for channel in range(self.channels)], axis=-3)

    @property
    def output_size(self) -> tuple[int, int] | None:
        """(height, width) of every result; None: it depends on the picture."""
        return self.crop_size or self.size

    # --- preprocessor_config.json

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, channels: int = 3, name: str = NAME) -> ImageProcessor:
        """`name` is the file, for errors. A key that is unknown and not off (null, false) is refused."""
        kind = _kind(data, name)
        known = KNOWN + IGNORED + (DETECTORS_IGNORED if kind in DETECTORS else ())  # a batch is padded where needed
        unknown = [key for key in data if key not in known and data[key] not in (None, False)]
        if unknown:
            raise ConfigError(
                f"{name}: {unknown[0]} is {data[unknown[0]]!r}, a step of preprocessing that Headway does not have"
            )
        stated = {**DEFAULTS[kind], **{key: data[key] for key in KNOWN if data.get(key) is not None}}
        stated["size"] = _sides(stated["size"], square=kind not in ("CLIP", *DETECTORS))
        if kind in DETECTORS and set(stated["size"]) == {"shortest_edge"}:
            stated["size"] = {**stated["size"], "longest_edge": data.get("max_size") or 1333}  # an old file
        stated["crop_size"] = _sides(stated.get("crop_size"), square=True)
        file: _File = from_dict(_File, stated, path=name)
        if file.do_center_crop and file.crop_size is None:
            raise ConfigError(f"{name}: do_center_crop is true, but there is no crop_size")
        size, crop = file.size if file.do_resize else None, file.crop_size if file.do_center_crop else None
        return cls(
            size=(size.height, size.width) if isinstance(size, _Rectangle) else None,
            shortest_edge=size.shortest_edge if isinstance(size, _ShortestEdge | _TwoEdges) else None,
            longest_edge=size.longest_edge if isinstance(size, _TwoEdges) else None,
            multiple=MULTIPLE.get(kind, 1),
            resample=file.resample,
            crop_size=None if crop is None else (crop.height, crop.width),
            rescale_factor=file.rescale_factor if file.do_rescale else None,
            mean=_per_channel(file.image_mean, channels, f"{name}.image_mean") if file.do_normalize else None,
            std=_per_channel(file.image_std, channels, f"{name}.image_std") if file.do_normalize else None,
            channels=channels,
        )

    def to_json(self) -> dict[str, Any]:
        """As the reference library reads it: for DETR or YOLOS where both edges are limited, else for ViT."""
        size = None if self.shortest_edge is None else {"shortest_edge": self.shortest_edge}
        size = size if self.size is None else _height_width(self.size)
        kind = "ViT"
        if self.longest_edge is not None and size is not None and self.size is None:
            kind, size = "Yolos" if self.multiple > 1 else "Detr", {**size, "longest_edge": self.longest_edge}
        return {
            "image_processor_type": f"{kind}ImageProcessor",
            "do_convert_rgb": True if self.channels == 3 else None,
            "do_resize": size is not None,
            "size": size,
            "resample": self.resample,
            "do_center_crop": self.crop_size is not None,
            "crop_size": None if self.crop_size is None else _height_width(self.crop_size),
            "do_rescale": self.rescale_factor is not None,
            "rescale_factor": self.rescale_factor,
            "do_normalize": self.mean is not None,
            "image_mean": None if self.mean is None else list(self.mean),
            "image_std": None if self.std is None else list(self.std),
        }

    def describe(self) -> str:
        """One line for a person."""
        steps = []
        if self.size is not None:
            steps.append(f"resized to {self.size[0]} × {self.size[1]}")
        elif self.shortest_edge is not None:
            limit = "" if self.longest_edge is None else f", longer at most {self.longest_edge}"
            steps.append(f"shorter side resized to {self.shortest_edge}{limit}")
        if self.crop_size is not None:
            steps.append(f"centre crop {self.crop_size[0]} × {self.crop_size[1]}")
        if self.mean is not None and self.std is not None:
            values = [" ".join(f"{value:g}" for value in each) for each in (self.mean, self.std)]
            steps.append(f"mean {values[0]}, deviation {values[1]}")
        return ", ".join([{1: "grey", 3: "RGB"}[self.channels], *steps])


def pad_batch(pictures: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
    """Pictures (channel, height, width) as one array, with zeros on the right and below, and the mask of what is not
    padding (picture, height, width); no mask if all have the same size."""
    sizes = [picture.shape[1:] for picture in pictures]
    if len(set(sizes)) == 1:
        return np.stack(pictures), None
    high, wide = (max(sides) for sides in zip(*sizes, strict=True))
    out = np.zeros((len(pictures), pictures[0].shape[0], high, wide), np.float32)
    mask = np.zeros((len(pictures), high, wide), np.bool_)
    for number, picture in enumerate(pictures):
        out[number, :, : picture.shape[1], : picture.shape[2]] = picture
        mask[number, : picture.shape[1], : picture.shape[2]] = True
    return out, mask


def center_crop(values: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """(height, width, channel), filled up with zeros where the picture is smaller than `size`."""
    missing = [max(0, want - have) for have, want in zip(values.shape, size, strict=False)]
    values = np.pad(values, [*((math.ceil(gap / 2), gap // 2) for gap in missing), (0, 0)])
    top, left = ((have - want) // 2 for have, want in zip(values.shape, size, strict=False))
    return values[top : top + size[0], left : left + size[1]]


def _height_width(size: tuple[int, int]) -> dict[str, int]:
    return {"height": size[0], "width": size[1]}


def _kind(data: Mapping[str, Any], name: str) -> str:
    """The key of DEFAULTS that the file's class names."""
    stated = data.get("image_processor_type") or data.get("feature_extractor_type") or "ViTImageProcessor"
    kind = re.fullmatch(r"(\w+?)(ImageProcessor|FeatureExtractor)(Fast|Pil)?", str(stated))
    if kind is None or kind[1] not in DEFAULTS:
        known = ", ".join(f"{each}ImageProcessor" for each in DEFAULTS)
        raise ConfigError(f"{name}: {stated!r} is not an image processor Headway has; known: {known}")
    return kind[1]


def _sides(value: Any, *, square: bool) -> Any:
    """Old files have one number: of both sides, or of the shorter one."""
    if type(value) is not int:
        return value
    return {"height": value, "width": value} if square else {"shortest_edge": value}


def _per_channel(values: tuple[float, ...] | float, channels: int, name: str) -> tuple[float, ...]:
    """One number a channel; one number alone is for all of them."""
    found = values if isinstance(values, tuple) else (values,) * channels
    if len(found) != channels:
        raise ConfigError(f"{name}: expected {channels} numbers, one a channel, got {len(found)}")
    return found
