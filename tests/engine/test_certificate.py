"""The certificate's figures against the same figures worked out by hand, and its power to see a difference."""

import math

import pytest
import torch

from headway.engine.conversion_report import Tally

FACTS = dict(before="fp32", after="int8", bytes_before=400, bytes_after=100, measured_on="a text")


def test_figures_are_those_of_the_whole_text_however_it_is_cut():
    torch.manual_seed(1)
    before, targets = torch.randn(50, 7), torch.randint(7, (50,))
    after = before + 0.1 * torch.randn(50, 7)
    tally = Tally()
    for part in (slice(0, 20), slice(20, 50)):
        tally.logits(before[part], after[part], targets=targets[part])
    found = tally.certificate(**FACTS)
    difference = (before - after).abs()
    assert found.compared == 50
    assert found.largest == pytest.approx(difference.max().item())
    assert found.mean == pytest.approx(difference.mean().item())
    assert found.agreement == (before.argmax(-1) == after.argmax(-1)).float().mean()
    assert 0.5 < found.agreement < 1, "control: the noise is enough to change some choices"
    for scores, perplexity in ((before, found.perplexity_before), (after, found.perplexity_after)):
        assert perplexity == pytest.approx(math.exp(torch.nn.functional.cross_entropy(scores, targets).item()))


def test_vectors_are_compared_by_their_angle():
    before = torch.eye(3)
    after = torch.tensor([[1.0, 0, 0], [0, 2, 0], [0, 1, 1]])
    tally = Tally()
    tally.vectors(before, after)
    found = tally.certificate(**FACTS)
    assert found.cosine_least == pytest.approx(math.sqrt(0.5))
    assert found.cosine_mean == pytest.approx((2 + math.sqrt(0.5)) / 3)
    assert found.agreement is None and found.perplexity_before is None
    assert "agreement" not in found.to_dict()


def test_a_person_reads_it():
    tally = Tally()
    tally.logits(torch.eye(4), torch.eye(4) * 0.5, targets=torch.arange(4))
    text = "\n".join(tally.certificate(**FACTS).lines())
    assert "--text" not in text, "the model knows this text"
    assert "fp32 → int8" in text and "100.00% of 4 the same" in text and "5.00e-01 at most" in text and "×" in text


def test_text_that_the_model_does_not_know_is_said_to_be_so():
    tally = Tally()
    tally.logits(torch.eye(4) * 40, torch.eye(4) * 40, targets=torch.tensor([1, 2, 3, 0]))
    assert "--text FILE" in tally.certificate(**FACTS).lines()[-1]
