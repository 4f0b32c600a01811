"""Sound of any format, rate and number of channels becomes mono samples; what is no sound is refused by name."""

import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sounds import encoded, noise, tone, wav

from headway.errors import DataError
from headway.preprocess.audio import Sound, resampled

pytest.importorskip("soundfile", reason="the extra audio is not installed")
pytest.importorskip("soxr", reason="the extra audio is not installed")


@pytest.mark.parametrize(("format", "close"), [("WAV", 1e-4), ("FLAC", 1e-4), ("OGG", 0.05), ("MP3", 0.05)])
def test_every_format_is_read(format: str, close: float, tmp_path: Path) -> None:
    wanted = tone(1.0)
    for source in (encoded(wanted, format=format), wav(tmp_path / f"a.{format.lower()}", wanted, format=format)):
        got = Sound(source, 16000).read()
        assert got.dtype == np.float32 and abs(len(got) - len(wanted)) <= 2400  # an encoder adds silence
        middle = slice(2000, 14000)
        shift = max(range(-1200, 1200), key=lambda by: float(got[2000 + by : 14000 + by] @ wanted[middle]))
        assert np.abs(got[2000 + shift : 14000 + shift] - wanted[middle]).max() < close


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000, 192000])
@pytest.mark.parametrize("channels", [1, 2, 7])
def test_any_rate_and_number_of_channels(rate: int, channels: int) -> None:
    """A 440 Hz tone stays one, as loud as before; opposite channels cancel out."""
    one = tone(0.5, rate=rate)
    several = np.stack([one * (1 + (number - (channels - 1) / 2)) for number in range(channels)], axis=1)
    got = Sound(encoded(several.clip(-4, 4), rate, subtype="FLOAT"), 16000).read()
    assert abs(len(got) - 8000) <= 2
    np.testing.assert_allclose(got[500:7500], tone(0.5)[500:7500], atol=2e-3)


def test_blocks_joined_are_the_whole() -> None:
    long = noise(40, rate=44100)
    blocks = list(Sound((long, 44100), 16000).blocks())
    assert len(blocks) > 3
    np.testing.assert_allclose(np.concatenate(blocks), resampled(long, 44100, 16000), atol=1e-5)
    np.testing.assert_array_equal(Sound((long, 44100), 16000).read(seconds=3), np.concatenate(blocks)[:48000])


def test_memory_does_not_grow_with_the_length(tmp_path: Path) -> None:
    peaks = []
    for minutes in (1, 8):
        path = wav(tmp_path / f"{minutes}.flac", np.zeros(minutes * 60 * 16000, np.float32), format="FLAC")
        tracemalloc.start()
        assert sum(map(len, Sound(path, 8000).blocks())) == pytest.approx(minutes * 60 * 8000, abs=10)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 20e6


def test_integers_are_scaled() -> None:
    got = Sound((np.array([0, 16384, -32768] * 200, dtype=np.int16), 16000), 16000).read()
    np.testing.assert_allclose(got[:3], [0, 0.5, -1])


SAMPLES = tone(2.0)
NAN = np.array([0.1] * 4000 + [np.nan] + [0.1] * 4000, dtype=np.float32)
FAULTS: dict[str, tuple[Any, str]] = {
    "empty file": (b"", "empty: 0 bytes"),
    "no samples": (encoded(np.zeros(0, np.float32)), "holds no sound"),
    "text": (b"this is not sound" * 100, "not a sound file, or a damaged one"),
    "a picture's head": (b"\x89PNG\r\n\x1a\n" + bytes(500), "not a sound file"),
    "NaN": (encoded(NAN, subtype="FLOAT"), r"the sample at 0\.250 s is not a finite number"),
    "infinite": (encoded(NAN * np.inf, subtype="FLOAT"), r"the sample at 0\.000 s is not a finite number"),
    "a rate of 10 Hz": (encoded(SAMPLES, 10), "10 samples a second; expected 1,000"),
    "a truncated FLAC": (encoded(noise(4.0), format="FLAC")[:-40000], "damaged"),
    "an array of three dimensions": (np.zeros((3, 3, 3), np.float32), "an array of float32 with shape"),
    "text in an array": (np.array(["a"]), "an array of"),
    "a plain string": ("a.wav", "expected a sound file's Path, its bytes or an array, found str"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_sound_is_refused_by_name(fault: str, tmp_path: Path) -> None:
    source, message = FAULTS[fault]
    with pytest.raises(DataError, match=f"^row 3: .*{message}"):
        Sound(source, 16000, "row 3").read()
    if isinstance(source, bytes):
        path = tmp_path / "bad.wav"
        path.write_bytes(source)
        with pytest.raises(DataError, match=f"^{path}: .*{message}"):
            Sound(path, 16000).read()


def test_the_content_decides_the_format_not_the_name(tmp_path: Path) -> None:
    for name in ("a.mp3", "a.txt", "a"):
        path = wav(tmp_path / name, SAMPLES, format="FLAC")
        np.testing.assert_allclose(Sound(path, 16000).read(), SAMPLES, atol=1e-4)
    (tmp_path / "samples.raw").write_bytes((SAMPLES * 32767).astype("<i2").tobytes())
    with pytest.raises(DataError, match=r"samples\.raw: not a sound file"):
        Sound(tmp_path / "samples.raw", 16000).read()


def test_a_file_that_declares_years_is_refused() -> None:
    data = bytearray(encoded(np.zeros(400_000, np.float32), 1000, format="FLAC"))
    data[21:26] = bytes([data[21] | 0x0F, 0xFF, 0xFF, 0xFF, 0xFF])  # the number of samples in FLAC's header
    with pytest.raises(DataError, match="hours; at most 48 are read"):
        Sound(bytes(data), 16000).read()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.wav"
    os.mkfifo(pipe)
    for path, message in ((pipe, "a named pipe"), (tmp_path, "a folder"), (tmp_path / "x", "no such file")):
        with pytest.raises(DataError, match=message):
            Sound(path, 16000).read()


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"pip install 'headway\[audio\]'"):
        Sound(b"RIFF", 16000).read()
