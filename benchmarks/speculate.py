"""Writing what was read, with speculation and without, interleaved: the same 134M model of LLaMA's shape, whose answer
is dictated, since random weights have nothing to say. Every step does all of the model's work; only then are its scores
replaced by those of someone who copies the prompt and changes every so many words.

    python -m benchmarks.speculate [--model FOLDER]

With a trained model's folder (stories15M), also that model going on from a text that says itself again, undictated.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headway
from benchmarks.models import VOCAB, llama_134m
from benchmarks.timing import interleaved, row, use_threads
from headway.generate import GenerationSettings, generate

PROMPT, NEW = 256, 192
EDITS = {"repeat": 0, "edit every 24th token": 24, "edit every 8th token": 8, "nothing to copy": 1}


class Dictated:
    """A model that does its work and then says what it is told to."""

    def __init__(self, model: Any, answer: list[int], prompt: int) -> None:
        self.model, self.answer, self.prompt = model, torch.tensor(answer), prompt
        self.config, self.training, self.parameters = model.config, False, model.parameters

    def new_cache(self, *, capacity: int = 0) -> Any:
        return self.model.new_cache(capacity=capacity)

    def step(self, ids: Tensor, cache: Any, *, mask: Tensor | None = None, last: bool = True) -> Tensor:
        logits = self.model.step(ids, cache, mask=mask, last=last)
        end = cache.length - self.prompt + 1
        said = self.answer[end - 1 : end] if last else self.answer[end - ids.shape[1] : end]
        logits[..., 0] = 0  # the scores are used, so that nothing of the work is left out
        return logits.fill_(-1.0).scatter_(-1, said.view(*logits.shape[:-1], 1), 1.0)


def answer_to(prompt: list[int], every: int) -> list[int]:
    torch.manual_seed(every)
    others = torch.randint(VOCAB, (NEW + 16,)).tolist()  # guesses may reach past the end
    copied = prompt[: NEW + 16]
    changed = [bool(every) and not (i + 1) % every for i in range(len(copied))]
    return [b if change else a for a, b, change in zip(copied, others, changed, strict=True)]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, help="a trained decoder's folder, such as stories15M")
    parser.add_argument("--weights", help="int8, …; default: fp32")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    use_threads()
    with tempfile.TemporaryDirectory() as folder:
        llama_134m(Path(folder))
        model = headway.load(folder, weights=options.weights).model
        ratios = {}
        torch.manual_seed(0)
        prompt = torch.randint(VOCAB, (PROMPT,)).tolist()
        for label, every in EDITS.items():
            told = Dictated(model, answer_to(prompt, every), PROMPT)
            ratios[label] = compare(label, told, prompt, NEW, options.repeats)
    if options.model is not None:
        bundle = headway.load(options.model, weights=options.weights)
        assert bundle.tokenizer is not None
        story = bundle.tokenizer.encode("Once upon a time, there was a little girl named Lily. She loved her red ball.")
        compare(f"{options.model.name}, a text again", bundle.model, story * 3 + story[:6], 64, options.repeats)
    print(f"ratio repeat {ratios['repeat']:.2f} edit {ratios['edit every 24th token']:.2f} "
          f"nothing to copy {ratios['nothing to copy']:.2f}")  # fmt: skip


def compare(label: str, model: Any, prompt: list[int], new: int, repeats: int) -> float:
    said = {}

    def write(name: str, speculate: bool) -> None:
        settings = GenerationSettings(max_new_tokens=new, speculate=speculate)
        said[name] = generate(model, [prompt], settings)[0][0].ids

    times = interleaved(
        {"without": lambda: write("without", False), "with": lambda: write("with", True)}, repeats=repeats, warmup=1
    )
    assert said["with"] == said["without"], "speculation changed the answer"
    line, ratio = row(label, times, peer="without", ours="with")
    print(line, flush=True)
    return ratio


if __name__ == "__main__":
    main()
