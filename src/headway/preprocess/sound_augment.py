"""Random changes of a training recording that leave its words: when it begins, how fast and by whom it is spoken,
through which microphone and in which noise; and masks on its spectrogram (SpecAugment, Park et al. 2019).

A sound changes before its spectrogram is computed (`changed_sound`), a spectrogram after (`changed_features`). All
draws come from the generator that is given, so an example's change depends on its seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
    faster, before, behind, noisy, level = random.random(5).tolist()
    count = max(1, round(len(samples) / (1 + SPEED * (2 * faster - 1))))
    out = resampled(samples, count)
    out = shifted(out, *(round(SHIFT * (2 * each - 1) * rate) for each in (before, behind)))
    if noisy < NOISY:
        noise = random.standard_normal(len(out), dtype=np.float32)
        noise *= NOISE[0] * (NOISE[1] / NOISE[0]) ** level * _largest(out)
        out += noise
    return out


def _largest(samples: Samples) -> float:
    return float(max(samples.max(initial=0), -samples.min(initial=0)))


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
    level = QUIET * _largest(samples)
    before, behind = (max(0, before), max(0, behind)) if not level else (before, behind)
    cut = _quiet(samples[: max(0, -before)], level)
    end = len(samples) - _quiet(samples[cut:][::-1][: max(0, -behind)], level)
    before, behind = max(0, before), max(0, behind)
    out = np.zeros(before + end - cut + behind, np.float32)
    out[before : before + end - cut] = samples[cut:end]
    return out


def _quiet(samples: Samples, level: float) -> int:
    """How many of the first samples are not louder."""
    loud = (samples > level) | (samples < -level)
    return int(loud.argmax()) if loud.any() else len(samples)


class Changes(NamedTuple):
    """What is drawn for each spectrogram of a batch."""

    warp: Tensor  # (sound,): stretch of the frequency axis
    curve: Tensor  # (sound, bin): of the microphone, in units of a feature
    frames: MaskedSpans
    bins: MaskedSpans


def draw_changes(frames: Sequence[int], bins: int, randoms: Sequence[Generator]) -> Changes:
    masks = TIME_MASKS + BIN_MASKS
    draws = np.stack([random.random(1 + WAVES + 2 * masks) for random in randoms])  # (sound, draw)
    waves = np.arange(1, WAVES + 1)
    heights = np.stack([random.standard_normal(WAVES) for random in randoms]) * (TILT / waves)  # (sound, wave)
    phases, place = np.pi * draws[:, 1 : 1 + WAVES], np.linspace(0, np.pi, bins)[:, None] * waves  # (bin, wave)
    # cos(place + phase), as a sum of products
    curve = (heights * np.cos(phases)) @ np.cos(place).T - (heights * np.sin(phases)) @ np.sin(place).T
    of_time, of_bins = np.split(draws[:, 1 + WAVES :].reshape(len(draws), masks, 2), [TIME_MASKS], axis=1)
    return Changes(
        warp=torch.from_numpy((1 + WARP * (2 * draws[:, 0] - 1)).astype(np.float32)),
        curve=torch.from_numpy(curve.astype(np.float32)),
        frames=_spans_of(of_time, np.asarray(frames)[:, None], TIME_SHARE),
        bins=_spans_of(of_bins, np.full((1, 1), bins), BIN_SHARE),
    )


def _spans_of(draws: NDArray[np.float64], size: NDArray[np.int64], share: float) -> MaskedSpans:
    """Each up to `share` of `size` long, by two draws: (sound, span, 2)."""
    length = np.floor(draws[..., 0] * (np.floor(share * size) + 1)).astype(np.int64)
    first = np.floor(draws[..., 1] * (size - length + 1)).astype(np.int64)
    return MaskedSpans(torch.from_numpy(first), torch.from_numpy(first + length))


class MaskedSpans(NamedTuple):
    first: Tensor  # (sound, span)
    behind: Tensor

    def inside(self, size: int) -> Tensor:
        """(sound, place), True inside any span of the sound."""
        place = torch.arange(size)
        return ((place >= self.first[..., None]) & (place < self.behind[..., None])).any(1)


def changed_features(features: Tensor, frames: Sequence[int], randoms: Sequence[Generator]) -> Tensor:
    """Another vocal tract and microphone, and parts masked by the mean. `features` is (sound, frame, bin), padded
    behind the `frames` of each sound; padding stays zero."""
    bins = features.shape[2]
    changes = draw_changes(frames, bins, randoms)
    out = warped(features, changes.warp)
    out += changes.curve[:, None]
    counts = torch.tensor(frames)
    padding = torch.arange(features.shape[1]) >= counts[:, None]  # (sound, frame)
    out.masked_fill_(padding[:, :, None], 0)
    mean = out.sum((1, 2)) / (counts * bins)
    time, frequency = changes.frames.inside(features.shape[1]), changes.bins.inside(bins)
    masked = (time[:, :, None] | frequency[:, None]) & ~padding[:, :, None]
    return torch.where(masked, mean[:, None, None], out)


def warped(features: Tensor, factors: Tensor) -> Tensor:
    """The bins of each sound, (sound, frame, bin), stretched by its factor from the lowest on; the highest is repeated
    where there are none."""
    bins = features.shape[2]
    place = (torch.arange(bins, dtype=torch.float32) / factors[:, None]).clamp(max=bins - 1)  # (sound, bin)
    low = place.floor().long().clamp(max=max(bins - 2, 0))
    share = (place - low)[:, None]
    low = low[:, None].expand_as(features)
    return torch.lerp(features.gather(2, low), features.gather(2, (low + 1).clamp(max=bins - 1)), share)
