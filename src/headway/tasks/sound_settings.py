"""Settings of `transcribe` that follow from the recordings and the time: how large a model from scratch is, and how
often it is evaluated.

Models are taken from a ladder. With a time limit one step of a small model is timed; the largest model that still uses
every recording often enough is chosen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headway.data.facts import Facts
from headway.distributed import pick_device
from headway.errors import DataError
from headway.models import recipes
from headway.models.build import build
from headway.models.recipes import Size
from headway.preprocess.audio import Sound
from headway.preprocess.audio_processor import AudioProcessor
from headway.tasks.task import Choice

SAMPLE = 300  # recordings whose lengths are read
LADDER = (  # models by size
    Size(width=128, layers=2, heads=4),
    Size(width=192, layers=3, heads=6),
    Size(width=256, layers=4, heads=4),
    Size(width=384, layers=6, heads=6),
)
ENOUGH_EPOCHS = 80  # before a larger model is worth its time
HOURS = (0.0, 1.0, 10.0, 50.0)  # of speech from which on each model is considered
STRIDE = 4  # frames of 10 ms that become one vector
TIMED_BATCH, TIMED_TOKENS = 16, 8
EVALUATIONS, LEAST_SECONDS = 12, 20  # of a run with a time limit; seconds between two of them


@dataclass(frozen=True)
class Recordings:
    count: int
    seconds: float  # the median, of a sample

    @property
    def hours(self) -> float:
        return self.count * self.seconds / 3600


def look(facts: Facts, *, rate: int) -> Recordings:
    sounds = (Sound(row.fields["audio"], rate, row.where, DataError) for row in facts.some(SAMPLE))
    lengths = sorted(sound.header.seconds for sound in sounds)
    return Recordings(facts.count, lengths[len(lengths) // 2] if lengths else 0.0)


def choose(facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
    settings: dict[str, Any] = {}
    if minutes := given.get("train.minutes"):
        settings["train.eval_every"] = f"{max(LEAST_SECONDS, round(minutes * 60 / EVALUATIONS))}s"
    if recipe == "finetune":
        return Choice(settings)
    audio = AudioProcessor()
    found = look(facts, rate=audio.sampling_rate)
    stride, size = given.get("task.stride", STRIDE), LADDER[0]
    if minutes:
        allowed = [each for each, hours in zip(LADDER, HOURS, strict=True) if found.hours >= hours]
        reference = cost(size, found.seconds, stride)
        epochs = minutes * 60 / seconds_per_recording(size, found.seconds, stride, audio) / max(1, found.count)
        rungs = [each for each in allowed if epochs * reference / cost(each, found.seconds, stride) >= ENOUGH_EPOCHS]
        size = rungs[-1] if rungs else size
    if not any(name.startswith("model.") for name in given):
        settings |= {f"model.{name}": value for name, value in vars(size).items()}
    width, layers = (given.get(f"model.{name}", getattr(size, name)) for name in ("width", "layers"))
    shape = f"a vector every {stride * 10} ms, {layers} + {layers} layers of width {width}"
    return Choice(settings, {"recordings": f"about {found.seconds:.1f} s each; {shape}"})


def cost(size: Size, seconds: float, stride: int) -> float:
    """Multiplications of a forward pass for one recording, up to a factor; the text is short beside the sound."""
    frames = seconds * 100
    front = frames * 3 * size.width * (80 + size.width / 2 + size.width / stride)
    vectors = frames / stride
    return front + size.layers * vectors * (12 * size.width**2 + 2 * vectors * size.width)


def seconds_per_recording(size: Size, seconds: float, stride: int, audio: AudioProcessor) -> float:
    """A training step of the model on noise, timed on the device that is trained on."""
    device = pick_device("auto")
    config = recipes.speech(
        size, "modern", bins=audio.bins, strides=recipes.speech_strides(stride), frames=audio.chunk_frames, vocab=32,
        context=2 * TIMED_TOKENS, start_id=0,
    )  # fmt: skip
    frames = max(stride, math.ceil(seconds * audio.frames_per_second))
    with torch.random.fork_rng(devices=[]):
        model = build(config).to(device).train()
        sound = torch.randn(TIMED_BATCH, frames, audio.bins, device=device)
        ids = torch.zeros(TIMED_BATCH, TIMED_TOKENS, dtype=torch.long, device=device)

        def step() -> float:
            began = time.perf_counter()
            logits = model(sound, decoder_ids=ids).logits
            logits.square().mean().backward()
            logits.sum().item()
            return (time.perf_counter() - began) / TIMED_BATCH

        step()  # what only the first pass does is not timed
        return sorted(step() for _ in range(5))[2]
