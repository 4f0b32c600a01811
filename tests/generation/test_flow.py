"""Rectified flow: Euler steps along known velocities, guidance by hand, noise by seed."""

import pytest
import torch
from torch import Tensor

from headway.errors import ConfigError
from headway.generation.flow import guided_velocity, integrate, noise_of
from headway.generation.flow_settings import FlowSettings
from headway.models.build import build
from headway.models.recipes import Size, flow

SIZE = Size(width=16, layers=2, heads=2, dropout=0.0)


def test_a_straight_line_is_exact_in_one_step() -> None:
    noise, image = torch.randn(3, 1, 4, 4), torch.randn(3, 1, 4, 4)
    for steps in (1, 7):
        torch.testing.assert_close(integrate(lambda x, t: image - noise, noise, steps=steps), image)


def test_steps_are_those_of_euler() -> None:
    """dx/dt = x from 1 gives (1 + 1/n)^n; the times are 0, 1/n, …; every step is reported."""
    times, seen = list[float](), list[int]()

    def velocity(x: Tensor, time: Tensor) -> Tensor:
        times.append(float(time[0]))
        return x

    found = integrate(velocity, torch.ones(2, 1), steps=4, on_step=lambda step, x: seen.append(step))
    torch.testing.assert_close(found, torch.full((2, 1), 1.25**4))
    assert times == [0, 0.25, 0.5, 0.75] and seen == [1, 2, 3, 4]


@torch.no_grad()
def test_guidance_moves_away_from_the_empty_caption() -> None:
    torch.manual_seed(0)
    model = build(flow(SIZE, "modern", vocab=12, image=(8, 8), patch=4, channels=1, caption_layers=1)).eval()
    for parameter in model.parameters():
        parameter.normal_(0, 0.3)
    captions, mask = torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    empty, images, time = torch.tensor([1, 2]), torch.randn(2, 1, 8, 8), torch.tensor([0.3, 0.3])

    def at(guidance: float) -> Tensor:
        return guided_velocity(model, captions, empty, padding_mask=mask, guidance=guidance)(images, time)

    with_caption = model(captions, images=images, time=time, padding_mask=mask).velocity
    without = model(empty.expand(2, -1), images=images, time=time).velocity
    torch.testing.assert_close(at(1), with_caption)
    torch.testing.assert_close(at(0), without, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(at(3), without + 3 * (with_caption - without), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(with_caption, without, atol=1e-3)


def test_noise_depends_on_the_seed_alone() -> None:
    both = noise_of([4, 9], (1, 5, 5), device=torch.device("cpu"), dtype=torch.float32)
    alone = noise_of([9], (1, 5, 5), device=torch.device("cpu"), dtype=torch.float32)
    assert torch.equal(both[1:], alone) and not torch.equal(both[0], both[1])


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"steps": 2.5}, {"guidance": -1}, {"guidance": float("nan")}, {"seed": -1}]
)
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is"):
        FlowSettings(**wrong)  # type: ignore[arg-type]
