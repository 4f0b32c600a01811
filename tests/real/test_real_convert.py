"""Real weights in integers: what a person would notice of it."""

from pathlib import Path

import pytest

import headway
from headway.engine.int8 import Int8Linear
from headway.generation import GenerationSettings, generate
from headway.jobs.convert import compare, convert


def stories(bundle: headway.Bundle) -> str:
    """Written by the model itself, so that it is text of the kind that it knows."""
    chosen = GenerationSettings(max_new_tokens=200, temperature=0.8, seed=1)
    found = generate(bundle.model, [[1]] * 12, chosen, tokenizer=bundle.processor.tokenizer)  # type: ignore[arg-type]
    return "\n".join(" ".join((answers[0].text or "").split()) for answers in found)


@pytest.mark.slow
def test_stories15m_in_int8_is_as_little_surprised_by_stories(real_data: Path, tmp_path: Path) -> None:
    folder, text, out = real_data / "weights" / "stories15M", tmp_path / "stories.txt", tmp_path / "int8"
    text.write_text(stories(headway.load(folder)))
    report = convert(folder, out, to="int8", text=text)
    assert report.perplexity_before is not None and report.perplexity_after is not None
    assert report.compared > 1500 and report.perplexity_before < 8, "control: it knows such stories"
    assert report.perplexity_after / report.perplexity_before < 1.005
    assert report.agreement is not None and report.agreement > 0.97
    assert report.bytes_after < 0.3 * report.bytes_before
    coarse = compare(headway.load(folder), with_four_bits(out), text=text)
    assert coarse.perplexity_after is not None
    assert coarse.perplexity_after / report.perplexity_before > 1.02, "control: fewer bits would show"


def with_four_bits(folder: Path) -> headway.Bundle:
    bundle = headway.load(folder)
    for module in bundle.model.modules():
        if isinstance(module, Int8Linear):
            module.weight.copy_((module.weight.float() / 16).round().mul(16).clamp(-112, 112).to(module.weight.dtype))
    return bundle
