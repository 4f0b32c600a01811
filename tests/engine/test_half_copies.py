"""Copies of weights in 16 bits: the same bits of every logit, and never those of weights that have changed since."""

import pytest
import torch

pytest.importorskip("numba")

from headway.engine import half_copies, prepare
from headway.engine.half_copies import HalfCopies, converts_halves
from headway.models import recipes
from headway.models.build import build
from headway.models.recipes import Size

pytestmark = pytest.mark.skipif(not converts_halves(), reason="this processor has no instruction for float16")
VOCAB = 61  # leaves a rest in every tile


@pytest.fixture(autouse=True)
def _any_size(monkeypatch):
    monkeypatch.setattr(half_copies, "MIN_BYTES", 1)


def model(*, half: bool = True):
    torch.manual_seed(0)
    made = build(recipes.decoder(Size(width=48, layers=2, heads=3), "modern", vocab=VOCAB, context=64)).eval()
    for parameter in made.parameters():
        parameter.data = torch.randn_like(parameter) * 0.2
        parameter.data = parameter.data.half().float() if half else parameter.data
    made.parts[-1].model.embedding.tokens.weight.data[0, 0] = 2.0**-24  # the smallest float16
    return prepare(made)


@torch.no_grad()
def logits(of, *, tokens: int = 1):
    """After a prompt of 5 tokens: of 3 steps of so many tokens."""
    cache = of.new_cache(2)
    of.step(torch.arange(10).view(2, 5), cache)
    return [of.step(torch.arange(2 * tokens).view(2, tokens) + step, cache, every=True) for step in range(3)]


def copies(of) -> HalfCopies:
    return of.parts[-1].model.step._halves


@pytest.mark.parametrize("tokens", [1, 3, 7])
def test_logits_are_the_same_bits(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    short = model()
    found = logits(short, tokens=tokens)
    assert copies(short)
    monkeypatch.setattr(half_copies, "MIN_BYTES", 2**40)
    plain = model()
    wanted = logits(plain, tokens=tokens)
    assert not copies(plain)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_other_values_are_not_copied() -> None:
    for value in (1 + 2.0**-12, 1e6, 2.0**-26):  # too many bits, too large, too small
        made = model()
        made.parts[-1].model.stack.blocks[1].feedforward.down.weight.data[5, 7] = value
        logits(made)
        assert not copies(made), value
    assert not copies(model(half=False))


@pytest.mark.parametrize("past_the_counter", [False, True])
def test_a_changed_weight_is_noticed(past_the_counter: bool) -> None:
    made, other = model(), model()
    before = logits(made)
    for each in (made, other):
        weight = each.parts[-1].model.stack.blocks[0].feedforward.up.weight
        with torch.no_grad():
            (weight.data if past_the_counter else weight).mul_(2)
    logits(other)  # compiles it: from then on prompts are read by compiled code, as those of `made`
    found, wanted = logits(made), logits(other)
    assert copies(made) and copies(other)
    assert not torch.equal(found[0], before[0])
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
