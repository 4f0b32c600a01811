"""OpenAI's tiny.en on a clip of 30 seconds and on ten minutes, against transformers and faster-whisper: the same
weights, beams and rules (temperature 0, the text so far as the prompt, no voice filter), from samples to text.

    python -m benchmarks.whisper [--beams 1] [--clips 30 600] [--turns 2]
    OMP_NUM_THREADS=1 python -m benchmarks.whisper --cpu     processor time of one thread, where the machine is busy

Each takes its turns in processes of its own: the threads of one would slow the others. `make -C benchmarks
speech-peers` installs what is compared.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headway
from benchmarks.peers import installed
from benchmarks.speech_data import RATE, ctranslate2_layout, recording, tiny_en
from benchmarks.timing import interleaved, row, use_threads

OURS = {"headway": None, "headway int8": "int8"}
FASTER = {"faster-whisper": "float32", "faster-whisper int8": "int8"}
PAIRS = (("transformers", "headway"), ("faster-whisper", "headway"), ("faster-whisper int8", "headway int8"))
Transcriber = Callable[[np.ndarray], str]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--clips", type=float, nargs="+", default=[30, 600], help="seconds of each recording")
    parser.add_argument("--turns", type=int, default=2, help="processes of each")
    parser.add_argument("--repeats", type=int, default=2, help="times in each process")
    parser.add_argument("--folder", type=Path, help="of the converted weights; default: a temporary one")
    parser.add_argument("--cpu", action="store_true", help="processor time of all threads in place of the clock")
    parser.add_argument("--only", help="measure this one, in this process")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(options)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = prepared(options.folder or Path(scratch))
        times: dict[str, dict[str, list[float]]] = {f"{seconds:g} s": {} for seconds in options.clips}
        texts: dict[str, dict[str, str]] = {label: {} for label in times}
        for _ in range(options.turns):
            for name in ("transformers", *OURS, *FASTER):
                command = [sys.executable, "-m", "benchmarks.whisper", "--only", name, "--folder", str(folder)]
                command += ["--beams", str(options.beams), "--repeats", str(options.repeats)]
                command += ["--clips", *map(str, options.clips), *(["--cpu"] if options.cpu else [])]
                found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
                for label, (seconds, text) in json.loads(found).items():
                    times[label].setdefault(name, []).extend(seconds)
                    texts[label][name] = text
    ratios = []
    for label, by_name in times.items():
        for name, seconds in by_name.items():
            same = "same text" if texts[label][name] == texts[label]["headway"] else "other text"
            print(
                f"{label:<8} {name:<20} {min(seconds):7.2f} s  {len(texts[label][name].split())} words, {same}",
                flush=True,
            )
        for peer, ours in PAIRS:
            if peer in by_name:
                line, ratio = row(label, by_name, peer=peer, ours=ours)
                print(line, flush=True)
                ratios.append(f"{label} {peer} {ratio:.2f}")
    print(f"ratio {'; '.join(ratios)}")


def prepared(folder: Path) -> Path:
    if not (folder / "tiny.en").is_dir():
        tiny_en(folder / "tiny.en")
    for name, quantization in FASTER.items():
        if installed(name, "ctranslate2", "faster_whisper") and not (folder / name).is_dir():
            ctranslate2_layout(folder / "tiny.en", folder / name, quantization=quantization)
    return folder


@torch.no_grad()
def measured(options: Any) -> dict[str, tuple[list[float], str]]:
    """Seconds of each time and the text, by recording; nothing of a peer that is not installed."""
    use_threads()
    name, folder = options.only, options.folder
    if name in OURS:
        transcribe = ours(folder / "tiny.en", weights=OURS[name], beams=options.beams)
    elif name == "transformers":
        transcribe = reference(folder / "tiny.en", beams=options.beams)
    elif (folder / name).is_dir():
        transcribe = faster(folder / name, compute=FASTER[name], beams=options.beams)
    else:
        return {}
    transcribe(recording(10))
    found = {}
    for seconds in options.clips:
        sound, texts = recording(seconds), list[str]()
        repeats = options.repeats if seconds <= 60 else 1
        job = {name: lambda s=sound, t=texts: t.append(transcribe(s))}
        clock = time.process_time if options.cpu else time.perf_counter
        times = interleaved(job, repeats=repeats, warmup=0, clock=clock)
        found[f"{seconds:g} s"] = times[name], texts[-1]
    return found


def ours(folder: Path, *, weights: Any, beams: int) -> Transcriber:
    model = headway.load(folder, weights=weights)
    return lambda sound: model((sound, RATE), beams=beams, temperature=0.0)["text"].strip()


def reference(folder: Path, *, beams: int) -> Transcriber:
    import transformers

    transformers.logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder)
    processor = transformers.WhisperProcessor.from_pretrained(folder)

    def transcribe(sound: np.ndarray) -> str:
        short = len(sound) <= 30 * RATE
        extra = {} if short else {"truncation": False, "padding": "longest", "return_attention_mask": True}
        inputs = processor(sound, sampling_rate=RATE, return_tensors="pt", **extra)
        rules = {} if short else {"condition_on_prev_tokens": True, "temperature": 0.0}
        ids = model.generate(**inputs, num_beams=beams, do_sample=False, return_timestamps=True, **rules)
        return processor.batch_decode(ids, skip_special_tokens=True)[0].strip()

    return transcribe


def faster(folder: Path, *, compute: str, beams: int) -> Transcriber:
    from faster_whisper import WhisperModel

    model = WhisperModel(str(folder), compute_type=compute, cpu_threads=torch.get_num_threads(), num_workers=1)

    def transcribe(sound: np.ndarray) -> str:
        found, _ = model.transcribe(sound, beam_size=beams, temperature=0.0, condition_on_previous_text=True)
        return "".join(segment.text for segment in found).strip()

    return transcribe


if __name__ == "__main__":
    main()
