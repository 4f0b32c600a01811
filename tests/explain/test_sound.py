"""A recording explained: attention of the encoder's vectors and of each token of the text over the spectrogram."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from support.sounds import tone, wav
from support.task_run import started

from headway.bundle import Bundle
from headway.explain import explain
from headway.explain.sound_inputs import MOST_VECTORS
from headway.preprocess.processor import Processor

pytest.importorskip("soundfile", reason="the extra audio is not installed")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    task, model, _ = started("transcribe", rows=20, target_limit=6)
    return Bundle(model.eval(), "headway", task.processor(Processor()), task=task)


def test_the_spectrogram_has_a_column_for_each_vector(bundle: Bundle, tmp_path: Path) -> None:
    from PIL import Image

    wav(tmp_path / "a.wav", tone(0.5), 16000)
    story = explain(bundle, tmp_path / "a.wav").story
    sound, text = story.sequences["source"], story.sequences["target"]
    assert story.title == "a.wav" and len(sound.tokens) == 13 and sound.tokens[1].text == "0.04s"
    assert sound.picture is not None and (sound.picture.kind, sound.picture.columns) == ("sound", 13)
    assert Image.open(io.BytesIO(base64.b64decode(sound.picture.png))).size == (100, 160)
    cross = [each for each in story.attention if each.kind == "cross"]
    assert len(cross) == 2 and all(each.weights.shape == (each.heads, len(text.tokens), 13) for each in cross)
    own = next(each for each in story.attention if each.stack == "encoder")
    assert own.weights.shape == (own.heads, 13, 13)
    np.testing.assert_allclose(own.weights.sum(-1), 1, atol=1e-5)
    assert len(story.embedding[0].token) == 13 and story.generation is not None


def test_a_text_can_be_scored_and_a_long_recording_is_cut_with_a_note(bundle: Bundle) -> None:
    story = explain(bundle, (tone(13.0), 16000), against="one").story
    assert story.output is not None and story.output.given and story.output.answer == "one"
    assert len(story.sequences["source"].tokens) == MOST_VECTORS
    assert story.note[0] == "Only the first 12 of 13.0 seconds are used: a page holds no more."
    assert story.title == "a recording" and "spectrogram" in explain(bundle, (tone(0.3), 16000)).html()
