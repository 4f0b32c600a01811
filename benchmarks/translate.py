"""Translating with a 61M encoder-decoder of Marian's shape (6 + 6 layers, width 512, 32,000 tokens) against CTranslate2
and transformers: the same weights, 30 tokens in and 40 out, one sentence greedily and sixteen with four beams.

    python -m benchmarks.translate [--weights int8]

Each takes its turns in processes of its own: the threads of one would slow the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

import torch
import transformers

import headway
from benchmarks.models import VOCAB, marian_61m, saved_model
from benchmarks.peers import CTRANSLATE2, ctranslate2_peers, word
from benchmarks.timing import interleaved, row, use_threads
from headway.generation import GenerationSettings, generate

SOURCE, TARGET = 30, 40
SETTINGS = {"batch 1, greedy": (1, 1), "batch 16, beam 4": (16, 4)}
OURS = "headway"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="of headway: int8, …; default: fp32")
    parser.add_argument("--turns", type=int, default=3, help="processes of each")
    parser.add_argument("--only", help="measure this one, in this process")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(options.only, options.weights)))
        return
    times: dict[str, dict[str, list[float]]] = {label: {} for label in SETTINGS}
    for _ in range(options.turns):
        for name in ("transformers", OURS, *CTRANSLATE2):
            command = [sys.executable, "-m", "benchmarks.translate", "--only", name]
            command += ["--weights", options.weights] if options.weights else []
            found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
            for label, seconds in json.loads(found).items():
                times[label].setdefault(name, []).extend(seconds)
    ratios = []
    for label, (batch, _) in SETTINGS.items():
        for name in times[label]:
            if name != OURS:
                line, ratio = row(label, times[label], peer=name, ours=OURS)
                print(line, flush=True)
                ratios.append(f"{label} {name} {ratio:.2f}")
        rates = ", ".join(f"{name} {batch * TARGET / min(took):.0f}" for name, took in times[label].items())
        print(f"{label:<28} tokens a second: {rates}", flush=True)
    print(f"ratio {'; '.join(ratios)}")


@torch.no_grad()
def measured(name: str, weights: str | None) -> dict[str, list[float]]:
    """Seconds of each time, by setting; nothing of a peer that is not installed."""
    use_threads()
    with saved_model(marian_61m) as (folder, reference):
        write: Any = reference_writes
        model: Any = reference
        if name == OURS:
            model, write = headway.load(folder, weights=weights).model, we_write
        elif name != "transformers":
            peers = ctranslate2_peers(reference, folder, name)
            if name not in peers:
                return {}
            model, write = peers[name], ctranslate2_writes
        found = {}
        for label, (batch, beams) in SETTINGS.items():
            torch.manual_seed(0)
            sources = torch.randint(2, VOCAB - 1, (batch, SOURCE))
            sources[:, -1] = 0
            times = interleaved({name: lambda s=sources, b=beams: write(model, s, b)}, repeats=3, warmup=1)
            found[label] = times[name]
        return found


def we_write(model: Any, sources: torch.Tensor, beams: int) -> None:
    settings = GenerationSettings(
        max_new_tokens=TARGET, min_new_tokens=TARGET, beams=beams, eos_ids=(0,), speculate=False
    )
    found = generate(model, [[model.config.start_id]] * len(sources), settings, sources=sources.tolist())
    assert all(len(answer[0].ids) == TARGET for answer in found)


def reference_writes(model: transformers.MarianMTModel, sources: torch.Tensor, beams: int) -> None:
    found = model.generate(
        sources, num_beams=beams, max_new_tokens=TARGET, min_new_tokens=TARGET, do_sample=False, bad_words_ids=None
    )
    assert found.shape[1] == TARGET + 1


def ctranslate2_writes(translator: Any, sources: torch.Tensor, beams: int) -> None:
    words = [[word(token) for token in source] for source in sources.tolist()]
    found = translator.translate_batch(
        words, beam_size=beams, min_decoding_length=TARGET, max_decoding_length=TARGET, max_batch_size=len(words)
    )
    assert all(len(answer.hypotheses[0]) == TARGET for answer in found)


if __name__ == "__main__":
    main()
