"""A folder in bfloat16 with --weights bf16: the faster of two ways of a product is chosen when it is loaded."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import headway
from headway.bundle import Bundle
from headway.engine import bf16, measure
from headway.engine.bf16 import Bf16Linear, rounded_product, widened_product
from headway.models.build import build
from headway.models.recipes import Size, encoder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    config = encoder(Size(width=32, layers=2, heads=2), "modern", vocab=50)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter).mul_(0.3).bfloat16())
    out = {}
    for name, dtype in {"fp32": torch.float32, "bf16": torch.bfloat16}.items():
        out[name] = Bundle(model.to(dtype), "headway").save(tmp_path_factory.mktemp("models") / name)
    return out


def first(bundle: Bundle) -> Bf16Linear:
    return next(module for module in bundle.model.modules() if isinstance(module, Bf16Linear))


def stub(monkeypatch: pytest.MonkeyPatch, *, rounding_wins: list[bool]) -> None:
    """Times for the products of 256, 64 and 16 rows, in this order."""

    def times() -> Iterator[float]:
        for wins in rounding_wins:
            yield from (1.0, 0.5 if wins else 1.5)  # widened, rounded

    left = times()
    monkeypatch.setattr(measure, "best", lambda function, repeats=3: next(left))


@pytest.mark.parametrize(
    ("rounding_wins", "chosen"),
    [([True, True, True], 16), ([True, True, False], 64), ([True, False], 256), ([False], None)],
)
def test_the_faster_way_is_chosen(
    rounding_wins: list[bool], chosen: int | None, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch, rounding_wins=rounding_wins)
    bundle = headway.load(folders["bf16"], weights="bf16")
    assert {m.rounds_from for m in bundle.model.modules() if isinstance(m, Bf16Linear)} == {chosen}
    layer = first(bundle)
    for rows in (15, 16, 63, 64, 255, 256):
        x = torch.randn(rows, layer.in_features)
        way = widened_product if chosen is None or rows < chosen else rounded_product
        assert torch.equal(layer(x), way(x, layer.weight, layer.bias)), rows


def test_the_numbers_are_those_of_the_weights_in_bfloat16(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Widened: exactly. Rounded: within the rounding of the model that was published, which rounds more."""
    ids = torch.randint(50, (4, 60))
    exact = headway.load(folders["bf16"], dtype="float32").logits(input_ids=ids)
    published = headway.load(folders["bf16"]).logits(input_ids=ids).float()
    stub(monkeypatch, rounding_wins=[False])
    assert torch.equal(headway.load(folders["bf16"], weights="bf16").logits(input_ids=ids), exact)
    stub(monkeypatch, rounding_wins=[True, True, True])
    rounded = headway.load(folders["bf16"], weights="bf16").logits(input_ids=ids)
    assert 0 < (rounded - exact).norm() < (published - exact).norm()


def test_a_model_in_float32_keeps_its_activations(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16, "_rounding_is_faster_from", lambda weight: pytest.fail("measured"))
    assert first(headway.load(folders["fp32"], weights="bf16")).rounds_from is None


def test_both_ways_are_really_measured() -> None:
    assert bf16._rounding_is_faster_from(torch.ones(8, 16, dtype=torch.bfloat16)) in (None, *bf16.ROWS)
