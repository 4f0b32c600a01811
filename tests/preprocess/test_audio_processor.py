"""Log-mel features with the numbers of the reference library, at once and in blocks, and the file of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.sounds import noise, tone

from headway.errors import ConfigError, DataError
from headway.preprocess.audio_processor import AudioProcessor
from headway.preprocess.log_mel import LogMelStream, MelSettings, mel_filters, scaled
from headway.preprocess.processor import Processor


@pytest.mark.parametrize("options", [{}, {"feature_size": 128}, {"chunk_length": 5, "sampling_rate": 8000}])
def test_features_are_the_references(options: dict[str, Any], tmp_path: Path) -> None:
    from transformers import WhisperFeatureExtractor

    theirs = WhisperFeatureExtractor(**options)
    theirs.save_pretrained(tmp_path)
    ours = AudioProcessor.from_json(json.loads((tmp_path / "preprocessor_config.json").read_text()), name="file")
    for samples in (tone(1.3) + noise(1.3), np.zeros(4000, np.float32), noise(4.99)[:7]):
        want = theirs(samples, sampling_rate=theirs.sampling_rate, return_tensors="np").input_features[0]
        got = ours(samples)
        assert got.dtype == np.float32 and got.shape == want.T.shape == (ours.chunk_frames, ours.bins)
        np.testing.assert_allclose(got, want.T, atol=1e-5)


@pytest.mark.parametrize("bins", [80, 128])
def test_filters_have_area_one_and_follow_each_other(bins: int) -> None:
    filters = mel_filters(MelSettings(16000, 1 << 15, 160, bins)).double()
    areas = filters.sum(1) * 16000 / (1 << 15)  # over frequency
    torch.testing.assert_close(areas, torch.ones(bins, dtype=torch.double), atol=0.01, rtol=0)
    peaks = filters.argmax(1)
    assert (peaks[1:] > peaks[:-1]).all()


@pytest.mark.parametrize("sizes", [[50, 140, 12, 9000, 1], [100_000], [150], [1] * 400])
def test_blocks_give_the_frames_of_the_whole(sizes: list[int]) -> None:
    """As the whole, followed by silence; whatever the sizes of the blocks."""
    processor, samples = AudioProcessor(chunk_length=10), noise(10)[: sum(sizes)]
    stream, parts, at = LogMelStream(processor.mel), [], 0
    for size in sizes:
        parts.append(stream.push(samples[at : at + size]))
        at += size
    parts.append(stream.finish())
    log = torch.cat(parts)
    want = processor(samples)
    np.testing.assert_allclose(scaled(log, log.max().item()).numpy(), want[: len(log)], atol=1e-5)
    assert stream.content_frames == len(samples) // 160 <= len(log)
    silent = want[len(log) :]
    assert (silent == silent.min()).all(), "no frame with sound is left out"


def test_any_length_has_a_frame_a_hop() -> None:
    for count in (1, 159, 160, 201, 4000):
        assert AudioProcessor().features(noise(1)[:count]).shape == (max(1, count // 160), 80)


def test_a_chunk_is_not_cut_silently() -> None:
    with pytest.raises(DataError, match=r"x: 1\.5 s; the features of a chunk have at most 1 s"):
        AudioProcessor(chunk_length=1)(noise(1.5), where="x")


def test_what_is_written_is_read_alike_here_and_there(tmp_path: Path) -> None:
    from transformers import AutoFeatureExtractor

    ours = AudioProcessor(sampling_rate=8000, bins=40, n_fft=200, hop_length=80, chunk_length=2)
    Processor(audio=ours).save(tmp_path)
    assert Processor.load(tmp_path, audio=True).audio == ours
    theirs = AutoFeatureExtractor.from_pretrained(tmp_path)
    want = theirs(noise(0.1), sampling_rate=8000, return_tensors="np").input_features[0]
    np.testing.assert_allclose(ours(noise(0.1)), want.T, atol=1e-5)


def test_a_section_of_a_combined_file_is_read_and_written_back(tmp_path: Path) -> None:
    section = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 20, "mel_filters": [[0.0]]}
    text = json.dumps({"processor_class": "WhisperProcessor", "feature_extractor": section})
    (tmp_path / "processor_config.json").write_text(text)
    processor = Processor.load(tmp_path, audio=True)
    assert processor.audio == AudioProcessor(bins=20)
    processor.save(tmp_path / "again")
    assert (tmp_path / "again" / "processor_config.json").read_text() == text
    assert Processor.load(tmp_path).audio is None, "a model that takes no sound has no audio processor"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"feature_extractor_type": "SeamlessM4TFeatureExtractor"}, "is not a feature extractor Headway has"),
        ({"dither": 0.1}, "dither: expected 0, got 0.1"),
        ({"hop_length": 0}, "hop_length: expected a whole number from 1"),
        ({"sampling_rate": "16k"}, "sampling_rate: expected"),
        ({"normalize_loudness": True}, "normalize_loudness is True, a step of preprocessing"),
    ],
)
def test_what_is_not_done_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AudioProcessor.from_json(wrong, name="preprocessor_config.json")


def test_another_audio_processor_replaces_the_file(tmp_path: Path) -> None:
    Processor(audio=AudioProcessor()).save(tmp_path)
    loaded = Processor.load(tmp_path, audio=True)
    assert loaded.with_audio(AudioProcessor()) is loaded
    loaded.with_audio(AudioProcessor(bins=7)).save(tmp_path / "other")
    other = Processor.load(tmp_path / "other", audio=True).audio
    assert other is not None and other.bins == 7 and "7 bins" in other.describe()
