"""Settings of `classify-image` that follow from the pictures and the time: their size and patches, how large the model
is, how long it trains and how pictures are changed.

Models are taken from a ladder. With a time limit one step of a small model is timed; the largest model that still sees
every picture often enough is chosen. Mirror images are used where a linear classifier of a few pictures recognises them
as well as the pictures themselves: not for digits, letters, or shoes that all point the same way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from headway.data.facts import Facts
from headway.data.row import Row
from headway.distributed import pick_device
from headway.models import recipes
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig
from headway.models.recipes import Size
from headway.preprocess.augment import Augmentation
from headway.preprocess.image import open_image
from headway.tasks.task import Choice

SAMPLE = 600  # pictures that are looked at
PROBE_SIDE = 14  # pixels per side of what the linear classifier sees
AS_GOOD = 0.9  # of its accuracy that mirror images must keep …
SURE = 3.0  # … or differ by less than so many standard errors
TOKENS_PER_SIDE = 8.5  # at most: patches grow with the picture
MAX_SIDE = {"cpu": 64, "other": 160}  # pixels
LADDER = (  # models by size
    Size(width=48, layers=2, heads=2, dropout=0.0),
    Size(width=64, layers=3, heads=4, dropout=0.0),
    Size(width=96, layers=4, heads=4, dropout=0.0),
    Size(width=128, layers=6, heads=4, dropout=0.0),
    Size(width=192, layers=8, heads=6, dropout=0.0),
    Size(width=256, layers=10, heads=8, dropout=0.0),
    Size(width=384, layers=12, heads=12, dropout=0.0),
)
USUAL = 1  # of the ladder, without a time limit
SEEN = 60_000  # pictures that a run without a time limit shows the model, in at least EPOCHS[0] epochs
EPOCHS = (10, 60)
EVALUATED = (500, 1 / 15)  # held-out pictures of an evaluation during training: at least, and per training picture
ENOUGH_EPOCHS = 12  # before a larger model is worth its time
TIMED_BATCH = 32
STEM_START = 16  # channels of the first convolution, at least
DEEPER = 2  # residual convolutions of a stem


@dataclass(frozen=True)
class PictureFacts:
    """What is known of the training pictures: of a sample, but for the counts."""

    count: int
    labels: int
    side: int  # median of the shorter sides
    grey: bool
    sizes_differ: bool
    mirrored: float  # share of the accuracy that is left on mirror images; 1 where the difference may be chance


def look(facts: Facts) -> PictureFacts:
    sample = facts.some(SAMPLE)
    opened = [open_image(row.fields["image"], where=row.where) for row in sample]
    sizes = [min(picture.size) for picture in opened]
    small = np.stack([np.asarray(picture.convert("L").resize((PROBE_SIDE, PROBE_SIDE))) for picture in opened])
    return PictureFacts(
        count=facts.count,
        labels=len(facts.labels),
        side=int(np.median(sizes)),
        grey=all(picture.mode in ("1", "L") for picture in opened),
        sizes_differ=len({picture.size for picture in opened}) > 1,
        mirrored=mirror_accuracy(small, sample),
    )


def mirror_accuracy(small: np.ndarray, rows: Sequence[Row]) -> float:
    """How well a linear classifier, fitted to half of the pictures, recognises the mirror images of the others, as a
    share of how well it recognises themselves; 1 where the difference may be chance. `small` is (picture, row,
    column)."""
    labels = sorted({row.fields["label"] for row in rows})
    wanted = np.array([labels.index(row.fields["label"]) for row in rows])
    order = np.random.default_rng(0).permutation(len(rows))
    fitted, held = order[::2], order[1::2]
    if not len(held):
        return 1.0
    centre = small[fitted].mean(0)

    def features(pictures: np.ndarray) -> np.ndarray:
        flat = ((pictures - centre) / 255.0).reshape(len(pictures), -1)
        return np.hstack([flat, np.ones((len(flat), 1))])

    inputs, targets = features(small[fitted]), np.eye(len(labels))[wanted[fitted]]
    ridge = 0.01 * len(fitted) * np.eye(inputs.shape[1])
    weights = np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ targets)
    right, mirrored = (
        (features(pictures) @ weights).argmax(1) == wanted[held] for pictures in (small[held], small[held][:, :, ::-1])
    )
    lost = right.astype(float) - mirrored
    if lost.mean() <= SURE * lost.std() / math.sqrt(len(lost)):
        return 1.0
    return float(mirrored.mean() / right.mean())


def choose(facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
    """For a model from scratch, or for fine-tuning, where the model is given."""
    pictures = look(facts)
    scratch = recipe != "finetune"
    settings: dict[str, Any] = {}
    why: dict[str, str] = {}
    if scratch:
        settings |= _form(pictures, given)
    size, epochs = _length(pictures, settings, given) if scratch else (None, _usual_epochs(pictures, given) / 4)
    if size is not None:
        settings |= {f"model.{name}": value for name, value in vars(size).items()}
        why["pictures"] = _in_words(pictures, settings, given)
    if not {"train.minutes", "train.steps", "train.epochs"} & set(given):
        settings["train.epochs"] = max(1, round(epochs))
    settings["train.batch"] = batch_size(pictures.count)
    settings["train.eval_rows"] = max(EVALUATED[0], round(EVALUATED[1] * pictures.count))
    augmentation = augmentation_for(pictures, epochs)
    settings |= {f"task.{name}": value for name, value in vars(augmentation).items()}
    settings["task.label_smoothing"] = 0.1
    own = {name: given.get(f"task.{name}", value) for name, value in vars(augmentation).items()}
    why["augmented"] = Augmentation(**own).describe()
    if pictures.mirrored < AS_GOOD:
        why["augmented"] += f"; no mirror images (recognised {pictures.mirrored:.0%} as well)"
    return Choice(settings, why)


def _form(pictures: PictureFacts, given: Mapping[str, Any]) -> dict[str, Any]:
    """The pictures' size, channels and patches."""
    cpu = pick_device(given.get("train.device", "auto")).type == "cpu"
    side = given.get("task.image") or max(4, min(pictures.side, MAX_SIDE["cpu" if cpu else "other"]))
    patch = 2 ** max(0, math.ceil(math.log2(side / TOKENS_PER_SIDE)))
    patch = given.get("task.patch") or patch
    return {
        "task.image": side if "task.image" in given else max(patch, side // patch * patch),
        "task.patch": patch,
        "task.channels": 1 if pictures.grey else 3,
        "task.pool": "mean",
    }


def stem_for(patch: int, width: int) -> list[int]:
    """Channels that double up to the width; the first convolution has stride 1. In front of the last halving stand
    DEEPER more, with residual connections: there a convolution costs less than a block and sees more detail."""
    layers = (patch - 1).bit_length() + 1
    channels = [max(STEM_START, width >> later) for later in range(layers - 1, -1, -1)]
    return [*channels[:-1], *channels[-2:-1] * DEEPER, channels[-1]]


def _length(pictures: PictureFacts, form: dict[str, Any], given: Mapping[str, Any]) -> tuple[Size | None, float]:
    """The model of the ladder and how often it sees each picture. Adds the stem to `form`."""
    names = {name.removeprefix("model.") for name in given if name.startswith("model.")}
    most = sum(pictures.count >= least for least in (2_000, 10_000, 100_000, 1_000_000)) + 1
    chosen, epochs = LADDER[min(USUAL, most)], _usual_epochs(pictures, given)
    if minutes := given.get("train.minutes"):
        reference = LADDER[USUAL]
        seconds = seconds_per_picture(reference, form, labels=pictures.labels)
        fits = minutes * 60 / seconds / pictures.count * cost(reference, form)  # epochs · cost
        rungs = [size for size in LADDER[: most + 1] if fits / cost(size, form) >= ENOUGH_EPOCHS] or [LADDER[0]]
        chosen, epochs = rungs[-1], fits / cost(rungs[-1], form)
    if "width" not in names:
        form["task.stem"] = stem_for(form["task.patch"], chosen.width)
    else:
        form["task.stem"] = stem_for(form["task.patch"], given["model.width"])
    return (chosen if not names else None), epochs


def _usual_epochs(pictures: PictureFacts, given: Mapping[str, Any]) -> float:
    if epochs := given.get("train.epochs"):
        return epochs
    if steps := given.get("train.steps"):
        return steps * given.get("train.batch", batch_size(pictures.count)) / pictures.count
    return min(max(SEEN / pictures.count, EPOCHS[0]), EPOCHS[1])


def batch_size(count: int) -> int:
    return 128 if count >= 10_000 else 64 if count >= 1_000 else 32


def augmentation_for(pictures: PictureFacts, epochs: float) -> Augmentation:
    """More of it, the more often a picture is seen."""
    few = epochs < 4
    return Augmentation(
        zoom=0.4 if pictures.sizes_differ else 0.0,
        shift=0.0 if pictures.sizes_differ else 0.1,
        flip=pictures.mirrored >= AS_GOOD,
        colour=0.0 if pictures.grey or few else 0.2,
        erase=0.0 if few else 0.25,
        cutmix=0.25 if epochs >= 40 else 0.0,
    )


def cost(size: Size, form: Mapping[str, Any]) -> float:
    """Multiplications of a forward pass for one picture."""
    side, patch = form["task.image"], form["task.patch"]
    tokens = (side // patch) ** 2
    blocks = size.layers * tokens * (12 * size.width**2 + 2 * tokens * size.width)
    into, stem, across = form["task.channels"], 0.0, float(side)
    channels = stem_for(patch, size.width)
    for out, stride in zip(channels, recipes.strides(patch, len(channels)), strict=True):
        across /= stride
        stem += 9 * into * out * across**2
        into = out
    return blocks + stem


def seconds_per_picture(size: Size, form: Mapping[str, Any], *, labels: int) -> float:
    """A training step of the model on random pictures, timed on the device that is trained on."""
    device = pick_device("auto")
    side = form["task.image"]
    config = recipes.vision(
        size,
        "modern",
        image=(side, side),
        patch=form["task.patch"],
        channels=form["task.channels"],
        stem=stem_for(form["task.patch"], size.width),
        head=ClassifyHeadConfig(max(labels, 1), pool="mean"),
    )
    with torch.random.fork_rng(devices=[]):
        model = build(config).to(device).train()
        images = torch.randn(TIMED_BATCH, form["task.channels"], side, side, device=device)
        wanted = torch.zeros(TIMED_BATCH, dtype=torch.long, device=device)

        def step() -> float:
            began = time.perf_counter()
            loss = F.cross_entropy(model(images).logits, wanted)
            loss.backward()
            loss.item()
            return (time.perf_counter() - began) / TIMED_BATCH

        return _median_of(step, 5)


def _median_of(step: Callable[[], float], count: int) -> float:
    step()  # what only the first pass does is not timed
    return sorted(step() for _ in range(count))[count // 2]


def _in_words(pictures: PictureFacts, settings: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    now = {**settings, **given}
    kind = "grey" if now["task.channels"] == 1 else "colour"
    stem = f"a stem of {len(now['task.stem'])} convolutions" if now["task.stem"] else "patches"
    return (
        f"{kind}, {now['task.image']} × {now['task.image']} pixels, {stem} to {now['task.patch']} × "
        f"{now['task.patch']}-pixel tokens; {now['model.layers']} layers of width {now['model.width']}"
    )
