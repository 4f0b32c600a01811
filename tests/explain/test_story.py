"""A story as JSON: exact float32, or uint16 within the error bound, and text that stays text."""

import base64
import json

import numpy as np
import pytest

from headway.explain import story


def read(wire: dict) -> np.ndarray:
    kind = "<u2" if wire.get("type") == "fraction" else "<f4"
    values = np.frombuffer(base64.b64decode(wire["data"]), dtype=kind).reshape(wire["shape"])
    return values / 65535 if kind == "<u2" else values


def make_story(**parts) -> story.Story:
    tokens = [story.Token("</script>\u202e\U0001f600", 1), story.Token("b", 2)]
    model = story.Model("m", "f", "decoder", [("layers", "2")])
    return story.Story("t", model, {"text": story.Sequence("text", tokens)}, **parts)


def attention(weights: np.ndarray) -> story.Attention:
    return story.Attention(
        "a", "decoder", 0, "self", "text", "text", True, 0.5, 1, 1, weights, np.tril(np.ones((2, 2), dtype=bool))
    )


def test_float32_numbers_are_encoded_bit_for_bit() -> None:
    weights = np.random.default_rng(0).random((3, 2, 2)).astype(np.float32)
    wire = json.loads(make_story(attention=[attention(weights)]).to_json())["attention"][0]
    assert "type" not in wire["weights"]
    assert np.array_equal(read(wire["weights"]), weights)
    assert wire["q"] is None


def test_a_transposed_array_is_encoded_in_its_own_order() -> None:
    values = np.arange(6, dtype=np.float64).reshape(2, 3).T
    assert np.array_equal(read(story._plain(values)), values)


def test_masks_are_quantized_and_exact() -> None:
    wire = json.loads(make_story(attention=[attention(np.ones((1, 2, 2)))]).to_json())["attention"][0]
    assert wire["mask"]["type"] == "fraction"
    assert np.array_equal(read(wire["mask"]), [[1, 0], [1, 1]])


def test_quantized_values_stay_within_the_error_bound() -> None:
    values = np.random.default_rng(0).random(10_000).astype(np.float32)
    small = story.quantize(values)
    assert small.dtype == np.uint16
    assert np.abs(story.dequantize(small) - values).max() <= 1 / 131070 + 1e-9
    assert np.abs(read(story._plain(small)) - values).max() <= 1 / 131070 + 1e-9
    assert story.dequantize(story.quantize(np.array([0.0, 1.0]))).tolist() == [0.0, 1.0]


def test_tokens_are_encoded_unchanged() -> None:
    token = json.loads(make_story().to_json())["sequences"]["text"]["tokens"][0]
    assert token == {"text": "</script>\u202e\U0001f600", "id": 1, "special": False}


def test_nan_raises() -> None:
    output = story.OutputView("next", [story.RowView("x", [], float("nan"), 0)], "")
    with pytest.raises(ValueError, match="JSON compliant"):
        make_story(output=output).to_json()
