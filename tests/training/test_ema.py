import pytest
import torch
from torch import nn

from headway.errors import CheckpointError, TrainingError
from headway.training.ema import EMA


def shake(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2).requires_grad_(False))


def test_ema_follows_its_recursion() -> None:
    model = make()
    ema = EMA(model, 0.3)
    expected = weights(model)
    for n in range(5):
        shake(model)
        ema.update()
        decay = min(0.3, (1 + n) / (10 + n))
        expected = [decay * mean + (1 - decay) * now for mean, now in zip(expected, weights(model), strict=True)]
    with ema.applied():
        for a, b in zip(weights(model), expected, strict=True):
            assert torch.allclose(a, b, atol=1e-6)


def test_trained_weights_are_restored_exactly_even_after_an_error() -> None:
    model = make()
    ema = EMA(model, 0.9)
    shake(model)
    ema.update()
    before, mean = weights(model), [tensor.clone() for tensor in ema.state_dict()["mean"].values()]
    with pytest.raises(ZeroDivisionError), ema.applied():
        assert not equal(weights(model), before)
        raise ZeroDivisionError
    assert equal(weights(model), before)
    assert equal(list(ema.state_dict()["mean"].values()), mean)
    shake(model)
    assert equal(list(ema.state_dict()["mean"].values()), mean), "the mean must not follow the live weights"


def test_use_while_applied_is_refused() -> None:
    ema = EMA(make(), 0.9)
    with ema.applied():
        for act in (ema.update, ema.state_dict, lambda: ema.applied().__enter__()):
            with pytest.raises(TrainingError, match="while it is applied"):
                act()


def test_a_loaded_ema_continues_bit_for_bit() -> None:
    model = make()
    ema = EMA(model, 0.99)
    shake(model)
    ema.update()
    resumed = EMA(model, 0.99)
    resumed.load_state_dict(ema.state_dict())
    fresh = EMA(model, 0.99)
    shake(model)
    for one in (ema, resumed, fresh):
        one.update()
    expected = list(ema.state_dict()["mean"].values())
    assert equal(list(resumed.state_dict()["mean"].values()), expected)
    assert not equal(list(fresh.state_dict()["mean"].values()), expected)


def test_an_ema_of_another_model_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"weight|bias"):
        EMA(nn.Linear(3, 4), 0.9).load_state_dict(EMA(make(), 0.9).state_dict())
