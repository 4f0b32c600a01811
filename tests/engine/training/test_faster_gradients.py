"""What `install` puts in place of the plain functions of layers: the same values and gradients, in float64; training
and loading install it."""

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from headway.bundle import Bundle
from headway.engine.training import install
from headway.layers.attend import attend_with_bias, attend_with_weights
from headway.layers.dropout import drop
from headway.layers.feedforward import ACTIVATIONS, squared_relu
from headway.layers.masks import Mask
from headway.layers.norms import unit_rms
from headway.layers.projected_lstm import LSTMState, ProjectedLSTM, ProjectedLSTMConfig, all_steps, run_layers
from headway.layers.relative import scores_by_distance
from headway.layers.replaceable import replaceable
from headway.layers.rotary import rotate

ALL = (drop, unit_rms, squared_relu, rotate, attend_with_bias, scores_by_distance, all_steps)


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    before = [(each.faster, each.applies) for each in ALL]
    install()
    yield
    for each, state in zip(ALL, before, strict=True):
        each.faster, each.applies = state


@pytest.fixture
def plain() -> None:
    for each in ALL:
        each.faster = None


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def results(function: Callable[..., Tensor], *args: object) -> list[Tensor]:
    """The value, and its gradient by each argument that has one."""
    value = function(*args)
    trained = [each for each in args if isinstance(each, Tensor) and each.requires_grad]
    return [value, *torch.autograd.grad((value * draw(*value.shape, seed=9)).sum(), trained)]


ANGLE = draw(1, 1, 5, 3).detach()
ALLOWED = torch.ones(2, 1, 5, 6, dtype=torch.bool)
ALLOWED[0, :, 0], ALLOWED[:, :, :, 1] = False, False  # one query may attend to nothing
Q, K, V, BIAS = draw(2, 4, 5, 8), draw(2, 2, 6, 8, seed=1), draw(2, 2, 6, 3, seed=2), draw(1, 4, 5, 6, seed=3)
CASES = {
    "unit_rms": (unit_rms, draw(3, 5, 12), 1e-2),
    "squared_relu": (squared_relu, draw(4, 7)),
    "rotate": (rotate, draw(2, 3, 5, 8), ANGLE.cos(), ANGLE.sin()),  # two numbers of a head are not rotated
    "bias": (attend_with_bias, Q, K, V, BIAS, None, None, 0.0),
    "masked bias": (attend_with_bias, Q, K, V, BIAS, ALLOWED, 0.3, 0.0),
    "distances: a token": (scores_by_distance, draw(2, 3, 1, 4), draw(3, 1, 4, seed=1)),
    "distances: a memory": (scores_by_distance, draw(2, 3, 3, 4), draw(3, 10, 4, seed=1)),
    "distances: two blocks": (scores_by_distance, draw(2, 3, 40, 4), draw(3, 84, 4, seed=1)),
    "distances: whole blocks": (scores_by_distance, draw(2, 3, 64, 4), draw(3, 127, 4, seed=1)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_faster_function_has_the_values_and_gradients_of_the_plain_one(name: str) -> None:
    function, *args = CASES[name]
    assert function.faster is not None and (function.applies is None or function.applies(*args))
    for fast, slow in zip(results(function, *args), results(function.plain, *args), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["unit_rms", "squared_relu", "rotate"])
def test_gradcheck(name: str) -> None:
    function, *args = CASES[name]
    assert torch.autograd.gradcheck(function.faster, tuple(args))


def test_a_trained_bias_with_dropout_has_the_gradients_of_the_explicit_path() -> None:
    """The same seed drops the same weights."""

    def explicit(*args: Tensor) -> Tensor:
        return attend_with_weights(*args[:3], mask=Mask(ALLOWED), bias=args[3], scale=0.3, dropout=0.25)[0]

    found = []
    for path in (lambda *args: attend_with_bias(*args, ALLOWED, 0.3, 0.25), explicit):
        torch.manual_seed(5)
        found.append(results(path, Q, K, V, BIAS))
    for fast, slow in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow)
    assert not torch.allclose(attend_with_bias(Q, K, V, BIAS, ALLOWED, 0.3, 0.25), found[0][0])  # another seed


def test_a_bias_without_a_gradient_takes_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attend_with_bias, "faster", refuse)
    attend_with_bias(Q, K, V, BIAS.detach(), None, None, 0.0)
    with torch.no_grad():
        attend_with_bias(Q, K, V, BIAS, None, None, 0.0)
    with pytest.raises(AssertionError, match="the fast path"):
        attend_with_bias(Q, K, V, BIAS, None, None, 0.0)


# ---------------------------------------------------------------------------------------- ELMo's LSTM


class Wrapped(nn.Module):
    """A linear layer that is not plain, as one with an adapter."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def refuse(*_: object) -> Tensor:
    raise AssertionError("the fast path ran")


def lstm_layers(config: ProjectedLSTMConfig, *, wrapped: bool = False) -> list[ProjectedLSTM]:
    generator = torch.Generator().manual_seed(1)
    layers = [ProjectedLSTM(config).double() for _ in range(2)]
    for layer in layers:
        layer.reset(generator)
        if wrapped:
            layer.recurrent, layer.project = Wrapped(layer.recurrent), Wrapped(layer.project)  # type: ignore[assignment]
    return layers


def lstm_gradients(layers: list[ProjectedLSTM], config: ProjectedLSTMConfig) -> list[Tensor]:
    """Outputs, last states, and the gradient of both by every weight, input and first state."""
    inputs = [(3 * draw(3, 7, config.width, seed=seed)).detach().requires_grad_() for seed in (2, 3)]
    states = [LSTMState(*(draw(3, size, seed=seed) for size in (config.width, config.hidden))) for seed in (4, 5)]
    done = run_layers(layers, inputs, lengths=torch.tensor([7, 4, 1]), states=states)
    found = [each for out, state in done for each in (out, *state)]
    weights = [each for layer in layers for each in layer.parameters()]
    total = torch.stack([(each * draw(*each.shape, seed=10 + at)).sum() for at, each in enumerate(found)]).sum()
    return found + list(torch.autograd.grad(total, [*inputs, *(each for state in states for each in state), *weights]))


@pytest.mark.parametrize(("cell_clip", "projection_clip"), [(0.0, 0.0), (0.6, 0.2)])
def test_all_steps_equal_the_plain_steps_and_their_gradient(cell_clip: float, projection_clip: float) -> None:
    config = ProjectedLSTMConfig(6, 4, cell_clip=cell_clip, projection_clip=projection_clip)
    fast, slow = (lstm_gradients(lstm_layers(config, wrapped=wrapped), config) for wrapped in (False, True))
    assert len(fast) == len(slow) > 14
    for ours, reference in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-10, atol=1e-12)
    if cell_clip:  # the clips are reached, so that their gradient is tested
        assert float(fast[0].detach().abs().max()) == projection_clip
        assert float(fast[2].detach().abs().max()) == cell_clip


def test_weights_that_are_not_plain_take_the_plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_steps, "faster", refuse)
    config, x = ProjectedLSTMConfig(6, 4), draw(3, 7, 4)
    run_layers(lstm_layers(config, wrapped=True), [x, x])
    with pytest.raises(AssertionError, match="the fast path"):
        run_layers(lstm_layers(config), [x, x])


# ---------------------------------------------------------------------------------------- the mechanism


@replaceable
def double(x: float) -> float:
    return 2 * x


def test_a_function_is_replaced_where_the_faster_one_applies() -> None:
    assert double(3) == 6
    with double.replaced(lambda x: 0, where=lambda x: x > 5):
        assert (double(3), double(7)) == (6, 0)
    assert double(7) == 14


def test_a_copied_model_has_the_same_function() -> None:
    assert copy.deepcopy(ACTIVATIONS["relu2"]) is squared_relu
    assert pickle.loads(pickle.dumps(squared_relu)) is squared_relu


def test_whoever_loads_or_trains_has_the_faster_functions(plain: None) -> None:
    assert not any(each.faster for each in ALL)
    Bundle(nn.Identity(), "none")  # type: ignore[arg-type]
    assert all(each.faster for each in ALL)
