"""Data from outside is converted to its type or refused with the path of the value."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import pytest

from headway.errors import ConfigError, with_article
from headway.validation import Check, between, from_dict


@dataclass(frozen=True)
class Inner:
    size: Annotated[int, between(1, 9)]
    rate: float = 0.5


class Record(TypedDict):
    name: str
    inner: Inner
    values: list[int]


@dataclass(frozen=True)
class Outer:
    kind: Literal["a", "b"]
    inner: Inner | None = None
    pairs: tuple[int, float] = (1, 2.0)
    many: tuple[str, ...] = ()
    table: dict[str, Inner] = field(default_factory=dict)
    either: int | str = 0
    word: Annotated[str, Check("a word", str.isalpha)] = "x"
    anything: Any = None


def test_good_data_is_converted() -> None:
    data = {"kind": "a", "inner": {"size": 3, "rate": 1}, "pairs": [1, 2], "many": ["x"], "table": {"t": {"size": 1}}}
    assert from_dict(Outer, data) == Outer("a", Inner(3, 1.0), (1, 2.0), ("x",), {"t": Inner(1)})
    record = {"name": "n", "inner": {"size": 2}, "values": [1, 2]}
    assert from_dict(Record, record) == {"name": "n", "inner": Inner(2), "values": [1, 2]}
    assert from_dict(Outer, {"kind": "b", "either": "s", "anything": [1]}) == Outer("b", either="s", anything=[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "c"}, "top.kind: 'c' is not one of 'a', 'b'"),
        ({"kind": []}, r"top.kind: [] is not one of 'a', 'b'"),
        ({"inner": {"size": 0}}, "top.inner.size: expected a whole number from 1 to 9, got 0"),
        ({"inner": {"size": True}}, "top.inner.size: expected a whole number from 1 to 9, got True"),
        ({"inner": {"size": "3"}}, "top.inner.size: expected a whole number from 1 to 9, got '3'"),
        ({"inner": {"size": 3, "rate": "x"}}, "top.inner.rate: expected float, got 'x'"),
        ({"inner": {"size": 3, "rate": 10**400}}, "top.inner.rate: expected float, got 1000"),
        ({"inner": {}}, "top.inner: missing key 'size'"),
        ({"inner": {"size": 1, "sise": 1}}, "top.inner: unknown key 'sise'; known: size, rate"),
        ({"pairs": [1]}, "top.pairs: expected 2 values, got 1"),
        ({"pairs": {}}, "top.pairs: expected a list, got {}"),
        ({"many": ["a", 3]}, "top.many[1]: expected str, got 3"),
        ({"table": {"t": []}}, "top.table.t: expected an object, got []"),
        ({"either": None}, "top.either: expected int or str, got None"),
        ({"word": "a b"}, "top.word: expected a word, got 'a b'"),
        ({"word": 5}, "top.word: expected a word, got 5"),
    ],
)
def test_bad_data_is_refused_by_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Outer, {"kind": "a"} | change, path="top")
    assert str(caught.value).startswith(message)


def test_long_values_are_shortened_and_the_root_has_no_path() -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Record, {"name": "n", "inner": {"size": 2}, "values": ["x" * 1000]}, path="")
    assert str(caught.value).startswith("values[0]: expected int, got 'xxx") and len(str(caught.value)) < 150
    with pytest.raises(ConfigError, match=r"^missing key 'inner'$"):
        from_dict(Record, {"name": "n", "values": []}, path="")
    with pytest.raises(ConfigError, match=r"^expected an object, got an object$"):
        from_dict(Record, object(), path="")


@pytest.mark.parametrize(("name", "text"), [("encoder", "an encoder"), ("decoder", "a decoder"), ("int", "an int")])
def test_names_have_their_article(name: str, text: str) -> None:
    assert with_article(name) == text
