"""Published weights: recorded values equal the published ones, and the parts sum to the published logits."""

from pathlib import Path

import pytest
import torch

import headway
from headway.checkpoints.json_tensors import read_json_tensors
from headway.inspect import attribute, head_importance, logit, logit_lens, record

PARTIALS = "gpt-nano-sort-t0-partials.json"


@pytest.fixture(scope="module")
def stories(real_data: Path) -> tuple[headway.Bundle, dict[str, torch.Tensor]]:
    bundle = headway.load(real_data / "weights" / "stories15M")
    assert bundle.processor.tokenizer is not None
    return bundle, {"inputs": torch.tensor([bundle.processor.tokenizer.encode("Lily and Tom went to the")])}


def test_some_heads_and_queries_are_the_published_ones(real_data: Path) -> None:
    folder = real_data / "weights" / "gpt-nano-sort"
    _, published = read_json_tensors(folder / PARTIALS)
    bundle = headway.load(folder)
    name = "stack.blocks.0.attention"
    taps = [f"{name}.scores", f"{name}.weights"]
    with torch.no_grad(), record(bundle.model, taps, heads=[1], queries=[2, -1]) as seen:
        logits = bundle.model(published["idx"].long()).logits
    for tap, theirs in zip(taps, ("att", "attSm"), strict=True):
        torch.testing.assert_close(seen[tap][0], published[theirs][:, 1:2, [2, -1]], atol=1e-5, rtol=1e-5)
    found = attribute(bundle.model, {"inputs": published["idx"].long()}, 2)
    assert found.total == pytest.approx(published["lm_head"][0, -1, 2].item(), abs=1e-4)
    assert found.logit == pytest.approx(logits[0, -1, 2].item(), abs=1e-6)


def test_a_story_goes_on_and_the_parts_say_why(stories: tuple[headway.Bundle, dict[str, torch.Tensor]]) -> None:
    bundle, inputs = stories
    layers = logit_lens(bundle.model, inputs, top=1)
    park = layers[-1].ids[0, -1, 0].item()
    assert bundle.processor.tokenizer is not None and bundle.processor.tokenizer.decode([park]).strip() == "park"
    assert layers[0].ids[0, -1, 0] != park  # the embedding alone does not know it
    found = attribute(bundle.model, inputs, park)
    assert abs(found.total - found.logit) < 1e-4
    assert len([part for part in found.parts if part.head is not None]) == 36


def test_the_gradient_ranks_a_trained_models_heads_much_as_ablation_does(
    stories: tuple[headway.Bundle, dict[str, torch.Tensor]],
) -> None:
    bundle, inputs = stories
    park = logit_lens(bundle.model, inputs, top=1)[-1].ids[0, -1, 0].item()
    by = {}
    for method in ("ablation", "gradient"):
        rows = head_importance(bundle.model, inputs, logit(park), method=method)
        by[method] = {(row.part, row.head): row.change for row in rows}
    pair = torch.tensor([[found[key] for key in by["ablation"]] for found in by.values()])
    assert torch.corrcoef(pair)[0, 1] > 0.5
