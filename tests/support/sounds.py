"""Small recordings for tests."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def tone(seconds: float, *, rate: int = 16000, pitch: float = 440.0, loud: float = 0.5) -> NDArray[np.float32]:
    time = np.arange(round(seconds * rate)) / rate
    return (loud * np.sin(2 * np.pi * pitch * time)).astype(np.float32)


def noise(seconds: float, *, rate: int = 16000, seed: int = 0, loud: float = 0.1) -> NDArray[np.float32]:
    return (loud * np.random.default_rng(seed).standard_normal(round(seconds * rate))).astype(np.float32)


def encoded(
    samples: NDArray[np.float32], rate: int = 16000, *, format: str = "WAV", subtype: str | None = None
) -> bytes:
    import soundfile

    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=format, subtype=subtype)
    return out.getvalue()


def wav(path: Path, samples: NDArray[np.float32], rate: int = 16000, **options: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(samples, rate, **options))
    return path
