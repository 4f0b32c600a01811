"""TRUST 52: a schema or a regular expression of someone else's compiles in bounded time and memory, or is refused."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from typing import Any

import pytest

from headway.errors import ConfigError
from headway.generation import constraints
from headway.generation.constraints import Grammar
from headway.generation.settings import GenerationSettings
from headway.preprocess.text import Tokenizer

TOKENIZER = Tokenizer.train(['{"a": [1, 2]} yes no'] * 3, kind="bpe", size=280)


def nested(levels: int, inner: Any = True) -> Any:
    for _ in range(levels):
        inner = {"type": "array", "items": inner}
    return inner


def doubling(levels: int) -> dict[str, Any]:
    """Each definition contains two different ones, each of which has the next definition merged into it."""
    definitions: dict[str, Any] = {"a0": {"type": "object", "properties": {"p": {"type": "string"}}}}
    for i in range(1, levels):
        merged = {
            name: {"allOf": [{"$ref": f"#/$defs/a{i - 1}"}, {"properties": {f"{name}{i}": {"type": "string"}}}]}
            for name in "xy"
        }
        definitions[f"a{i}"] = {"type": "object", "properties": merged}
    return {"$defs": definitions, "$ref": f"#/$defs/a{levels - 1}"}


MALFORMED = {
    "deep objects": ("{" + '"a": {' * 50_000, "not JSON"),
    "deep lists": ("[" * 50_000, "not JSON"),
    "nested arrays": (nested(400), "nested more than"),
    "NaN": ({"type": "number", "minimum": float("nan")}, "nan"),
    "NaN in a text": ('{"type": "number", "minimum": NaN}', "nan"),
    "infinite": ('{"type": "number", "maximum": 1e999}', "inf"),
    "beyond floats": ({"type": "integer", "minimum": 10**400}, "finite"),
    "half a surrogate pair": ({"const": "\ud800"}, "surrogate"),
    "in a key": ({"properties": {"\udfff": {}}}, "surrogate"),
    "a key that is a number": ({"properties": {1: {}}}, "key"),
    "a value of Python": ({"const": object()}, "not a JSON value"),
    "long": ({"enum": [f"{i:08}" for i in range(200_000)]}, "characters"),
    "another notion of JSON": ({"x-guidance": {"whitespace_pattern": "(a|b)*"}}, "x-guidance"),
    "a list": ([], "must be a JSON object"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_schema_is_refused(name: str) -> None:
    schema, words = MALFORMED[name]
    with pytest.raises(ConfigError, match=f"json_schema.*{words}") as caught:
        GenerationSettings(json_schema=schema)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("regex", "words"), [("\ud800", "surrogate"), ("a" * 200_000, "characters")])
def test_a_malformed_regular_expression_is_refused(regex: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"regex .*{words}"):
        GenerationSettings(regex=regex)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"json_schema": {"$ref": "#"}}, "no text satisfies it"),
        ({"json_schema": {"$ref": "file:///etc/passwd"}}, "not present"),
        ({"json_schema": {"$ref": "http://127.0.0.1:9/x.json"}}, "not present"),
        ({"json_schema": {"type": "integer", "multipleOf": 10**9 + 7}}, "fuel"),
        ({"regex": "(" * 5000 + ")" * 5000}, "nest"),
        ({"regex": "["}, "unclosed"),
        ({"json_schema": {"enum": [-(2**63)]}}, "it crashes"),  # found by fuzzing
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.compile(f"cannot be used: .*{words}", re.DOTALL)):
        Grammar(GenerationSettings(**settings), TOKENIZER)


EXPLODING = {
    "doubling": {"json_schema": doubling(20)},
    "multiples": {"json_schema": {"anyOf": [{"type": "integer", "multipleOf": n} for n in range(9901, 9973)]}},
    "patterns": {"json_schema": {"allOf": [{"type": "string", "pattern": f".*[a-b].{{{i}}}x"} for i in range(16)]}},
}  # fmt: skip


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("multiples", "patterns")]


@pytest.mark.parametrize("name", ["doubling", *SLOW])
def test_what_takes_minutes_to_compile_is_refused_in_seconds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "SECONDS", 1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with pytest.raises(ConfigError, match="more than 1 s and 512 MB; make it simpler"):
        Grammar(GenerationSettings(**EXPLODING[name]), TOKENIZER)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 4


def test_without_the_trial_it_is_not_refused() -> None:
    """Control: the compiler itself, with the same limits, takes more than twice the time and twice the memory."""
    program = f"""
import json, resource
resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
from headway.generation.constraint_sandbox import answer
from headway.generation.constraints import JSON_STYLE, LIMITS
from llguidance import LLMatcher
schema = {EXPLODING["doubling"]["json_schema"]!r}
answer({{"grammar": LLMatcher.grammar_from_json_schema(schema, JSON_STYLE), "limits": LIMITS}})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode < 0, done.stderr.decode()[-500:]


def test_large_constraints_still_compile() -> None:
    words = [f"value {i}" for i in range(2_000)]
    assert Grammar(GenerationSettings(json_schema={"enum": words}), TOKENIZER).matches('"value 1234"')
    assert Grammar(GenerationSettings(json_schema=nested(49)), TOKENIZER).matches("[[[]]]")
    assert Grammar(GenerationSettings(json_schema=True), TOKENIZER).matches('{"a": [1]}')
    assert Grammar(GenerationSettings(regex="|".join(words)), TOKENIZER).matches("value 77")
