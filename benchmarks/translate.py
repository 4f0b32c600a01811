"""Translating with a 61M encoder-decoder of Marian's shape (6 + 6 layers, width 512, 32,000 tokens) against CTranslate2
and transformers: the same weights, 30 tokens in and 40 out, one sentence greedily and sixteen with four beams.

    python -m benchmarks.translate [--weights int8]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import transformers

import headway
from benchmarks.models import VOCAB, marian_61m, written
from benchmarks.peers import CTRANSLATE2, ctranslate2_peers, word
from benchmarks.timing import interleaved, row
from headway.generate import GenerationSettings, generate

SOURCE, TARGET = 30, 40
SETTINGS = {"batch 1, greedy": (1, 1), "batch 16, beam 4": (16, 4)}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="of headway: int8, …; default: fp32")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with written(marian_61m) as (folder, reference):
        ours = headway.load(folder, weights=options.weights).model
        peers = ctranslate2_peers(reference, folder, *CTRANSLATE2)
        ratios = []
        for label, (batch, beams) in SETTINGS.items():
            torch.manual_seed(0)
            sources = torch.randint(2, VOCAB - 1, (batch, SOURCE))
            sources[:, -1] = 0
            jobs: dict[str, Callable[[], object]] = {
                "transformers": lambda s=sources, b=beams: reference_writes(reference, s, b),
                "headway": lambda s=sources, b=beams: we_write(ours, s, b),
            }
            for name, peer in peers.items():
                jobs[name] = lambda p=peer, s=sources, b=beams: ctranslate2_writes(p, s, b)
            times = interleaved(jobs, repeats=options.repeats, warmup=1)
            for name in jobs:
                if name != "headway":
                    line, ratio = row(label, times, peer=name, ours="headway")
                    print(line, flush=True)
                    ratios.append(f"{label} {name} {ratio:.2f}")
            rates = ", ".join(f"{name} {batch * TARGET / min(took):.0f}" for name, took in times.items())
            print(f"{label:<28} tokens a second: {rates}", flush=True)
    print(f"ratio {'; '.join(ratios)}")


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
