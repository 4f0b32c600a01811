"""Random changes of a training recording that leave its words: when it begins, how fast and by whom it is spoken,
through which microphone and in which noise; and masks on its spectrogram (SpecAugment, Park et al. 2019).

A sound changes before its spectrogram is computed (`changed_sound`), a spectrogram after (`changed_features`). All
draws come from the generator that is given, so an example's change depends on its seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from headway.preprocess.audio import Samples

SPEED = 0.15  # up to so much faster or slower, and higher or lower
SHIFT = 0.1  # seconds of silence before and behind, at most; or as much of the sound's own silence cut off
QUIET = 0.05  # of the loudest sample: below is silence
NOISE = (1e-5, 1e-1)  # standard deviation of white noise, relative to the loudest sample
NOISY = 0.5  # share of sounds with noise
WARP = 0.12  # stretch of the frequency axis: shorter and longer vocal tracts (Jaitly and Hinton 2013)
TILT, WAVES = 0.15, 3  # height of the smooth curve, a sum of so many cosines, that a microphone adds over frequency
TIME_MASKS, TIME_SHARE = 2, 0.15  # masks over time, each up to this share of the sound
BIN_MASKS, BIN_SHARE = 2, 0.15  # masks over frequency


def changed_sound(samples: Samples, rate: int, random: Generator) -> Samples:
    """Another speed, beginning, end and noise floor."""
    speed = 1 + random.uniform(-SPEED, SPEED)
    count = max(1, round(len(samples) / speed))
    out = resampled(samples, count)
    before, behind = (round(random.uniform(-SHIFT, SHIFT) * rate) for _ in range(2))
    out = shifted(out, before, behind)
    if random.random() < NOISY:
        level = np.exp(random.uniform(*np.log(NOISE))) * np.abs(out).max(initial=0)
        noise = random.standard_normal(len(out), dtype=np.float32)
        noise *= np.float32(level)
        out += noise
    return out


def resampled(samples: Samples, count: int) -> Samples:
    """So many samples by linear interpolation, from the first to the last."""
    if len(samples) < 2:
        return np.resize(samples, count)
    places = np.arange(count) * ((len(samples) - 1) / max(1, count - 1))
    low = np.minimum(places.astype(np.int32), len(samples) - 2)
    places -= low
    left = samples[low]
    return left + places.astype(np.float32) * (samples[low + 1] - left)


def shifted(samples: Samples, before: int, behind: int) -> Samples:
    """With so many zeros before and behind; a negative number cuts off samples, but only quiet ones."""
    size = np.abs(samples)
    loud = np.flatnonzero(size > QUIET * size.max(initial=0))
    first, last = (int(loud[0]), int(loud[-1])) if len(loud) else (0, len(samples) - 1)
    samples = samples[min(max(0, -before), first) : len(samples) - min(max(0, -behind), len(samples) - 1 - last)]
    return np.pad(samples, (max(0, before), max(0, behind)))


@dataclass(frozen=True)
class Change:
    """What is drawn for one spectrogram."""

    warp: float  # stretch of the frequency axis
    curve: NDArray[np.float32]  # (bin,): of the microphone, in units of a feature
    frames: list[tuple[int, int]]  # masks over time: first frame, and the first behind
    bins: list[tuple[int, int]]  # masks over frequency


def draw_change(frames: int, bins: int, random: Generator) -> Change:
    warp = 1 + random.uniform(-WARP, WARP)
    place, waves = np.linspace(0, np.pi, bins), np.arange(1, WAVES + 1)
    heights, phases = random.normal(0, TILT / waves), random.uniform(0, np.pi, WAVES)
    curve = heights @ np.cos(waves[:, None] * place + phases[:, None])  # (bin,)
    masks = [
        _mask(size, share, random)
        for count, share, size in ((TIME_MASKS, TIME_SHARE, frames), (BIN_MASKS, BIN_SHARE, bins))
        for _ in range(count)
    ]
    return Change(warp, curve.astype(np.float32), masks[:TIME_MASKS], masks[TIME_MASKS:])


def _mask(size: int, share: float, random: Generator) -> tuple[int, int]:
    length = int(random.integers(0, int(share * size) + 1))
    start = int(random.integers(0, size - length + 1))
    return start, start + length


def changed_features(features: Tensor, frames: Sequence[int], randoms: Sequence[Generator]) -> Tensor:
    """Another vocal tract and microphone, and parts masked by the mean. `features` is (sound, frame, bin), padded
    behind the `frames` of each sound; padding stays zero."""
    bins = features.shape[2]
    changes = [draw_change(count, bins, random) for count, random in zip(frames, randoms, strict=True)]
    out = warped(features, torch.tensor([change.warp for change in changes]))
    out += torch.from_numpy(np.stack([change.curve for change in changes]))[:, None]
    counts = torch.tensor(frames)
    padding = torch.arange(features.shape[1]) >= counts[:, None]  # (sound, frame)
    out.masked_fill_(padding[:, :, None], 0)
    mean = out.sum((1, 2)) / (counts * bins)
    time = _spans(features.shape[1], [change.frames for change in changes])
    frequency = _spans(bins, [change.bins for change in changes])
    masked = (time[:, :, None] | frequency[:, None]) & ~padding[:, :, None]
    return torch.where(masked, mean[:, None, None], out)


def _spans(size: int, spans: Sequence[Sequence[tuple[int, int]]]) -> Tensor:
    """(row, place), True inside any span of the row."""
    place = torch.arange(size)[None, None]
    first, behind = torch.tensor(spans).unsqueeze(-1).unbind(2)  # (row, span, 1)
    return ((place >= first) & (place < behind)).any(1)


def warped(features: Tensor, factors: Tensor) -> Tensor:
    """The bins of each sound, (sound, frame, bin), stretched by its factor from the lowest on; the highest is repeated
    where there are none."""
    bins = features.shape[2]
    place = (torch.arange(bins, dtype=torch.float32) / factors[:, None]).clamp(max=bins - 1)  # (sound, bin)
    low = place.floor().long().clamp(max=max(bins - 2, 0))
    share = (place - low)[:, None]
    low = low[:, None].expand_as(features)
    return torch.lerp(features.gather(2, low), features.gather(2, (low + 1).clamp(max=bins - 1)), share)
