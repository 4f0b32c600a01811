"""The figures of the conversion report, against direct computation."""

import math

import pytest
import torch

from headway.engine.conversion_report import OutputComparison

DETAILS = dict(before="fp32", after="int8", bytes_before=400, bytes_after=100, measured_on="a text")


def test_figures_do_not_depend_on_the_split_into_batches():
    torch.manual_seed(1)
    before, targets = torch.randn(50, 7), torch.randint(7, (50,))
    after = before + 0.1 * torch.randn(50, 7)
    comparison = OutputComparison()
    for part in (slice(0, 20), slice(20, 50)):
        comparison.add_logits(before[part], after[part], targets=targets[part])
    found = comparison.report(**DETAILS)
    difference = (before - after).abs()
    assert found.compared == 50
    assert found.largest == pytest.approx(difference.max().item())
    assert found.mean == pytest.approx(difference.mean().item())
    assert found.agreement == (before.argmax(-1) == after.argmax(-1)).float().mean()
    assert 0.5 < found.agreement < 1, "control: the noise changes some choices"
    for scores, perplexity in ((before, found.perplexity_before), (after, found.perplexity_after)):
        assert perplexity == pytest.approx(math.exp(torch.nn.functional.cross_entropy(scores, targets).item()))


def test_vectors_are_compared_by_cosine_similarity():
    before = torch.eye(3)
    after = torch.tensor([[1.0, 0, 0], [0, 2, 0], [0, 1, 1]])
    comparison = OutputComparison()
    comparison.add_vectors(before, after)
    found = comparison.report(**DETAILS)
    assert found.cosine_least == pytest.approx(math.sqrt(0.5))
    assert found.cosine_mean == pytest.approx((2 + math.sqrt(0.5)) / 3)
    assert found.agreement is None and found.perplexity_before is None
    assert "agreement" not in found.to_dict()


def test_lines_are_readable():
    comparison = OutputComparison()
    comparison.add_logits(torch.eye(4), torch.eye(4) * 0.5, targets=torch.arange(4))
    text = "\n".join(comparison.report(**DETAILS).lines())
    assert "--text" not in text, "perplexity is low"
    assert "fp32 → int8" in text and "100.00% of 4 the same" in text and "5.00e-01 at most" in text and "×" in text


def test_high_perplexity_is_noted():
    comparison = OutputComparison()
    comparison.add_logits(torch.eye(4) * 40, torch.eye(4) * 40, targets=torch.tensor([1, 2, 3, 0]))
    assert "--text FILE" in comparison.report(**DETAILS).lines()[-1]
