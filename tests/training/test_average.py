import pytest
import torch
from torch import nn

from headway.errors import CheckpointError, TrainingError
from headway.training.ema import Average, average_states


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


def test_the_average_is_the_recursion() -> None:
    model = make()
    average = Average(model, 0.3)
    expected = weights(model)
    for n in range(5):
        shake(model)
        average.update()
        decay = min(0.3, (1 + n) / (10 + n))
        expected = [decay * mean + (1 - decay) * now for mean, now in zip(expected, weights(model), strict=True)]
    with average.applied():
        for a, b in zip(weights(model), expected, strict=True):
            assert torch.allclose(a, b, atol=1e-6)


def test_the_live_weights_come_back_exactly_even_after_an_error() -> None:
    model = make()
    average = Average(model, 0.9)
    shake(model)
    average.update()
    before, mean = weights(model), [tensor.clone() for tensor in average.state_dict()["mean"].values()]
    with pytest.raises(ZeroDivisionError), average.applied():
        assert not equal(weights(model), before)
        raise ZeroDivisionError
    assert equal(weights(model), before)
    assert equal(list(average.state_dict()["mean"].values()), mean)
    shake(model)
    assert equal(list(average.state_dict()["mean"].values()), mean), "the mean must not follow the live weights"


def test_what_would_mix_the_two_up_is_refused() -> None:
    average = Average(make(), 0.9)
    with average.applied():
        for act in (average.update, average.state_dict, lambda: average.applied().__enter__()):
            with pytest.raises(TrainingError, match="while it is applied"):
                act()


def test_a_loaded_average_goes_on_bit_for_bit() -> None:
    model = make()
    average = Average(model, 0.99)
    shake(model)
    average.update()
    resumed = Average(model, 0.99)
    resumed.load_state_dict(average.state_dict())
    fresh = Average(model, 0.99)
    shake(model)
    for one in (average, resumed, fresh):
        one.update()
    expected = list(average.state_dict()["mean"].values())
    assert equal(list(resumed.state_dict()["mean"].values()), expected)
    assert not equal(list(fresh.state_dict()["mean"].values()), expected)


def test_an_average_of_another_model_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"weight|bias"):
        Average(nn.Linear(3, 4), 0.9).load_state_dict(Average(make(), 0.9).state_dict())


def test_the_mean_of_states() -> None:
    models = [make() for _ in range(3)]
    states = [model.state_dict() for model in models]
    states[-1]["1.num_batches_tracked"] = torch.tensor(7)
    mean = average_states(states)
    assert torch.allclose(mean["0.weight"], sum(state["0.weight"] for state in states) / 3)
    assert mean["1.num_batches_tracked"] == 7 and mean["0.weight"].dtype == torch.float32
    assert torch.equal(average_states(states[:1])["0.weight"], states[0]["0.weight"])


def test_states_of_different_models_have_no_mean() -> None:
    state = make().state_dict()
    with pytest.raises(CheckpointError, match=r"checkpoint 1.*'0\.weight'"):
        average_states([state | {"0.weight": torch.zeros(2, 2)}, state])
    with pytest.raises(CheckpointError, match="no checkpoint"):
        average_states([])
