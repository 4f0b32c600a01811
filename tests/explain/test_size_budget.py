"""The layers on one page: all that fit, spread over the model, with a note about the others."""

import pytest

from headway.errors import InputError
from headway.explain.model_map import attentions
from headway.explain.size_budget import FRAME, PAGE, Kept, StorySizes, _spread, select_layers
from headway.models.build import build
from headway.models.recipes import Size, encoder


def sizes_of(*, layers: int, heads: int, width: int, tokens: int) -> StorySizes:
    size = Size(width=width, layers=layers, heads=heads, dropout=0.0)
    model = build(encoder(size, "classic", vocab=100), device="meta")
    return StorySizes(attentions(model), {"text": tokens}, {"text": width})


def taken(sizes: StorySizes, kept: Kept) -> float:
    total = sizes.weights(kept.weights, quantized=kept.quantized) + sum(map(sizes.vectors, kept.vectors))
    return FRAME + sizes.candidates() + total + (sizes.embedding() if kept.embedding else 0)


@pytest.mark.parametrize("tokens", [4, 64, 128, 380])
@pytest.mark.parametrize("shape", [(12, 12, 768), (6, 6, 288), (4, 4, 128), (24, 16, 1024)])
def test_what_is_kept_fits(tokens: int, shape: tuple[int, int, int]) -> None:
    layers, heads, width = shape
    sizes = sizes_of(layers=layers, heads=heads, width=width, tokens=tokens)
    try:
        kept = select_layers(sizes, None)
    except InputError as error:
        assert "--first N" in str(error) and tokens == 380
        return
    assert taken(sizes, kept) <= PAGE
    assert kept.weights and kept.vectors <= kept.weights
    assert bool(kept.note) == (taken(sizes, kept) < taken(sizes, select_layers(sizes, None, page=10**12)))


def test_a_base_model_shows_all_its_weights() -> None:
    kept = select_layers(sizes_of(layers=12, heads=12, width=768, tokens=64), None)
    assert kept.weights == frozenset(range(12)) and kept.vectors and kept.embedding


def test_a_small_model_is_is_complete_and_not_quantized() -> None:
    kept = select_layers(sizes_of(layers=3, heads=3, width=48, tokens=11), None)
    assert kept.vectors == kept.weights == {0, 1, 2} and not kept.quantized and not kept.note


def test_too_long_names_a_length_that_does_fit() -> None:
    with pytest.raises(InputError, match=r"500 tokens are too many for one page, which holds \d+") as error:
        select_layers(sizes_of(layers=2, heads=12, width=768, tokens=500), None)
    most = int(str(error.value).split("holds ")[1].split()[0])
    select_layers(sizes_of(layers=2, heads=12, width=768, tokens=most), None)
    with pytest.raises(InputError):
        select_layers(sizes_of(layers=2, heads=12, width=768, tokens=most + 1), None)


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="request fewer"):
        select_layers(sizes_of(layers=12, heads=12, width=768, tokens=120), list(range(12)))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 12, 33])
def test_layers_are_spread(count: int) -> None:
    order = _spread(count)
    assert sorted(order) == list(range(count))
    assert order[:2] == [0, count - 1][:count]
