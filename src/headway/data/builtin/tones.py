"""Digits "spoken" by a buzz through two resonances that glide, each digit by its own way of them. Numpy only."""

from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.builtin.pool import Example, Generated

RATE = 16000
GLIDES: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {  # the two resonances at the start and the end, in hertz
    "zero": ((300, 2200), (450, 900)),
    "one": ((350, 700), (650, 1100)),
    "two": ((320, 1900), (330, 800)),
    "three": ((400, 1200), (280, 2300)),
    "four": ((600, 900), (450, 750)),
    "five": ((750, 1200), (350, 2100)),
    "six": ((420, 2000), (400, 1900)),
    "seven": ((600, 1800), (480, 1100)),
    "eight": ((550, 1800), (320, 2350)),
    "nine": ((750, 1300), (550, 1900)),
}


def transcribe(chance: Random) -> Example:
    words = chance.choices(list(GLIDES), k=chance.randint(1, 3))
    number = chance.getrandbits(64)
    text = " ".join(words)
    return f"{text} {number}", lambda: {"audio": speak(words, np.random.default_rng(number)), "text": text}


def speak(words: list[str], random: np.random.Generator) -> NDArray[np.int16]:
    """(sample,) at RATE: the words of one random speaker, with pauses."""
    pitch, tract, speed = random.uniform(90, 240), random.uniform(0.88, 1.14), random.uniform(0.8, 1.25)
    parts: list[NDArray[Any]] = [np.zeros(int(random.uniform(0.03, 0.12) * RATE))]
    for word in words:
        parts += [_word(word, pitch * random.uniform(0.92, 1.08), tract, speed), np.zeros(int(0.06 * RATE / speed))]
    sound = np.concatenate(parts)
    sound = sound * random.uniform(0.2, 0.9) + random.uniform(1e-4, 1e-2) * random.standard_normal(len(sound))
    return (sound.clip(-1, 1) * 32767).astype(np.int16)


def _word(word: str, pitch: float, tract: float, speed: float) -> NDArray[np.float32]:
    """Harmonics of the pitch, each as loud as the resonances let it be. In fp32, whose exp and sin numpy vectorises."""
    glide = np.linspace(0, 1, int(0.26 * RATE / speed), dtype=np.float32)
    start, end = GLIDES[word]
    peaks = [np.float32(tract) * (a + (b - a) * glide) for a, b in zip(start, end, strict=True)]
    fall = np.float32(pitch) * (np.float32(1.05) - np.float32(0.15) * glide)
    phase = (2 * np.pi * np.cumsum(fall, dtype=np.float64) / RATE % (2 * np.pi)).astype(np.float32)
    sound = np.zeros(len(glide), np.float32)
    for harmonic in range(1, int(3000 / pitch)):
        loud = sum(np.exp(-(((harmonic * fall - peak) / 120) ** 2)) for peak in peaks)
        sound += loud * np.sin(harmonic * phase) / np.float32(harmonic**0.5)
    envelope = np.minimum(1, np.minimum(glide, 1 - glide) * 8)
    return envelope * sound / max(np.abs(sound).max(), 1e-9)


SPOKEN_DIGITS = Generated("transcribe", transcribe, train=2_000, test=200)
