import pytest
import torch
from torch import Tensor, nn

from headway.errors import ConfigError
from headway.training.muon import Muon, Orthogonalizer, orthogonalize

SHAPES = [(32, 32), (24, 96), (96, 24), (33, 40), (1, 16), (16, 1)]


def with_singular_values(values: Tensor, rows: int, columns: int) -> Tensor:
    side = min(rows, columns)
    left, _ = torch.linalg.qr(torch.randn(rows, side))
    right, _ = torch.linalg.qr(torch.randn(columns, side))
    return left @ values.diag() @ right.T


def matrices(*, copies: int = 3) -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(shape)) for shape in SHAPES for _ in range(copies)]


def put_gradients(parameters: list[nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_every_singular_value_within_reach_ends_near_one(rows: int, columns: int) -> None:
    values = torch.logspace(0, -2.4, min(rows, columns))
    found = torch.linalg.svdvals(orthogonalize(with_singular_values(values, rows, columns)))
    assert found.min() > 0.7 and found.max() < 1.25


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_the_directions_are_those_of_the_svd(rows: int, columns: int) -> None:
    matrix = with_singular_values(torch.linspace(1, 0.2, min(rows, columns)), rows, columns)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ orthogonalize(matrix) @ right.T  # diagonal, if left and right are kept
    assert torch.allclose(inner, inner.diagonal().diag(), atol=1e-4)
    assert (inner.diagonal() - 1).abs().max() < 0.25
    plain = left.T @ matrix @ right.T
    assert (plain.diagonal() / plain.diagonal().max() - 1).abs().max() > 0.5 or min(rows, columns) == 1


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1.0, 1e4, 1e12])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (16, 64), (64, 16)])
def test_the_size_of_the_gradient_does_not_matter(scale: float, rows: int, columns: int) -> None:
    matrix = torch.randn(rows, columns)
    assert torch.allclose(orthogonalize(matrix * scale), orthogonalize(matrix), atol=2e-3)


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (16, 64)])
def test_a_zero_gradient_gives_a_zero_update(rows: int, columns: int) -> None:
    assert not orthogonalize(torch.zeros(2, rows, columns)).any()


@pytest.mark.parametrize("shape", [(16, 16), (16, 48), (48, 16)])
def test_bfloat16_goes_the_plain_way_and_stays_in_a_wider_band(shape: tuple[int, int]) -> None:
    matrix = with_singular_values(torch.linspace(1, 0.3, 16), *shape)
    coarse = Orthogonalizer(1, *shape, device=torch.device("cpu"), dtype=torch.bfloat16)
    coarse.x.copy_(matrix)
    found = torch.linalg.svdvals(coarse()[0].float())
    assert not coarse.through_gram and found.min() > 0.65 and found.max() < 1.3


def test_batched_equals_one_by_one() -> None:
    together, alone = matrices(), matrices()
    for a, b in zip(together, alone, strict=True):
        b.data.copy_(a.data)
    batched = Muon(together, lr=0.1, weight_decay=0.1)
    single = [Muon([parameter], lr=0.1, weight_decay=0.1) for parameter in alone]
    for seed in range(3):
        put_gradients(together, seed)
        put_gradients(alone, seed)
        batched.step()
        for optimizer in single:
            optimizer.step()
    for a, b in zip(together, alone, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_a_step_is_the_formula() -> None:
    weight = nn.Parameter(torch.randn(48, 12))
    before = weight.detach().clone()
    optimizer = Muon([weight], lr=0.1, momentum=0.9, weight_decay=0.5)
    gradient = torch.randn(48, 12)
    weight.grad = gradient.clone()
    optimizer.step()
    average = 0.1 * gradient
    expected = before * (1 - 0.1 * 0.5) - 0.1 * 2 * orthogonalize(0.1 * gradient + 0.9 * average)  # √(48/12) = 2
    assert torch.allclose(weight, expected, atol=1e-5)
    assert torch.equal(weight.grad, gradient), "the gradient is the caller's"


def test_a_step_on_the_cpu_makes_no_bfloat16() -> None:
    parameters = matrices()
    put_gradients(parameters, 0)
    optimizer = Muon(parameters)
    optimizer.step()
    work = [value for o in optimizer._orthogonalizers.values() for value in vars(o).values() if torch.is_tensor(value)]
    assert len(work) >= 4 * len(SHAPES) and {tensor.dtype for tensor in work} == {torch.float32}


def test_repeated_runs_and_resumed_runs_are_bit_equal() -> None:
    start = [parameter.detach().clone() for parameter in matrices()]

    def run(*, resume_at: int | None = None, drop_state: bool = False) -> list[Tensor]:
        parameters = [nn.Parameter(tensor.clone()) for tensor in start]
        optimizer = Muon(parameters, lr=0.02, weight_decay=0.01)
        for step in range(6):
            if step == resume_at:
                state = optimizer.state_dict()
                parameters = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
                optimizer = Muon(parameters, lr=0.5)
                if drop_state:
                    state["state"] = {}
                optimizer.load_state_dict(state)
            put_gradients(parameters, step)
            optimizer.step()
        return [parameter.detach() for parameter in parameters]

    straight = run()
    assert all(torch.equal(a, b) for a, b in zip(straight, run(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(straight, run(resume_at=3), strict=True))
    forgetful = run(resume_at=3, drop_state=True)
    assert not all(torch.equal(a, b) for a, b in zip(straight, forgetful, strict=True))


def test_a_parameter_without_a_gradient_stays() -> None:
    parameters = matrices()
    put_gradients(parameters, 0)
    parameters[1].grad = None
    before = [parameter.detach().clone() for parameter in parameters]
    Muon(parameters, weight_decay=0.1).step()
    changed = [not torch.equal(parameter, old) for parameter, old in zip(parameters, before, strict=True)]
    assert changed == [index != 1 for index in range(len(parameters))]


@pytest.mark.parametrize("tensor", [torch.zeros(3), torch.zeros(2, 3, 4), torch.zeros(3, 4, dtype=torch.float64)])
def test_what_is_not_a_float32_matrix_is_refused(tensor: Tensor) -> None:
    with pytest.raises(ConfigError, match="AdamW"):
        Muon([nn.Parameter(tensor)])
