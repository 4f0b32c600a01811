"""Whether there can be speech in a window, by its log power alone: what never changes, and pure tones, are none.

A model of speech finds words in silence, hum, tones and noise too. The sounds of speech differ from each other: over
the loud part of a window, each mel band rises and falls by several decibels, where the bands of steady sounds stay
within one; and no language is spoken in single sine waves. Speech in noise twice as loud passes.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

SILENCE = -7.5  # log10 of the power of a band: about 10 steps of 16 bits
SMOOTH = (15, 3)  # frames and bands that are averaged, since the power of noise fluctuates
LOUD = 2.0  # decades below the loudest frame that count
FLOOR = 5.0  # decades below the loudest band that count
STEADY = 0.1  # decades by which the bands of a steady sound vary
TONE_BANDS, TONE_SHARE = 5, 0.93  # a tone has this share of a frame's power in as many neighbouring bands


def may_be_speech(log: Tensor) -> bool:
    """`log` is (frame, band), log10 of the power."""
    if not len(log) or float(log.max()) < SILENCE:
        return False
    return variation(log) > STEADY and not is_tone(log)


def variation(log: Tensor) -> float:
    """Standard deviation of a band over the loud frames, mean over the bands, in decades."""
    size = min(SMOOTH[0], max(1, len(log) // 3)), min(SMOOTH[1], log.shape[1])
    smooth = F.avg_pool2d((10**log)[None], size, stride=1)[0].log10()  # (frame, band)
    loud = _loud(smooth)
    return float(smooth.clamp(min=float(smooth.max()) - FLOOR)[loud].std(0, correction=0).mean())


def is_tone(log: Tensor) -> bool:
    """Whether nine in ten loud frames hold next to nothing but one narrow peak."""
    power = 10 ** log[_loud(log)]
    size = min(TONE_BANDS, power.shape[1])
    narrow = F.avg_pool1d(power[:, None], size, stride=1)[:, 0].amax(1) * size / power.sum(1)  # (frame)
    return float(narrow.quantile(0.1)) > TONE_SHARE


def _loud(log: Tensor) -> Tensor:
    """(frame,) bool"""
    energy = (10**log).mean(1).log10()
    return energy > energy.max() - LOUD
