"""The losses of DPO, IPO, robust DPO and KTO, by the published formulas written out in plain numbers."""

import math

import pytest
import torch

from headway.tasks.preference_losses import Pairs, kto_losses, pair_losses

MODEL = [(-10.0, -12.0), (-30.0, -21.0), (-4.5, -4.0)]
REFERENCE = [(-11.0, -11.5), (-29.0, -24.0), (-4.5, -4.0)]
TOKENS = [(5.0, 6.0), (10.0, 7.0), (2.0, 2.0)]
BETA, SMOOTHING = 0.3, 0.2


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def expected(
    kind: str, model: tuple[float, float], reference: tuple[float, float], tokens: tuple[float, float]
) -> float:
    (chosen, rejected), (old_chosen, old_rejected), (m, n) = model, reference, tokens
    margin = BETA * ((chosen - rejected) - (old_chosen - old_rejected))
    if kind == "dpo":
        return -math.log(sigmoid(margin))
    if kind == "smoothed":
        return -(1 - SMOOTHING) * math.log(sigmoid(margin)) - SMOOTHING * math.log(sigmoid(-margin))
    if kind == "robust":
        noisy = -(1 - SMOOTHING) * math.log(sigmoid(margin)) + SMOOTHING * math.log(sigmoid(-margin))
        return noisy / (1 - 2 * SMOOTHING)
    return ((chosen - old_chosen) / m - (rejected - old_rejected) / n - 1 / (2 * BETA)) ** 2


@pytest.mark.parametrize("kind", ["dpo", "smoothed", "robust", "ipo"])
def test_losses_of_pairs(kind: str) -> None:
    pairs = Pairs(*(torch.tensor(values, dtype=torch.float64) for values in (MODEL, REFERENCE, TOKENS)))
    smoothing = SMOOTHING if kind in ("smoothed", "robust") else 0.0
    name = "dpo" if kind == "smoothed" else kind
    found = pair_losses(pairs, kind=name, beta=BETA, label_smoothing=smoothing)  # type: ignore[arg-type]
    wanted = [expected(kind, *values) for values in zip(MODEL, REFERENCE, TOKENS, strict=True)]
    assert found.tolist() == pytest.approx(wanted, rel=1e-12)


def test_rewards_of_ipo_are_by_token() -> None:
    pairs = Pairs(*(torch.tensor(values, dtype=torch.float64) for values in (MODEL, REFERENCE, TOKENS)))
    torch.testing.assert_close(pairs.rewards("ipo", BETA) * pairs.tokens, pairs.rewards("dpo", BETA))


def test_robust_is_unbiased() -> None:
    """Its mean over labels of which a share is swapped is the loss of the right labels."""
    swapped = [each[::-1] for each in MODEL], [each[::-1] for each in REFERENCE], [each[::-1] for each in TOKENS]
    right, wrong = (
        Pairs(*(torch.tensor(values, dtype=torch.float64) for values in each))
        for each in ((MODEL, REFERENCE, TOKENS), swapped)
    )
    robust = [pair_losses(pairs, kind="robust", beta=BETA, label_smoothing=SMOOTHING) for pairs in (right, wrong)]
    mean = (1 - SMOOTHING) * robust[0] + SMOOTHING * robust[1]
    torch.testing.assert_close(mean, pair_losses(right, kind="dpo", beta=BETA, label_smoothing=0.0))


@pytest.mark.parametrize("kl", [0.7, -0.4])
def test_kto(kl: float) -> None:
    ratios, good = torch.tensor([1.5, -2.0, 0.3], dtype=torch.float64), torch.tensor([True, False, False])
    found = kto_losses(ratios, good, kl=torch.tensor(kl, dtype=torch.float64), beta=BETA)
    z = max(kl, 0.0)
    signed = [(r - z) if g else (z - r) for r, g in zip(ratios.tolist(), good.tolist(), strict=True)]
    assert found.tolist() == pytest.approx([1 - sigmoid(BETA * each) for each in signed], rel=1e-12)
