"""Prompt lookup (speculative decoding), with and without, interleaved. The answer is forced, so that any weights will
do: every step runs the model in full, and its logits are then replaced by those of a copy of the prompt with every n-th
token changed.

    python -m benchmarks.speculate [--model FOLDER]

On a 134M model of LLaMA's shape, or on the model of a folder (stories15M), which is then also measured with its own
answer to a text that repeats itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headway
from benchmarks.models import llama_134m, saved_model
from benchmarks.timing import interleaved, row, use_threads
from headway.generation import GenerationSettings, generate

CONTEXT = 448  # tokens of prompt and answer, if the model takes as many
AHEAD = 16  # drafts may reach past the end
EDITS = {"repeat": 0, "edit every 24th token": 24, "edit every 8th token": 8, "nothing to copy": 1}
STORY = "Once upon a time, there was a little girl named Lily. She loved her red ball."


@contextmanager
def forced_answer(model: Any, answer: list[int], *, prompt: int) -> Iterator[None]:
    """Within it, the model computes every step in full, and then `answer` has the highest logits. For one row."""
    plain, tokens = model.step, torch.tensor(answer)

    def step(ids: Tensor, cache: Any, *, lengths: Sequence[int] | None = None, every: bool = False) -> Tensor:
        logits = plain(ids, cache, lengths=lengths, every=every)
        end = cache.lengths[0] - prompt + 1
        chosen = tokens[end - ids.shape[1] : end] if every else tokens[end - 1 : end]
        return logits.fill_(-1.0).scatter_(-1, chosen.view(*logits.shape[:-1], 1), 1.0)

    model.step = step
    try:
        yield
    finally:
        model.step = plain


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
    ratios = forced(bundle.model, options.repeats)
    if bundle.processor.tokenizer is not None:
        story = bundle.processor.tokenizer.encode(STORY)
        ratios["its own answer"] = compare("its own answer", bundle.model, story * 3 + story[:6], 64, options.repeats)
    print(f"ratio {', '.join(f'{label} {ratio:.2f}' for label, ratio in ratios.items())}")


def forced(model: Any, repeats: int) -> dict[str, float]:
    read = (min(CONTEXT, model.max_context or CONTEXT) + AHEAD) // 2
    torch.manual_seed(0)
    prompt = torch.randint(model.vocab_size, (read,)).tolist()
    ratios = {}
    for label, every in EDITS.items():
        with forced_answer(model, answer_to(prompt, every, model.vocab_size), prompt=read):
            ratios[label] = compare(label, model, prompt, read - AHEAD, repeats)
    return ratios


def compare(label: str, model: Any, prompt: list[int], new: int, repeats: int) -> float:
    answers = {}

    def run(name: str, speculate: bool) -> None:
        settings = GenerationSettings(max_new_tokens=new, speculate=speculate)
        answers[name] = generate(model, [prompt], settings)[0][0].ids

    times = interleaved(
        {"without": lambda: run("without", False), "with": lambda: run("with", True)}, repeats=repeats, warmup=1
    )
    assert answers["with"] == answers["without"], "speculation changed the answer"
    line, ratio = row(label, times, peer="without", ours="with")
    print(line, flush=True)
    return ratio


if __name__ == "__main__":
    main()
