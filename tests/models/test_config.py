"""A config is data: there and back unchanged, through JSON too; whatever does not fit is refused by its name."""

import dataclasses
import json
import math
import types
import typing
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ConfigError
from headway.layers.embeddings import PatchConfig
from headway.layers.rotary import RotaryConfig, RotaryScaling
from headway.layers.score_bias import RelativeBiasConfig
from headway.models.build import build
from headway.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    LanguageHeadConfig,
    LayerConfig,
    ModelConfig,
    StackConfig,
    to_dict,
)
from headway.models.config_checks import validate
from headway.models.presets import transformer_2017
from headway.models.recipes import Size, decoder, encoder_decoder
from headway.validation import from_dict


def example() -> EncoderDecoderConfig:
    return transformer_2017(50, start_id=0, layers=1, width=8, heads=2, inner=16)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The example as a dictionary, one leaf replaced."""
    data = to_dict(example())
    at, *names = data, *path.split(".")
    for name in names[:-1]:
        at = at[name]
    at[names[-1]] = value
    return data


# ---------------------------------------------------------------------------------------- there and back


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a config's type, nested."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(option) for option in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        if args[-1] is Ellipsis:
            return st.lists(values(args[0]), max_size=3).map(tuple)
        return st.tuples(*(values(arg) for arg in args))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{field.name: values(hints[field.name]) for field in dataclasses.fields(kind)})
    plain = {
        int: st.integers(-5, 2**40),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        str: st.text(max_size=4),
        type(None): st.none(),
    }
    return plain[kind]


@pytest.mark.parametrize("shape", [EncoderConfig, DecoderConfig, EncoderDecoderConfig])
def test_to_dict_and_from_dict_are_inverses(shape: type) -> None:
    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(values(shape))
    def check(config: Any) -> None:
        assert from_dict(shape, to_dict(config)) == config
        assert from_dict(ModelConfig, json.loads(json.dumps(to_dict(config)))) == config

    check()


def test_a_union_finds_its_member_by_what_it_says() -> None:
    bias = StackConfig(example().encoder.stack.block, 1, score_bias=RelativeBiasConfig(8, 16))
    assert from_dict(StackConfig, to_dict(bias)).score_bias == RelativeBiasConfig(8, 16)
    alibi = dataclasses.replace(bias, score_bias="alibi")
    assert from_dict(StackConfig, to_dict(alibi)).score_bias == "alibi"
    assert isinstance(from_dict(ModelConfig, to_dict(example())), EncoderDecoderConfig)


# ---------------------------------------------------------------------------------------- refused by name


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("encoder.stack.layres", 2, r"config\.encoder\.stack: unknown key 'layres'.*layers"),
        ("encoder.stack.layers", "2", r"config\.encoder\.stack\.layers: expected int, got '2'"),
        ("encoder.stack.layers", True, r"config\.encoder\.stack\.layers: expected int, got True"),
        ("encoder.stack.layers", 2.0, r"config\.encoder\.stack\.layers: expected int, got 2\.0"),
        ("encoder.stack.causal", 1, r"config\.encoder\.stack\.causal: expected bool, got 1"),
        ("encoder.stack.block.dropout", "0.1", r"block\.dropout: expected float"),
        ("encoder.stack.block.dropout", 10**400, r"block\.dropout: expected float"),
        ("encoder.stack.block.norm_place", "middle", r"norm_place: 'middle' is not one of 'pre', 'post'"),
        ("encoder.stack.block.norm", None, r"block\.norm: expected an object, got None"),
        ("encoder.stack.per_layer", 4, r"per_layer: expected a list, got 4"),
        ("encoder.stack.per_layer", [{}, {"window": "x"}], r"per_layer\[1\].window: expected int, got 'x'"),
        ("shape", "encoder", r"config\.shape: 'encoder' is not one of"),
    ],
)
def test_what_does_not_fit_is_named(path: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_dict(EncoderDecoderConfig, changed(path, value))


def test_a_missing_key_is_named() -> None:
    data = to_dict(example())
    del data["decoder"]["stack"]["layers"]
    with pytest.raises(ConfigError, match=r"config\.decoder\.stack: missing key 'layers'"):
        from_dict(EncoderDecoderConfig, data)
    for wrong in ([], None, "encoder", 3):
        with pytest.raises(ConfigError, match="expected an object"):
            from_dict(EncoderDecoderConfig, wrong)


def test_a_whole_number_will_do_for_a_float() -> None:
    config = from_dict(EncoderDecoderConfig, changed("encoder.stack.block.dropout", 0))
    assert isinstance(config.encoder.stack.block.dropout, float)


# ---------------------------------------------------------------------------------------- sizes that cannot be


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("encoder.stack.layers", -1, "layers is -1: it must be positive"),
        ("encoder.stack.layers", 10_001, "layers is 10001: larger"),
        ("encoder.embedding.vocab", 0, "vocab is 0: it must be positive"),
        ("encoder.embedding.vocab", 10**12, "larger than any model"),
        ("encoder.stack.block.attention.heads", 0, "heads is 0"),
        ("encoder.stack.block.attention.kv_heads", 0, "kv_heads is 0"),
        ("encoder.stack.block.attention.kv_heads", 3, "kv_heads is 3: it does not divide the 2 heads"),
        ("encoder.stack.block.feedforward.width", 10**8, "larger"),
        ("encoder.stack.block.norm.eps", -1e-5, "eps is -1e-05: it must not be negative"),
        ("encoder.stack.block.norm.eps", math.nan, "eps is nan: it must be a finite number"),
        ("encoder.embedding.scale", math.inf, "scale is inf"),
        ("encoder.stack.block.dropout", 1.0, "dropout is 1.0: it must be from 0 to below 1"),
        ("encoder.stack.final_dropout", -0.1, "final_dropout is -0.1"),
        ("encoder.stack.per_layer", [{"window": 0}], r"per_layer\[0\].window is 0: it must be positive"),
        ("encoder.stack.per_layer", [{}, {}, {}], "per_layer has 3 values for 1 layers"),
        ("encoder.embedding.width", 10, "embedding.width is 10 but the blocks' is 8"),
        ("decoder.embedding.vocab", 51, "one vocabulary, not 50 and 51"),
        ("start_id", -1, "start_id is -1"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_anything_is_built(path: str, value: Any, said: str) -> None:
    config = from_dict(EncoderDecoderConfig, changed(path, value))
    with pytest.raises(ConfigError, match=said) as caught:
        build(config)
    assert "config." in str(caught.value)


def test_good_configs_pass() -> None:
    validate(example())
    for path, value in (("start_id", 0), ("encoder.stack.layers", 0), ("encoder.stack.per_layer", [{}])):
        validate(from_dict(EncoderDecoderConfig, changed(path, value)))


ROTARY = {
    "theta": [0.0, 1.0, -5.0],
    "share": [0.0, -1.0, 1.5, 1e308, 0.4],
    "scaling": [
        RotaryScaling("yarn", original_length=0),
        RotaryScaling("yarn", original_length=16, beta_fast=0.0),
        RotaryScaling("yarn", original_length=16, beta_slow=1e-320),
        RotaryScaling("yarn", original_length=16, mscale=1.0, mscale_all_dim=-10.0),
        RotaryScaling("linear", factor=0.0),
        RotaryScaling("dynamic", factor=2.0, original_length=0),
        RotaryScaling("llama3", factor=2.0, low_freq_factor=4.0, high_freq_factor=4.0),
        RotaryScaling("longrope", original_length=16, short_factor=(1.0,), long_factor=(1.0,) * 4),
    ],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ROTARY.items() for value in values])
@pytest.mark.parametrize("per_layer", [False, True])
def test_rotary_values_without_angles_are_refused(field, value, per_layer):
    config = decoder(Size(width=16, layers=2, heads=2), "modern", vocab=20, context=32)
    rotary = RotaryConfig(**{field: value})
    if per_layer:
        stack = replace(config.stack, per_layer=(LayerConfig(rotary=rotary), LayerConfig()))
    else:
        attention = replace(config.stack.block.attention, rotary=rotary)
        stack = replace(config.stack, block=replace(config.stack.block, attention=attention))
    with pytest.raises(ConfigError, match=rf"rotary\.{field}"):
        build(replace(config, stack=stack))


def test_distances_without_buckets_and_starts_outside_the_vocabulary_are_refused():
    pair = encoder_decoder(Size(width=16, layers=1, heads=2), "classic", vocab=20, context=32, start_id=1)
    with pytest.raises(ConfigError, match="start_id is 20: the vocabulary has 20 tokens"):
        build(replace(pair, start_id=20))
    for causal, few, enough in ((True, 1, 2), (False, 3, 4)):
        stack = StackConfig(pair.encoder.stack.block, 1, causal=causal, score_bias=RelativeBiasConfig(few))
        with pytest.raises(ConfigError, match=rf"score_bias\.buckets is {few}"):
            build(replace(pair.encoder, stack=stack))
        model = build(replace(pair.encoder, stack=replace(stack, score_bias=RelativeBiasConfig(enough)))).eval()
        assert model(torch.tensor([[1, 2, 3]])).hidden.isfinite().all()


def test_a_picture_of_absurd_size_is_refused():
    """Found by the fuzzer: a number that torch cannot take."""
    embedding = PatchConfig(width=8, image=(8, 8), patch=(4, 4), channels=1)
    validate(embedding)
    with pytest.raises(ConfigError, match="image has a value larger than any model"):
        validate(replace(embedding, image=(8, 10**400)))


def test_a_head_for_tokens_needs_a_model_that_reads_them():
    """Found by the fuzzer: an image encoder whose head is empty, and so that of a language model by default."""
    block = example().encoder.stack.block
    model = EncoderConfig(PatchConfig(width=8, image=(8, 8), patch=(4, 4), channels=1), StackConfig(block, 1))
    validate(model)
    with pytest.raises(ConfigError, match="head predicts tokens, but the model reads none"):
        validate(replace(model, head=LanguageHeadConfig()))
