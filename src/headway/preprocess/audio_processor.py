"""Sound → features of a model, as preprocessor_config.json says: the reference library's WhisperFeatureExtractor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.validation import Check, between, from_dict

if TYPE_CHECKING:
    from headway.preprocess.log_mel import MelSettings

KIND = "WhisperFeatureExtractor"
Off = Annotated[float, Check("0", lambda value: value == 0)]


@dataclass(frozen=True, kw_only=True)
class _File:
    """The keys of the file that are read."""

    feature_size: Annotated[int, between(1, 1024)] = 80
    sampling_rate: Annotated[int, between(1000, 1_000_000)] = 16000
    hop_length: Annotated[int, between(1, 100_000)] = 160
    chunk_length: Annotated[int, between(1, 3600)] = 30
    n_fft: Annotated[int, between(2, 1_000_000)] = 400
    padding_value: Off = 0.0
    dither: Off = 0.0


KNOWN = tuple(field.name for field in fields(_File))
IGNORED = (  # they follow from the others, name a class, or say what a call returns
    "feature_extractor_type", "processor_class", "_processor_class", "transformers_version", "n_samples",
    "nb_max_frames", "mel_filters", "padding_side", "return_attention_mask", "return_tensors", "device",
)  # fmt: skip


@dataclass(frozen=True)
class AudioProcessor:
    sampling_rate: int = 16000
    bins: int = 80  # of a frame
    n_fft: int = 400
    hop_length: int = 160  # samples between two frames
    chunk_length: int = 30  # seconds of one input

    def __call__(self, samples: NDArray[np.float32], *, where: str = "sound") -> NDArray[np.float32]:
        """(frame, bin) of mono samples with silence up to `chunk_length` behind them."""
        if len(samples) > self.chunk_samples:
            seconds = len(samples) / self.sampling_rate
            raise DataError(f"{where}: {seconds:.1f} s; the features of a chunk have at most {self.chunk_length} s")
        return self.features(np.pad(samples, (0, self.chunk_samples - len(samples))))

    def features(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """(frame, bin) of mono samples of any length."""
        from headway.preprocess.log_mel import log_mel

        return log_mel(np.ascontiguousarray(samples, dtype=np.float32), self.mel)

    @property
    def mel(self) -> MelSettings:
        from headway.preprocess.log_mel import MelSettings

        return MelSettings(self.sampling_rate, self.n_fft, self.hop_length, self.bins)

    @property
    def chunk_samples(self) -> int:
        return self.chunk_length * self.sampling_rate

    @property
    def chunk_frames(self) -> int:
        return self.chunk_samples // self.hop_length

    @property
    def frames_per_second(self) -> float:
        return self.sampling_rate / self.hop_length

    # --- preprocessor_config.json

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, name: str) -> AudioProcessor:
        """`name` is the file, for errors. A key that is unknown and not off (null, false) is refused."""
        kind = data.get("feature_extractor_type", KIND)
        if kind != KIND:
            raise ConfigError(f"{name}: {kind!r} is not a feature extractor Headway has; known: {KIND}")
        unknown = [key for key in data if key not in KNOWN + IGNORED and data[key] not in (None, False)]
        if unknown:
            raise ConfigError(
                f"{name}: {unknown[0]} is {data[unknown[0]]!r:.80}, a step of preprocessing that Headway does not have"
            )
        file: _File = from_dict(_File, {key: data[key] for key in KNOWN if data.get(key) is not None}, path=name)
        return cls(file.sampling_rate, file.feature_size, file.n_fft, file.hop_length, file.chunk_length)

    def to_json(self) -> dict[str, Any]:
        return {
            "feature_extractor_type": KIND,
            "processor_class": "WhisperProcessor",
            "feature_size": self.bins,
            "sampling_rate": self.sampling_rate,
            "hop_length": self.hop_length,
            "chunk_length": self.chunk_length,
            "n_fft": self.n_fft,
            "n_samples": self.chunk_samples,
            "nb_max_frames": self.chunk_frames,
            "padding_side": "right",
            "padding_value": 0.0,
            "dither": 0.0,
            "return_attention_mask": False,
        }

    def describe(self) -> str:
        """One line for a person."""
        window, hop = (1000 * each / self.sampling_rate for each in (self.n_fft, self.hop_length))
        return (
            f"{self.sampling_rate / 1000:g} kHz mono, log-mel of {self.bins} bins, windows of {window:g} ms every "
            f"{hop:g} ms, chunks of {self.chunk_length} s"
        )
