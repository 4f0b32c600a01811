"""Responses are valid by OpenAI's published schema: the check of `make -C benchmarks clients`, with the
types of the package here."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from clients.published import CASES, SPEECH, check
from support.server import running


def test_every_response_is_valid_and_a_spoilt_one_is_not(
    language_model: Path, embedder: Path, task_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAPI", raising=False)
    sound = io.BytesIO()
    soundfile.write(sound, np.sin(np.arange(12_000) / 20).astype("float32") * 0.3, 16_000, format="WAV")
    models = [f"writer={language_model}", f"vectors={embedder}", task_folders["draw"], task_folders["transcribe"]]
    with running(*models) as server:
        assert check(server.url, sound.getvalue()) > len(CASES) + len(SPEECH), "streams have several values"
