"""The engine on published weights: stories15M writes the same story compiled, and loses nothing to speak of in int8."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import headway
from headway.engine import prepare, release, why_not
from headway.generate import GenerationSettings, generate

PROMPT = "Once upon a time, there was a little"


def stories(real_data: Path) -> headway.Bundle:
    folder = real_data / "weights" / "stories15M"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return headway.load(folder)


def test_the_same_story(real_data: Path) -> None:
    pytest.importorskip("numba")
    bundle = stories(real_data)
    prompts = [bundle.tokenizer.encode(text) for text in (PROMPT, "The dog")]
    settings = GenerationSettings(max_new_tokens=60)
    release(bundle.model)
    plain = [[h.ids for h in answer] for answer in generate(bundle.model, prompts, settings)]
    prepare(bundle.model)
    assert [[h.ids for h in answer] for answer in generate(bundle.model, prompts, settings)] == plain
    assert why_not(bundle.model) is None


@pytest.mark.parametrize(
    ("weights", "group", "limit"), [("int8", None, 1.005), ("int8", 32, 1.005), ("bf16", None, 1.005)]
)
@torch.no_grad()
def test_perplexity_after_storing_smaller(real_data: Path, weights: str, group: int | None, limit: float) -> None:
    """On stories that the model itself draws, so that its perplexity is low and a loss would show."""
    bundle = stories(real_data)
    prompt = bundle.tokenizer.encode(PROMPT)
    settings = GenerationSettings(max_new_tokens=160, temperature=1.0, seed=1, n=4)
    drawn = [prompt + h.ids for h in generate(bundle.model, [prompt], settings)[0]]

    def perplexity() -> float:
        losses = [
            F.cross_entropy(bundle.model(torch.tensor([ids])).logits[0, :-1], torch.tensor(ids[1:])) for ids in drawn
        ]
        return float(torch.stack(losses).mean().exp())

    before = perplexity()
    prepare(bundle.model, weights, group=group)
    after = perplexity()
    assert after != before and after / before <= limit, (before, after)
