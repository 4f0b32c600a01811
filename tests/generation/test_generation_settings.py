"""Settings are refused by name, before anything is computed."""

from dataclasses import fields

import pytest

from headway.errors import ConfigError, InputError
from headway.generation.settings import GenerationSettings

TYPES = {each.name: type(each.default) for each in fields(GenerationSettings)}
WHOLE = [name for name, kind in TYPES.items() if kind is int]
REAL = [name for name, kind in TYPES.items() if kind is float]


@pytest.mark.parametrize("field", WHOLE)
@pytest.mark.parametrize("value", [-1, 1.5, True, "3", None, 10**12])
def test_whole_numbers(field, value):
    with pytest.raises(ConfigError, match=f"^{field} is "):
        GenerationSettings(**{field: value})


@pytest.mark.parametrize("field", REAL)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", None, True, 10**400])
def test_real_numbers(field, value):
    with pytest.raises(ConfigError, match=f"^{field} is "):
        GenerationSettings(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.1),
        ("typical_p", 0),
        ("repetition_penalty", 0),
        ("diversity_penalty", -1),
        ("max_new_tokens", 0),
        ("beams", 0),
        ("seed", -1),
        ("seed", 1.0),
        ("logprobs", 1),
        ("early_stopping", "always"),
        ("early_stopping", 1),
        ("overflow", "truncate"),
        ("coverage_penalty", -1),
        ("seed", [1, -1]),
        ("regex", 3),
        ("json_schema", 3),
        ("stop", [""]),
        ("stop", 3),
        ("stop_ids", 3),
        ("max_length", 0),
        ("forced_bos_id", -1),
        ("forced_bos_id", [3]),
        ("bad_words", [3]),
        ("bad_words", [[]]),
        ("renormalize", 1),
    ],
)
def test_values_out_of_range(field, value):
    with pytest.raises(ConfigError, match=f"^{field} is "):
        GenerationSettings(**{field: value})


@pytest.mark.parametrize(
    "field", ["eos_ids", "stop_ids", "prefix", "forced_eos_ids", "suppress_ids", "begin_suppress_ids"]
)
@pytest.mark.parametrize("value", [[-1], [1.0], [True], ["</s>"]])
def test_ids(field, value):
    with pytest.raises(ConfigError, match=f"^{field} contains "):
        GenerationSettings(**{field: value})


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens"),
        ({"beams": 2, "temperature": 1.0}, "beams"),
        ({"beams": 4, "groups": 3}, "groups"),
        ({"beams": 4, "diversity_penalty": 1.0}, "diversity_penalty"),
        ({"n": 2}, "n is 2"),
        ({"coverage_penalty": 0.2}, "coverage_penalty"),
        ({"coverage_penalty": 0.2, "beams": 2, "overflow": "window"}, "coverage_penalty"),
        ({"regex": "a", "json_schema": {}}, "regex and json_schema"),
        ({"json_schema": "{"}, "json_schema is not JSON"),
        ({"beams": 2, "n": 3}, "n is 3"),
    ],
)
def test_contradictions(fields, names):
    with pytest.raises(ConfigError, match=f"^{names}"):
        GenerationSettings(**fields)


def test_what_is_allowed():
    settings = GenerationSettings(
        stop="\n", eos_ids=[3, 4], stop_ids=[4, 5], temperature=1, n=3, early_stopping="never"
    )
    assert settings.stop == ("\n",) and settings.eos_ids == (3, 4) and settings.end_ids == (3, 4, 5)
    assert hash(settings) == hash(GenerationSettings(**vars(settings)))


def test_lengths_of_prompt_and_answer_become_limits_on_new_tokens():
    settings = GenerationSettings(max_new_tokens=100, max_length=20, min_length=15)
    assert settings.for_prompt(5) == GenerationSettings(max_new_tokens=15, min_new_tokens=10)
    assert settings.for_prompt(18) == GenerationSettings(max_new_tokens=2, min_new_tokens=0)
    with pytest.raises(InputError, match=r"20 tokens.*max_length.*is 20"):
        settings.for_prompt(20)
