"""Silence, hum, tones and noise are no speech; gliding resonances, also in noise, may be."""

import numpy as np
import pytest
import torch
from support.sounds import noise, tone

from headway.data.builtin.tones import speak
from headway.preprocess.audio_processor import AudioProcessor
from headway.preprocess.log_mel import LogMelStream
from headway.preprocess.speech_activity import may_be_speech

SECONDS = 4.0
TIME = np.arange(int(SECONDS * 16000)) / 16000


def log(samples: np.ndarray) -> torch.Tensor:
    stream = LogMelStream(AudioProcessor().mel)
    return torch.cat([stream.push(samples.astype(np.float32)), stream.finish()])[: len(samples) // 160]


STEADY = {
    "silence": np.zeros_like(TIME),
    "a few bits": np.round(noise(SECONDS, loud=1e-5) * 32768) / 32768,
    "mains hum": tone(SECONDS, pitch=50) + 0.3 * tone(SECONDS, pitch=100) + 0.1 * tone(SECONDS, pitch=150),
    "a tone": tone(SECONDS, pitch=440),
    "a high tone": tone(SECONDS, pitch=3000),
    "beeps": tone(SECONDS, pitch=800) * (TIME % 1 < 0.3),
    "a chord": sum(tone(SECONDS, pitch=pitch, loud=0.1) for pitch in (262, 330, 392)),
    "a rising tone": np.sin(2 * np.pi * (200 + 150 * TIME) * TIME),
    "white noise": noise(SECONDS),
    "quiet white noise": noise(SECONDS, loud=1e-3),
    "brown noise": np.cumsum(noise(SECONDS, loud=1e-3)),
    "hum in noise": tone(SECONDS, pitch=50) + noise(SECONDS, loud=0.01),
    "a fading tone": tone(SECONDS) * np.linspace(1, 0, len(TIME)),
}


@pytest.mark.parametrize("name", STEADY)
def test_steady_sounds_are_no_speech(name: str) -> None:
    assert not may_be_speech(log(STEADY[name]))


@pytest.mark.parametrize("seed", range(4))
def test_what_glides_like_speech_may_be(seed: int) -> None:
    random = np.random.default_rng(seed)
    words = speak(list(random.choice(["zero", "two", "five", "nine"], 4)), random) / 32768
    level = float(words.std())
    assert may_be_speech(log(words)) and may_be_speech(log(words * 0.01))
    assert may_be_speech(log(np.concatenate([np.zeros(80000), words]))), "one word in a silence"
    assert may_be_speech(log(words + level * random.standard_normal(len(words)))), "noise as loud as the words"
    assert may_be_speech(log(words + tone(len(words) / 16000, pitch=50, loud=3 * level)[: len(words)])), "hum"


def test_nothing_is_no_speech() -> None:
    assert not may_be_speech(torch.zeros(0, 80))
