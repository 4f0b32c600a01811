"""Writing what was read, with speculation and without, interleaved. The model's answer is dictated, so that any weights
will do: every step does all of the model's work; only then are its scores replaced by those of someone who copies the
prompt and changes every so many words.

    python -m benchmarks.speculate [--model FOLDER]

On a 134M model of LLaMA's shape, or on the model of a folder (stories15M), which then also goes on, undictated, from a
text that says itself again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headway
from benchmarks.models import llama_134m, saved_model
from benchmarks.timing import interleaved, row, use_threads
from headway.generation import GenerationSettings, generate

ROOM = 448  # tokens of prompt and answer, if the model has room for so many
AHEAD = 16  # guesses may reach past the end
EDITS = {"repeat": 0, "edit every 24th token": 24, "edit every 8th token": 8, "nothing to copy": 1}
STORY = "Once upon a time, there was a little girl named Lily. She loved her red ball."


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


def answer_to(prompt: list[int], every: int, vocab: int) -> list[int]:
    torch.manual_seed(every)
    others = torch.randint(vocab, (len(prompt),)).tolist()
    changed = [bool(every) and not (i + 1) % every for i in range(len(prompt))]
    return [b if change else a for a, b, change in zip(prompt, others, changed, strict=True)]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, help="a trained decoder's folder, such as stories15M")
    parser.add_argument("--weights", help="int8, …; default: fp32")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.model is None:
        with saved_model(llama_134m) as (folder, _):
            bundle = headway.load(folder, weights=options.weights)
    else:
        use_threads()
        bundle = headway.load(options.model, weights=options.weights)
    ratios = dictated(bundle.model, options.repeats)
    if bundle.processor.tokenizer is not None:
        story = bundle.processor.tokenizer.encode(STORY)
        ratios["its own words"] = compare("its own words", bundle.model, story * 3 + story[:6], 64, options.repeats)
    print(f"ratio {', '.join(f'{label} {ratio:.2f}' for label, ratio in ratios.items())}")


def dictated(model: Any, repeats: int) -> dict[str, float]:
    vocab = model.config.embedding.vocab
    read = (min(ROOM, model.config.context or ROOM) + AHEAD) // 2
    torch.manual_seed(0)
    prompt = torch.randint(vocab, (read,)).tolist()
    return {
        label: compare(label, Dictated(model, answer_to(prompt, every, vocab), read), prompt, read - AHEAD, repeats)
        for label, every in EDITS.items()
    }


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
