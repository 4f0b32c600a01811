"""Log-mel spectrograms (Whisper, Radford et al. 2022): power of a short-time Fourier transform through triangular
filters on Slaney's mel scale, log10, the top eight decades, scaled to about -1 … 1.

`log_mel` computes the whole at once; `LogMelStream` computes the same frames block by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FLOOR = 1e-10  # of the power of a band
TOP_HZ = 8000.0  # of the highest filter, whatever the rate, as in the reference library
DECADES = 8.0  # below the loudest band, the rest is cut off
LINEAR_HZ, LINEAR_MELS = 1000.0, 15.0  # up to here mels are proportional to frequency
OCTAVE_MELS = 27 / math.log(6.4)  # above it, mels a unit of log frequency


@dataclass(frozen=True)
class MelSettings:
    rate: int  # samples a second
    n_fft: int
    hop: int  # samples between two frames
    bins: int


def mels(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    above = LINEAR_MELS + OCTAVE_MELS * np.log(np.maximum(hertz, LINEAR_HZ) / LINEAR_HZ)
    return np.where(hertz < LINEAR_HZ, hertz * LINEAR_MELS / LINEAR_HZ, above)


def hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    above = LINEAR_HZ * np.exp(np.maximum(mels - LINEAR_MELS, 0) / OCTAVE_MELS)
    return np.where(mels < LINEAR_MELS, mels * LINEAR_HZ / LINEAR_MELS, above)


@cache
def mel_filters(settings: MelSettings) -> Tensor:
    """(bin, frequency): triangles between neighbours on an even mel grid, each of area one over frequency."""
    edges = hertz(np.linspace(0.0, mels(np.array(TOP_HZ)).item(), settings.bins + 2))  # (bin + 2)
    frequencies = np.linspace(0.0, settings.rate // 2, settings.n_fft // 2 + 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    triangles = np.minimum(rising, falling).clip(min=0) * (2 / (high - low))
    return torch.from_numpy(triangles.astype(np.float32))


def log_power(samples: Tensor, settings: MelSettings) -> Tensor:
    """(…, sample) → (…, frame, bin): log10 of the power in each band. The first frame begins with the first sample, and
    every frame is whole."""
    window = torch.hann_window(settings.n_fft)
    spectrum = torch.stft(
        samples, settings.n_fft, settings.hop, window=window, center=False, return_complex=True
    )  # (…, frequency, frame)
    power = mel_filters(settings) @ spectrum.real.square().add_(spectrum.imag.square())  # no root of a square
    return power.clamp(min=FLOOR).log10().mT


def scaled(log: Tensor, loudest: float | Tensor) -> Tensor:
    """Eight decades below `loudest`, the largest value of the recording, from about -1 to 1."""
    return (log.clamp(min=loudest - DECADES) + 4) / 4


def log_mel(samples: NDArray[np.float32], settings: MelSettings) -> NDArray[np.float32]:
    """(sample,) → (frame, bin), one frame for each whole hop; frame i is centred on sample i · hop."""
    log = log_power(centred(torch.from_numpy(samples), settings), settings)
    log = log[: max(1, len(samples) // settings.hop)]
    return scaled(log, log.max().item()).contiguous().numpy()


def log_mels(sounds: Sequence[NDArray[np.float32]], settings: MelSettings) -> list[Tensor]:
    """`log_mel` of each sound, (frame, bin), by one transform of all of them."""
    rows = [centred(torch.from_numpy(samples), settings) for samples in sounds]
    logs = log_power(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), settings)  # (sound, frame, bin)
    frames = torch.tensor([max(1, len(samples) // settings.hop) for samples in sounds])
    padding = torch.arange(logs.shape[1]) >= frames[:, None]  # (sound, frame)
    loudest = logs.amax(2).masked_fill(padding, -math.inf).amax(1)
    features = scaled(logs, loudest[:, None, None])
    return [row[:count] for row, count in zip(features, frames.tolist(), strict=True)]


def centred(samples: Tensor, settings: MelSettings) -> Tensor:
    """With half a frame before the first sample and behind the last: mirrored before, and behind too if there are
    enough samples, else zeros."""
    half = settings.n_fft // 2
    if len(samples) <= half:
        samples = torch.cat([samples, samples.new_zeros(half + 1 - len(samples))])
    return torch.cat([samples[1 : half + 1].flip(0), samples, samples[-half - 1 : -1].flip(0)])


class LogMelStream:
    """The frames of a recording that is followed by silence, as its blocks arrive. `push` and `finish` return log power
    (frame, bin), to be `scaled` once the loudest value is known."""

    def __init__(self, settings: MelSettings) -> None:
        self.settings = settings
        self.samples = 0  # pushed so far
        self._buffer = torch.zeros(0)  # from the beginning of the next frame on
        self._begun = False

    def push(self, samples: NDArray[np.float32]) -> Tensor:
        self.samples += len(samples)
        self._buffer = torch.cat([self._buffer, torch.from_numpy(samples)])
        half = self.settings.n_fft // 2
        if not self._begun and len(self._buffer) <= half:
            return self._buffer.new_zeros(0, self.settings.bins)
        if not self._begun:
            self._buffer, self._begun = torch.cat([self._buffer[1 : half + 1].flip(0), self._buffer]), True
        return self._frames()

    def finish(self) -> Tensor:
        """The frames that are left, up to the last that a sample of the recording is in."""
        count = self.samples
        size = self.settings.n_fft + (0 if self._begun else self.settings.n_fft // 2 + 1)
        last = self.push(np.zeros(size, np.float32))
        self.samples = count
        return last

    @property
    def content_frames(self) -> int:
        """Frames whose centre is in what was pushed, but for a last part of a hop."""
        return self.samples // self.settings.hop

    def _frames(self) -> Tensor:
        settings = self.settings
        count = (len(self._buffer) - settings.n_fft) // settings.hop + 1
        if count <= 0:
            return self._buffer.new_zeros(0, settings.bins)
        used = (count - 1) * settings.hop + settings.n_fft
        frames = log_power(self._buffer[:used], settings)
        self._buffer = self._buffer[count * settings.hop :]
        return frames
